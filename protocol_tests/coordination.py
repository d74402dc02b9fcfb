"""A simulated ZooKeeper: conditional writes, transactions, ephemeral workers, sessions that lag, suspend and expire, notifications that
come late, twice, or for several changes at once. What a session reads may be old, and older in one part than in another, but no part
ever goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elastic.migration.actions import Commit, RemoveRecord
from elastic.migration.record import Marked, Marks, MoveRecord, decode_marks, encode_marks
from elastic.migration.view import MoveView, View
from elastic.model.codec import decode, encode
from elastic.model.ids import Epoch, Incarnation, WorkerId
from protocol_tests.clock import Clock


@dataclass
class Node:
    record: MoveRecord
    version: int
    marks: dict[Incarnation, Marked]
    view: MoveView

    def changed(self) -> None:
        self.view = MoveView(self.record, dict(self.marks))


@dataclass
class Session:
    """One client's. `old` and `new`: how old the oldest and the other parts are of what it has read last."""

    name: str
    on_view: Callable[[View], None]
    connected: bool = True
    dead: bool = False
    old: int = 0
    new: int = 0
    again: list[Callable[[], None]] = field(default_factory=list)


class Coordination:
    """See the module. `lag`: how often what is read is old; `delay`: of anything, at most."""

    def __init__(self, clock: Clock, places: dict[int, WorkerId]) -> None:
        self.clock = clock
        self.rnd = clock.rnd
        self.moves: dict[int, Node] = {}
        self.places = dict(places)
        self.places_version = 0
        self.living: dict[WorkerId, Incarnation] = {}
        self.latest = 0
        self.leader = 0
        self.lag = 0.3
        self.delay = 2.0
        self.writes = 0
        self.on_removed: Callable[[], None] = lambda: None
        self.sessions: list[Session] = []
        self._first = 0
        self._views: list[View] = []
        self._changed()

    # ------------------------------------------------------------------ reading

    @property
    def now(self) -> View:
        """The truth."""
        return self._views[-1]

    @property
    def zxid(self) -> int:
        return self._first + len(self._views) - 1

    def open(self, name: str, on_view: Callable[[View], None]) -> Session:
        session = Session(name, on_view, old=self._first, new=self._first)
        self.sessions.append(session)
        return session

    def sync(self, session: Session) -> View:
        """Everything as it is now."""
        session.old = session.new = self.zxid
        return self.now

    def close(self, session: Session) -> None:
        session.dead, session.connected = True, False
        if session in self.sessions:
            self.sessions.remove(session)

    def suspend(self, session: Session) -> None:
        session.connected = False

    def reconnect(self, session: Session) -> None:
        """Within the session: every watch fires once, and what was under way is looked at again."""
        if session.dead or session.connected:
            return
        session.connected = True
        self._notify(session)
        again, session.again = session.again, []
        for call in again:
            self.clock.after(self.delay, call)

    def _notify(self, session: Session) -> None:
        self.clock.after(self.delay, self._deliver, session)

    def _deliver(self, session: Session) -> None:
        if not session.connected:
            return
        last = self.zxid
        old = new = last
        if self.rnd.random() < self.lag and session.old < last:
            old = self.rnd.randint(max(session.old, self._first), last)
            new = self.rnd.randint(max(session.new, old), last)
            self._notify(session)
        session.old, session.new = old, new
        session.on_view(self._view(old, new))

    def _view(self, old: int, new: int) -> View:
        first, then = self._views[old - self._first], self._views[new - self._first]
        if old == new:
            return first
        marks = {m.record.epoch: m.marks for m in then.moves}
        # Record and marks are removed together: a reader that finds the marks gone has read an old record, and lets go of it.
        moves = tuple(
            MoveView(m.record, marks[m.record.epoch]) for m in first.moves if m.record.epoch in marks
        )
        return View(old + new, first.latest, moves, then.places, then.living)

    def _changed(self) -> None:
        self.writes += 1
        number = self._first + len(self._views)
        moves = tuple(n.view for _, n in sorted(self.moves.items()))
        last = self._views[-1] if self._views else None
        # What has not changed is the same object: readers compare by that.
        places = last.places if last is not None and last.places == self.places else dict(self.places)
        living = last.living if last is not None and last.living == self.living else dict(self.living)
        self._views.append(View(2 * number, self.latest, moves, places, living))
        if len(self._views) > 60:
            low = min((s.old for s in self.sessions), default=number)
            keep = max(0, min(low - self._first, 30))
            del self._views[:keep]
            self._first += keep
        for session in self.sessions:
            if session.connected:
                self._notify(session)
                if self.rnd.random() < 0.1:
                    self._notify(session)

    # ------------------------------------------------------------------ writing

    def register(self, worker: WorkerId, incarnation: Incarnation) -> None:
        self.living[worker] = incarnation
        self._changed()

    def unregister(self, worker: WorkerId, incarnation: Incarnation) -> None:
        if self.living.get(worker) == incarnation:
            del self.living[worker]
            self._changed()

    def write_marks(
        self,
        session: Session,
        epoch: int,
        me: Incarnation,
        marks: Marks,
        version: int,
        done: Callable[[Marked | None], None],
        accepted: Callable[[], None],
    ) -> None:
        """Conditional on the version; `done` is told what is there, as soon as the session is connected."""

        def read() -> None:
            if session.dead:
                return
            if not session.connected:
                session.again.append(read)
                return
            node = self.moves.get(epoch)
            done(node.marks.get(me) if node is not None else None)

        def apply() -> None:
            if session.dead:
                return
            node = self.moves.get(epoch)
            if node is not None and me in node.marks and node.marks[me].version == version:
                node.marks[me] = Marked(decode_marks(encode_marks(marks)), version + 1)
                accepted()
                node.changed()
                self._changed()
            self.clock.after(self.delay, read)

        if session.connected:
            self.clock.after(self.delay, apply)
        else:
            session.again.append(read)

    def create_move(self, leader: int, record: MoveRecord) -> bool:
        if leader != self.leader or record.epoch <= self.latest:
            return False
        marks = {i: Marked(Marks(i), 0) for i in record.participants}
        self.latest = record.epoch
        node = Node(record, 0, marks, MoveView(record, marks))
        node.changed()
        self.moves[record.epoch] = node
        self._changed()
        return True

    def commit(self, leader: int, commit: Commit) -> bool:
        """One transaction."""
        node = self.moves.get(commit.record.epoch)
        if leader != self.leader or node is None or node.version != commit.version:
            return False
        for change in commit.marks:
            found = node.marks.get(change.incarnation)
            if (found.version if found is not None else -1) != change.version:
                return False
        for change in commit.marks:
            node.marks[change.incarnation] = Marked(change.marks, change.version + 1)
        node.record = decode(encode(commit.record), MoveRecord)
        node.version += 1
        if commit.places:
            self.places.update(dict(commit.places))
            self.places_version += 1
        node.changed()
        self._changed()
        return True

    def remove(self, leader: int, action: RemoveRecord) -> bool:
        node = self.moves.get(action.epoch)
        if leader != self.leader or (node is not None and node.version != action.version):
            return False
        if node is not None:
            del self.moves[action.epoch]
            self._changed()
            self.on_removed()
        return True

    def place(self, leader: int, version: int, places: dict[int, WorkerId]) -> bool:
        """Nimbus gives tasks to others without a move: their worker is gone."""
        if leader != self.leader or version != self.places_version:
            return False
        self.places.update(places)
        self.places_version += 1
        self._changed()
        return True

    def next_epoch(self) -> Epoch:
        return Epoch(self.latest + 1)
