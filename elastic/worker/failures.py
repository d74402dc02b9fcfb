"""What happens when user code raises: it is counted, said, and when there is too much of it the task gives up."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from elastic.api.components import TaskHook
from elastic.api.fields import Tuple
from elastic.errors import ElasticError
from elastic.model.events import Severity
from elastic.worker.destination import ExecutorStopped
from elastic.worker.emits import MADE
from elastic.worker.part import Part

if TYPE_CHECKING:
    from elastic.worker.batch import Batch
    from elastic.worker.task import Task
    from elastic.worker.wiring import TaskListener

_SHOWN = 500
_SAID = 2000
_TRACE = 20_000
MESSAGE = 4000
DETAIL = 40_000
"""Characters of an event's message and of each of its details at most."""


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
        trace = user_traceback(error)
        self._tell_hooks(error, tup)
        last = described(error)
        if self._times > self._most:
            errors = "" if self._times == self.count else f" in {self._times} executions"
            self.give_up(
                f"Task {task.id} of {str(task.spec.id)!r} gave up after {self.count} failed tuples{errors} "
                f"(max_errors={self._most}); the last: {last}",
                trace,
            )
            return
        if self._is_news():
            self._listener.on_task_event(
                task,
                "tuple-failed",
                f"{str(task.spec.id)!r} (task {task.id}) raised {last}",
                Severity.ERROR,
                {
                    "traceback": trace,
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


def shown(tup: Any) -> str:
    """A tuple as text, cut to a bearable length; whatever its values' own `repr` do, and however large they are."""
    names = getattr(type(tup), "__struct_fields__", None)
    if names is None:
        return _shown(tup, _SHOWN)
    each = max(40, _SHOWN // max(1, len(names)))
    text = f"{type(tup).__name__}({', '.join(f'{n}={_shown(getattr(tup, n), each)}' for n in names)})"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _shown(value: Any, most: int) -> str:
    try:
        if isinstance(value, str | bytes | bytearray):
            value = value[: most + 1]
        text = repr(value)
    except Exception as e:
        return f"(repr raised {type(e).__name__})"
    return text if len(text) <= most else text[:most] + "..."


def described(error: BaseException) -> str:
    """An error's class and message, cut to a bearable length; whatever its `__str__` does."""
    name = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, AttributeError) and isinstance(error.obj, Tuple):
            text += f" (its fields: {', '.join(error.obj.fields)})"
    except Exception as e:  # the thread that says what has failed would end by it
        text = f"(str raised {type(e).__name__})"
    return f"{name}: {text[:_SAID]}{'...' if len(text) > _SAID else ''}" if text else name


def why(error: BaseException) -> str:
    """The reason that an error gives: its own message, with its class if it is none of elastic's."""
    return error.message if isinstance(error, ElasticError) else described(error)


def user_traceback(error: BaseException) -> str:
    """The traceback, with those of its causes, without the framework's own frames in front of the user's code; whatever the error's own
    attributes do."""
    try:
        return _traceback(error)
    except Exception as e:  # as in `described`
        return f"(the traceback of {type(error).__name__} cannot be shown: {type(e).__name__})"


def _traceback(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    own = (__file__.rpartition("/worker/")[0], MADE)
    todo, seen = [told], set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        while len(one.stack) > 1 and one.stack[0].filename.startswith(own):
            one.stack.pop(0)
        todo += [e for e in (one.__cause__, one.__context__) if e is not None]
    text = "".join(told.format())
    if len(text) <= _TRACE:
        return text
    return f"{text[: _TRACE // 2]}\n...\n{text[-_TRACE // 2 :]}"
