"""How long those behind a task that moves get nothing from it, as this worker sees it: from the last that comes from its old place to the
first from its new one.

A time is noted for each batch only while its task has a part in a move, by an end of its own (`TimedEnd`) that stands before the links
from that task meanwhile: the links of all others are as they always were. All links from a task into this process count as one, as a
single one may have had nothing to carry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from elastic.migration.plan import Wiring
from elastic.migration.receiver import Receiver
from elastic.migration.record import Outcome, Phase
from elastic.migration.view import EMPTY, View
from elastic.model.ids import Incarnation

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

_BEGINS = (Phase.PREPARING, Phase.PAUSED)
Say = Callable[[int, int, float | None], None]


class _Gap:
    """Of one task that moves.

    Attributes:
        place: The worker life that it leaves.
        behind: The tasks here that get something from it.
        last: When something came from there, monotonic; 0: nothing has since it was looked at.
        anew: A link was opened from another place: whatever comes now is from there, as all that was sent before has been received.
        over: It was said.
    """

    __slots__ = ("_lock", "_say", "anew", "behind", "epoch", "last", "over", "place", "task")

    def __init__(self, task: int, epoch: int, place: Incarnation, say: Say) -> None:
        self.task, self.epoch, self.place = task, epoch, place
        self.behind: set[int] = set()
        self.last = 0.0
        self.anew = self.over = False
        self._say = say
        self._lock = threading.Lock()

    def came(self) -> None:
        """Something has come. From any thread."""
        if not self.anew:
            self.last = time.monotonic()
        elif not self.over:
            self._end()

    def left(self, target: int) -> None:
        """A task behind it has gone elsewhere. When nobody is here any more to whom anything could come, what is missing says nothing."""
        self.behind.discard(target)
        if not self.behind and not self.anew:
            self.last = 0.0

    def opened(self) -> None:
        """A link was opened from another place."""
        self.anew = True
        if not self.last:
            self._end()

    def _end(self) -> None:
        now = time.monotonic()
        with self._lock:
            over, self.over = self.over, True
        if not over:
            self._say(self.task, self.epoch, now - self.last if self.last else None)


class TimedEnd:
    """Stands before the receiving end of a link while its source moves."""

    __slots__ = ("_end", "_gap")

    def __init__(self, end: Receiver, gap: _Gap) -> None:
        self._end, self._gap = end, gap

    @property
    def life(self) -> int:
        """See `Receiver`."""
        return self._end.life

    @property
    def seen(self) -> int:
        """See `Receiver`."""
        return self._end.seen

    def takes(self, life: int, first: int, count: int) -> bool:
        """See `Receiver`."""
        if not self._end.takes(life, first, count):
            return False
        self._gap.came()
        return True


class Gaps:
    """Those of all tasks that move. What is not said otherwise is called with the lock of the moves.

    Args:
        tasks: Those that run here.
        ends: The receiving ends of their links, by source and target.
        say: Told of a task, its move, and the seconds; None: nothing had come from it, so there is nothing to measure. From any thread.
        soon: Has something called with the lock of the moves. From any thread.
    """

    def __init__(
        self,
        wiring: Wiring,
        tasks: Mapping[int, Task],
        ends: Mapping[tuple[int, int], Receiver],
        say: Say,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._wiring, self._tasks, self._ends = wiring, tasks, ends
        self._say, self._soon = say, soon
        self._of: dict[int, _Gap] = {}
        self._seen = EMPTY.standing

    def see(self, view: View) -> None:
        """Begin with tasks that are to move, and end with those that have not, or go on unseen."""
        before, self._seen = self._seen, view.standing
        if not (self._of or view.moves):
            return
        changed, now = view.changed(before), view.standing
        of = [self._of[t] for t in (*changed, *(self._of.keys() - now.keys())) if t in self._of]
        for gap in [g for g in of if self._is_over(g, view)]:
            self._forget(gap)
        for task in changed:
            at = now[task]
            if at.phase in _BEGINS and at.move is not None and task not in self._of:
                self._begin(_Gap(task, at.epoch, at.move.source, self._said))

    def over(self, ends: Mapping[int, Receiver]) -> dict[int, Receiver | TimedEnd]:
        """What a task that begins here is to have as the ends of the links to it, by source."""
        found: dict[int, Receiver | TimedEnd] = {}
        for source, end in ends.items():
            gap = self._of.get(source)
            if gap is not None:
                gap.behind.add(end.target)
            found[source] = TimedEnd(end, gap) if gap is not None else end
        return found

    def left(self, task: int) -> None:
        """That task has gone elsewhere."""
        if self._of:
            for source in self._wiring.emitters_of(task):
                if (gap := self._of.get(source)) is not None:
                    gap.left(task)

    def came(self, source: int) -> None:
        """Something has come by another way than such an end. From any thread."""
        gap = self._of.get(source)
        if gap is not None:
            gap.came()

    def opened(self, source: int, place: Incarnation) -> None:
        """A task's link to one that is here was opened from that place, and nothing sent from there has come yet. From any thread."""
        gap = self._of.get(source)
        if gap is not None and place != gap.place:
            gap.opened()

    def _is_over(self, gap: _Gap, view: View) -> bool:
        if view.stands(gap.task).epoch > gap.epoch:
            return True
        part = view.part(gap.task, gap.epoch)
        # What a record that is gone has said of it nobody knows here; but its new place has begun, and its first tuple is still to come.
        return not gap.anew if part is None else part.outcome is Outcome.ROLLED_BACK

    def _said(self, task: int, epoch: int, seconds: float | None) -> None:
        gap = self._of.get(task)
        if gap is not None and gap.epoch == epoch:  # a later move of the task may have begun meanwhile
            self._soon(lambda: self._forget(gap))
        self._say(task, epoch, seconds)

    def _begin(self, gap: _Gap) -> None:
        self._of[gap.task] = gap
        gap.behind.update(self._targets(gap.task))
        for target in gap.behind:
            self._tasks[target].receivers[gap.task] = TimedEnd(self._ends[gap.task, target], gap)

    def _forget(self, gap: _Gap) -> None:
        if self._of.get(gap.task) is not gap:
            return
        del self._of[gap.task]
        for target in self._targets(gap.task):
            self._tasks[target].receivers[gap.task] = self._ends[gap.task, target]

    def _targets(self, task: int) -> list[int]:
        return [t for t in self._wiring.targets_of(task) if t in self._tasks and (task, t) in self._ends]
