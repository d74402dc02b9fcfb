"""Room in a cluster: what the stores tell each other of reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from statestore.budget import Budget
from statestore.errors import Full, Unavailable
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.room import Room

LIMIT = 1 << 20


class Grid:
    """One entry, changed by exchange; before a look at it something may happen."""

    name = "a cluster"

    def __init__(self) -> None:
        self.entry: bytes | None = None
        self.there = 1
        self.before: Callable[[], None] = lambda: None

    def read(self, key: str, *, anew: bool = False) -> bytes | None:
        before, self.before = self.before, lambda: None
        before()
        return self.entry

    def exchange(self, key: str, old: bytes | None, new: bytes) -> bool:
        if self.entry != old:
            return False
        self.entry = new
        return True

    def members(self) -> int:
        return self.there

    def entries(self) -> Iterator[tuple[str, bytes]]:
        return iter(())


class Store:
    """A store's room; what it does later is done when the test says so."""

    def __init__(self, grid: Grid, name: str) -> None:
        self.jobs: list[Callable[[], None]] = []
        made: Any = grid
        self.room = Room(made, lambda members: LIMIT * members, name, lambda: 0, self.jobs.append)

    def later(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


@pytest.fixture
def grid() -> Grid:
    return Grid()


def reserved(grid: Grid) -> int:
    """As a third store sees it."""
    room = Store(grid, "c").room
    room.refresh()
    return room.capacity().reserved


def test_members_that_come_later_count(grid: Grid) -> None:
    room = Store(grid, "a").room
    with pytest.raises(Full):
        room.take("k", 1, LIMIT + 1)
    grid.there = 2
    room.take("k", 1, LIMIT + 1)
    assert room.capacity().limit == 2 * LIMIT
    grid.there = 1
    with pytest.raises(Full):
        room.reserve(2, {"k": LIMIT + 1}, 60.0)


@pytest.mark.parametrize(
    ("backups", "limits"), [(0, [128, 256, 384]), (1, [128, 128, 192, 256]), (2, [128, 128, 128, 170])]
)
def test_a_quarter_of_all_heaps_is_used_backups_included(backups: int, limits: list[int]) -> None:
    options = HazelcastOptions(("x:1",), backups=backups, heap=512 << 20, limit=1)
    assert [options.limit_of(n) >> 20 for n in range(1, len(limits) + 1)] == limits
    assert options.limit_of(0) == options.limit_of(1), "they are not known yet"
    assert HazelcastOptions(("x:1",), limit=7).limit_of(3) == 7


def test_the_cluster_is_told_of_what_has_ended(grid: Grid) -> None:
    store = Store(grid, "a")
    for epoch in (1, 2):
        store.room.reserve(epoch, {"k": 1000}, 60.0)
    both = reserved(grid)
    store.room.settle("k", 1, 0, 0)
    assert reserved(grid) == both
    store.later()
    assert 0 < reserved(grid) < both
    store.room.release(2, ["k"])
    assert reserved(grid) == 0


def test_what_is_reserved_while_an_end_is_told_stays(grid: Grid) -> None:
    """Once before it looks at what the cluster knows, and once after that."""
    store, other = Store(grid, "a"), Store(grid, "b")
    store.room.reserve(1, {"k": 1000}, 60.0)
    store.room.settle("k", 1, 0, 0)
    grid.before = lambda: store.room.reserve(1, {"next": LIMIT // 2}, 60.0)
    store.later()
    with pytest.raises(Full):
        other.room.reserve(1, {"there": LIMIT // 2}, 60.0)

    exchange = grid.exchange

    def meanwhile(key: str, old: bytes | None, new: bytes) -> bool:
        grid.exchange = exchange  # type: ignore[method-assign]
        store.room.reserve(1, {"next": LIMIT // 2}, 60.0)
        return grid.exchange(key, old, new)

    store.room.settle("next", 1, 0, 0)
    grid.exchange = meanwhile  # type: ignore[method-assign]
    store.later()
    with pytest.raises(Full):
        other.room.reserve(1, {"there": LIMIT // 2}, 60.0)
    store.room.settle("next", 1, 0, 0)
    store.later()
    assert reserved(grid) == 0, "and its end is told"


def _unavailable() -> None:
    raise Unavailable("planted")


@pytest.mark.parametrize("how", ["there was no place for it", "the cluster did not answer"])
def test_an_end_of_which_the_cluster_was_not_told_is_told_at_the_next_look(grid: Grid, how: str) -> None:
    store = Store(grid, "a")
    store.room.reserve(1, {"k": 1000}, 60.0)
    store.room.settle("k", 1, 0, 0)
    if how == "there was no place for it":
        store.jobs.clear()
    else:
        grid.before = _unavailable
        with pytest.raises(Unavailable):
            store.later()
    store.room.refresh()
    store.later()
    assert reserved(grid) == 0


def test_a_release_that_failed_can_be_repeated(grid: Grid) -> None:
    store = Store(grid, "a")
    store.room.reserve(1, {"k": 1000}, 60.0)
    grid.before = _unavailable
    with pytest.raises(Unavailable):
        store.room.release(1, ["k"])
    store.room.release(1, ["k"])
    assert reserved(grid) == 0


def test_what_is_used_of_a_reservation_is_not_held_as_well() -> None:
    budget = Budget(LIMIT, "a store")
    budget.reserve(1, {"k": LIMIT // 2}, 60.0)
    held = budget.capacity().reserved
    budget.take("k", 1, LIMIT // 4)
    assert budget.capacity().reserved == held - LIMIT // 4
    budget.take("k", 1, LIMIT // 2)
    assert budget.capacity().reserved == 0 and budget.capacity().used == LIMIT // 4 * 3


def test_a_second_reservation_of_a_write_needs_no_room_beside_the_first() -> None:
    budget = Budget(LIMIT, "a store")
    for part in (60, 70, 90):
        budget.reserve(1, {"k": LIMIT // 100 * part}, 60.0)
    with pytest.raises(Full):
        budget.reserve(2, {"k": LIMIT // 100 * 20}, 60.0)


def test_each_reservation_ends_at_its_own_time() -> None:
    now = [0.0]
    budget = Budget(LIMIT, "a store", lambda: now[0])
    for epoch, seconds in ((1, 10.0), (2, 100.0), (3, 50.0)):
        budget.reserve(epoch, {"k": 1000}, seconds)
    for now[0], left in ((9.0, {1, 2, 3}), (10.0, {2, 3}), (50.0, {2}), (100.0, set[int]())):
        assert {epoch for epoch in (1, 2, 3) if budget.reserved(epoch)} == left
