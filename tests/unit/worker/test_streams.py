"""Groupings, named streams and their order, the clock, pauses, regrouping: each as a user sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest

from elastic import (
    Bolt,
    CustomGrouping,
    Fields,
    KeyedState,
    Spout,
    StatefulBolt,
    StatefulSpout,
    TopologyBuilder,
)
from elastic.api.context import TopologyContext
from elastic.errors import ExecutionError
from elastic.local import LocalCluster, run
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.testing import SpoutTester, collect
from elastic.worker.emitting.routes import Routes
from elastic.worker.executing import executor as executor_module
from elastic.worker.executing.bolts import SLICE, BoltDriver
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste
from elastic.worker.executing.spouts import SpoutDriver
from tests.unit.worker.harness import InProcess

LIMIT = 30.0


class Pairs(Spout):
    outputs = Fields(key=str, n=int)

    def __init__(self, most: int = 600, keys: int = 30) -> None:
        self.most, self.keys = most, keys

    def tuples(self) -> Iterable[Any]:
        for n in range(self.most):
            yield f"k{n % self.keys}", n


class Tag(Bolt):
    """Says which task got what."""

    outputs = Fields(task=int, key=str, n=int)

    def execute(self, tup: Any) -> None:
        self.emit(self.context.task, tup.key, tup.n)


class Modulo(CustomGrouping):
    def __init__(self, wrong: bool = False) -> None:
        self.wrong = wrong

    def prepare(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def choose(self, values: tuple[Any, ...]) -> Iterable[int]:
        if self.wrong and values[1] == 5:
            return [4711]
        return [self.tasks[values[1] % 2], self.tasks[2]]


def tagged(
    subscribe: Callable[[Any], Any], tasks: int = 4, workers: int = 1, most: int = 600
) -> list[tuple[int, str, int]]:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Pairs(most))
    subscribe(b.bolt("tag", Tag(), tasks=tasks, executors=min(tasks, 2)))
    b.bolt("out", out).all_to_one("tag")
    if workers == 1:
        run(b.build(), timeout=LIMIT)
    else:
        with InProcess(b.build(), workers) as cluster:
            cluster.wait_finished()
    return out.rows


def test_shuffle_is_even() -> None:
    for subscribe in (lambda h: h.shuffle("s"), lambda h: h.none("s"), lambda h: h.local_or_shuffle("s")):
        assert set(Counter(t for t, _, _ in tagged(subscribe)).values()) == {150}


def together(rows: list[tuple[int, str, int]]) -> dict[str, set[int]]:
    found = defaultdict(set)
    for task, key, _ in rows:
        found[key].add(task)
    return found


def test_fields_keep_keys_together_and_in_order() -> None:
    rows = tagged(lambda h: h.fields("s", "key"), workers=2)
    assert all(len(tasks) == 1 for tasks in together(rows).values())
    assert len({t for t, _, _ in rows}) == 4
    by_key = defaultdict(list)
    for _, key, n in rows:
        by_key[key].append(n)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(map(len, by_key.values())) == 600


def test_a_fields_grouping_that_forgets_its_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    real = Routes._choice

    def choice(self: Routes, s: Any, n: int, names: list[str], scope: dict[str, Any]) -> list[str]:
        lines = real(self, s, n, names, scope)
        if f"_memo{n}" in scope:
            turn = iter(range(10**9))
            rows = [self._outputs.outs[t].rows for t in s.targets]
            scope[f"_memo{n}"], scope[f"_miss{n}"] = {}, lambda key: rows[next(turn) % len(rows)]
        return lines

    monkeypatch.setattr(Routes, "_choice", choice)
    assert any(len(t) > 1 for t in together(tagged(lambda h: h.fields("s", "key"))).values())


def test_partial_key_uses_two_tasks_for_a_key_and_evens_out() -> None:
    rows = tagged(lambda h: h.partial_key("s", "key"), tasks=6, most=6000)
    assert all(len(tasks) <= 2 for tasks in together(rows).values())
    assert any(len(tasks) == 2 for tasks in together(rows).values())
    by_task = Counter(t for t, _, _ in rows)
    assert len(by_task) == 6 and max(by_task.values()) < 2 * 1000


def test_all_global_and_custom() -> None:
    assert Counter(t for t, _, _ in tagged(lambda h: h.all("s"), workers=2)) == dict.fromkeys(
        range(2, 6), 600
    )
    assert Counter(t for t, _, _ in tagged(lambda h: h.all_to_one("s"))) == {2: 600}
    assert Counter(t for t, _, _ in tagged(lambda h: h.custom("s", Modulo()))) == {2: 300, 3: 300, 4: 600}


def test_a_custom_grouping_that_names_a_wrong_task_costs_that_tuple() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Pairs(10))
    b.bolt("tag", Tag(), tasks=4).custom("s", Modulo(wrong=True))
    b.bolt("out", out).all_to_one("tag")
    r = run(b.build(), timeout=LIMIT)
    assert r.failed_tuples == 1 and len(out.rows) == 18
    assert "4711" in next(e.message for e in r.events if e.kind == "tuple-failed")


class Unknown(CustomGrouping):
    """Raises an error of its own, at once or when the answer is read."""

    def __init__(self, late: bool) -> None:
        self.late = late

    def choose(self, values: tuple[Any, ...]) -> Iterable[int]:
        regions: dict[str, int] = {}
        return (regions[r] for r in ["region-x"]) if self.late else [regions["region-x"]]


@pytest.mark.parametrize("late", [False, True])
def test_an_error_of_a_custom_grouping_itself_is_told_as_it_is(late: bool) -> None:
    b = TopologyBuilder("t")
    b.spout("s", Pairs(1))
    b.bolt("tag", Tag(), tasks=2).custom("s", Unknown(late))
    said = [e.message for e in run(b.build(), timeout=LIMIT).events if e.kind == "tuple-failed"]
    assert len(said) == 1 and "KeyError: 'region-x'" in said[0] and "which is not one of" not in said[0]


class Vague(CustomGrouping):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def choose(self, values: tuple[Any, ...]) -> Any:
        return self.answer


@pytest.mark.parametrize("answer", [None, 3, [[3]]])
def test_a_custom_grouping_that_chooses_no_tasks_is_told_what_it_should(answer: Any) -> None:
    b = TopologyBuilder("t")
    b.spout("s", Pairs(1))
    b.bolt("tag", Tag(), tasks=2).custom("s", Vague(answer))
    said = [e.message for e in run(b.build(), timeout=LIMIT).events if e.kind == "tuple-failed"]
    assert len(said) == 1 and f"Vague chose {answer}, which is no sequence of tasks" in said[0]


class NothingToGoThrough(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Any:
        return None


def test_a_spout_whose_tuples_are_none_is_told_what_they_should_be() -> None:
    b = TopologyBuilder("t")
    b.spout("s", NothingToGoThrough())
    b.bolt("tag", Tag()).shuffle("s")
    with pytest.raises(
        ExecutionError, match=r"tuples\(\) of NothingToGoThrough returned None, which cannot be iterated"
    ):
        run(b.build(), timeout=LIMIT)
    with pytest.raises(ExecutionError, match="cannot be iterated"):
        SpoutTester(NothingToGoThrough()).run()


@pytest.mark.parametrize(
    "unable",
    [
        lambda h: h.fields("s", "k"),
        lambda h: h.partial_key("s", "k"),
        lambda h: h.custom("s", Unknown(late=False)),
    ],
)
def test_a_tuple_that_cannot_be_routed_for_one_consumer_goes_to_none(unable: Callable[[Any], Any]) -> None:
    for among in (lambda h: h.shuffle("s"), lambda h: h.all("s"), lambda h: h.all_to_one("s")):
        out = collect()
        b = TopologyBuilder("t")
        b.spout("s", Unroutable())
        among(b.bolt("first", out, tasks=2))
        unable(b.bolt("second", out, tasks=2))
        assert run(b.build(), timeout=LIMIT).failed_tuples == 1
        assert out.rows == []


class Unroutable(Spout):
    outputs = Fields("k", n=int)

    def tuples(self) -> Iterable[Any]:
        yield [], 1


def test_local_or_shuffle_stays_in_its_worker() -> None:
    b = TopologyBuilder("t")
    b.spout("s", Pairs(300), tasks=2)
    b.bolt("tag", Tag(), tasks=4).local_or_shuffle("s")
    with InProcess(b.build(), 2) as cluster:
        cluster.wait_finished()
        for w in cluster.workers:
            received = sum(t.executed for t in w.tasks.values() if t.spec.id == "tag")
            assert received == 300


class ToTask(Bolt):
    outputs: ClassVar = {"default": Fields(key=str, n=int), "errors": Fields("n", "why")}

    def execute(self, tup: Any) -> None:
        tasks = self.context.tasks_of("tag")
        if tup.n == 7:
            self.emit_to("errors", tup.n, "seven")
        elif tup.n == 8:
            self.emit_direct(1, tup.key, tup.n)
        elif tup.n == 9:
            self.emit_to("nowhere", tup.n)
        else:
            self.emit_direct(tasks[tup.n % len(tasks)], tup.key, tup.n)


def test_direct_and_named_streams_and_what_is_not_declared() -> None:
    out, errors = collect(), collect()
    b = TopologyBuilder("t")
    b.spout("s", Pairs(60))
    b.bolt("to", ToTask()).shuffle("s")
    b.bolt("tag", Tag(), tasks=3).direct("to")
    b.bolt("out", out).all_to_one("tag")
    b.bolt("errors", errors).shuffle("to", stream="errors")
    r = run(b.build(), timeout=LIMIT)
    assert errors.rows == [(7, "seven")]
    assert len(out.rows) == 57 and all(t - 3 == n % 3 for t, _, n in out.rows)
    said = " ".join(e.message for e in r.events if e.kind == "tuple-failed")
    assert "Task 1 does not take" in said and "'nowhere'" in said and r.failed_tuples == 2


class Both(Spout):
    outputs: ClassVar = {"odd": Fields(n=int), "even": Fields(m=int, text=str)}

    def __init__(self) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        if self.n == 3000:
            self.exhausted()
            return
        if self.n % 3:
            self.emit_to("odd", self.n)
        else:
            self.emit_to("even", self.n, "x")
        self.n += 1


class FromBoth(Bolt):
    outputs = Fields(n=int, stream=str)

    def execute(self, tup: Any) -> None:
        assert self.context.source is not None
        self.emit(tup[0], self.context.source.stream)


@pytest.mark.parametrize("workers", [1, 2])
def test_streams_of_one_source_arrive_in_the_order_of_emission(workers: int) -> None:
    out = collect()
    b = TopologyBuilder("t", batch_rows=7)
    b.spout("s", Both())
    b.bolt("both", FromBoth()).all_to_one("s", stream="odd").all_to_one("s", stream="even")
    b.bolt("out", out).all_to_one("both")
    with InProcess(b.build(), workers, lambda c, i: 1 if c == "both" and workers == 2 else 0) as cluster:
        cluster.wait_finished()
    assert [n for n, _ in out.rows] == list(range(3000))
    assert all((stream == "even") == (n % 3 == 0) for n, stream in out.rows)


@pytest.mark.parametrize("most", [1, 7, 100])
def test_no_more_tuples_are_handed_on_together_than_is_set(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    begin = BoltDriver._begin

    def noted(driver: BoltDriver, batch: Any) -> None:
        counts.append(batch.count)
        begin(driver, batch)

    monkeypatch.setattr(BoltDriver, "_begin", noted)
    b = TopologyBuilder("t", batch_rows=most)
    b.spout("s", Both())
    b.bolt("both", FromBoth()).all_to_one("s", stream="odd").all_to_one("s", stream="even")
    run(b, timeout=LIMIT)
    assert sum(counts) == 3000 and max(counts) <= most


# ---------------------------------------------------------------- clock, pauses, state


class Clock(Bolt):
    outputs = Fields(kind=str)

    def prepare(self, context: Any) -> None:
        self.ticks = 0

    def execute(self, tup: Any) -> None:
        pass

    def tick(self) -> None:
        self.ticks += 1
        assert self.context.source is None
        self.emit("tick")
        if self.ticks == 3:
            _ticked.set()


_ticked = threading.Event()


class MidBatch(Bolt):
    """Every tuple takes longer than a slice: ticks come in the middle of a batch."""

    outputs = Fields(ticked=bool, known=bool)

    def execute(self, tup: Any) -> None:
        began = time.monotonic()
        while time.monotonic() < began + SLICE:
            pass
        self.emit(False, self.context.source is not None)

    def tick(self) -> None:
        self.emit(True, self.context.source is not None)


def test_a_tick_in_the_middle_of_a_batch_knows_no_source() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Position())
    b.bolt("bolt", MidBatch(), tick_interval=0.001).shuffle("s")
    b.bolt("out", out).all_to_one("bolt")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(LIMIT)
    assert set(out.rows) == {(True, False), (False, True)}, "and the next tuple knows it again"


class Finished(Spout):
    """Says in one of its other methods that it will never emit."""

    outputs = Fields(n=int)

    def __init__(self, where: str) -> None:
        self.where = where

    def prepare(self, context: Any) -> None:
        self.said("prepare")

    def tick(self) -> None:
        self.said("tick")

    def activate(self) -> None:
        self.said("activate")

    def said(self, where: str) -> None:
        if where == self.where:
            self.exhausted()

    def next_tuple(self) -> float:
        if "_exhausted" in self.__dict__:
            self.emit(0)
        return 3600.0


@pytest.mark.parametrize("where", ["prepare", "tick", "activate"])
def test_a_spout_that_said_it_is_exhausted_is_asked_no_more(where: str) -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Finished(where), tick_interval=0.01)
    b.bolt("out", out).all_to_one("s")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build())
        if where == "activate":
            assert r.deactivate(LIMIT)
            r.activate()
        r.wait(LIMIT)
    assert out.rows == []


class Pausing(Spout):
    """Emits until told to end; notes what it is told."""

    outputs = Fields(n=int)
    told: ClassVar[list[str]] = []
    end = threading.Event()
    active = True

    def __init__(self) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        assert self.active
        if self.end.is_set():
            self.exhausted()
            return
        self.n += 1
        self.emit(self.n)

    def activate(self) -> None:
        self.active = True
        self.told.append("activate")

    def deactivate(self) -> None:
        self.active = False
        self.told.append("deactivate")


def test_the_clock_ticks_while_there_is_no_input_and_spouts_are_told_of_pauses() -> None:
    _ticked.clear()
    Pausing.end.clear()
    Pausing.told.clear()
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Pausing(), rate=5000)
    b.bolt("clock", Clock(), tick_interval=0.01).shuffle("s")
    b.bolt("out", out).all_to_one("clock")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build())
        assert r.deactivate(LIMIT)
        before = r.metrics()["clock"]["executed"]
        assert _ticked.wait(LIMIT), "ticks come without tuples"
        assert r.metrics()["clock"]["executed"] == before, "drained means that nothing comes any more"
        r.activate()
        Pausing.end.set()
        r.wait(LIMIT)
    assert Pausing.told == ["deactivate", "activate"]
    assert len(out.rows) >= 3


class Position(StatefulSpout):
    outputs = Fields(n=int)

    def __init__(self) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at >= 100:
            self.exhausted()
            return
        self.emit(self.at)
        self.at += 1

    def get_state(self) -> object:
        return self.at

    def set_state(self, state: Any) -> None:
        self.at = state


class Sums(StatefulBolt):
    outputs = Fields(key=int, total=int)
    sums = KeyedState[int, int](int)

    def execute(self, tup: Any) -> None:
        self.sums[tup.n % 3] += tup.n

    def finish(self) -> None:
        for key, total in sorted(self.sums.items()):
            self.emit(key, total)


def test_state_is_given_and_taken() -> None:
    spout, bolt = Position(), Sums()
    spout.set_state(40)
    assert spout.get_state() == 40
    bolt.set_state({"sums": {0: 1000}})
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", spout)
    b.bolt("sums", bolt).shuffle("s")
    b.bolt("out", out).all_to_one("sums")
    run(b.build(), timeout=LIMIT)
    expected = {key: sum(n for n in range(40, 100) if n % 3 == key) for key in range(3)}
    expected[0] += 1000
    assert dict(out.rows) == expected
    assert bolt.get_state() == {"sums": {0: 1000}}, "the pristine instance is nobody's task"


# ---------------------------------------------------------------- pace, regrouping, many tasks, the interpreter lock


class Steady(Spout):
    outputs = Fields(n=int)

    def __init__(self, most: int) -> None:
        self.n, self.most = 0, most

    def next_tuple(self) -> None:
        if self.n == self.most:
            self.exhausted()
            return
        self.n += 1
        self.emit(self.n)


def test_a_rate_is_kept_from_above() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Steady(100), tasks=2, executors=1, rate=1000)
    b.bolt("out", out).shuffle("s")
    began = time.monotonic()
    run(b.build(), timeout=LIMIT)
    assert len(out.rows) == 200
    assert time.monotonic() - began >= 0.19, "200 tuples at 1000 a second can't take less than 0.2 s"


class Idle(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> float:
        self.context.counter("asked").inc()
        return 3600.0


def test_an_idle_spout_is_not_asked_again_and_again() -> None:
    b = TopologyBuilder("t")
    b.spout("s", Idle(), tasks=8)
    b.bolt("out", collect()).shuffle("s")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build())
        assert r.deactivate(LIMIT)  # everything has been looked at once
        r.activate()
        assert r.deactivate(LIMIT)
        assert r.metrics()["s"].get("asked", 0) <= 8 * 3  # paused before it was asked at all, or after


class AskedMeanwhile(Spout):
    outputs = Fields(n=int)
    asked: ClassVar[threading.Event]
    told: ClassVar[threading.Event]

    def next_tuple(self) -> float:
        self.asked.set()
        self.told.wait(LIMIT)
        return 3600.0


def test_a_spout_that_is_told_to_pause_while_it_says_that_it_rests_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Planted fault: the check for that stands beside the timer, not before it, and the pause waits for the hour to pass.
    AskedMeanwhile.asked, AskedMeanwhile.told = threading.Event(), threading.Event()
    set_active = SpoutDriver.set_active

    def tell(driver: SpoutDriver, active: bool, drain: int) -> None:
        set_active(driver, active, drain)
        if not active:
            AskedMeanwhile.told.set()

    monkeypatch.setattr(SpoutDriver, "set_active", tell)
    b = TopologyBuilder("t")
    b.spout("s", AskedMeanwhile())
    b.bolt("out", collect()).shuffle("s")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build())
        assert AskedMeanwhile.asked.wait(LIMIT)
        assert r.deactivate(LIMIT)


def test_regrouping_while_it_runs_says_its_pause_and_loses_nothing() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Pairs(30_000), rate=60_000)
    b.bolt("tag", Tag(), tasks=8, executors=1).fields("s", "key")
    b.bolt("out", out).all_to_one("tag")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build())
        for n in (4, 8, 1, 2):
            r.rebalance(tag=n)
        r.wait(LIMIT)
        assert len([e for e in r.worker.executors.named if e.component == "tag"]) == 2
    assert sorted(n for _, _, n in out.rows) == list(range(30_000))
    pauses = [e.details["pause_ms"] for e in r.events if e.kind == "task-regrouped"]
    assert pauses and all(isinstance(p, float) and p >= 0 for p in pauses)


def test_ten_thousand_tasks() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("s", Pairs(20_000, 10_000))
    b.bolt("tag", Tag(), tasks=10_000, executors=4).fields("s", "key")
    b.bolt("out", out).all_to_one("tag")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build()).wait(60)
        assert len(r.report().tasks) == 10_002
    assert sorted(n for _, _, n in out.rows) == list(range(20_000))


class Short(Bolt):
    """Makes short calls that release the interpreter lock: the worst neighbour."""

    def execute(self, tup: Any) -> None:
        for _ in range(20):
            os.sched_yield()


def heartbeats(yield_every: float) -> int:
    """How often a thread that wants 1 ms pauses came to run while busy executors worked off a fixed number of tuples."""
    code = f"""
