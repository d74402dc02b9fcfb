"""A task that goes slower waits with its turn: its executor does everything else meanwhile, and what a move asks of the task at once."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from elastic.worker.executing.brake import TURN
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.pace import EVERY, Pace
from elastic.worker.executing.task import Task
from tests.unit.worker.harness import InProcess, lasting, over, passes, sources

PATIENCE = 20.0
LATE = 1000.0
"""Seconds: nobody waits for that."""


class Slow:
    """A brake: the next turn is at that time. Tells when it was asked."""

    on = True

    def __init__(self, at: float) -> None:
        self.at = at
        self.asked = threading.Event()

    def next_turn(self) -> float:
        self.asked.set()
        return self.at

    def had(self, began: float, executed: int) -> None:
        self.at = 0.0


@pytest.fixture
def cluster() -> Iterator[InProcess]:
    with lasting("slow") as made:
        yield made
        over.set()


def held(cluster: InProcess, late: float = LATE) -> tuple[Any, Any]:
    """A task that waits with its turn, and another one of its executor."""
    one, two = sources(cluster)
    slow = Slow(time.monotonic() + late)
    one.brake = slow
    assert slow.asked.wait(PATIENCE)
    passes(one.executor, PATIENCE)
    return one, two


def turns_of(task: Any, monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[float]:
    """Of its turns from now on, the seconds that each may last."""
    turns, run = queue.SimpleQueue[float](), task.run

    def runs(until: float) -> bool:
        turns.put(until - time.monotonic())
        return bool(run(until))

    monkeypatch.setattr(task, "run", runs)
    return turns


def test_others_of_its_executor_have_their_turns(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = held(cluster)
    assert one.held
    mine, others = turns_of(one, monkeypatch), turns_of(two, monkeypatch)
    others.get(timeout=PATIENCE)
    assert mine.empty()


def _asked_meanwhile(cluster: InProcess) -> None:
    one, _ = held(cluster)
    done, stopped = threading.Event(), threading.Event()
    one.call(done.set)
    assert done.wait(PATIENCE), "its state could not be copied"
    one.executor.stop_task(one, stopped.set)
    assert stopped.wait(PATIENCE), "it does not stand still"
    assert not one.held
    one.brake = None
    one.go_on()


def test_what_is_asked_of_it_is_done_meanwhile(cluster: InProcess) -> None:
    _asked_meanwhile(cluster)


def test_that_its_executor_waits_along_is_found(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    free, patience = threading.Event(), PATIENCE
    monkeypatch.setattr(Executor, "wake_later", lambda *_: free.wait(patience))
    monkeypatch.setitem(globals(), "PATIENCE", 0.3)
    try:
        with pytest.raises(AssertionError):
            _asked_meanwhile(cluster)
    finally:
        free.set()
        monkeypatch.undo()
        for task in cluster.workers[0].tasks.values():
            task.brake = None
            task.wake()


def test_it_has_its_turn_when_the_time_has_come(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = held(cluster, 0.2)
    turns_of(one, monkeypatch).get(timeout=PATIENCE)
    assert not one.held


def test_a_task_that_changes_hands_while_it_waits_has_its_turn_there(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = held(cluster)
    ran, one.brake = turns_of(one, monkeypatch), None
    cluster.apply(source=2)
    ran.get(timeout=PATIENCE)
    over.set()
    cluster.wait_finished()


def test_its_turns_are_short(cluster: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = held(cluster, 0.1)
    assert turns_of(one, monkeypatch).get(timeout=PATIENCE) <= TURN
    one.brake = None


def test_a_move_that_is_over_just_then_slows_nobody() -> None:
    class Over:
        reads = iter((Slow(LATE), None))

        @property
        def brake(self) -> Slow | None:
            return next(self.reads)

    assert Task.slowed.__get__(Over()) is True


def test_the_pace_is_that_of_the_last_second_or_two() -> None:
    pace, now, executed = Pace(), 100.0, 0
    assert pace.rate(now, executed) == 0.0
    pace.note(now, executed)
    assert pace.rate(now + EVERY / 4, 1000) == 0.0, "too short a time to tell"
    for _ in range(5):
        now, executed = now + EVERY, executed + 500
        assert pace.is_due(now)
        pace.note(now, executed)
    assert not pace.is_due(now + EVERY / 2)
    now, executed = now + EVERY, executed + 1500
    assert pace.rate(now, executed) == pytest.approx(1000.0)
    now += 3600.0
    assert pace.rate(now, executed + 10) == 0.0, "it had nothing to do"
    pace.note(now, executed + 10)
    assert pace.rate(now + EVERY, executed + 500) == 0.0
