"""A task that an assignment takes from a living worker without a move, and gives to nobody: it stops, and then that is carried out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt, TopologyBuilder
from tests.unit.worker.harness import Ascending
from tests.unit.worker.moving_harness import Moving, Process

LIMIT = 30.0


class Gate:
    """Within a tuple."""

    def __init__(self) -> None:
        self.open, self.within = threading.Event(), threading.Event()
        self.open.set()
        self.executed = 0


_gates: dict[str, Gate] = {}


class Count(StatefulBolt):
    counts: KeyedState[int, int] = KeyedState(int)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup: Any) -> None:
        gate = _gates[self.name]
        if not gate.open.is_set():
            gate.within.set()
            assert gate.open.wait(LIMIT)
        self.counts[tup.number] += 1
        gate.executed += 1


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> Iterator[Gate]:
    made = _gates[request.node.name] = Gate()
    yield made
    made.open.set()


@pytest.fixture
def world(request: pytest.FixtureRequest, gate: Gate) -> Iterator[Moving]:
    b = TopologyBuilder("t")
    b.spout("numbers", Ascending())
    b.bolt("count", Count(request.node.name)).shuffle("numbers")
    with Moving(b.build(), 2, lambda c, i: 1 if c == "count" else 0) as made:
        made.wait(lambda: gate.executed > 0)
        yield made


def taken(world: Moving) -> tuple[Process, int]:
    """The bolt's task has no place any more by the next assignment, which is not written yet: whose it was, and its number."""
    (task,) = world.spec.tasks_of("count")  # type: ignore[arg-type]
    world.place[task] = -1
    return world.processes[1], task


def test_it_is_let_go_of_when_its_last_tuple_is_over(world: Moving, gate: Gate) -> None:
    process, task = taken(world)
    before, running = process.worker.assigned.epoch, process.worker.tasks[task]
    gate.open.clear()
    assert gate.within.wait(LIMIT)
    world._write_assignment()
    world.apply()
    assert task not in process.worker.tasks
    assert process.worker.assigned.epoch == before, "it is within a tuple"
    assert process.worker.history.forsaken() == {task} and task in process.worker.history.started(), (
        "its state is lost"
    )
    gate.open.set()
    world.wait(lambda: process.worker.assigned.epoch == world.epoch)
    assert running.closed


def test_it_goes_on_until_it_was_read_that_it_is_nobodys(
    world: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocation comes another way than what is read of coordination, and may come first."""
    process, task = taken(world)
    before, again = process.worker.assigned.epoch, threading.Event()
    monkeypatch.setattr(process, "on_startable", again.set)
    world.epoch += 1
    allocation = world.allocation(process, world._assignment())
    process.worker.apply(allocation)
    assert task in process.worker.tasks and process.worker.assigned.epoch == before
    world.epoch -= 1
    world._write_assignment()
    assert again.wait(LIMIT)
    process.worker.apply(allocation)
    assert task not in process.worker.tasks
    world.wait(lambda: process.worker.assigned.epoch == allocation.epoch)


def test_it_is_let_go_of_when_all_is_done_although_it_stops_at_once(
    world: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an executor that has ended: who asks it does that itself, in the middle of carrying out the allocation."""
    process, task = taken(world)
    hands, before = process.worker.executors.hands, process.worker.assigned.epoch
    drop, seen = hands.drop, []

    def at_once(executor: Any, task: Any, then: Callable[[], None]) -> None:
        drop(executor, task, lambda: None)
        then()
        seen.append((process.worker.assigned.epoch, process.worker.history.forsaken()))

    monkeypatch.setattr(hands, "drop", at_once)
    world._write_assignment()
    world.apply()
    assert seen == [(before, frozenset())], "it is not said yet that its state is lost"
    assert process.worker.assigned.epoch == world.epoch and process.worker.history.forsaken() == {task}
