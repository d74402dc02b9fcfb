"""Where the tuples for one task go, as far as waiting for it is concerned. One object for each target task.

Which worker process has the task is for each link to say (`elastic.migration.emitter.Emitter.where`): two links to the same
task may lead to two places while it moves. What is common to them is here: the task, when it is in this process, and
those who wait for room or for another way.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from elastic.transport.base import Link

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task


class Emitter(Protocol):
    """The executor that emits: it flushes the links it has written to, and measures how long it was blocked."""

    @property
    def thread(self) -> threading.Thread:
        """Its thread: nobody else waits for room in its place, nor hands on but as `turn` says."""

    @property
    def turn(self) -> AbstractContextManager[object]:
        """Held by who hands on what its tasks have emitted: its thread, or, while a call into user code lasts, who does so beside it."""

    def written(self, link: Link) -> None:
        """Frames were offered to that link; flush it when there is nothing more to do at once."""

    def flush_links(self) -> None:
        """Flush all links that were written to."""

    def begin_blocked(self, at: Destination) -> None: ...

    def end_blocked(self) -> None: ...

    def attend(self) -> None:
        """While it is blocked: do what cannot wait for the end of that.

        Raises:
            ExecutorStopped: The executor is to end without its output.
        """


class ExecutorStopped(BaseException):
    """Unwinds user code in an executor that has to end. Not an Exception: user code must not swallow it."""


class TaskReleased(ExecutorStopped):
    """Unwinds user code of a task that runs elsewhere by now, or nowhere: that one is closed, and its executor goes on with others."""


# A wait is bounded so that no lost wake-up can hang an executor; it isn't how the wake-up normally comes.
_LONGEST_WAIT = 1.0


class Destination:
    """One target task.

    Attributes:
        local: The task, when it runs in this process.
        sequence: Another one after every signal.
    """

    __slots__ = ("_changed", "_numbers", "_waiting", "local", "sequence", "task")

    def __init__(self, task: int) -> None:
        self.task = task
        self.local: Task | None = None
        self.sequence = 0
        self._numbers = itertools.count(1)
        self._waiting = 0
        self._changed = threading.Condition(threading.Lock())

    def hungry(self) -> bool:
        """Whether the task is here and has nothing to do."""
        return self.local is not None and not self.local.scheduled

    def starves(self, emitter: Emitter | None) -> bool:
        """Whether the task is here and its executor has nothing to do: neither for it nor for others.

        Args:
            emitter: Who asks. What is for one of its own tasks is done next.
        """
        local = self.local
        if local is None or local.scheduled:
            return False
        executor = local.executor
        return executor is not None and (executor is emitter or executor.rests)

    def signal(self) -> None:
        """There may be room, or another way: waiting emitters look again. Called from any thread."""
        # Mostly nobody waits, and a worker has thousands of these. Each number is given once: the sequence is never again what somebody
        # has seen before. Whoever waits says so before it looks at the sequence.
        self.sequence = next(self._numbers)
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, sequence: int) -> None:
        """Until a signal after that one, or for a while."""
        with self._changed:
            self._waiting += 1
            try:
                if self.sequence == sequence:
                    self._changed.wait(_LONGEST_WAIT)
            finally:
                self._waiting -= 1
