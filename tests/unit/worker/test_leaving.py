"""What has gone elsewhere is freed a little at a time, and nothing of it stays."""

from __future__ import annotations

import threading
import weakref
from itertools import pairwise
from typing import Any

from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.worker import leaving
from elastic.worker.leaving import LARGE, SLICE, Leaving


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


def test_a_large_state_is_freed_although_somebody_still_refers_to_the_component() -> None:
    component, leaves = _holding(LARGE + 1), Leaving()
    last = weakref.ref(component.entries[LARGE])
    leaves.add(component)
    assert _ended(leaves)
    assert not component.entries
    assert last() is None
    leaves.close()


def test_no_more_than_a_slice_is_freed_at_a_time(monkeypatch: Any) -> None:
    left: list[int] = []

    class Watched(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            left.append(len(component.entries))
            return super().wait(0)

    component, leaves = _holding(LARGE + 1), Leaving()
    monkeypatch.setattr(leaves, "_closing", Watched())
    leaves.add(component)
    assert _ended(leaves)
    assert left[0] == LARGE + 1
    assert max(a - b for a, b in pairwise(left)) == SLICE


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
    component, leaves = _holding(LARGE), Leaving()
    leaves.add(component)
    assert leaves._thread is None
    assert len(component.entries) == LARGE


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
