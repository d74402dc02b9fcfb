"""How many tuples a task has executed in a second of late, as far as its executor has noticed between two of its turns."""

from __future__ import annotations

EVERY = 1.0
"""Seconds of which there is one number, at least; what is told is of the last one or two of these."""
LONG_AGO = 4.0
"""Seconds: what was so much earlier says nothing of now. A task that has had nothing to do for an hour may have much to do by now."""


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
        """Tuples per second; 0: it has not run for long enough to tell, or did not until now."""
        then, count = self._before if self._before[0] else self._last
        return (executed - count) / (now - then) if EVERY / 2 <= now - then <= LONG_AGO else 0.0
