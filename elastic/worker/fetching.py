"""The states of tasks that are about to come: fetched from the nodes' stores, before the pause as far as they were copied ahead.

What has come ahead is put in at once, between two slices of the executor that the task is to run on. Meanwhile the task goes on at its
former place, and more is copied: the old side says so, and it is looked again, until next to nothing is new. Also what was saved when the
task stood still is put in at once, while coordination is still being told of it: the pause has but to see that all of it is there.
"""

from __future__ import annotations

import contextlib
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
from elastic.worker.content.engine import decode_engine, engine_pieces
from elastic.worker.content.layout import is_last
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
FOLLOW_REST = 2
"""Times as long as a look has taken that nothing is looked at after it, unless the task stands still: executors have a stream to
work off."""
SLICE = 0.002
"""Seconds that putting in takes from an executor at a time."""
LONGEST = 300.0
"""Seconds that such a slice is waited for: `prepare` may last long, and the move's own time ends it before."""


def key_of(worker: Worker, task: int) -> str:
    """What the state of a task is stored under."""
    return state_key(worker.spec.name, task)


class _Coming:
    """A task of which something comes ahead.

    Attributes:
        last: Set when the old side has saved all of it, or when it is waited for no longer.
        busy: A thread is at it.
        more: There is something that nobody has looked at.
        took: Seconds that the last look has taken.
    """

    def __init__(self, side: Side, nodes: Nodes) -> None:
        self.side, self.nodes = side, nodes
        self.arrival: Arrival | None = None
        self.last = threading.Event()
        self.busy, self.more, self.took = True, False, 0.0

    @property
    def over(self) -> bool:
        """Nothing is put in ahead any more."""
        return self.arrival is not None and self.arrival.over


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
        self._coming: dict[int, _Coming] = {}
        self._waiting = 0  # tasks that nobody has looked for yet: these go first
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, "states-ahead")
        self._fetches: Together[Nodes, ac.Fetch] = Together(submit, self._fetch_many, LOT)

    def close(self) -> None:
        """End its threads; what is under way ends with an error or comes to nothing."""
        self._closing.set()
        with self._lock:
            coming = list(self._coming.values())
        for each in coming:
            each.last.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get_ready(self) -> None:
        """A task is about to come."""
        if not self._ready:
            self._ready = True
            self._submit(self._stores.get_ready)

    # ------------------------------------------------------------------ before the pause

    def fetch_ahead(self, action: ac.FetchAhead) -> None:
        """See the port."""
        side = Side(action.task, action.epoch, action.attempt)
        coming = _Coming(side, action.nodes)
        with self._lock:
            self._coming[side.task] = coming
            self._waiting += 1
        self._on_ahead(self._fetch_ahead, coming)

    def stored(self, task: int, epoch: int, *, last: bool) -> None:
        """The stores have more of a task that may be on its way here. From any thread; comes to nothing when nobody looks for it.

        Args:
            last: That is all: the task stands still, and is waited for.
        """
        with self._lock:
            coming = self._coming.get(task)
            if coming is None or coming.side.epoch != epoch:
                return
            coming.more = True
            if last:
                coming.last.set()
            if coming.busy or (self._waiting and not last):
                return
            coming.busy = True
        with contextlib.suppress(Unavailable):  # nothing is to come any more
            self._on_ahead(self._go_on_looking, coming)

    def _on_ahead(self, what: Callable[[_Coming], None], coming: _Coming) -> None:
        try:
            self._pool.submit(what, coming)
        except RuntimeError as e:  # the pool is closed
            raise Unavailable("the worker is about to end") from e

    def _fetch_ahead(self, coming: _Coming) -> None:
        side = coming.side
        with self._lock:
            self._waiting -= 1
        try:
            coming.arrival = self._on_task(side, lambda task: Arrival(task.component))
            for _ in range(ROUNDS):
                coming.more = False
                if self._look(coming) < SOON:
                    break
        except Exception as e:
            self._not_ahead(coming, e)
        self._worker.moves.feed(ev.AheadFetched(*side))
        self._go_on_looking(coming)

    def _go_on_looking(self, coming: _Coming) -> None:
        """Whenever the old side has said that there is more, until the pause has come."""
        try:
            while self._is_more(coming):
                if not coming.last.wait(FOLLOW_REST * coming.took):
                    coming.took = self._look(coming)
                elif not coming.over:
                    self._look(coming)
        except Exception as e:
            self._not_ahead(coming, e)

    def _is_more(self, coming: _Coming) -> bool:
        with self._lock:
            coming.busy = coming.more and not coming.over and coming is self._coming.get(coming.side.task)
            coming.more = False
            return coming.busy

    def _not_ahead(self, coming: _Coming, error: Exception) -> None:
        """What is in by now is of no use, unless the pause has come."""
        if not coming.over:
            self.forget_ahead(coming.side)
            reason = error.message if isinstance(error, ElasticError) else described(error)
            log.info("task %d is fetched as a whole in its pause: %s", coming.side.task, reason)

    def _look(self, coming: _Coming) -> float:
        """Put in what is new; returns how long that has taken, in seconds."""
        began, side, arrival = time.monotonic(), coming.side, coming.arrival
        assert arrival is not None
        found = self._stores.fetch(
            key_of(self._worker, side.task), side.epoch, coming.nodes, dict(arrival.here)
        )
        # When the task has stopped meanwhile that is all of it, and what the engine knows of it comes first.
        own = engine_pieces(found.pieces) if is_last(found.meta) else 0
        steps = arrival.ahead(found.meta, found.named[own:], found.pieces[own:])
        while self._on_task(side, lambda _: _go_on(steps), urgent=coming.last.is_set()):
            pass
        return time.monotonic() - began

    def _on_task(self, side: Side, what: Callable[[Task], T], *, urgent: bool = False) -> T:
        """Have something done on the executor that the task is to run on, once it is prepared there."""
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(what(self._worker.moving.arriving(side)))
            except BaseException as e:
                done.set_exception(e)

        home = self._worker.moving.home(side)
        (home.urge if urgent else home.call)(call)
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

    def forget_ahead(self, side: Side) -> None:
        """The task is here, or does not come."""
        with self._lock:
            coming = self._coming.get(side.task)
            if coming is None or coming.side != side:
                return
            del self._coming[side.task]
        coming.last.set()  # whoever is about to look again need not wait for that

    # ------------------------------------------------------------------ in the pause

    def fetch(self, action: ac.Fetch) -> None:
        """See the port."""
        if action.size <= GROWN and self._came_ahead(action) is None:
            self._fetches.add(action.nodes, action)
        else:
            self._submit(self._fetch, action)

    def _came_ahead(self, action: ac.Fetch) -> _Coming | None:
        with self._lock:
            coming = self._coming.get(action.task)
        side = Side(action.task, action.epoch, action.attempt)
        return coming if coming is not None and coming.side == side else None

    def _fetch(self, action: ac.Fetch) -> None:
        key = key_of(self._worker, action.task)
        coming = self._came_ahead(action)
        arrival = coming.arrival if coming is not None else None
        if arrival is not None:
            arrival.over = True
        found: StoredState | Exception
        try:
            # A copy: what a look has brought may be going in at this very moment.
            here = dict(arrival.here) if arrival else None
            found = self._stores.fetch(key, action.epoch, action.nodes, here)
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
