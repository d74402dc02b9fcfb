"""The ways to the store of a node, for what a worker and Nimbus ask of it: near, on this machine, or far, by gRPC.

Calls come in two halves, so that several nodes are asked at once: `start_...` sends, `finish` waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from elastic.errors import Conflict, ElasticError, Superseded, Unavailable
from elastic.model.ids import NodeId
from elastic.model.words import size
from statestore import errors
from statestore.base import PACKED, RESERVED_FOR, Fetched, Piece, State, Ticket, pack
from statestore.bulk import open_one
from statestore.errors import StateStoreError
from statestore.near_client import Call, NearStore, finish
from statestore.parcel import Parcel


@dataclass(slots=True)
class Begun:
    """What a store says to a writer: the first free number, the last sequence, and where it links files from ("": nowhere)."""

    number: int
    sequence: int
    directory: str = ""


@dataclass(slots=True)
class Load:
    """What a commit brings along: pieces with their bytes, or pieces in a file."""

    inline: list[tuple[Piece, bytes]] = field(default_factory=list)
    parcel: Parcel | None = None
    placed: list[tuple[Piece, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Small:
    """A commit that goes with others in one message, to a store of this machine.

    Attributes:
        pieces: All that the state consists of, in order.
        inline: Those of them that come along, with their bytes.
    """

    ticket: Ticket
    sequence: int
    pieces: Sequence[Piece]
    meta: bytes
    inline: Sequence[tuple[Piece, bytes]]

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return sum(len(data) for _, data in self.inline) + len(self.meta) + PACKED * len(self.pieces)


_MESSAGE = 2 << 20
_MANY = 2000
Outcomes = list[StateStoreError | None]
"""For each of many: None, or what it was refused with."""


class Finish(Protocol):
    """The second half of a call. Must be called; raises `StateStoreError`."""

    def __call__(self) -> None: ...


class Way(Protocol):
    """To one store."""

    @property
    def streams(self) -> bool:
        """Whether pieces are sent as they are put; else they come along with the commit."""

    def start_reserve(self, epoch: int, sizes: dict[str, int]) -> Finish: ...
    def start_begin(self, ticket: Ticket, took: Callable[[Begun], None]) -> Finish: ...
    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None: ...
    def start_commit(
        self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes, load: Load
    ) -> Finish: ...
    def abort(self, ticket: Ticket) -> None: ...
    def forget(self, ticket: Ticket) -> None:
        """Let go of what was put, without telling the store."""

    def release(self, epoch: int, keys: Sequence[str]) -> None: ...
    def delete(self, wanted: Sequence[tuple[str, int]]) -> Outcomes: ...
    def start_save(self, states: Sequence[State], took: Callable[[Outcomes], None]) -> Finish: ...
    def start_commits(self, commits: Sequence[Small], took: Callable[[Outcomes], None]) -> Finish:
        """Many at once. Only where pieces come along with a commit."""

    def fetch(
        self, wanted: Sequence[tuple[str, int]], have: Mapping[Piece, bytes], most: int | None = None
    ) -> Iterator[Fetched | StateStoreError]:
        """See `NodeStores.fetch_many`. `have`: pieces that need not come, if only one state is wanted."""

    def close(self) -> None: ...


class NearWay:
    """See `Way`; by the store's Unix socket."""

    streams = False

    def __init__(self, path: str, patience: float) -> None:
        self._store = NearStore(path, patience=patience)

    def start_reserve(self, epoch: int, sizes: dict[str, int]) -> Finish:
        return _finish(self._store.submit(["reserve", epoch, sizes, RESERVED_FOR]))

    def start_begin(self, ticket: Ticket, took: Callable[[Begun], None]) -> Finish:
        ticket.check()
        call = self._store.submit(["begin", ticket.key, ticket.epoch, ticket.writer])
        return lambda: took(Begun(*finish(call)))

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        raise AssertionError("pieces come along with the commit")

    def start_commit(
        self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes, load: Load
    ) -> Finish:
        body = ["commit", *_described(Small(ticket, sequence, pieces, meta, load.inline))]
        body += [pack(p for p, _ in load.placed), [offset for _, offset in load.placed]]
        files = [load.parcel.file] if load.parcel is not None and load.placed else []
        return _finish(self._store.submit(body, [data for _, data in load.inline], files))

    def abort(self, ticket: Ticket) -> None:
        self._store.call(["abort", ticket.key, ticket.epoch, ticket.writer])

    def forget(self, ticket: Ticket) -> None:
        """Nothing of it is here."""

    def release(self, epoch: int, keys: Sequence[str]) -> None:
        self._store.release(epoch, keys)

    def delete(self, wanted: Sequence[tuple[str, int]]) -> Outcomes:
        return self._store.delete(wanted)

    def start_save(self, states: Sequence[State], took: Callable[[Outcomes], None]) -> Finish:
        call = self._store.begin_save(states)
        return lambda: took(self._store.end_many(call))

    def start_commits(self, commits: Sequence[Small], took: Callable[[Outcomes], None]) -> Finish:
        payload = [data for c in commits for _, data in c.inline]
        call = self._store.submit(["commits", list(map(_described, commits))], payload)
        return lambda: took(self._store.end_many(call))

    def fetch(
        self, wanted: Sequence[tuple[str, int]], have: Mapping[Piece, bytes], most: int | None = None
    ) -> Iterator[Fetched | StateStoreError]:
        return self._store.fetch(wanted, have, most)

    def close(self) -> None:
        self._store.close()


