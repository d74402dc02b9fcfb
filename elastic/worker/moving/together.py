"""What is to be done for many tasks, done for all that wait at once: a thousand small tasks are a few calls, not a thousand."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

log = logging.getLogger("elastic.worker")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

BESIDE = 2
"""Lots of a kind that are worked off beside each other. Of tasks that stop at the same moment one comes first, and goes by itself: with one
lot at a time the others would wait for all of its way to the stores and back."""


class Together(Generic[K, T]):
    """See the module. While `BESIDE` lots of a kind are worked off, what comes waits for the next one.

    Args:
        submit: Has something called on another thread.
        work: Given a kind and its lot, at most `most` of them; must not raise, which would cost the lot.
        gather: Waits for more that is about to come, for a moment.
    """

    def __init__(
        self,
        submit: Callable[[Callable[[K], None], K], None],
        work: Callable[[K, list[T]], None],
        most: int,
        gather: Callable[[], None] = lambda: None,
    ) -> None:
        self._submit = submit
        self._gather = gather
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[K, list[T]] = {}
        self._threads: dict[K, int] = {}  # that are at a kind, or about to be
        self._coming: set[K] = set()  # kinds to which one is about to come: it takes what waits by then

    def add(self, kind: K, item: T) -> None:
        """Have it done soon. From any thread.

        Raises:
            ElasticError: What `submit` raises: nothing will be done any more.
        """
        with self._lock:
            waiting = self._waiting.setdefault(kind, [])
            waiting.append(item)
            threads = self._threads.get(kind, 0)
            if kind in self._coming or threads >= BESIDE:
                return
            self._coming.add(kind)
            self._threads[kind] = threads + 1
        try:
            self._submit(self._come, kind)
        except BaseException:
            with self._lock:
                self._coming.discard(kind)
                if item in waiting:
                    waiting.remove(item)
                self._leave(kind)
            raise

    def _come(self, kind: K) -> None:
        self._gather()
        with self._lock:
            self._coming.discard(kind)
        self._run(kind)

    def _run(self, kind: K) -> None:
        while True:
            with self._lock:
                waiting = self._waiting[kind]
                if not waiting:
                    self._leave(kind)
                    return
                lot = waiting[: self._most]
                del waiting[: self._most]
                # More was gathered than goes with one lot: nobody who adds something would have another one come.
                beside = bool(waiting) and self._threads[kind] < BESIDE
                self._threads[kind] += beside
            if beside:
                self._have_beside(kind)
            try:
                self._work(kind, lot)
            except BaseException:
                # A defect, which costs this lot. Without the thread the next ones would wait for ever.
                log.exception("%d that were worked off together failed together", len(lot))

    def _have_beside(self, kind: K) -> None:
        try:
            self._submit(self._run, kind)
        except Exception:  # nobody comes any more: who is here works off all of it
            with self._lock:
                self._leave(kind)

    def _leave(self, kind: K) -> None:
        self._threads[kind] -= 1
        if not self._threads[kind]:
            del self._threads[kind], self._waiting[kind]
