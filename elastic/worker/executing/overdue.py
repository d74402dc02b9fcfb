"""Has handed on what user code has emitted within a call that does not return.

An executor hands on what its tasks emit between two slices of work, which take milliseconds. A generator that has yielded all that there
was and waits for more, or a bolt that emits and then computes for long, would keep it back until the next thing happens, for ever maybe.
There is no event for "it has not returned": this is a timer.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor

LOOK = 0.05
"""Seconds between two looks, and for which a call has to have lasted. Not those of a slice: beside others that compute, a slice lasts a
multiple of them, and what is handed on more often has smaller batches."""


class Overdue:
    """Of one worker. Its thread is there as long as an executor is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executors: set[Executor] = set()
        self._runs = False
        self._closed = threading.Event()

    def watch(self, executor: Executor) -> None:
        """Look at that one, too, until it has ended."""
        with self._lock:
            self._executors.add(executor)
            if not self._runs and not self._closed.is_set():
                self._runs = True
                threading.Thread(target=self._run, name="overdue", daemon=True).start()

    def close(self) -> None:
        """Look no more. The thread ends at once, or when it has handed on what it is at, for which it waits for nobody."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK):
            with self._lock:
                self._executors = {e for e in self._executors if not e.ended}
                living = [*self._executors]
                if not living:
                    self._runs = False
                    return
            before = time.monotonic() - LOOK
            for executor in living:
                executor.flush_beside(before)
