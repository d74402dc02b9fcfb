"""The moves of all topologies, for people: those under way, and the last that have ended.

Fed by what coordination shows (`see`) and by what workers tell of each step (`step`). In memory of the leader; those that have ended are
lines of a file as well (`MoveHistory`), so that another leader on this machine knows of them. Of those that are under way then it begins
with what is in coordination: steps from before are not there.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field

from elastic.migration.plan import Wiring
from elastic.migration.record import (
    STANDING_STILL,
    MoveRecord,
    Phase,
    TaskMove,
    differences,
    stage_of,
)
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, TopologyName, worker_of
from elastic.model.views import STEPS, MoveTotals, MoveView, TaskMoveView
from elastic.nimbus import move_waits
from elastic.nimbus.facts import MoveFacts, TopologyFacts
from elastic.nimbus.move_history import MoveHistory

STEP = "move-step"
STANDS, GOES_ON = "move-stands", "move-goes-on"
_PHASES = {
    Phase.WAITING: "waiting",
    Phase.PREPARING: "preparing",
    Phase.PAUSED: "paused",
    Phase.SAVED: "saved",
    Phase.RESTORED: "restored",
    Phase.COMMITTED: "committed",
    Phase.ROLLED_BACK: "rolled back",
    Phase.LOST: "lost",
}
_UNHEARD = "unheard"
"""A step with nothing in it: those who are behind a task here have nothing to measure."""
_STOOD = (*STANDING_STILL, Phase.RESTORED)
_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Of pauses and gaps in the totals, seconds."""


@dataclass
class _Task:
    """What is known of a task's part.

    Attributes:
        stood: It was paused. That its batch counts as paused does not say so: it may have gone back before.
        heard: Workers with tasks behind it that have said for how long nothing came, or that there is nothing to say.
    """

    move: TaskMove
    phase: str
    stood: bool
    times: dict[str, float] = field(default_factory=dict)
    size: int = 0
    pause: float = 0.0
    gap: float = 0.0
    heard: set[str] = field(default_factory=set)


@dataclass
class _Past:
    """Moves of a topology that had ended before this leader looked, oldest first."""

    moves: tuple[MoveView, ...]
    changed: int


class _Behind:
    """Who is behind the tasks of a topology: for one look."""

    def __init__(self, t: TopologyFacts) -> None:
        self.wiring = Wiring.of(t.spec)
        self._places = t.assignment.place_of() if t.assignment is not None else {}
        self._found: dict[tuple[Epoch, str], set[str]] = {}  # tasks of a component send to the same ones

    def workers(self, number: int, move: _Move) -> set[str]:
        """The workers with tasks that it sent to before the move: with those that have moved along nothing could be measured."""
        key = (move.record.epoch, move.tasks[number].move.component)
        found = self._found.get(key)
        if found is None:
            targets = {t for t in self.wiring.targets_of(number) if not move.has_moved(t)}
            found = {str(w) for t, w in self._places.items() if t in targets}
            self._found[key] = found
        return found


@dataclass
class _Move:
    record: MoveRecord
    began: float
    tasks: dict[int, _Task]
    ended: float = 0.0
    told: bool = False
    seen: tuple[MoveFacts, TopologyFacts] | None = None  # as coordination showed it last
    said: tuple[str, ...] | None = None
    standing: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    """Worker, and what it says is waited for there -> by which tasks."""
    changed: int = 0

    def waits(self) -> tuple[str, ...]:
        """What it waits for, for people: put together when somebody asks."""
        if self.said is None:
            self.said = move_waits.waits(*self.seen, self.prepared()) if self.seen is not None else ()
        said = (
            f"{move_waits.named(tasks)} in worker {w} for {what}"
            for (w, what), tasks in self.standing.items()
        )
        return (*self.said, *said)

    def prepared(self) -> Set[int]:
        """Tasks whose new side has told that it is prepared. Marks say so later: those of several tasks are written together."""
        return {n for n, task in self.tasks.items() if "prepared" in task.times}

    def has_moved(self, task: int) -> bool:
        """Whether it has moved the task."""
        return task in self.tasks and self.tasks[task].phase == _PHASES[Phase.COMMITTED]

    def goes_on(self, over: Collection[int], workers: Collection[str] | None = None) -> None:
        """What was said of these tasks is over; with `workers`, what those have said."""
        left = {
            (worker, what): tuple(t for t in tasks if t not in over)
            if workers is None or worker in workers
            else tasks
            for (worker, what), tasks in self.standing.items()
        }
        self.standing = {said: tasks for said, tasks in left.items() if tasks}


