"""The back end in a Hazelcast cluster: see `statestore.base` for what it promises, `docs/statestore.md` for how."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

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
    first_of,
    make_head,
)
from statestore.bulk import OneByOne, of_epoch, save_one
from statestore.checksum import crc32
from statestore.errors import (
    Conflict,
    Damaged,
    Incomplete,
    Invalid,
    Lost,
    Missing,
    NotFound,
    Superseded,
    Unavailable,
)
from statestore.hazelcast import heads
from statestore.hazelcast.cleaner import Cleaner
from statestore.hazelcast.connection import name_of
from statestore.hazelcast.entries import Entries
from statestore.hazelcast.grid import Grid
from statestore.hazelcast.heads import INLINE, Stored, manifest_key, piece_key
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.room import Room
from statestore.hazelcast.settings import check
from statestore.hazelcast.transfer import WINDOW, fetch, same
from statestore.hazelcast.whole import Begun, Whole
from statestore.hazelcast.writes import Writes
from statestore.memory import FENCES
from statestore.records import encode_head

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

SPREAD = 1
"""Partitions over which the pieces of a write are spread. Each is served by one thread; more than one gained nothing."""

TOGETHER = 16
"""Calls that are made at a time for many states: each is mostly waiting for the cluster."""

_KNOWN = "incarnation"


class HazelcastStore(OneByOne):
    """A state store in a Hazelcast cluster.

    Args:
        options: Which, and how.
        on_replaced: Called once when the cluster turns out to be another one than when this store began: it is of no use
            any more. On any thread.
        on_cut_off: Called once when no member could be reached for so long that the connection was given up for good: it is of no
            use any more either. On any thread.

    Raises:
        Unavailable: No member can be reached.
        Missing: Members that somebody else runs would drop what is stored, or keep too few backups of it.
        Lost: The cluster is not the one that this store saw before: all members were started anew.
    """

    piece_size = 256 << 10

    def __init__(
        self,
        options: HazelcastOptions,
        on_replaced: Callable[[], None] = lambda: None,
        on_cut_off: Callable[[], None] = lambda: None,
    ) -> None:
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
            before=lambda client: _look(client, options),
            on_replaced=on_replaced,
            on_cut_off=on_cut_off,
        )
        self._cleaner = Cleaner(self._grid)
        self._entries = Entries(self._grid)
        self._writes = Writes(self._grid, self._entries, self._cleaner)
        self._together = ThreadPoolExecutor(TOGETHER, "statestore-together")
        try:
            if options.incarnation and self._grid.incarnation != options.incarnation:
                raise Lost(f"the Hazelcast cluster {self._grid.name} is not {options.incarnation}")
            if known is not None and seen != self._grid.incarnation:
                _note(known, self._grid.incarnation)
            self._room = Room(
                self._grid,
                options.limit_of,
                options.local or secrets.token_hex(4),
                self._writes.size,
                self._cleaner.later,
            )
        except BaseException:
            self.close()
            raise
        self._whole = Whole(self._grid, self._entries, self._writes, self._room, self._cleaner)
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
            place = heads.new_place(self._salts())
            return old.with_record(record, place) if old is not None else Stored(record, place)

        before, now = self._entries.update(ticket.key, decide, anew=True, expected=False)
        if before is not None and before.place and before.place != now.place:
            # The open write of an earlier owner, when it went through this process.
            earlier = Ticket(ticket.key, before.record.epoch, before.record.writer)
            self._writes.drop(earlier, self._room, before)
        known = self._writes.known(ticket) is not None
        session = self._writes.session(ticket, now)
        self._writes.drop_others(ticket.key, ticket.epoch, self._room, now)
        head = self._entries.readable(now)  # what is lost can be written anew
        if head is not None and not known:
            with session.lock:  # saved at once, or through a process that has died: those numbers are taken
                session.pieces.update({p.number: p for p in head.pieces if p.epoch == ticket.epoch})
        numbers = {session.last, *session.pieces}
        if not known and before is now:
            # Begun through a process that has died: which numbers it used is not known, so we take others. Should that fail,
            # a commit of the old piece is refused, since its checksum is another.
            numbers.add((1 + secrets.randbelow(4095)) << 20)
        return Opened(max(numbers) + 1, now.record.sequence, head)

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        _check(ticket, piece, data)
        session = self._writes.session(ticket)
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
        session = self._writes.known(ticket)
        if session is None:
            return
        owner = self._grid.look(ticket.key)
        with session.lock:
            session.wait(self._grid)
        raw = self._grid.wait(owner)
        if raw is None:
            self._grid.verify(ticket.key)
        stored = heads.decode(ticket.key, bytes(raw)) if raw is not None else None
        try:
            decisions.owned(stored.record if stored is not None else None, ticket)
        except Superseded:
            # What it has committed stays until the next owner commits.
            self._writes.drop(ticket, self._room, stored)
            raise

    def commit(self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes = b"") -> Head:
        head = make_head(ticket, sequence, pieces, meta)
        session = self._writes.known(ticket)
        if session is not None and session.entry is not None:
            # Nobody else changes it, mostly; where somebody has, the exchange is refused, and what is there now is read.
            with contextlib.suppress(Superseded, Conflict, Incomplete, Damaged, Lost):
                return self._commit(ticket, head, session.entry)
        return self._commit(ticket, head, self._entries.read(ticket.key))

    def _commit(self, ticket: Ticket, head: Head, old: Stored | None) -> Head:
        """Commit a version in the place of what is there, as far as is known."""
        pieces, sequence = head.pieces, head.sequence
        if old is not None and same(old.record.head, head):
            self._writes.committed(ticket, head, old)
            self._room.later_refresh()
            return head  # the answer to the first attempt was lost
        decisions.commit(old.record if old is not None else None, ticket, head)
        assert old is not None
        session = self._writes.session(ticket, old)
        before = self._entries.readable(old)
        try:
            places = self._writes.places(ticket, session, pieces, before, old)
        except Incomplete:
            # Taken over since the look at its head: the new writer has removed the pieces, and that is what to say.
            now = self._entries.read(ticket.key)
            decisions.commit(now.record if now is not None else None, ticket, head)
            raise
        name, manifest = "", encode_head(head)
        apart = None
        if len(manifest) > INLINE:
            name = f"m{sequence}.{secrets.token_hex(4)}"
            apart = self._grid.set_piece(manifest_key(session.place, name), manifest)
            manifest = b""
        with session.lock:
            session.wait(self._grid)
        if apart is not None:
            self._grid.wait(apart)

        inherited = set(before.pieces).intersection(pieces) if before is not None else set()

        def decide(now: Stored | None) -> Stored:
            if now is not None and same(now.record.head, head):
                return now
            if before is not None and inherited and (now is None or not same(now.record.head, before)):
                raise Incomplete(
                    f"{ticket.key}: pieces of the version that this one replaces have been removed: "
                    f"a commit of epoch {ticket.epoch} is refused"
                )
            record = decisions.commit(now.record if now is not None else None, ticket, head)
            return Stored(record, session.place, name, places, manifest)

        _, done = self._entries.update(ticket.key, decide, read=old)
        self._entries.remember(head)
        # What no manifest names any more.
        named = heads.keys_of(done, head.pieces)
        gone = {piece_key(session.place, number) for number in session.pieces}
        if before is not None:
            gone |= heads.keys_of(old, before.pieces)
        self._cleaner.remove(gone - named)
        with session.lock:
            kept = {p.number: p for p in pieces if p.epoch == ticket.epoch}
            session.pieces, session.entry = kept, done
            held, session.held = session.held, 0
        replaced = old.record.head.size if old.record.head is not None else 0
        self._room.settle(ticket.key, ticket.epoch, held, head.size - replaced)
        return head

    def save_whole(
        self, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes = b""
    ) -> Head:
        """See `BackEnd.save_whole`."""
        ticket.check()
        for piece, content in zip(pieces, data, strict=True):
            _check(ticket, piece, content)
        try:
            return self._whole.save(ticket, pieces, data, meta, self._salts())
        except Begun:
            return save_one(self, ticket, pieces, data, meta)

    def abort(self, ticket: Ticket) -> None:
        def decide(old: Stored | None) -> Stored | None:
            record = decisions.abort(old.record if old is not None else None, ticket)
            if old is None or record is None or record is old.record:
                return old
            return old.with_record(record, "")

        before, now = self._entries.update(ticket.key, decide)
        # Also where nothing changed: the answer to the first attempt may have been lost, or somebody else may own the key by now.
        self._writes.drop(ticket, self._room, now)
        if before is not now:
            self._room.settle(ticket.key, ticket.epoch, 0, 0)

    def head(self, key: str) -> Head | None:
        stored = self._entries.read(key)
        return None if stored is None else self._entries.whole(stored)

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        stored = self._entries.read(head.key)
        if stored is None or not same(stored.record.head, head):
            raise NotFound(f"{head.key}: version {head.epoch}.{head.sequence} is not there any more")
        return fetch(
            self._grid, head, stored, head.pieces if indexes is None else [head.pieces[i] for i in indexes]
        )

    def open(
        self, key: str, epoch: int, have: Collection[Piece] = (), most: int | None = None
    ) -> tuple[Head, Iterator[bytes | None]]:
        """See `BackEnd.open`."""
        there = self._entries.committed(key)
        head = of_epoch(None if there is None else there[1], key, epoch)
        assert there is not None
        pieces = head.pieces[: first_of(head.pieces, have, most)]
        found = fetch(self._grid, head, there[0], [p for p in pieces if p not in have])
        return head, (None if p in have else next(found) for p in pieces)

    def each(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """See `BackEnd.each`."""
        return map(call, items) if len(items) <= 1 else self._together.map(call, items)

    def delete(self, key: str, epoch: int) -> bool:
        check_key(key)

        def decide(old: Stored | None) -> Stored:
            record = decisions.delete(old.record if old is not None else None, key, epoch)
            if old is not None and record is old.record:
                return old
            return Stored(record, "")

        before, now = self._entries.update(key, decide, anew=True)
        if before is now:  # it may have gone by another store
            self._writes.drop_others(key, epoch + 1, self._room, now)
            self._room.settle(key, epoch, 0, 0)  # what was reserved for a write that never began
            return False
        committed, _ = self._writes.remove(key, before, self._room) if before is not None else (0, 0)
        self._room.settle(key, epoch, 0, -committed)
        return before is not None and (before.record.head is not None or bool(before.record.writer))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        found = [(k, heads.decode(k, raw)) for k, raw in self._grid.entries() if k.startswith(prefix)]
        self._grid.check_all()
        held = self._writes.held()
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
        # In this order: what is put after this look belongs to a place that the look at the heads will show; but see `Whole`.
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

            was, now = self._entries.update(key, decide)
            if was is not None and now is not None and was is not now:
                keys += 1
                size += sum(self._writes.remove(key, was, self._room, now))
            if now is not None:
                owner = now.record.epoch if now.record.writer else now.record.epoch + 1
                self._writes.drop_others(key, owner, self._room, now)
        used: set[str] = set()
        fences = []
        for key, raw in self._grid.entries():
            stored = heads.decode(key, raw)
            used |= {heads.place_id(place) for place in (stored.place, *stored.places.values())}
            if stored.record.head is None and not stored.record.writer:
                fences.append((stored.record.epoch, key, raw))
        self._grid.check_all()
        orphans = [k for k in all_pieces if heads.place_of(k) not in used]
        self._cleaner.remove_now(map(heads.placed, self._whole.over(orphans)))
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
        self._together.shutdown(wait=False, cancel_futures=True)
        self._cleaner.close()
        self._grid.close()  # with it, calls that are under way end
        self._together.shutdown()

    def _salts(self) -> tuple[str, ...]:
        return self._grid.local_salts(SPREAD, next(self._seed))


def _note(path: Path, incarnation: str) -> None:
    """Remember which cluster it is: whole, or not at all. Raises: Missing."""
    made = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(incarnation)
        made.replace(path)
    except OSError as error:
        raise Missing(f"the state store cannot write {path}: {error.strerror}") from error


def _look(client: Any, options: HazelcastOptions) -> None:
    """At how members that somebody else runs keep what is stored. Raises: Missing."""
    if options.foreign:
        for doubt in check(client, name_of(options.members, options.cluster), options.backups):
            log.warning("%s", doubt)


def _check(ticket: Ticket, piece: Piece, data: bytes) -> None:
    if piece.epoch != ticket.epoch or not 1 <= piece.number < 1 << 32 or len(data) > MAX_PIECE:
        raise Invalid(f"{ticket.key}: not a piece of epoch {ticket.epoch}: {piece}")
    if len(data) != piece.size or crc32(data) != piece.crc:
        raise Damaged(f"{ticket.key}: piece {piece.number} arrived damaged")
