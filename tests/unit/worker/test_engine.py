"""The engine as a whole, in one process: every tuple once and in order, whatever is done to it while it runs."""

from __future__ import annotations

import itertools
import random
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from elastic import Bolt, Fields, StatefulBolt, Topology, TopologyBuilder
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.task import Task
from elastic.worker.tuples.batch import Item
from tests.unit.worker.harness import Check, InProcess, Numbers, expected, records

_names = itertools.count()


def chain(
    count: int, spouts: int, middles: int, lasts: int, queue_rows: int, batch_rows: int
) -> tuple[Topology, str]:
    name = f"run{next(_names)}"
    b = TopologyBuilder(name, queue_rows=queue_rows, batch_rows=batch_rows, kill_delay=0)
    b.spout("numbers", Numbers(count), tasks=spouts)
    b.bolt("middle", Check(name + ".middle"), tasks=middles).fields("numbers", "source", "key")
    b.bolt("last", Check(name), tasks=lasts).fields("middle", "source", "key")
    return b.build(), name


def check(topology: Topology, name: str, count: int) -> None:
    """Every key of every source arrived completely, once, in order; also in the middle."""
    spouts = topology.spec.tasks_of(topology.spec.components[0].id)
    for where in (name + ".middle", name):
        assert records.get(where + ".wrong", []) == []
        assert sorted(records.get(where, [])) == sorted(expected(spouts, count))


