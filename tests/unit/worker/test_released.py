"""What a task emits that does not run here yet, or any more, costs that task alone: its executor goes on with others."""

from __future__ import annotations

import threading
from typing import Any

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.migration import actions as ac
from elastic.migration.events import TaskGone
from elastic.migration.record import Outcome
from elastic.model.ids import ComponentId
from tests.unit.worker.harness import Ascending, Sink
from tests.unit.worker.moving_harness import Moving

PATIENCE = 30.0
MANY = 1000
"""More than wait for a task that is to run here."""


class World:
    """What tasks and the test tell each other."""

    def __init__(self) -> None:
        self.preparing, self.may_emit = threading.Event(), threading.Event()
        self.taken, self.may_take = threading.Event(), threading.Event()


world = World()


class Early(Bolt):
    """Its second task emits much in `prepare`, at another worker than the first one when it may."""

    outputs = Fields(number=int)

    def prepare(self, context: TopologyContext) -> None:
        if context.task != context.tasks_of("early")[1]:
            return
        if "@n1/" in context.worker:
            world.preparing.set()
            assert world.may_emit.wait(PATIENCE)
        for n in range(MANY):
            self.emit(n)

    def execute(self, tup: Any) -> None:
        self.emit(tup.number)


class Slow(Bolt):
    """Takes nothing before it may."""

    def execute(self, tup: Any) -> None:
        world.taken.set()
        assert world.may_take.wait(PATIENCE)


def early() -> TopologyBuilder:
    global world
    world = World()
    b = TopologyBuilder("early", queue_rows=128, batch_rows=16)
    b.spout("numbers", Ascending(), rate=2000.0)
    b.bolt("early", Early(), tasks=2, executors=1).shuffle("numbers")
    b.bolt("slow", Slow()).shuffle("early")
    return b


def test_who_emits_too_much_before_it_has_come_does_not_come() -> None:
    topology = early().build()
    world.may_take.set()
    world.may_emit.set()
    first, second = topology.spec.tasks_of(ComponentId("early"))
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        record = cluster.move({first: 1, second: 1}, share=0.5)
        assert [t.outcome for t in record.tasks] == [Outcome.COMMITTED, Outcome.ROLLED_BACK]
        assert "has emitted more than can wait until it runs here" in record.tasks[1].reason
        for task in (cluster.task(first), cluster.task(second)):
            before = task.executed
            cluster.wait(lambda task=task, before=before: task.executed > before)  # type: ignore[misc]


def test_who_emits_after_it_was_discarded_costs_nobody_else_the_executor() -> None:
    topology = early().build()
    _, second = topology.spec.tasks_of(ComponentId("early"))
    world.may_take.set()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        worker = cluster.processes[1].worker
        with worker.moves.exclusive():
            worker.moving.prepare(ac.PrepareTask(second, 1, 1))
        assert world.preparing.wait(PATIENCE)
        executor, task = worker.executors.guest(ComponentId("early"), 1).prepares, worker.arriving[second]
        with worker.moves.exclusive():
            worker.moving.discard(ac.DiscardTask(second, 1, 1))
        world.may_emit.set()
        cluster.wait(lambda: task.closed and not executor.tasks)
        goes_on = threading.Event()
        executor.call(goes_on.set)
        assert goes_on.wait(PATIENCE)
        assert not any("failed" in e.kind for e in cluster.events)


def test_who_is_released_while_there_is_no_room_for_what_it_emits_costs_nobody_else_the_executor() -> None:
    global world
    world = World()
    b = TopologyBuilder("released", queue_rows=64)
    b.spout("numbers", Ascending(), tasks=2, executors=1)
    b.bolt("slow", Slow()).shuffle("numbers")
    with Moving(b.build(), 1, lambda c, i: 0) as cluster:
        worker = cluster.processes[0].worker
        executor = next(e for e in worker.executors.named.values() if e.id.component == "numbers")
        cluster.wait(lambda: executor.blocked_on and executor.emitting is not None)
        released = executor.emitting
        assert released is not None
        with worker.moves.exclusive():  # as when another process has got its place
            worker.moves.feed(TaskGone(released.id))
            worker.release(released)
        world.may_take.set()
        cluster.wait(lambda: released.closed and released.id not in executor.tasks)
        (other,) = executor.tasks.values()
        before = other.outputs.emitted
        cluster.wait(lambda: other.outputs.emitted > before)


TARGETS = 400
"""More than an interpreter nests calls for."""


class ToMany(Spout):
    """Emits to each of its targets while it is being released, when it may."""

    outputs = Fields(number=int)

    def prepare(self, context: TopologyContext) -> None:
        self.first = context.task == context.tasks_of("many")[0]

    def next_tuple(self) -> float | None:
        if not self.first:
            self.emit(1)
            return 0.01
        world.taken.set()
        assert world.may_take.wait(PATIENCE)
        for n in range(TARGETS):
            self.emit(n)
        return None


def test_who_is_released_within_a_call_and_emits_to_many_costs_nobody_else_the_executor() -> None:
    global world
    world = World()
    b = TopologyBuilder("many")
    b.spout("many", ToMany(), tasks=2, executors=1)
    b.bolt("nothing", Sink(), tasks=TARGETS, executors=1).shuffle("many")
    with Moving(b.build(), 1, lambda c, i: 0) as cluster:
        worker = cluster.processes[0].worker
        assert world.taken.wait(PATIENCE)
        first, second = cluster.spec.tasks_of(ComponentId("many"))
        released, other = cluster.task(first), cluster.task(second)
        with worker.moves.exclusive():
            worker.moves.feed(TaskGone(first))
            worker.release(released)
        world.may_take.set()
        cluster.wait(lambda: released.closed)
        before = other.outputs.emitted
        cluster.wait(lambda: other.outputs.emitted > before)
        assert not cluster.failures
