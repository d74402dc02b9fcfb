"""What user code does badly: raises, returns nonsense, never returns, ends its thread. It is said, it is bounded, nothing hangs."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from elastic import Bolt, CustomGrouping, Fields, Spout, TaskHook, Topology, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.cluster.worker_voice import Voice
from elastic.errors import AlreadyExists, ExecutionError, NotShippable
from elastic.local import LocalCluster, LocalRun, run
from elastic.model.events import Event, Severity
from elastic.model.words import plain
from elastic.supervisor.messages import Messages
from elastic.testing import collect
from elastic.worker.executing import failures
from elastic.worker.executing.executor import Executor
from elastic.worker.report import Measurer
from elastic.worker.shown import described, shown, user_traceback

LIMIT = 30.0
_signals: dict[str, threading.Event] = {}


def signal(name: str) -> threading.Event:
    return _signals.setdefault(name, threading.Event())


class Count(Spout):
    """0, 1, 2, ... up to `most`; for ever when it is 0."""

    outputs = Fields(n=int)

    def __init__(self, most: int = 10) -> None:
        self.most = most
        self.n = 0

    def next_tuple(self) -> None:
        if self.most and self.n >= self.most:
            self.exhausted()
            return
        self.emit(self.n)
        self.n += 1


class Do(Bolt):
    """Calls functions at the points of its life."""

    outputs = Fields(n=int)

    def __init__(self, **calls: Callable[..., Any]) -> None:
        self.calls = calls

    def _do(self, point: str, *arguments: Any) -> None:
        if point in self.calls:
            self.calls[point](*arguments)

    def prepare(self, context: Any) -> None:
        self._do("prepare")

    def execute(self, tup: Any) -> None:
        self._do("execute", tup.n)
        self.emit(tup.n)

    def tick(self) -> None:
        self._do("tick")

    def finish(self) -> None:
        self._do("finish")

    def cleanup(self) -> None:
        self._do("cleanup")


def oops(*_: Any) -> None:
    raise ValueError("oops")


def leave(*_: Any) -> None:
    sys.exit(3)


def odd(n: int) -> None:
    if n % 2:
        raise ValueError(f"{n} is odd")


def topology(bolt: Bolt, spout: Spout | None = None, sink: Bolt | None = None, **config: Any) -> Topology:
    b = TopologyBuilder("t", **config)
    b.spout("numbers", spout or Count())
    b.bolt("bolt", bolt).shuffle("numbers")
    if sink is not None:
        b.bolt("sink", sink).shuffle("bolt")
    return b.build()


def kinds(r: LocalRun) -> list[str]:
    return [e.kind for e in r.events]


class Waiting:
    """Told of events; waits for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.came = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self.came:
            self.events.append(event)
            self.came.notify_all()

    def wait_for(self, kind: str) -> Event:
        with self.came:
            assert self.came.wait_for(lambda: any(e.kind == kind for e in self.events), LIMIT), self.events
            return next(e for e in self.events if e.kind == kind)


# ---------------------------------------------------------------- raising


def test_tuples_whose_execution_raises_are_counted_and_said_and_the_others_go_on() -> None:
    out = collect()
    r = run(topology(Do(execute=odd), Count(100), out), timeout=LIMIT)
    assert sorted(n for (n,) in out.rows) == list(range(0, 100, 2))
    assert r.failed_tuples == 50 and r.metrics()["bolt"]["failed"] == 50
    assert r.metrics()["bolt"]["executed"] == 50
    failed = [e for e in r.events if e.kind == "tuple-failed"]
    assert len(failed) == 12, "ten, then at 20 and 40"
    first = failed[0]
    assert first.severity is Severity.ERROR and first.component == "bolt" and "1 is odd" in first.message
    assert "n=1" in str(first.details["tuple"]) and "in odd" in str(first.details["traceback"])
    assert "elastic/worker" not in str(first.details["traceback"]).replace(__file__, "")


