"""How often the threads of a worker process give way to each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from elastic.migration.view import View

SWITCH = 0.005
SWITCH_MOVING = 0.001
"""Seconds after which a computing thread gives way to another one that wants the interpreter (`sys.setswitchinterval`): always, and while
something moves. A step of a pause waits for that at each of the threads that it goes through."""
AFTER = 1.0
"""Seconds for which it is the second one once a move is over: streams that were held up are worked off, and all threads compute. With the
usual interval a tuple waits at each executor on its way until each of them has had its turn."""


class Switching:
    """Sets that interval for this process as views come. Thread-safe.

    Args:
        set_interval: Takes seconds.
        moving: Told whether something moves, or has until just now.
    """

    def __init__(
        self,
        set_interval: Callable[[float], None] = sys.setswitchinterval,
        *,
        moving: Callable[[bool], None] = lambda moving: None,
    ) -> None:
        self._set = set_interval
        self._moving = moving
        self._lock = threading.Lock()
        self._shorter = False
        self._timer: threading.Timer | None = None

    def expect(self) -> None:
        """Something may be about to move, which a view says soon if it is so. From any thread.

        All workers hear of that at once, and some read of the move 10 ms before others. Of two that share the cores, the first one to keep
        to one would take that on which a thread of the other computes, with the interpreter.
        """
        with self._lock:
            if not self._shorter:
                self._shorten()
                self._end_later()

    def see(self, view: View) -> None:
        """A view has been read."""
        with self._lock:
            if view.moves:
                self._cancel()
                self._shorten()
            elif self._shorter and self._timer is None:
                self._end_later()

    def close(self) -> None:
        """Nothing changes any more. Safe to call twice."""
        with self._lock:
            self._cancel()

    def _shorten(self) -> None:
        if not self._shorter:
            self._shorter = True
            self._set(SWITCH_MOVING)  # first: what else is to be done waits less for the interpreter then
            self._moving(True)

    def _end_later(self) -> None:
        self._timer = threading.Timer(AFTER, self._over)
        self._timer.name, self._timer.daemon = "switching", True
        self._timer.start()

    def _cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _over(self) -> None:
        with self._lock:
            if threading.current_thread() is self._timer:
                self._timer, self._shorter = None, False
                self._set(SWITCH)
                self._moving(False)
