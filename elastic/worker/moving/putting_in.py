"""What comes ahead of a task, put in slice by slice on the executor that the task is to run on.

The memory that a large table takes is made on another thread meanwhile: the executor has other tasks.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from elastic import timeslice
from elastic.worker.content import Step
from elastic.worker.memory import TableMemory

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor

SLICE = 0.002
"""Seconds that putting in takes from an executor at a time; those for which others go first do not count."""


class PuttingIn:
    """One lot of steps. Each slice stands in the executor's queue, behind what its tasks have to do; from `hurry` on before that.

    Args:
        home: Where to have it done.
        check: Called before each slice; what it raises ends it.
        steps: Each is a fraction of a slice, and tells what is to be done before the next one. Closed when it is given up.
        aside: Has something done on another thread, soon. It may raise.

    Attributes:
        done: Answered when all steps are done, or one has raised.
    """

    def __init__(
        self,
        home: Executor,
        check: Callable[[], object],
        steps: Generator[Step, None, None],
        aside: Callable[[Callable[[], None]], object],
    ) -> None:
        self.done: Future[None] = Future()
        self._home, self._check, self._steps, self._aside = home, check, steps, aside
        self._lock = threading.Lock()
        self._urgent = self._makes_memory = False
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
            if self._makes_memory:
                return  # the next slice is asked for after that
        self._post()

    def _post(self) -> None:
        with self._lock:
            self._turn += 1
            turn, post = self._turn, self._home.urge if self._urgent else self._home.call
        post(lambda: self._slice(turn))

    def _slice(self, turn: int) -> None:
        with self._lock:
            if turn != self._turn or self._makes_memory or self.done.done():
                return
        try:
            self._check()
            until = time.monotonic() + SLICE
            for step in self._steps:
                if step.memory is not None:
                    with self._lock:
                        self._makes_memory = True
                    self._aside(functools.partial(self._make, step.memory))
                    return
                if step.others_first:
                    until += timeslice.give_way()
                if time.monotonic() >= until:
                    self._post()
                    return
            self.done.set_result(None)
        except BaseException as e:
            try:
                self._steps.close()
            finally:
                self.done.set_exception(e)

    def _make(self, memory: TableMemory) -> None:
        """On another thread."""
        try:
            memory.make_ready()
        finally:
            with self._lock:
                self._makes_memory = False
            self._post()
