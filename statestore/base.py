"""The port of a state store: what a back end does, and the nouns that go in and out.

A *key* names whose state it is. A writer *begins* with an epoch, *puts* pieces, and *commits* a manifest that lists pieces in
order; only then is anything visible. The highest epoch that ever began owns the key: an older writer is refused from then on,
by `Superseded`. What was committed before stays readable until the new owner commits, so that a writer that dies half way
costs nothing.

A piece is written once and never changes; it is known by the epoch and the number under which it was put. A manifest may
name pieces of the same write, put long before the commit (the copy ahead of a pause), and pieces of the version that it
replaces: what did not change is not sent again. Pieces that no manifest names are dropped at the commit.

Deleting takes the epoch up to which things go, and leaves a fence: a writer of that epoch or an older one, which comes late,
is refused and brings nothing back. What was deleted or collected stays gone, also when a newer write begins and is given up.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from statestore.errors import Invalid, StateStoreError

T = TypeVar("T")
R = TypeVar("R")

MAX_PIECE = 4 << 20
"""Bytes of the largest piece."""

MAX_PIECES = 1 << 17
"""Pieces of one version."""

MAX_META = 4 << 20
"""Bytes of what a writer may add to a manifest."""

MAX_KEY = 400
"""Bytes of a key."""

OVERHEAD = 128
"""Bytes that a piece is counted with beyond its own."""

RESERVED_FOR = 120.0
"""Seconds that room stays reserved when nothing else is said."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Who writes what.

    Attributes:
        key: Whose state it is.
        epoch: Grows with every change of owner; from 1.
        writer: Tells two writers of the same epoch apart; the second is refused.
    """

    key: str
    epoch: int
    writer: str

    def check(self) -> None:
        """See that it can be.

        Raises:
            Invalid: It cannot.
        """
        check_key(self.key)
        if not 1 <= self.epoch < 1 << 62:
            raise Invalid(f"{self.key}: {self.epoch} is no epoch: they begin at 1")
        if not 0 < len(self.writer) <= MAX_KEY:
            raise Invalid(f"{self.key}: a writer has a name of 1 to {MAX_KEY} characters")


class Piece(NamedTuple):
    """A piece that was put. It equals the tuple of its numbers.

    Attributes:
        epoch: Of the write that put it.
        number: Within that epoch, given by the writer; from 1.
        size: Bytes.
        crc: CRC-32 of the bytes, as `zlib.crc32` computes it.
    """

    epoch: int
    number: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Head:
    """A committed version.

    Attributes:
        sequence: Grows with every commit of an epoch; from 1.
        pieces: What it consists of, in order.
        meta: The writer's own bytes.
        size: Bytes of all pieces together.
        digest: Of the manifest: two versions with the same one have the same content.
    """

    key: str
    epoch: int
    sequence: int
    writer: str
    pieces: tuple[Piece, ...] = field(repr=False)
    meta: bytes = field(repr=False)
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """What a writer learns when it begins.

    Attributes:
        next_number: The first free number of a piece.
        sequence: Of the last commit of the same epoch; 0 when there was none.
        head: The version that is committed now.
    """

    next_number: int
    sequence: int
    head: Head | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What the store holds for a key.

    Attributes:
        epoch: Of the owner.
        committed: Epoch of the committed version; 0 when there is none.
        sequence: Of the committed version; 0 when there is none.
        size: Bytes of the committed version.
        held: Bytes of everything, with what is being written.
    """

    key: str
    epoch: int
    committed: int
    sequence: int
    size: int
    held: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """How full the store is, in bytes."""

    used: int
    reserved: int
    limit: int

    @property
    def free(self) -> int:
        """What may still be reserved."""
        return max(0, self.limit - self.used - self.reserved)


@dataclass(frozen=True, slots=True)
class Collected:
    """What `collect` removed: keys of which something went, and bytes."""

    keys: int
    size: int


