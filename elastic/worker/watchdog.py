"""Notices calls into user code that do not return, and says where they are."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

from elastic.model.events import Severity

if TYPE_CHECKING:
    from elastic.worker.executor import Executor
    from elastic.worker.worker import Worker


class Watchdog:
    """Reports an executor whose call into user code has not returned for `limit` seconds: once, with its stack, and again when
    it did return.

    There is no event for "nothing has happened": this is a timer, four times per limit and at most once a second.
    """

    def __init__(self, worker: Worker, limit: float) -> None:
        self._worker = worker
        self._limit = limit
        self._stop = threading.Event()
        self._said: dict[Executor, float] = {}
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5)

    def stacks(self) -> str:
        """Where each executor that is in user code is now."""
        frames = sys._current_frames()
        parts = []
        for executor in list(self._worker.executors.values()) + list(self._worker.ending()):
            frame = frames.get(executor.thread.ident or 0)
            if executor.busy_since and frame is not None:
                parts.append(f"{executor.id}:\n{''.join(traceback.format_stack(frame))}")
        return "\n".join(parts)

    def _run(self) -> None:
        while not self._stop.wait(max(1.0, self._limit / 4) if self._limit >= 4 else self._limit / 4):
            self.check(time.monotonic())

    def check(self, now: float) -> None:
        """Look once."""
        for executor in list(self._worker.executors.values()):
            since = executor.busy_since
            before = self._said.get(executor)
            if before is not None and since != before:
                del self._said[executor]
                self._worker.event(
                    "executor-moves-again",
                    f"Executor {executor.id} returned from the call that had been reported.",
                )
            if since and now - since > self._limit and not executor.blocked_on and executor not in self._said:
                self._said[executor] = since
                task = executor.current
                frame = sys._current_frames().get(executor.thread.ident or 0)
                stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
                self._worker.event(
                    "executor-stuck",
                    f"A call into user code by executor {executor.id} has not returned for {now - since:.1f} s.",
                    Severity.WARNING,
                    component=str(executor.id.component),
                    task=task.id if task is not None else 0,
                    details={"traceback": stack, "seconds": round(now - since, 1)},
                )
