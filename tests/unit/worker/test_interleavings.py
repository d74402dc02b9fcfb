"""Two threads at the one moment at which it matters: each of these had an end that it must not have."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, StatefulSpout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.local import LocalCluster, LocalRun
from elastic.model.events import Event
from elastic.model.records import TopologyStatus
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing import executors as executors_module
from elastic.worker.executing.executor import Executor
from elastic.worker.moving.copying import Copying
from elastic.worker.moving.moving import MovingTasks
from tests.unit.worker.harness import Ascending, InProcess
from tests.unit.worker.moving_harness import Moving, Nimbus

LIMIT = 30.0
ROOM = 1024


def until(what: Callable[[], Any]) -> None:
    """For what nobody tells of."""
    end = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


class Nothing(Bolt):
    outputs = Fields(number=int)

    def execute(self, tup: Any) -> None:
        pass


# ---------------------------------------------------------------- spouts


class Resting(Spout):
    outputs = Fields(number=int)

    def next_tuple(self) -> float:
        self.context.counter("asked").inc()
        return 3600.0


def test_a_spout_that_is_woken_while_it_rests_has_one_timer_all_the_same() -> None:
    """Each of them would wake it for ever, and begin another."""
    b = TopologyBuilder("t")
    b.spout("s", Resting())
    b.bolt("out", Nothing()).shuffle("s")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        (task,) = (t for t in run.worker.tasks.values() if t.spout is not None)
        for times in range(1, 20):
            until(lambda times=times: run.metrics()["s"].get("asked", 0) >= times)
            until(lambda: not task.scheduled)
            task.wake()
        executor = task.executor
        assert executor is not None and len(executor._timers) == 1


class Noting(Spout):
    """Remembers what is asked of it."""

    outputs = Fields(number=int)
    noted: list[str]

    def next_tuple(self) -> float:
        self.noted.append("asked")
        self.emit(1)
        return 0.01

    def deactivate(self) -> None:
        self.noted.append("deactivated")


def test_a_spout_of_a_deactivated_topology_is_not_asked_when_its_worker_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Noting.noted = []

    class Deactivated(InProcess):
        def apply(self, **executors: int) -> None:
            self.status, self.drain = TopologyStatus.INACTIVE, 1
            super().apply(**executors)

    retire = MovingTasks.retire

    def after_the_first(moving: MovingTasks) -> None:
        until(lambda: Noting.noted)  # its executor is quicker than what follows here
        retire(moving)

    monkeypatch.setattr(MovingTasks, "retire", after_the_first)
    b = TopologyBuilder("t")
    b.spout("s", Noting())
    b.bolt("out", Nothing()).shuffle("s")
    with Deactivated(b.build(), 1) as world:
        world.wait(lambda: world.workers[0].drained() == 1)
        assert Noting.noted == ["deactivated"]


class Counted(StatefulSpout):
    outputs = Fields(number=int)
    at: KeyedState[str, int] = KeyedState(int)

    def next_tuple(self) -> float:
        self.at["n"] += 1
        self.emit(self.at["n"])
        return 0.002


def test_a_spout_that_was_paused_stays_so_in_a_process_that_has_not_heard_of_it() -> None:
    b = TopologyBuilder("t")
    b.spout("s", Counted())
    b.bolt("out", Nothing()).shuffle("s")
    with Moving(b.build(), 2, lambda component, index: 0) as world:
        world.wait(lambda: world.task(2).executed > 10)
        world.status, world.drain = TopologyStatus.INACTIVE, 1
        first, second = world.processes
        first.apply(world.allocation(first, world._assignment()))  # the supervisor of the other one is slower
        world.wait(lambda: first.worker.drained() == 1)
        until(lambda: world.task(2).queued == 0)
        executed = world.task(2).executed
        world.move({1: 1})
        spout = world.task(1).spout
        until(lambda: not spout.active)
        assert world.task(2).executed == executed
        second.apply(world.allocation(second, world._assignment()))
        world.wait(lambda: second.worker.drained() == 1)
        assert world.task(2).executed == executed
        world.status = TopologyStatus.ACTIVE
        world.apply()
        world.wait(lambda: world.task(2).executed > executed + 10)


# ---------------------------------------------------------------- outputs


class Two(Spout):
    """Emits to two; more at once for one of them than a batch, when that has no room."""

    outputs = {"default": Fields(number=int), "others": Fields(number=int)}  # noqa: RUF012
    begin: threading.Event
    armed: threading.Event

    def next_tuple(self) -> None:
        assert self.begin.wait(LIMIT)
        n = 0
        for count in (512, 512, 0, 400, 400):
            if not count:
                self.emit_to("others", 0)
                continue
            self.emit_all(list(range(n, n + count)))
            n += count
            if n == ROOM + 400:
                self.armed.set()
        self.exhausted()


class Filling(Spout):
    outputs = Fields(number=int)
    begin: threading.Event

    def next_tuple(self) -> None:
        assert self.begin.wait(LIMIT)
        for i in range(4 * ROOM):
            self.emit(i)
        self.exhausted()


class Gated(Bolt):
    """Keeps what it gets, from when it may."""

    outputs = Fields(number=int)
    gates: dict[str, threading.Event]
    got: dict[str, list[int]]

    def execute(self, tup: Any) -> None:
        name = str(self.context.component)
        self.got[name].append(tup.number)
        assert self.gates[name].wait(LIMIT)


def test_order_is_kept_while_what_waits_for_room_is_handed_on_within_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch waits for room at `a`; `b` looked idle and is full when it is tried, and by then there is room at `a`."""
    Two.begin, Two.armed, Filling.begin = threading.Event(), threading.Event(), threading.Event()
    Gated.gates = {"a": threading.Event(), "b": threading.Event()}
    Gated.got = {"a": [], "b": []}
    b = TopologyBuilder("t", queue_rows=ROOM)
    b.spout("s", Two())
    b.spout("o", Filling(), tasks=12, executors=12)
    b.bolt("a", Gated()).all_to_one("s")
    b.bolt("b", Gated()).all_to_one("s", stream="others").all_to_one("o")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        tasks = {str(t.spec.id): t for t in run.worker.tasks.values()}
        outputs, flush, tried = tasks["s"].outputs, Outputs._flush, threading.Event()

        def flushes(self: Outputs, out: Any, most: int | None = None) -> None:
            here = self is outputs and out.destination.task == tasks["b"].id
            if here and Two.armed.is_set() and not tried.is_set():
                tried.set()
                Filling.begin.set()
                until(lambda: tasks["b"].queued > 2 * ROOM and tasks["b"]._queue.sources >= 8)
                Gated.gates["a"].set()
                until(lambda: tasks["a"].queued <= 100)
                threading.Timer(0.5, Gated.gates["b"].set).start()
            flush(self, out, most)

        monkeypatch.setattr(Outputs, "_flush", flushes)
        Two.begin.set()
        run.wait(LIMIT)
        assert tried.is_set() and Gated.got["a"] == list(range(ROOM + 800))


