"""How long the machine keeps this process waiting for the processor: what a session that ended unasked is compared with."""

from __future__ import annotations

import threading
import time

_EVERY = 0.1


class Lag:
    """Wakes up ten times a second, and remembers by how much it was late. Ends with `close`."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lag", daemon=True)
        self._thread.start()

    def take(self) -> float:
        """Seconds: the longest since this was asked before."""
        longest, self._longest = self._longest, 0.0
        return longest

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        due = time.monotonic() + _EVERY
        while not self._end.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            self._longest = max(self._longest, now - due)
            due = now + _EVERY
