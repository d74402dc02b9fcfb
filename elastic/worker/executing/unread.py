"""States that came with a move as bytes, and are bytes still, in part: an executor reads them when there is nothing else to do."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from elastic.worker.content import fill
from elastic.worker.executing.bolts import SLICE
from elastic.worker.executing.task import Task

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor


class Unread:
    """Of one executor; used on its thread.

    Attributes:
        tasks: Those that have such a state.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.tasks: dict[int, Task] = {}

    def add(self, task: Task) -> None:
        """Its state came as bytes."""
        self.tasks[task.id] = task

    def read_on(self) -> None:
        """Read some of what there is: there is something."""
        _, task = self.tasks.popitem()
        if task.executor is not self._executor:
            if task.executor is not None:
                task.executor.call(functools.partial(task.executor.unread.add, task))
        elif not task.closed and not task.stopped and fill(task.component, time.monotonic() + SLICE):
            self.tasks[task.id] = task
