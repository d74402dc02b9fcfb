"""How often the threads of a worker process give way to each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from elastic.migration.record import Phase
from elastic.migration.view import View
from elastic.worker.haste import FEW, FEW_STILL

SWITCH = 0.005
SWITCH_MOVING = 0.0002
SWITCH_PAUSED = 0.00005
SWITCH_MANY = 0.001
"""Seconds after which a computing thread gives way to another one (`sys.setswitchinterval`): always; while a move is under way; while a
task stands still, or has just begun to run again, and others wait for it; and in moves of more than `FEW` tasks or batches."""
SWITCH_AFTER = 0.001
AFTER = 1.0
"""The same once a move is over, and seconds for which it is so: streams that were held up are worked off, and all threads compute. With the
usual interval a tuple waits at each executor on its way until each of them has had its turn."""


def switch_interval(view: View) -> float:
    """A thread that wants the interpreter waits for this long while another one computes: when a few tasks stand still that is most of the
    pause. A move of many lasts, and whoever gives way so often does less: then the stream falls behind by more than the pauses."""
    if not view.moves:
        return SWITCH
    if any(m.record.batches > FEW for m in view.moves):
        return SWITCH_MANY
    still = view.standing_still
    if still or any(at.phase is Phase.RESTORED for at in view.standing.values()):
        return SWITCH_PAUSED if still <= FEW_STILL else SWITCH_MANY
    return SWITCH_MOVING if sum(len(m.record.tasks) for m in view.moves) <= FEW else SWITCH_MANY


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
        self._after = 0.0  # what it is to be when the move is over; 0: there was none
        self._timer: threading.Timer | None = None

    def expect(self) -> None:
        """Something may be about to move, which a view says soon if it is so. From any thread.

        All workers hear of that at once, and some read of the move 10 ms before others. Of two that share the cores, the first one to keep
        to one would take that on which a thread of the other computes, with the interpreter.
        """
        with self._lock:
            if not self._after:
                self._after = SWITCH_AFTER
                self._set(self._after)
                self._moving(True)
                self._end_later()

    def see(self, view: View) -> None:
        """A view has been read."""
        with self._lock:
            if view.moves:
                self._cancel()
                interval = switch_interval(view)
                self._after = max(interval, SWITCH_AFTER)
                self._set(interval)  # first: what else is to be done waits less for the interpreter then
                self._moving(True)
            elif not self._after:
                self._set(SWITCH)
            elif self._timer is None:
                self._set(self._after)
                self._end_later()

    def close(self) -> None:
        """Nothing changes any more. Safe to call twice."""
        with self._lock:
            self._cancel()

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
                self._timer, self._after = None, 0.0
                self._set(SWITCH)
                self._moving(False)
