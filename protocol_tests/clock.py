"""Simulated time: what is to happen, in order. The same seed gives the same run."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class Clock:
    """One queue of calls. Times are milliseconds that nobody waits for."""

    def __init__(self, rnd: Random) -> None:
        self.now = 0.0
        self.rnd = rnd
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._queue)

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        """Have it called at that time."""
        self._number += 1
        heapq.heappush(self._queue, (time, self._number, call, args))

    def after(self, longest: float, call: Callable[..., None], *args: Any) -> None:
        """Have it called after a random time up to `longest`."""
        self.at(self.now + self.rnd.random() * longest, call, *args)

    def step(self) -> bool:
        """Do the next thing; False when there is none."""
        if not self._queue:
            return False
        time, _, call, args = heapq.heappop(self._queue)
        self.now = max(self.now, time)
        self.steps += 1
        call(*args)
        return True
