"""ControlService: the requests that are answered at once or after a bounded wait. Streams are in `streams.py`."""

from __future__ import annotations

import hashlib
import platform
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import grpc
from google.protobuf.message import Message

from elastic.control.codec import ASSIGNMENT, DETAIL, ELASTICITY, MOVE, NODE, SPEC, STATE, SUMMARY
from elastic.control.ports import NimbusPort, NodeAccess
from elastic.control.streams import Streams
from elastic.control.v1 import control_pb2 as pb
from elastic.control.v1.control_pb2_grpc import ControlServiceServicer
from elastic.control.version import version
from elastic.errors import Begun, ConfigError, ElasticError, Ended, NotFound, Refused, Superseded, Unavailable
from elastic.model.events import Severity
from elastic.model.views import NodeSummary
from elastic.model.words import counted, size
from elastic.reporting.codec import EVENT
from elastic.rpc.channels import CHUNK, MAX_MESSAGE
from elastic.rpc.errors import NotLeading
from elastic.rpc.server import Server

DEFAULT_DEADLINE = 30.0
"""Seconds that a call without a deadline may take."""

MOST_PAIRS = 20_000
"""Pairs of tasks that a topology is described with: of more, each look would keep Nimbus busy for seconds, and at last they would be more
than an answer holds. What is summed up of them is told in any case."""

_HASH = re.compile(r"[0-9a-f]{64}")
_SLACK = 0.25
_FOR_EVER = 1e8  # without a deadline gRPC says some centuries
_STACKS = 10.0
_ASKED = 16
"""Nodes that are asked at the same time."""


@contextmanager
def led_by(nimbus: NimbusPort, server: Server) -> Iterator[None]:
    """Only the leader goes on.

    Raises:
        NotLeading: It isn't, or stopped to be while it was asked, and did nothing; names the leader.
        Begun: It stopped to be, and what was asked for may have been done, or will be.
        Ended: The cluster has been ended, and did nothing.
    """
    if not nimbus.leading:
        raise _not_leading(nimbus, server)
    try:
        yield
    except (Begun, Ended):
        raise
    except (Refused, Unavailable, Superseded) as e:
        if nimbus.leading and not isinstance(e, Superseded):
            raise
        raise _not_leading(nimbus, server) from e


def _leader(nimbus: NimbusPort) -> str:
    """Who leads; "" when nobody does, or when coordination cannot be asked."""
    try:
        return nimbus.leader() or ""
    except Unavailable:
        return ""


def _not_leading(nimbus: NimbusPort, server: Server) -> ElasticError:
    if server.over:
        return server.gone()
    leader = _leader(nimbus)
    if leader == server.address:  # chosen, and not ready yet
        leader = ""
    who = f", that at {leader} does" if leader else "; nobody does yet"
    return NotLeading(
        f"the Nimbus at {server.address} does not lead{who}",
        remedy=f"Ask {leader}." if leader else "Try again in a moment.",
        leader=leader,
    )


def _bounded(wait: float, context: grpc.ServicerContext) -> float:
    """A wait that leaves time to answer before the caller's deadline.

    Raises:
        ConfigError: It isn't a number of seconds.
    """
    if not 0 <= wait < float("inf"):
        raise ConfigError(f"{wait} is no time to wait", remedy="Give seconds, 0 or more.")
    left = context.time_remaining()
    if left is None or left > _FOR_EVER:
        left = DEFAULT_DEADLINE
    return max(0.0, min(wait, left - _SLACK))


def _check_size(answer: Message, what: str, remedy: str) -> None:
    """Raises Refused when an answer is more than a message holds."""
    if (found := answer.ByteSize()) > MAX_MESSAGE:
        raise Refused(
            f"{what} are more than an answer holds ({size(found)} of {size(MAX_MESSAGE)})", remedy=remedy
        )


