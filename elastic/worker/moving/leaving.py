"""States that have gone elsewhere are freed a little at a time.

To free a dictionary of 800,000 entries is one call, in which no other thread of the process gets the interpreter for 30 ms: just when
everybody works off what the pause has held up. Small ones add up to that: 160 to 190 ms where the interpreter's collector came to what 64
tasks of 6,250 entries each had left behind in some moves.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from itertools import repeat, starmap

from elastic import timeslice
from elastic.api import tracking
from elastic.api.components import Component, overrides
from elastic.api.state import StateMap
from elastic.worker.content.copier import states_of
from elastic.worker.shown import described

log = logging.getLogger("elastic.worker")

SMALL = 10
"""Entries; what has no more goes with its task, of which they are the lesser part."""
SLICE = 1000
"""Entries that are freed at a time, of one state or of several: a fraction of a millisecond."""
REST = 0.005
"""Seconds between two slices: a twentieth of the interpreter. What the pause has held up goes before memory."""
_ENDING = 5.0


class Leaving:
    """Of one worker. It has a thread while there is something to free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[StateMap[object, object]] = []
        self._left = 0  # entries that are freed until it rests
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, component: Component) -> None:
        """Free its keyed states. From any thread, once nobody uses the component any more.

        One with a `cleanup` of its own is left alone: it may have handed its state to somebody.
        """
        if overrides(component, "cleanup", Component):
            return
        states = [state for _, state in states_of(component) if dict.__len__(state) > SMALL]
        with self._lock:
            self._waiting += states
            if self._waiting and self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="leaving", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread; what is left goes with the process."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(_ENDING)  # a value's own `__del__` may be at it for as long as it likes

    def _run(self) -> None:
        timeslice.usual()
        while (state := self._next()) is not None:
            try:
                self._free(state)
            except Exception as e:  # user code may be at it still, or raise as its values go: what comes after it is freed all the same
                log.info("a state that has gone elsewhere is freed with what refers to it: %s", described(e))

    def _next(self) -> StateMap[object, object] | None:
        with self._lock:
            if self._waiting and not self._closing.is_set():
                return self._waiting.pop()
            self._thread = None
            return None

    def _free(self, state: StateMap[object, object]) -> None:
        changed = tracking.take_changes(state) if tracking.is_tracking(state) else {}
        tracking.untrack(state)
        tracking.all_read(state)
        for entries in (changed, state):
            while count := dict.__len__(entries):
                if not self._left:
                    if self._closing.wait(REST):
                        return
                    self._left = SLICE
                some = min(count, self._left)
                deque(starmap(dict.popitem, repeat((entries,), some)), maxlen=0)
                self._left -= some
