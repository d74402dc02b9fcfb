"""Many tuples were fast, and from one of them on each takes long: the slice ends after a few of these, not after as many as it was for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout
from elastic.worker.executing import bolts, spouts
from elastic.worker.executing.bolts import BoltDriver
from elastic.worker.executing.looks import FIRST, LATE, MOST
from elastic.worker.executing.spouts import SpoutDriver
from elastic.worker.tuples.batch import Batch
from tests.unit.worker.test_spout_slices import Clock, Task

FAST = 1e-7
SLOW = 10.0
ROWS = 512


class Works:
    """Notes what is done, and how long each takes."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.count, self.slow_from, self.slow = clock, 0, -1, SLOW

    def do(self) -> None:
        self.count += 1
        self.clock.now += self.slow if 0 <= self.slow_from < self.count else FAST


class Counts(Bolt):
    def __init__(self, works: Works) -> None:
        self.works = works

    def execute(self, tup: Any) -> None:
        self.works.do()


class Yields(Spout):
    outputs = Fields(n=int)

    def __init__(self, works: Works, most: int) -> None:
        self.works, self.most = works, most

    def tuples(self) -> Iterator[int]:
        for n in range(self.most):
            self.works.do()
            yield n


class Asked(Spout):
    outputs = Fields(n=int)

    def __init__(self, works: Works, task: Any) -> None:
        self.works, self.task = works, task

    def next_tuple(self) -> None:
        self.works.do()
        self.task.outputs.emitted += 1


def a_task(items: list[Batch]) -> Task:
    def unexpected(error: Exception, *_: Any) -> None:
        raise AssertionError from error

    outputs = SimpleNamespace(emitted=0, unrouted=0, waiting=lambda: 0)
    return Task(
        outputs=outputs,
        executed=0,
        stopping=None,
        next=lambda: items.pop(0) if items else None,
        done=lambda batch: None,
        context=SimpleNamespace(source=None),
        marks=SimpleNamespace(finished=False, end=lambda: None),
        spec=SimpleNamespace(vector=False),
        failures=SimpleNamespace(broken=False, failed=unexpected, give_up=unexpected),
        scheduled=True,
        stopped=False,
        executor=None,
    )


Turn = Callable[[], None]


def a_bolt(monkeypatch: pytest.MonkeyPatch) -> tuple[Works, Turn, Task]:
    clock = Clock()
    monkeypatch.setattr(bolts, "time", clock)
    stream: Any = SimpleNamespace(index=0, component="c", spec=SimpleNamespace(id="s"))
    items = [Batch(stream, 1, ROWS, list(range(ROWS))) for _ in range(1000)]
    task, works = a_task(items), Works(clock)
    task.driver = driver = BoltDriver(task, Counts(works), ())  # type: ignore[arg-type]
    return works, lambda: _assert(driver.run(clock.now + bolts.SLICE)), task


def a_spout(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Works, Task], Spout]
) -> tuple[Works, Turn, Task]:
    clock = Clock()
    monkeypatch.setattr(spouts, "time", clock)
    task, works = a_task([]), Works(clock)
    spout = make(works, task)

    def emit_each(values: Iterator[Any], *_: Any) -> int:
        got = sum(1 for _ in values)
        task.outputs.emitted += got
        return got

    spout.__dict__["_emit_each"] = emit_each
    task.spout, task.driver = spout, (driver := SpoutDriver(task, spout, {}))  # type: ignore[arg-type]
    return works, lambda: _assert(driver.run(clock.now + bolts.SLICE)), task


def _assert(true: bool) -> None:
    assert true


def driven(monkeypatch: pytest.MonkeyPatch, kind: str) -> tuple[Works, Turn, Task]:
    if kind == "bolt":
        return a_bolt(monkeypatch)
    if kind == "generator":
        return a_spout(monkeypatch, lambda works, _: Yields(works, 1 << 30))
    return a_spout(monkeypatch, Asked)


KINDS = ["bolt", "generator", "asked"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [0, 1, 17, 100, 300, 450])
def test_what_becomes_slow_ends_the_slice(monkeypatch: pytest.MonkeyPatch, kind: str, at: int) -> None:
    works, turn, task = driven(monkeypatch, kind)
    for _ in range(10):
        turn()
    works.slow_from = slow_from = works.count + at
    while works.count <= slow_from:
        turn()
    assert works.count - slow_from <= MOST
    assert works.count == task.executed, "nothing is left out, nor done twice"
    before = works.count
    turn()
    assert works.count - before <= FIRST


@pytest.mark.parametrize("kind", KINDS)
def test_planted_fault_a_driver_that_never_looks_is_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    module = bolts if kind == "bolt" else spouts
    monkeypatch.setattr(module, "MOST", 1 << 20)
    monkeypatch.setattr(module, "FIRST", 1 << 20)
    with pytest.raises(AssertionError):
        test_what_becomes_slow_ends_the_slice(monkeypatch, kind, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_fast_is_hardly_looked_at(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    works, turn, task = driven(monkeypatch, kind)
    for _ in range(20):
        turn()
    works.clock.looks, before = 0, task.executed
    turn()
    assert works.clock.looks < (task.executed - before) / 30


def test_a_slice_of_a_thread_that_waits_its_turn_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes many times as long as it is meant to, as others compute: no reason to leave a batch in the middle."""
    works, turn, task = a_bolt(monkeypatch)
    for _ in range(10):
        turn()
    whole = task.executed
    assert whole % ROWS == 0
    works.slow_from, works.slow = works.count, 0.9 * LATE / ROWS
    turn()
    assert task.executed == whole + ROWS


@pytest.mark.parametrize("most", [0, FIRST - 1, FIRST, FIRST + 2 * FIRST, 1000])
def test_a_generator_that_ends_is_exhausted_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Also where it ends just before a look."""
    works, _, task = a_spout(monkeypatch, lambda works, _: Yields(works, most))
    driver, spout = task.driver, task.spout
    ended: list[int] = []
    spout.exhausted = lambda: ended.append(works.count)
    assert driver._take(spout.tuples(), 1001) == most and ended == [most]


def test_a_task_that_gives_up_at_a_look_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    works, _, task = a_spout(monkeypatch, lambda works, _: Yields(works, 1000))

    def fails_at_the_end(values: Iterator[Any], *_: Any) -> int:
        got = sum(1 for _ in values)
        task.failures.broken = True
        return got

    task.spout.__dict__["_emit_each"] = fails_at_the_end
    assert task.driver._take(task.spout.tuples(), 1000) == FIRST == works.count
