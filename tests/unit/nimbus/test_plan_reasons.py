"""Why each task of a plan is to move: requests come while others have not been carried out."""

from __future__ import annotations

from dataclasses import replace

from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, TaskId, TopologyName
from elastic.nimbus.plans import Plan

ONE, TWO, THREE = TaskId(1), TaskId(2), TaskId(3)
FIRST = Plan(Assignment(TopologyName("wc"), Epoch(1), {}, ()), "move 1 to a", 0.0, True)


def test_each_task_keeps_its_reason_until_somebody_asks_for_it_again() -> None:
    second = replace(FIRST, why="move 2 to b", reasons=FIRST.for_other_reasons([ONE]))
    assert second.why_of([ONE]) == "move 1 to a" and second.why_of([TWO]) == "move 2 to b"
    assert second.why_of([TWO, ONE]) == "move 1 to a; move 2 to b"
    third = replace(second, why="move 3 to c", reasons=second.for_other_reasons([ONE, TWO]))
    assert third.why_of([ONE, TWO, THREE]) == "move 1 to a; move 2 to b; move 3 to c"
    again = replace(third, why="move 1 to a", reasons=third.for_other_reasons([TWO, THREE]))
    assert again.reasons == (("move 2 to b", (TWO,)), ("move 3 to c", (THREE,)))
    assert again.why_of([ONE]) == "move 1 to a"


def test_what_is_asked_for_twice_stands_there_once() -> None:
    second = replace(FIRST, why="move 2 to b", reasons=FIRST.for_other_reasons([ONE]))
    again = replace(second, why="move 1 to a")
    assert again.for_other_reasons([ONE, TWO]) == (("move 1 to a", (ONE, TWO)),)
