"""What belongs to a task and refers to it without keeping it.

A task whose parts keep it stays in memory until the interpreter's collector comes to objects as old as it is, which may be hours after it
has gone elsewhere: with all that its component holds. One whose parts do not is freed when the last who uses it lets go.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

P = ParamSpec("P")


class Part:
    """Of one task. Whoever calls it has the task."""

    def __init__(self, task: Task) -> None:
        self._of = weakref.ref(task)

    @property
    def _task(self) -> Task:
        task = self._of()
        assert task is not None
        return task


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """A method of something that this does not keep: nothing happens any more when that is gone."""
    of = weakref.WeakMethod(method)

    def call(*arguments: P.args, **more: P.kwargs) -> None:
        found = of()
        if found is not None:
            found(*arguments, **more)

    return call
