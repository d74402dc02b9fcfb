"""Many states at once, for stores to which one by one is as fast."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Sequence

from statestore.base import Fetched, Head, Piece, State, StateStore, Ticket
from statestore.errors import NotFound, StateStoreError


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
    """Gives `save` and `fetch` to a store that has the rest."""

    def save(self: StateStore, states: Iterable[State]) -> Iterator[Head | StateStoreError]:
        """See `StateStore.save`."""
        for state in states:
            pieces = manifest(state.ticket, state.pieces)
            yield save_one(self, state.ticket, pieces, state.pieces, state.meta)

    def fetch(self: StateStore, wanted: Sequence[tuple[str, int]]) -> Iterator[Fetched | StateStoreError]:
        """See `StateStore.fetch`."""
        for key, epoch in wanted:
            head = fetch_head(self, key, epoch)
            if isinstance(head, StateStoreError):
                yield head
                continue
            try:
                yield Fetched(head, tuple(self.get(head)))
            except StateStoreError as error:
                yield error
