"""What waits for a task, and how much may: bounds by rows, of its executor's tasks together, and who is let in beyond them.

A source that was kept out is told when there is room again. Everything here is under the task's lock, which whoever schedules the task
has as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from elastic.migration.emitter import Emitter as LinkEnd
from elastic.migration.receiver import Receiver
from elastic.worker.emitting.crossing import ASK, FULL, TAKEN
from elastic.worker.executing.gaps import TimedEnd
from elastic.worker.executing.turns import Turns
from elastic.worker.tuples.batch import Item

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor

OVER = 2
"""Times as many tuples as may wait for a task's executor: what sources of which nothing waits may make of it together."""
FEW = 8
"""As long as something of fewer sources waits for the task, a source of which nothing does is let in all the same, with no more than the
task's share: what has come from other processes may be a whole window, and who emits in this one would wait until that is worked off."""
FREE, BATCH = 8, 512
"""Whoever was kept out for want of room is told when such a part of a task's share is free, and room for so many tuples where that is not
more than half of it. Up to then it waits, and all that it emits to others: a moment is to be as short as can be, but not each batch one."""
BROUGHT, WORKED_OFF = 16, 32
"""What a task has brought from another process, and what was held for it meanwhile and has no room, keeps nobody out, up to so many times
what may wait for it: half of that may be on its way to it there, and half be held. Of what it executes then such a part is not let in
again, until all is as usual."""


