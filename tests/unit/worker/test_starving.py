"""What is emitted for an executor with nothing to do is handed on at once; for one that is at another task, with what comes next."""

from __future__ import annotations

import threading

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.api.context import TopologyContext
from elastic.worker.emitting.destination import Destination
from tests.unit.worker.harness import InProcess

PATIENCE = 30.0
SOON = 0.3
MANY = 20_000
"""More than a slice of the spout is long enough for."""


class World:
    """What tasks and the test tell each other."""

    def __init__(self) -> None:
        self.runs, self.held, self.emitted, self.came, self.enough = (threading.Event() for _ in range(5))


world = World()
RUN, STAY, COME = range(3)


class Always(Spout):
    """One tuple for each task of `held`; and when the first one is held by it, as many as there is time for to the second."""

    outputs = Fields(what=int)

    def prepare(self, context: TopologyContext) -> None:
        self.emitted = 0
        self.first, self.second = context.tasks_of("held")

    def next_tuple(self) -> float | None:
        if not self.emitted:
            self.emit_direct(self.second, RUN)
        elif self.emitted == 1 and world.runs.is_set():
            self.emit_direct(self.first, STAY)
        elif self.emitted > 1 and world.held.is_set() and not world.enough.is_set():
            self.emit_direct(self.second, COME)
        else:
            return None
        self.emitted += 1
        if self.emitted == MANY:
            world.emitted.set()
        return None


class Held(Bolt):
    """Stays within a tuple that says so for as long as the test wants."""

    def execute(self, tup: object) -> None:
        what = tup.what  # type: ignore[attr-defined]
        if what == STAY:
            world.held.set()
            world.enough.wait(PATIENCE)
        elif what == RUN:
            world.runs.set()
        else:
            world.came.set()


def beside_one_that_is_held(executors: int, patience: float) -> tuple[bool, int]:
    """Whether something came to a task with nothing to do, while another one is held up, and how much has been handed on to it."""
    global world
    world = World()
    b = TopologyBuilder("starving", linger=PATIENCE, batch_rows=1 << 20)
    b.spout("always", Always())
    b.bolt("held", Held(), tasks=2, executors=executors).direct("always")
    with InProcess(b.build(), 1) as cluster:
        try:
            assert world.emitted.wait(PATIENCE)
            came = executors == 2 and world.came.wait(patience)
            second = cluster.workers[0].tasks[cluster.spec.tasks_of("held")[1]]
            return came, second.queued
        finally:
            world.enough.set()


def test_an_executor_with_nothing_to_do_is_not_kept_waiting() -> None:
    came, _ = beside_one_that_is_held(2, PATIENCE)
    assert came


def test_for_one_that_is_busy_it_is_kept_together() -> None:
    assert beside_one_that_is_held(1, PATIENCE) == (False, 0)


def test_an_emitter_that_keeps_it_from_everybody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Destination, "starves", lambda destination, emitter: False)
    came, _ = beside_one_that_is_held(2, SOON)
    assert not came


def test_an_emitter_that_hands_on_tuple_by_tuple_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Destination, "starves", lambda destination, emitter: destination.hungry())
    _, queued = beside_one_that_is_held(1, PATIENCE)
    assert queued > 0
