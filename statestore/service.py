"""The gRPC service of a store: any back end, bounded threads, bounded messages, refusals with their details."""

from __future__ import annotations

import functools
import ipaddress
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc

from statestore.base import BackEnd, Entry
from statestore.errors import Invalid, Missing, NotFound, StateStoreError, Unavailable
from statestore.v1 import statestore_pb2 as pb
from statestore.v1.statestore_pb2_grpc import (
    StateStoreServiceServicer,
    add_StateStoreServiceServicer_to_server,
)
from statestore.wire import (
    CHUNK,
    DETAIL,
    OPTIONS,
    detail_out,
    error_out,
    head_out,
    piece_in,
    pieces_in,
    ticket_in,
)

log = logging.getLogger(__name__)

_THREADS = 48
_STREAMS = 40
"""Of those, how many may put or get: the short calls always find one."""

_ENTRIES = 1000

F = TypeVar("F", bound=Callable[..., Any])


class StoreServer:
    """Serves a store.

    Args:
        store: The back end; the caller closes it after this.
        listen: `host:port` on the loopback interface; port 0 takes a free one.
        allow_remote: Whether it may be reached from other machines. There is no authentication.
        unix: Path of a Unix socket on which it listens as well, as "unix:PATH"; shorter than 100 bytes.

    Attributes:
        address: `host:port`.

    Raises:
        Invalid: `listen` is no address, or not loopback without `allow_remote`.
        Missing: The port is taken.
    """

    def __init__(
        self,
        store: BackEnd,
        listen: str = "127.0.0.1:0",
        *,
        allow_remote: bool = False,
        unix: Path | None = None,
    ) -> None:
        host = _check(listen, allow_remote)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="statestore")
        self._server = grpc.server(
            self._pool,
            options=(
                *OPTIONS,
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ),
            maximum_concurrent_rpcs=_THREADS,
        )
        add_StateStoreServiceServicer_to_server(_Service(store), self._server)
        try:
            port = self._server.add_insecure_port(listen)
            if unix is not None:
                unix.parent.mkdir(parents=True, exist_ok=True)
                unix.unlink(missing_ok=True)  # left by one that was killed
                self._server.add_insecure_port(f"unix:{unix}")
        except RuntimeError as error:
            self._pool.shutdown()
            raise Missing(
                f"the state store cannot listen at {listen}: {error}", remedy="Choose another port, or 0."
            ) from error
        self.address = f"{host}:{port}"

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._server.start()

    def close(self, grace: float = 1.0) -> None:
        """Refuse new calls, give those under way `grace` seconds; its threads have ended then."""
        self._server.stop(grace).wait()
        self._pool.shutdown(wait=True)


def _check(listen: str, allow_remote: bool) -> str:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise Invalid(f"{listen!r} is no address to listen at", remedy="Write host:port, e.g. 127.0.0.1:0.")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback and not allow_remote:
        raise Invalid(
            f"listening at {listen} would let other machines read and change states: there is no authentication",
            remedy="Listen at 127.0.0.1, or say that remote access is wanted.",
        )
    return host


def _abort(context: grpc.ServicerContext, error: Exception, name: str) -> None:
    if not isinstance(error, StateStoreError):
        log.error("%s failed", name, exc_info=error)
        error = StateStoreError(f"{name} failed in the state store: {type(error).__name__}: {error}")
    code, text, detail = error_out(error)
    context.set_trailing_metadata(((DETAIL, detail),))
    context.abort(code, text)


