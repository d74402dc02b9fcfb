"""How many tuples a task has executed in a second of late, as far as its executor has noticed between two of its turns."""

from __future__ import annotations

EVERY = 1.0
"""Seconds of which there is one number, at least; what is told is of the last one or two of these."""


class Pace:
    """Of one task. On its executor's thread; `rate` also by others."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = self._last = (0.0, 0)  # (monotonic time, tuples executed by then)

    def is_due(self, now: float) -> bool:
        """Whether `note` has something to do."""
        return now >= self._last[0] + EVERY

    def note(self, now: float, executed: int) -> None:
        """So many tuples have been executed by now, in all."""
        self._before, self._last = self._last, (now, executed)

    def rate(self, now: float, executed: int) -> float:
        """Tuples per second; 0: it has not run for long enough to tell."""
        then, count = self._before if self._before[0] else self._last
        return (executed - count) / (now - then) if then and now - then >= EVERY / 2 else 0.0
