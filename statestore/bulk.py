"""Many states at once, for stores that have no better way than one by one, or some side by side."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from statestore.base import Fetched, Head, Piece, State, StateStore, Ticket
from statestore.errors import NotFound, StateStoreError

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(store: object, call: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in order, of as many calls at a time as the store gains by: those of a cluster are mostly waiting."""
    together = min(len(items), getattr(store, "together", 1))
    if together <= 1:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(together, "statestore-together") as pool:
        yield from pool.map(call, items)


def manifest(ticket: Ticket, data: Sequence[bytes]) -> tuple[Piece, ...]:
    """The pieces of a state that is written whole: numbered from 1."""
    return tuple([Piece(ticket.epoch, n, len(d), zlib.crc32(d)) for n, d in enumerate(data, 1)])


def save_one(
    store: StateStore, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes
) -> Head | StateStoreError:
    """Begin, put and commit one state; what was done before is not done again."""
    try:
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
    except StateStoreError as error:
        return error


def fetch_head(store: StateStore, key: str, epoch: int) -> Head | StateStoreError:
    """The committed version of a key, if it is of that epoch."""
    try:
        head = store.head(key)
    except StateStoreError as error:
        return error
    if head is None or head.epoch != epoch:
        there = "nothing is committed" if head is None else f"epoch {head.epoch} is committed"
        return NotFound(f"{key}: epoch {epoch} is wanted, and {there}")
    return head


class OneByOne:
    """Gives `save` and `fetch` to a store that has the rest.

    Attributes:
        together: How many calls at a time (see `side_by_side`).
    """

    together = 1

    def save(self: StateStore, states: Iterable[State]) -> Iterator[Head | StateStoreError]:
        """See `StateStore.save`."""

        def one(state: State) -> Head | StateStoreError:
            return save_one(
                self, state.ticket, manifest(state.ticket, state.pieces), state.pieces, state.meta
            )

        return side_by_side(self, one, list(states))

    def fetch(self: StateStore, wanted: Sequence[tuple[str, int]]) -> Iterator[Fetched | StateStoreError]:
        """See `StateStore.fetch`. One after the other: whoever asks takes what there is before there is more."""
        for key, epoch in wanted:
            head = fetch_head(self, key, epoch)
            if isinstance(head, StateStoreError):
                yield head
                continue
            try:
                yield Fetched(head, tuple(self.get(head)))
            except StateStoreError as error:
                yield error