@dataclass(frozen=True, slots=True)
class State:
    """A whole state that is written at once.

    Attributes:
        ticket: Who writes it.
        pieces: Its bytes, each at most `MAX_PIECE`.
        meta: Kept with them.
    """

    ticket: Ticket
    pieces: tuple[bytes, ...] = field(repr=False)
    meta: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version with its bytes."""

    head: Head
    pieces: tuple[bytes, ...] = field(repr=False)


class StateStore(Protocol):
    """A back end, or the way to one. Any thread may call; two threads may not share a ticket.

    Every method may raise `Unavailable`, and `Lost` when the store has come back empty, or has lost a part.

    Attributes:
        piece_size: Bytes of a piece that suit this store best.
    """

    @property
    def piece_size(self) -> int: ...

    def begin(self, ticket: Ticket) -> Opened:
        """Take the key over, or go on where the same writer was.

        Raises:
            Superseded: A newer epoch, or another writer of the same epoch, owns it, or it was deleted with that epoch.
        """

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        """Store a piece. It may still be under way on return; `flush` and `commit` wait for it and raise its error.

        Putting the same piece again does nothing.

        Raises:
            Superseded: This writer does not own the key any more.
            Full: There is no room.
            Damaged: The bytes do not fit the checksum.
            Conflict: Another piece was put under that number.
        """

    def flush(self, ticket: Ticket) -> None:
        """Wait until every piece that was put is stored; raises what `put` raises."""

    def commit(self, ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes = b"") -> Head:
        """Make these pieces the state, all at once. Doing it again, unchanged, does nothing.

        Args:
            ticket: Who commits.
            sequence: The last one of the epoch plus one.
            pieces: In order; of this write, or of the version that it replaces.
            meta: Kept with them.

        Raises:
            Superseded: This writer does not own the key any more.
            Incomplete: A piece is not there.
            Conflict: That sequence was committed with another content.
        """

    def abort(self, ticket: Ticket) -> None:
        """End a write for good: what it put without committing goes, and its epoch can't be begun again."""

    def head(self, key: str) -> Head | None:
        """The committed version, or None.

        Raises:
            Damaged, Lost: There is one, and it cannot be read whole.
        """

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        """The pieces of a version, in order, each compared with its checksum.

        Args:
            head: What `head` or `commit` gave.
            indexes: Which of its pieces; None for all.

        Raises:
            NotFound: The version is not there any more.
            Damaged: A piece differs from its checksum.
        """

    def save(self, states: Iterable[State]) -> Iterator[Head | StateStoreError]:
        """Begin, put and commit whole states: much faster than one by one when there are many small ones.

        Returns:
            For each state, in order: the version that is committed now, or why it is not. Doing it again is harmless.
        """

    def fetch(self, wanted: Sequence[tuple[str, int]]) -> Iterator[Fetched | StateStoreError]:
        """Whole states.

        Args:
            wanted: (key, epoch).

        Returns:
            For each, in order: it, or why not: `NotFound` when that epoch is not what is committed.
        """

    def delete(self, key: str, epoch: int) -> bool:
        """Remove everything of a key up to an epoch. Returns whether there was anything.

        Raises:
            Superseded: A newer epoch owns the key.
        """

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """What there is, sorted by key; without keys of which only a fence is left."""

    def collect(self, prefix: str, *, keep: Collection[tuple[str, int]], before: int) -> Collected:
        """Remove what ended moves have left.

        Args:
            prefix: Of the keys that it is about.
            keep: (key, epoch) of what is still wanted, committed or being written.
            before: Only what was begun with this epoch or an older one is removed.
        """

    def capacity(self) -> Capacity:
        """How full it is."""

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float = RESERVED_FOR) -> None:
        """Keep room for writes that are to come, all of them or none. What they then put is taken from it.

        Args:
            epoch: Of those writes.
            sizes: Key -> bytes.
            seconds: How long; then the room is free again.

        Raises:
            Full: It does not fit; nothing is reserved.
        """

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        """Give reserved room back that is not needed."""

    def close(self) -> None:
        """Let go of it. What is stored stays."""


