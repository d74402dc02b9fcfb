"""The writes that go through this process: begun, and neither committed for the last time nor given up."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from statestore import decisions
from statestore.base import Head, Piece, Ticket
from statestore.checksum import crc32
from statestore.errors import Incomplete
from statestore.hazelcast import heads
from statestore.hazelcast.cleaner import Cleaner
from statestore.hazelcast.entries import Entries
from statestore.hazelcast.grid import Grid
from statestore.hazelcast.heads import Stored, piece_key
from statestore.hazelcast.room import Room
from statestore.hazelcast.transfer import Session

_SESSIONS = 4096


class Writes:
    """Their sessions.

    Args:
        grid: The cluster.
        entries: Of keys.
        cleaner: Removes pieces of writes that were given up.
    """

    def __init__(self, grid: Grid, entries: Entries, cleaner: Cleaner) -> None:
        self._grid, self._entries, self._cleaner = grid, entries, cleaner
        self._lock = threading.Lock()
        self._sessions: OrderedDict[Ticket, Session] = OrderedDict()
        self._tickets: dict[str, set[Ticket]] = {}  # of those that have sessions, by key
        self._counted = 0

    def known(self, ticket: Ticket) -> Session | None:
        """The session of a write that this process knows of."""
        with self._lock:
            return self._sessions.get(ticket)

    def held(self) -> dict[tuple[str, int], int]:
        """Bytes put and not committed, by key and epoch."""
        with self._lock:
            return {(t.key, t.epoch): s.held for t, s in self._sessions.items()}

    def size(self) -> int:
        """Bytes put and not committed, of all."""
        with self._lock:
            return self._counted + sum(session.held for session in self._sessions.values())

    @contextlib.contextmanager
    def counted(self, size: int) -> Iterator[None]:
        """Bytes that are on their way without a session."""
        with self._lock:
            self._counted += size
        try:
            yield
        finally:
            with self._lock:
                self._counted -= size

    def session(self, ticket: Ticket, stored: Stored | None = None) -> Session:
        """The write of a ticket; found again in the cluster after this process was started anew. Raises: Superseded."""
        with self._lock:
            session = self._sessions.get(ticket)
            if session is not None:
                self._sessions.move_to_end(ticket)
                if stored is None:
                    return session
                if stored.place == session.place:
                    session.entry = stored
                    return session
        if stored is None:
            stored = self._entries.read(ticket.key)
            decisions.owned(stored.record if stored is not None else None, ticket)
            assert stored is not None
        session = Session(stored.place, entry=stored)
        with self._lock:
            self._sessions[ticket] = session
            self._tickets.setdefault(ticket.key, set()).add(ticket)
            while len(self._sessions) > _SESSIONS:
                self._forget(self._sessions.popitem(last=False)[0])
        return session

    def _forget(self, ticket: Ticket) -> None:
        """With the lock: it has no session any more."""
        tickets = self._tickets.get(ticket.key, set())
        tickets.discard(ticket)
        if not tickets:
            self._tickets.pop(ticket.key, None)

    def drop(self, ticket: Ticket, room: Room, keep: Stored | None = None) -> int:
        """End a write; what it has put is removed.

        Args:
            room: Where its bytes were taken.
            keep: An entry whose pieces stay.

        Returns:
            The bytes that it held.
        """
        with self._lock:
            session = self._sessions.pop(ticket, None)
            self._forget(ticket)
        if session is None:
            return 0
        with session.lock:
            held, session.held = session.held, 0
            keys = {piece_key(session.place, number) for number in session.pieces}
        kept = self._entries.readable(keep) if keep is not None else None
        if keep is not None and kept is not None:
            keys -= heads.keys_of(keep, kept.pieces)
        self._cleaner.remove(keys)
        room.settle(ticket.key, ticket.epoch, held, 0)
        return held

    def drop_others(self, key: str, epoch: int, room: Room, keep: Stored | None) -> None:
        """End the writes of a key by older epochs: another store may have seen to it that they ended."""
        with self._lock:
            over = [t for t in self._tickets.get(key, ()) if t.epoch < epoch]
        for ticket in over:
            self.drop(ticket, room, keep)

    def committed(self, ticket: Ticket, head: Head, done: Stored) -> None:
        """A write turns out to have committed that: nothing that it has put is only put any more."""
        session = self.known(ticket)
        if session is not None:
            with session.lock:
                session.pieces = {p.number: p for p in head.pieces if p.epoch == ticket.epoch}
                session.entry, session.held = done, 0

    def remove(self, key: str, before: Stored, room: Room, now: Stored | None = None) -> tuple[int, int]:
        """Everything of an entry that the one that took its place does not have. Returns bytes: committed, and put only."""
        committed = held = 0
        head = before.record.head
        if head is not None and (now is None or now.record.head is None):
            committed = head.size
            whole = self._entries.readable(before)  # of a lost one: collected as what is nobody's
            if whole is not None:
                self._cleaner.remove(heads.keys_of(before, whole.pieces))
        if before.record.writer and (now is None or not now.record.writer):
            held = self.drop(Ticket(key, before.record.epoch, before.record.writer), room, now)
        return committed, held

    def places(
        self, ticket: Ticket, session: Session, pieces: Sequence[Piece], before: Head | None, old: Stored
    ) -> dict[int, str]:
        """Where each epoch's pieces of a version lie that is to be committed. Raises: Incomplete."""
        inherited = set(before.pieces) if before is not None else set()
        places = {ticket.epoch: session.place}
        for piece in pieces:
            mine = piece.epoch == ticket.epoch
            if piece in inherited:
                if not mine:
                    places[piece.epoch] = old.places[piece.epoch]
                continue
            there = session.pieces.get(piece.number) if mine else None
            if there is None and mine:  # put through a process that has died
                key = piece_key(session.place, piece.number)
                data = self._grid.wait(self._grid.get_piece(key))
                if data is not None and len(data) == piece.size and crc32(data) == piece.crc:
                    there = session.pieces[piece.number] = piece
            if there != piece:
                raise Incomplete(
                    f"{ticket.key}: piece {piece.number} of epoch {piece.epoch} is not there: "
                    f"a commit of epoch {ticket.epoch} is refused"
                )
        return places
