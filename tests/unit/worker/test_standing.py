"""What stands still is said by name: whose fence has not come, at which task there is no room."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from elastic import Bolt, KeyedState, StatefulBolt, TopologyBuilder
from elastic.migration import events as ev
from elastic.migration.events import Arrived
from elastic.migration.record import MoveRecord
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.worker import standing
from elastic.worker.emitting.destination import Destination
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste
from elastic.worker.executing.user_calls import UserCalls
from elastic.worker.tuples.batch import Mark, MarkKind
from elastic.worker.watchdog import AGAIN, STANDS, Watchdog
from tests.unit.worker.harness import numbers as _names
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves import Steps

GATES: dict[str, threading.Event] = {}
NUMBERS, SLOW = 1, 2


class Gated(Bolt):
    """Takes nothing until it is let on."""

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup: Any) -> None:
        assert GATES[self.name].wait(60.0)


@contextmanager
def gated(slow: int, workers: int = 2) -> Iterator[tuple[Moving, threading.Event]]:
    """numbers, in worker 0 -> slow, in that worker, which takes nothing until the event is set."""
    name = f"standing{next(_names)}"
    gate = GATES[name] = threading.Event()
    b = TopologyBuilder(name, queue_rows=64, batch_rows=16)
    b.spout("numbers", Steps(2000))
    b.bolt("slow", Gated(name)).shuffle("numbers")
    try:
        with Moving(b.build(), workers, lambda c, i: slow if c == "slow" else 0, 512) as cluster:
            try:
                yield cluster, gate
            finally:
                gate.set()
    finally:
        del GATES[name]


@pytest.mark.parametrize(
    ("slow", "says"), [(0, "tuples are in its queue"), (1, "were sent to it and not taken")]
)
def test_who_waits_for_room_is_said_and_where_there_is_none(slow: int, says: str) -> None:
    with gated(slow) as (cluster, gate):
        worker = cluster.processes[0].worker
        cluster.wait(lambda: bool(standing.blocked(worker)))
        (said,) = standing.blocked(worker)
        assert "Executor numbers" in said and f"room at task {SLOW} (slow)" in said and says in said
        without_time = re.compile(r" for [0-9.]+ s")
        assert without_time.sub("", standing.told(worker)) == without_time.sub("", f"{said}\n"), (
            "nothing moves"
        )
        gate.set()
        cluster.wait_finished()
        assert standing.told(worker) == ""


def test_a_fence_that_does_not_come_is_said_with_whose_it_is() -> None:
    """Planted fault: the process of an emitter does not get to answer."""
    with gated(1, workers=3) as (cluster, gate):
        gate.set()
        emitters, old = (p.worker for p in cluster.processes[:2])
        watchdog = Watchdog(old, 60.0)
        moved: list[Any] = []
        move = threading.Thread(target=lambda: moved.append(cluster.move({SLOW: 2})))
        with emitters.moves.exclusive():
            move.start()
            fence = f"Task {SLOW} waits in move 1 for the fence of task {NUMBERS} (numbers) in worker {emitters.id}."
            cluster.wait(lambda: fence in standing.told(old))
            for now in (0.0, STANDS, STANDS + 1, STANDS + AGAIN):
                watchdog.check(now)
        move.join(60.0)
        watchdog.check(2 * AGAIN)
        assert moved and moved[0].tasks[0].outcome
        cluster.wait_finished()
    said = [e for e in cluster.events if e.kind == "move-stands"]
    assert [e.details["seconds"] for e in said] == [STANDS, STANDS + AGAIN], "once, and again after a while"
    assert said[0].task == SLOW and said[0].details["tasks"] == str(SLOW) and emitters.id in said[0].message
    (over,) = [e for e in cluster.events if e.kind == "move-goes-on"]
    assert (over.task, over.details["tasks"], over.details["epoch"]) == (SLOW, str(SLOW), 1)
    assert over.message.startswith(f"Task {SLOW} waits no more in move 1 for the fence of task {NUMBERS}")


def test_a_task_that_waits_for_something_else_says_that_the_first_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when its part in the move is in the same state; figures that change do not make it something else."""
    waits: list[standing.Wait] = []
    monkeypatch.setattr(standing, "waits", lambda worker: waits)
    told: list[tuple[str, str, str]] = []
    late: list[Any] = []

    def event(kind: str, *_: Any, **more: Any) -> None:
        told.append((kind, more["details"]["tasks"], more["details"]["for"]))

    worker: Any = SimpleNamespace(
        executors=SimpleNamespace(living=list),
        calls=UserCalls(),
        moves=SimpleNamespace(participant=SimpleNamespace(old={2: None}, new={}), feed=late.append),
        spec=SimpleNamespace(component_of=lambda task: SimpleNamespace(id="count")),
        event=event,
    )
    watchdog = Watchdog(worker, 60.0)

    def look(now: float, what: str, *tasks: int) -> None:
        waits[:] = [standing.Wait(t, 1, "preparing", what, f" for {now:.1f} s") for t in tasks]
        watchdog.check(now)

    look(0.0, "its executor", 2, 3)
    assert not late
    look(STANDS, "its executor", 2, 3)
    assert late == [ev.ReadyLate(1)], "the others' word does not wait for these"
    assert told == [("move-stands", "2,3", f"its executor for {STANDS:.1f} s")]
    look(STANDS + 1, "its executor", 3)
    assert told[1:] == [("move-goes-on", "2", "its executor")]
    look(STANDS + 2, "the stores", 3)
    assert told[2:] == [("move-goes-on", "3", "its executor")]
    look(2 * STANDS + 2, "the stores", 3)
    assert told[3:] == [("move-stands", "3", f"the stores for {2 * STANDS + 2:.1f} s")]
    told.clear()
    watchdog = Watchdog(worker, 60.0)
    for n in range(int(STANDS) + 1):
        look(float(n), f"worker {n}", 3)
    assert [t[:2] for t in told] == [("move-stands", "3")], (
        "it waits for another at each look, and comes no further"
    )


