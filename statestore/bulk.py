"""What servers need of a back end, for those that have no better way than the calls of the port one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from statestore.base import BackEnd, Fetched, Head, Piece, State, StateStore, Ticket, first_of
from statestore.checksum import crc32
from statestore.errors import NotFound, StateStoreError

T = TypeVar("T")
R = TypeVar("R")


def manifest(ticket: Ticket, data: Sequence[bytes]) -> tuple[Piece, ...]:
    """The pieces of a state that is written whole: numbered from 1."""
    return tuple([Piece(ticket.epoch, n, len(d), crc32(d)) for n, d in enumerate(data, 1)])


def save_one(
    store: StateStore, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes
) -> Head:
    """See `BackEnd.save_whole`."""
    opened = store.begin(ticket)
    head = opened.head
    if head is not None and (head.epoch, head.writer, head.pieces, head.meta) == (
        *(ticket.epoch, ticket.writer, tuple(pieces)),
        meta,
    ):
        return head
    try:
        for piece, content in zip(pieces, data, strict=True):
            store.put(ticket, piece, content)
        return store.commit(ticket, opened.sequence + 1, pieces, meta)
    except StateStoreError:
        with contextlib.suppress(StateStoreError):
            store.flush(ticket)  # nothing of it stays under way
        raise


def of_epoch(head: Head | None, key: str, epoch: int) -> Head:
    """The committed version of a key, if it is of that epoch. Raises: NotFound."""
    if head is None or head.epoch != epoch:
        there = "nothing is committed" if head is None else f"epoch {head.epoch} is committed"
        raise NotFound(f"{key}: epoch {epoch} is wanted, and {there}")
    return head


def open_one(
    store: StateStore, key: str, epoch: int, have: Collection[Piece] = (), most: int | None = None
) -> tuple[Head, Iterator[bytes | None]]:
    """See `BackEnd.open`."""
    head = of_epoch(store.head(key), key, epoch)
    pieces = head.pieces[: first_of(head.pieces, have, most)]
    found = store.get(head, [n for n, piece in enumerate(pieces) if piece not in have])

    def contents() -> Iterator[bytes | None]:
        for piece in pieces:
            yield None if piece in have else next(found)
        yield from found  # there is nothing more, or the store says what is wrong

    return head, contents()


class OneByOne:
    """Gives a store that has the rest of `BackEnd` what it has no better way for."""

    def each(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """See `BackEnd.each`."""
        return map(call, items)

    def open(
        self: BackEnd, key: str, epoch: int, have: Collection[Piece] = (), most: int | None = None
    ) -> tuple[Head, Iterator[bytes | None]]:
        """See `BackEnd.open`."""
        return open_one(self, key, epoch, have, most)

    def save_whole(
        self: BackEnd, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes = b""
    ) -> Head:
        """See `BackEnd.save_whole`."""
        return save_one(self, ticket, pieces, data, meta)

    def save(self: BackEnd, states: Iterable[State]) -> Iterator[Head | StateStoreError]:
        """See `StateStore.save`."""

        def one(state: State) -> Head | StateStoreError:
            pieces = manifest(state.ticket, state.pieces)
            try:
                return self.save_whole(state.ticket, pieces, state.pieces, state.meta)
            except StateStoreError as error:
                return error

        return self.each(one, list(states))

    def fetch(self: BackEnd, wanted: Sequence[tuple[str, int]]) -> Iterator[Fetched | StateStoreError]:
        """See `StateStore.fetch`. One after the other: whoever asks takes what there is before there is more."""
        for key, epoch in wanted:
            try:
                head, data = self.open(key, epoch)
                yield Fetched(head, tuple([d for d in data if d is not None]))
            except StateStoreError as error:
                yield error
