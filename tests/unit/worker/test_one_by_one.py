"""Small states are copied one by one, with rests in between."""

from __future__ import annotations

import threading

import pytest

from elastic.worker.moving import one_by_one
from elastic.worker.moving.one_by_one import REST, RESTS, OneByOne

LIMIT = 10.0


class Clock(threading.Event):
    """Nobody waits in truth: time passes by as much, unless it is closing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now, self.waited = 100.0, list[float]()
        monkeypatch.setattr(one_by_one, "time", self)

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waited.append(timeout)
        if not self.is_set():
            self.now += timeout
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def copy(states: OneByOne, clock: Clock, took: float, share: float = 1.0) -> None:
    with states.turn(share):
        clock.now += took


@pytest.mark.parametrize(
    ("took", "share", "rest"),
    [(0.004, 1, RESTS * 0.004), (0.0, 1, 0.0), (1.0, 1, REST), (1.0, 1 / 8, REST / 8)],
)
def test_from_one_to_the_next_the_stream_has_its_time(
    clock: Clock, took: float, share: float, rest: float
) -> None:
    """Tasks that stand still together share it."""
    states = OneByOne(clock)
    for _ in range(3):
        copy(states, clock, took, share)
    assert clock.waited == pytest.approx([0.0, rest, rest])
    clock.now += 10
    copy(states, clock, took, share)
    assert clock.waited[-1] == 0.0, "what comes later does not wait"


def test_one_that_fails_leaves_its_turn_to_the_next(clock: Clock) -> None:
    states = OneByOne(clock)
    with pytest.raises(ValueError, match="no copy"), states.turn(1.0):
        raise ValueError("no copy")
    copy(states, clock, 0.0)


def test_who_closes_is_not_waited_for(clock: Clock) -> None:
    states = OneByOne(clock)
    copy(states, clock, 1.0)
    clock.set()
    before = clock.now
    copy(states, clock, 0.0)
    assert clock.now == before


def test_one_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_by_one, "LONGEST", 0.0)
    states, inside, gate = OneByOne(threading.Event()), threading.Event(), threading.Event()

    def long() -> None:
        with states.turn(1.0):
            inside.set()
            gate.wait(LIMIT)

    first = threading.Thread(target=long)
    first.start()
    try:
        assert inside.wait(LIMIT)
        with states.turn(1.0):
            assert not gate.is_set()
    finally:
        gate.set()
        first.join(LIMIT)
    with states.turn(1.0):  # the one that did not have it has not given it away either
        assert not states._turn.acquire(timeout=0)
