"""How long a stream rests between two batches of a move, and who ends that."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from elastic.worker.moving.rests import MOST, Rests

LIMIT = 30.0
LATER = 1e-9
"""Seconds: what is not exact in binary does not count."""


class Clock:
    """Stands still unless somebody lets it go on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.over: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self.rests = Rests(lambda epoch, batch: self.over.put((epoch, batch)), lambda: self.now)

    def rested(self) -> tuple[int, int]:
        return self.over.get(timeout=LIMIT)


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    yield made
    made.rests.close()
    assert not [t for t in threading.enumerate() if t is made.rests._thread]


def test_where_nothing_was_held_nobody_rests(clock: Clock) -> None:
    clock.rests.begin(1, 4)
    assert clock.over.get_nowait() == (1, 4)
    assert clock.rests._thread is None


def test_it_lasts_as_long_as_something_was_held(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.now += MOST / 4
    clock.rests.holds(1)
    clock.now += MOST / 4
    clock.rests.begin(1, 1)
    clock.now += MOST / 2 - LATER
    with pytest.raises(queue.Empty):
        clock.over.get(timeout=2 * MOST)
    clock.now += 2 * LATER
    assert clock.rested() == (1, 1)
    clock.rests.begin(1, 2)
    assert clock.over.get_nowait() == (1, 2), "what was held before that one does not count again"


def test_it_does_not_last_long_whatever_was_held(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.now += 50 * MOST
    clock.rests.begin(1, 1)
    clock.now += MOST + LATER
    assert clock.rested() == (1, 1)


def test_a_later_turn_takes_the_place_of_one_that_is_awaited(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.now += MOST
    clock.rests.begin(1, 1)
    clock.rests.begin(1, 2)  # others have gone on meanwhile
    assert clock.rested() == (1, 2)
    clock.now += 2 * MOST
    with pytest.raises(queue.Empty):
        clock.over.get(timeout=2 * MOST)


def test_moves_do_not_wait_for_each_other(clock: Clock) -> None:
    for epoch in (1, 2, 3):
        clock.rests.holds(epoch)
    clock.now += MOST / 2
    for epoch in (1, 2, 3):
        clock.rests.begin(epoch, 1)
    clock.rests.keep({1, 3})
    clock.now += MOST
    assert {clock.rested(), clock.rested()} == {(1, 1), (3, 1)}
    assert clock.over.empty() and not clock.rests._under_way


def test_each_move_rests_as_long_as_was_held_for_it(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.now += MOST / 4
    clock.rests.holds(2)
    clock.now += MOST / 4
    for epoch in (1, 2):
        clock.rests.begin(epoch, 1)
    clock.now += MOST / 3
    assert clock.rested() == (2, 1)
    clock.now += MOST
    assert clock.rested() == (1, 1)


def test_one_that_begins_while_nobody_rests_ends_too(clock: Clock) -> None:
    idle = threading.Event()

    class Seen(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            if timeout is None:
                idle.set()  # under the lock: whoever begins a rest comes after that
            return super().wait(timeout)

    clock.rests._changed = Seen()
    for epoch in (1, 2):
        clock.rests.holds(epoch)
        clock.now += MOST / 2
        clock.rests.begin(epoch, 1)
        clock.now += MOST
        assert clock.rested() == (epoch, 1)
        assert idle.wait(LIMIT)
        idle.clear()


def test_of_a_move_that_is_over_nothing_is_kept(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.rests.keep({2})
    assert not clock.rests._held


def test_who_is_closed_lets_nobody_wait(clock: Clock) -> None:
    clock.rests.holds(1)
    clock.now += MOST
    clock.rests.begin(1, 1)
    clock.rests.holds(2)
    clock.now += MOST / 2
    clock.rests.close()
    clock.rests.begin(2, 1)
    assert clock.over.get_nowait() == (2, 1)
    clock.rests.close()
