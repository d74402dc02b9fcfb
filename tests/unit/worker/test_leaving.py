"""What has gone elsewhere is freed a little at a time, and nothing of it stays."""

from __future__ import annotations

import threading
import weakref
from itertools import pairwise
from typing import Any

from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.worker.moving import leaving
from elastic.worker.moving.leaving import SLICE, SMALL, Leaving

LARGE = 3 * SLICE


class Holds(StatefulBolt):
    entries = KeyedState[int, Any]()

    def execute(self, tup: Any) -> None:
        """Nothing."""


class _Value:
    pass


def _holding(count: int) -> Holds:
    made = Holds()
    made.entries.update((n, _Value()) for n in range(count))
    return made


def _ended(leaving: Leaving) -> bool:
    """Waits for its thread."""
    for thread in threading.enumerate():
        if thread.name == "leaving":
            thread.join(30)
    return leaving._thread is None


def test_a_state_is_freed_although_somebody_still_refers_to_the_component() -> None:
    component, leaves = _holding(SMALL + 1), Leaving()
    last = weakref.ref(component.entries[SMALL])
    leaves.add(component)
    assert _ended(leaves)
    assert not component.entries
    assert last() is None
    leaves.close()


class _Watched(threading.Event):
    """Notes before each rest how many entries there are."""

    def __init__(self, states: list[Any]) -> None:
        super().__init__()
        self.states = states
        self.left: list[int] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.left.append(sum(map(len, self.states)))
        return super().wait(0)


def test_no_more_than_a_slice_is_freed_at_a_time(monkeypatch: Any) -> None:
    component, leaves = _holding(LARGE + 1), Leaving()
    watched = _Watched([component.entries])
    monkeypatch.setattr(leaves, "_closing", watched)
    leaves.add(component)
    assert _ended(leaves)
    assert watched.left[0] == LARGE + 1
    assert max(a - b for a, b in pairwise(watched.left)) == SLICE


def test_nor_of_several_small_ones(monkeypatch: Any) -> None:
    some, leaves = [_holding(SLICE // 2 - 1) for _ in range(7)], Leaving()
    watched = _Watched([c.entries for c in some])
    monkeypatch.setattr(leaves, "_closing", watched)
    leaves._waiting += [c.entries for c in some[1:]]  # all of them are there when it begins
    leaves.add(some[0])
    assert _ended(leaves)
    assert watched.left[0] == sum(SLICE // 2 - 1 for _ in some)
    assert max(a - b for a, b in pairwise(watched.left)) == SLICE
    assert not any(c.entries for c in some)


def test_one_that_cannot_be_freed_does_not_keep_others(monkeypatch: Any) -> None:
    some, leaves = [_holding(SLICE) for _ in range(3)], Leaving()
    free = leaves._free

    def fails(state: Any) -> None:
        if state is some[1].entries:
            raise KeyError("user code has taken the last one")
        free(state)

    monkeypatch.setattr(leaves, "_free", fails)
    for component in some:
        leaves.add(component)
    assert _ended(leaves)
    assert [len(c.entries) for c in some] == [0, SLICE, 0]


def test_what_was_remembered_of_its_changes_goes_with_it() -> None:
    component, leaves = _holding(LARGE + 1), Leaving()
    tracking.track(component.entries, reads=False)
    component.entries[0] = value = _Value()
    gone = weakref.ref(value)
    del value
    leaves.add(component)
    assert _ended(leaves)
    assert gone() is None and not tracking.is_tracking(component.entries)


def test_a_small_state_needs_no_thread() -> None:
    component, leaves = _holding(SMALL), Leaving()
    leaves.add(component)
    assert leaves._thread is None
    assert len(component.entries) == SMALL


def test_a_state_that_may_have_been_handed_to_somebody_stays_whole() -> None:
    class Hands(Holds):
        def cleanup(self) -> None:
            kept.append(self.entries)

    kept: list[Any] = []
    component, leaves = Hands(), Leaving()
    component.entries.update((n, n) for n in range(LARGE + 1))
    component.cleanup()
    leaves.add(component)
    assert _ended(leaves)
    assert len(kept[0]) == LARGE + 1


def test_a_worker_that_ends_does_not_wait_for_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(leaving, "REST", 60.0)
    component, leaves = _holding(LARGE + 1), Leaving()
    leaves.add(component)
    leaves.close()
    assert len(component.entries) == LARGE + 1
    leaves.add(component)
    assert leaves._thread is None