class BackEnd(StateStore, Protocol):
    """A store as whoever serves it to others needs it: with less to wait for than the port's calls one by one."""

    def each(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """The results of a call for each item, in order. As many calls at a time as the store gains by: those to a cluster mostly wait."""

    def open(
        self, key: str, epoch: int, have: Collection[Piece] = (), most: int | None = None
    ) -> tuple[Head, Iterator[bytes | None]]:
        """`head` and `get` in one.

        Args:
            epoch: Of the version that is wanted.
            have: Pieces that need not come.
            most: About so many bytes of the others come, the first ones (`first_of`); None: all.

        Returns:
            The committed version; and its pieces in order, each compared with its checksum: None for those in `have`. With `most` it ends
            with the last one that comes.

        Raises:
            NotFound: No version of that epoch is committed. Also from the iterator: it has been replaced meanwhile.
            Damaged, Lost: It cannot be read whole. Also from the iterator.
        """

    def save_whole(
        self, ticket: Ticket, pieces: Sequence[Piece], data: Sequence[bytes], meta: bytes = b""
    ) -> Head:
        """`begin`, `put` and `commit` in one, for a state that is small. What was done before is not done again.

        Args:
            pieces: Numbered from 1.
            data: The bytes of each.

        Raises:
            StateStoreError: What those raise; nothing of it is under way any more.
        """


def check_key(key: str) -> None:
    """See that a key can be one.

    Raises:
        Invalid: It cannot.
    """
    if not key or "\0" in key or len(key.encode("utf-8", "replace")) > MAX_KEY:
        raise Invalid(f"{key!r} is no key: 1 to {MAX_KEY} bytes of text without NUL")


def cost(size: int) -> int:
    """Bytes that a piece of that size is counted with."""
    return size + OVERHEAD


def make_head(ticket: Ticket, sequence: int, pieces: Sequence[Piece], meta: bytes) -> Head:
    """The version that a commit makes.

    Raises:
        Invalid: Too many pieces, or too much beside them.
    """
    if len(pieces) > MAX_PIECES:
        raise Invalid(f"{ticket.key}: {len(pieces)} pieces; at most {MAX_PIECES}: make them larger")
    if len(meta) > MAX_META:
        raise Invalid(
            f"{ticket.key}: {len(meta)} bytes beside the pieces; at most {MAX_META}: put them as a piece"
        )
    return Head(
        ticket.key,
        ticket.epoch,
        sequence,
        ticket.writer,
        tuple(pieces),
        meta,
        sum(p.size for p in pieces),
        digest(pieces, meta),
    )


_PIECE = struct.Struct("<QIII")
PACKED = _PIECE.size
"""Bytes that `pack` makes of a piece."""


def pack(pieces: Iterable[Piece]) -> bytes:
    """Pieces as bytes, 20 each. A commit of a large state has hundreds, and there are a hundred commits a second while it changes."""
    fields = tuple(zip(*pieces, strict=True))
    return b"".join(map(_PIECE.pack, *fields)) if fields else b""


def unpack(data: bytes) -> tuple[Piece, ...]:
    """What `pack` was given."""
    return tuple([Piece(*item) for item in _PIECE.iter_unpack(data)])


def first_of(pieces: Sequence[Piece], have: Collection[Piece], most: int | None) -> int:
    """How many of the first of these pieces bring about so many bytes, and at least one that is not in `have`."""
    size = 0
    for count, piece in enumerate(pieces):
        if piece not in have:
            # What is empty never says that there is more.
            if most is not None and size and piece.size and size + piece.size > most:
                return count
            size += piece.size
    return len(pieces)


def digest(pieces: Iterable[Piece], meta: bytes) -> str:
    """Tells two manifests apart."""
    made = hashlib.blake2b(pack(pieces), digest_size=12)
    made.update(meta)
    return made.hexdigest()
