"""Who looks for what, of many states that are copied ahead at once: each is looked for soon, and no more often than there is something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.api.components import StatefulBolt
from elastic.api.state import KeyedState
from elastic.errors import Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.worker.content import Step
from elastic.worker.content.layout import VERSION, Meta, write_meta
from elastic.worker.executing.haste import Haste
from elastic.worker.moving import fetching
from elastic.worker.moving.fetching import THREADS, Fetching
from elastic.worker.moving.moving import Side

LIMIT = 30.0
POOL = 8
"""Threads that others have work done by, as in a worker."""


def note(*, caught_up: bool = True) -> bytes:
    return write_meta(Meta(VERSION, [], None, [], last=False, caught_up=caught_up))


class Window(StatefulBolt):
    window = KeyedState(int)

    def execute(self, tup: Any) -> None: ...


class Home:
    """An executor: a thread."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    def call(self, what: Callable[[], None]) -> None:
        self.pool.submit(what)

    urge = call


class World:
    """A worker to which tasks come, with stores in which there is a note and nothing else."""

    def __init__(self, find: Callable[[int], bytes]) -> None:
        self.find = find
        self.looks: dict[int, int] = {}
        self.home, self.threads = Home(), ThreadPoolExecutor(POOL)
        self.ready: dict[Side, Future[Any]] = {}
        self._fed, self._changed = set[int](), threading.Condition()
        words = SimpleNamespace(behind=lambda *_: None)
        moves = SimpleNamespace(feed=self._feed, feed_all=lambda events: None, words=words)
        moving = SimpleNamespace(
            prepared=self._prepared, check=lambda side: None, comes=lambda task, epoch: True
        )
        worker: Any = SimpleNamespace(
            spec=SimpleNamespace(name="t"), moves=moves, moving=moving, haste=Haste(), streams={}
        )
        self.fetching = Fetching(worker, self, self.threads.submit)  # type: ignore[arg-type]

    def _feed(self, event: Any) -> None:
        if isinstance(event, ev.AheadFetched):
            with self._changed:
                self._fed.add(event.task)
                self._changed.notify_all()

    def _prepared(self, side: Side) -> Future[Any]:
        return self.ready.setdefault(side, Future())

    def prepare(self, task: int) -> None:
        self._prepared(Side(task, 1, 1)).set_result(SimpleNamespace(component=Window(), executor=self.home))

    def ahead(self, task: int, *, prepared: bool = True) -> None:
        if prepared:
            self.prepare(task)
        self.fetching.fetch_ahead(ac.FetchAhead(task, 1, 1, ()))

    def fetch(self, key: str, *_: Any) -> Any:
        task = int(key.rpartition("/")[2])
        meta = self.find(task)
        self.looks[task] = self.looks.get(task, 0) + 1
        return SimpleNamespace(meta=meta, named=[], pieces=[], more=0)

    def is_ahead(self, *tasks: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._fed >= set(tasks), LIMIT)

    def rests(self) -> bool:
        """Whether nobody looks for anything any more, soon."""
        deadline = time.monotonic() + LIMIT
        while any(c.busy for c in list(self.fetching._coming.values())):
            if time.monotonic() > deadline:
                return False
            threading.Event().wait(0.001)
        return True

    def close(self) -> None:
        self.fetching.close()
        for pool in (self.threads, self.home.pool):
            pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # After a look that takes long there is another one, and on a busy machine each may.
    monkeypatch.setattr(fetching, "SOON", LIMIT)
    made = World(lambda task: note())
    yield made
    made.close()


def ring(world: World) -> None:
    """All are asked for before the first look ends."""
    tasks = range(3 * THREADS)
    gate = threading.Event()
    world.find = lambda task: note() if gate.wait(LIMIT) else b""
    for task in tasks:
        world.ahead(task)
    gate.set()
    assert world.is_ahead(*tasks)
    assert world.rests(), "they go on looking"
    assert world.looks == dict.fromkeys(tasks, 1)


def test_nobody_looks_again_for_what_nobody_has_spoken_of(world: World) -> None:
    ring(world)


