"""ReportingService: what the supervisors tell Nimbus, and the code bundles that they fetch."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import grpc

from elastic.control.ports import NimbusPort
from elastic.control.service import led_by
from elastic.errors import NotFound
from elastic.reporting.codec import EVENT, NODE_REPORT, REPORT
from elastic.reporting.v1 import reporting_pb2 as pb
from elastic.reporting.v1.reporting_pb2_grpc import ReportingServiceServicer
from elastic.rpc.channels import CHUNK
from elastic.rpc.server import Server

_SESSIONS = 10_000


@dataclass
class _Session:
    """One life of a sender."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    taken: int = 0


class ReportingService(ReportingServiceServicer):
    """Takes reports, each batch once, and serves bundles."""

    def __init__(self, nimbus: NimbusPort, server: Server) -> None:
        self._nimbus = nimbus
        self._server = server
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def Report(self, request: pb.ReportRequest, context: grpc.ServicerContext) -> pb.ReportResponse:
        with led_by(self._nimbus, self._server):
            reports = [REPORT.decode(r) for r in request.reports]
            events = [EVENT.decode(e) for e in request.events]
            nodes = [NODE_REPORT.decode(n) for n in request.nodes]
            session = self._session(request.session)
            with session.lock:
                # A batch that was sent again because the answer to it was lost has been taken.
                if request.sequence > session.taken:
                    self._nimbus.ingest(request.node, reports, events, nodes)
                    session.taken = request.sequence
            return pb.ReportResponse()

    def _session(self, name: str) -> _Session:
        with self._lock:
            session = self._sessions.setdefault(name, _Session())
            self._sessions.move_to_end(name)
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
            return session

    def FetchBundle(
        self, request: pb.FetchBundleRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.FetchBundleResponse]:
        try:
            file = self._opened(request.sha256)
        except NotFound:
            with led_by(self._nimbus, self._server):  # the leader may have it
                raise
        with file:
            size = os.fstat(file.fileno()).st_size
            while chunk := file.read(CHUNK):
                yield pb.FetchBundleResponse(chunk=chunk, size=size)

    def _opened(self, sha256: str) -> BinaryIO:
        """A bundle's file. Raises NotFound, also when it is removed just now."""
        path = self._nimbus.bundles.path(sha256)
        try:
            return path.open("rb")
        except FileNotFoundError:
            return self._nimbus.bundles.path(sha256).open("rb")
