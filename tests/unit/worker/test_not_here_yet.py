"""What a task emits to one of the same worker is bounded also while that one is not here yet, or waits for something before it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.migration import events as ev
from elastic.model.ids import ComponentId, StreamId
from elastic.worker import standing
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.task import Task
from elastic.worker.tuples.batch import Batch
from elastic.worker.worker import Worker
from tests.unit.worker.moving_harness import Moving

PATIENCE = 20.0
QUEUE, BATCH = 128, 16


class Fire(Spout):
    """Emits as fast as it may, while it may, `most` tuples."""

    outputs = Fields(n=int)

    def __init__(self, most: int) -> None:
        self.n, self.most = 0, most

    def next_tuple(self) -> float | None:
        if not fire.is_set() or self.n >= self.most:
            return 0.001
        self.n += 1
        self.emit(self.n)
        return None


class Sink(Bolt):
    def __init__(self) -> None:
        self.last = 0
        self.wrong: list[str] = []

    def execute(self, tup: Any) -> None:
        if self.last and tup.n != self.last + 1:
            self.wrong.append(f"{tup.n} after {self.last}")
        self.last = tup.n


fire = threading.Event()


def fires(where: int, most: int = 1 << 62) -> tuple[Moving, int, int]:
    """The cluster, the task that emits, in worker 0, and the one that gets it."""
    b = TopologyBuilder("fire", queue_rows=QUEUE, batch_rows=BATCH)
    b.spout("fire", Fire(most))
    b.bolt("sink", Sink()).shuffle("fire")
    topology = b.build()
    cluster = Moving(topology, 2, lambda c, i: where if c == "sink" else 0)
    (source,), (target,) = (topology.spec.tasks_of(ComponentId(c)) for c in ("fire", "sink"))
    return cluster, source, target


def given(worker: Worker, source: int, target: int) -> int:
    """How many tuples the moves have of that link that its target has not taken."""
    with worker.moves.exclusive():
        receiver = worker.moves.participant.receivers.get((source, target))
        early = sum(e.count for e in receiver.export().early) if receiver is not None else 0
        return early + sum(getattr(e, "count", 0) for e in worker.moves._early.get(target, ()))


def waits_at(worker: Worker, target: int) -> bool:
    return any(f"room at task {target} " in line for line in standing.blocked(worker))


def goes_on(cluster: Moving, target: int) -> None:
    sink = cluster.task(target)
    seen = sink.executed
    cluster.wait(lambda: sink.executed > seen + 10 * QUEUE, PATIENCE)
    assert not sink.component.wrong


@pytest.mark.parametrize("held", [True, False])
def test_what_is_emitted_to_a_task_that_is_to_start_here_waits_for_that(held: bool) -> None:
    """Its worker dies; coordination says before the supervisor that it is to run here. held: something was held back until then."""
    fire.set()
    cluster, source, target = fires(1)
    with cluster:
        cluster.wait(lambda: cluster.task(target).executed > 0)
        here, there = cluster.processes
        worker = here.worker
        link = worker.moves.participant.emitters[source, target]
        if not held:
            fire.clear()
            cluster.wait(lambda: not worker.tasks[source].outputs.waiting())
        there.close()
        cluster.processes.remove(there)
        if held:
            cluster.wait(lambda: link.full, PATIENCE)
        cluster.place[target] = 0
        cluster._write_assignment()
        cluster.wait(lambda: link.where == here.me)
        fire.set()
        cluster.wait(
            lambda: waits_at(worker, target) or given(worker, source, target) > 10 * link.limit, PATIENCE
        )
        assert not given(worker, source, target)
        assert bool(link.rows) == held
        cluster.apply()
        goes_on(cluster, target)


def before_what_it_waits_for() -> None:
    """One tuple is on another way, which is slower."""
    fire.clear()
    # Not for ever: without a bound each batch is slower than the one before it, as what waits is searched each time.
    cluster, source, target = fires(0, 40 * QUEUE)
    with cluster:
        worker = cluster.processes[0].worker
        cluster.wait(lambda: target in worker.tasks and worker.tasks[target].prepared)
        link = worker.moves.participant.emitters[source, target]
        cluster.wait(lambda: link.flowing and worker.moves.participant.receivers[source, target].life >= 0)
        outputs: Outputs = worker.tasks[source].outputs
        with outputs.gate:
            slow = link.left(1)
        fire.set()
        cluster.wait(lambda: waits_at(worker, target) or given(worker, source, target) > 20 * QUEUE, PATIENCE)
        assert 0 < given(worker, source, target) < QUEUE + BATCH
        stream = worker.streams.named(ComponentId("fire"), StreamId("default"))
        missing = Batch(stream, source, 1, [stream.kind(0)])
        worker.moves.feed(ev.Arrived(source, target, link.life, slow, 1, missing))
        goes_on(cluster, target)


def test_what_is_emitted_to_a_task_that_waits_for_something_before_it_is_bounded() -> None:
    before_what_it_waits_for()


def test_what_is_given_without_a_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Task, "keeps_up", lambda self, link: True)
    with pytest.raises(AssertionError):
        before_what_it_waits_for()
