"""The store in memory: for tests, and, with a journal behind it, the embedded one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

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
from statestore.budget import Budget
from statestore.bulk import OneByOne
from statestore.checksum import crc32
from statestore.errors import Conflict, Damaged, Incomplete, Invalid, NotFound, StateStoreError, Unavailable
from statestore.journal import Held, Journal, NoJournal
from statestore.parcel import Content, Placed, content_bytes, read_at

FENCES = 1 << 16
"""Keys of which only a fence is left. Beyond that the oldest eighth goes at once: to forget some means to write all others anew."""

_Pieces = dict[tuple[int, int], tuple[Piece, Content]]


class MemoryStore(OneByOne):
    """A state store in this process.

    Args:
        limit: Bytes that it may hold.
        name: For messages.
        journal: Told of every change before it happens.
        fences: How many fences of deleted keys are kept.
    """

    piece_size = 256 << 10

    def __init__(
        self,
        limit: int = 1 << 30,
        *,
        name: str = "the state store in memory",
        journal: Journal | None = None,
        fences: int = FENCES,
    ) -> None:
        self._journal = journal or NoJournal()
        self._budget = Budget(limit, name)
        self._fences = fences
        self._lock = threading.Lock()  # guards the four dictionaries; a key's own lock comes before it
        self._locks: dict[str, threading.Lock] = {}
        try:
            self._keys: dict[str, Held] = self._journal.load()
        except BaseException:
            self._journal.close()
            raise
        # The oldest first.
        self._bare = {key: None for key, held in self._keys.items() if _is_bare(held.record)}
        # Where many topologies have been, fences are by far the most: to look through all for what is there took 0.2 s, with the lock.
        self._more = dict.fromkeys(self._keys.keys() - self._bare.keys())
        self._closed = False
        for key, held in self._keys.items():
            self._budget.take(key, held.record.epoch, _size(held.pieces), forced=True)

    def begin(self, ticket: Ticket) -> Opened:
        ticket.check()
        with self._key(ticket.key) as held:
            record = decisions.begin(_record(held), ticket)
            if held is None or record is not held.record:
                self._journal.begun(ticket)
                held = self._adopt(ticket.key, held, record)
            last = max((number for epoch, number in held.pieces if epoch == ticket.epoch), default=0)
            return Opened(last + 1, record.sequence, None if held.damage else record.head)

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        if piece.epoch != ticket.epoch or not 1 <= piece.number < 1 << 32 or len(data) > MAX_PIECE:
            raise Invalid(f"{ticket.key}: not a piece of epoch {ticket.epoch}: {piece}")
        if len(data) != piece.size or crc32(data) != piece.crc:
            raise Damaged(f"{ticket.key}: piece {piece.number} arrived damaged")
        with self._key(ticket.key) as held:
            decisions.owned(_record(held), ticket)
            assert held is not None
            if _there(ticket, held, piece):
                return
            self._budget.take(ticket.key, ticket.epoch, cost(piece.size))
            try:
                self._journal.put(ticket, piece, data)
            except BaseException:
                self._budget.give(cost(piece.size))
                raise
            held.pieces[piece.epoch, piece.number] = (piece, data)

    def adopt(self, ticket: Ticket, file: int, pieces: Placed) -> None:
        """Store pieces that are in a file, which does not change any more: kept as it is where that can be.

        Args:
            ticket: Who puts.
            file: Its descriptor; stays the caller's.
            pieces: What is in it, and where.

        Raises:
            Superseded, Full, Conflict: As for `put`.
        """
        with self._key(ticket.key) as held:
            decisions.owned(_record(held), ticket)
            assert held is not None
            new = [(p, offset) for p, offset in pieces if not _there(ticket, held, p)]
            size = sum(cost(piece.size) for piece, _ in new)
            self._budget.take(ticket.key, ticket.epoch, size)
            try:
                slices = self._journal.adopted(ticket, file, new) if new else []
            except BaseException:
                self._budget.give(size)
                raise
            if slices is not None:
                for (piece, _), place in zip(new, slices, strict=True):
                    held.pieces[piece.epoch, piece.number] = (piece, place)
                return
            # One by one; what is not stored yet keeps its room.
            try:
                for piece, offset in new:
                    data = checked(ticket.key, piece, read_at(file, offset, piece.size))
                    self._journal.put(ticket, piece, data)
                    held.pieces[piece.epoch, piece.number] = (piece, data)
                    size -= cost(piece.size)
            except BaseException:
                self._budget.give(size)
                raise

    def flush(self, ticket: Ticket) -> None:
        """Nothing is ever under way here."""

    def commit(self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes = b"") -> Head:
        head = make_head(ticket, sequence, pieces, meta)
        with self._key(ticket.key) as held:
            record = decisions.commit(_record(held), ticket, head)
            assert held is not None
            if record is held.record:
                assert record.head is not None
                return record.head
            kept: _Pieces = {}
            for piece in pieces:
                at = piece[:2]
                there = held.pieces.get(at)
                if there is None or there[0] != piece:
                    raise Incomplete(
                        f"{ticket.key}: piece {piece.number} of epoch {piece.epoch} is not there: "
                        f"commit {sequence} of epoch {ticket.epoch} is refused"
                    )
                kept[at] = there
            self._journal.committed(head, kept)
            self._adopt(ticket.key, held, record, kept)
        self._budget.release(ticket.epoch, [ticket.key])
        return head

    def abort(self, ticket: Ticket) -> None:
        with self._key(ticket.key) as held:
            record = decisions.abort(_record(held), ticket)
            if held is None or record is None or record is held.record:
                return
            self._journal.ended(ticket.key, ticket.epoch, deleted=False)
            self._adopt(ticket.key, held, record)
        self._budget.release(ticket.epoch, [ticket.key])

    def head(self, key: str) -> Head | None:
        with self._key(key) as held:
            if held is None:
                return None
            if held.damage:
                raise Damaged(
                    f"{key}: {held.damage}", remedy="Restore it from another copy, if there is one."
                )
            return held.record.head

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        wanted = head.pieces if indexes is None else [head.pieces[i] for i in indexes]
        return _checked(head.key, wanted, self._found(head, wanted))

    def contents(self, head: Head) -> list[tuple[Piece, Content]]:
        """The pieces of a version as they are kept, in order, compared with nothing.

        Raises:
            NotFound: The version is not there any more.
        """
        found = zip(head.pieces, self._found(head, head.pieces), strict=True)
        return [(piece, _present(head.key, piece, there)) for piece, there in found]

    def _found(self, head: Head, wanted: Sequence[Piece]) -> list[tuple[Piece, Content] | None]:
        # Taken all at once: they are only referred to, and a deletion meanwhile does not tear the answer.
        with self._key(head.key) as held:
            pieces = {} if held is None else held.pieces
            found = [pieces.get((p.epoch, p.number)) for p in wanted]
            current = held.record.head if held is not None else None
            if current is None or (current.epoch, current.sequence) != (head.epoch, head.sequence):
                raise NotFound(f"{head.key}: version {head.epoch}.{head.sequence} is not there any more")
        return found

    def delete(self, key: str, epoch: int) -> bool:
        check_key(key)
        with self._key(key) as held:
            record = decisions.delete(_record(held), key, epoch)
            if held is not None and record is held.record:
                return False
            self._journal.ended(key, epoch, deleted=True)
            had = held is not None and bool(held.pieces or held.record.head)
            self._adopt(key, held, record)
        self._budget.release(epoch, [key])
        self._prune()
        return had

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._lock:
            there = [(k, self._keys[k]) for k in self._more if k.startswith(prefix)]
            found = sorted((k, h.record, _size(h.pieces)) for k, h in there)
        for key, record, held in found:
            head = record.head
            if head is not None or record.writer:
                yield Entry(
                    key,
                    record.epoch,
                    head.epoch if head else 0,
                    head.sequence if head else 0,
                    head.size if head else 0,
                    held,
                )

    def collect(self, prefix: str, *, keep: Collection[tuple[str, int]], before: int) -> Collected:
        kept = frozenset(keep)
        with self._lock:
            names = sorted(k for k in self._more if k.startswith(prefix))
        keys = size = 0
        for key in names:
            with self._key(key) as held:
                if held is None:
                    continue
                record = decisions.collect(held.record, key, kept, before)
                if record is held.record:
                    continue
                had = _size(held.pieces)
                old = held.record.head
                if record.writer != held.record.writer:
                    self._journal.ended(key, record.epoch, deleted=record.head is None)
                elif old is not None:  # only the version goes
                    self._journal.ended(key, old.epoch, deleted=True)
                self._adopt(key, held, record)
                keys += 1
                size += had - _size(held.pieces)
        self._prune()
        return Collected(keys, size)

    def capacity(self) -> Capacity:
        return self._budget.capacity()

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float = RESERVED_FOR) -> None:
        self._budget.reserve(epoch, sizes, seconds)

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        self._budget.release(epoch, keys)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            locks = list(self._locks.values())
        for lock in locks:
            with lock:  # whoever is at it finishes
                pass
        self._journal.close()

    @contextmanager
    def _key(self, key: str) -> Iterator[Held | None]:
        """What there is of a key, for one thread at a time."""
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("the state store is closed")
                lock = self._locks.setdefault(key, threading.Lock())
            with lock:
                with self._lock:
                    if self._locks.get(key) is not lock:
                        continue  # it was forgotten while we waited
                    if self._closed:
                        raise Unavailable("the state store is closed")
                    held = self._keys.get(key)
                try:
                    yield held
                finally:
                    with self._lock:
                        if key not in self._keys:
                            self._locks.pop(key, None)
                return

    def _adopt(
        self, key: str, held: Held | None, record: decisions.Record, kept: _Pieces | None = None
    ) -> Held:
        """Apply a new record: what nothing refers to any more goes, from memory and from the journal."""
        if held is None:
            held = Held(record)
            with self._lock:
                self._keys[key] = held
                self._sort(key, record)
            return held
        was, is_bare = _is_bare(held.record), _is_bare(record)
        had = held.pieces
        if kept is None:
            named = {(p.epoch, p.number) for p in record.head.pieces} if record.head is not None else set()
            writing = record.epoch if record.writer else 0
            kept = {i: value for i, value in had.items() if i[0] == writing or i in named}
        if record.head is not held.record.head or is_bare:  # nothing is left that could be damaged
            held.damage = ""
        stale = {epoch for epoch, _ in had} | _epochs(held.record)
        held.record, held.pieces = record, kept
        if was or is_bare:
            with self._lock:
                self._sort(key, record)
        self._budget.give(_size(had) - _size(kept))
        stale -= {epoch for epoch, _ in kept} | _epochs(record)
        if stale:
            self._journal.drop(key, sorted(stale))
        return held

    def _sort(self, key: str, record: decisions.Record) -> None:
        """Among the fences, as the newest, or among those of which there is more. With the lock."""
        self._bare.pop(key, None)
        self._more.pop(key, None)
        (self._bare if _is_bare(record) else self._more)[key] = None

    def _prune(self) -> None:
        """The number of fences is bounded. Whoever deletes something has done so by then: where the disk is full, their file gets
        smaller when it is not any more."""
        with self._lock:
            if len(self._bare) <= self._fences:
                return
            surplus = list(islice(self._bare, len(self._bare) - self._fences + self._fences // 8))
            for key in surplus:
                del self._bare[key]  # nobody else looks after these
        gone = []
        for key in surplus:
            with self._key(key) as held:
                if held is not None and _is_bare(held.record):
                    with self._lock:
                        del self._keys[key]
                        self._bare.pop(key, None)
                    self._journal.let_go(key)
                    gone.append(key)
        if gone:
            with contextlib.suppress(StateStoreError, OSError):
                self._journal.forget(gone)


def _is_bare(record: decisions.Record) -> bool:
    """Whether only a fence is left."""
    return record.head is None and not record.writer


def _record(held: Held | None) -> decisions.Record | None:
    return None if held is None else held.record


def _epochs(record: decisions.Record) -> set[int]:
    """Epochs of which something has to be kept even without pieces."""
    found = {record.head.epoch} if record.head is not None else set()
    return found | {record.epoch} if record.writer else found


def _size(pieces: _Pieces) -> int:
    those = list(pieces.values())  # a copy: somebody may be putting
    return sum([piece.size for piece, _ in those]) + cost(0) * len(those)


def _there(ticket: Ticket, held: Held, piece: Piece) -> bool:
    """Whether that very piece was put before. Raises: Invalid, Conflict."""
    if piece.epoch != ticket.epoch or not 1 <= piece.number < 1 << 32 or piece.size > MAX_PIECE:
        raise Invalid(f"{ticket.key}: not a piece of epoch {ticket.epoch}: {piece}")
    there = held.pieces.get((piece.epoch, piece.number))
    if there is not None and there[0] != piece:
        raise Conflict(f"{ticket.key}: piece {piece.number} was put with another content")
    return there is not None


def _present(key: str, piece: Piece, there: tuple[Piece, Content] | None) -> Content:
    if there is None:
        raise NotFound(f"{key}: piece {piece.number} of epoch {piece.epoch} is not there")
    return there[1]


def _checked(
    key: str, wanted: Sequence[Piece], found: Sequence[tuple[Piece, Content] | None]
) -> Iterator[bytes]:
    for piece, there in zip(wanted, found, strict=True):
        yield checked(key, piece, content_bytes(_present(key, piece, there)))


def checked(key: str, piece: Piece, data: bytes) -> bytes:
    """The bytes, when they are those of the piece. Raises: Damaged."""
    if len(data) != piece.size or crc32(data) != piece.crc:
        raise Damaged(
            f"{key}: piece {piece.number} of epoch {piece.epoch} differs from its checksum",
            remedy="Restore it from another copy, if there is one.",
        )
    return data