class MoveLog:
    """Thread-safe.

    Args:
        kept: How many ended moves of each topology are kept.
        linger: Seconds that the end of a move waits for the last words of workers before it is told.
        history: What outlives this leader, and what others have left; None: nothing.
    """

    def __init__(self, kept: int, linger: float, history: MoveHistory | None = None) -> None:
        self._kept, self._linger = kept, linger
        self.history = history if history is not None else MoveHistory(None, kept)
        self._past: dict[TopologyName, _Past] = {}
        self._lock = threading.Condition()
        self._moves: dict[TopologyName, dict[Epoch, _Move]] = {}
        self._ids: dict[TopologyName, str] = {}
        self._totals: dict[TopologyName, MoveTotals] = {}
        # Whoever follows goes on with the next leader's log: its numbers are larger.
        self._revision = time.time_ns() // 1000
        self._closed = False

    def see(
        self, t: TopologyFacts, now: float, tell: Callable[[MoveView], None] = lambda view: None
    ) -> list[MoveView]:
        """Take in what coordination shows of a topology.

        Args:
            tell: Called with each move whose end is to be told, before anybody is shown that it has ended: who has seen the end of a
                move and asks for events finds it among them. It must not wait for anything.

        Returns:
            Moves whose end has been told: each once.
        """
        with self._lock:
            if self._ids.get(t.name) != t.state.id:
                past = self.history.of(t.name, t.state.id)
                if not (t.moves or past):
                    return []
                self._moves[t.name], self._ids[t.name] = {}, t.state.id
                if past:
                    self._revision += 1
                    self._lock.notify_all()
                self._past[t.name] = _Past(past, self._revision)
                self._totals.pop(t.name, None)
            known = self._moves[t.name]
            for epoch, found in t.moves.items():
                move = known.get(epoch)
                if move is None:
                    move = known[epoch] = _Move(found.record, found.record.began or now, {})
                    self._touch(move)
                if self._update(move, found, t):
                    self._touch(move)
            behind: _Behind | None = None
            told = []
            for epoch, move in known.items():
                if epoch in t.moves or move.told:
                    continue
                if not move.ended:
                    move.ended, move.seen, move.said, move.standing = now, None, None, {}
                    self._touch(move)
                behind = behind or _Behind(t)
                if now >= move.ended + self._linger or self._complete(move, behind):
                    move.told = True
                    self._touch(move)
                    view = _view(t.name, move)
                    self._totals[t.name] = _added(self._totals.get(t.name, MoveTotals()), view)
                    self.history.add(t.state.id, view)
                    tell(view)
                    told.append(view)
            over = [e for e, m in known.items() if m.told]
            for epoch in over[: max(0, len(over) - self._kept)]:
                del known[epoch]
            before = self._past[t.name]
            before.moves = before.moves[max(0, len(before.moves) + len(over) - self._kept) :]
            return told

    def next_deadline(self) -> float | None:
        """When `see` may tell an end although nothing has changed: seconds since 1970, or None."""
        with self._lock:
            due = [
                m.ended + self._linger
                for moves in self._moves.values()
                for m in moves.values()
                if m.ended and not m.told
            ]
        return min(due, default=None)

    def _complete(self, move: _Move, behind: _Behind) -> bool:
        """Whether everything has been said that can be: both sides of what has moved, those behind it, and emitters of all that was
        paused, are through."""
        return all(
            (
                x.phase != "committed"
                or ({"saved", "begun"} <= x.times.keys() and behind.workers(n, move) <= x.heard)
            )
            and (
                "resumed" in x.times
                or not behind.wiring.emitters_of(n)
                or not (x.phase == "committed" or x.stood)
            )
            for n, x in move.tasks.items()
        )

    def _touch(self, move: _Move) -> None:
        self._revision += 1
        move.changed = self._revision
        self._lock.notify_all()

    def _update(self, move: _Move, found: MoveFacts, t: TopologyFacts) -> bool:
        """Take in how far a move is; returns whether that is news."""
        news = move.record != found.record
        move.record = found.record
        seen = move.seen[0] if move.seen is not None else None
        changed = set(differences(seen.read, found.read)) if seen is not None else None
        for task in found.record.tasks:
            if changed is not None and task.task not in changed:
                continue
            phase, _ = stage_of(task, found.record, found.marks, found.turn)
            marked = found.marks.get(task.source)
            saved = marked.marks.saved.get(task.task) if marked is not None else None
            known, said = move.tasks.get(task.task), _said(task, phase, t)
            if known is None:
                # Of what has ended before this leader looked nobody knows.
                stood = bool(task.outcome) and task.batch < found.record.paused
                known = move.tasks[task.task] = _Task(task, said, stood)
            known.stood |= phase in _STOOD
            size = saved.size if saved is not None else known.size
            if known.phase != said:
                move.goes_on({task.task})
            news |= (known.phase, known.size) != (said, size)
            known.move, known.phase, known.size = task, said, size
        before, move.seen = move.seen, (found, t)
        if before is not None:
            # Nobody would say that it is over.
            ended = {w for w, i in before[1].workers.items() if w not in t.workers or t.workers[w] != i}
            move.goes_on(move.tasks.keys(), ended)
        if news or before is None or before[0].marks != found.marks or before[1].workers != t.workers:
            move.said = None
            return True
        return False

    def stands(self, event: Event) -> None:
        """Take in what a worker says of tasks that do not get on, or do again, if it is that. What Nimbus says of them is known here."""
        if event.kind not in (STANDS, GOES_ON) or not event.worker:
            return
        tasks = tuple(int(t) for t in str(event.details.get("tasks", "")).split(",") if t.isdigit())
        with self._lock:
            moves = self._moves.get(TopologyName(event.topology), {})
            move = moves.get(Epoch(int(event.details.get("epoch", 0))))
            known = {t for t in tasks if move is not None and t in move.tasks}
            if move is None or move.ended or not known:
                return
            move.goes_on(known, {event.worker})
            what = (event.worker, str(event.details.get("for", "")))
            said = move.standing.get(what, ())  # of tasks that were told of before these
            if event.kind == STANDS and (said or len(move.standing) < move_waits.MOST):
                move.standing[what] = tuple(sorted({*said, *known}))
            self._touch(move)

    def step(self, event: Event) -> bool:
        """Take in what a worker tells of a step; returns whether it is one."""
        if event.kind != STEP:
            return False
        step, epoch = event.details.get("step"), event.details.get("epoch")
        with self._lock:
            move = self._moves.get(TopologyName(event.topology), {}).get(Epoch(int(epoch or 0)))
            task = move.tasks.get(event.task) if move is not None else None
            if move is None or task is None or step not in (*STEPS, _UNHEARD) or move.told:
                return True  # what was told, counted and added up is not made another
            if step in ("received", _UNHEARD):
                task.heard.add(event.worker)
            if step == _UNHEARD:
                return True
            at = float(event.details.get("at", event.time))
            # Emitters resume one after the other, and so do those behind it: the pause is over with the last.
            task.times[str(step)] = max(at, task.times.get(str(step), 0.0))
            if step == "prepared":
                move.said = None
            if step == "resumed":
                task.pause = max(task.pause, float(event.details.get("pause_ms", 0.0)) / 1000)
            if step == "received":
                task.gap = max(task.gap, float(event.details.get("gap_ms", 0.0)) / 1000)
            if step == "saved":
                task.size = max(task.size, int(event.details.get("bytes", 0)))
            self._touch(move)
        return True

    def changes(
        self, seen: int, timeout: float, topology: TopologyName | None = None
    ) -> tuple[int, tuple[MoveView, ...]]:
        """Moves that have changed, of one topology or of all: those that began first come first. Waits until there are some, but not
        longer than `timeout` seconds.

        Args:
            seen: The number that the call before has returned; 0 for all that are known.

        Returns:
            A number for the next call, and the moves.
        """
        with self._lock:

            def changed() -> list[tuple[TopologyName, _Move]]:
                return [
                    (name, move)
                    for name, moves in self._moves.items()
                    if topology in (None, name)
                    for move in moves.values()
                    if move.changed > seen
                ]

            self._lock.wait_for(
                lambda: self._closed or changed() or self._ended_before(topology, seen), timeout
            )
            found = [_view(n, m) for n, m in changed()] + self._ended_before(topology, seen)
            views = sorted(found, key=lambda v: (v.began, v.topology, v.epoch))
            return max(seen, self._revision), tuple(views)

    def close(self) -> list[MoveView]:
        """Nobody leads any more: who waits for changes goes on. Nobody sees to it any more either that the last words of workers come.

        Returns:
            Moves that have ended, and whose end was not told: each once.
        """
        with self._lock:
            self._closed = True
            told = []
            for name, moves in self._moves.items():
                for move in moves.values():
                    if move.ended and not move.told:
                        move.told = True
                        told.append(_view(name, move))
                        self.history.add(self._ids[name], told[-1])
            self._lock.notify_all()
            return told

    def views(self, topology: TopologyName | None = None) -> tuple[MoveView, ...]:
        """All moves that are known, of one topology or of all: those that began last first."""
        with self._lock:
            found = [
                _view(name, move)
                for name, moves in self._moves.items()
                if topology in (None, name)
                for move in moves.values()
            ] + self._ended_before(topology)
        return tuple(sorted(found, key=lambda v: (-v.began, v.topology, -v.epoch)))

    def _ended_before(self, topology: TopologyName | None, seen: int = -1) -> list[MoveView]:
        some = (p for name, p in self._past.items() if topology in (None, name) and p.changed > seen)
        return [view for past in some for view in past.moves]

    def waits(self, topology: TopologyName, tasks: Collection[int] | None = None) -> list[str]:
        """Sentences on what the moves of a topology wait for: those of these tasks, or all."""
        with self._lock:
            moves = self._moves.get(topology, {})
            return [
                f"move {e}: {s}"
                for e, m in sorted(moves.items())
                if not m.ended and (tasks is None or not m.tasks.keys().isdisjoint(tasks))
                for s in m.waits()
            ]

    def totals(self, topology: TopologyName) -> MoveTotals:
        """What the moves of a topology that have ended came to."""
        with self._lock:
            return self._totals.get(topology, MoveTotals())

    def forget(self, topology: TopologyName) -> None:
        """The topology's record is gone."""
        with self._lock:
            self._moves.pop(topology, None)
            self._past.pop(topology, None)
            if (id := self._ids.pop(topology, None)) is not None:
                self.history.forget(topology, id)  # what is shown of the topology may be of a moment ago
            self._totals.pop(topology, None)


