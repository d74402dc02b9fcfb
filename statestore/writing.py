"""How a state is written: `with Write(store, key, epoch) as write: write.put(...); write.commit()`."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from statestore.base import MAX_PIECE, Head, Piece, StateStore, Ticket
from statestore.checksum import crc32
from statestore.errors import Invalid, StateStoreError


class Write:
    """One writer's way into a store. Left without a commit, as a context, it gives up what it put.

    Args:
        store: Where to.
        key: Whose state.
        epoch: Of the move.
        writer: Tells it from others of the same epoch, and lets it go on after a break; made up when empty.

    Attributes:
        before: The version that was committed when it began; its pieces may be named again.

    Raises:
        Superseded: A newer epoch owns the key.
    """

    def __init__(self, store: StateStore, key: str, epoch: int, writer: str = "") -> None:
        self.ticket = Ticket(key, epoch, writer or secrets.token_hex(8))
        self.ticket.check()
        self._store = store
        opened = store.begin(self.ticket)
        self.before = opened.head
        self._number = opened.next_number
        self._sequence = opened.sequence
        self._pieces: list[Piece] = []
        self._done = False

    def put(self, data: bytes | bytearray | memoryview) -> Piece:
        """Put one piece; it may be under way on return, and an error of an earlier one may be raised.

        Args:
            data: At most `MAX_PIECE` bytes; must not change afterwards.

        Returns:
            What to name it by in `commit`.
        """
        if not isinstance(data, bytes):
            data = bytes(data)
        if len(data) > MAX_PIECE:
            raise Invalid(
                f"{self.ticket.key}: a piece of {len(data)} bytes; at most {MAX_PIECE}",
                remedy="put_bytes cuts it.",
            )
        piece = Piece(self.ticket.epoch, self._number, len(data), crc32(data))
        self._number += 1
        self._store.put(self.ticket, piece, data)
        self._pieces.append(piece)
        return piece

    def put_bytes(self, data: bytes | bytearray | memoryview) -> list[Piece]:
        """Put any number of bytes, cut into pieces that suit the store."""
        view = memoryview(data).cast("B")
        size = self._store.piece_size
        return [self.put(view[at : at + size]) for at in range(0, len(view), size)]

    def flush(self) -> None:
        """Wait until all that was put is stored."""
        self._store.flush(self.ticket)

    def commit(self, pieces: Sequence[Piece] | None = None, meta: bytes = b"") -> Head:
        """Make pieces the state, all at once; the write may go on with a next version after it.

        Args:
            pieces: In order: of this write, or of the version before; None for all of this write since the last commit.
            meta: Kept with them.
        """
        named = self._pieces if pieces is None else pieces
        head = self._store.commit(self.ticket, self._sequence + 1, tuple(named), meta)
        self._sequence = head.sequence
        self._pieces = []
        self._done = True
        return head

    def abort(self) -> None:
        """Give up; the epoch can't be begun again."""
        self._done = True
        self._store.abort(self.ticket)

    def __enter__(self) -> Write:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._done:
            with contextlib.suppress(StateStoreError):  # what made it end is worth more
                self.abort()


def read_bytes(store: StateStore, head: Head) -> bytes:
    """All pieces of a version, one after another."""
    return b"".join(store.get(head))
