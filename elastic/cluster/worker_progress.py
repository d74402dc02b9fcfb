"""What a worker writes down in coordination of how far it is: since when it has which tasks, what has finished, what it has carried out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NoReturn

from elastic.cluster.worker_states import States, last_holders, listed
from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.migration.record import Marks
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.assignment import Assignment
from elastic.model.events import Severity
from elastic.model.ids import Incarnation, TaskId, TopologyName, WorkerId
from elastic.model.records import Progress
from elastic.model.words import counted, plain
from elastic.worker.shown import DETAIL, MESSAGE
from elastic.worker.worker import Worker

SINCE = 0.5
"""Seconds until it is written down since when tasks are here; that they are is written before they begin."""


class ProgressWriter:
    """Of one life of a worker; from any thread.

    Args:
        of: The worker, which is made later than this.
        go_back: With checkpoints: has the topology go back to the newest, for the reason given; does not return.

    Attributes:
        life: Where the newest write that began lives stands among all writes; each task's lives have greater and greater numbers.
    """

    def __init__(
        self,
        coordination: Coordination,
        topology: TopologyName,
        id: WorkerId,
        incarnation: Incarnation,
        of: Callable[[], Worker],
        go_back: Callable[[str], NoReturn] | None = None,
    ) -> None:
        self._coordination = coordination
        self._topology = topology
        self._root = paths.progress(topology)
        self._path = paths.worker_progress(topology, id)
        self._incarnation = incarnation
        self._of = of
        self._go_back = go_back
        self.life = 0
        self._failed = self._trace = ""
        self._starting: Collection[int] = ()  # about to be started, and written down already
        self._states = States(incarnation)
        self._finished: frozenset[int] = frozenset()  # of the life before
        self._lock = threading.Lock()
        self._written: Progress | None = None
        self._since_due = 0.0  # by when it is written since when tasks are here; 0: it is

    def inherit(self) -> None:
        """Take over what the life before has written down: this one writes to the same place, perhaps before it starts those tasks."""
        stored = self._coordination.get(self._path)
        if stored is not None:
            earlier = codec.decode(stored.data, Progress)
            if earlier.generation == self._of().generation:
                self._states.inherit(earlier.held)
                self._finished = frozenset(earlier.finished)

    def failed(self, reason: str, trace: str) -> None:
        """The topology is to fail, for this reason; not written yet."""
        self._failed, self._trace = plain(reason, MESSAGE), plain(trace, DETAIL)

    def see(self, view: View) -> None:
        """A view of coordination, before anything follows from it."""
        self._states.see([move.record for move in view.moves], set(view.living.values()))

    def begin(self, starting: Collection[int]) -> None:
        """Find out which of the tasks that are about to be started without a state have finished; write down the stateful ones, and say of
        which of them a state is lost.

        Raises:
            Unavailable: It may not have been written.
        """
        worker = self._of()
        stateful = {t for t in starting if worker.must_not_be_lost(worker.spec.component_of(TaskId(t)))}
        records = self._records()
        finished = {t for record in records for t in record.finished}.intersection(starting)
        worker.history.finish(finished)
        # Written before they begin: whatever happens afterwards, nobody starts them empty without noticing. And the place of this write
        # among all writes is the number of the lives that begin: none that these tasks had before is greater.
        if self._go_back is not None:
            self._lose_nothing(stateful, records, self._go_back)
        else:
            self._say_lost(stateful - finished, records)
        with self._lock:
            self._starting = stateful
            self.life = self._write(self._now())

    def begun(self) -> None:
        """The worker itself says of them now that it has them. Those that it has not started after all, as a move of them has begun
        meanwhile, are what they were: nothing more is lost of them."""
        self._states.begun(self._of().tasks.keys() & set(self._starting))
        self._starting = ()

    def _records(self) -> list[Progress]:
        """What all workers of the topology have written down, the dead ones too."""
        names = self._coordination.children(self._root) or ()
        found = self._coordination.look([f"{self._root}/{name}" for name in names]).values
        records = [codec.decode(stored.data, Progress) for stored in found.values() if stored is not None]
        return [r for r in records if r.generation == self._of().generation]

    def _lose_nothing(
        self, starting: set[int], records: Sequence[Progress], go_back: Callable[[str], NoReturn]
    ) -> None:
        """Tasks that another process had in this generation: with that, what was under way to them is gone as well."""
        holders = self._holders(records)
        if lost := starting & holders.keys():
            before = ", ".join(sorted({str(holders[t]) for t in lost}))
            go_back(f"{before} ended with {counted(len(lost), 'task')}")

    def _holders(self, records: Sequence[Progress]) -> dict[int, Incarnation]:
        """Who had each task last but this process."""
        # Read just before this: whoever it came to may have ended before it could say since when.
        moves = [move.record for move in self._of().moves.participant.view.moves]
        return last_holders(records, self._incarnation, moves)

    def _say_lost(self, starting: set[int], records: Sequence[Progress]) -> None:
        """Tasks that an earlier process had started, with state that ended with it, and nobody has said so."""
        worker, holders = self._of(), self._holders(records)
        starting = starting & holders.keys()
        if starting:
            # A move may have said so, and have ended with all that it left before this process began.
            assignment = self._coordination.get(paths.assignment(self._topology))
            known = codec.decode(assignment.data, Assignment).lost if assignment is not None else ()
            self._states.has_been_said(
                {
                    t: n.incarnation
                    for n in known
                    for t in n.tasks
                    if t in starting and holders[t] == n.incarnation
                }
            )
        lost = {(worker.spec.component_of(TaskId(t)).id, holders[t]) for t in starting}
        for component, before in sorted(lost):
            tasks = sorted(
                t for t in starting & set(worker.spec.tasks_of(component)) if holders.get(t) == before
            )
            worker.history.lose_state(tasks)
            tasks = self._states.say(tasks, before)
            if not tasks:
                continue
            numbers = ", ".join(map(str, tasks))
            worker.event(
                "state-lost",
                f"The state of {counted(len(tasks), 'task')} of {str(component)!r} ({numbers}) ended with {before}; "
                f"{'it starts' if len(tasks) == 1 else 'they start'} empty.",
                Severity.ERROR,
                component=str(component),
                details={"tasks": numbers, "count": len(tasks), "before": str(before)},
            )

    def _now(self) -> Progress:
        worker = self._of()
        # In this order: what ceases to be among the former is among the latter by then.
        had = frozenset(worker.tasks) | worker.history.forsaken()
        return Progress(
            self._incarnation,
            worker.assigned.epoch,
            self._states.held({*worker.history.started(), *self._starting}, had),
            tuple(sorted({*worker.history.finished(), *self._finished})),
            worker.drained(),
            self._failed,
            self._trace,
            worker.generation,
            worker.snapshots.taken,
        )

    def patience(self) -> float | None:
        """Seconds until `write` is to be called although nothing has happened; None: no need."""
        return max(0.0, self._since_due - time.monotonic()) if self._since_due else None

    def write(self, *, all_of_it: bool = False) -> None:
        """Write down what has changed. Since when tasks are here waits for more of it: in a move each task would else be one more write,
        which all others read.

        Args:
            all_of_it: Without waiting.

        Raises:
            Unavailable: It may not have been written.
        """
        with self._lock:
            progress = self._now()
            if (progress == self._written and not self._states.unplaced) or not worth_writing(progress):
                self._since_due = 0.0
                return
            now = time.monotonic()
            if all_of_it or self._is_urgent(progress) or 0.0 < self._since_due <= now:
                self._write(progress)
            else:
                self._since_due = self._since_due or now + SINCE

    def write_first(self, marks: Marks) -> None:
        """What has to be written before these marks are. Since when tasks are here does not: that would be one more write within a pause.
        Unless the move may go when they are written: nothing else says then who has its tasks.

        Raises:
            Unavailable: It may not have been written.
        """
        if marks.closed:
            self.write(all_of_it=True)
            return
        with self._lock:
            progress = self._now()
            if self._comes_first(progress):
                self._write(progress)

    def nothing_first(self, marks: Marks) -> bool:
        """Whether `write_first` would write nothing. False as well when that cannot be told without waiting."""
        if marks.closed or not self._lock.acquire(blocking=False):
            return False
        try:
            return not self._comes_first(self._now())
        finally:
            self._lock.release()

    def _comes_first(self, progress: Progress) -> bool:
        return self._is_urgent(progress) and worth_writing(progress)

    def _is_urgent(self, progress: Progress) -> bool:
        before = self._written
        return (
            before is None
            or self._states.unplaced
            or replace(progress, held=()) != replace(before, held=())
            or listed(progress) != listed(before)
        )

    def _write(self, progress: Progress) -> int:
        self._since_due = 0.0
        self._written = None  # what is there is not known until it is answered
        stamp = self._coordination.put(self._path, codec.encode(progress))
        self._written = progress
        self._states.written(stamp)
        return stamp


def worth_writing(progress: Progress) -> bool:
    """Whether there is anything to write down yet."""
    return bool(progress.epoch or progress.failed or progress.held)
