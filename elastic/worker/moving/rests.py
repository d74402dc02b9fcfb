"""The rests of the stream between two batches of a move, as one worker keeps them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

MOST = 0.1
"""Seconds that a rest lasts, at most."""


class Rests:
    """Each lasts as long as those who emit here have held what was for the batch before. Thread-safe.

    Args:
        rested: Called with the move and the batch when a rest is over. From any thread.
        clock: Monotonic seconds.
    """

    def __init__(
        self, rested: Callable[[int, int], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rested, self._clock = rested, clock
        self._changed = threading.Condition()
        self._held: dict[
            int, float
        ] = {}  # move -> since when something is held here for those that stand still
        self._under_way: dict[int, tuple[float, int]] = {}  # move -> until when, and the batch
        self._thread: threading.Thread | None = (
            None  # begun with the first rest: to start one in the midst of a move takes milliseconds
        )
        self._closed = False

    def holds(self, epoch: int) -> None:
        """Something is held here from now on for tasks of that move."""
        with self._changed:
            self._held.setdefault(epoch, self._clock())

    def begin(self, epoch: int, batch: int) -> None:
        """It will be that batch's turn. One of the same move that has not ended yet is left out."""
        with self._changed:
            now = self._clock()
            until = now + min(MOST, now - self._held.pop(epoch, now))
            self._under_way.pop(epoch, None)
            rests = until > now and not self._closed
            if rests:
                self._under_way[epoch] = until, batch
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="rests", daemon=True)
                    self._thread.start()
                self._changed.notify()
        if not rests:
            self._rested(epoch, batch)

    def keep(self, epochs: Collection[int]) -> None:
        """Of other moves nothing is to be known any more."""
        with self._changed:
            for gone in self._held.keys() - epochs:
                del self._held[gone]
            for gone in self._under_way.keys() - epochs:
                del self._under_way[gone]

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = self._clock()
                over = [(e, batch) for e, (until, batch) in self._under_way.items() if until <= now]
                for epoch, _ in over:
                    del self._under_way[epoch]
                if not over:
                    left = min((until for until, _ in self._under_way.values()), default=None)
                    self._changed.wait(None if left is None else left - now)
                    continue
            for epoch, batch in over:
                self._rested(epoch, batch)

    def close(self) -> None:
        """End its thread. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)
