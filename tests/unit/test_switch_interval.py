"""How often a worker's threads give way to each other: more often while a few tasks move, less so when many do."""

from __future__ import annotations

from elastic.cluster.switching import (
    FEW,
    FEW_STILL,
    SWITCH,
    SWITCH_MANY,
    SWITCH_MOVING,
    SWITCH_PAUSED,
    switch_interval,
)
from elastic.migration.record import MoveRecord, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId

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


def test_a_few_tasks_are_waited_for_and_many_do_not_hold_up_the_stream() -> None:
    assert switch_interval(view(0)) == SWITCH
    assert switch_interval(view(FEW)) == SWITCH_MOVING
    assert switch_interval(view(FEW, paused=1)) == SWITCH_PAUSED
    assert switch_interval(view(FEW + 1)) == SWITCH_MANY
    assert switch_interval(view(100, paused=1)) == SWITCH_MANY
    assert switch_interval(view(FEW * FEW_STILL, paused=1, batch=FEW_STILL)) == SWITCH_PAUSED
    assert switch_interval(view(FEW * FEW_STILL, paused=2, batch=FEW_STILL)) == SWITCH_MANY
    assert switch_interval(view(FEW + 1, paused=1, batch=1)) == SWITCH_MANY, "one after the other lasts"
    assert SWITCH_PAUSED < SWITCH_MOVING < SWITCH_MANY < SWITCH
