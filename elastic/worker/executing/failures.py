"""What happens when user code raises: it is counted, said, and when there is too much of it the task gives up."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from elastic.api.components import TaskHook
from elastic.errors import ElasticError
from elastic.model.events import Severity
from elastic.worker.emitting.destination import ExecutorStopped
from elastic.worker.executing.part import Part
from elastic.worker.shown import described, shown, user_traceback

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task
    from elastic.worker.executing.wiring import TaskListener
    from elastic.worker.tuples.batch import Batch


class Failures(Part):
    """The failures of one task.

    Attributes:
        count: Tuples whose execution has raised.
        broken: The task has given up: it executes nothing any more.
    """

    def __init__(self, task: Task, hooks: Sequence[TaskHook], most: int, listener: TaskListener) -> None:
        super().__init__(task)
        self.count = 0
        self.broken = False
        self._hooks = hooks
        self._most = most
        self._listener = listener
        self._said = 0
        self._times = 0
        self._hook_errors = 0

    def restored(self, count: int, *, rows: bool) -> None:
        """So many tuples had failed where the task was.

        Args:
            rows: They came in batches: how often is not known, and begins anew.
        """
        self.count, self._times = count, 0 if rows else count

    def guarded(self, call: Callable[[], Any]) -> None:
        """Call user code outside of `execute`; an error counts like that of a tuple."""
        try:
            call()
        except Exception as e:
            self.failed(e, None)

    def failed(self, error: Exception, tup: Any, count: int = 1) -> None:
        """The execution of a tuple raised, or that of a batch of so many rows: that is one error, whatever comes of the others."""
        if self.broken:
            return  # it is in the middle of a batch: the rest of that is not executed
        task = self._task
        self.count += count
        self._times += 1
        self._tell_hooks(error, tup)
        last = described(error)
        if self._times > self._most:
            errors = "" if self._times == self.count else f" in {self._times} executions"
            self.give_up(
                f"Task {task.id} of {str(task.spec.id)!r} gave up after {self.count} failed tuples{errors} "
                f"(max_errors={self._most}); the last: {last}",
                user_traceback(error),
            )
            return
        if self._is_news():
            self._listener.on_task_event(
                task,
                "tuple-failed",
                f"{str(task.spec.id)!r} (task {task.id}) raised {last}",
                Severity.ERROR,
                {
                    "traceback": user_traceback(error),
                    **({"rows": count} if tup is None else {"tuple": shown(tup)}),
                    "failed": self.count,
                },
            )

    def _tell_hooks(self, error: Exception, tup: Any) -> None:
        for hook in self._hooks:
            try:
                hook.on_error(self._task.context, tup, error)
            except Exception as e:
                self.hook_failed("on_error", e)

    def _is_news(self) -> bool:
        """Whether what has failed now is told: the first ones one by one; then, so that a flood of them drowns nothing, only when their
        number has doubled."""
        if self.count > 10 and self.count < 2 * self._said:
            return False
        self._said = self.count
        return True

    def unsendable(self, error: ElasticError, row: Any) -> None:
        """A tuple of this task cannot be sent to another process; it is left out."""
        self.failed(error, row)

    def unreadable(self, batch: Batch, error: Exception) -> None:
        """What has come as bytes cannot be read: none of it is executed. Most likely one of these tuples is to blame, so they are no reason
        to give up."""
        self.count += batch.count
        self._tell_hooks(error, None)
        if self._is_news():
            self._listener.on_task_event(
                self._task,
                "batch-unreadable",
                f"{batch.count} tuples from task {batch.source} could not be read: {described(error)}",
                Severity.ERROR,
                {"traceback": traceback.format_exc(), "failed": self.count},
            )

    def told_of_cleanup(self, what: Callable[[], Any]) -> None:
        """Clean up; an error is said, and changes nothing else."""
        try:
            what()
        except ExecutorStopped:  # it emits while everything ends: nobody takes that any more
            pass
        except BaseException as e:
            self._listener.on_task_event(
                self._task,
                "cleanup-failed",
                f"cleanup() of {str(self._task.spec.id)!r} (task {self._task.id}) raised {described(e)}",
                Severity.WARNING,
                {"traceback": user_traceback(e)},
            )

    def watched(self, call: Callable[[], None]) -> None:
        """Call user code outside of a tuple, where a task may be that nobody runs yet: see `Executor.watched`."""
        executor = self._task.executor
        if executor is None:
            call()
        else:
            executor.watched(call)

    def hook_failed(self, where: str, error: Exception) -> None:
        """A task hook raised: that is said, and costs no tuple. Of each task the 1st, 2nd, 4th, 8th, ... is told."""
        self._hook_errors += 1
        if self._hook_errors & (self._hook_errors - 1) == 0:
            self._listener.on_task_event(
                self._task,
                "hook-failed",
                f"A task hook of {str(self._task.spec.id)!r} (task {self._task.id}) raised in {where}: {described(error)}",
                Severity.WARNING,
                {"traceback": user_traceback(error), "times": self._hook_errors},
            )

    def give_up(self, reason: str, trace: str) -> None:
        """The task gives up; the topology fails."""
        self.broken = True
        self._listener.on_failure(self._task, reason, trace)