def low(share: int) -> int:
    """So many tuples wait for a task at most when those are told that were kept out.

    Args:
        share: So many may wait for it in any case.
    """
    return share - max(1, share // FREE, min(share // 2, BATCH))


class TaskQueue:
    """A task's queue.

    Args:
        capacity: Tuples that may wait for the tasks of its executor together.
        share: So many may wait for this one in any case.
        room: Called when `offer`, `has_room` or `keeps_up` said no before and there is room again; without any lock.
    """

    def __init__(self, capacity: int, share: int, room: Callable[[], None]) -> None:
        self.executor: Executor | None = None
        self.scheduled = False
        self.stopped = False  # stands still between two tuples, and is never scheduled, until `go_on`
        self.receivers: dict[int, Receiver | TimedEnd] = {}
        self._capacity, self._share = capacity, share
        self._room = room
        self._lock = threading.RLock()
        self._queue = Turns()
        self._rows = 0
        self._brought = 0  # so many more may wait for a while, see `BROUGHT`
        self._refused = False
        self._kept_out: set[int] = set()  # sources that were told so
        # Sources that have no turn, and how many tuples of each wait: none of these is in `_rows`.
        self._apart: dict[int, int] = {}

    def _schedule(self, executor: Executor) -> None:
        """Something has come, and the task is not among those that are ready. Under the lock."""
        raise NotImplementedError

    # ------------------------------------------------------------------ from any thread

    def offer(self, item: Item, life: int, first: int) -> int:
        """Put something into the queue: its source's life and its position on the link say whether it is the next.

        Returns:
            TAKEN; FULL: there is no room (`room` will be called; marks always have some); ASK: not the next as far as this task
            knows, which whoever knows of the moves has to look at.
        """
        with self._lock:
            # Mostly there is room, and whoever has a hundred targets asks for each of a few tuples.
            if (self._apart or self._rows + item.count > self._share) and not self.has_room(item):
                return FULL
            receiver = self.receivers.get(item.source)
            if receiver is None or not receiver.takes(life, first, item.weight):
                return ASK
            self._put(item)
        return TAKEN

    def take_in(self, item: Item, life: int, first: int) -> bool:
        """The same for what came over a link: its sender keeps to the window, so it always has room. False: as ASK."""
        with self._lock:
            receiver = self.receivers.get(item.source)
            if receiver is None or not receiver.takes(life, first, item.weight):
                return False
            self._put(item)
        return True

    def has_room(self, item: Item) -> bool:
        """Whether that may wait for it as well; False: `room` will be called.

        What others have sent does not keep out a source of which nothing waits, up to a bound of its own. Nor does what the task has
        brought (`BROUGHT`): who emits to it, and to others, would stand still until that is worked off.
        """
        with self._lock:
            rows, count = self._rows, item.count
            apart = self._apart.get(item.source) if self._apart else None
            # Who shares a thread with a source that is still waited for emits nothing before that one's mark (`Abreast`).
            in_turn = apart is None and self._has_room(item, rows, count)
            has = in_turn or (apart is not None and not (apart and count and apart + count > self._share))
            if not has:
                self._refused = True
                self._kept_out.add(item.source)
            return has

    def _has_room(self, item: Item, rows: int, count: int) -> bool:
        return bool(
            not (rows and count)
            or rows + count <= self._share + self._brought
            or self._executor_has_room(count)
            or (item.source not in self._queue and self._lets_in(count))
        )

    def keeps_up(self, link: LinkEnd) -> bool:
        """Whether it has taken what was given to it over a link from a task of this process, up to as much as may wait for it. What it has
        not taken lies with the moves: they have not come to it, or it is not the next. False: `room` will be called.
        """
        with self._lock:
            receiver = self.receivers.get(link.source)
            if receiver is None:
                return False  # it has just left
            # Of a life that it has not heard of it has taken nothing.
            taken = link.base if receiver.life < link.life else max(link.base, receiver.seen)
            if link.sent - taken < self._capacity or receiver.life > link.life:
                return True
            self._refused = True
            self._kept_out.add(link.source)
            return False

    @property
    def guard(self) -> threading.RLock:
        """Held while something is put into the queue."""
        return self._lock

    @property
    def capacity(self) -> int:
        """Tuples that may wait for the tasks of its executor together."""
        return self._capacity

    @property
    def queued(self) -> int:
        """Tuples that wait for this task."""
        return self._rows + (sum(self._apart.values()) if self._apart else 0)

    def _executor_has_room(self, count: int, times: int = 1) -> bool:
        """Whether the executor's tasks together are below the bound: one busy task may use what its neighbours don't.

        What waits is bounded by rows of the executor, not of each task: rows that stay in the processor's cache until they are
        executed cost half of those that don't.
        """
        executor = self.executor
        return executor is not None and executor.queued() + count <= times * self._capacity

    def _lets_in(self, count: int) -> bool:
        """Whether there is room for so many tuples of a source of which nothing waits."""
        of_few = self._queue.sources < FEW and count <= self._share
        return of_few or self._executor_has_room(count, OVER)

    def force(self, item: Item) -> None:
        """Put something into the queue that is known to be the next of its link."""
        with self._lock:
            self._put(item)
            if self._rows > self._share + self._brought:
                self._brought = min(self._rows - self._share, BROUGHT * self._capacity)

    def bring(self, items: Sequence[Item]) -> None:
        """Have it execute before all else what was taken for it where it was."""
        with self._lock:
            self._queue.put_before(items)
            for item in items:
                if item.source in self._apart:
                    self._apart[item.source] += item.count
            rows = sum(i.count for i in items if i.source not in self._apart)
            self._brought = min(rows, BROUGHT * self._capacity)
            self._rows += rows

    def _put(self, item: Item) -> None:
        """Under the lock."""
        self._queue.append(item)
        if self._apart and item.source in self._apart:
            self._apart[item.source] += item.count
            return
        self._rows += item.count
        if not self.scheduled and self.executor is not None:
            self._schedule(self.executor)

    def keep_apart(self, source: int) -> None:
        """That source has no turn until `let_in`: what waits of it keeps no other source out."""
        with self._lock:
            if source not in self._apart:
                rows = self._apart[source] = self._queue.keep_apart(source)
                self._rows -= rows

    def let_in(self) -> None:
        """All sources have their turns again."""
        with self._lock:
            if not self._apart:
                return
            self._queue.let_in()
            self._rows += sum(self._apart.values())
            self._apart.clear()
            if self._queue and not self.scheduled and self.executor is not None:
                self._schedule(self.executor)

    # ------------------------------------------------------------------ from the executor's thread only

    def next(self) -> Item | None:
        """Take the next thing from the queue; None when there is none."""
        with self._lock:
            item = self._queue.next()
            if item is None:
                # Said under the lock: whoever puts something from now on schedules the task again.
                self.scheduled = self.stopped
        return item

    def worked_off(self, count: int) -> None:
        """So many tuples of what waited have been."""
        with self._lock:
            self._rows -= count
            # Mostly nobody was kept out, and with many targets a batch is a few tuples.
            refused = (self._brought or self._refused) and self._lets_in_again(count)
        if refused:
            self._room()

    def _lets_in_again(self, count: int) -> bool:
        """Whether those are to be told that were kept out, now that so many tuples have been worked off. Under the lock."""
        if self._brought:
            left = self._brought - (count + WORKED_OFF - 1) // WORKED_OFF
            self._brought = max(0, left) if self._rows > self._share else 0
        refused = self._refused and (
            self._rows <= low(self._share) + self._brought
            or (any(s not in self._queue for s in self._kept_out) and self._lets_in(1))
        )
        if refused:
            self._refused = False
            self._kept_out.clear()
        return refused

    def emptied(self) -> list[Item]:
        """Take all that waits: whoever was kept out is let in."""
        with self._lock:
            items, self._rows, self._brought, self._refused = list(self._queue), 0, 0, False
            self._queue.clear()
            self._apart = dict.fromkeys(self._apart, 0)
            self._kept_out.clear()
            self.scheduled = self.stopped
        return items
