"""How many bytes of state the tasks of a worker own, about: cheap enough to be told in every report.

Of keyed state the number of entries is known at any time; what an entry takes is looked up in some of them, seldom: on the task's
executor, between two tuples, when their number has doubled or halved since, or after a minute. A state that has just come and is
bytes still has the size of these bytes. What `get_state` gives is only known from moves: nobody calls it in order to measure.

So it is right to within what entries differ from the 128 that were looked at, and to a factor of two for at most a minute of growth.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic.api import tracking
from elastic.errors import ExecutionError
from elastic.worker.content.copier import PIECE, owner_of, states_of
from elastic.worker.content.keyed import KeyedCopier
from elastic.worker.content.lazy import UnreadBins

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task

AT_ONCE = 16
"""Tasks of which entries are looked at for one report: each costs its executor a tenth of a millisecond."""
LASTS = 60.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class _Sample:
    entries: int
    size: int
    at: float


class StateSizes:
    """Of one worker. `of` is called by one thread, `note` by any."""

    def __init__(self) -> None:
        self._samples: dict[int, _Sample] = {}
        self._asked: set[int] = set()
        self._own: dict[int, int] = {}
        self._weights: dict[str, float] = {}

    def note(self, task: Task, size: int) -> None:
        """A move has shown how large a task's state is, bytes. It is kept for what nothing else tells."""
        self._own[task.id] = size

    def of(self, tasks: Collection[Task]) -> dict[int, int]:
        """Bytes of state by task.

        Args:
            tasks: All that the worker has. The others are forgotten.
        """
        ids = {t.id for t in tasks}
        for known in (self._samples, self._own):
            for gone in known.keys() - ids:
                known.pop(gone, None)
        self._asked &= ids
        left = AT_ONCE
        sizes = {}
        for task in tasks:
            if not task.spec.stateful:
                continue
            states = states_of(task.component)
            if not states:
                sizes[task.id] = self._own.get(task.id, 0)
                continue
            entries, size = 0, 0
            for _, state in states:
                unread = None
                with contextlib.suppress(AttributeError):  # the last of it is being read
                    unread = tracking.unread(state)
                if isinstance(unread, UnreadBins):
                    size += unread.size()
                else:
                    entries += dict.__len__(state)
            sizes[task.id] = size + self._estimate(task, entries)
            if left and entries and self._stale(task, entries):
                left -= self._ask(task)
        return sizes

    def _estimate(self, task: Task, entries: int) -> int:
        sample = self._samples.get(task.id)
        if sample is not None and sample.entries:
            return entries * sample.size // sample.entries
        return int(entries * self._weights.get(task.spec.id, 0.0))  # as in the component's other tasks

    def _stale(self, task: Task, entries: int) -> bool:
        sample = self._samples.get(task.id)
        if task.id in self._asked or task.stopped:
            return False
        if sample is None or time.monotonic() - sample.at > LASTS:
            return True
        return not sample.entries <= 2 * entries <= 4 * sample.entries

    def _ask(self, task: Task) -> bool:
        self._asked.add(task.id)
        with contextlib.suppress(ExecutionError):  # it has not begun
            task.call(lambda: self._look(task))
            return True
        self._asked.discard(task.id)
        return False

    def _look(self, task: Task) -> None:
        """On the task's executor, between two tuples."""
        entries = size = 0
        # What cannot be encoded is said when it is to move. Whatever user code raises: it is the executor of other tasks, too.
        with contextlib.suppress(BaseException):
            for name, state in states_of(task.component):
                if not tracking.is_lazy(state):
                    entries += dict.__len__(state)
                    copier = KeyedCopier(
                        name, state, owner_of(task.component), itertools.count().__next__, PIECE
                    )
                    size += copier.size()
        self._samples[task.id] = _Sample(entries, size, time.monotonic())
        if entries:
            self._weights[task.spec.id] = size / entries
        self._asked.discard(task.id)
