"""The back end in a Hazelcast cluster: see `statestore.base` for what it promises, `docs/statestore.md` for how."""

from __future__ import annotations

import itertools
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from statestore import decisions
from statestore.base import (
    MAX_PIECE,
    RESERVED_FOR,
    Capacity,
    Collected,
    Entry,
    Head,
    Opened,
    Piece,
    Ticket,
    check_key,
    cost,
    make_head,
)
from statestore.bulk import OneByOne
from statestore.errors import (
    Conflict,
    Damaged,
    Incomplete,
    Invalid,
    Lost,
    NotFound,
    Superseded,
    Unavailable,
)
from statestore.hazelcast import heads
from statestore.hazelcast.cleaner import Cleaner
from statestore.hazelcast.grid import Grid, Placed
from statestore.hazelcast.heads import Stored, manifest_key, piece_key
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.room import Room
from statestore.hazelcast.transfer import WINDOW, Session, fetch, same
from statestore.memory import FENCES
from statestore.records import decode_head, encode_head

SPREAD = 1
"""Partitions over which the pieces of a write are spread. Each is served by one thread; more than one gained nothing."""

_SESSIONS = 4096
_MANIFESTS = 64
_ATTEMPTS = 200
_KNOWN = "incarnation"


class HazelcastStore(OneByOne):
    """A state store in a Hazelcast cluster.

    Args:
        options: Which, and how.

    Raises:
        Unavailable: No member can be reached.
        Lost: The cluster is not the one that this store saw before: all members were started anew.
    """

    piece_size = 256 << 10

    def __init__(self, options: HazelcastOptions) -> None:
        known = options.directory / _KNOWN if options.directory is not None else None
        seen = known.read_text().strip() if known is not None and known.is_file() else ""
        if seen and options.incarnation and seen != options.incarnation:
            raise Lost(
                f"{known} says that the states are in cluster {seen}, not {options.incarnation}",
                remedy="To begin without them, remove that file.",
            )
        self._grid = Grid(
            options.members,
            options.cluster,
            options.local,
            expected=seen,
            proposed=options.incarnation or secrets.token_hex(8),
        )
        self._cleaner = Cleaner(self._grid)
        try:
            if options.incarnation and self._grid.incarnation != options.incarnation:
                raise Lost(f"the Hazelcast cluster {self._grid.name} is not {options.incarnation}")
            if known is not None:
                known.parent.mkdir(parents=True, exist_ok=True)
                known.write_text(self._grid.incarnation)
            self._room = Room(
                self._grid, options.limit, options.local or secrets.token_hex(4), self._open_size
            )
        except BaseException:
            self.close()
            raise
        self._lock = threading.Lock()
        self._sessions: OrderedDict[Ticket, Session] = OrderedDict()
        self._manifests: OrderedDict[Placed, Head] = OrderedDict()
        self._seed = itertools.count(secrets.randbelow(1 << 16), SPREAD)

    @property
    def grid(self) -> Grid:
        """The connection."""
        return self._grid

    def begin(self, ticket: Ticket) -> Opened:
        ticket.check()

        def decide(old: Stored | None) -> Stored:
            record = decisions.begin(old.record if old is not None else None, ticket)
            if old is not None and record is old.record:
                return old
            place = heads.new_place(self._grid.local_salts(SPREAD, next(self._seed)))
            return old.with_record(record, place) if old is not None else Stored(record, place)

        before, now = self._update(ticket.key, decide)
        if before is not None and before.place and before.place != now.place:
            self._forget(ticket.key, before)
        with self._lock:
            known = ticket in self._sessions
        session = self._session(ticket, now)
        head = self._whole(now)
        numbers = {0, *session.pieces}
        if head is not None:
            numbers |= {p.number for p in head.pieces if p.epoch == ticket.epoch}
        if not known and before is now:
            # Begun through a process that has died: which numbers it used is not known, so we take others. Should that fail,
            # a commit of the old piece is refused, since its checksum is another.
            numbers.add((1 + secrets.randbelow(4095)) << 20)
        return Opened(max(numbers) + 1, now.record.sequence, head)

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        if piece.epoch != ticket.epoch or not 1 <= piece.number < 1 << 32 or len(data) > MAX_PIECE:
            raise Invalid(f"{ticket.key}: not a piece of epoch {ticket.epoch}: {piece}")
        if len(data) != piece.size or zlib.crc32(data) != piece.crc:
            raise Damaged(f"{ticket.key}: piece {piece.number} arrived damaged")
        session = self._session(ticket)
        with session.lock:
            there = session.pieces.get(piece.number)
            if there is not None:
                if there != piece:
                    raise Conflict(f"{ticket.key}: piece {piece.number} was put with another content")
                return
            session.wait(self._grid, WINDOW - len(data))
            self._room.take(ticket.key, ticket.epoch, cost(piece.size))
            key = piece_key(session.place, piece.number)
            try:
                session.add(piece, self._grid.set_piece(key, data))
            except Unavailable:
                self._room.give(cost(piece.size))
                raise

    def flush(self, ticket: Ticket) -> None:
        with self._lock:
            session = self._sessions.get(ticket)
        if session is None:
            return
        owner = self._grid.look(ticket.key)
        with session.lock:
            session.wait(self._grid)
        raw = self._grid.wait(owner)
        if raw is None:
            self._grid.verify(ticket.key)
        try:
            decisions.owned(heads.decode(ticket.key, bytes(raw)).record if raw is not None else None, ticket)
        except Superseded:
            self._drop_session(ticket)
            raise

    def commit(self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes = b"") -> Head:
        head = make_head(ticket, sequence, pieces, meta)
        old = self._read(ticket.key)
        if old is not None and same(old.record.head, head):
            return head  # the answer to the first attempt was lost
        decisions.commit(old.record if old is not None else None, ticket, head)
        assert old is not None
        session = self._session(ticket, old)
        before = self._whole(old)
        try:
            places = self._places(ticket, session, pieces, before, old)
        except Incomplete:
            # Taken over since the look at its head: the new writer has removed the pieces, and that is what to say.
            now = self._read(ticket.key)
            decisions.commit(now.record if now is not None else None, ticket, head)
            raise
        name = f"m{sequence}.{secrets.token_hex(4)}"
        at = manifest_key(session.place, name)
        manifest = self._grid.set_piece(at, encode_head(head))
        with session.lock:
            session.wait(self._grid)
        self._grid.wait(manifest)

        def decide(now: Stored | None) -> Stored:
            if now is not None and same(now.record.head, head):
                return now
            record = decisions.commit(now.record if now is not None else None, ticket, head)
            return Stored(record, session.place, name, places)

        _, done = self._update(ticket.key, decide, read=old)
        self._remember(at, head)
        # What no manifest names any more.
        named = heads.keys_of(done, head.pieces)
        gone = {piece_key(session.place, number) for number in session.pieces}
        if before is not None:
            gone |= heads.keys_of(old, before.pieces)
        self._cleaner.remove(gone - named)
        with session.lock:
            kept = {p.number: p for p in pieces if p.epoch == ticket.epoch}
            session.pieces = kept
            held, session.held = session.held, 0
        self._room.settle(
            ticket.key, ticket.epoch, held, head.size - (before.size if before is not None else 0)
        )
        return head

    def abort(self, ticket: Ticket) -> None:
        def decide(old: Stored | None) -> Stored | None:
            record = decisions.abort(old.record if old is not None else None, ticket)
            if old is None or record is None or record is old.record:
                return old
            return old.with_record(record, "")

        before, now = self._update(ticket.key, decide)
        if before is not now:
            self._drop_session(ticket, keep=now)
            self._room.settle(ticket.key, ticket.epoch, 0, 0)

    def head(self, key: str) -> Head | None:
        stored = self._read(key)
        return None if stored is None else self._whole(stored)

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        stored = self._read(head.key)
        if stored is None or not same(stored.record.head, head):
            raise NotFound(f"{head.key}: version {head.epoch}.{head.sequence} is not there any more")
        return fetch(
            self._grid, head, stored, head.pieces if indexes is None else [head.pieces[i] for i in indexes]
        )

    def delete(self, key: str, epoch: int) -> bool:
        check_key(key)

        def decide(old: Stored | None) -> Stored:
            record = decisions.delete(old.record if old is not None else None, key, epoch)
            if old is not None and record is old.record:
                return old
            return Stored(record, "")

        before, now = self._update(key, decide)
        if before is now:
            return False
        committed, _ = self._remove(key, before) if before is not None else (0, 0)
        self._room.settle(key, epoch, 0, -committed)
        return before is not None and (before.record.head is not None or bool(before.record.writer))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        found = [(k, heads.decode(k, raw)) for k, raw in self._grid.entries() if k.startswith(prefix)]
        self._grid.check_all()
        with self._lock:
            held = {(t.key, t.epoch): s.held for t, s in self._sessions.items()}
        for key, stored in sorted(found, key=lambda item: item[0]):
            record, head = stored.record, stored.record.head
            if head is None and not record.writer:
                continue
            size = head.size if head is not None else 0
            yield Entry(
                key,
                record.epoch,
                head.epoch if head is not None else 0,
                head.sequence if head is not None else 0,
                size,
                size + held.get((key, record.epoch), 0),
            )

    def collect(self, prefix: str, *, keep: Collection[tuple[str, int]], before: int) -> Collected:
        kept = frozenset(keep)
        # In this order: what is put after this look belongs to a place that the look at the heads will show.
        all_pieces = self._grid.piece_keys()
        keys = size = 0
        for key, _ in list(self._grid.entries()):
            if not key.startswith(prefix):
                continue

            def decide(old: Stored | None, key: str = key) -> Stored | None:
                if old is None:
                    return None
                record = decisions.collect(old.record, key, kept, before)
                if record is old.record:
                    return old
                return old.with_record(record, old.place if record.writer else "")

            was, now = self._update(key, decide)
            if was is not None and now is not None and was is not now:
                keys += 1
                size += sum(self._remove(key, was, now))
        used: set[str] = set()
        fences = []
        for key, raw in self._grid.entries():
            stored = heads.decode(key, raw)
            used |= {heads.place_id(place) for place in (stored.place, *stored.places.values())}
            if stored.record.head is None and not stored.record.writer:
                fences.append((stored.record.epoch, key, raw))
        self._grid.check_all()
        orphans = [k for k in all_pieces if k.partition("|")[0] not in used]
        self._cleaner.remove_now(map(heads.placed, orphans))
        for _, key, raw in sorted(fences)[: max(0, len(fences) - FENCES)]:
            self._grid.remove(key, raw)
        self._room.refresh()
        return Collected(keys, size)

    def capacity(self) -> Capacity:
        self._room.refresh()
        return self._room.capacity()

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float = RESERVED_FOR) -> None:
        self._room.reserve(epoch, sizes, seconds)

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        self._room.release(epoch, keys)

    def close(self) -> None:
        self._cleaner.close()
        self._grid.close()

    # -- heads

    def _read(self, key: str) -> Stored | None:
        raw = self._grid.read(key)
        return None if raw is None else heads.decode(key, raw)

    def _update(
        self, key: str, decide: Callable[[Stored | None], Any], read: Stored | None = None
    ) -> tuple[Stored | None, Any]:
        """Change the entry of a key by a decision about what was read; both are returned, the same when nothing changed."""
        for _ in range(_ATTEMPTS):
            old = read if read is not None else self._read(key)
            read = None  # only just now
            new = decide(old)
            if new is old:
                return old, new
            raw = new.encode()
            if self._grid.exchange(key, old.raw if old is not None else None, raw):
                return old, replace(new, raw=raw)
        raise Unavailable(f"{key}: too many change it at once")

    def _whole(self, stored: Stored) -> Head | None:
        """The committed version with its pieces and meta."""
        head = stored.record.head
        if head is None:
            return None
        at = manifest_key(stored.places[head.epoch], stored.manifest)
        with self._lock:
            known = self._manifests.get(at)
        if known is not None:
            return known
        raw = self._grid.wait(self._grid.get_piece(at))
        if raw is None:
            now = self._read(head.key)
            if now is None or now.manifest != stored.manifest:
                return self._whole(now) if now is not None else None  # it was replaced meanwhile
            raise Damaged(f"{head.key}: the manifest of its committed version is lost: too few backups")
        found = decode_head(bytes(raw))
        if found.digest != head.digest:
            raise Damaged(f"{head.key}: the manifest of its committed version is damaged")
        self._remember(at, found)
        return found

    def _remember(self, at: Placed, head: Head) -> None:
        with self._lock:
            self._manifests[at] = head
            while len(self._manifests) > _MANIFESTS:
                self._manifests.popitem(last=False)

    # -- pieces

    def _places(
        self, ticket: Ticket, session: Session, pieces: Sequence[Piece], before: Head | None, old: Stored
    ) -> dict[int, str]:
        """Where each epoch's pieces lie. Raises: Incomplete."""
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
                if data is not None and len(data) == piece.size and zlib.crc32(data) == piece.crc:
                    there = session.pieces[piece.number] = piece
            if there != piece:
                raise Incomplete(
                    f"{ticket.key}: piece {piece.number} of epoch {piece.epoch} is not there: "
                    f"a commit of epoch {ticket.epoch} is refused"
                )
        return places

    # -- sessions

    def _session(self, ticket: Ticket, stored: Stored | None = None) -> Session:
        """The write of a ticket; found again in the cluster after this process was started anew. Raises: Superseded."""
        with self._lock:
            session = self._sessions.get(ticket)
            if session is not None:
                self._sessions.move_to_end(ticket)
                if stored is None or stored.place == session.place:
                    return session
        if stored is None:
            stored = self._read(ticket.key)
            decisions.owned(stored.record if stored is not None else None, ticket)
            assert stored is not None
        session = Session(stored.place)
        with self._lock:
            self._sessions[ticket] = session
            while len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def _drop_session(self, ticket: Ticket, keep: Stored | None = None) -> int:
        with self._lock:
            session = self._sessions.pop(ticket, None)
        if session is None:
            return 0
        with session.lock:
            held, session.held = session.held, 0
            keys = {piece_key(session.place, number) for number in session.pieces}
        kept = self._whole(keep) if keep is not None else None
        if keep is not None and kept is not None:
            keys -= heads.keys_of(keep, kept.pieces)
        self._cleaner.remove(keys)
        self._room.settle(ticket.key, ticket.epoch, held, 0)
        return held

    def _forget(self, key: str, before: Stored) -> int:
        """The open write of an earlier owner, when it went through this process."""
        ticket = Ticket(key, before.record.epoch, before.record.writer)
        return self._drop_session(ticket, keep=before)

    def _remove(self, key: str, before: Stored, now: Stored | None = None) -> tuple[int, int]:
        """Everything of an entry that the one that took its place does not have. Returns bytes: committed, and put only."""
        committed = held = 0
        head = before.record.head
        if head is not None and (now is None or now.record.head is None):
            committed = head.size
            try:
                whole = self._whole(replace(before))
            except Damaged:
                whole = None  # what there is of it is nobody's, and collected as such
            if whole is not None:
                self._cleaner.remove(heads.keys_of(before, whole.pieces))
        if before.record.writer and (now is None or not now.record.writer):
            held = self._drop_session(Ticket(key, before.record.epoch, before.record.writer), keep=now)
        return committed, held

    def _open_size(self) -> int:
        with self._lock:
            return sum(session.held for session in self._sessions.values())
