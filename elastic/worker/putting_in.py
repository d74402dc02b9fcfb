"""What comes ahead of a task, put in slice by slice on the executor that the task is to run on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from elastic import timeslice

if TYPE_CHECKING:
    from elastic.worker.executor import Executor

SLICE = 0.002
"""Seconds that putting in takes from an executor at a time; those for which others go first do not count."""


class PuttingIn:
    """One lot of steps. Each slice stands in the executor's queue, behind what its tasks have to do; from `hurry` on before that.

    Args:
        home: Where to have it done.
        check: Called before each slice; what it raises ends it.
        steps: Each is a fraction of a slice, and tells whether others go first after it.

    Attributes:
        done: Answered when all steps are done, or one has raised.
    """

    def __init__(self, home: Executor, check: Callable[[], object], steps: Iterator[bool]) -> None:
        self.done: Future[None] = Future()
        self._home, self._check, self._steps = home, check, steps
        self._lock = threading.Lock()
        self._urgent = False
        self._turn = 0  # of the slice that is to be carried out: one that was asked for before it is not

    def begin(self, *, urgent: bool) -> None:
        """Have the first slice done."""
        with self._lock:
            self._urgent = self._urgent or urgent
        self._post()

    def hurry(self) -> None:
        """Somebody waits for it: executors may be blocked for long, and only what is urgent is done then. From any thread."""
        with self._lock:
            if self._urgent:
                return
            self._urgent = True
        self._post()

    def _post(self) -> None:
        with self._lock:
            self._turn += 1
            turn, post = self._turn, self._home.urge if self._urgent else self._home.call
        post(lambda: self._slice(turn))

    def _slice(self, turn: int) -> None:
        with self._lock:
            if turn != self._turn or self.done.done():
                return
        try:
            self._check()
            until = time.monotonic() + SLICE
            for others_first in self._steps:
                if others_first:
                    until += timeslice.give_way()
                if time.monotonic() >= until:
                    self._post()
                    return
            self.done.set_result(None)
        except BaseException as e:
            self.done.set_exception(e)
