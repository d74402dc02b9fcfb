"""Waiting at a queue for a time."""

from __future__ import annotations

import queue
from typing import TypeVar

T = TypeVar("T")


def take(waiting: queue.SimpleQueue[T], timeout: float | None) -> T:
    """The next thing in a queue that only one thread takes from.

    `SimpleQueue.get` alone may wait for ever (CPython 3.11 and 3.12): when something was put and taken before, it looks twice; should the
    time be over by the second look, as after a microsecond, what is left of it is negative, and that means without a bound. Who has
    looked without waiting spares it the first look.

    Args:
        timeout: Seconds, 0 or more; None: until something comes.

    Raises:
        queue.Empty: Nothing came in that time.
    """
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return waiting.get(timeout=timeout)