class ControlService(ControlServiceServicer):
    """Translates requests to calls of Nimbus.

    Args:
        nimbus: Whom to ask.
        nodes: How to reach the nodes; None where there are none to reach: logs and stacks are refused.
        server: That serves this.
        cluster: The cluster's name.
        max_bundle: Bytes of the largest code bundle.
    """

    def __init__(
        self, nimbus: NimbusPort, nodes: NodeAccess | None, server: Server, *, cluster: str, max_bundle: int
    ) -> None:
        self._nimbus = nimbus
        self._nodes = nodes
        self._server = server
        self._cluster = cluster
        self._max_bundle = max_bundle
        self._started = time.monotonic()
        self._streams = Streams(nimbus, nodes, server, lambda: led_by(nimbus, server))

    def Submit(
        self, requests: Iterator[pb.SubmitRequest], context: grpc.ServicerContext
    ) -> pb.SubmitResponse:
        with led_by(self._nimbus, self._server):
            first = next(requests, None)
            if first is None or first.WhichOneof("part") != "header":
                raise ConfigError("a submit request begins with a header")
            header = first.header
            spec = SPEC.decode(header.spec)
            if not _HASH.fullmatch(header.bundle_sha256):
                raise ConfigError(f"{header.bundle_sha256!r} is no SHA-256 in hexadecimal digits")
            if header.bundle_size > self._max_bundle:
                raise Refused(
                    f"the code bundle of {spec.name} has {header.bundle_size} bytes, "
                    f"and at most {self._max_bundle} are taken",
                    remedy="Keep data out of the bundle: ship code, read data where it is.",
                )
            self._store(requests, header)
            state = self._nimbus.submit(spec, bundle=header.bundle_sha256, requires=tuple(header.requires))
            return pb.SubmitResponse(state=STATE.encode(state))

    def _store(self, requests: Iterator[pb.SubmitRequest], header: pb.SubmitHeader) -> None:
        """Put the bundle that follows in the store; nothing is kept when it isn't what the header says."""
        digest, size = hashlib.sha256(), 0
        writer = self._nimbus.bundles.begin()
        try:
            for request in requests:
                if request.WhichOneof("part") != "chunk" or len(request.chunk) > CHUNK:
                    raise ConfigError(f"after the header come pieces of at most {CHUNK} bytes")
                size += len(request.chunk)
                if size > header.bundle_size:
                    break
                digest.update(request.chunk)
                writer.write(request.chunk)
            if size != header.bundle_size or digest.hexdigest() != header.bundle_sha256:
                raise ConfigError(
                    f"the code bundle of {header.spec.name} did not arrive as announced: "
                    f"{size} bytes of {header.bundle_size}, or another hash",
                    remedy="Submit again; does something change the file meanwhile?",
                )
            writer.commit()
        except BaseException:
            writer.abort()
            raise

    def ListTopologies(
        self, request: pb.ListTopologiesRequest, context: grpc.ServicerContext
    ) -> pb.ListTopologiesResponse:
        with led_by(self._nimbus, self._server):
            return pb.ListTopologiesResponse(topologies=map(SUMMARY.encode, self._nimbus.topologies()))

    def DescribeTopology(
        self, request: pb.DescribeTopologyRequest, context: grpc.ServicerContext
    ) -> pb.DescribeTopologyResponse:
        with led_by(self._nimbus, self._server):
            detail = self._nimbus.describe(request.name)
            if sum(len(r.pairs) for r in detail.reports) > MOST_PAIRS:
                detail = replace(detail, reports=tuple(replace(r, pairs=()) for r in detail.reports))
            return pb.DescribeTopologyResponse(topology=DETAIL.encode(detail))

    @contextmanager
    def _waiting(self, wait: float, context: grpc.ServicerContext) -> Iterator[float]:
        """As `_bounded`; raises Refused, before anything is asked for, when too many wait already."""
        wait = _bounded(wait, context)
        with self._server.waiting() if wait > 0 else nullcontext():
            yield wait

    def Kill(self, request: pb.KillRequest, context: grpc.ServicerContext) -> pb.KillResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            self._nimbus.kill(request.name, wait=wait)
            return pb.KillResponse()

    def Activate(self, request: pb.ActivateRequest, context: grpc.ServicerContext) -> pb.ActivateResponse:
        with led_by(self._nimbus, self._server):
            self._nimbus.activate(request.name)
            return pb.ActivateResponse()

    def Deactivate(
        self, request: pb.DeactivateRequest, context: grpc.ServicerContext
    ) -> pb.DeactivateResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            drained = self._nimbus.deactivate(request.name, wait=wait)
            return pb.DeactivateResponse(drained=drained)

    def Rebalance(self, request: pb.RebalanceRequest, context: grpc.ServicerContext) -> pb.RebalanceResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            assignment = self._nimbus.rebalance(
                request.name,
                executors=dict(request.executors),
                workers=request.workers if request.HasField("workers") else None,
                wait=wait,
                share=request.share if request.HasField("share") else None,
            )
            return pb.RebalanceResponse(assignment=ASSIGNMENT.encode(assignment))

    def Move(self, request: pb.MoveRequest, context: grpc.ServicerContext) -> pb.MoveResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            assignment = self._nimbus.move(
                request.name,
                request.what,
                request.where,
                wait=wait,
                share=request.share if request.HasField("share") else None,
            )
            return pb.MoveResponse(assignment=ASSIGNMENT.encode(assignment))

    def AbortMove(self, request: pb.AbortMoveRequest, context: grpc.ServicerContext) -> pb.AbortMoveResponse:
        with led_by(self._nimbus, self._server):
            epoch = request.epoch if request.HasField("epoch") else None
            epochs = self._nimbus.abort_move(request.name, epoch, request.why, force=request.force)
            return pb.AbortMoveResponse(epochs=epochs)

    def ListMoves(self, request: pb.ListMovesRequest, context: grpc.ServicerContext) -> pb.ListMovesResponse:
        with led_by(self._nimbus, self._server):
            found = self._nimbus.moves(request.topology or None)
            if request.HasField("epoch"):
                found = [m for m in found if m.epoch == request.epoch]
            wanted = found
            if request.limit > 0:
                later = [m for m in found[request.limit :] if m.state != "ended"]
                wanted = [*found[: request.limit], *later]
            if request.without_tasks:
                wanted = [replace(m, tasks=(), waits=()) for m in wanted]
            answer = pb.ListMovesResponse(moves=map(MOVE.encode, wanted))
            what = f"{counted(len(wanted), 'move')} with all their tasks"
            _check_size(answer, what, "Ask for fewer of them (--limit), or for one by its number.")
            return answer

    def StreamMoves(
        self, request: pb.StreamMovesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamMovesResponse]:
        return self._streams.moves(request, context)

    def GetElasticity(
        self, request: pb.GetElasticityRequest, context: grpc.ServicerContext
    ) -> pb.GetElasticityResponse:
        with led_by(self._nimbus, self._server):
            return pb.GetElasticityResponse(elasticity=ELASTICITY.encode(self._nimbus.elasticity()))

    def SetElasticity(
        self, request: pb.SetElasticityRequest, context: grpc.ServicerContext
    ) -> pb.SetElasticityResponse:
        with led_by(self._nimbus, self._server):
            found = self._nimbus.set_elasticity(
                policy=request.policy if request.HasField("policy") else None,
                scheduler=request.scheduler if request.HasField("scheduler") else None,
                period=request.period if request.HasField("period") else None,
                nodes=request.nodes if request.HasField("nodes") else None,
            )
            return pb.SetElasticityResponse(elasticity=ELASTICITY.encode(found))

    def GenerateSchedules(
        self, request_iterator: Iterator[pb.GenerateSchedulesRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.GenerateSchedulesResponse]:
        return self._streams.schedules(request_iterator, context)

    def ListNodes(self, request: pb.ListNodesRequest, context: grpc.ServicerContext) -> pb.ListNodesResponse:
        with led_by(self._nimbus, self._server):
            return pb.ListNodesResponse(nodes=map(NODE.encode, self._nimbus.nodes()))

    def AddNodes(self, request: pb.AddNodesRequest, context: grpc.ServicerContext) -> pb.AddNodesResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            added = self._nimbus.add_nodes(
                request.count,
                slots=request.slots if request.HasField("slots") else None,
                host=request.host,
                wait=wait,
            )
            return pb.AddNodesResponse(nodes=added)

    def DrainNode(self, request: pb.DrainNodeRequest, context: grpc.ServicerContext) -> pb.DrainNodeResponse:
        with led_by(self._nimbus, self._server), self._waiting(request.wait, context) as wait:
            self._nimbus.drain_node(request.node, wait=wait, force=request.force)
            return pb.DrainNodeResponse()

    def StreamEvents(
        self, request: pb.StreamEventsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamEventsResponse]:
        return self._streams.events(request, context)

    def StreamLogs(
        self, request: pb.StreamLogsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamLogsResponse]:
        return self._streams.logs(request, context)

    def Errors(self, request: pb.ErrorsRequest, context: grpc.ServicerContext) -> pb.ErrorsResponse:
        with led_by(self._nimbus, self._server):
            if request.topology:
                found = list(self._nimbus.describe(request.topology).errors)
            else:
                found = [e for _, e in self._nimbus.events.since(0) if e.severity is Severity.ERROR]
            wanted = found[-request.limit :] if request.limit > 0 else found
            answer = pb.ErrorsResponse(errors=map(EVENT.encode, wanted))
            remedy = "Ask for fewer of them (--limit); events tell all, one by one."
            _check_size(answer, counted(len(wanted), "error"), remedy)
            return answer

    def Stacks(self, request: pb.StacksRequest, context: grpc.ServicerContext) -> pb.StacksResponse:
        with led_by(self._nimbus, self._server):
            if self._nodes is None:
                raise Refused("this Nimbus has no way to its nodes")
            detail = self._nimbus.describe(request.topology)
            wanted = request.worker
            if wanted and "@" not in wanted:  # the short form: its place
                wanted = f"{request.topology}@{wanted}"
            hosting = {w.node for w in detail.workers if wanted in ("", w.worker)}
            if not hosting:
                what = f"worker {request.worker}" if request.worker else "worker at all"
                known = ", ".join(sorted(str(w.worker) for w in detail.workers))
                raise NotFound(
                    f"topology {request.topology} has no {what}", remedy=f"it has {known}" if known else ""
                )
            asked = [
                n for n in sorted(self._nimbus.nodes(), key=lambda n: n.id) if n.id in hosting and n.address
            ]

            def ask(node: NodeSummary) -> Sequence[tuple[str, str]] | Unavailable:
                assert self._nodes is not None
                left = _bounded(_STACKS, context)
                try:
                    return self._nodes.stacks(node.address, request.topology, wanted, left)
                except Unavailable as e:
                    return e

            # At the same time: where something hangs, it may hang everywhere.
            with ThreadPoolExecutor(_ASKED, thread_name_prefix="stacks") as pool:
                found = list(pool.map(ask, asked))
            answer, problems = pb.StacksResponse(), list[str]()
            for node, told in zip(asked, found, strict=True):
                if isinstance(told, Unavailable):
                    problems.append(f"node {node.id}: {told.message}")
                    # Its workers do not answer either.
                    told = [
                        (w.worker, "")
                        for w in detail.workers
                        if w.node == node.id and wanted in ("", w.worker)
                    ]
                for worker, text in told:
                    answer.workers.add(worker=worker, node=node.id, text=text)
            if problems and len(problems) == len(asked):
                raise Unavailable(f"no stacks of {request.topology}: " + "; ".join(problems))
            return answer

    def ClusterInfo(
        self, request: pb.ClusterInfoRequest, context: grpc.ServicerContext
    ) -> pb.ClusterInfoResponse:
        return pb.ClusterInfoResponse(
            cluster=self._cluster,
            version=version(),
            leader=_leader(self._nimbus),
            address=self._server.address,
            leading=self._nimbus.leading,
            uptime=time.monotonic() - self._started,
            python=platform.python_version(),
        )
