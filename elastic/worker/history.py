"""What is known of one worker's tasks that outlives them, and its process: it is written down for those who come after (`Progress`)."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class TaskHistory:
    """See the module. From any thread.

    Args:
        lock: The worker's: what it does to a task and what it says here of it are one step to those who ask.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._finished: set[int] = set()
        self._started: set[int] = set()
        self._forsaken: set[int] = set()
        self._lost: set[int] = set()

    def finish(self, tasks: Iterable[int]) -> None:
        """These have worked off all that they will ever get."""
        with self._lock:
            self._finished.update(tasks)

    def start(self, task: int) -> None:
        """A stateful task is started, or about to come: should this process die with it, that is known."""
        with self._lock:
            self._started.add(task)

    def begin(self, task: int) -> None:
        """It runs."""
        with self._lock:
            self._forsaken.discard(task)

    def leave(self, task: int) -> None:
        """It has gone with its state, or does not come after all."""
        with self._lock:
            self._started.discard(task)

    def forsake(self, task: int) -> None:
        """A stateful task was closed here, and is nobody's."""
        with self._lock:
            self._started.add(task)
            self._forsaken.add(task)

    def lose_state(self, tasks: Iterable[int]) -> None:
        """These, about to start, had state in an earlier process that nobody has: their metric `state_lost` says so."""
        self._lost.update(tasks)

    def has_finished(self, task: int) -> bool:
        """Whether that is known, here or by an earlier process."""
        return task in self._finished

    def has_lost_state(self, task: int) -> bool:
        """See `lose_state`."""
        return task in self._lost

    def finished(self) -> tuple[int, ...]:
        """All tasks that are known to be finished, those of earlier processes included; ascending."""
        with self._lock:
            return tuple(sorted(self._finished))

    def started(self) -> tuple[int, ...]:
        """The stateful tasks that this process has started; ascending."""
        with self._lock:
            return tuple(sorted(self._started))

    def forsaken(self) -> frozenset[int]:
        """The stateful tasks that were here, and whose state has gone nowhere. They are among those that were started: whoever starts one
        of them anew has to know."""
        with self._lock:
            return frozenset(self._forsaken)