import threading, time
from elastic import TopologyBuilder
from elastic.local import LocalCluster
from elastic.worker.executing import executor
from tests.unit.worker.test_streams import Short, Steady
executor.YIELD_EVERY = {yield_every}
b = TopologyBuilder("t")
b.spout("s", Steady(40_000))
b.bolt("short", Short(), tasks=3, executors=3).shuffle("s")
with LocalCluster() as cluster:
    r = cluster.submit(b.build())
    beats, done = 0, threading.Event()
    def beat():
        global beats
        while not done.wait(0.001):
            beats += 1
    thread = threading.Thread(target=beat)
    thread.start()
    r.wait(60)
    done.set()
    thread.join()
print(beats)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(os, "sched_yield"), reason="no sched_yield here")
def test_a_heartbeat_runs_beside_busy_bolts() -> None:
    assert executor_module.YIELD_EVERY <= 0.01
    assert heartbeats(executor_module.YIELD_EVERY) >= 10


class _Clock:
    """Counts the rests that an executor takes."""

    monotonic = staticmethod(time.monotonic)
    thread_time = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self.rests = 0

    def sleep(self, seconds: float) -> None:
        self.rests += 1


@pytest.mark.parametrize("every", [executor_module.YIELD_EVERY, 1e9])
def test_a_busy_executor_rests_at_the_boundaries_of_its_slices(
    every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a planted fault: an executor that never rests."""
    clock = _Clock()
    monkeypatch.setattr(executor_module, "time", clock)
    monkeypatch.setattr(executor_module, "YIELD_EVERY", every)
    b = TopologyBuilder("t")
    b.spout("s", Steady(20_000))
    b.bolt("short", Short()).shuffle("s")
    run(b.build(), timeout=LIMIT)
    assert (clock.rests > 0) == (every < 1)


def test_what_is_asked_of_an_executor_that_has_just_ended_is_not_lost() -> None:
    """A task was handed over, and its former executor ended, between who looked where it runs and what it asked there."""
    ended = threading.Event()
    executor = executor_module.Executor(
        ExecutorId(ComponentId("c"), TaskId(1), TaskId(1)),
        0.005,
        lambda _: ended.set(),
        Hands(),
        Haste(),
    )
    executor.start()
    executor.retire()
    assert ended.wait(LIMIT)
    executor.thread.join(LIMIT)
    asked: list[str] = []
    executor.urge(lambda: asked.append("urgent"))
    executor.call(lambda: asked.append("call"))
    assert asked == ["urgent", "call"]


class Miscounts(Spout):
    outputs = Fields(n=int, key=str)
    emits: ClassVar[list[tuple[Any, ...]]] = [(1,), (1, "a", 2), (1, "a")]

    def prepare(self, context: TopologyContext) -> None:
        self.left = list(self.emits)

    def next_tuple(self) -> None:
        if not self.left:
            self.exhausted()
            return
        self.emit_direct(self.context.tasks_of("out")[0], *self.left.pop(0))


def test_a_wrong_number_of_values_for_a_task_is_told_with_what_there_should_be() -> None:
    b = TopologyBuilder("t")
    b.spout("s", Miscounts())
    out = collect()
    b.bolt("out", out).direct("s")
    with LocalCluster() as cluster:
        events = cluster.submit(b.build()).wait(timeout=60).events
    assert out.rows == [(1, "a")]
    assert [e.message for e in events] == [
        f"'s' (task 1) raised TypeError: emit_direct() takes 2 values (n, key) after the task, not {n}"
        for n in (1, 3)
    ]
