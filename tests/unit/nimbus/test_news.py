"""Who decides asks whether there is news, and reads only if there is; who is not concerned with moves is not woken by them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elastic.coordination import paths
from elastic.coordination.base import Create, Looked, Set
from elastic.coordination.memory import MemoryZooKeeper
from elastic.model import codec
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId
from elastic.model.records import ElasticitySettings, Progress, TopologyState, TopologyStatus
from elastic.model.topology import TopologySpec
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.observing.mirror import Mirror
from elastic.nimbus.reign import Reign

T = TopologyName("t")
W = WorkerId("t@n/0")
LIMIT = 30.0


class World:
    """What lies in coordination, and a mirror of it. Watches can be kept from telling."""

    def __init__(self) -> None:
        self.server = MemoryZooKeeper()
        self.other, self.session = self.server.connect(), self.server.connect()
        self.looks = 0
        look = self.session.look

        def counted(*arguments: Any) -> Looked:
            self.looks += 1
            return look(*arguments)

        self.session.look = counted  # type: ignore[method-assign]
        for path in paths.ALL:
            self.other.create(path)
        self.other.create(paths.spec(T), codec.encode(TopologySpec(T, (), config={})))
        self.other.create(paths.assignment(T), codec.encode(Assignment(T, Epoch(1))))
        self.other.create(paths.progress(T))
        state = TopologyState(TopologyStatus.ACTIVE, "t-1", "", 0.0)
        self.other.create(paths.state(T), codec.encode(state))
        self.mirror = Mirror(self.session)
        assert self.mirror.wait_for(lambda: self.mirror.ready and self.mirror.complete, LIMIT)
        self.reign: Any = SimpleNamespace(
            coordination=self.session, mirror=self.mirror, facts=lambda: self.mirror.facts(0.0, {})
        )

    def refresh(self) -> Facts:
        return Reign.refresh(cast(Any, self.reign))

    def epoch(self, facts: Facts) -> int:
        assignment = facts.topologies[T].assignment
        assert assignment is not None
        return assignment.epoch

    def assign(self, epoch: int) -> None:
        self.other.set(paths.assignment(T), codec.encode(Assignment(T, Epoch(epoch))))

    def close(self) -> None:
        self.mirror.close()
        self.server.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def settled(world: World) -> None:
    """All that was to be told has been."""
    while not world.session.caught_up():
        threading.Event().wait(0.001)


def test_nothing_is_read_where_the_watches_have_told_everything(world: World) -> None:
    world.assign(2)
    settled(world)
    assert world.epoch(world.refresh()) == 2 and world.looks == 0


def lagging(world: World) -> tuple[int, int]:
    """The assignment that is decided on while the watches are late, and how often something was read for it."""
    go, held = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        assert go.wait(LIMIT)

    settled(world)
    world.session.watch_value("/late", hold)
    assert held.wait(LIMIT)
    world.assign(3)
    try:
        return world.epoch(world.refresh()), world.looks
    finally:
        go.set()


def test_what_the_watches_have_not_told_yet_is_read(world: World) -> None:
    epoch, looks = lagging(world)
    assert epoch == 3 and looks > 0


def test_a_mirror_that_is_believed_blindly_is_found(world: World) -> None:
    """Planted fault."""
    settled(world)
    world.session.caught_up = lambda: True  # type: ignore[method-assign]
    epoch, _ = lagging(world)
    assert epoch == 1


def test_of_a_topology_that_the_mirror_cannot_show_its_slots_are_read(world: World) -> None:
    """Nobody can read its specification. What it has is not free all the same."""
    other = TopologyName("u")
    world.other.transaction(
        [
            Create(paths.topology(other)),
            Create(paths.spec(other), b"not one"),
            Create(paths.assignment(other), codec.encode(Assignment(other, Epoch(1)))),
            Create(paths.state(other), codec.encode(TopologyState(TopologyStatus.ACTIVE, "u-1", "", 0.0))),
        ]
    )
    settled(world)
    assert set(world.refresh().elsewhere) == {other} and world.looks > 0


def test_who_is_asked_for_something_else_is_woken_and_moves_wake_nobody_for_that(world: World) -> None:
    settled(world)
    before, revision = world.mirror.asked, world.mirror.revision
    world.other.put(paths.worker_progress(T, W), codec.encode(Progress(Incarnation(f"{W}#1"), Epoch(1))))
    world.assign(2)
    settled(world)
    assert world.mirror.asked == before and world.mirror.revision > revision
    woken = threading.Event()

    def wait() -> None:
        world.mirror.wait_asked(lambda: world.mirror.asked != before)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    world.other.put(paths.ELASTICITY, codec.encode(ElasticitySettings(policy="ds2")))
    assert woken.wait(LIMIT)
    thread.join(LIMIT)
    settled(world)
    before = world.mirror.asked
    state = TopologyState(TopologyStatus.INACTIVE, "t-1", "", 0.0)
    world.other.transaction([Set(paths.state(T), codec.encode(state))])
    settled(world)
    assert world.mirror.asked > before
