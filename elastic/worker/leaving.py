"""States that have gone elsewhere are freed a little at a time.

To free a dictionary of 800,000 entries is one call, in which no other thread of the process gets the interpreter for 30 ms: just when
everybody works off what the pause has held up.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import repeat, starmap

from elastic.api import tracking
from elastic.api.components import Component, overrides
from elastic.api.state import StateMap
from elastic.worker.content.copier import states_of

LARGE = 10_000
"""Entries; fewer are freed in a millisecond."""
SLICE = 1000
"""Entries that are freed at a time: a fraction of a millisecond."""
REST = 0.001
"""Seconds between two slices."""


class Leaving:
    """Of one worker. It has a thread while there is something to free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[StateMap[object, object]] = []
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, component: Component) -> None:
        """Free its keyed states if they are large. From any thread, once nobody uses the component any more.

        One with a `cleanup` of its own is left alone: it may have handed its state to somebody.
        """
        if overrides(component, "cleanup", Component):
            return
        large = [state for _, state in states_of(component) if dict.__len__(state) > LARGE]
        with self._lock:
            self._waiting += large
            if self._waiting and self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="leaving", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread; what is left goes with the process."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (state := self._next()) is not None:
            changed = tracking.take_changes(state) if tracking.is_tracking(state) else {}
            tracking.untrack(state)
            tracking.all_read(state)
            for entries in (changed, state):
                while (left := dict.__len__(entries)) and not self._closing.wait(REST):
                    deque(starmap(dict.popitem, repeat((entries,), min(left, SLICE))), maxlen=0)

    def _next(self) -> StateMap[object, object] | None:
        with self._lock:
            if self._waiting and not self._closing.is_set():
                return self._waiting.pop()
            self._thread = None
            return None
