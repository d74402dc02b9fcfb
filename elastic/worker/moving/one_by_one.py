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
"""Seconds from one state to the next, at most; times as long as the first one took that these are. Tasks of a move that stand still
together share that: the more of them do, the more the pause holds up the stream, and the less is gained by waiting for it."""


class OneByOne:
    """Of one worker. Thread-safe.

    Args:
        closing: Set when the worker ends: nobody rests any more.
    """

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._turn = threading.Lock()
        self._rested = 0.0  # when the next one may begin, monotonic seconds; whoever has the turn

    @contextmanager
    def turn(self, share: float) -> Iterator[None]:
        """Have it: what is done within is done for no other one meanwhile, unless the one before takes too long.

        Args:
            share: Of a rest: batches of its move for each of the move's tasks.
        """
        mine = self._turn.acquire(timeout=LONGEST)
        try:
            if mine:
                self._closing.wait(max(0.0, self._rested - time.monotonic()))
            began = time.monotonic()
            yield
        finally:
            if mine:
                now = time.monotonic()
                self._rested = now + share * min(REST, RESTS * (now - began))
                self._turn.release()
