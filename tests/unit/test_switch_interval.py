"""How a worker's threads give way to each other: more often while something moves, and who rests for those that stand still."""

from __future__ import annotations

import threading

import pytest

from elastic.cluster import switching
from elastic.cluster.switching import SWITCH, SWITCH_MOVING, Switching
from elastic.migration.record import MoveRecord, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.worker.executing.haste import FEW, FEW_STILL, few_stand_still

PATIENCE = 30.0
A, B = Incarnation("t@a/0#1"), Incarnation("t@b/0#1")


def view(tasks: int, paused: int = 0, batch: int = 1000) -> View:
    """Of a move of so many tasks, with so many batches of them paused."""
    moved = tuple(
        TaskMove(TaskId(n), "c", A, B, NodeId("a"), NodeId("b"), (n - 1) // batch)
        for n in range(1, tasks + 1)
    )
    record = MoveRecord(TopologyName("t"), Epoch(1), "", moved, paused)
    places = {n: WorkerId("t@a/0") for n in range(1, tasks + 1)}
    living = {WorkerId("t@a/0"): A, WorkerId("t@b/0"): B}
    return View(1, 1, (MoveView(record),) if tasks else (), places, living)


def test_who_rests_for_a_few_that_stand_still() -> None:
    assert not few_stand_still(view(0)) and not few_stand_still(view(FEW))
    assert few_stand_still(view(FEW, paused=1)) and not few_stand_still(view(100, paused=1))
    assert few_stand_still(view(FEW * FEW_STILL, paused=1, batch=FEW_STILL))
    more = FEW_STILL + 1
    assert not few_stand_still(view(FEW * more, paused=1, batch=more))
    assert few_stand_still(view(FEW * FEW_STILL, paused=2, batch=FEW_STILL)), "one after the other"
    assert not few_stand_still(view(FEW + 1, paused=1, batch=1)), "somebody stands still all the time"


class Intervals(list[float]):
    """What was set, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = threading.Event()

    def __call__(self, seconds: float) -> None:
        self.append(seconds)
        if seconds == SWITCH:
            self.usual.set()


def test_when_a_move_is_over_streams_are_worked_off_before_all_is_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switching, "AFTER", 1e-3)
    found = Intervals()
    one = Switching(found)
    one.see(view(1, paused=1))
    one.see(view(0))
    one.see(view(0))
    assert found.usual.wait(PATIENCE)
    one.close()
    assert found == [SWITCH_MOVING, SWITCH]


def test_another_move_is_not_cut_short_by_the_end_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "AFTER", PATIENCE)
    found = Intervals()
    one = Switching(found)
    one.see(view(0))
    one.see(view(FEW + 1))
    one.see(view(0))
    timer = one._timer
    assert timer is not None
    one.see(view(1))
    timer.join(PATIENCE)
    assert not timer.is_alive()
    one.see(view(0))
    one.close()
    assert found == [SWITCH_MOVING]


def test_a_timer_that_was_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have begun when another move does."""
    found = Intervals()
    one = Switching(found)
    one.see(view(1))
    one.see(view(0))
    late = one._timer
    assert late is not None
    one.see(view(1))
    late.function()
    assert found == [SWITCH_MOVING]
    one.close()


class Moving(list[bool]):
    def __init__(self) -> None:
        self.over = threading.Event()

    def __call__(self, moving: bool) -> None:
        self.append(moving)
        if not moving:
            self.over.set()


def test_what_may_be_about_to_move_is_made_ready_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "AFTER", PATIENCE)
    found, moving = Intervals(), Moving()
    one = Switching(found, moving=moving)
    one.see(view(0))
    one.expect()
    assert (found, moving) == ([SWITCH_MOVING], [True]), "before any view says so"
    one.see(view(0))
    one.see(view(1))
    one.expect()  # at the end of a move its tasks' places change once more
    one.see(view(0))
    one.close()
    assert (found, moving) == ([SWITCH_MOVING], [True])
    assert not moving.over.is_set()


def test_if_nothing_moves_all_is_as_usual_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "AFTER", 1e-3)
    found, moving = Intervals(), Moving()
    one = Switching(found, moving=moving)
    one.expect()
    assert moving.over.wait(PATIENCE)
    one.close()
    assert (found, moving) == ([SWITCH_MOVING, SWITCH], [True, False])
