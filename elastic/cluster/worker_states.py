"""Which life of which worker had a task's state last: written down by each, read by whoever starts the task without its state.

A worker lists a stateful task in its `Progress` before the task begins there: nobody starts it empty later on without noticing. When such a
record was written is its place among all writes, which is known afterwards; the next one says so, once the task has begun. So of all
that list a task, the one with the greatest place had it last, and one without has only been about to. Unless the task has moved there: then
it has begun. The record of the move says so, and before that may go, whoever has handed the task on: instead of itself, with its own place,
for as long as the new place may not have said so.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping

from elastic.migration.record import MoveRecord, Outcome, TaskMove
from elastic.model.ids import Epoch, Incarnation
from elastic.model.records import Held, Progress

_NEWEST = 1 << 64
"""A place among all writes that is greater than any."""


class States:
    """The stateful tasks of one life, what it has taken over from the lives before, and what has become of them in moves. Thread-safe."""

    def __init__(self, me: Incarnation) -> None:
        self._me = me
        self._lock = threading.Lock()
        self._seen: dict[int, Epoch] = {}  # the newest move of each task that has an outcome
        self._lost: dict[
            int, Incarnation
        ] = {}  # of a task not begun here since: with whom its state ended, and that was said
        self._handed_on: dict[int, tuple[Epoch, Incarnation]] = {}  # gone, or about to
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
        groups: dict[tuple[Incarnation, int], list[int]] = defaultdict(list)
        with self._lock:
            self._now = listed
            for task in self._handed_on.keys() & self._listed.keys() - listed:
                self._earlier[task] = self._handed_on[task][1], self._listed[task]
            self._listed = {t: place for t, place in self._listed.items() if t in listed}
            for task in sorted({*listed, *self._earlier}):
                since = self._listed.get(task, 0)
                if task in listed and task in begun and since:
                    self._earlier.pop(task, None)
                groups[self._earlier.get(task) or (self._me, since if task in begun else 0)].append(task)
        return tuple(Held(life, since, tuple(tasks)) for (life, since), tasks in sorted(groups.items()))

    def written(self, place: int) -> None:
        """What `held` has said last is written, at that place among all writes."""
        with self._lock:
            self._listed = {t: self._listed.get(t, place) for t in self._now}

    @property
    def unplaced(self) -> bool:
        """Whether a place is missing of what `held` has said last, although it may be in the record: under the name of another life."""
        with self._lock:
            return any(t not in self._listed for t in self._now)

    def see(self, moves: Collection[MoveRecord], living: Container[Incarnation]) -> None:
        """What is to be remembered of moves: their records go when all workers that live have read of the outcome.

        Args:
            moves: Those that have a record.
            living: The lives of workers.
        """
        with self._lock:
            for move in sorted(moves, key=lambda m: m.epoch):
                for part in move.tasks:
                    if part.outcome and self._seen.get(part.task, 0) < move.epoch:
                        self._seen[part.task] = move.epoch
                        self._follow(move.epoch, part)
            there = {m.epoch for m in moves}
            for task, (epoch, to) in list(self._handed_on.items()):
                # It has said since when, or the record would be there.
                if epoch not in there and to in living:
                    self._forget(task)

    def _follow(self, epoch: Epoch, part: TaskMove) -> None:
        # A move that begins before the task does goes back, and nothing has been lost since.
        if part.outcome is not Outcome.ROLLED_BACK or self._lost.get(part.task) == part.source:
            self._lost.pop(part.task, None)
        if part.outcome is Outcome.COMMITTED:
            self._forget(part.task)
            if part.source == self._me:
                self._handed_on[part.task] = epoch, part.target
        elif part.outcome is Outcome.LOST:
            self._lost[part.task] = part.source  # no store had it any more, and Nimbus says so

    def _forget(self, task: int) -> None:
        _, to = self._handed_on.pop(task, (0, None))
        if to is not None and self._earlier.get(task, (None, 0))[0] == to:
            del self._earlier[task]

    def has_been_said(self, lost: Mapping[int, Incarnation]) -> None:
        """Of tasks that are about to begin anew here: with whom their states ended, as a move has said."""
        with self._lock:
            self._lost.update(lost)

    def say(self, tasks: Iterable[int], before: Incarnation) -> list[int]:
        """That the states of these tasks, which are about to begin anew here, ended with that life: for which it has to be said."""
        with self._lock:
            new = [t for t in tasks if self._lost.get(t) != before]
            self._lost.update(dict.fromkeys(new, before))
        return new

    def begun(self, tasks: Iterable[int]) -> None:
        """These have begun anew: what is lost of them from now on has not been said."""
        with self._lock:
            for task in tasks:
                self._lost.pop(task, None)


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
