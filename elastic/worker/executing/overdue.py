"""Has handed on what user code has emitted within a call that does not return.

An executor hands on what its tasks emit between two slices of work, which take milliseconds. A generator that has yielded all that there
was and waits for more, or a bolt that emits and then computes for long, would keep it back until the next thing happens, for ever maybe.
There is no event for "it has not returned": this is a timer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor

LOOK = 0.05
"""Seconds between two looks, and for which a call has to have lasted. Not those of a slice: beside others that compute, a slice lasts a
multiple of them, and what is handed on more often has smaller batches."""


class Overdue:
    """Of one worker.

    Args:
        living: Gives its executors.
    """

    def __init__(self, living: Callable[[], Sequence[Executor]]) -> None:
        self._living = living
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """There is an executor to look at. With the worker's lock."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, name="overdue", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Look no more. It ends at once, or when it has handed on what it is at, for which it waits for nobody."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK):
            before = time.monotonic() - LOOK
            for executor in self._living():
                executor.flush_beside(before)
