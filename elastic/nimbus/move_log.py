"""The moves of all topologies, for people: those under way, and the last that have ended.

Fed by what coordination shows (`see`) and by what workers tell of each step (`step`). In memory of the leader: another one begins with
those that are under way then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elastic.migration.decide import waiting_for
from elastic.migration.events import Host
from elastic.migration.plan import Wiring
from elastic.migration.record import MoveRecord, Phase, TaskMove, stage_of
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, TopologyName, worker_of
from elastic.model.views import MoveView, TaskMoveView
from elastic.nimbus.facts import MoveFacts, TopologyFacts, node_of

STEP = "move-step"
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
_STEPS = ("prepared", "paused", "stopped", "saved", "restored", "begun", "resumed")
_SENTENCES = 20


@dataclass
class _Task:
    """What is known of a task's part."""

    move: TaskMove
    phase: str
    times: dict[str, float] = field(default_factory=dict)
    size: int = 0
    pause: float = 0.0


@dataclass
class _Move:
    record: MoveRecord
    began: float
    tasks: dict[int, _Task]
    ended: float = 0.0
    told: bool = False
    waits: tuple[str, ...] = ()


class MoveLog:
    """Thread-safe.

    Args:
        kept: How many ended moves of each topology are kept.
        linger: Seconds that the end of a move waits for the last words of workers before it is told.
    """

    def __init__(self, kept: int, linger: float) -> None:
        self._kept, self._linger = kept, linger
        self._lock = threading.Lock()
        self._moves: dict[TopologyName, dict[Epoch, _Move]] = {}
        self._ids: dict[TopologyName, str] = {}

    def see(self, t: TopologyFacts, now: float) -> list[MoveView]:
        """Take in what coordination shows of a topology.

        Returns:
            Moves whose end is to be told: each once.
        """
        with self._lock:
            if self._ids.get(t.name) != t.state.id:
                if not t.moves:
                    return []
                self._moves[t.name], self._ids[t.name] = {}, t.state.id
            known = self._moves[t.name]
            for epoch, found in t.moves.items():
                move = known.get(epoch)
                if move is None:
                    move = known[epoch] = _Move(found.record, found.record.began or now, {})
                self._update(move, found, t)
            wiring: Wiring | None = None
            told = []
            for epoch, move in known.items():
                if epoch in t.moves or move.told:
                    continue
                move.ended, move.waits = move.ended or now, ()
                wiring = wiring or Wiring.of(t.spec)
                if now >= move.ended + self._linger or self._complete(move, wiring):
                    move.told = True
                    told.append(_view(t.name, move))
            over = [e for e, m in known.items() if m.told]
            for epoch in over[: max(0, len(over) - self._kept)]:
                del known[epoch]
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

    def _complete(self, move: _Move, wiring: Wiring) -> bool:
        """Whether everything has been said that can be: emitters of what has moved have resumed."""
        return all(
            "resumed" in x.times or x.phase != "committed" or not wiring.emitters_of(n)
            for n, x in move.tasks.items()
        )

    def _update(self, move: _Move, found: MoveFacts, t: TopologyFacts) -> None:
        move.record = found.record
        for task in found.record.tasks:
            phase, _ = stage_of(task, found.record, found.marks)
            marked = found.marks.get(task.source)
            saved = marked.marks.saved.get(task.task) if marked is not None else None
            known = move.tasks.get(task.task)
            if known is None:
                known = move.tasks[task.task] = _Task(task, _PHASES[phase])
            known.move, known.phase = task, _PHASES[phase]
            if saved is not None:
                known.size = saved.size
        hosts = tuple(Host(w, i.incarnation, node_of(w)) for w, i in sorted(t.workers.items()))
        move.waits = _sentences(waiting_for(found.record, found.marks, hosts))

    def step(self, event: Event) -> bool:
        """Take in what a worker tells of a step; returns whether it is one."""
        if event.kind != STEP:
            return False
        step, epoch = event.details.get("step"), event.details.get("epoch")
        with self._lock:
            move = self._moves.get(TopologyName(event.topology), {}).get(Epoch(int(epoch or 0)))
            task = move.tasks.get(event.task) if move is not None else None
            if task is None or step not in _STEPS:
                return True
            at = float(event.details.get("at", event.time))
            # Emitters resume one after the other: the pause is over with the last.
            task.times[str(step)] = max(at, task.times.get(str(step), 0.0))
            if step == "resumed":
                task.pause = max(task.pause, float(event.details.get("pause_ms", 0.0)) / 1000)
            if step == "saved":
                task.size = max(task.size, int(event.details.get("bytes", 0)))
        return True

    def views(self, topology: TopologyName | None = None) -> tuple[MoveView, ...]:
        """All moves that are known, of one topology or of all: those that began last first."""
        with self._lock:
            found = [
                _view(name, move)
                for name, moves in self._moves.items()
                if topology in (None, name)
                for move in moves.values()
            ]
        return tuple(sorted(found, key=lambda v: (-v.began, v.topology, -v.epoch)))

    def waits(self, topology: TopologyName) -> list[str]:
        """Sentences on what the moves of a topology wait for."""
        with self._lock:
            moves = self._moves.get(topology, {})
            return [f"move {e}: {s}" for e, m in sorted(moves.items()) if not m.ended for s in m.waits]

    def forget(self, topology: TopologyName) -> None:
        """The topology's record is gone."""
        with self._lock:
            self._moves.pop(topology, None)
            self._ids.pop(topology, None)


def _sentences(waits: Mapping[int, str]) -> tuple[str, ...]:
    """Tasks that wait for the same thing are said together."""
    by: dict[str, list[int]] = {}
    for task, what in waits.items():
        by.setdefault(what, []).append(task)
    result = [f"{_named(tasks)} for {what}" for what, tasks in by.items()]
    more = len(result) - _SENTENCES
    return tuple(result[:_SENTENCES]) + ((f"{more} more",) if more > 0 else ())


def _named(tasks: Iterable[int]) -> str:
    numbers = list(tasks)
    if len(numbers) == 1:
        return f"task {numbers[0]} waits"
    return f"{len(numbers)} tasks ({numbers[0]} to {numbers[-1]}) wait"


def _view(name: TopologyName, move: _Move) -> MoveView:
    record = move.record
    if move.ended:
        state = "ended"
    elif record.settled:
        state = "closing"
    else:
        state = "aborting" if record.abort else "running"
    return MoveView(
        name,
        record.epoch,
        record.why,
        state,
        move.began,
        move.ended,
        tuple(_task_view(n, x) for n, x in sorted(move.tasks.items())),
        move.waits,
    )


def _task_view(number: int, task: _Task) -> TaskMoveView:
    move = task.move
    return TaskMoveView(
        number,
        ComponentId(move.component),
        worker_of(move.source),
        worker_of(move.target),
        task.phase,
        move.attempt,
        move.reason,
        task.size,
        dict(task.times),
        task.pause,
    )
