"""Who looks for what, of many states that are copied ahead at once: each is looked for soon, and no more often than there is something."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.api.components import StatefulBolt
from elastic.api.state import KeyedState
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.worker import brake, copying, fetching, one_by_one
from elastic.worker.content import Copier, Step
from elastic.worker.content.layout import VERSION, Meta, has_caught_up, write_meta
from elastic.worker.copying import COPYING, LASTS, SMALLER, Copying
from elastic.worker.fetching import THREADS, Fetching
from elastic.worker.going import Going
from elastic.worker.haste import Haste
from elastic.worker.moving import Side
from tests.unit.worker.test_brake import Clock

LIMIT = 30.0
POOL = 8
"""Threads that others have work done by, as in a worker."""
COUNT = 20_000
CHANGED = 5000


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
def world() -> Iterator[World]:
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


# ---------------------------------------------------------------------- the old side


class Old:
    """A task that leaves, of which copying is called by the test."""

    def __init__(self) -> None:
        self.bolt = Window()
        self.bolt.window.update((n, n) for n in range(COUNT))
        pace = SimpleNamespace(rate=lambda *_: 1000.0)
        task: Any = SimpleNamespace(
            id=1, brake=None, pace=pace, executed=0, queued=0, capacity=100, call=lambda what: what()
        )
        self.said: list[bool] = []
        write: Any = SimpleNamespace(
            put=lambda data: 1,
            commit=lambda order, meta: self.said.append(has_caught_up(meta)),
            close=lambda: None,
        )
        self.going = Going(task, 1, Copier(self.bolt), write=write)
        assert self.going.copier is not None
        words = SimpleNamespace(stored=lambda *_: None)
        worker: Any = SimpleNamespace(moves=SimpleNamespace(words=words, feed=lambda event: None))
        self.failures: list[BaseException] = []
        self.copying = Copying(worker, SimpleNamespace(), lambda old, e: self.failures.append(e))  # type: ignore[arg-type]
        self.copier = self.going.copier
        self.copier.read_at_once()

    def begin(self) -> None:
        """As it is done at first: until all is copied, and what has changed meanwhile is little."""
        self.going.began = copying.time.monotonic()
        self.copying._copy_ahead(self.going, self.copier, self.going.write)  # type: ignore[arg-type]
        self.going.kept_up = True

    def commit(self) -> None:
        self.copying._commit_ahead(self.going, self.copier, self.going.write)  # type: ignore[arg-type]

    def keep_up(self) -> None:
        self.copying._keep_up_one(self.going)
        assert not self.failures

    def clear(self) -> None:
        self.bolt.window.clear()

    def pop(self) -> None:
        for n in range(CHANGED):
            self.bolt.window.pop(n)

    def odd(self) -> None:
        """All of it goes in the pause from then on."""
        self.bolt.window[float("nan")] = 1  # type: ignore[index]


@pytest.mark.parametrize("goes", [Old.clear, Old.pop, Old.odd])
def test_that_all_is_there_is_said_also_when_what_had_changed_is_gone(goes: Callable[[Old], None]) -> None:
    """The new side waits for that word."""
    old = Old()
    old.begin()
    old.bolt.window.update((n, -1) for n in range(CHANGED))
    old.commit()
    assert old.said[-1] is False, "much has changed since the last slice"
    goes(old)
    old.keep_up()
    assert old.said[-1] is True
    said = len(old.said)
    old.keep_up()
    assert len(old.said) == said, "it is said once"


def test_its_executor_is_asked_only_when_more_has_changed_than_is_left_to_the_pause() -> None:
    """Of sixteen tasks that wait for their turns it would be asked all the time."""
    old = Old()
    old.begin()
    old.commit()
    asked: list[int] = []
    call = old.going.task.call

    def calls(what: Callable[[], None]) -> None:
        asked.append(1)
        call(what)

    old.going.task.call = calls  # type: ignore[method-assign]
    old.going.behind = True
    for changed in (0, 1, 16):
        old.bolt.window.update((n, -1) for n in range(changed))
        old.keep_up()
    assert not asked and not old.going.behind and not old.failures
    old.bolt.window.update((n, -1) for n in range(CHANGED))
    old.keep_up()
    assert asked


class _Turns:
    """Counts who asks for a turn."""

    def __init__(self, *, late: bool) -> None:
        self.asked, self._late, self._lock = threading.Semaphore(0), late, threading.Lock()

    def acquire(self, timeout: float) -> bool:
        assert timeout == one_by_one.LONGEST
        self.asked.release()
        return not self._late and self._lock.acquire(timeout=LIMIT)

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("size", [SMALLER - 1, SMALLER])
def test_small_states_are_copied_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, size: int, late: bool
) -> None:
    """Unless one of them takes too long, as its executor is within a tuple. Large ones have turns of a slice."""
    one_at_a_time = size < SMALLER and not late
    began, gate, order = threading.Semaphore(0), threading.Event(), list[str]()

    def copies(self: Copying, old: Going, *_: Any) -> None:
        order.append("begins")
        began.release()
        gate.wait(LIMIT)
        order.append("ends")

    monkeypatch.setattr(Copying, "_copy_ahead", copies)
    monkeypatch.setattr(Copying, "_commit_ahead", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up", lambda *_: began.release())
    monkeypatch.setattr(Copying, "_share_of", lambda *_: 1.0)
    worker: Any = SimpleNamespace(spec=SimpleNamespace(name="t"), incarnation="i")
    stores: Any = SimpleNamespace(begin=lambda *_: SimpleNamespace(close=lambda: None))
    one, turns = Copying(worker, stores, lambda old, e: order.append(str(e))), _Turns(late=late)
    one._small._turn = turns  # type: ignore[assignment]
    try:
        for n in range(2):
            copier: Any = SimpleNamespace(read_at_once=lambda size: None, make_ready=lambda: None)
            one.begin(Going(SimpleNamespace(id=n, brake=None), 1, copier), (), size)  # type: ignore[arg-type]
        for _ in range(2):
            if size < SMALLER:
                assert turns.asked.acquire(timeout=LIMIT)
        for _ in range(1 if one_at_a_time else 2):
            assert began.acquire(timeout=LIMIT)
        gate.set()
        for _ in range(3 if one_at_a_time else 2):
            assert began.acquire(timeout=LIMIT)
        assert order == ["begins", "ends"] * 2 if one_at_a_time else order[:2] == ["begins"] * 2
    finally:
        gate.set()
        one.close()


@pytest.mark.parametrize(("batches", "share"), [(1, 1 / 8), (2, 1 / 4), (8, 1.0), (0, 0.0)])
def test_tasks_of_a_batch_share_a_rest(monkeypatch: pytest.MonkeyPatch, batches: int, share: float) -> None:
    """Eight tasks, in that many batches; without a move that is still known there is none."""
    shares: list[float] = []

    @contextmanager
    def turn(share: float) -> Iterator[None]:
        shares.append(share)
        yield

    monkeypatch.setattr(Copying, "_copy_all", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up", lambda *_: None)
    record = SimpleNamespace(batches=batches, tasks=range(8))
    view = SimpleNamespace(move={1: SimpleNamespace(record=record)}.get if batches else {}.get)
    worker: Any = SimpleNamespace(moves=SimpleNamespace(participant=SimpleNamespace(view=view)))
    one = Copying(worker, worker, lambda old, e: pytest.fail(str(e)))
    monkeypatch.setattr(one._small, "turn", turn)
    try:
        for size in (SMALLER - 1, SMALLER):
            going: Any = SimpleNamespace(id=0, brake=None)
            one._begin(Going(going, 1, going), (), size)
        assert shares == [share], "a large one rests slice by slice"
    finally:
        one.close()


def test_a_small_state_that_waits_for_others_of_its_move_is_not_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    monkeypatch.setattr(brake, "time", clock)
    old = Old()
    old.begin()
    clock.now += LASTS + 1
    old.keep_up()
    assert not old.going.brake.large and old.going.task.brake is None


def test_the_brake_of_a_move_that_is_over_stays_with_no_task() -> None:
    old = Old()

    def rate(*_: Any) -> float:
        old.going.end(None, {})  # it is given up at that very moment
        return 1.0

    old.going.task.pace.rate = rate  # type: ignore[method-assign]
    old.copying._copy_some(old.going, old.copier, old.going.write)  # type: ignore[arg-type]
    assert old.going.ended and old.going.task.brake is None


def test_what_changes_is_copied_before_others_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more states than threads that copy."""
    order: list[tuple[str, int]] = []
    began, gates = threading.Semaphore(0), [threading.Event() for _ in range(2 * COPYING)]

    def copies(self: Copying, old: Going, *_: Any) -> None:
        began.release()
        gates[old.task.id].wait(LIMIT)

    def keeps_up(self: Copying, old: Going) -> None:
        order.append(("kept up", old.task.id))
        old.ended = True
        began.release()

    monkeypatch.setattr(Copying, "_copy_ahead", copies)
    monkeypatch.setattr(Copying, "_commit_ahead", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up_one", keeps_up)
    worker: Any = SimpleNamespace(spec=SimpleNamespace(name="t"), incarnation="i")
    stores: Any = SimpleNamespace(begin=lambda *_: SimpleNamespace(close=lambda: None))
    one = Copying(worker, stores, lambda old, e: order.append((str(e), old.task.id)))
    try:
        for n in range(len(gates)):
            copier: Any = SimpleNamespace(
                read_at_once=lambda size: None, make_ready=lambda: None, outrun=False
            )
            task: Any = SimpleNamespace(id=n, brake=None)
            one.begin(Going(task, 1, copier), (), 1 << 20)
        for _ in range(COPYING):
            assert began.acquire(timeout=LIMIT)
        gates[0].set()
        for _ in range(2):  # the next state, and what has changed of the first
            assert began.acquire(timeout=LIMIT)
        assert order == [("kept up", 0)]
    finally:
        for gate in gates:
            gate.set()
        one.close()


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
