"""A task that is given back while its state is still being read goes on only then; and what moves it next waits for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elastic import Fields, StatefulBolt, TopologyBuilder
from elastic.migration.record import MoveRecord, Outcome
from elastic.worker.moving.going import Going
from elastic.worker.moving.stopping import Stopping
from tests.unit.worker.harness import Check, records
from tests.unit.worker.harness import numbers as _names
from tests.unit.worker.moving_harness import Moving, Nimbus
from tests.unit.worker.test_moves import Steps, check, tasks_of

COUNT = 3000
LIMIT = 30.0


class Reading:
    """The first time that the state of a stopped task is pickled: it has begun, and may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()


_readings: dict[str, Reading] = {}


class Slow:
    """Takes its time to be pickled, once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        reading = _readings[self.name]
        if not reading.begun.is_set():
            reading.begun.set()
            assert reading.may_end.wait(LIMIT)
        return Slow, (self.name,)


class Counts(StatefulBolt):
    """Its state is what it works on, not a copy of it."""

    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, name: str, size: int) -> None:
        self.name, self.more = name, b"x" * size
        self.counts: dict[Any, int] = {}

    def prepare(self, context: Any) -> None:
        super().prepare(context)
        self.slow = Slow(self.name)

    def get_state(self) -> object:
        return self.slow, self.counts, self.more

    def set_state(self, state: Any) -> None:
        self.slow, self.counts, self.more = state

    def execute(self, tup: Any) -> None:
        self.counts[tup.source, tup.key] = self.counts.get((tup.source, tup.key), 0) + 1
        self.emit(tup.source, tup.key, tup.number)

    def finish(self) -> None:
        records.setdefault(f"{self.name}.counts", []).extend((s, k, n) for (s, k), n in self.counts.items())


class World:
    """One whose task has been given back, and is still being read."""

    def __init__(self, size: int = 0) -> None:
        self.name = f"givenback{next(_names)}"
        self.reading = _readings[self.name] = Reading()
        b = TopologyBuilder(self.name, queue_rows=2048, batch_rows=16)
        b.spout("numbers", Steps(COUNT), rate=2000.0)
        b.bolt("count", Counts(self.name, size)).fields("numbers", "source", "key")
        b.bolt("check", Check(self.name)).fields("count", "source", "key")
        self.topology = b.build()
        (self.task,) = tasks_of(self.topology, "count")
        self.cluster = Moving(self.topology, 2, lambda c, i: 0)
        self.asked = threading.Event()

    def begin(self) -> Nimbus:
        return Nimbus(self.cluster, {self.task: 1}, 1.0)

    def give_back(self, move: Nimbus) -> None:
        move.abort("somebody wants it back")
        assert move.run(LIMIT).tasks[0].outcome is Outcome.ROLLED_BACK

    def asked_too_early(self) -> bool:
        """Whether the stores are asked for the next move while the state is being read for the former one."""
        return self.asked.wait(0.5)

    def end(self, move: Nimbus) -> None:
        """Let the task go on, and the move come to its end."""
        self.reading.may_end.set()
        record: MoveRecord = move.run(LIMIT)
        assert record.tasks[0].outcome is Outcome.COMMITTED
        self.cluster.wait_finished(LIMIT)


@contextmanager
def given_back() -> Iterator[World]:
    world = World()
    with world.cluster as cluster:
        try:
            cluster.wait(lambda: cluster.task(world.task).executed > 100)
            first = world.begin()
            while not world.reading.begun.wait(0.02):
                first.look()
            cluster.stores.on_reserve = world.asked.set
            world.give_back(first)
            assert cluster.task(world.task).stopped, "its state is being read"
            yield world
        finally:
            world.reading.may_end.set()
    check(world.topology, world.name, COUNT)
    del _readings[world.name]


def test_the_next_move_waits_until_the_state_has_been_read() -> None:
    with given_back() as world:
        second = world.begin()
        assert not world.asked_too_early()
        world.end(second)


def test_so_does_one_after_a_move_that_was_given_back_while_it_waited() -> None:
    with given_back() as world:
        second = world.begin()
        world.cluster.wait(lambda: world.task in world.cluster.processes[0].worker.moves.participant.old)
        world.give_back(second)
        assert world.cluster.task(world.task).stopped, "its state is still being read"
        third = world.begin()
        assert not world.asked_too_early()
        world.end(third)


def test_it_goes_on_without_a_next_move() -> None:
    with given_back() as world:
        task = world.cluster.task(world.task)
        executed = task.executed
        world.reading.may_end.set()
        world.cluster.wait(lambda: task.executed > executed)
        worker = world.cluster.processes[0].worker
        assert not worker.saving._reading and not worker.saving._old
        world.cluster.wait_finished(LIMIT)


def test_without_that_it_would_be_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Going, "follow", lambda self, what: False)
    with pytest.raises(AssertionError), given_back() as world:
        world.begin()
        assert not world.asked_too_early()


@pytest.mark.parametrize("size", [0, 200_000])
def test_one_of_which_nothing_has_been_read_goes_on_when_its_turn_has_come(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits to be saved, together with others, when it is given back."""
    waits, turn = threading.Event(), threading.Event()

    def gather(self: Stopping) -> None:
        waits.set()
        assert turn.wait(LIMIT)

    monkeypatch.setattr(Stopping, "gather", gather)
    world = World(size)
    try:
        with world.cluster as cluster:
            cluster.wait(lambda: cluster.task(world.task).executed > 100)
            move = world.begin()
            while not waits.wait(0.02):
                move.look()
            world.give_back(move)
            turn.set()
            cluster.wait(lambda: not cluster.task(world.task).stopped)
            assert not world.reading.begun.is_set(), "what is saved of it is for nobody"
            saving = cluster.processes[0].worker.saving
            cluster.wait(lambda: not saving._reading)
            world.end(world.begin())
        check(world.topology, world.name, COUNT)
    finally:
        turn.set()
        world.reading.may_end.set()
        del _readings[world.name]