@contextmanager
def moving(cluster: Moving, gate: threading.Event, to: dict[int, int]) -> Iterator[None]:
    """Tasks are on their way, and come to their places when the gate opens: afterwards."""
    moved: list[MoveRecord] = []
    move = threading.Thread(target=lambda: moved.append(cluster.move(to)))
    move.start()
    try:
        yield
    finally:
        gate.set()
        move.join(60.0)
    assert moved


def test_a_task_that_cannot_stand_still_says_where_it_waits_for_room() -> None:
    with gated(0, workers=3) as (cluster, gate):
        worker = cluster.processes[0].worker
        cluster.wait(lambda: bool(standing.blocked(worker)))
        with moving(cluster, gate, {NUMBERS: 1}):
            cluster.wait(lambda: f"Task {NUMBERS} waits in move 1" in standing.told(worker))
            assert f"its executor, which waits for room at task {SLOW} (slow)" in standing.told(worker)
        cluster.wait_finished()


def test_a_task_whose_executor_does_not_return_from_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores have room enough: they were not asked yet."""
    monkeypatch.setattr(standing, "LONG", 0.0)
    with gated(1, workers=3) as (cluster, gate):
        worker = cluster.processes[1].worker
        (executor,) = worker.executors.named.values()
        cluster.wait(lambda: bool(executor.busy_since))
        with moving(cluster, gate, {SLOW: 2}):
            cluster.wait(lambda: f"Task {SLOW} waits in move 1" in standing.told(worker))
            busy = f"for its executor, which is within a call into user code of task {SLOW} (slow) since "
            (said,) = re.findall(re.escape(busy) + r"(\d\d:\d\d:\d\d)\.", standing.told(worker))
            ago = time.monotonic() - executor.busy_since
            assert said in {time.strftime("%H:%M:%S", time.localtime(time.time() - ago + e)) for e in (0, -1)}
            assert "room" not in standing.told(worker)
        cluster.wait_finished()


def test_who_hangs_at_the_moves_does_not_keep_the_watchdog_from_looking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted fault: somebody has the lock of the moves and does not return; a call into user code does not, either."""
    monkeypatch.setattr("elastic.worker.watchdog.PATIENCE", 0.01)
    with gated(1, workers=3) as (cluster, gate):
        worker = cluster.processes[1].worker
        (executor,) = worker.executors.named.values()
        cluster.wait(lambda: bool(executor.busy_since))
        with moving(cluster, gate, {SLOW: 2}):
            cluster.wait(lambda: bool(worker.moves.participant.old))
            watchdog = Watchdog(worker, 60.0)
            looked, hangs, let_go = threading.Event(), threading.Event(), threading.Event()

            def hang() -> None:
                with worker.moves.exclusive():
                    hangs.set()
                    assert let_go.wait(60.0)

            def look() -> None:
                for later in (61.0, 62.0, 63.0):
                    watchdog.check(executor.busy_since + later)
                looked.set()

            threading.Thread(target=hang).start()
            assert hangs.wait(30.0)
            try:
                threading.Thread(target=look, daemon=True).start()
                assert looked.wait(20.0), "it hangs, too"
                assert sum(t.name == "watchdog-moves" for t in threading.enumerate()) == 1
            finally:
                let_go.set()
        cluster.wait_finished()
    assert [e.task for e in cluster.events if e.kind == "executor-stuck"] == [SLOW]


