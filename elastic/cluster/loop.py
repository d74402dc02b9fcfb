"""What the launcher runs on: one thread that takes one thing at a time, and threads that do what takes
long."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from elastic.queues import take

T = TypeVar("T")
Job = Callable[[], None]
log = logging.getLogger(__name__)


class Loop:
    """Runs jobs in the thread that calls `run`, in the order in which they came. `call` may come from a
    signal handler."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._later: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()

    def call(self, job: Job) -> None:
        """Have a job run as soon as what came before it is done; from any thread."""
        self._jobs.put(job)

    def call_later(self, seconds: float, job: Job) -> None:
        """Have a job run after a while; only from jobs."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), job))

    def run(self, until: Callable[[], bool]) -> None:
        """Run jobs until `until` says so; it is asked after each job. A job that raises ends it."""
        while not until():
            wait = self._later[0][0] - time.monotonic() if self._later else None
            if wait is not None and wait <= 0:
                heapq.heappop(self._later)[2]()
                continue
            try:
                job = take(self._jobs, wait)
            except queue.Empty:
                continue
            job()


class Hand:
    """A thread that does one thing after another for a loop, and says how it went. It lives as long as the
    process: children that it forks would die with it.

    Args:
        loop: Where results are told.
        name: Of the thread.
    """

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._work: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(
        self,
        work: Callable[[], T],
        done: Callable[[T], None] = lambda _: None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Have the thread do something; `done` or `failed` then runs as a job of the loop.

        Args:
            failed: What to do about an exception; None logs it.
        """

        def job() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - told to whoever wanted it done
                if failed is None:
                    log.warning("%s", error)
                else:
                    self._loop.call(lambda error=error: failed(error))  # type: ignore[misc]
            else:
                self._loop.call(lambda: done(result))

        self._work.put(job)

    def finish(self, timeout: float) -> bool:
        """Wait until what was asked for before is done, at most so many seconds. Returns whether it is."""
        reached = threading.Event()
        self._work.put(reached.set)
        return reached.wait(timeout)

    def close(self) -> None:
        """End the thread once what was asked for before is done; not waited for."""
        self._work.put(None)

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            job()