def test_a_task_is_taken_away_while_what_it_has_emitted_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tasks of its executor go on."""
    b = TopologyBuilder("t")
    b.spout("s", Ascending(), tasks=2, executors=1, rate=1000)
    b.bolt("out", Nothing()).shuffle("s")
    with InProcess(b.build(), 2, lambda component, index: 0 if component == "s" else 1) as world:
        worker = world.workers[0]
        world.wait(lambda: len(worker.tasks) == 2 and all(t.executed for t in worker.tasks.values()))
        taken, stays = worker.tasks[1], worker.tasks[2]  # type: ignore[index]
        at_it, gone, flush = threading.Event(), threading.Event(), Outputs._flush

        def flushes(self: Outputs, out: Any, most: int | None = None) -> None:
            if self is taken.outputs and not at_it.is_set():
                at_it.set()
                assert gone.wait(LIMIT)
            flush(self, out, most)

        monkeypatch.setattr(Outputs, "_flush", flushes)
        assert at_it.wait(LIMIT)

        def release() -> None:
            with worker.moves.exclusive():
                worker.release(taken)

        releasing = threading.Thread(target=release)
        releasing.start()
        until(lambda: not taken.outputs.pending())
        gone.set()
        releasing.join(LIMIT)
        executed = stays.executed
        world.wait(lambda: taken.closed and stays.executed > executed + 10)
        assert not stays.closed


class Flood(Bolt):
    outputs = Fields(number=int)
    inside: threading.Event

    def execute_batch(self, batch: Any) -> None:
        self.inside.set()
        for n in range(20 * ROOM):
            self.emit(n)


class Thirty(Spout):
    outputs = Fields(number=int)

    def __init__(self) -> None:
        self.times = 0

    def next_tuple(self) -> float | None:
        self.times += 1
        if self.times > 3:
            return 1.0
        for n in range(10):
            self.emit(n)
        return None


def test_room_is_given_back_for_record_batches_whose_task_is_taken_away() -> None:
    """While it waits for room itself, within one of them."""
    pytest.importorskip("pyarrow")
    Flood.inside = threading.Event()
    Gated.gates, Gated.got = {"sink": threading.Event()}, {"sink": []}
    b = TopologyBuilder("t", queue_rows=ROOM)
    b.spout("s", Thirty())
    b.bolt("flood", Flood()).shuffle("s")
    b.bolt("sink", Gated()).shuffle("flood")
    with InProcess(b.build(), 2, lambda component, index: 0 if component == "s" else 1) as world:
        assert Flood.inside.wait(LIMIT)
        worker = world.workers[1]
        (task,) = (t for t in worker.tasks.values() if str(t.spec.id) == "flood")
        until(lambda: task.executor is not None and task.executor.blocked_on)
        link: Any = next(iter(world.workers[0]._transport.links.values()))  # type: ignore[union-attr]
        window = link._outbound._windows[task.id]
        until(lambda: window.rows_sent == 30)
        with worker.moves.exclusive():
            worker.release(task)
        inbound = worker._transport._sources[world.workers[0].incarnation].inbound  # type: ignore[union-attr]
        until(lambda: task.closed and inbound._targets[task.id].rows == 30)
        assert inbound._targets[task.id].total == window.sent
        Gated.gates["sink"].set()


# ---------------------------------------------------------------- runs


class Failing(Bolt):
    def execute(self, tup: Any) -> None:
        raise ValueError("planted")


def test_a_listener_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    b = TopologyBuilder("t", max_errors=3)
    b.spout("s", Ascending())
    b.bolt("fails", Failing()).shuffle("s")

    def on_event(event: Event) -> None:
        raise RuntimeError("the listener's own")

    with (
        caplog.at_level(logging.ERROR),
        LocalCluster() as cluster,
        pytest.raises(ExecutionError, match="planted"),
    ):
        cluster.submit(b.build(), on_event).wait(LIMIT)
    assert "on_event of topology 't' raised" in caplog.text


def resting() -> TopologyBuilder:
    b = TopologyBuilder("t", stop_grace=LIMIT)
    b.spout("s", Resting())
    b.bolt("out", Nothing(), tasks=2, executors=2).shuffle("s")
    return b


def test_whoever_waits_for_a_run_that_is_stopped_is_told() -> None:
    raised: list[ExecutionError] = []

    def wait(run: LocalRun) -> None:
        try:
            run.wait()
        except ExecutionError as e:
            raised.append(e)

    with LocalCluster() as cluster:
        run = cluster.submit(resting().build())
        waiting = threading.Thread(target=wait, args=(run,))
        waiting.start()
    waiting.join(LIMIT)
    assert not waiting.is_alive() and "was stopped" in raised[0].message
    with pytest.raises(ExecutionError, match="was stopped"):
        run.wait()


def test_an_executor_that_has_ended_by_an_error_is_not_waited_for() -> None:
    def fails() -> None:
        raise ValueError("planted")

    run = LocalRun(resting().build())
    executor = next(e for i, e in run.worker.executors.named.items() if i.component == "out")
    executor.call(fails)
    executor.thread.join(LIMIT)
    run.rebalance(out=1)
    assert run.worker.executors.ending() == [] or executor not in run.worker.executors.ending()
    run.stop()


class Stuck(Bolt):
    go_on: threading.Event

    def execute(self, tup: Any) -> None:
        assert self.go_on.wait(LIMIT)


def test_the_end_of_a_call_is_told_although_the_executor_is_not_named_any_more() -> None:
    Stuck.go_on = threading.Event()
    b = TopologyBuilder("t", watchdog=3600.0)
    b.spout("s", Ascending(), rate=100)
    b.bolt("b", Stuck(), tasks=2, executors=2).all_to_one("s")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        executor = next(e for i, e in run.worker.executors.named.items() if 2 in i.tasks())
        until(lambda: executor.busy_since and executor.current is not None)
        run._watchdog.check(time.monotonic() + 7200)
        assert [e.kind for e in run.events] == ["executor-stuck"]
        run.rebalance(b=1)
        Stuck.go_on.set()
        executor.thread.join(LIMIT)
        run._watchdog.check(time.monotonic())
        assert "executor-moves-again" in [e.kind for e in run.events] and not run._watchdog._said


def test_who_has_waited_for_room_is_not_said_to_be_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on between two things that the watchdog looks at."""
    Stuck.go_on = threading.Event()
    watching = threading.current_thread()

    class Racing(Executor):
        @property
        def blocked_on(self) -> int:  # type: ignore[override]
            found = self.__dict__.get("_on", 0)
            if found and threading.current_thread() is watching and not Stuck.go_on.is_set():
                Stuck.go_on.set()
                until(lambda: not self.__dict__["_on"])
                return 0
            return int(found)

        @blocked_on.setter
        def blocked_on(self, task: int) -> None:
            self.__dict__["_on"] = task

    monkeypatch.setattr(executors_module, "Executor", Racing)
    b = TopologyBuilder("t", watchdog=3600.0, queue_rows=ROOM)
    b.spout("s", Thousands())
    b.bolt("b", Stuck()).shuffle("s")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        (waits,) = (e for i, e in run.worker.executors.named.items() if i.component == "s")
        until(lambda: waits.__dict__.get("_on"))
        waits.busy_since -= 7200
        run._watchdog.check(time.monotonic())
        assert not [e for e in run.events if e.component == "s"]
        run.wait(LIMIT)


