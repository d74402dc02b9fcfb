"""What happens when user code raises: it is counted, said, and when there is too much of it the task gives up."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from elastic.api.components import TaskHook
from elastic.errors import ElasticError
from elastic.model.events import Severity

if TYPE_CHECKING:
    from elastic.worker.task import Task, TaskListener

_SHOWN = 500


class Failures:
    """The failures of one task.

    Attributes:
        count: Tuples whose execution has raised.
        broken: The task has given up: it executes nothing any more.
    """

    def __init__(self, task: Task, hooks: Sequence[TaskHook], most: int, listener: TaskListener) -> None:
        self.count = 0
        self.broken = False
        self._task = task
        self._hooks = hooks
        self._most = most
        self._listener = listener
        self._said = 0

    def guarded(self, call: Callable[[], Any]) -> None:
        """Call user code outside of `execute`; an error counts like that of a tuple."""
        try:
            call()
        except Exception as e:
            self.failed(e, None)

    def failed(self, error: Exception, tup: Any, count: int = 1) -> None:
        """The execution of a tuple raised."""
        task = self._task
        self.count += count
        trace = user_traceback(error)
        for hook in self._hooks:
            hook.on_error(task.context, tup, error)
        last = f"{type(error).__name__}: {error}"
        if self.count > self._most:
            self.give_up(
                f"Task {task.id} of {str(task.spec.id)!r} gave up after {self.count} failed tuples "
                f"(max_errors={self._most}); the last: {last}",
                trace,
            )
            return
        # The first ones one by one; then, so that a flood of them drowns nothing, only when their number has doubled.
        if self.count <= 10 or self.count >= 2 * self._said:
            self._said = self.count
            self._listener.on_task_event(
                task,
                "tuple-failed",
                f"{str(task.spec.id)!r} (task {task.id}) raised {last}",
                Severity.ERROR,
                {"traceback": trace, "tuple": shown(tup), "failed": self.count},
            )

    def unsendable(self, error: ElasticError, row: Any) -> None:
        """A tuple of this task cannot be sent to another process; it is left out."""
        self.failed(error, row)

    def give_up(self, reason: str, trace: str) -> None:
        """The task gives up; the topology fails."""
        self.broken = True
        self._listener.on_failure(self._task, reason, trace)


def shown(tup: Any) -> str:
    """A tuple as text, cut to a bearable length; whatever its values' own `repr` do."""
    try:
        text = repr(tup)
    except Exception as e:
        return f"(repr raised {type(e).__name__})"
    return text if len(text) < _SHOWN else text[:_SHOWN] + "..."


def user_traceback(error: BaseException) -> str:
    """The traceback without the framework's own frames in front of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = __file__.rpartition("/worker/")[0]
    while frames and frames[0].filename.startswith(own) and len(frames) > 1:
        frames.pop(0)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    return "".join([*lines, *traceback.format_exception_only(error)])
