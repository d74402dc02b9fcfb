"""States that are saved at once: their pieces go out while the entry is read, and before any entry names them.

    pieces set ──┐
    entry read ──┴─► exchange: the entry names them ─► committed

Whoever collects meanwhile finds pieces that no entry names. So their places have names of their own, and nothing that lies there is removed
before it has been found so for longer than such a save takes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from statestore import decisions
from statestore.base import Head, Piece, Ticket, cost, make_head
from statestore.errors import StateStoreError, Unavailable
from statestore.hazelcast import heads
from statestore.hazelcast.cleaner import Cleaner
from statestore.hazelcast.entries import Entries
from statestore.hazelcast.grid import Grid
from statestore.hazelcast.heads import INLINE, Stored, piece_key
from statestore.hazelcast.room import Room
from statestore.hazelcast.transfer import WINDOW, Session
from statestore.hazelcast.writes import Writes
from statestore.records import encode_head

_LONGEST = 60.0
"""Seconds after which a save gives up rather than name its pieces."""
_OVER = 180.0
"""Seconds for which nobody has named pieces that nobody will name any more: those, and the answers to an exchange."""


class Begun(Exception):
    """The state has been begun before, or is too large to be saved at once."""


class Whole:
    """Saves them.

    Args:
        grid: The cluster.
        entries: Of keys.
        writes: Of this process.
        room: Of the store.
        cleaner: Removes pieces of what was refused.
    """

    def __init__(self, grid: Grid, entries: Entries, writes: Writes, room: Room, cleaner: Cleaner) -> None:
        self._grid, self._entries, self._writes = grid, entries, writes
        self._room, self._cleaner = room, cleaner
        self._lock = threading.Lock()
        self._unnamed: dict[str, float] = {}  # places of pieces that no entry names -> since when

    def save(
        self,
        ticket: Ticket,
        pieces: Sequence[Piece],
        data: Sequence[bytes],
        meta: bytes,
        salts: Sequence[str],
    ) -> Head:
        """See `BackEnd.save_whole`. With two answers of the cluster, one after the other, in place of five.

        Args:
            salts: Of the partitions where its pieces are to lie.

        Raises:
            Begun: It has to be saved in steps.
        """
        size = sum(cost(p.size) for p in pieces)
        # First: it may look at what is used, and this is not yet.
        self._room.take(ticket.key, ticket.epoch, size)
        with self._writes.counted(size):
            try:
                head, before = self._save(ticket, pieces, data, meta, heads.new_place(salts, unnamed=True))
            except (StateStoreError, Begun) as error:
                self._room.give(size)
                if isinstance(error, Unavailable):
                    self._room.later_refresh()  # it may be committed all the same
                raise
            self._entries.remember(head)
            committed = 0
            if before is not None:
                committed, _ = self._writes.remove(ticket.key, before, self._room)
            self._room.settle(ticket.key, ticket.epoch, size, head.size - committed)
        return head

    def over(self, keys: Sequence[str]) -> list[str]:
        """Of pieces that no entry names, those that none will."""
        now = time.monotonic()
        with self._lock:
            places = {place for place in map(heads.place_of, keys) if heads.may_be_unnamed(place)}
            self._unnamed = {place: self._unnamed.get(place, now) for place in places}
            running = {place for place, since in self._unnamed.items() if now - since < _OVER}
        return [key for key in keys if heads.place_of(key) not in running]

    def _save(
        self, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes, place: str
    ) -> tuple[Head, Stored | None]:
        """The version that is committed now, and what was there before."""
        session, until = Session(place), time.monotonic() + _LONGEST
        made: list[Head] = []
        named = False  # the pieces, by an entry that is there, or may be

        def decide(old: Stored | None) -> Stored:
            nonlocal named
            named = old is not None and place in old.places.values()
            record = decisions.begin(old.record if old is not None else None, ticket)
            if old is not None and record is old.record:
                raise Begun
            made[:] = [make_head(ticket, record.sequence + 1, pieces, meta)]
            manifest = encode_head(made[0])
            if len(manifest) > INLINE:
                raise Begun
            session.wait(self._grid)  # only what is there is named
            if time.monotonic() >= until:
                raise Unavailable(f"{ticket.key}: the cluster takes too long to store it")
            named = True
            return Stored(
                decisions.commit(record, ticket, made[0]), place, "", {ticket.epoch: place}, manifest
            )

        try:
            for piece, content in zip(pieces, data, strict=True):
                session.wait(self._grid, WINDOW - len(content))
                session.add(piece, self._grid.set_piece(piece_key(place, piece.number), content))
            before, _ = self._entries.update(ticket.key, decide, anew=True, expected=False)
        except (StateStoreError, Begun):
            with contextlib.suppress(StateStoreError):
                session.wait(self._grid)  # nothing stays under way
            if not named:  # else whoever repeats this, by any store, may find it committed; if it is not, `collect` removes them
                self._cleaner.remove({piece_key(place, p.number) for p in pieces})
            raise
        return made[0], before