class Closes(StatefulBolt):
    """Its `cleanup` waits for somebody."""

    closes: ClassVar[threading.Event]
    may_close: ClassVar[threading.Event]
    counts = KeyedState(int)

    def execute(self, tup: Any) -> None:
        self.counts[tup[0]] += 1

    def cleanup(self) -> None:
        self.closes.set()
        self.may_close.wait(60.0)


def test_a_cleanup_that_does_not_return_where_a_task_has_left_is_said() -> None:
    """Others of its executor are at a stand by it."""
    Closes.closes, Closes.may_close = threading.Event(), threading.Event()
    b = TopologyBuilder("closes")
    b.spout("numbers", Steps(2000))
    b.bolt("closes", Closes(), tasks=2).shuffle("numbers")
    with Moving(b.build(), 2, lambda c, i: 0) as cluster:
        try:
            cluster.move({3: 1})
            worker = cluster.processes[0].worker
            cluster.wait(Closes.closes.is_set)
            Watchdog(worker, 60.0).check(time.monotonic() + 61.0)
        finally:
            Closes.may_close.set()
    (stuck,) = (e for e in cluster.events if e.kind == "executor-stuck")
    assert "in cleanup" in str(stuck.details["traceback"]) and stuck.component == "closes"


@pytest.mark.parametrize("called", [False, True])
def test_a_hook_that_hangs_while_its_executor_waits_for_room_in_another_task_is_said(called: bool) -> None:
    """A wait for room is nobody's fault: so it was not said either what was called within it."""
    executor = Executor(
        ExecutorId(ComponentId("c"), TaskId(1), TaskId(2)), 0.005, lambda _: None, Hands(), Haste()
    )
    kinds: list[str] = []
    within: list[str] = []
    worker: Any = SimpleNamespace(
        executors=SimpleNamespace(living=lambda: [executor]),
        calls=UserCalls(),
        moves=SimpleNamespace(participant=SimpleNamespace(old=(), new=())),
        event=lambda kind, *_, **__: kinds.append(kind),
    )
    watchdog = Watchdog(worker, 60.0)

    def look() -> list[str]:
        kinds.clear()
        watchdog.check(time.monotonic() + 61.0)
        return kinds.copy()

    executor.busy_since = time.monotonic() if called else 0.0
    executor.begin_blocked(Destination(8))
    assert look() == []
    executor.watched(lambda: within.extend(look()))
    assert within == ["executor-stuck"]
    assert look() == ["executor-moves-again"] and executor.blocked_on == 8
    executor.end_blocked()
    assert look() == (["executor-stuck"] if called else [])


def test_what_came_too_early_is_said_with_what_it_waits_for() -> None:
    """Planted fault: some tuples of a link never come."""
    with gated(1) as (cluster, gate):
        gate.set()
        cluster.wait_finished()
        worker = cluster.processes[1].worker
        receiver = worker.moves.participant.receivers[NUMBERS, SLOW]
        assert standing.early(worker) == []
        worker.moves.feed(
            Arrived(NUMBERS, SLOW, receiver.life, receiver.seen + 4, 2, Mark(MarkKind.DRAIN, NUMBERS))
        )
        (said,) = standing.early(worker)
        assert f"task {SLOW} (slow) waits for tuple {receiver.seen + 1} of task {NUMBERS} (numbers)" in said
        assert "2 that come after it are here" in said and said in standing.told(worker)
