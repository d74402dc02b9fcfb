"""The tasks of an executor pass a checkpoint together: who has waits for those that have not.

What a task emits after it waits at its receivers until they have heard from all others. It may have to wait for room there; then nothing is
done on its thread, and if a task that is still waited for runs there as well, nobody goes on any more. Where one comes to a thread on which
others are past it, by a move or a regrouping, that checkpoint is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.executing.task import Task


class Abreast:
    """Of one executor. On its thread, if nothing else is said."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting: dict[int, Task] = {}
        self.ticket = 0  # of the checkpoint that some have passed and others have not; 0: there is none

    def passed(self, task: Task) -> None:
        """A task has passed a checkpoint, or has finished, or it was given up. From any thread that has it."""
        self.ticket = max(self.ticket, task.marks.checkpoint)
        self._executor.call(self.look)

    def joined(self, task: Task) -> None:
        """A task runs here from now on that did not. From any thread."""
        if task.stopped:
            return  # it may not be what it was yet
        others = [t for t in list(self._executor.tasks.values()) if t is not task and not t.marks.finished]
        newest = max((t.marks.checkpoint for t in others), default=0)
        if task.marks.checkpoint > newest:
            self.passed(task)
        elif task.marks.checkpoint < newest and not task.marks.finished:
            task.marks.late(newest)

    def look(self) -> None:
        """Something may have become so that nobody is waited for any more."""
        if self.ticket and not any(self._is_behind(t) for t in list(self._executor.tasks.values())):
            self.ticket = 0
            waiting, self._waiting = self._waiting, {}
            for task in waiting.values():
                task.wake()

    def waits(self, task: Task) -> bool:
        """Whether the task, which is about to have its turn, has to wait for others: it is woken then."""
        if task.marks.checkpoint < self.ticket or task.stopped:
            return False
        self.look()
        if not self.ticket:
            return False
        task.hold()
        self._waiting[task.id] = task
        return True

    def _is_behind(self, task: Task) -> bool:
        """Whether it has something to do before the others may go on. Who moves away does that elsewhere, and holds nobody up here."""
        marks = task.marks
        return marks.checkpoint < self.ticket and not (
            marks.finished or task.stopped or task.closed or task.failures.broken
        )
