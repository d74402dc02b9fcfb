"""Which life of which worker had a task's state last: written down by each, read by whoever starts the task without its state.

A worker lists a stateful task in its `Progress` before the task begins there: nobody starts it empty later on without noticing. When such a
record was written is its place among all writes, which is known afterwards; the next one says so, once the task has begun. So of all
that list a task, the one with the greatest place had it last, and one without has only been about to. Unless the task has moved there: then
it has begun, and the record of the move stays until the place is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from elastic.migration.record import MoveRecord, Outcome
from elastic.model.ids import Epoch, Incarnation
from elastic.model.records import Held, Progress

_NEWEST = 1 << 64
"""A place among all writes that is greater than any."""


class States:
    """The stateful tasks of one life, and what it has taken over from the lives before. Not thread-safe."""

    def __init__(self, me: Incarnation) -> None:
        self._me = me
        self._listed: dict[int, int] = {}  # when this life listed a task first
        self._now: Collection[int] = ()
        self._earlier: dict[int, tuple[Incarnation, int]] = {}

    def inherit(self, held: Iterable[Held]) -> None:
        """What an earlier life of this worker has written to the same place."""
        self._earlier = {t: (h.incarnation, h.since) for h in held for t in h.tasks}

    def held(self, listed: Collection[int], begun: Collection[int]) -> tuple[Held, ...]:
        """What is to be written now.

        Args:
            listed: The tasks of this life: those that run, or are about to.
            begun: Those that run, and maybe others.
        """
        self._now = listed
        groups: dict[tuple[Incarnation, int], list[int]] = defaultdict(list)
        for task in sorted({*listed, *self._earlier}):
            since = self._listed.get(task, 0)
            if task in listed and task in begun and since:
                self._earlier.pop(task, None)
            groups[self._earlier.get(task) or (self._me, since if task in begun else 0)].append(task)
        return tuple(Held(life, since, tuple(tasks)) for (life, since), tasks in sorted(groups.items()))

    def written(self, place: int) -> None:
        """What `held` has said last is written, at that place among all writes."""
        self._listed = {t: self._listed.get(t, place) for t in self._now}


def listed(progress: Progress | None) -> frozenset[int]:
    """All tasks in a record."""
    return frozenset(t for h in (progress.held if progress is not None else ()) for t in h.tasks)


def last_holders(
    records: Iterable[Progress], but: Incarnation, moves: Iterable[MoveRecord] = ()
) -> dict[int, Incarnation]:
    """Who had each task last, of all that are listed anywhere.

    Args:
        but: A life that does not count: the one that asks.
        moves: Those that have a record.
    """
    found: dict[int, tuple[int, Incarnation]] = {}
    came: dict[int, Incarnation] = {}
    for part in (part for move in sorted(moves, key=lambda m: m.epoch) for part in move.tasks):
        if part.outcome is Outcome.COMMITTED:
            came[part.task] = part.target
        elif part.outcome is Outcome.LOST:
            came.pop(part.task, None)
    for held in (h for record in records for h in record.held if h.incarnation != but):
        for task in held.tasks:
            has_come = not held.since and came.get(task) == held.incarnation
            since = _NEWEST if has_come else held.since
            if task not in found or found[task][0] < since:
                found[task] = since, held.incarnation
    return {task: life for task, (_, life) in found.items()}


class LostOnTheirWay:
    """Tasks whose state no store had any more, and who had them before that move: Nimbus has said so.

    Remembered, because a task may begin anew when the record of that move has gone: it goes when all workers have read of the outcome.
    One life for each task: whoever had it before that one does not count any more. One thread at a time tells, any may ask.
    """

    def __init__(self) -> None:
        self._newest: dict[int, tuple[Epoch, Incarnation]] = {}

    def see(self, moves: Iterable[MoveRecord]) -> None:
        """Moves that have a record."""
        for move in moves:
            for part in move.tasks:
                known = self._newest.get(part.task)
                if part.outcome is Outcome.LOST and (known is None or known[0] < move.epoch):
                    self._newest[part.task] = move.epoch, part.source

    def said(self, task: int, before: Incarnation) -> bool:
        """Whether it has been said that the state which that life had of a task is lost."""
        known = self._newest.get(task)
        return known is not None and known[1] == before
