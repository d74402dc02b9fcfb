"""Small states that get ready for a move are copied one by one, and the stream has its time in between.

Copied all at once each would take as long as all, and executors, stores and the other side would work for all of them. One right after
another they leave an executor, of which most of them are, half of a tenth of a second at the very beginning of a move.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 1.0
"""Seconds that a state waits for its turn, at most: the task of the one before may be within a tuple for long."""
REST, RESTS = 0.05, 3
"""Seconds from one state to the next, at most; times as long as the first one took that these are."""
IN_ALL = 2.0
"""Seconds that the rests of states that come together take in all, at most: a thousand have shorter ones."""


class OneByOne:
    """Of one worker. Thread-safe.

    Args:
        closing: Set when the worker ends: nobody rests any more.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._coming = self._together = (
            0  # the second: how many these have been at most, since there were none
        )
        self._rested = 0.0  # when the next one may begin, monotonic seconds; whoever has the turn

    def expect(self) -> None:
        """One more is going to ask for its turn."""
        with self._lock:
            self._together = max(self._together, self._coming + 1) if self._coming else 1
            self._coming += 1

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have it: what is done within is done for no other one meanwhile, unless the one before takes too long."""
        mine = self._turn.acquire(timeout=LONGEST)
        try:
            if mine:
                self._closing.wait(max(0.0, self._rested - time.monotonic()))
            with self._lock:
                self._coming -= 1
            began = time.monotonic()
            try:
                yield
            finally:
                if mine:
                    now = time.monotonic()
                    self._rested = now + min(REST, RESTS * (now - began), IN_ALL / self._together)
        finally:
            if mine:
                self._turn.release()
