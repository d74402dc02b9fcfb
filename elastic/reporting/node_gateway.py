"""How Nimbus asks the nodes' supervisors. A channel per request: they are rare, and nodes come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grpc

from elastic.errors import DeadlineExceeded, ElasticError, Unavailable
from elastic.reporting.v1 import reporting_pb2 as pb
from elastic.reporting.v1.reporting_pb2_grpc import NodeServiceStub
from elastic.rpc.channels import open_channel
from elastic.rpc.errors import from_call


class GrpcNodeGateway:
    """The requests to a node; `address` is that of its NodeInfo. All raise `Unavailable` when it doesn't answer."""

    def missing_modules(self, address: str, modules: Sequence[str], timeout: float) -> tuple[str, ...]:
        """Which of these top-level modules cannot be imported there.

        Args:
            timeout: Seconds.
        """
        try:
            with open_channel(address) as channel:
                request = pb.MissingModulesRequest(modules=modules)
                return tuple(NodeServiceStub(channel).MissingModules(request, timeout=timeout).missing)
        except grpc.RpcError as e:
            raise _in_time(from_call(e, doing="look for modules", address=address)) from e

    def logs(self, address: str, topology: str, worker: str, *, follow: bool, tail: int | None) -> NodeLogs:
        """The log lines of a topology's workers there; `worker` "" for all. The caller closes what it gets."""
        return NodeLogs(address, pb.LogsRequest(topology=topology, worker=worker, follow=follow, tail=tail))

    def stacks(self, address: str, topology: str, worker: str, timeout: float) -> tuple[tuple[str, str], ...]:
        """(worker, stacks of its threads) of a topology's workers there; `worker` "" for all.

        Args:
            timeout: Seconds.
        """
        try:
            with open_channel(address) as channel:
                request = pb.StacksRequest(topology=topology, worker=worker)
                found = NodeServiceStub(channel).Stacks(request, timeout=timeout).workers
                return tuple((w.worker, w.text) for w in found)
        except grpc.RpcError as e:
            raise _in_time(
                from_call(e, doing=f"get the stacks of {worker or topology}", address=address)
            ) from e


def _in_time(error: ElasticError) -> ElasticError:
    """A node that is late is as good as away: the request that it was asked for may still be in time."""
    return Unavailable(error.message, remedy=error.remedy) if isinstance(error, DeadlineExceeded) else error


class NodeLogs:
    """One node's stream of log lines."""

    def __init__(self, address: str, request: pb.LogsRequest) -> None:
        self._address = address
        self._topology = request.topology
        self._channel = open_channel(address)
        # A followed log has no end, so no deadline: keepalive pings notice a node that vanished.
        self._call = NodeServiceStub(self._channel).Logs(request, timeout=None if request.follow else 600.0)

    def __iter__(self) -> Iterator[list[tuple[str, str]]]:
        """Batches of (worker, line).

        Raises:
            Unavailable: The node went away, or this was closed.
        """
        try:
            for message in self._call:
                yield [(line.worker, line.text) for line in message.lines]
        except grpc.RpcError as e:
            raise from_call(e, doing=f"read the logs of {self._topology}", address=self._address) from e

    def close(self) -> None:
        """End the stream, also while another thread iterates. Safe to call twice."""
        self._call.cancel()  # type: ignore[no-untyped-call]
        self._channel.close()
