"""How far the marks of a task's sources have come. Pure.

A mark is aligned when every source has sent it: everything that stood before it on any link has been worked off then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from elastic.worker.batch import Mark, MarkKind


class Marks:
    """The marks that one task has received.

    Args:
        sources: All tasks of all components that it subscribes to.
    """

    def __init__(self, sources: frozenset[int]) -> None:
        self._drains = dict.fromkeys(sources, 0)  # of those that have not ended
        self._levels = Counter(
            self._drains.values()
        )  # how many of them have come how far: few numbers, many sources

    def receive(self, mark: Mark) -> None:
        """Take note of a mark. A late or repeated one changes nothing, nor does one of somebody else's."""
        before = self._drains.get(mark.source)
        if before is None:
            return
        if mark.kind == MarkKind.END:
            del self._drains[mark.source]
        elif mark.number > before:
            self._drains[mark.source] = mark.number
            self._levels[mark.number] += 1
        else:
            return
        self._levels[before] -= 1
        if not self._levels[before]:
            del self._levels[before]

    @property
    def ended(self) -> bool:
        """Whether every source has emitted its last tuple."""
        return not self._drains

    @property
    def drained(self) -> int:
        """The newest drain that has come from every source; one that has ended counts as having passed them all."""
        return min(self._levels, default=0)

    @property
    def open(self) -> tuple[tuple[int, int], ...]:
        """(source, newest drain that has come from it), of those that have not ended."""
        return tuple(self._drains.items())

    @open.setter
    def open(self, drains: Iterable[tuple[int, int]]) -> None:
        self._drains = dict(drains)
        self._levels = Counter(self._drains.values())
