"""What is tried again and again, as by a full disk, is said at growing distances."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

_FIRST, _LONGEST = 2.0, 600.0
"""Seconds until the same is said again: twice as many each time, at most so many."""


@dataclass(slots=True)
class _Said:
    what: str
    again_at: float
    pause: float = _FIRST


class Repeated:
    """Of each matter, what was said last."""

    def __init__(self) -> None:
        self._said: dict[Hashable, _Said] = {}

    def is_news(self, matter: Hashable, what: str, now: float) -> bool:
        """Whether it is to be said now: it is something else than before, or was said long enough ago."""
        last = self._said.get(matter)
        if last is None or last.what != what:
            self._said[matter] = _Said(what, now + _FIRST)
            return True
        if now < last.again_at:
            return False
        last.pause = min(2 * last.pause, _LONGEST)
        last.again_at = now + last.pause
        return True

    def over(self, matter: Hashable) -> None:
        """It is well now: when it is not again, that is news."""
        self._said.pop(matter, None)
