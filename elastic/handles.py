"""Waiting for descriptors."""

from __future__ import annotations

import math
import select
from collections.abc import Iterable


def readable(handles: Iterable[int], seconds: float | None) -> list[int]:
    """Wait until one of some descriptors can be read, has been closed by its other end, or, of a process, has ended.

    `select.select` does not take descriptors from 1024 on, as a notebook or a launcher of many nodes may have.

    Args:
        handles: The descriptors.
        seconds: How long at most; None: without a bound.

    Returns:
        Those of which that is so; none when the time is over.
    """
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    return [found for found, _ in poll.poll(None if seconds is None else math.ceil(max(0.0, seconds) * 1000))]
