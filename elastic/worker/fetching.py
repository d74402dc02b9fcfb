"""The states of tasks that are about to come: fetched from the nodes' stores, before the pause as far as they were copied ahead.

What has come ahead is put in at once, between two slices of the executor that the task is to run on. Meanwhile the task goes on at its
former place, and more is copied: so it is looked again, until next to nothing is new. What the pause pays for is what has changed since.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from elastic.errors import ElasticError, ExecutionError, NotFound, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.record import state_key
from elastic.model.ids import NodeId
from elastic.worker.content import Arrival
from elastic.worker.content.engine import decode_engine
from elastic.worker.failures import described
from elastic.worker.moving import Payload, Side
from elastic.worker.stores import GROWN, LOT, StateStores, StoredState
from elastic.worker.together import Together

if TYPE_CHECKING:
    from elastic.worker.task import Task
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
T = TypeVar("T")
Nodes = tuple[NodeId, ...]
THREADS = 2
"""For what comes ahead: it must not keep from a thread what comes in a pause."""
ROUNDS = 8
"""Looks at what was copied ahead, at most."""
SOON = 0.03
"""Seconds: when a look and what it brought have taken no longer, what changes in the meantime is left to the pause."""
FOLLOWED = 1.0
"""Seconds for which one goes on looking after it was said that all is here: until the pause, which mostly comes at once."""
FOLLOW_REST = 2
"""Times as long as such a look has taken that nothing is looked at after it, and `SLICE` at least."""
SLICE = 0.002
"""Seconds that putting in takes from an executor at a time."""
LONGEST = 300.0
"""Seconds that such a slice is waited for: `prepare` may last long, and the move's own time ends it before."""


def key_of(worker: Worker, task: int) -> str:
    """What the state of a task is stored under."""
    return state_key(worker.spec.name, task)