def test_a_field_that_a_tuple_does_not_have_is_said_with_those_that_it_has() -> None:
    class Misread(Bolt):
        outputs = Fields(n=int)

        def execute(self, tup: Any) -> None:
            self.emit(tup.m)

    r = run(topology(Misread(), Count(1)), timeout=LIMIT)
    assert any("no attribute 'm' (its fields: n)" in e.message for e in r.events)


@pytest.mark.parametrize(("most", "failed"), [(0, 1), (3, 4)])
def test_too_many_errors_fail_the_topology_with_the_users_traceback(most: int, failed: int) -> None:
    with pytest.raises(ExecutionError, match=f"max_errors={most}") as e:
        run(topology(Do(execute=oops), Count(1000), max_errors=most), timeout=LIMIT)
    assert "in oops" in str(e.value) and f"after {failed} failed" in str(e.value)


@pytest.mark.parametrize("point", ["prepare", "execute", "tick", "finish"])
@pytest.mark.parametrize("what", [oops, leave])
def test_whatever_is_raised_wherever_the_topology_ends_with_a_reason(
    point: str, what: Callable[..., None]
) -> None:
    config: dict[str, Any] = {"tick_interval": 0.01} if point == "tick" else {}
    spout = Count(0) if point == "tick" else Count()
    with pytest.raises(ExecutionError) as e:
        run(topology(Do(**{point: what}), spout, max_errors=0, **config), timeout=LIMIT)
    assert f"in {what.__name__}" in str(e.value), "the user's traceback"
    assert ("oops" if what is oops else "SystemExit") in str(e.value)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_the_check_a_dead_thread_would_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: an executor that lets SystemExit end its thread, and does not tell."""

    def unguarded(self: Executor, task: Any) -> None:
        if task.run(time.monotonic() + 0.002):
            self.ready.put(task)

    monkeypatch.setattr(Executor, "_run_task", unguarded)
    monkeypatch.setattr(Executor, "_told", lambda self, what: what())
    with LocalCluster() as cluster:
        r = cluster.submit(topology(Do(execute=leave)))
        next(e for i, e in r.worker.executors.named.items() if i.component == "bolt").thread.join(LIMIT)
        assert not r.failed and not r.finished


@pytest.mark.parametrize("what", [oops, leave])
def test_cleanup_that_raises_is_a_warning_and_does_not_stop_others(what: Callable[..., None]) -> None:
    def cleaned() -> None:
        signal(f"cleaned{what}").set()

    with LocalCluster() as cluster:
        r = cluster.submit(topology(Do(cleanup=what), sink=Do(cleanup=cleaned))).wait(LIMIT)
        r.stop()
    assert kinds(r).count("cleanup-failed") == 1
    assert signal(f"cleaned{what}").is_set()


class EmitsInCleanup(Bolt):
    outputs = Fields(n=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.n)

    def cleanup(self) -> None:
        for n in range(10_000):
            self.emit(n)


def test_a_cleanup_that_emits_to_nobody_does_not_hold_up_the_end_and_is_said() -> None:
    with LocalCluster() as cluster:
        r = cluster.submit(topology(EmitsInCleanup(), Count(0), Do(), queue_rows=8))
        r.stop()
        assert "cleanup-failed" not in kinds(r)
        (said,) = (e for e in r.events if e.kind == "cleanup-emitted")
        assert "emitted 10,000 tuples, which nobody takes any more" in said.message


class Bad(Spout):
    outputs = Fields(n=int)

    def __init__(self, what: Any) -> None:
        self.what = what

    def next_tuple(self) -> Any:
        return self.what() if callable(self.what) else self.what


@pytest.mark.parametrize("what", [oops, leave, "soon", [1], math.nan])
def test_a_spout_that_raises_or_returns_nonsense_fails_with_a_reason(what: Any) -> None:
    with pytest.raises(ExecutionError, match="numbers"):
        run(topology(Do(), Bad(what), max_errors=2), timeout=LIMIT)


@pytest.mark.parametrize("what", [math.inf, 1e300, 10**400, 0.0, -1, True])
def test_any_number_of_seconds_will_do(what: Any) -> None:
    with LocalCluster() as cluster:
        r = cluster.submit(topology(Do(), Bad(what)))
        assert r.deactivate(LIMIT)
        assert not r.failed


class Generator(Spout):
    outputs = Fields(n=int)

    def __init__(self, values: list[Any], error: bool = False) -> None:
        self.values = values
        self.error = error

    def tuples(self) -> Iterator[Any]:
        yield from self.values
        if self.error:
            raise OSError("the source is gone")


def test_a_generator_that_raises_fails_the_topology() -> None:
    with pytest.raises(ExecutionError, match="the source is gone"):
        run(topology(Do(), Generator([1, 2], True)), timeout=LIMIT)


def test_what_a_generator_yields_and_cannot_be_emitted_fails_alone() -> None:
    out = collect()
    r = run(topology(Do(), Generator([1, (2, 3), 4, ()]), out), timeout=LIMIT)
    assert [n for (n,) in out.rows] == [1, 4]
    assert r.failed_tuples == 2


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def unspeakable(*_: Any) -> None:
    raise Unspeakable


def test_an_error_that_cannot_be_told_is_told_all_the_same() -> None:
    r = run(topology(Do(execute=unspeakable)), timeout=LIMIT)
    assert r.failed_tuples == 10
    assert "Unspeakable" in r.events[0].message


def test_texts_are_bounded_and_can_be_sent() -> None:
    assert len(described(ValueError("x" * 10**6))) < 3000
    assert len(shown("x" * 10**8)) < 1000
    assert plain("a\udcffb", 100) == "a\\udcffb"
    try:
        try:
            oops()
        except ValueError as e:
            raise KeyError("later") from e
    except KeyError as e:
        told = user_traceback(e)
    assert "oops" in told and "direct cause" in told and "later" in told


def test_what_users_say_reaches_the_supervisor_whatever_it_is() -> None:
    import os

    class Measurer:
        def report(self) -> Any:
            raise RuntimeError("no measurements")

    read, write = os.pipe()
    voice = Voice(write, Measurer(), 1000.0)  # type: ignore[arg-type]
    voice.start()
    voice.say(Event(0.0, "bad", "lone \udcff"))  # planted: what `Worker.event` does not let through
    voice.say(Event(0.0, "good", "words"))
    voice.close()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        got = Messages().feed(pipe.read())
    assert [getattr(m, "kind", m) for m in got] == ["good"]


def surrogates(n: int) -> None:
    raise ValueError("caf\udce9")


def test_events_hold_nothing_that_cannot_be_encoded() -> None:
    from elastic.model import codec

    r = run(topology(Do(execute=surrogates)), timeout=LIMIT)
    for event in r.events:
        assert codec.decode(codec.encode(event), Event) == event


# ---------------------------------------------------------------- never returning


def test_a_call_that_does_not_return_is_reported_with_its_stack_and_stop_is_bounded() -> None:
    release = signal("release")
    release.clear()

    def hang(_: int) -> None:
        release.wait(LIMIT)

    told = Waiting()
    try:
        cluster = LocalCluster()
        r = cluster.submit(topology(Do(execute=hang), watchdog=0.1, stop_grace=0.2), told)
        stuck = told.wait_for("executor-stuck")
        assert "in hang" in str(stuck.details["traceback"]) and stuck.component == "bolt"
        other = cluster.submit(topology(Do()).renamed("other"))
        with pytest.raises(ExecutionError, match="in hang"):
            cluster.close()
        assert not any(e.thread.is_alive() for e in other.worker.executors.ending()), (
            "the other one was stopped too"
        )
    finally:
        release.set()
    for thread in [e.thread for e in r.worker.executors.ending()]:
        thread.join(LIMIT)


def test_without_any_grace_nobody_is_blamed_whose_calls_return() -> None:
    for _ in range(5):
        cluster = LocalCluster()
        signal("began").clear()
        cluster.submit(topology(Do(execute=lambda _: signal("began").set()), stop_grace=0))
        assert signal("began").wait(LIMIT)
        cluster.close()  # raises if somebody is


def test_a_call_that_returns_after_all_is_said_too() -> None:
    release = signal("after all")
    release.clear()
    told = Waiting()

    def hang(_: int) -> None:
        release.wait(LIMIT)

    with LocalCluster() as cluster:
        cluster.submit(topology(Do(execute=hang), Count(0), watchdog=0.1), told)
        told.wait_for("executor-stuck")
        release.set()
        told.wait_for("executor-moves-again")


class Connects(CustomGrouping):
    """Its `prepare` waits for somebody."""

    def prepare(self, targets: Sequence[int]) -> None:
        signal("connected").wait(2 * LIMIT)
        self.targets = targets

    def choose(self, values: tuple[Any, ...]) -> Sequence[int]:
        return self.targets


def test_a_task_whose_making_does_not_return_is_reported_and_that_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signal("connected").clear()
    told, measurers = Waiting(), []

    def measuring(worker: Any) -> Measurer:
        measurers.append(Measurer(worker))
        return measurers[-1]

    monkeypatch.setattr("elastic.local.Measurer", measuring)
    b = TopologyBuilder("t", watchdog=0.1)
    b.spout("numbers", Count())
    b.bolt("bolt", Do()).custom("numbers", Connects())
    with LocalCluster() as cluster:
        # Who submits is held up by it.
        submitting = threading.Thread(target=cluster.submit, args=(b.build(), told), daemon=True)
        submitting.start()
        try:
            stuck = told.wait_for("executor-stuck")
            # Nor is anybody held up who measures.
            reporting = threading.Thread(target=measurers[0].report, daemon=True)
            reporting.start()
            reporting.join(LIMIT)
            assert not reporting.is_alive()
        finally:
            signal("connected").set()
            submitting.join(LIMIT)
        assert "in prepare" in str(stuck.details["traceback"])
        assert (stuck.component, stuck.task) == (
            "numbers",
            1,
        ) and "to make task 1 of 'numbers'" in stuck.message
        assert told.wait_for("executor-moves-again").task == 1


class Told(TaskHook):
    """Waits for somebody when it is told of what was emitted."""

    def on_emit(self, context: TopologyContext, stream: str, count: int) -> None:
        signal("told").wait(2 * LIMIT)


def test_a_hook_that_does_not_return_as_something_is_handed_on_is_reported() -> None:
    """That is mostly done between two tuples."""
    signal("told").clear()
    told = Waiting()
    b = TopologyBuilder("t", watchdog=0.1)
    b.spout("numbers", Count(), rate=1000)
    b.bolt("bolt", Do()).shuffle("numbers").hook(Told())
    b.bolt("out", collect()).all_to_one("bolt")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build(), told)
        try:
            stuck = told.wait_for("executor-stuck")
        finally:
            signal("told").set()
        assert "in on_emit" in str(stuck.details["traceback"]) and (stuck.component, stuck.task) == (
            "bolt",
            2,
        )
        told.wait_for("executor-moves-again")
        r.wait(timeout=LIMIT)


class Asks(Bolt):
    """Has a gauge that waits for somebody."""

    def prepare(self, context: TopologyContext) -> None:
        context.gauge("depth", self.depth)

    def depth(self) -> float:
        signal("asked").wait(2 * LIMIT)
        return 1.0

    def execute(self, tup: Any) -> None: ...


def test_a_gauge_whose_function_does_not_return_is_reported() -> None:
    """Nothing is measured until it does."""
    signal("asked").clear()
    told = Waiting()
    b = TopologyBuilder("t", watchdog=0.1)
    b.spout("numbers", Count())
    b.bolt("bolt", Asks()).shuffle("numbers")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build(), told).wait(timeout=LIMIT)
        measuring = threading.Thread(target=r.metrics, daemon=True)
        measuring.start()
        try:
            stuck = told.wait_for("executor-stuck")
        finally:
            signal("asked").set()
            measuring.join(LIMIT)
        assert "in depth" in str(stuck.details["traceback"])
        assert (stuck.component, stuck.task) == ("bolt", 2) and "metrics of task 2 of 'bolt'" in stuck.message
        assert told.wait_for("executor-moves-again").task == 2


def test_a_spout_that_waits_for_room_can_be_stopped() -> None:
    release, came = signal("room"), signal("came")
    release.clear()

    def hang(_: int) -> None:
        came.set()
        release.wait(LIMIT)

    told = Waiting()
    with LocalCluster() as cluster:
        r = cluster.submit(
            topology(Do(execute=hang), Count(0), queue_rows=4, batch_rows=2, stop_grace=LIMIT, watchdog=0.05),
            told,
        )
        assert came.wait(LIMIT)
        told.wait_for("executor-stuck")
        spout = next(e for i, e in r.worker.executors.named.items() if i.component == "numbers")
        threading.Timer(0.05, release.set).start()
        r.stop()
        assert not spout.thread.is_alive()
        assert not [e for e in told.events if e.kind == "executor-stuck" and e.component == "numbers"], (
            "waiting for room is not being stuck"
        )


# ---------------------------------------------------------------- hooks and metrics


class Hook(TaskHook):
    calls: ClassVar[dict[str, int]] = {}

    def __init__(self, bad: bool) -> None:
        self.bad = bad

    def _called(self, name: str, count: int = 1) -> None:
        self.calls[name] = self.calls.get(name, 0) + count
        if self.bad:
            raise LookupError(f"{name} hook")

    def on_execute(self, context: Any, tup: Any, seconds: float) -> None:
        self._called("execute")

    def on_emit(self, context: Any, stream: str, count: int) -> None:
        self._called("emit", count)

    def on_error(self, context: Any, tup: Any, error: BaseException) -> None:
        self._called("error")

    def cleanup(self) -> None:
        self._called("cleanup")


@pytest.mark.parametrize("bad", [False, True])
def test_hooks_are_told_and_what_they_raise_costs_no_tuple(bad: bool) -> None:
    Hook.calls.clear()
    b = TopologyBuilder("t")
    b.spout("numbers", Count(100))
    out = collect()
    b.bolt("bolt", Do(execute=odd)).shuffle("numbers").hook(Hook(bad))
    b.bolt("out", out).shuffle("bolt")
    with LocalCluster() as cluster:
        r = cluster.submit(b.build()).wait(LIMIT)
    assert len(out.rows) == 50 and r.failed_tuples == 50
    assert Hook.calls == {"execute": 50, "emit": 50, "error": 50, "cleanup": 1}
    said = [e.message for e in r.events if e.kind == "hook-failed"]
    assert bool(said) == bad and len(said) < 20
    assert ("cleanup-failed" in kinds(r)) == bad


@dataclass(frozen=True)
class Scale(Bolt):
    outputs: ClassVar = Fields(n=int)
    by: int = 2

    def execute(self, tup: Any) -> None:
        self.emit(tup.n * self.by)


def test_a_component_may_be_a_frozen_dataclass() -> None:
    b, rows = TopologyBuilder("t"), collect()
    b.spout("numbers", Count(3))
    b.bolt("scale", Scale(3)).shuffle("numbers")
    b.bolt("rows", rows).shuffle("scale")
    run(b.build(), timeout=LIMIT)
    assert rows.rows == [(0,), (3,), (6,)]


class Measured(Bolt):
    def prepare(self, context: Any) -> None:
        self.seen = context.counter("seen")
        context.gauge("bad", lambda: 1 / 0)
        context.gauge("nan", lambda: math.nan)
        context.gauge("half", lambda: 0.5)

    def execute(self, tup: Any) -> None:
        self.seen.inc()


def test_metrics_are_summed_and_bad_gauges_cost_only_themselves() -> None:
    b = TopologyBuilder("t")
    b.spout("numbers", Count(100))
    b.bolt("bolt", Measured(), tasks=4, executors=2).shuffle("numbers")
    found = run(b.build(), timeout=LIMIT).metrics()["bolt"]
    assert found["seen"] == 100 and found["half"] == 2.0
    assert "bad" not in found and "nan" not in found


# ---------------------------------------------------------------- the cluster in process


class Uncopyable(Bolt):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def execute(self, tup: Any) -> None:
        pass


def test_a_component_that_cannot_be_copied_is_refused_by_name_and_leaves_no_thread() -> None:
    before = {t.name for t in threading.enumerate()}
    with pytest.raises(NotShippable, match="'lock'"):
        run(topology(Uncopyable()))
    assert not [t for t in {t.name for t in threading.enumerate()} - before if t.startswith("executor")]


@pytest.mark.parametrize("error", [ValueError("not here"), SystemExit("not here")])
def test_a_task_that_cannot_be_made_is_an_error_with_its_reason(error: BaseException) -> None:
    class Chooses(CustomGrouping):
        def prepare(self, tasks: tuple[int, ...]) -> None:
            raise error

    b = TopologyBuilder("t")
    b.spout("count", Count())
    b.bolt("do", Do(), tasks=2).custom("count", Chooses())
    with pytest.raises(ExecutionError, match=f"cannot be made: {type(error).__name__}: not here"):
        run(b.build())


def test_a_name_is_free_again_when_its_topology_has_failed() -> None:
    with LocalCluster() as cluster:
        r = cluster.submit(topology(Do(execute=oops), max_errors=0))
        with pytest.raises(ExecutionError):
            r.wait(LIMIT)
        again = cluster.submit(topology(Do(), Count(0)))
        with pytest.raises(AlreadyExists):
            cluster.submit(topology(Do()))
        assert again.metrics()


def test_the_flood_of_errors_is_told_by_doublings(monkeypatch: pytest.MonkeyPatch) -> None:
    r = run(topology(Do(execute=oops), Count(5000), max_errors=10_000), timeout=LIMIT)
    assert kinds(r).count("tuple-failed") <= 20
    # Planted: without the bound, each one is an event.
    monkeypatch.setattr(failures.Failures, "failed", _tell_all)
    r = run(topology(Do(execute=oops), Count(500)), timeout=LIMIT)
    assert kinds(r).count("tuple-failed") == 500


def _tell_all(self: failures.Failures, error: Exception, tup: Any, count: int = 1) -> None:
    self.count += count
    self._listener.on_task_event(self._task, "tuple-failed", str(error), Severity.ERROR, {})


def test_an_executor_is_measured_by_a_clock_that_its_own_thread_has_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To ask the system for the clock of a thread that has just ended brings the process down."""
    asked: list[tuple[int, int]] = []
    real = time.pthread_getcpuclockid

    def ask(thread: int) -> int:
        asked.append((thread, threading.get_ident()))
        return real(thread)

    monkeypatch.setattr(time, "pthread_getcpuclockid", ask)
    with LocalCluster() as cluster:
        r = cluster.submit(topology(Do(), Count(0)))
        executors = list(r.worker.executors.named.values())
        r.stop()
        for executor in executors:
            executor.thread.join(LIMIT)
            assert executor.cpu.seconds() == executor.cpu.seconds() >= 0.0
    assert len(asked) == len(executors) == 2 and all(a == b for a, b in asked)
