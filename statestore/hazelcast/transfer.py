"""Pieces on their way into the cluster and out of it: several at a time, and a bounded number of bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from statestore.base import Head, Piece, cost
from statestore.errors import Lost, NotFound
from statestore.hazelcast import heads
from statestore.hazelcast.grid import Grid
from statestore.hazelcast.heads import Stored, piece_key
from statestore.memory import checked

WINDOW = 4 << 20
"""Bytes of one write that are under way to the cluster at most; and of one read, from it."""


@dataclass(slots=True)
class Session:
    """A write that goes through this process. Whoever uses it holds its lock.

    Attributes:
        place: Where its pieces lie.
        pieces: What was put, by number: stored, or under way.
        last: The highest number that was put: a piece that was dropped may be removed only later, so it is not given again.
        held: Bytes that were taken for it.
        entry: That of its key, as this process has read or written it last.
    """

    place: str
    pieces: dict[int, Piece] = field(default_factory=dict)
    last: int = 0
    held: int = 0
    entry: Stored | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: deque[tuple[Piece, Any]] = field(default_factory=deque)
    _size: int = 0

    def add(self, piece: Piece, future: Any) -> None:
        """A piece is under way."""
        self._under_way.append((piece, future))
        self._size += piece.size
        self.pieces[piece.number] = piece
        self.last = max(self.last, piece.number)
        self.held += cost(piece.size)

    def wait(self, grid: Grid, size: int = 0) -> None:
        """Wait until at most `size` bytes are under way.

        Raises:
            Unavailable: A piece could not be stored; it counts as never put, so that it can be put again.
        """
        while self._under_way and (self._size > size or size <= 0):
            piece, future = self._under_way.popleft()
            self._size -= piece.size
            try:
                grid.wait(future)
            except BaseException:
                # Its bytes stay counted until the write ends: it may be there.
                self.pieces.pop(piece.number, None)
                raise


def fetch(grid: Grid, head: Head, stored: Stored, wanted: Sequence[Piece]) -> Iterator[bytes]:
    """Pieces of a version, in order; see `StateStore.get`."""
    under_way: deque[tuple[Piece, Any]] = deque()
    size = 0
    for piece in wanted:
        key = piece_key(stored.places[piece.epoch], piece.number)
        under_way.append((piece, grid.get_piece(key)))
        size += cost(piece.size)
        while size > WINDOW:
            first, future = under_way.popleft()
            size -= cost(first.size)
            yield _arrived(grid, head, first, future)
    for piece, future in under_way:
        yield _arrived(grid, head, piece, future)


def _arrived(grid: Grid, head: Head, piece: Piece, future: Any) -> bytes:
    data = grid.wait(future)
    if data is None:
        raw = grid.read(head.key)
        if raw is None or not same(heads.decode(head.key, raw).record.head, head):
            raise NotFound(f"{head.key}: version {head.epoch}.{head.sequence} is not there any more")
        raise Lost(
            f"{head.key}: piece {piece.number} of epoch {piece.epoch} is lost: members died, and too few had backups"
        )
    return checked(head.key, piece, bytes(data))


def same(there: Head | None, head: Head) -> bool:
    return there is not None and (there.epoch, there.sequence, there.writer, there.digest) == (
        *(head.epoch, head.sequence, head.writer),
        head.digest,
    )