class Fetching:
    """The new side's part of the port `elastic.migration.ports.Store`.

    Args:
        submit: Has something done on another thread, soon.
    """

    def __init__(self, worker: Worker, stores: StateStores, submit: Callable[..., None]) -> None:
        self._worker = worker
        self._stores = stores
        self._submit = submit
        self._ready = False
        self._lock = threading.Lock()
        self._arrivals: dict[Side, Arrival] = {}
        self._waiting = 0  # tasks that nobody has looked for yet
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, "states-ahead")
        self._fetches: Together[Nodes, ac.Fetch] = Together(submit, self._fetch_many, LOT)

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get_ready(self) -> None:
        """A task is about to come."""
        if not self._ready:
            self._ready = True
            self._submit(self._stores.get_ready)

    # ------------------------------------------------------------------ before the pause

    def fetch_ahead(self, action: ac.FetchAhead) -> None:
        """See the port."""
        with self._lock:
            self._waiting += 1
        try:
            self._pool.submit(self._fetch_ahead, action)
        except RuntimeError as e:  # the pool is closed
            raise Unavailable("the worker is about to end") from e

    def _fetch_ahead(self, action: ac.FetchAhead) -> None:
        side = Side(action.task, action.epoch, action.attempt)
        with self._lock:
            self._waiting -= 1
        try:
            arrival = self._arrivals[side] = self._on_task(side, lambda task: Arrival(task.component))
            for _ in range(ROUNDS):
                if self._look(side, action.nodes, arrival) < SOON:
                    break
        except Exception as e:
            self._not_ahead(side, e)
            self._worker.moves.feed(ev.AheadFetched(*side))
            return
        self._worker.moves.feed(ev.AheadFetched(*side))
        try:
            self._follow(side, action.nodes, arrival)
        except Exception as e:
            self._not_ahead(side, e)

    def _not_ahead(self, side: Side, error: Exception) -> None:
        """What is in by now is of no use, unless the pause has come."""
        arrival = self._arrivals.get(side)
        if arrival is None or not arrival.over:
            self._arrivals.pop(side, None)
            reason = error.message if isinstance(error, ElasticError) else described(error)
            log.info("task %d is fetched as a whole in its pause: %s", side.task, reason)

    def _look(self, side: Side, nodes: Nodes, arrival: Arrival) -> float:
        """Put in what is new; returns how long that has taken, in seconds."""
        began = time.monotonic()
        found = self._stores.fetch(key_of(self._worker, side.task), side.epoch, nodes, arrival.here)
        steps = arrival.ahead(found.meta, found.named, found.pieces)
        while self._on_task(side, lambda _: _go_on(steps)):
            pass
        return time.monotonic() - began

    def _follow(self, side: Side, nodes: Nodes, arrival: Arrival) -> None:
        """Go on with it until the pause comes, as long as there is no other task to be looked for."""
        until, took = time.monotonic() + FOLLOWED, 0.0
        while not (self._waiting or arrival.over or side not in self._arrivals or time.monotonic() > until):
            if self._closing.wait(max(SLICE, FOLLOW_REST * took)) or arrival.over:
                return
            took = self._look(side, nodes, arrival)

    def _on_task(self, side: Side, what: Callable[[Task], T]) -> T:
        """Have something done on the executor that the task is to run on, once it is prepared there."""
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(what(self._worker.moving.arriving(side)))
            except BaseException as e:
                done.set_exception(e)

        self._worker.moving.home(side).call(call)
        deadline = time.monotonic() + LONGEST
        while not self._closing.is_set():
            try:
                return done.result(1.0)
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise Unavailable(
                        f"the executor of task {side.task} has been busy for {LONGEST:g} s"
                    ) from None
        raise Unavailable("the worker is about to end")

    def forget_ahead(self, side: Side | None) -> None:
        """The task is here, or does not come."""
        if side is not None:
            self._arrivals.pop(side, None)

    # ------------------------------------------------------------------ in the pause

    def fetch(self, action: ac.Fetch) -> None:
        """See the port."""
        if action.size <= GROWN and Side(action.task, action.epoch, action.attempt) not in self._arrivals:
            self._fetches.add(action.nodes, action)
        else:
            self._submit(self._fetch, action)

    def _fetch(self, action: ac.Fetch) -> None:
        key = key_of(self._worker, action.task)
        arrival = self._arrivals.get(Side(action.task, action.epoch, action.attempt))
        if arrival is not None:
            arrival.over = True
        found: StoredState | Exception
        try:
            found = self._stores.fetch(key, action.epoch, action.nodes, arrival.here if arrival else None)
        except Exception as e:
            found = e
        self._worker.moves.feed(self._fetched(action, found, arrival))

    def _fetch_many(self, nodes: Nodes, lot: list[ac.Fetch]) -> None:
        found: Sequence[StoredState | Exception]
        try:
            found = self._stores.fetch_many([(key_of(self._worker, a.task), a.epoch) for a in lot], nodes)
        except Exception as e:
            found = [e] * len(lot)
        self._worker.moves.feed_all([self._fetched(a, f, None) for a, f in zip(lot, found, strict=True)])

    def _fetched(
        self, action: ac.Fetch, found: StoredState | Exception, arrival: Arrival | None
    ) -> ev.Fetched | ev.NewFailed:
        side = (action.task, action.epoch, action.attempt)
        try:
            if isinstance(found, Exception):
                raise found
            if not found.pieces:
                raise ExecutionError("what was saved of it is not all there")
            engine, links, own = decode_engine(found.pieces, self._worker.streams)
        except Exception as e:
            reason = e.message if isinstance(e, ElasticError) else described(e)
            return ev.NewFailed(*side, reason, isinstance(e, NotFound))
        payload = Payload(engine, found.meta, found.named[own:], found.pieces[own:], arrival)
        return ev.Fetched(*side, links, payload)


def _go_on(steps: Iterator[Any]) -> bool:
    """Go on for a slice; returns whether there is more to do."""
    until = time.monotonic() + SLICE
    return any(time.monotonic() >= until for _ in steps)
