"""What the tasks of an executor have emitted and not handed on, and when that is done.

A batch is cheaper the larger it is, and a tuple waits for it: for `linger` at most, and less where handing on takes little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from elastic.worker.emitting.parcels import Parcels

if TYPE_CHECKING:
    from elastic.worker.emitting.destination import Emitter
    from elastic.worker.executing.task import Task

FLUSH_REST = 8
"""An idle executor waits so many times as long as handing on has taken before it does so again, up to `linger`.
With hundreds of target tasks each would else get a tuple or two at a time, and everybody would be busy with frames. Who
hands a batch on has a tenth of the work that it makes: the cheaper that is, the more often it would be done, and the less went through."""
PARCELS_REST = 12
"""The same where it was done in parcels: it takes less for each link then, and makes others do as much. With 32 tuples come later."""
MEASURED = 16
"""One in so many times it is measured what handing on takes. To ask for the processor time of a thread is a call to the system, of 0.8 to
1.5 us: done each time, it was a tenth of what a worker did whose batches are of a few tuples."""


class Flushing:
    """Of one executor, on its thread.

    Args:
        emitter: It.
        linger: Seconds that a tuple waits at most while there is something else to do.
        hand_on: Has something of a task's handed on: as `Executor.hand_on`.

    Attributes:
        tasks: Those of which something waits, by number.
        due: When that is handed on whatever else there is to do, monotonic seconds; while something waits.
        at: When it may be handed on if there is nothing else to do.
        starving_at: And when to those who have nothing to do.
    """

    def __init__(
        self, emitter: Emitter, linger: float, hand_on: Callable[[Task, Callable[[], None]], None]
    ) -> None:
        self.tasks: dict[int, Task] = {}
        self.due = self.at = self.starving_at = 0.0
        self._emitter, self._linger, self._hand_on = emitter, linger, hand_on
        self._parcels = Parcels(emitter)
        self._cost = 0.0  # processor time that handing on has taken for each task
        self._rest = FLUSH_REST
        self._times = 0

    def note(self, task: Task, since: float) -> None:
        """Something of a task's waits.

        Args:
            since: Monotonic seconds.
        """
        if not self.tasks:
            self.due = since + self._linger
        self.tasks[task.id] = task

    def forget(self, task: Task) -> None:
        """There is nothing to be handed on for it any more."""
        self.tasks.pop(task.id, None)

    def flush(self) -> None:
        """Hand on all of it."""
        count, measured = len(self.tasks), self._times % MEASURED == 0
        self._times += 1
        began = time.thread_time() if measured else 0.0
        in_parcels = self._parcels.hand_on([t.outputs for t in self.tasks.values()])
        self._rest = PARCELS_REST if in_parcels else FLUSH_REST
        while self.tasks:
            _, task = self.tasks.popitem()
            self._hand_on(task, task.outputs.flush)
        self._emitter.flush_links()
        if measured:
            self._cost = (time.thread_time() - began) / count
        self.at = self.starving_at = self._rested_after(count)

    def flush_starving(self, task: Task) -> None:
        """Hand on what a task has for executors that have nothing to do."""
        self._hand_on(task, task.outputs.flush_starving)
        self.starving_at = self._rested_after(1)

    def flush_beside(self, present: Task) -> None:
        """Hand on what needs no waiting, of a task in user code and of those, on another thread than the executor's. With its turn."""
        for task in {**self.tasks, present.id: present}.values():
            task.outputs.flush_beside()
        self._emitter.flush_links()

    def _rested_after(self, tasks: int) -> float:
        """When there has been a rest after handing on for so many tasks, monotonic seconds."""
        return time.monotonic() + min(self._linger, self._rest * tasks * self._cost)
