"""A task is not paused before its new worker can ask the stores for it: in a new process that takes longer than a pause."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Fields, Spout, StatefulBolt, TopologyBuilder
from elastic.migration import actions as ac
from elastic.migration.record import Outcome
from elastic.migration.table import NewState
from elastic.model.ids import ComponentId
from elastic.worker.executing.guests import Home
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.task import Task
from tests.unit.worker.moving_harness import Moving

NUMBERS = 2000
taken: list[int] = []


class Numbers(Spout):
    """Ascending."""

    outputs = Fields(number=int)

    def __init__(self) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next == NUMBERS:
            self.exhausted()
            return
        self.emit(self.next)
        self.next += 1


class Taking(StatefulBolt):
    """Remembers all of them, wherever it is."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def get_state(self) -> object:
        return self.numbers

    def set_state(self, state: Any) -> None:
        self.numbers = state

    def execute(self, tup: Any) -> None:
        self.numbers.append(tup.number)

    def finish(self) -> None:
        taken.extend(self.numbers)


def test_nothing_pauses_before_the_way_to_the_stores_is_open() -> None:
    b = TopologyBuilder("ready")
    b.spout("numbers", Numbers(), rate=4000.0)
    b.bolt("taking", Taking()).shuffle("numbers")
    topology = b.build()
    (task,) = topology.spec.tasks_of(ComponentId("taking"))
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        asked, opened, record = threading.Event(), threading.Event(), []

        def get_ready() -> None:
            asked.set()
            assert opened.wait(30.0)

        cluster.stores.get_ready = get_ready  # type: ignore[method-assign]
        moving = threading.Thread(target=lambda: record.append(cluster.move({task: 1})), daemon=True)
        moving.start()
        assert asked.wait(30.0)
        worker = cluster.processes[1].worker
        cluster.wait(lambda: any(e.details.get("step") == "prepared" for e in cluster.events))
        between = threading.Event()
        worker.arriving[task].executor.call(between.set)  # what follows from being prepared has been said
        assert between.wait(30.0)
        with worker.moves.exclusive():
            assert worker.moves.participant.new[task].state is NewState.PREPARING
        opened.set()
        moving.join(30.0)
        assert [t.outcome for t in record[0].tasks] == [Outcome.COMMITTED]
        cluster.wait_finished()
    assert taken == list(range(NUMBERS))


@pytest.mark.parametrize("fails", [False, True], ids=["prepared", "prepare raises"])
def test_who_is_discarded_just_before_its_executor_has_it_is_not_kept_there(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = TopologyBuilder("discarded")
    b.spout("numbers", Numbers(), rate=4000.0)
    b.bolt("taking", Taking()).shuffle("numbers")
    topology = b.build()
    (number,) = topology.spec.tasks_of(ComponentId("taking"))
    tasks: list[Task] = []
    prepared = threading.Event()
    prepare, to_prepare = Hands.prepare_guest, Task.prepare

    def discarded_first(self: Hands, task: Task, home: Home) -> None:
        tasks.append(task)
        with worker.moves.exclusive():
            worker.moving.discard(ac.DiscardTask(number, 1, 1))
        try:
            prepare(self, task, home)
        finally:
            prepared.set()

    def prepares(self: Task) -> None:
        to_prepare(self)
        if self in tasks and fails:
            raise RuntimeError("not here")

    with Moving(topology, 2, lambda c, i: 0) as cluster:
        worker = cluster.processes[1].worker
        monkeypatch.setattr(Hands, "prepare_guest", discarded_first)
        monkeypatch.setattr(Task, "prepare", prepares)
        with worker.moves.exclusive():
            worker.moving.prepare(ac.PrepareTask(number, 1, 1))
        assert prepared.wait(30.0)
        (task,) = tasks
        assert task.executor is not None
        cluster.wait(lambda: task.closed and not task.executor.tasks)
        assert not worker.arriving
