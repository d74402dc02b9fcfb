"""What has come ahead of a task is used by the attempt that it came for, when nobody is at it any more, and unless it was given up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastic.worker.content import Arrival
from elastic.worker.moving import along
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.fetching import Fetching
from elastic.worker.moving.moving import Side
from elastic.worker.moving.stores import GROWN, SmallState
from tests.unit.worker.test_looks_ahead import Window

TASK, EPOCH, ATTEMPT = 1, 7, 2


class World:
    """One task of which something has come ahead; what is to be done on another thread is only noted."""

    def __init__(self, attempt: int = ATTEMPT) -> None:
        self.submitted: list[Any] = []
        worker: Any = SimpleNamespace(moving=SimpleNamespace(comes=lambda task, epoch: True))
        stores: Any = SimpleNamespace()
        self.fetching = Fetching(worker, stores, lambda *what: self.submitted.append(what))
        self.coming = Coming(Side(TASK, EPOCH, attempt), ())
        self.arrival = self.coming.arrival = Arrival(Window())
        self.coming.busy = self.coming.queued = False
        self.fetching._coming[TASK] = self.coming
        self.action: Any = SimpleNamespace(
            task=TASK, epoch=EPOCH, attempt=ATTEMPT, nodes=(), size=GROWN + 1, heard=True
        )

    def fetch(self) -> list[Arrival | None]:
        """With what comes ahead the rest is fetched; None: all of it."""
        self.fetching.fetch(self.action)
        return self.fetched

    @property
    def fetched(self) -> list[Arrival | None]:
        assert all(
            what == self.fetching._fetch and action is self.action for what, action, _ in self.submitted
        )
        return [arrival for _, _, arrival in self.submitted]


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Any:
    world = World(*getattr(request, "param", ()))
    yield world
    world.fetching.close()


def test_the_rest_is_fetched_when_nobody_is_at_it(world: World) -> None:
    assert world.fetch() == [world.arrival] and world.arrival.over


@pytest.mark.parametrize("world", [(ATTEMPT - 1,)], indirect=True)
def test_what_came_for_another_attempt_is_not_used(world: World) -> None:
    assert world.fetch() == [None] and not world.arrival.over


def test_it_waits_for_whoever_is_at_it(world: World) -> None:
    world.coming.busy = True
    assert world.fetch() == [] and world.coming.last.is_set()
    assert not world.fetching._is_more(world.coming)
    assert world.fetched == [world.arrival]


def test_what_was_given_up_meanwhile_is_not_used(world: World) -> None:
    """Some of it may be in, and some not."""
    world.coming.busy = True
    assert world.fetch() == []
    world.fetching._not_ahead(world.coming, ValueError("it cannot be read"))
    assert not world.fetching._is_more(world.coming)
    assert world.fetched == [None] and world.arrival.over


def test_what_comes_along_is_not_all_while_pieces_are_going_in(world: World) -> None:
    state = SmallState("key", EPOCH, "writer", (b"piece",), b"")
    world.fetching._along.keep(TASK, EPOCH, memoryview(along.small(state, 0)))
    world.coming.busy = True
    assert not world.fetching._is_whole(TASK, EPOCH) and world.coming.whole is None
    world.coming.busy = False
    assert world.fetching._is_whole(TASK, EPOCH)
    assert world.coming.whole is not None and list(world.coming.whole.pieces) == [b"piece"]
