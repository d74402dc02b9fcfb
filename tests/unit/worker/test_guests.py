"""Tasks that come with a move are prepared by one thread and run by another: `prepare()` may take long, and nobody waits for it who runs
here already."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from typing import Any

import pytest

from elastic import Bolt, StatefulBolt, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.errors import ElasticError, Unavailable
from elastic.migration import actions as ac
from elastic.migration.decide import SOON
from elastic.migration.record import Outcome
from elastic.model.ids import ComponentId
from elastic.worker.executing.task import Task
from tests.unit.worker.harness import Ascending
from tests.unit.worker.moving_harness import Moving, Nimbus

PATIENCE = 30.0
AT_FIRST = 1 + SOON
"""Tasks that get ready before the first is paused; those after them do so when only `SOON // 2` of these have not come."""
COME = AT_FIRST - SOON // 2
TASKS = AT_FIRST + SOON // 2


class World:
    """What tasks and the test tell each other."""

    def __init__(self) -> None:
        self.prepares = itertools.count(1)
        self.may_prepare = threading.Event()
        self.here: dict[int, threading.Event] = defaultdict(threading.Event)
        self.held: set[int] = set()


world = World()


class Late:
    """The first ones of a move are prepared at once, and the others when they may."""

    def prepare(self, context: TopologyContext) -> None:
        nth = next(world.prepares)
        self.here = world.here[context.task] if nth > TASKS else None
        if nth > TASKS + AT_FIRST:
            assert world.may_prepare.wait(2 * PATIENCE)

    def execute(self, tup: Any) -> None:
        if self.here is not None:
            self.here.set()


class Stateless(Late, Bolt):
    """Keeps nothing."""


class Stateful(Late, StatefulBolt):
    """Has a state to be put in."""

    def get_state(self) -> object:
        return 1

    def set_state(self, state: Any) -> None: ...


class Held(Stateful):
    """Some are prepared when they may, the others at once."""

    def prepare(self, context: TopologyContext) -> None:
        self.here = None
        if context.task in world.held:
            assert world.may_prepare.wait(2 * PATIENCE)


@pytest.mark.parametrize("kind", [Stateless, Stateful])
def test_who_is_restored_runs_while_others_are_prepared(kind: type[Bolt]) -> None:
    global world
    world = World()
    b = TopologyBuilder("late")
    b.spout("numbers", Ascending(), rate=2000.0)
    b.bolt("late", kind(), tasks=TASKS, executors=1).shuffle("numbers")
    topology = b.build()
    tasks = topology.spec.tasks_of(ComponentId("late"))
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: all(t.prepared for t in cluster.processes[0].worker.tasks.values()))
        record = []
        moving = threading.Thread(
            target=lambda: record.append(cluster.move(dict.fromkeys(tasks, 1), share=1 / TASKS)), daemon=True
        )
        moving.start()
        came = world.here[tasks[COME - 1]].wait(PATIENCE)
        world.may_prepare.set()
        moving.join(PATIENCE)
        assert came, "it has waited for what others prepare"
        assert [t.outcome for t in record[0].tasks] == [Outcome.COMMITTED] * TASKS
        worker = cluster.processes[1].worker
        cluster.wait(lambda: not worker.executors._guests.all() and not worker.executors.ending())


def test_a_worker_that_is_about_to_end_prepares_nobody() -> None:
    """A view may be followed while it ends: nobody would stop a thread that is started then."""
    b = TopologyBuilder("ending")
    b.spout("numbers", Ascending(), rate=2000.0)
    with Moving(b.build(), 1, lambda c, i: 0) as cluster:
        worker = cluster.processes[0].worker
    with worker.moves.exclusive(), pytest.raises(Unavailable):
        worker.moving.prepare(ac.PrepareTask(1, 1, 1))
    assert not worker.executors._guests.all()


def test_nobody_waits_for_tasks_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move fails when its task is prepared already. No allocation follows, for which executors were looked through."""
    global world
    world = World()
    b = TopologyBuilder("failed")
    b.spout("numbers", Ascending(), rate=2000.0)
    b.bolt("late", Stateful(), tasks=2, executors=1).shuffle("numbers")
    topology = b.build()
    first, second = topology.spec.tasks_of(ComponentId("late"))
    with Moving(topology, 2, lambda c, i: i if c == "late" else 0) as cluster:
        cluster.wait(lambda: all(t.prepared for p in cluster.processes for t in p.worker.tasks.values()))
        worker, applied = cluster.processes[1].worker, list[object]()
        monkeypatch.setattr(worker, "apply", applied.append)
        prepared = threading.Event()
        step = worker.moving.step

        def takes(task: Task, epoch: int, name: str, **more: float) -> None:
            step(task, epoch, name, **more)
            if name == "prepared":
                prepared.set()

        def has_no_room(key: str, *more: object) -> None:
            assert prepared.wait(PATIENCE)
            raise ElasticError("the stores have no room")

        monkeypatch.setattr(worker.moving, "step", takes)
        monkeypatch.setattr(cluster.stores, "reserve", has_no_room)
        (task,) = cluster.move({first: 1}).tasks
        assert task.outcome is Outcome.ROLLED_BACK and prepared.is_set() and not applied
        cluster.wait(lambda: not worker.executors._guests.all() and not worker.executors.ending(), PATIENCE)
        assert worker.tasks.keys() == {second} and not worker.tasks[second].closed


def test_moves_that_have_ended_keep_no_threads_beside_an_earlier_one_that_waits() -> None:
    global world
    world = World()
    b = TopologyBuilder("beside")
    b.spout("numbers", Ascending(), rate=2000.0)
    b.bolt("late", Held(), tasks=2, executors=1).shuffle("numbers")
    topology = b.build()
    first, second = topology.spec.tasks_of(ComponentId("late"))
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: all(t.prepared for t in cluster.processes[0].worker.tasks.values()))
        world.held = {first}
        waits = Nimbus(cluster, {first: 1}, 1.0)
        executors = cluster.processes[1].worker.executors
        cluster.wait(lambda: len(executors._guests.all()) == 2)
        for _ in range(3):
            cluster.move({second: 1})
            cluster.move({second: 0})
        kept = len(executors._guests.all())
        world.may_prepare.set()
        assert waits.run(PATIENCE).tasks[0].outcome is Outcome.COMMITTED
        assert kept <= 4, (
            "those of the one that waits, and of the last one until it is seen that it has ended"
        )