class Thousands(Spout):
    outputs = Fields(number=int)

    def next_tuple(self) -> None:
        for n in range(5 * ROOM):
            self.emit(n)
        self.exhausted()


class Held(StatefulBolt):
    entries: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        self.entries[tup.number] = tup.number


def test_nobody_copies_on_when_the_worker_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    copying: list[threading.Thread] = []
    at_it, closed, give_back = threading.Event(), threading.Event(), Copying._give_back

    def gives(self: Copying, old: Any, copier: Any) -> None:
        if not copying:
            copying.append(threading.current_thread())
            at_it.set()
            assert closed.wait(LIMIT)
        give_back(self, old, copier)

    monkeypatch.setattr(Copying, "_give_back", gives)
    b = TopologyBuilder("t")
    b.spout("s", Ascending())
    b.bolt("held", Held()).fields("s", "number")
    world = Moving(b.build(), 2, lambda component, index: 0)
    try:
        world.wait(lambda: world.task(2).executed > 100_000)
        nimbus = Nimbus(world, {2: 1}, 1.0)
        until(lambda: nimbus.look() or at_it.is_set())
        assert world.processes[0].worker.close(LIMIT)
        closed.set()
        copying[0].join(LIMIT)
        assert not copying[0].is_alive()
    finally:
        closed.set()
        world.close()
