"""How often a spout is asked: the settings `rate` and `idle_wait`, and what it says itself."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Fields, Spout
from elastic.worker.executing import spouts
from elastic.worker.executing.spouts import SpoutDriver


class Task(SimpleNamespace):
    """That can be referred to weakly."""


class Asked(Spout):
    """Emits if it has something to emit, and remembers when it was asked."""

    outputs = Fields(number=int)

    def __init__(self, clock: Any, task: Any) -> None:
        self.clock, self.task = clock, task
        self.emits, self.hint = True, None
        self.at: list[float] = []

    def next_tuple(self) -> float | None:
        self.at.append(self.clock.now)
        self.task.outputs.emitted += self.emits
        return self.hint


class Driven:
    """A spout's driver whose clock only moves on to when it is to be woken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tasks: int = 1, **config: float) -> None:
        self.now = 100.0
        self.due = 0.0
        monkeypatch.setattr(spouts, "time", self)
        task = Task(
            outputs=SimpleNamespace(emitted=0, unrouted=0, waiting=lambda: 0),
            context=SimpleNamespace(parallelism=tasks),
            executed=0,
            stopping=None,
            stopped=False,
            scheduled=True,
            _lock=threading.Lock(),
            executor=SimpleNamespace(wake_later=self.wake_later),
            marks=SimpleNamespace(finished=False),
            spec=SimpleNamespace(vector=False),
            failures=SimpleNamespace(broken=False),
        )
        self.spout = Asked(self, task)
        self.driver = SpoutDriver(task, self.spout, config)  # type: ignore[arg-type]

    def monotonic(self) -> float:
        return self.now

    def wake_later(self, at: float, task: Any) -> None:
        self.due = at

    def goes_on(self, times: int) -> list[float]:
        """Let it rest so often; returns how long each time."""
        rests = []
        for _ in range(times):
            while self.driver.run(self.now):
                pass  # it asks until it has to rest
            rests.append(self.due - self.now)
            self.now = self.due
        return rests


@pytest.mark.parametrize("wait", [0.0001, 0.25, 60.0])
def test_a_spout_that_emitted_nothing_is_asked_again_after_its_wait(
    wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Driven(monkeypatch, idle_wait=wait)
    driven.spout.emits = False
    assert driven.goes_on(3) == pytest.approx([wait] * 3)
    assert len(driven.spout.at) == 3
    driven.spout.hint = 7.0
    assert driven.goes_on(1) == pytest.approx([7.0]), "what it says itself comes first"


@pytest.mark.parametrize(("rate", "tasks"), [(50.0, 1), (50.0, 4), (0.001, 1)])
def test_the_tasks_of_a_spout_are_asked_as_often_as_the_rate_says_all_together(
    rate: float, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven = Driven(monkeypatch, tasks, rate=rate)
    while len(driven.spout.at) < 100:
        driven.goes_on(1)
    at = driven.spout.at
    assert (at[-1] - at[0]) / (len(at) - 1) == pytest.approx(tasks / rate, rel=0.01)


def test_what_a_spout_was_late_for_by_more_than_a_second_does_not_come_in_a_burst(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driven = Driven(monkeypatch, rate=50.0)
    driven.goes_on(5)
    driven.now += 1000.0
    asked = len(driven.spout.at)
    late = driven.now
    while driven.now < late + 10.0:
        driven.goes_on(1)
    assert len(driven.spout.at) - asked <= 10 * 50 + 50