def _said(task: TaskMove, phase: Phase, t: TopologyFacts) -> str:
    """What is said of where a task stands: nobody goes on with what goes back because its process has ended."""
    if task.starts_anew:
        return "lost" if t.spec.component_of(task.task).stateful else "started anew"
    return _PHASES[phase]


def _view(name: TopologyName, move: _Move) -> MoveView:
    record = move.record
    if move.told:
        state = "ended"
    elif record.settled or move.ended:
        state = "closing"
    else:
        state = "aborting" if record.abort else "running"
    return MoveView(
        name,
        record.epoch,
        record.why,
        state,
        move.began,
        move.ended if move.told else 0.0,
        tuple(_task_view(n, x) for n, x in sorted(move.tasks.items())),
        move.waits(),
    )


def _task_view(number: int, task: _Task) -> TaskMoveView:
    move, reason = task.move, task.move.reason
    if move.starts_anew:
        without = ", without its state" if task.phase == "lost" else ""
        reason = f"its worker's process has ended; it starts anew{without}"
    return TaskMoveView(
        number,
        ComponentId(move.component),
        worker_of(move.source),
        worker_of(move.target),
        task.phase,
        move.attempt,
        reason,
        task.size,
        dict(task.times),
        task.pause,
        task.gap,
    )


def _added(totals: MoveTotals, view: MoveView) -> MoveTotals:
    """The totals with one move more, which has ended."""
    done = [t for t in view.tasks if t.moved]
    gaps = [t.gap for t in done if t.gap]
    return MoveTotals(
        totals.moves + 1,
        totals.committed + len(done),
        totals.rolled_back + sum(1 for t in view.tasks if t.went_back or t.came_back),
        totals.lost + sum(1 for t in view.tasks if t.phase == "lost"),
        totals.size + sum(t.size for t in done),
        _counted(totals.pauses, [t.pause for t in done]),
        totals.pause_sum + sum(t.pause for t in done),
        max([totals.pause_max, *(t.pause for t in done)]),
        _counted(totals.gaps, gaps),
        totals.gap_sum + sum(gaps),
        max([totals.gap_max, *gaps]),
    )


def _counted(before: Mapping[str, int], seconds: Sequence[float]) -> dict[str, int]:
    """A histogram with those more."""
    bounds = (*((f"{b:g}", b) for b in _BOUNDS), ("+Inf", math.inf))
    return {name: before.get(name, 0) + sum(s <= bound for s in seconds) for name, bound in bounds}