class FarWay:
    """See `Way`; by gRPC. Pieces flow while others are put; short calls are made when they are finished."""

    streams = True

    def __init__(self, address: str, patience: float) -> None:
        from statestore.client import GrpcStore  # only where there are other machines: it brings gRPC along

        self._store = GrpcStore(address, patience=patience)

    def start_reserve(self, epoch: int, sizes: dict[str, int]) -> Finish:
        return lambda: self._store.reserve(epoch, sizes)

    def start_begin(self, ticket: Ticket, took: Callable[[Begun], None]) -> Finish:
        def begin() -> None:
            opened = self._store.begin(ticket)
            took(Begun(opened.next_number, opened.sequence))

        return begin

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        self._store.put(ticket, piece, data)

    def start_commit(
        self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes, load: Load
    ) -> Finish:
        def commit() -> None:
            self._store.commit(ticket, sequence, pieces, meta)

        return commit

    def abort(self, ticket: Ticket) -> None:
        self._store.abort(ticket)

    def forget(self, ticket: Ticket) -> None:
        self._store.forget(ticket)

    def release(self, epoch: int, keys: Sequence[str]) -> None:
        self._store.release(epoch, keys)

    def delete(self, wanted: Sequence[tuple[str, int]]) -> Outcomes:
        outcomes: Outcomes = []
        for key, epoch in wanted:
            try:
                self._store.delete(key, epoch)
                outcomes.append(None)
            except errors.Unavailable:
                raise
            except StateStoreError as error:
                outcomes.append(error)
        return outcomes

    def start_save(self, states: Sequence[State], took: Callable[[Outcomes], None]) -> Finish:
        def save() -> None:
            done = self._store.save(states)
            took([each if isinstance(each, StateStoreError) else None for each in done])

        return save

    def start_commits(self, commits: Sequence[Small], took: Callable[[Outcomes], None]) -> Finish:
        raise AssertionError("pieces are sent before their commit")

    def fetch(
        self, wanted: Sequence[tuple[str, int]], have: Mapping[Piece, bytes], most: int | None = None
    ) -> Iterator[Fetched | StateStoreError]:
        if not (have or most):
            yield from self._store.fetch(wanted)
            return
        for key, epoch in wanted:
            try:
                yield self._rest(key, epoch, have, most)
            except errors.Unavailable:
                raise
            except StateStoreError as error:
                yield error

    def _rest(self, key: str, epoch: int, have: Mapping[Piece, bytes], most: int | None) -> Fetched:
        head, contents = open_one(self._store, key, epoch, have, most)
        pieces = zip(contents, head.pieces, strict=False)  # with `most`, only the first ones come
        return Fetched(head, tuple([have[piece] if data is None else data for data, piece in pieces]))

    def close(self) -> None:
        self._store.close()


def ask_all(starts: Sequence[tuple[NodeId, Callable[[], Finish]]], doing: str) -> None:
    """Make a call to several nodes at once; every one that was started is finished.

    Raises:
        NoRoom: A store has none.
        ElasticError: The first other thing that was wrong.
    """
    started: list[tuple[NodeId, Finish]] = []
    wrong: ElasticError | None = None
    try:
        for node, start in starts:
            with told(node, doing):
                started.append((node, start()))
    except ElasticError as error:
        wrong = error
    for node, finished in started:
        try:
            with told(node, doing):
                finished()
        except ElasticError as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong


class NoRoom(errors.Full, ElasticError):
    """`Full`, as the rest of elastic says it: which node's store, how much, and what helps, in one line."""


@contextlib.contextmanager
def told(node: NodeId, doing: str) -> Iterator[None]:
    """Errors of a store as elastic's; `Full` stays one of both."""
    try:
        yield
    except StateStoreError as error:
        raise translated(error, node, doing) from error


def translated(error: StateStoreError, node: NodeId, doing: str) -> ElasticError:
    """What a store's error is to the rest of elastic."""
    if isinstance(error, errors.Full):
        full = partial(NoRoom, needed=error.needed, free=error.free, limit=error.limit)
        if not error.limit:  # it is the disk that is full
            return full(f"node {node} cannot {doing}: {error.message}")
        return full(
            f"node {node} cannot {doing}: its state store has no room for {size(error.needed)} more, {size(error.free)} of "
            f"{size(error.limit)} are free; `elastic up --store-memory` gives stores more, or move less at once"
        )
    text = f"node {node} cannot {doing}: {error.message}"
    if isinstance(error, errors.Superseded):
        return Superseded(text, remedy=error.remedy)
    if isinstance(error, errors.Conflict | errors.Invalid):
        return Conflict(text, remedy=error.remedy)
    # Also `Incomplete`: a piece that was put has not arrived, because its way broke or was closed meanwhile.
    return Unavailable(text, remedy=error.remedy)


def to_the_end(
    answers: Iterator[Fetched | StateStoreError], count: int
) -> Iterator[Fetched | StateStoreError]:
    """All answers; where they end too early, why they do is the answer to the rest."""
    done = 0
    try:
        for answer in answers:
            done += 1
            yield answer
        wrong: StateStoreError = errors.Unavailable("the store ended its answer too early")
    except StateStoreError as error:
        wrong = error
    yield from [wrong] * (count - done)


def groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where the messages of many states begin and end.

    Args:
        sizes: The bytes that each takes.
    """
    begin = size = 0
    for at, mine in enumerate(sizes):
        if at > begin and (size + mine > _MESSAGE or at - begin >= _MANY):
            yield begin, at
            begin, size = at, 0
        size += mine
    if begin < len(sizes):
        yield begin, len(sizes)


def _described(c: Small) -> list[object]:
    """What a commit's message says of it and of what comes along with it."""
    inline = pack(piece for piece, _ in c.inline)
    return [c.ticket.key, c.ticket.epoch, c.ticket.writer, c.sequence, pack(c.pieces), c.meta, inline]


def _finish(call: Call) -> Finish:
    def end() -> None:
        finish(call)

    return end
