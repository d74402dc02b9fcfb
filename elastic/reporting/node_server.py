"""The gRPC service of a node: its logs, what its Python lacks, what its threads are doing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Protocol

import grpc

from elastic.errors import RequestError
from elastic.reporting.log_tail import LogTail
from elastic.reporting.v1 import reporting_pb2 as pb
from elastic.reporting.v1.reporting_pb2_grpc import NodeServiceServicer, add_NodeServiceServicer_to_server
from elastic.rpc.server import STREAMS, Server

LOOK = 0.2
"""Seconds between looks at followed log files; see `elastic.reporting.log_tail`."""

REFRESH = 1.0
"""Seconds between looks for log files that have come."""

_STACKS_WITHIN = 5.0


class NodeSupervisor(Protocol):
    """What this service asks of the node's supervisor. Called on the server's threads."""

    def log_files(self, topology: str, worker: str) -> Sequence[tuple[str, Path]]:
        """(worker, log file) of a topology's workers here, present and past; `worker` "" for all."""

    def missing_modules(self, modules: Sequence[str]) -> Sequence[str]:
        """Which of these top-level modules cannot be imported here."""

    def request_stacks(self, worker: str) -> Future[str]:
        """Have that worker say what its threads are doing. Raises NotFound when it isn't running."""


class NodeServer:
    """Serves NodeService.

    Args:
        supervisor: Whom to ask.
        listen: `host:port`; port 0 takes a free one.
        allow_remote: Whether it may be reached from other machines.

    Raises:
        ConfigError: `listen` is not loopback, and `allow_remote` not given.
        EnvironmentProblem: The port is taken.
    """

    def __init__(
        self, supervisor: NodeSupervisor, listen: str = "127.0.0.1:0", *, allow_remote: bool = False
    ) -> None:
        # As many streams as a Nimbus serves: each that is followed there is one here.
        self._server = Server(listen, name="node-service", allow_remote=allow_remote, threads=8 + STREAMS)
        add_NodeServiceServicer_to_server(_NodeService(supervisor, self._server), self._server.grpc)

    @property
    def address(self) -> str:
        """`host:port` where it listens; known before it is started."""
        return self._server.address

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._server.start()

    def close(self) -> None:
        """End all streams; its threads have ended when it returns."""
        self._server.close()


class _NodeService(NodeServiceServicer):
    def __init__(self, supervisor: NodeSupervisor, server: Server) -> None:
        self._supervisor = supervisor
        self._server = server

    def MissingModules(
        self, request: pb.MissingModulesRequest, context: grpc.ServicerContext
    ) -> pb.MissingModulesResponse:
        return pb.MissingModulesResponse(missing=self._supervisor.missing_modules(list(request.modules)))

    def Logs(self, request: pb.LogsRequest, context: grpc.ServicerContext) -> Iterator[pb.LogsResponse]:
        tail = LogTail(
            lambda: self._supervisor.log_files(request.topology, request.worker),
            tail=request.tail if request.HasField("tail") else None,
        )
        with self._server.stream(context) as ended:
            refreshed = time.monotonic()
            while not ended.is_set():
                if time.monotonic() - refreshed > REFRESH:
                    tail.refresh()
                    refreshed = time.monotonic()
                if lines := tail.read():
                    yield from _messages(lines)
                    continue
                if not request.follow:
                    yield from _messages(tail.rest())
                    return
                ended.wait(LOOK)
        raise self._server.gone()

    def Stacks(self, request: pb.StacksRequest, context: grpc.ServicerContext) -> pb.StacksResponse:
        asked: list[tuple[str, Future[str]]] = []
        for worker, _ in self._supervisor.log_files(request.topology, request.worker):
            try:
                asked.append((worker, self._supervisor.request_stacks(worker)))
            except RequestError:  # it isn't running: only its log is left
                if request.worker:
                    raise
        within = min(_STACKS_WITHIN, context.time_remaining() or _STACKS_WITHIN)
        answered, _ = wait([found for _, found in asked], within)
        answer = pb.StacksResponse()
        for worker, found in asked:
            answer.workers.add(worker=worker, text=found.result() if found in answered else "")
        return answer


def _messages(lines: Sequence[tuple[str, str]]) -> Iterator[pb.LogsResponse]:
    """Lines in messages of a few hundred kilobytes at most."""
    message, size = pb.LogsResponse(), 0
    for worker, text in lines:
        message.lines.add(worker=worker, text=text)
        size += len(text)
        if size > 256 << 10:
            yield message
            message, size = pb.LogsResponse(), 0
    if message.lines:
        yield message
