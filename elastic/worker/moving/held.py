"""For how long the emitters of one worker hold what is for tasks that move."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from elastic.migration.plan import Wiring
from elastic.migration.record import Phase
from elastic.migration.view import EMPTY, View


class Pause(NamedTuple):
    """One that is over.

    Attributes:
        epoch: The move's number.
        lasted: Seconds.
        ago: Seconds since it was over.
    """

    epoch: int
    lasted: float
    ago: float


class Held:
    """With the lock of the moves.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, wiring: Wiring, clock: Callable[[], float] = time.monotonic) -> None:
        self._wiring, self._clock = wiring, clock
        self._since: dict[int, tuple[int, float]] = {}
        self._restored: dict[int, tuple[int, float]] = {}  # task -> move, and when that was read here
        self._seen = EMPTY.standing

    def __bool__(self) -> bool:
        return bool(self._since)

    def __contains__(self, target: int) -> bool:
        return target in self._since

    def targets(self) -> tuple[int, ...]:
        """For whom something is held, or would be. Without the lock, too."""
        return tuple(self._since)

    def begin(self, target: int, epoch: int) -> None:
        """What is for a task is held from now on, if it is not already."""
        self._since.setdefault(target, (epoch, self._clock()))

    def see(self, view: View) -> None:
        """Coordination was read."""
        before, self._seen = self._seen, view.standing
        if not self._since:
            self._restored.clear()
            return
        now = self._clock()
        for task in view.changed(before):
            at = view.standing[task]
            if at.phase is Phase.RESTORED and self._restored.get(task, (0,))[0] != at.epoch:
                self._restored[task] = at.epoch, now

    def left(self, here: Collection[int]) -> list[int]:
        """The tasks to which nobody here emits any more.

        Args:
            here: The tasks of this worker.
        """
        staying = set(here)
        return [t for t in self._since if staying.isdisjoint(self._wiring.emitters_of(t))]

    def end(self, target: int, *, elsewhere: bool = False) -> Pause:
        """What is for a task goes on.

        Args:
            elsewhere: From where its emitters are by now. They have gone on when they and the task were restored; nobody here does
                anything then, and what they have left behind is let go of far later.
        """
        epoch, since = self._since.pop(target)
        now = over = self._clock()
        if elsewhere and self._restored.get(target, (0,))[0] == epoch:
            those = (target, *self._wiring.emitters_of(target))
            over = max(since, *(self._restored[t][1] for t in those if t in self._restored))
        return Pause(epoch, over - since, now - over)
