"""What the sink of `pauses` has noted, and what can be read from it: gaps and latencies of some tasks within some time."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Window(NamedTuple):
    """From one time to another: nanoseconds of the monotonic clock."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Seen(NamedTuple):
    """What a sink saw of some tasks within a window, in ms.

    Attributes:
        gap: The longest time in which nothing came of one of the tasks.
        latency: The longest time from when a tuple was due until it came.
    """

    gap: float
    latency: float


def parts(directory: Path) -> list[tuple[array[int], array[int], array[int]]]:
    """What each life of each sink has noted: tasks, stamps, and when they came, ascending; the one that began first first."""
    found = []
    for path in directory.glob("*.notes"):
        raw = array("q")
        raw.frombytes(path.read_bytes())
        third = len(raw) // 3
        found.append((raw[:third], raw[third : 2 * third], raw[2 * third :]))
    return sorted(found, key=lambda part: part[2][0])


class Notes:
    """All that came, in the order in which it came."""

    def __init__(self, tasks: array[int], stamps: array[int], came: array[int]) -> None:
        self.tasks, self.stamps, self.came = tasks, stamps, came
        self.by_task: dict[int, tuple[array[int], array[int]]] = {}
        for task, stamp, when in zip(tasks, stamps, came, strict=True):
            found = self.by_task.get(task)
            if found is None:
                found = self.by_task[task] = (array("q"), array("q"))
            found[0].append(stamp)
            found[1].append(when)

    @classmethod
    def read(cls, directory: Path) -> Notes:
        """Those of all the sink's lives."""
        all_of = array("q"), array("q"), array("q")
        for columns in parts(directory):
            for whole, column in zip(all_of, columns, strict=True):
                whole.extend(column)
        return cls(*all_of)

    def seen(self, tasks: Collection[int], window: Window) -> Seen:
        """The worst of these tasks within the window; a gap that reaches over its end counts in full."""
        gap = latency = 0
        for task in tasks:
            stamps, came = self.by_task.get(task, (array("q"), array("q")))
            first = max(0, bisect_left(came, window.start) - 1)
            last = bisect_right(came, window.end)
            times = came[first : last + 1]
            gap = max(gap, max((b - a for a, b in pairwise(times)), default=0))
            latency = max(latency, max((came[i] - stamps[i] for i in range(first, last)), default=0))
        return Seen(gap / 1e6, latency / 1e6)

    def overall_gap(self, tasks: Collection[int], window: Window) -> float:
        """The longest time in ms in which nothing came of any of the tasks."""
        wanted = set(tasks)
        first = max(0, bisect_left(self.came, window.start) - 1)
        last = bisect_right(self.came, window.end) + 1
        times = [c for t, c in zip(self.tasks[first:last], self.came[first:last], strict=True) if t in wanted]
        return max((b - a for a, b in pairwise(times)), default=0) / 1e6

    def rate(self, window: Window) -> float:
        """Tuples per second that came within the window."""
        count = bisect_right(self.came, window.end) - bisect_left(self.came, window.start)
        return count / window.length * 1e9


def alike(quiet: Sequence[Window], windows: Sequence[Window]) -> list[Window]:
    """Windows as long as those, spread over times in which nothing moved: the longer one looks, the longer is the longest gap.

    They overlap where such a time is shorter than all of them together; one that is longer than it becomes as long as it.

    Args:
        quiet: Ascending; those that are one behind the other are one time. Each time gets as many windows.
    """
    times: list[Window] = []
    for one in quiet:
        if times and times[-1].end == one.start:
            times[-1] = Window(times[-1].start, one.end)
        else:
            times.append(one)
    made = []
    for number, time in enumerate(times):
        some = windows[len(windows) * number // len(times) : len(windows) * (number + 1) // len(times)]
        for place, window in enumerate(some):
            length = min(window.length, time.length)
            first = time.start + (time.length - length) * place // max(1, len(some) - 1)
            made.append(Window(first, first + length))
    return made


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest of the values that at least this part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]
