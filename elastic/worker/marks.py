"""How far the marks of a task's sources have come. Pure.

A mark is aligned when every source has sent it: everything that stood before it on any link has been worked off then.
"""

from __future__ import annotations

from elastic.worker.batch import Mark, MarkKind


class Marks:
    """The marks that one task has received.

    Args:
        sources: All tasks of all components that it subscribes to.
    """

    def __init__(self, sources: frozenset[int]) -> None:
        self._sources = sources
        self._ended: set[int] = set()
        self._drains: dict[int, int] = {}

    def receive(self, mark: Mark) -> None:
        """Take note of a mark. A late or repeated one changes nothing."""
        if mark.kind == MarkKind.END:
            self._ended.add(mark.source)
        elif mark.number > self._drains.get(mark.source, 0):
            self._drains[mark.source] = mark.number

    @property
    def ended(self) -> bool:
        """Whether every source has emitted its last tuple."""
        return self._sources <= self._ended

    @property
    def drained(self) -> int:
        """The newest drain that has come from every source; one that has ended counts as having passed them all."""
        return min((self._drains.get(s, 0) for s in self._sources if s not in self._ended), default=0)
