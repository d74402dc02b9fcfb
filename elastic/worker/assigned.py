"""What the assignment gives to one worker: the newest allocation, what it asks of this process, and whether it has been carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elastic.migration.view import NOBODY, View
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, Epoch, Incarnation, TaskId, WorkerId
from elastic.model.records import Allocation


class Assigned:
    """See the module. What changes it is called with the worker's lock.

    Attributes:
        allocation: The newest; None: there is none yet.
        epoch: Of the newest assignment that is carried out.
    """

    def __init__(self, worker: WorkerId, me: Incarnation) -> None:
        self.allocation: Allocation | None = None
        self.epoch = Epoch(0)
        self._worker = worker
        self._me = me
        self._applying = False  # an allocation: also when that has failed
        self._taken: set[int] = set()  # here, and nowhere by the allocation: what was read may not say so yet
        self._closing: set[int] = set()

    def begin(self, allocation: Allocation) -> None:
        """That one is applied from now on."""
        self.allocation, self._applying = allocation, True

    def executors(self) -> set[ExecutorId]:
        """Those that the allocation names."""
        return {_executor(one) for one in self._given}

    def executor_of(self, task: int) -> ExecutorId | None:
        """The one that it names for that task; None: the task is not to run here."""
        return next((_executor(one) for one in self._given if one[1] <= task <= one[2]), None)

    @property
    def _given(self) -> tuple[tuple[str, int, int], ...]:
        return self.allocation.executors if self.allocation is not None else ()

    def missing(self, allocation: Allocation, view: View, here: Collection[int]) -> set[int]:
        """The tasks that an allocation asks for and that are to start here without a state, by what was read.

        Args:
            here: Those that need not.
        """
        wanted = {t for _, first, last in allocation.executors for t in range(first, last + 1)}
        return {t for t in wanted.difference(here) if view.number < 0 or view.may_start(t, self._me)}

    def has_lost(self, task: int, view: View) -> bool:
        """Whether a task that is here, and in no move here, is somebody else's by what was read, or nobody's."""
        owner = view.stands(task).owner
        if owner == NOBODY:
            return view.places.get(task) != self._worker and view.absent(task)
        return owner != self._me

    def may_close(self, view: View) -> bool:
        """Whether a task that it has taken away is to be closed by now."""
        return any(self.has_lost(t, view) for t in self._taken)

    def closing(self, task: int) -> None:
        """A task is being closed that has been taken away."""
        self._closing.add(task)

    def closed(self, task: int) -> bool:
        """That has been done. Whether the allocation is carried out by that."""
        self._closing.discard(task)
        return self._is_carried_out()

    def applied(self, here: Iterable[int]) -> bool:
        """All that the allocation asks for is under way. Whether it is carried out by that.

        Args:
            here: The tasks that are.
        """
        assert self.allocation is not None
        others = set(here).difference(*(range(first, last + 1) for _, first, last in self._given))
        self._taken = {t for t in others if not any(a <= t <= b for a, b, _ in self.allocation.places)}
        self._applying = False
        return self._is_carried_out()

    def _is_carried_out(self) -> bool:
        """Whether it is now, and was not before: nobody here is at work on what it has given to nobody."""
        allocation = self.allocation
        if allocation is None or self.epoch == allocation.epoch:
            return False
        # What has stopped at once may say so in the middle of `apply`: others are to be closed yet.
        if self._applying or self._taken or self._closing:
            return False
        self.epoch = allocation.epoch
        return True


def _executor(given: tuple[str, int, int]) -> ExecutorId:
    component, first, last = given
    return ExecutorId(ComponentId(component), TaskId(first), TaskId(last))
