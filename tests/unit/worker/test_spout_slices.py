"""A spout is asked for as long as a slice lasts: what it has emitted is handed on then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Fields, Spout
from elastic.worker.executing import spouts
from elastic.worker.executing.spouts import _SLICE, LOOKS, SpoutDriver


class Clock:
    """Moves on when a spout works."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now


class Task(SimpleNamespace):
    """That can be referred to weakly."""


class Works(Spout):
    outputs = Fields(number=int)

    def __init__(self, clock: Clock, task: Any) -> None:
        self.clock, self.task, self.takes, self.calls = clock, task, 0.0, 0

    def next_tuple(self) -> None:
        self.calls += 1
        self.clock.now += self.takes
        self.task.outputs.emitted += 1


def driven(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, Works, SpoutDriver]:
    clock = Clock()
    monkeypatch.setattr(spouts, "time", clock)
    outputs = SimpleNamespace(emitted=0, unrouted=0, waiting=lambda: 0)
    task = Task(
        outputs=outputs,
        executed=0,
        stopping=None,
        marks=SimpleNamespace(finished=False),
        spec=SimpleNamespace(vector=False),
        failures=SimpleNamespace(broken=False),
    )
    spout = Works(clock, task)
    return clock, spout, SpoutDriver(task, spout, {})  # type: ignore[arg-type]


def a_slice(clock: Clock, driver: SpoutDriver) -> float:
    """How long it takes."""
    began = clock.now
    assert driver.run(began + _SLICE)
    return clock.now - began


def slow_after_fast(monkeypatch: pytest.MonkeyPatch) -> float:
    """The slice in which the interpreter has become busy: every call takes a hundred times as long as before."""
    clock, spout, driver = driven(monkeypatch)
    spout.takes = _SLICE / 40
    for _ in range(10):
        a_slice(clock, driver)
    spout.takes = 100 * spout.takes
    return a_slice(clock, driver) / spout.takes


def test_calls_that_take_long_end_the_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slow_after_fast(monkeypatch) == pytest.approx(1.0)


def test_a_driver_that_looks_only_when_a_chunk_is_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(spouts, "LOOKS", 1)
    with pytest.raises(AssertionError):
        test_calls_that_take_long_end_the_slice(monkeypatch)


def test_short_calls_are_not_paid_for_with_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, spout, driver = driven(monkeypatch)
    spout.takes = _SLICE / 4096
    for _ in range(20):
        a_slice(clock, driver)
    clock.looks, before = 0, spout.calls
    a_slice(clock, driver)
    assert 4 * LOOKS < clock.looks < (spout.calls - before) / 40
