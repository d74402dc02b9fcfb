"""Small states are copied one by one, with rests in between."""

from __future__ import annotations

import threading

import pytest

from elastic.worker import one_by_one
from elastic.worker.one_by_one import IN_ALL, REST, RESTS, OneByOne

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


def copy(states: OneByOne, clock: Clock, took: float) -> None:
    with states.turn():
        clock.now += took


@pytest.mark.parametrize(
    ("count", "took", "rest"),
    [
        (3, 0.004, RESTS * 0.004),
        (3, 0.0, 0.0),
        (3, 1.0, REST),
        (1000, 0.004, IN_ALL / 1000),
    ],
)
def test_from_one_to_the_next_the_stream_has_its_time(
    clock: Clock, count: int, took: float, rest: float
) -> None:
    states = OneByOne(clock)
    for _ in range(count):
        states.expect()
    for _ in range(count):
        copy(states, clock, took)
    assert clock.waited[0] == 0.0, "the first one does not wait"
    assert clock.waited[1:] == pytest.approx([rest] * (count - 1)), (
        "and a thousand do not rest for twelve seconds"
    )
    clock.now += 10
    states.expect()
    copy(states, clock, took)
    assert clock.waited[-1] == 0.0, "what comes later does not wait"


def test_one_that_fails_leaves_its_turn_to_the_next(clock: Clock) -> None:
    states = OneByOne(clock)
    for _ in range(2):
        states.expect()
    with pytest.raises(ValueError, match="no copy"), states.turn():
        raise ValueError("no copy")
    copy(states, clock, 0.0)


def test_who_closes_is_not_waited_for(clock: Clock) -> None:
    states = OneByOne(clock)
    for _ in range(2):
        states.expect()
    copy(states, clock, 1.0)
    clock.set()
    before = clock.now
    copy(states, clock, 0.0)
    assert clock.now == before


def test_one_that_takes_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_by_one, "LONGEST", 0.0)
    states, inside, gate = OneByOne(threading.Event()), threading.Event(), threading.Event()
    for _ in range(3):
        states.expect()

    def long() -> None:
        with states.turn():
            inside.set()
            gate.wait(LIMIT)

    first = threading.Thread(target=long)
    first.start()
    try:
        assert inside.wait(LIMIT)
        with states.turn():
            assert not gate.is_set()
    finally:
        gate.set()
        first.join(LIMIT)
    with states.turn():  # the one that did not have it has not given it away either
        assert not states._turn.acquire(timeout=0)