def test_that_somebody_does_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: whoever leaves its thread to others looks once more, and so do they."""
    others_first = Fetching._others_first

    def leaves(self: Fetching, coming: Any) -> bool:
        coming.more = True
        return others_first(self, coming)

    monkeypatch.setattr(Fetching, "_go_on_looking", lambda self, coming: leaves(self, coming))
    monkeypatch.setitem(globals(), "LIMIT", 1.0)
    with pytest.raises(AssertionError, match="go on looking"):
        ring(world)


def test_those_of_which_copying_lasts_keep_no_thread_from_one_that_is_copied(world: World) -> None:
    copied = threading.Event()
    world.find = lambda task: note(caught_up=task == THREADS or copied.is_set())
    for task in range(THREADS + 1):
        world.ahead(task)
    assert world.is_ahead(THREADS), "and the others are not copied"
    copied.set()
    for task in range(THREADS):
        world.fetching._look_again(task, 1, last=False)
    assert world.is_ahead(*range(THREADS))


def test_those_that_are_yet_to_be_prepared_keep_no_thread_from_one_that_is(world: World) -> None:
    for task in range(THREADS):
        world.ahead(task, prepared=False)
    world.ahead(THREADS)
    assert world.is_ahead(THREADS) and set(world.looks) == {THREADS}
    for task in range(THREADS):
        world.prepare(task)
    assert world.is_ahead(*range(THREADS))


def test_what_does_not_come_after_all_is_looked_for_by_nobody(world: World) -> None:
    world.ahead(1, prepared=False)
    (ready,) = world.ready.values()
    ready.set_exception(RuntimeError("it does not come any more"))
    assert world.is_ahead(1) and world.rests() and not world.looks


def test_that_there_is_more_is_heard_also_during_a_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "UNTOLD", 2 * LIMIT)

    def find(task: int) -> bytes:
        if world.looks:
            return note()
        world.fetching._look_again(task, 1, last=False)
        return note(caught_up=False)

    world.find = find
    world.ahead(1)
    assert world.is_ahead(1) and world.looks == {1: 2}


def test_what_cannot_come_or_be_looked_at_is_ahead_as_far_as_it_will_be(world: World) -> None:
    """The pause does not wait for it: then all of it is fetched."""

    def fails(*_: Any) -> Any:
        raise Unavailable("it does not come any more")

    world.find = fails
    world.ahead(1)
    assert world.is_ahead(1) and world.rests() and not world.fetching._coming
    world.fetching._worker.moving.prepared = fails  # type: ignore[method-assign]
    world.ahead(2, prepared=False)
    assert world.is_ahead(2) and world.rests()


def test_as_many_looks_as_there_are_threads_may_need_memory_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it made by the same threads, they would all wait for it."""
    made: list[int] = []
    for task in range(POOL):
        world.ahead(task)
    assert world.is_ahead(*range(POOL)) and world.rests()
    together, find = threading.Barrier(POOL), world.fetching._find

    def finds(*given: Any) -> Any:
        together.wait(LIMIT)
        return find(*given)

    def ahead(*_: Any) -> Iterator[Step]:
        yield Step(True, SimpleNamespace(make_ready=lambda: made.append(1)))  # type: ignore[arg-type]

    monkeypatch.setattr(world.fetching, "_find", finds)
    for coming in world.fetching._coming.values():
        monkeypatch.setattr(coming.arrival, "ahead", ahead)
    for task in range(POOL):
        world.fetching._look_again(task, 1, last=True)
    assert world.rests() and len(made) == POOL


def test_resting_ends_soon(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Another task may come meanwhile, and all threads rest."""
    rested: list[float | None] = []
    world.ahead(1)
    assert world.is_ahead(1) and world.rests()
    coming = world.fetching._coming[1]
    coming.followed, coming.took, coming.more, coming.busy = 1000, 1000.0, True, True
    monkeypatch.setattr(coming.last, "wait", lambda timeout=None: rested.append(timeout))
    world.fetching._go_on_looking(coming)
    assert rested == [fetching.UNTOLD]
