"""Tasks that are about to stand still: who saves one of them waits a moment for the others."""

from __future__ import annotations

import threading

GATHER = 0.005
"""Seconds that the first of them wait for the last. Each lot is a message to the stores, and a write of marks on either side, one after the
other: 5 to 15 ms each beside a stream."""


class Stopping:
    """Thread-safe."""

    def __init__(self) -> None:
        self._tasks: set[int] = set()
        self._changed = threading.Condition()

    def add(self, task: int) -> None:
        """It is to stop."""
        with self._changed:
            self._tasks.add(task)

    def remove(self, task: int) -> None:
        """It is to be saved now, or goes on."""
        with self._changed:
            self._tasks.discard(task)
            if not self._tasks:
                self._changed.notify_all()

    def gather(self) -> None:
        """Wait until nobody is about to stop, for `GATHER` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._tasks, GATHER)
