"""Delayed killing (N-Storm 2019, section IV.A): a stateless task that went to another worker works off what still arrives here.

The senders learn of the new place within milliseconds; what they had sent before is in this process's queues or on its links. After
the delay, and when the queue is empty, the task is closed. The delay is a timer that is waited for, not a sleep in an executor.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from elastic.model.events import Severity

if TYPE_CHECKING:
    from elastic.worker.executor import Executor
    from elastic.worker.task import Task
    from elastic.worker.worker import Worker

_AGAIN = 0.2
_MOST = 30.0


class Leaving:
    """The tasks of a worker that are on their way out."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._tasks: dict[int, tuple[Executor, Task]] = {}
        self._timers: set[threading.Timer] = set()
        self._lock = threading.Lock()

    def add(self, executor: Executor, tasks: list[Task], delay: float) -> None:
        """Close these tasks of `executor` after `delay` seconds, and end it when it has no other."""
        for task in tasks:
            self._tasks[task.id] = (executor, task)
            if task.spout is not None:
                # A second source of the same tuples must not run beside the new one.
                task.spout.set_active(False, 0)
        self._later(delay, executor, tasks, 0.0)

    def has(self, task: Task) -> bool:
        """Whether the task is on its way out."""
        found = self._tasks.get(task.id)
        return found is not None and found[1] is task

    def keep(self, task: Task) -> bool:
        """The task is to stay after all; returns whether it was on its way out."""
        return self._tasks.pop(task.id, None) is not None

    def executors(self) -> list[Executor]:
        """Executors that still run such tasks."""
        return list({e for e, _ in self._tasks.values()})

    def close(self) -> None:
        """Forget the timers."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()

    def _later(self, delay: float, executor: Executor, tasks: list[Task], waited: float) -> None:
        timer = threading.Timer(delay, lambda: self._due(timer, executor, tasks, waited + delay))
        timer.daemon = True
        with self._lock:
            self._timers.add(timer)
        timer.start()

    def _due(self, timer: threading.Timer, executor: Executor, tasks: list[Task], waited: float) -> None:
        with self._lock:
            if timer not in self._timers:
                return
            self._timers.discard(timer)
        tasks = [t for t in tasks if self.has(t)]
        if not tasks:
            executor.retire()
            return
        busy = [t for t in tasks if t.queued]
        if busy and waited < _MOST:
            self._later(_AGAIN, executor, tasks, waited)
            return
        if busy:
            self._worker.event(
                "tuples-lost",
                f"{sum(t.queued for t in busy)} tuples were still waiting at the old place of {len(busy)} tasks after {_MOST:g} s.",
                Severity.ERROR,
            )
        left = len(tasks)

        def closed(task: Task) -> None:
            nonlocal left
            self._tasks.pop(task.id, None)
            self._worker.remove_task(task)
            left -= 1
            if left == 0:
                executor.retire()

        for task in tasks:
            executor.drop(task, closed)
