"""A child process of the launcher that is kept running: ZooKeeper, a Nimbus."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from elastic.cluster.loop import Hand, Loop

log = logging.getLogger(__name__)

_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_HEALTHY = 30.0


class Kept:
    """Starts a process, and starts it again when it ends unasked: at once, then with growing pauses.

    Args:
        loop: Where it is told that it ended.
        name: For people.
        start: Starts it; called by a thread that lives as long as this process.
        on_end: Told, on the loop, that it ended (a sentence) or could not be started (an error), and how often so
            in a row.
    """

    def __init__(
        self,
        loop: Loop,
        name: str,
        start: Callable[[], subprocess.Popen[bytes]],
        on_end: Callable[[str | Exception, int], None],
    ) -> None:
        self.name = name
        self._loop = loop
        self._begin = start
        self._on_end = on_end
        self.hand = Hand(loop, f"elastic-{name}")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = threading.Event()
        self._closed = False
        self._since = 0.0
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """Of the process that runs or ran last."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it; returns at once."""
        self.hand.do(self._run, self._ended, self._failed)

    def stop(self, grace: float) -> None:
        """End it, and start it no more. Any thread."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            process.terminate()
            if not self._gone.wait(grace):
                process.kill()
                self._gone.wait()

    def kill(self) -> None:
        """End it as a crash would; it is started again."""
        process = self._process
        if process is not None:
            process.kill()

    def _run(self) -> int:
        """On the hand: from its start to its end."""
        with self._lock:
            if self._closed:
                return 0
            process = self._begin()
            self._gone.clear()  # only now: when none could be started, there is none to wait for
            self._process = process
        self._since = time.monotonic()
        try:
            return process.wait()
        finally:
            self._gone.set()

    def _ended(self, code: int) -> None:
        if time.monotonic() - self._since > _HEALTHY:
            self._failures = 0
        self._again(f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}")

    def _failed(self, error: Exception) -> None:
        self._again(error)

    def _again(self, why: str | Exception) -> None:
        if self._closed:
            return
        self._failures += 1
        self._on_end(why, self._failures)
        pause = _PAUSES[min(self._failures, len(_PAUSES)) - 1]
        self._loop.call_later(pause, self.start)


def stop_all(those: Sequence[Kept], grace: float) -> None:
    """End some, all at once; returns when they have ended."""
    stopping = [threading.Thread(target=kept.stop, args=(grace,), daemon=True) for kept in those]
    for thread in stopping:
        thread.start()
    for thread in stopping:
        thread.join(grace + 10.0)
