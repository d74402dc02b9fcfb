"""What a task that stands still waits for goes before what others have to do anyway.

A worker's threads share one interpreter: beside three busy executors a thread that has ten milliseconds of work is done after forty. While
a state is encoded or put in, executors therefore rest between two slices. All is done sooner so, and nobody stands still for longer.
"""

from __future__ import annotations

import threading

LONGEST = 0.002
"""Seconds that an executor rests at a time, at most: a large state must not keep others from their work for as long as it takes."""


class Haste:
    """Of one worker. `with haste:` around what is urgent, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._over = threading.Event()
        self._over.set()
        self.on = False

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            self.on = True
            self._over.clear()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self.on = False
                self._over.set()

    def rest(self) -> None:
        """Wait until nothing is urgent, for `LONGEST` at most. Not from within."""
        self._over.wait(LONGEST)
