"""What a task emits to one of the same worker is bounded also while that one is not here yet, or waits for something before it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.view import View
from elastic.model.ids import ComponentId, Incarnation, StreamId, WorkerId
from elastic.worker import standing
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.task import Task
from elastic.worker.moving.moves import Moves
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


@pytest.mark.parametrize("goes", [True, False])
def test_what_has_come_for_a_task_that_goes_elsewhere_instead_is_given_back(goes: bool) -> None:
    """Else its sender has that much less room on the way here, for good. goes: else coordination says only later that it comes."""
    b = TopologyBuilder("fire")
    b.spout("fire", Fire(0))
    b.bolt("sink", Sink()).shuffle("fire")
    spec = b.build().spec
    (source,), (target,) = (spec.tasks_of(ComponentId(c)) for c in ("fire", "sink"))
    here, there = WorkerId("fire@n0/0"), WorkerId("fire@n1/0")
    lives = {w: Incarnation(f"{w}#1") for w in (here, there)}
    given_back: list[tuple[str, int]] = []
    nothing: Any = SimpleNamespace(link=lambda where: None, signal=lambda task: None)
    moves = Moves(
        lives[here],
        spec,
        nothing,
        tasks={},
        consumed=lambda item, task: given_back.append((str(item), task)),
        on_fatal=lambda error: pytest.fail(str(error)),
        on_resumed=lambda *_: None,
        on_received=lambda *_: None,
        buffer_rows=QUEUE,
    )
    ports: Any = MagicMock()
    moves.join(ports, ports, ports)
    for number, where in enumerate((here if goes else there, there)):
        moves.see(View(number, 0, (), {source: there, target: where}, lives))
        if not number:
            item: Any = "early"
            moves.not_here(ac.NotHere(target, ev.Arrived(source, target, 1, 1, 1, item)))
    assert given_back == ([("early", target)] if goes else [])
    assert (target in moves._early) != goes
    moves.close()
