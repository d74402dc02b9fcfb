"""What is to be done for many tasks, done for all that wait at once: a thousand small tasks are a few calls, not a thousand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Together(Generic[K, T]):
    """See the module. While one lot of a kind is worked off, what comes waits for the next one.

    Args:
        submit: Has something called on another thread.
        work: Given a kind and its lot, at most `most` of them; must not raise.
    """

    def __init__(
        self, submit: Callable[[Callable[[K], None], K], None], work: Callable[[K, list[T]], None], most: int
    ) -> None:
        self._submit = submit
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[K, list[T]] = {}  # a kind is in it for as long as a thread is at it

    def add(self, kind: K, item: T) -> None:
        """Have it done soon. From any thread.

        Raises:
            ElasticError: What `submit` raises: nothing will be done any more.
        """
        with self._lock:
            waiting = self._waiting.get(kind)
            if waiting is not None:
                waiting.append(item)
                return
            self._waiting[kind] = [item]
        try:
            self._submit(self._run, kind)
        except BaseException:
            with self._lock:
                del self._waiting[kind]
            raise

    def _run(self, kind: K) -> None:
        while True:
            with self._lock:
                waiting = self._waiting[kind]
                if not waiting:
                    del self._waiting[kind]
                    return
                lot, self._waiting[kind] = waiting[: self._most], waiting[self._most :]
            self._work(kind, lot)