def _guarded(method: F) -> F:
    @functools.wraps(method)
    def call(self: _Service, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except Exception as error:  # noqa: BLE001  whatever it is, the caller is told
            _abort(context, error, method.__name__)

    return call  # type: ignore[return-value]


def _guarded_stream(method: F) -> F:
    @functools.wraps(method)
    def call(self: _Service, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            if not self.streams.acquire(blocking=False):
                raise Unavailable("the state store serves as many transfers as it can at once")
            try:
                yield from method(self, request, context)
            finally:
                self.streams.release()
        except grpc.RpcError:
            return  # the caller went: nobody is left to be told
        except Exception as error:  # noqa: BLE001
            if context.is_active():
                _abort(context, error, method.__name__)

    return call  # type: ignore[return-value]


class _Service(StateStoreServiceServicer):
    def __init__(self, store: BackEnd) -> None:
        self._store = store
        self.streams = threading.BoundedSemaphore(_STREAMS)

    @_guarded
    def Begin(self, request: pb.BeginRequest, context: grpc.ServicerContext) -> pb.BeginResponse:
        opened = self._store.begin(ticket_in(request.ticket))
        return pb.BeginResponse(
            next_number=opened.next_number,
            sequence=opened.sequence,
            head=head_out(opened.head) if opened.head is not None else None,
            piece_size=self._store.piece_size,
        )

    @_guarded_stream
    def Put(
        self, request_iterator: Iterator[pb.PutRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.PutResponse]:
        ticket = None
        stored = 0
        for request in request_iterator:
            if ticket is None:
                ticket = ticket_in(request.ticket)
            if len(request.pieces) != len(request.data):
                raise Invalid(f"{ticket.key}: {len(request.pieces)} pieces with {len(request.data)} contents")
            for piece, data in zip(request.pieces, request.data, strict=True):
                self._store.put(ticket, piece_in(piece), data)
            stored += len(request.pieces)
            if request.confirm:
                self._store.flush(ticket)
                yield pb.PutResponse(stored=stored)

    @_guarded
    def Commit(self, request: pb.CommitRequest, context: grpc.ServicerContext) -> pb.CommitResponse:
        self._store.commit(
            ticket_in(request.ticket), request.sequence, pieces_in(request.pieces), request.meta
        )
        return pb.CommitResponse()

    @_guarded
    def Abort(self, request: pb.AbortRequest, context: grpc.ServicerContext) -> pb.AbortResponse:
        self._store.abort(ticket_in(request.ticket))
        return pb.AbortResponse()

    @_guarded
    def Head(self, request: pb.HeadRequest, context: grpc.ServicerContext) -> pb.HeadResponse:
        head = self._store.head(request.key)
        return pb.HeadResponse(head=head_out(head) if head is not None else None)

    @_guarded_stream
    def Get(self, request: pb.GetRequest, context: grpc.ServicerContext) -> Iterator[pb.GetResponse]:
        head = self._store.head(request.key)
        if head is None or (head.epoch, head.sequence) != (request.epoch, request.sequence):
            raise NotFound(f"{request.key}: version {request.epoch}.{request.sequence} is not there any more")
        indexes = list(request.indexes) or range(request.start, len(head.pieces))
        if indexes and max(indexes) >= len(head.pieces):
            raise Invalid(f"{request.key}: it has {len(head.pieces)} pieces, no {max(indexes)}")
        batch: list[bytes] = []
        size = 0
        for data in self._store.get(head, indexes):
            if batch and size + len(data) > CHUNK:
                yield pb.GetResponse(data=batch)
                batch, size = [], 0
            batch.append(data)
            size += len(data)
        if batch:
            yield pb.GetResponse(data=batch)

    @_guarded
    def Save(self, request: pb.SaveRequest, context: grpc.ServicerContext) -> pb.SaveResponse:
        return pb.SaveResponse(outcomes=self._store.each(self._save, request.states))

    def _save(self, state: pb.State) -> pb.Outcome:
        pieces = pieces_in(state.pieces)
        try:
            done = self._store.save_whole(ticket_in(state.ticket), pieces, state.data, state.meta)
        except StateStoreError as error:
            return pb.Outcome(error=detail_out(error))
        return pb.Outcome(sequence=done.sequence)

    @_guarded_stream
    def Fetch(self, request: pb.FetchRequest, context: grpc.ServicerContext) -> Iterator[pb.FetchResponse]:
        batch: list[pb.Fetched] = []
        size = 0
        for wanted in request.wanted:
            found, mine = self._fetch(wanted.key, wanted.epoch)
            if batch and size + mine > CHUNK:
                yield pb.FetchResponse(states=batch)
                batch, size = [], 0
            batch.append(found)
            size += mine
        if batch:
            yield pb.FetchResponse(states=batch)

    def _fetch(self, key: str, epoch: int) -> tuple[pb.Fetched, int]:
        try:
            head, contents = self._store.open(key, epoch)
            if head.size + len(head.meta) > CHUNK:
                return pb.Fetched(head=head_out(head), large=True), len(head.meta)
            data = [each for each in contents if each is not None]
        except StateStoreError as error:
            return pb.Fetched(error=detail_out(error)), 0
        return pb.Fetched(head=head_out(head), data=data), head.size + len(head.meta)

    @_guarded
    def Delete(self, request: pb.DeleteRequest, context: grpc.ServicerContext) -> pb.DeleteResponse:
        return pb.DeleteResponse(existed=self._store.delete(request.key, request.epoch))

    @_guarded_stream
    def List(self, request: pb.ListRequest, context: grpc.ServicerContext) -> Iterator[pb.ListResponse]:
        batch: list[pb.Entry] = []
        for entry in self._store.list(request.prefix):
            batch.append(_entry(entry))
            if len(batch) == _ENTRIES:
                yield pb.ListResponse(entries=batch)
                batch = []
        if batch:
            yield pb.ListResponse(entries=batch)

    @_guarded
    def Collect(self, request: pb.CollectRequest, context: grpc.ServicerContext) -> pb.CollectResponse:
        keep = {(kept.key, kept.epoch) for kept in request.keep}
        done = self._store.collect(request.prefix, keep=keep, before=request.before)
        return pb.CollectResponse(keys=done.keys, size=done.size)

    @_guarded
    def Capacity(self, request: pb.CapacityRequest, context: grpc.ServicerContext) -> pb.CapacityResponse:
        now = self._store.capacity()
        return pb.CapacityResponse(
            used=now.used, reserved=now.reserved, limit=now.limit, piece_size=self._store.piece_size
        )

    @_guarded
    def Reserve(self, request: pb.ReserveRequest, context: grpc.ServicerContext) -> pb.ReserveResponse:
        self._store.reserve(request.epoch, dict(request.sizes), request.seconds)
        return pb.ReserveResponse()

    @_guarded
    def Release(self, request: pb.ReleaseRequest, context: grpc.ServicerContext) -> pb.ReleaseResponse:
        self._store.release(request.epoch, list(request.keys))
        return pb.ReleaseResponse()


def _entry(entry: Entry) -> pb.Entry:
    return pb.Entry(
        key=entry.key,
        epoch=entry.epoch,
        committed=entry.committed,
        sequence=entry.sequence,
        size=entry.size,
        held=entry.held,
    )
