"""What tasks that have gone elsewhere leave behind is freed a little at a time: their states, and then the tasks themselves.

To free a dictionary of 800,000 entries is one call, in which no other thread of the process gets the interpreter for 30 ms: just when
everybody works off what the pause has held up. Small ones add up to that. A task and what it is connected with refer to each other, so
they stay until the collector comes: on its own some hundred tasks later, in a call of 160 to 190 ms where each has 6,250 entries, and of
60 to 75 without these.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from itertools import repeat, starmap

from elastic.api import tracking
from elastic.api.components import Component, overrides
from elastic.api.state import StateMap
from elastic.worker.content.copier import states_of

SMALL = 10
"""Entries; what has no more goes with its task, of which they are the lesser part."""
SLICE = 1000
"""Entries that are freed at a time, of one state or of several: a fraction of a millisecond."""
REST = 0.001
"""Seconds between two slices."""
LOT = 8
"""Tasks for which the collector is called: about 500 objects, which takes a millisecond or two. More, when more have gone at once."""


class Leaving:
    """Of one worker. It has a thread while there is something to free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[StateMap[object, object]] = []
        self._tasks = 0  # that have gone since the collector was called
        self._left = 0  # entries that are freed until it rests
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def add(self, component: Component) -> None:
        """Free its keyed states, and what else there is of its task. From any thread, once nobody uses the component any more.

        The states of one with a `cleanup` of its own are left alone: it may have handed them to somebody.
        """
        states: list[StateMap[object, object]] = []
        if not overrides(component, "cleanup", Component):
            states += [state for _, state in states_of(component) if dict.__len__(state) > SMALL]
        with self._lock:
            self._waiting += states
            self._tasks += 1
            wanted = bool(self._waiting) or self._tasks >= LOT
            if wanted and self._thread is None and not self._closing.is_set():
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
        while True:
            with self._lock:
                states, self._waiting = self._waiting, []
                enough = self._tasks >= LOT
                if enough:
                    self._tasks = 0
                if self._closing.is_set() or not (states or enough):
                    self._thread = None
                    return
            while states:
                self._free(states.pop())
            if enough and gc.isenabled() and not self._closing.wait(REST):
                gc.collect(0)

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
