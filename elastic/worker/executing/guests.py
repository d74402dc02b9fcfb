"""Executors that no allocation names: those of tasks that have just come with a move, and those whose tasks are about to go with one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.worker.executing.executor import Executor


class Home(NamedTuple):
    """Where the tasks of a component that come with one move are prepared, and where they run from then on.

    `prepare()` may take long, and others get ready while a batch of them is paused already: who is restored, and who runs again, must not
    wait for that. Two threads for each component and move, however many batches that has.
    """

    prepares: Executor
    runs: Executor


class Guests:
    """See the module. Used under the worker's lock.

    Args:
        make: Makes and starts an executor.
    """

    def __init__(self, make: Callable[[ExecutorId], Executor]) -> None:
        self._make = make
        self._coming: dict[tuple[ComponentId, int], Home] = {}
        self._all: set[Executor] = set()

    def of(self, component: ComponentId, epoch: int) -> Home:
        """The executors of all tasks of a component that come with one move."""
        found = self._coming.get((component, epoch))
        if found is None:
            # Task numbers begin at 1: no executor of an allocation has such a range.
            id = ExecutorId(component, TaskId(0), TaskId(0))
            found = self._coming[component, epoch] = Home(self._make(id), self._make(id))
            self._all.update(found)
        return found

    def add(self, executor: Executor) -> None:
        """The allocation does not name that executor any more."""
        self._all.add(executor)

    def idle(self, busy: Collection[int] = ()) -> list[Executor]:
        """Those that are not needed for what may still come, to be retired: they end when their last task has gone.

        Args:
            busy: The moves that may still bring tasks.
        """
        self._coming = {(c, n): home for (c, n), home in self._coming.items() if n in busy}
        kept = {e for home in self._coming.values() for e in home}
        retired = [e for e in self._all if e not in kept]
        self._all = kept
        return retired

    def all(self) -> set[Executor]:
        """Those that were not retired. From any thread."""
        return set(self._all)