@settings(
    max_examples=25,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(
    count=st.integers(0, 3000),
    spouts=st.integers(1, 3),
    middles=st.integers(1, 6),
    lasts=st.integers(1, 6),
    workers=st.integers(1, 3),
    queue_rows=st.integers(1, 300),
    batch_rows=st.integers(1, 100),
    seed=st.integers(0, 1000),
)
def test_every_tuple_arrives_once_and_in_order_while_tasks_are_regrouped(
    count: int,
    spouts: int,
    middles: int,
    lasts: int,
    workers: int,
    queue_rows: int,
    batch_rows: int,
    seed: int,
) -> None:
    topology, name = chain(count, spouts, middles, lasts, queue_rows, batch_rows)
    dice = random.Random(seed)
    with InProcess(topology, workers) as cluster:
        for _ in range(8):
            cluster.apply(
                numbers=dice.randint(1, spouts), middle=dice.randint(1, middles), last=dice.randint(1, lasts)
            )
        cluster.wait_finished()
        check(topology, name, count)
        assert [e for e in cluster.events if e.kind in ("tuples-lost", "tuples-doubled")] == []


def test_connections_that_break_lose_and_double_nothing() -> None:
    topology, name = chain(60_000, 2, 4, 4, 256, 64)
    with InProcess(topology, 2) as cluster:
        a, b = (w.incarnation for w in cluster.workers)
        for _ in range(10):
            cluster.network.sever(a, b)
            cluster.network.sever(b, a)
            cluster.apply()
        cluster.wait_finished()
        check(topology, name, 60_000)


def test_a_deactivated_topology_is_drained_and_goes_on_where_it_was() -> None:
    topology, name = chain(40_000, 2, 3, 3, 128, 32)
    with InProcess(topology, 2) as cluster:
        for _ in range(3):
            cluster.deactivate()
            number = cluster.drain
            cluster.wait(lambda n=number: all(w.drained() >= n for w in cluster.workers))
            tasks = [t for w in cluster.workers for t in w.tasks.values()]
            assert [t.queued for t in tasks] == [0] * len(tasks)
            emitted = sum(t.outputs.emitted for t in tasks if t.spec.id == "numbers")
            executed = sum(t.executed for t in tasks if t.spec.id == "middle")
            assert emitted == executed
            cluster.activate()
        cluster.wait_finished()
        check(topology, name, 40_000)


def test_a_crashed_worker_is_replaced_and_the_topology_still_ends() -> None:
    topology, _ = chain(30_000, 1, 2, 2, 128, 32)
    # The spout and one half of the bolts stay; the other half dies in the middle.
    with InProcess(topology, 2, place=lambda c, i: 0 if c == "numbers" else i % 2) as cluster:
        cluster.wait(
            lambda: any(t.executed > 100 for t in cluster.workers[1].tasks.values()) or cluster.finished
        )
        cluster.crash(1)
        cluster.wait_finished()


def test_what_is_finished_is_said_again_to_a_new_process() -> None:
    topology, _ = chain(100, 1, 1, 1, 128, 32)
    with InProcess(topology, 2, place=lambda c, i: 1 if c == "last" else 0) as cluster:
        cluster.wait(lambda: len(cluster.workers[0].history.finished()) == 2)
        cluster.crash(1)
        cluster.wait_finished()


def test_what_was_finished_before_a_crash_is_said_to_those_who_crashed_with_it() -> None:
    name = f"run{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("quick", Numbers(10))
    b.spout("slow", Numbers(400), rate=400)
    b.bolt("last", Gather(name)).all_to_one("quick").all_to_one("slow")
    with InProcess(b.build(), 2, place=lambda c, i: 1 if c == "slow" else 0) as cluster:
        cluster.wait(lambda: cluster.workers[0].history.finished() == (1,))
        cluster.crash(0)
        cluster.wait_finished()
        assert len(records[name]) < 410  # what it had counted went with it; the end came all the same


class Relay(Bolt):
    """Stateless: may go to another worker while it runs."""

    outputs = Fields(source=int, key=int, number=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.source, tup.key, tup.number)


class Gather(StatefulBolt):
    """Notes every tuple that arrives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[tuple[int, ...]] = []

    def get_state(self) -> object:
        return self.rows

    def set_state(self, state: Any) -> None:
        self.rows = state

    def execute(self, tup: Any) -> None:
        self.rows.append(tup.values)

    def finish(self) -> None:
        records[self.name] = self.rows


# ---------------------------------------------------------------- planted faults: each must be found by the checks above


def run_with_regrouping() -> None:
    topology, name = chain(20_000, 2, 4, 4, 64, 16)
    with InProcess(topology, 2) as cluster:
        for n in range(20):
            cluster.apply(middle=1 + n % 4, last=4 - n % 4)
        cluster.wait_finished(15)
        check(topology, name, 20_000)


def test_the_checks_pass_without_a_fault() -> None:
    run_with_regrouping()


def test_a_lost_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Outputs._send
    calls = itertools.count()

    def send(self: Outputs, out: object, stream: object, count: int, rows: object, record: object) -> None:
        if next(calls) != 50:
            real(self, out, stream, count, rows, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Outputs, "_send", send)
    with pytest.raises(AssertionError):
        run_with_regrouping()


def test_a_doubled_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Outputs._send
    calls = itertools.count()

    def send(self: Outputs, out: object, stream: object, count: int, rows: object, record: object) -> None:
        for _ in range(2 if next(calls) == 50 else 1):
            real(self, out, stream, count, rows, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Outputs, "_send", send)
    with pytest.raises(AssertionError):
        run_with_regrouping()


def test_a_queue_that_is_not_first_in_first_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Task.next
    calls = itertools.count()

    def swapped(self: Task) -> Item | None:
        with self._lock:
            for lane in self._queue._lanes.values():
                if len(lane) > 1 and next(calls) % 5 == 0 and lane[0].count and lane[1].count:
                    lane[0], lane[1] = lane[1], lane[0]
        return real(self)

    monkeypatch.setattr(Task, "next", swapped)
    with pytest.raises(AssertionError):
        run_with_regrouping()


def test_nothing_is_left_running() -> None:
    before = set(threading.enumerate())
    run_with_regrouping()
    left = [
        t
        for t in set(threading.enumerate()) - before
        if t.name.startswith(("executor", "transport", "watchdog"))
    ]
    for thread in left:
        thread.join(30)
    assert [t.name for t in left if t.is_alive()] == []
