"""Where the tuples for one task go: to a task in this process by reference, or over a link. One object for each target task.

The way can change at any time (`to_local`, `to_link`, `to_nowhere`); an emitter that waits for room notices.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from elastic.model.ids import Incarnation
from elastic.transport.base import Buffer, Link
from elastic.worker import wire
from elastic.worker.batch import Batch, Mark

if TYPE_CHECKING:
    from elastic.worker.task import Task


class Emitter(Protocol):
    """The executor that emits: it flushes the links it has written to, and measures how long it was blocked."""

    def written(self, link: Link) -> None:
        """Frames were offered to that link; flush it when there is nothing more to do at once."""

    def flush_links(self) -> None:
        """Flush all links that were written to."""

    def begin_blocked(self, task: int) -> None: ...

    def end_blocked(self) -> None: ...

    def check_stop(self) -> None:
        """Raises ExecutorStopped when the executor is to end without its output."""


class ExecutorStopped(BaseException):
    """Unwinds user code in an executor that has to end. Not an Exception: user code must not swallow it."""


# A wait is bounded so that no lost wake-up can hang an executor; it isn't how the wake-up normally comes.
_LONGEST_WAIT = 1.0


class Destination:
    """The way to one task."""

    __slots__ = ("_changed", "_sequence", "generation", "link", "local", "task")

    def __init__(self, task: int) -> None:
        self.task = task
        self.local: Task | None = None
        self.link: Link | None = None
        self._changed = threading.Condition(threading.Lock())
        self._sequence = 0
        self.generation = 0  # which way, in the order of their taking

    @property
    def incarnation(self) -> Incarnation | None:
        """The worker process behind the link, or None."""
        return self.link.peer if self.link is not None else None

    def hungry(self) -> bool:
        """Whether the task is here and has nothing to do."""
        return self.local is not None and not self.local.scheduled

    def to_local(self, task: Task) -> None:
        """The task runs in this process now."""
        self.local, self.link = task, None
        self.generation += 1
        self.signal()

    def to_link(self, link: Link) -> None:
        """The task runs in that worker process now."""
        self.local, self.link = None, link
        self.generation += 1
        self.signal()

    def to_nowhere(self) -> None:
        """Nobody runs the task at present: emitters wait."""
        self.local, self.link = None, None
        self.signal()

    def signal(self) -> None:
        """There may be room, or another way: waiting emitters look again. Called from any thread."""
        with self._changed:
            self._sequence += 1
            self._changed.notify_all()

    def put(self, item: Batch | Mark, emitter: Emitter) -> None:
        """Hand over a batch or mark; waits while there is no room or no way (back-pressure).

        Raises:
            ExecutorStopped: The executor has to end.
            ExecutionError: The batch cannot be sent to another process (`TupleTooLarge`, unpicklable).
        """
        local = self.local
        if local is not None and local.offer(item):  # the usual case first
            return
        frames: list[tuple[Buffer, ...]] | None = None
        blocked = False
        try:
            while True:
                sequence = self._sequence
                local, link = self.local, self.link
                if local is not None:
                    if local.offer(item):
                        return
                elif link is not None:
                    if frames is None:
                        frames = wire.encode(item)
                    while frames and link.offer(self.task, frames[0]):
                        emitter.written(link)
                        frames.pop(0)
                    if not frames:
                        return
                emitter.flush_links()
                emitter.check_stop()
                if not blocked:
                    emitter.begin_blocked(self.task)
                    blocked = True
                with self._changed:
                    if self._sequence == sequence:
                        self._changed.wait(_LONGEST_WAIT)
        finally:
            if blocked:
                emitter.end_blocked()
