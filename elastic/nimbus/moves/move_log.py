"""The moves of all topologies, for people: those under way, and the last that have ended.

Fed by what coordination shows (`see`) and by what workers tell of each step (`step`). In memory of the leader; those that have ended are
lines of a file as well (`MoveHistory`), so that another leader on this machine knows of them. Of those that are under way then it begins
with what is in coordination: steps from before are not there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from elastic.model.events import Event
from elastic.model.ids import Epoch, TopologyName
from elastic.model.views import STEPS, MoveTotals, MoveView
from elastic.nimbus.moves import move_waits
from elastic.nimbus.moves.logged_move import Behind, LoggedMove
from elastic.nimbus.moves.move_history import MoveHistory
from elastic.nimbus.moves.move_totals import added
from elastic.nimbus.observing.facts import TopologyFacts

STEP = "move-step"
STANDS, GOES_ON = "move-stands", "move-goes-on"
_UNHEARD = "unheard"
"""A step with nothing in it: those who are behind a task here have nothing to measure."""


@dataclass
class _Past:
    """Moves of a topology that had ended before this leader looked, oldest first."""

    moves: tuple[MoveView, ...]
    changed: int


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
        self._moves: dict[TopologyName, dict[Epoch, LoggedMove]] = {}
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
                    move = known[epoch] = LoggedMove(found.record, found.record.began or now, {})
                    self._touch(move)
                if move.update(found, t):
                    self._touch(move)
            behind: Behind | None = None
            told = []
            for epoch, move in known.items():
                if epoch in t.moves or move.told:
                    continue
                if not move.ended:
                    move.ended, move.seen, move.said, move.standing = now, None, None, {}
                    self._touch(move)
                behind = behind or Behind(t)
                if now >= move.ended + self._linger or move.is_complete(behind):
                    move.told = True
                    self._touch(move)
                    view = move.view(t.name)
                    self._totals[t.name] = added(self._totals.get(t.name, MoveTotals()), view)
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

    def _touch(self, move: LoggedMove) -> None:
        self._revision += 1
        move.changed = self._revision
        self._lock.notify_all()

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

            def changed() -> list[tuple[TopologyName, LoggedMove]]:
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
            found = [m.view(n) for n, m in changed()] + self._ended_before(topology, seen)
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
                        told.append(move.view(name))
                        self.history.add(self._ids[name], told[-1])
            self._lock.notify_all()
            return told

    def views(self, topology: TopologyName | None = None) -> tuple[MoveView, ...]:
        """All moves that are known, of one topology or of all: those that began last first."""
        with self._lock:
            found = [
                move.view(name)
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
