"""A supervisor's line to the leading Nimbus, over gRPC. It learns who leads by a watch on the candidates."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import grpc

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.errors import DeadlineExceeded, ElasticError, EnvironmentProblem, Refused, Unavailable
from elastic.model.events import Event
from elastic.model.load import NodeReport, WorkerReport
from elastic.reporting.codec import EVENT, NODE_REPORT, REPORT
from elastic.reporting.outbox import Batch, Outbox
from elastic.reporting.v1 import reporting_pb2 as pb
from elastic.reporting.v1.reporting_pb2_grpc import ReportingServiceStub
from elastic.rpc.channels import open_channel
from elastic.rpc.errors import from_call

_log = logging.getLogger(__name__)
_LINGER = 0.5
_DEADLINE = 10.0
_PAUSES = (0.1, 2.0)
_TRIES = 3
_MARGIN = 1.0


class GrpcReporter:
    """The `Reporter` of a cluster. One thread sends; it waits without waking while there is nothing to send.

    A leader takes a batch once, however often it is sent. One that took a batch and died before its answer arrived
    leaves the next leader with the same batch.

    Args:
        coordination: Where the candidates for Nimbus are. The caller closes it, after this.
        node: This node's name.
        outbox: What is kept while it cannot be delivered; made here by default.
        parting: Seconds that `close` has to deliver what is left.
    """

    def __init__(
        self, coordination: Coordination, node: str, *, outbox: Outbox | None = None, parting: float = 1.0
    ) -> None:
        self._coordination = coordination
        self._node = node
        self._outbox = Outbox(node) if outbox is None else outbox  # an empty one is false
        self._session = uuid.uuid4().hex
        self._sequence = 0
        self._changed = threading.Condition()
        self._parting = parting
        self._leader: str | None = None  # its address; "" while nobody leads; None until the watch says so
        self._due = 0.0
        self._end = 0.0  # by when the sender must have ended, once closing
        self._call: grpc.Future[pb.ReportResponse] | None = None  # the newest, for whoever closes
        self._link: tuple[str, grpc.Channel] | None = None
        self._sender = threading.Thread(target=self._send_all, name="elastic-reporter", daemon=True)
        self._watch = coordination.watch_children(paths.CANDIDATES, self._candidates)
        self._sender.start()

    def report(
        self,
        node: str,
        reports: Sequence[WorkerReport],
        events: Sequence[Event],
        measured: NodeReport | None = None,
    ) -> None:
        """See `Reporter.report`."""
        encoded = [REPORT.encode(r) for r in reports], [EVENT.encode(e) for e in events]
        with self._changed:
            if self._end:
                return
            if not self._outbox:
                self._due = time.monotonic() + _LINGER
            self._outbox.add(*encoded)
            if measured is not None:
                self._outbox.node = NODE_REPORT.encode(measured)
            self._changed.notify_all()

    def fetch_bundle(self, sha256: str, into: Path, timeout: float) -> None:
        """See `Reporter.fetch_bundle`. What arrives is checked against the hash."""
        deadline = time.monotonic() + timeout
        last: ElasticError | None = None
        pause = _PAUSES[0]
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._leader or self._end, max(0.0, deadline - time.monotonic())
                )
                leader = self._leader
            left = deadline - time.monotonic()
            if not leader or self._end or left <= 0:
                raise Unavailable(
                    f"node {self._node} cannot fetch code bundle {sha256[:12]} within {timeout:g} s: "
                    + (last.message if last else "no Nimbus leads"),
                    remedy="Is Nimbus running? Its log is in the cluster's directory.",
                ) from last
            try:
                _fetch(leader, sha256, into, left)
                return
            except (Unavailable, DeadlineExceeded, Refused) as e:
                last = e
            self._rest(leader, pause)
            pause = min(2 * pause, _PAUSES[1])

    def close(self) -> None:
        """See `Reporter.close`. Safe to call twice."""
        with self._changed:
            self._end = self._end or time.monotonic() + self._parting
            self._changed.notify_all()
        self._sender.join(max(0.0, self._end - time.monotonic()))
        self._watch.cancel()  # not before: who leads may not have been said yet
        with self._changed:
            if self._call is not None:
                self._call.cancel()  # one that began earlier has a later deadline
        self._sender.join(_MARGIN)

    def _candidates(self, names: tuple[str, ...]) -> None:
        """Called by the watch: the candidate with the lowest number leads."""
        address = ""
        try:
            for name in sorted(names, key=lambda n: n[-10:]):
                found = self._coordination.get(f"{paths.CANDIDATES}/{name}")
                if found is not None:
                    address = found.data.decode("utf-8", "replace")
                    break
        except Unavailable:  # nothing is known: the watch calls again when the connection is back
            return
        with self._changed:
            if address != self._leader:
                self._leader = address
                self._changed.notify_all()

    def _send_all(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._sequence += 1
                self._deliver(batch)
        finally:
            self._disconnect()

    def _next(self) -> Batch | None:
        """Wait until something is to be sent; None when closed and empty."""
        with self._changed:
            while True:
                now = time.monotonic()
                if self._outbox and (self._end or self._outbox.urgent or now >= self._due):
                    return self._outbox.take()
                if self._end:
                    return None
                self._changed.wait(self._due - now if self._outbox else None)

    def _deliver(self, batch: Batch) -> None:
        """Send one batch, again and again, until a leader has it or the time to close has run out."""
        request = pb.ReportRequest(
            node=self._node,
            session=self._session,
            sequence=self._sequence,
            reports=batch.reports,
            events=batch.events,
            nodes=batch.nodes,
        )
        tries, pause = 0, _PAUSES[0]
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._leader or self._end)
                if self._end:
                    self._changed.wait_for(lambda: self._leader is not None, self._end - time.monotonic())
                leader, end = self._leader, self._end
                left = min(_DEADLINE, end - time.monotonic()) if end else _DEADLINE
                if left <= 0 or not leader:
                    _log.warning(
                        "%d reports and %d events were not delivered", len(batch.reports), len(batch.events)
                    )
                    return
                stub = ReportingServiceStub(self._connect(leader))
                self._call = stub.Report.future(request, timeout=left)
            try:
                self._call.result()
                return
            except grpc.FutureCancelledError:  # by `close`: there is no time left
                continue
            except grpc.RpcError as e:
                error = from_call(e, doing="report", address=leader)
            if not isinstance(error, Unavailable | DeadlineExceeded | Refused):
                tries += 1
                _log.error("a report was not accepted: %s", error)
                if tries == _TRIES:
                    return
            self._rest(leader, pause)
            pause = min(2 * pause, _PAUSES[1])

    def _rest(self, leader: str, pause: float) -> None:
        """Wait `pause` seconds, less when the leader changes or when this is being closed."""
        with self._changed:
            closing = self._end
            if closing:
                pause = min(pause, closing - time.monotonic())
            self._changed.wait_for(lambda: self._leader != leader or self._end != closing, pause)

    def _connect(self, address: str) -> grpc.Channel:
        """The channel to that address, kept until another one is asked for. Used by the sender alone."""
        if self._link is None or self._link[0] != address:
            self._disconnect()
            self._link = address, open_channel(address)
        return self._link[1]

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None


def _fetch(address: str, sha256: str, into: Path, timeout: float) -> None:
    """Write a bundle from one Nimbus, completely or not at all."""
    partial = into.with_name(f".{into.name}.{os.getpid()}-{threading.get_ident()}")
    digest = hashlib.sha256()
    doing = f"fetch code bundle {sha256[:12]}"
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        with open_channel(address) as channel, partial.open("wb") as file:
            stream = ReportingServiceStub(channel).FetchBundle(
                pb.FetchBundleRequest(sha256=sha256), timeout=timeout
            )
            for piece in stream:
                digest.update(piece.chunk)
                file.write(piece.chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != sha256:
            raise Unavailable(f"cannot {doing}: what {address} sent has another hash")
        partial.replace(into)
    except grpc.RpcError as e:
        raise from_call(e, doing=doing, address=address) from e
    except OSError as e:
        raise EnvironmentProblem(
            f"cannot {doing}: writing {into} failed: {e}",
            remedy="Is there room, and the right to write there?",
        ) from e
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
