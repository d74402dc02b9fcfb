"""Says what moves have waited for too long of which no worker can: somebody to restore what is saved, also when those who try cannot, and
those who have not closed.

What a worker itself waits for it says itself, with the same kind of event (`elastic.worker.watchdog`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elastic.migration.record import AT_ONCE, Phase, stage_of
from elastic.migration.waiting import how_to_give_up, may_be_given_up
from elastic.model.events import Event, Severity
from elastic.model.words import counted
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts

AFTER = 5.0
"""Seconds that something is waited for before it is said."""
AGAIN = 30.0
"""Seconds after which it is said again."""


class _Wait(NamedTuple):
    """One thing that a move waits for: of which topology's life, which move, and what, for people."""

    id: str
    epoch: int
    what: str


class MoveStands:
    """See the module. Not thread-safe. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._since: dict[_Wait, float] = {}
        self._due: dict[_Wait, float] = {}

    def news(self, facts: Facts) -> list[Event]:
        """What is to be said now."""
        waits = {
            _Wait(t.state.id, epoch, what): (t, tasks)
            for t in facts.topologies.values()
            if t.running
            for epoch, move in t.moves.items()
            for what, tasks in _waits(move, t)
        }
        self._since = {w: self._since.get(w, facts.now) for w in waits}
        self._due = {w: self._due.get(w, facts.now + AFTER) for w in waits}
        said = []
        for wait, (t, tasks) in waits.items():
            if facts.now >= self._due[wait]:
                self._due[wait] = facts.now + AGAIN
                said.append(_event(t, wait, tasks, facts.now, facts.now - self._since[wait]))
        return said

    def next_deadline(self) -> float | None:
        """When something is to be said although nothing may change; None: nothing is waited for."""
        return min(self._due.values(), default=None)


def _waits(move: MoveFacts, t: TopologyFacts) -> Iterator[tuple[str, Sequence[int]]]:
    lives = {i.incarnation for i in t.workers.values()}
    record = move.record
    if record.settled:
        if late := move.unclosed(lives):
            yield f"{', '.join(late)} to close it", [task.task for task in record.tasks]
        return
    saved = [task for task in record.tasks if stage_of(task, record, move.marks, move.turn)[0] is Phase.SAVED]
    in_vain = [task for task in saved if may_be_given_up(task, record, lives)]
    if in_vain:  # each attempt says by itself why it has failed
        yield (
            f"a worker that can restore what is saved, after {AT_ONCE - 1} attempts in vain or more; {how_to_give_up(record)}",
            [task.task for task in in_vain],
        )
    if nobody := [task.task for task in saved if task.target not in lives and task not in in_vain]:
        yield "a living worker, to restore what is saved", nobody


def _event(t: TopologyFacts, wait: _Wait, tasks: Sequence[int], now: float, seconds: float) -> Event:
    return Event(
        now,
        "move-stands",
        f"Move {wait.epoch} of topology {t.name}, of {counted(len(tasks), 'task')}, has waited for {seconds:.0f} s: for {wait.what}.",
        Severity.WARNING,
        topology=t.name,
        task=tasks[0],
        details={
            "epoch": wait.epoch,
            "tasks": ",".join(map(str, tasks)),
            "for": wait.what,
            "seconds": round(seconds, 1),
        },
    )
