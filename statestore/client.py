"""A store at the other end of gRPC, with deadlines, and with transfers that go on where they broke."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import grpc

from statestore import bulk_client, wire
from statestore.base import (
    RESERVED_FOR,
    Capacity,
    Collected,
    Entry,
    Fetched,
    Head,
    Opened,
    Piece,
    State,
    Ticket,
    make_head,
)
from statestore.errors import Damaged, StateStoreError, Unavailable
from statestore.memory import checked
from statestore.patience import Patience
from statestore.upload import Upload
from statestore.v1 import statestore_pb2 as pb
from statestore.v1.statestore_pb2_grpc import StateStoreServiceStub

_OPTIONS = (
    *wire.OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)
_INDEXES = 100_000

Q = TypeVar("Q")
A = TypeVar("A")


class GrpcStore:
    """A state store elsewhere; see `StateStore`. Nothing is connected before the first call.

    Args:
        address: `host:port`.
        patience: Seconds that a call may take, with all its attempts; and that a transfer may stand still.
    """

    def __init__(self, address: str, *, patience: float = 15.0) -> None:
        self.address = address
        self.patience = patience
        self._piece_size = 256 << 10
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self.stub = cast(StateStoreServiceStub, _Open(StateStoreServiceStub(self._channel), address))
        self._lock = threading.Lock()
        self._uploads: dict[Ticket, Upload] = {}
        self._closed = threading.Event()

    @property
    def piece_size(self) -> int:
        return self._piece_size

    def begin(self, ticket: Ticket) -> Opened:
        ticket.check()
        with self._lock:
            upload = self._uploads.get(ticket)
        try:
            if upload is not None and not upload.refused:
                upload.flush()
        finally:
            self._end_upload(ticket)
        return self._begin(ticket)

    def _begin(self, ticket: Ticket) -> Opened:
        answer = self.call(
            self.stub.Begin, pb.BeginRequest(ticket=wire.ticket_out(ticket)), f"begin {ticket.key}"
        )
        self._piece_size = answer.piece_size or self._piece_size
        head = wire.head_in(answer.head) if answer.HasField("head") else None
        return Opened(answer.next_number, answer.sequence, head)

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        self._upload(ticket).put(piece, data)

    def flush(self, ticket: Ticket) -> None:
        with self._lock:
            upload = self._uploads.get(ticket)
        if upload is not None:
            upload.flush()

    def commit(self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes = b"") -> Head:
        head = make_head(ticket, sequence, pieces, meta)
        self.flush(ticket)
        request = pb.CommitRequest(
            ticket=wire.ticket_out(ticket),
            sequence=sequence,
            pieces=[wire.piece_out(p) for p in pieces],
            meta=meta,
        )
        self.call(self.stub.Commit, request, f"commit {ticket.key}")
        self._end_upload(ticket)
        return head

    def abort(self, ticket: Ticket) -> None:
        self._end_upload(ticket)
        self.call(self.stub.Abort, pb.AbortRequest(ticket=wire.ticket_out(ticket)), f"give up {ticket.key}")

    def forget(self, ticket: Ticket) -> None:
        """Let go of what was put and is not confirmed. The store is not told; whoever puts more begins anew."""
        self._end_upload(ticket)

    def head(self, key: str) -> Head | None:
        answer = self.call(self.stub.Head, pb.HeadRequest(key=key), f"look up {key}")
        return wire.head_in(answer.head) if answer.HasField("head") else None

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        wanted = range(len(head.pieces)) if indexes is None else indexes
        done = 0
        patience = self._patience(f"fetch {head.key}")
        while done < len(wanted):
            request = pb.GetRequest(key=head.key, epoch=head.epoch, sequence=head.sequence)
            if indexes is None:
                request.start = done
            else:
                request.indexes.extend(wanted[done : done + _INDEXES])
            call = self.stub.Get(request, timeout=self.patience, wait_for_ready=True)
            try:
                for answer in call:
                    for data in answer.data:
                        if done >= len(wanted):
                            raise Damaged(f"{head.key}: more came than was asked for")
                        yield checked(head.key, head.pieces[wanted[done]], data)
                        done += 1
                    patience.progress()
                if not patience.moved():
                    raise Damaged(f"{head.key}: {self.address} sent {done} of {len(wanted)} pieces")
            except grpc.RpcError as error:
                patience.failed(error)
            finally:
                call.cancel()  # type: ignore[no-untyped-call]  # does nothing to one that has ended

    def save(self, states: Iterable[State]) -> Iterator[Head | StateStoreError]:
        return bulk_client.save(self, self.stub, states, self._patience, self.forget)

    def fetch(self, wanted: Sequence[tuple[str, int]]) -> Iterator[Fetched | StateStoreError]:
        return bulk_client.fetch(self, self.stub, wanted, self._patience, self.patience)

    def delete(self, key: str, epoch: int) -> bool:
        return self.call(self.stub.Delete, pb.DeleteRequest(key=key, epoch=epoch), f"delete {key}").existed

    def list(self, prefix: str = "") -> Iterator[Entry]:
        patience = self._patience(f"list {prefix!r}")
        last = ""
        while True:
            call = self.stub.List(pb.ListRequest(prefix=prefix), timeout=self.patience, wait_for_ready=True)
            try:
                for answer in call:
                    for e in answer.entries:
                        if e.key > last:
                            last = e.key
                            yield Entry(e.key, e.epoch, e.committed, e.sequence, e.size, e.held)
                    patience.progress()
                return
            except grpc.RpcError as error:
                patience.failed(error)
            finally:
                call.cancel()  # type: ignore[no-untyped-call]

    def collect(self, prefix: str, *, keep: Collection[tuple[str, int]], before: int) -> Collected:
        kept = [pb.Kept(key=key, epoch=epoch) for key, epoch in sorted(keep)]
        request = pb.CollectRequest(prefix=prefix, keep=kept, before=before)
        answer = self.call(self.stub.Collect, request, f"collect what is left of {prefix!r}")
        return Collected(answer.keys, answer.size)

    def capacity(self) -> Capacity:
        answer = self.call(self.stub.Capacity, pb.CapacityRequest(), "ask how full it is")
        self._piece_size = answer.piece_size or self._piece_size
        return Capacity(answer.used, answer.reserved, answer.limit)

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float = RESERVED_FOR) -> None:
        request = pb.ReserveRequest(epoch=epoch, sizes=sizes, seconds=seconds)
        self.call(self.stub.Reserve, request, f"reserve room for epoch {epoch}")

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        request = pb.ReleaseRequest(epoch=epoch, keys=list(keys))
        self.call(self.stub.Release, request, f"release room of epoch {epoch}")

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            uploads = list(self._uploads.values())
            self._uploads.clear()
        for upload in uploads:
            upload.close()
        self._channel.close()

    def call(self, method: Callable[..., A], request: object, doing: str) -> A:
        """One short call, with as many attempts as its time allows: each may be repeated."""
        patience = self._patience(doing)
        while True:
            try:
                return method(request, timeout=patience.left(), wait_for_ready=True)
            except grpc.RpcError as error:
                patience.failed(error)

    def _patience(self, doing: str) -> Patience:
        return Patience(self._pause, self.patience, doing=doing, address=self.address)

    def _pause(self, seconds: float) -> None:
        """Wait before another attempt; ends at once when the store is closed. Raises: Unavailable."""
        if self._closed.wait(seconds):
            raise Unavailable(f"the connection to the state store at {self.address} is closed")

    def _upload(self, ticket: Ticket) -> Upload:
        with self._lock:
            upload = self._uploads.get(ticket)
            if upload is None:
                upload = Upload(self.stub, ticket, self.patience, self._begin, self._patience)
                self._uploads[ticket] = upload
            return upload

    def _end_upload(self, ticket: Ticket) -> None:
        with self._lock:
            upload = self._uploads.pop(ticket, None)
        if upload is not None:
            upload.close()


class _Open:
    """A stub whose calls, once its channel is closed, are `Unavailable` like all that cannot be reached."""

    def __init__(self, stub: StateStoreServiceStub, address: str) -> None:
        self._stub = stub
        self._address = address

    def __getattr__(self, name: str) -> Any:
        method = _Method(getattr(self._stub, name), self._address)
        setattr(self, name, method)
        return method


class _Method:
    def __init__(self, method: Any, address: str) -> None:
        self._method = method
        self._address = address

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._made(self._method, *arguments, **options)

    def future(self, *arguments: Any, **options: Any) -> Any:
        """Without waiting for the answer."""
        return self._made(self._method.future, *arguments, **options)

    def _made(self, method: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except ValueError as error:
            if not {"channel", "closed"} <= set(re.findall(r"\w+", str(error).lower())):
                raise
            raise Unavailable(f"the connection to the state store at {self._address} is closed") from error
