"""What nobody waits for: pieces to which nobody refers are removed, the cluster is told of room that is free again."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from statestore.errors import StateStoreError
from statestore.hazelcast.grid import Grid, Placed

_QUEUE = 1024
_BATCH = 64


class Cleaner:
    """One thread. What does not get into its queue, or fails, is left to `collect`.

    Args:
        grid: The cluster.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(_QUEUE)
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="statestore-cleaner", daemon=True)
        self._thread.start()

    def remove(self, keys: Collection[Placed]) -> None:
        """Remove these pieces soon."""
        if keys:
            self.later(partial(self.remove_now, keys))

    def later(self, job: Callable[[], None]) -> None:
        """Do this soon, or never."""
        if not self._closed:
            with contextlib.suppress(queue.Full):
                self._jobs.put_nowait(job)

    def remove_now(self, keys: Iterable[Placed]) -> None:
        """Remove these pieces; some at a time are under way. Raises: Unavailable."""
        under_way: list[Any] = []
        for key in keys:
            under_way.append(self._grid.delete_piece(key))
            if len(under_way) >= _BATCH:
                for future in under_way:
                    self._grid.wait(future)
                under_way = []
        for future in under_way:
            self._grid.wait(future)

    def close(self, timeout: float = 5.0) -> None:
        """Finish what is in the queue, for a bounded time."""
        if self._closed:
            return
        self._closed = True
        try:
            self._jobs.put(None, timeout=timeout)
        except queue.Full:
            return  # a daemon thread, whose client is about to go
        self._thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except StateStoreError:
                continue  # `collect` will find them
