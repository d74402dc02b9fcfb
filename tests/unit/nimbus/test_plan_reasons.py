"""Why each task of a plan is to move: requests come while others have not been carried out."""

from __future__ import annotations

from dataclasses import replace

from elastic.model.assignment import Assignment
from elastic.model.codec import decode, encode
from elastic.model.ids import Epoch, TaskId, TopologyName
from elastic.nimbus.observing.plans import Ask, Plan

ONE, TWO, THREE = TaskId(1), TaskId(2), TaskId(3)
FIRST = Plan(Assignment(TopologyName("wc"), Epoch(1), {}, ()), "move 1 to a", 0.0, True)


def test_each_task_keeps_its_reason_until_somebody_asks_for_it_again() -> None:
    second = replace(FIRST, why="move 2 to b", earlier=FIRST.asked_before([ONE]))
    assert second.why_of([ONE]) == "move 1 to a" and second.why_of([TWO]) == "move 2 to b"
    assert second.why_of([TWO, ONE]) == "move 1 to a; move 2 to b"
    third = replace(second, why="move 3 to c", earlier=second.asked_before([ONE, TWO]))
    assert third.why_of([ONE, TWO, THREE]) == "move 1 to a; move 2 to b; move 3 to c"
    again = replace(third, why="move 1 to a", earlier=third.asked_before([TWO, THREE]))
    assert [(ask.why, ask.tasks) for ask in again.earlier] == [
        ("move 2 to b", (TWO,)),
        ("move 3 to c", (THREE,)),
    ]
    assert again.why_of([ONE]) == "move 1 to a"


def test_what_is_asked_for_twice_stands_there_once() -> None:
    second = replace(FIRST, why="move 2 to b", earlier=FIRST.asked_before([ONE]))
    again = replace(second, why="move 1 to a")
    assert again.asked_before([ONE, TWO]) == (Ask("move 1 to a", 0.0, 0.0, (ONE, TWO)),)
    later = replace(again, asked=7.0)
    assert len(later.asked_before([ONE, TWO])) == 2 and later.why_of([ONE, TWO]) == "move 1 to a"


def test_each_task_has_its_own_time_and_share() -> None:
    second = replace(FIRST, why="move 2 to b", asked=5.0, share=0.5, earlier=FIRST.asked_before([ONE]))
    assert [second.asked_at(n) for n in (ONE, TWO, THREE)] == [0.0, 5.0, 5.0]
    assert {n: ask.share for n, ask in second.asks().items()} == {ONE: 0.0}
    again = second.asked_again([ONE, THREE], 9.0)
    assert [again.asked_at(n) for n in (ONE, TWO, THREE)] == [9.0, 5.0, 9.0]
    assert again.why_of([ONE]) == "move 1 to a" and again.why_of([THREE]) == "move 2 to b"
    assert again.asks()[THREE].share == 0.5
    assert second.asked_again([], 9.0) == second
    assert decode(encode(again), Plan) == again
