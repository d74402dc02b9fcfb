"""A view that came to nothing is read again, also when nothing more is heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from elastic.cluster import worker_moves
from elastic.cluster.worker_moves import ViewReader
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Unavailable
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId

T, ME = TopologyName("t"), Incarnation("t@a/0#1")
HERE, THERE = WorkerId("t@a/0"), WorkerId("t@b/0")
LIMIT = 30.0


def placed(worker: WorkerId, epoch: int) -> bytes:
    executor = ExecutorId(ComponentId("c"), TaskId(1), TaskId(1))
    slots = {worker: WorkerSlot(NodeId("a"), 0)}
    return codec.encode(Assignment(T, Epoch(epoch), slots, ((executor, worker),)))


class World:
    """One task changes its place while somebody follows; `fault` raises for the first view that shows it."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.boss = self.zookeeper.connect()
        self.boss.create(paths.moves(T), b"0")
        self.boss.create(paths.workers(T))
        self.boss.create(paths.assignment(T), placed(HERE, 1))
        self.followed: list[WorkerId] = []
        self.changed = threading.Condition()
        self.faults: list[Exception] = []
        self.reader = ViewReader(self.zookeeper.connect(), T, self._on_view, ME)
        self.reader.start()
        self.until(HERE)

    def _on_view(self, view: View, workers: Any) -> None:
        with self.changed:
            if view.places[TaskId(1)] == THERE and self.faults:
                raise self.faults.pop()
            self.followed.append(view.places[TaskId(1)])
            self.changed.notify_all()

    def until(self, worker: WorkerId) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.followed[-1:] == [worker], LIMIT), self.followed

    def close(self) -> None:
        self.reader.close()
        self.zookeeper.close()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(worker_moves, "_PAUSE", 0.01)
    made = World()
    yield made
    made.close()


@pytest.mark.parametrize(
    "fault", [RuntimeError("can't start new thread"), Unavailable("faster than it can be read")]
)
def test_the_last_view_is_followed_after_a_fault(world: World, fault: Exception) -> None:
    world.faults = [fault, fault]
    world.boss.set(paths.assignment(T), placed(THERE, 2))
    world.until(THERE)
    assert not world.faults


def _once(world: World, monkeypatch: pytest.MonkeyPatch, where: str, *, after: bool) -> None:
    """The task goes there while `where` of what the next view is read from is called, or has been."""
    mirror = world.reader._mirror
    given, waiting = getattr(mirror, where), [True]

    def call(*arguments: Any) -> Any:
        found = given(*arguments) if after else None
        if waiting:
            waiting.clear()
            told = world.reader._news
            world.boss.set(paths.assignment(T), placed(THERE, 3))
            deadline = time.monotonic() + LIMIT
            while world.reader._news == told and time.monotonic() < deadline:
                time.sleep(0.001)  # it has been heard of, and nobody is told of that
        return found if after else given(*arguments)

    monkeypatch.setattr(mirror, where, call)
    world.boss.set(paths.assignment(T), placed(HERE, 2))


def test_what_was_heard_of_while_a_view_is_read_and_is_in_it_is_no_reason_for_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(world.followed)
    _once(world, monkeypatch, "await_values", after=False)
    world.until(THERE)
    world.boss.set(paths.assignment(T), placed(HERE, 4))
    world.until(HERE)
    assert world.followed[before:] == [THERE, HERE]


def test_what_was_heard_of_after_a_view_was_read_is_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _once(world, monkeypatch, "look", after=True)
    world.until(THERE)


def test_a_view_that_is_taken_for_newer_than_it_is_would_be_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = world.reader._read

    def read(number: int, wait: float) -> Any:
        view, infos, _ = given(number, wait)
        return view, infos, world.reader._news

    monkeypatch.setattr(world.reader, "_read", read)
    monkeypatch.setitem(globals(), "LIMIT", 0.5)
    with pytest.raises(AssertionError):
        test_what_was_heard_of_after_a_view_was_read_is_followed(world, monkeypatch)
