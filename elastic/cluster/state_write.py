"""One task's state on its way to the stores of some nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from elastic.cluster.store_ends import Begun, Finish, Load, Outcomes, Small, Way, ask_all, groups, told
from elastic.errors import ElasticError, Unavailable
from elastic.model.ids import NodeId
from statestore.base import MAX_PIECE, Piece, Ticket, cost
from statestore.checksum import crc32
from statestore.errors import Full, Invalid, StateStoreError
from statestore.parcel import Parcel, read_at

_INLINE = 192 << 10
"""Bytes that come along with a commit; more goes into a file that the stores of this machine are given."""


class StateWrite:
    """Used by one thread at a time. It ends with `abort` or `close`, which may be left out after the last `commit`: both let go of
    files and streams.

    Pieces for stores of this machine are written to a file once, whatever the number of those stores; for others
    they are under way at once.

    Args:
        ticket: What is written.
        ways: To the stores where it has begun.
        begun: What these said.
        size: Bytes that are expected.
        instead: Whom to ask in the place of a store that has ended, before the same cluster; None: nobody, or it has not ended.
    """

    def __init__(
        self,
        ticket: Ticket,
        ways: Mapping[NodeId, Way],
        begun: Mapping[NodeId, Begun],
        size: int,
        instead: Callable[[NodeId, Way], tuple[NodeId, Way] | None],
    ) -> None:
        self.ticket = ticket
        self._ways = dict(ways)
        self._instead = instead
        self._number = max(b.number for b in begun.values())
        self._sequences = {node: b.sequence for node, b in begun.items()}
        self._directory = next((b.directory for b in begun.values() if b.directory), "")
        self._near = any(not way.streams for way in ways.values())
        self._size = self._room = size
        self._stored = self._put = 0
        self._pieces: dict[int, Piece] = {}
        self._load = Load()
        self._kept = 0

    def put(self, data: bytes | bytearray | memoryview) -> int:
        """Put one piece; it may be under way on return, and an error of an earlier one may be raised.

        Args:
            data: At most `statestore.base.MAX_PIECE` bytes (4 MiB).

        Returns:
            Its number, for `commit`.

        Raises:
            NoRoom: It is more than was asked for, and there is no room for that.
            Superseded: A newer epoch owns the key.
            Unavailable: A store cannot be reached.
        """
        if not isinstance(data, bytes):
            data = bytes(data)
        if len(data) > MAX_PIECE:
            raise Invalid(f"{self.ticket.key}: a piece of {len(data)} bytes; at most {MAX_PIECE}")
        self._make_room(cost(len(data)))
        piece = Piece(self.ticket.epoch, self._number, len(data), crc32(data))
        self._number += 1
        for node, way in self._ways.items():
            if way.streams:
                with told(node, f"store a piece of {self.ticket.key}"):
                    way.put(self.ticket, piece, data)
        if self._near:
            self._keep(piece, data)
        self._pieces[piece.number] = piece
        return piece.number

    def named(self, numbers: Sequence[int]) -> list[Piece]:
        """What tells each of these pieces from all others of the key, as whoever fetches them sees it."""
        return [self._pieces[n] for n in numbers]

    def commit(self, numbers: Sequence[int], meta: bytes = b"") -> int:
        """Make these pieces the state, in this order; returns when every node has confirmed all of it. More may be put and
        committed after it: a next version, whose pieces may be those of this one.

        Args:
            numbers: What `put` gave, since the beginning or out of the version committed before. Others are dropped.
            meta: Kept with them, at most `statestore.base.MAX_META` bytes (4 MiB).

        Returns:
            Bytes of the state.

        Raises:
            Superseded: A newer epoch owns the key.
            NoRoom: A store has no room.
            Unavailable: A store cannot be reached; whether it has committed is not known. It may be tried again.
        """
        pieces, load = self.named(numbers), self._of(set(numbers))
        if load.parcel is not None:
            with told(next(iter(self._ways)), f"save {self.ticket.key}"):
                load.parcel.flush()
        self._ask(
            lambda: [
                (n, partial(w.start_commit, self.ticket, self._sequences[n] + 1, pieces, meta, load))
                for n, w in self._ways.items()
            ],
            f"save {self.ticket.key}",
        )
        return self._committed(numbers, meta)

    def together(self, numbers: Sequence[int], meta: bytes) -> list[tuple[NodeId, Way, Small]]:
        """What `commit` would say to each store, if that may go with others in one message; else nothing: it goes by itself."""
        load = self._of(set(numbers))
        if load.placed or any(way.streams for way in self._ways.values()):
            return []
        pieces = self.named(numbers)
        return [
            (n, w, Small(self.ticket, self._sequences[n] + 1, pieces, meta, load.inline))
            for n, w in self._ways.items()
        ]

    def _of(self, wanted: Collection[int]) -> Load:
        """What has been put and is among these."""
        return Load(
            [(p, data) for p, data in self._load.inline if p.number in wanted],
            self._load.parcel,
            [(p, offset) for p, offset in self._load.placed if p.number in wanted],
        )

    def _committed(self, numbers: Sequence[int], meta: bytes) -> int:
        """Every node has confirmed it. Returns the bytes of the state."""
        for node in self._sequences:
            self._sequences[node] += 1
        size = sum(p.size for p in self.named(numbers)) + len(meta)
        self._pieces = {n: self._pieces[n] for n in numbers}
        self._stored, self._put, self._room = sum(cost(p.size) for p in self._pieces.values()), 0, 0
        self._forget()
        return size

    def abort(self) -> None:
        """Give up, as far as the stores can be reached; the epoch cannot be begun again there."""
        self._forget()
        for way in self._ways.values():
            with contextlib.suppress(StateStoreError):
                way.abort(self.ticket)

    def close(self) -> None:
        """Let go of what was put and not committed, without telling anybody. Safe to call twice."""
        self._forget()
        for way in self._ways.values():
            way.forget(self.ticket)

    def _ask(self, starts: Callable[[], Sequence[tuple[NodeId, Callable[[], Finish]]]], doing: str) -> None:
        """Make a call to every store; to another one where one has ended meanwhile."""
        while True:
            try:
                ask_all(starts(), doing)
                return
            except Unavailable:
                if not self._go_elsewhere():
                    raise

    def _go_elsewhere(self) -> bool:
        """Go on by another store where one has ended meanwhile. What was committed lies with the cluster, and the rest comes along with
        the commit; pieces that were sent as they were put went with the store.

        Returns:
            Whether anything is different now.

        Raises:
            Superseded, Unavailable: The other one does not take it over.
        """
        gone = {n: found for n, w in self._ways.items() if not w.streams and (found := self._instead(n, w))}
        for node, (other, way) in gone.items():
            begun: list[Begun] = []
            ask_all(
                [(other, partial(way.start_begin, self.ticket, begun.append))], f"begin {self.ticket.key}"
            )
            if way.streams:  # on another machine: nothing comes along with a commit there
                with told(other, f"save {self.ticket.key}"):
                    self._send_all(way)
            # The same number again: a commit whose answer was lost is done once.
            sequence = self._sequences.pop(node)
            del self._ways[node]
            self._ways[other], self._sequences[other] = way, sequence
        return bool(gone)

    def _send_all(self, way: Way) -> None:
        """What was kept since the last commit."""
        load = self._load
        if load.parcel is not None:
            load.parcel.flush()
            for piece, offset in load.placed:
                way.put(self.ticket, piece, read_at(load.parcel.file, offset, piece.size))
        for piece, data in load.inline:
            way.put(self.ticket, piece, data)

    def _make_room(self, size: int) -> None:
        """What is put beyond what there is room for is asked for before. A commit has taken the room of what it has stored, and given back
        the rest: as much as is still expected is asked for anew, or a good part more.

        Not the little that a commit brings along: that is refused then if there is no room, and a task that stands still does not wait for
        one answer more.
        """
        self._put += size
        if self._put <= max(self._room + self._room // 64, _INLINE):
            return
        try:
            try:
                self._reserve(max(self._put + max(self._size // 16, 1 << 20), self._size - self._stored))
            except Full:
                self._reserve(self._put)
        except (ElasticError, StateStoreError):
            self._put -= size
            raise

    def _reserve(self, room: int) -> None:
        wanted, epoch = {self.ticket.key: room}, self.ticket.epoch
        self._ask(
            lambda: [
                (node, partial(way.start_reserve, epoch, wanted))
                for node, way in self._ways.items()
                if not way.streams  # the others have taken what was put, and take the rest as it comes
            ],
            f"keep room for {self.ticket.key}",
        )
        self._room = room

    def _keep(self, piece: Piece, data: bytes) -> None:
        """For the stores of this machine: in memory while it is little, then in a file."""
        load = self._load
        if load.parcel is None:
            load.inline.append((piece, data))
            self._kept += len(data)
            if self._kept <= _INLINE:
                return
            with told(next(iter(self._ways)), f"save {self.ticket.key}"):
                load.parcel = Parcel(self._directory)
            inline, load.inline = load.inline, []
        else:
            inline = [(piece, data)]
        with told(next(iter(self._ways)), f"save {self.ticket.key}"):
            load.placed += [(p, load.parcel.append(d)) for p, d in inline]

    def _forget(self) -> None:
        load, self._load, self._kept = self._load, Load(), 0
        if load.parcel is not None:
            load.parcel.close()


Commit = tuple[StateWrite, Sequence[int], bytes]
"""A write, and the arguments of its `commit`."""


def commit_many(commits: Sequence[Commit]) -> list[int | None]:
    """Commit several with one message to each store of this machine, as far as what was put goes along with it. Who waits for one of
    them does not wait for as many turns on the interpreter and answers as there are of all.

    Args:
        commits: Each of another write, with the arguments of its `commit`.

    Returns:
        For each in order: the bytes of the state. None: it is to be committed by itself, as it goes to another machine, or in a file, or
        as a store has refused it, or has not answered: `commit` says why, and does nothing where it was done.
    """
    parts = [write.together(numbers, meta) for write, numbers, meta in commits]
    ready = [at for at, part in enumerate(parts) if part]
    done: set[int] = set()
    for begin, end in groups([parts[at][0][2].size for at in ready]):
        some = ready[begin:end]
        if len(some) > 1:
            done |= _committed_together({at: parts[at] for at in some})
    return [
        write._committed(numbers, meta) if at in done else None
        for at, (write, numbers, meta) in enumerate(commits)
    ]


def _committed_together(parts: Mapping[int, Sequence[tuple[NodeId, Way, Small]]]) -> set[int]:
    """Which of these commits all of their stores have confirmed. What became of the others is not known: to do one again is harmless."""
    calls: dict[Way, tuple[NodeId, list[int], list[Small]]] = {}
    for at, part in parts.items():
        for node, way, commit in part:
            _, places, commits = calls.setdefault(way, (node, [], []))
            places.append(at)
            commits.append(commit)
    confirmed = dict.fromkeys(parts, 0)

    def took(places: Sequence[int], outcomes: Outcomes) -> None:
        for at, outcome in zip(places, outcomes, strict=True):
            confirmed[at] += outcome is None

    with contextlib.suppress(ElasticError):  # each is told why when it is asked for by itself
        ask_all(
            [
                (node, partial(way.start_commits, commits, partial(took, places)))
                for way, (node, places, commits) in calls.items()
            ],
            f"save {len(parts)} states",
        )
    return {at for at, count in confirmed.items() if count == len(parts[at])}
