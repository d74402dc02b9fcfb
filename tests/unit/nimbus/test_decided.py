"""When Nimbus need not decide anew: whatever matters makes it, the marks of moves do not."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from elastic.migration.record import Marked, Marks, MoveRecord, Outcome, TaskMove
from elastic.model.assignment import NodeInfo
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.nimbus.deciding.decided import Decided
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts
from elastic.nimbus.observing.plans import Plan, nothing

T = TopologyName("t")
N = NodeId("n")
A, B = Incarnation("t@n/0#1"), Incarnation("t@m/0#1")
PART = TaskMove(TaskId(1), "c", A, B, N, NodeId("m"))
RECORD = MoveRecord(T, Epoch(1), "", (PART,))
MOVE = MoveFacts(RECORD, 0, {A: Marked(Marks(A), 0), B: Marked(Marks(B), 0)})
STATE = TopologyState(TopologyStatus.ACTIVE, "1", "b", 0.0)
PLAN = Plan(nothing(T), "why", 1.0)
TOPOLOGY = TopologyFacts(TopologySpec(T, ()), STATE, 0, moves={Epoch(1): MOVE}, latest=1, plan=PLAN)
FACTS = Facts(100.0, topologies={T: TOPOLOGY})
BY = object()

OTHERWISE = {
    "state_version": 1,
    "assignment_version": 1,
    "workers": {WorkerId("t@n/0"): WorkerInfo(WorkerId("t@n/0"), A, "a", "", "b", 1, Epoch(1))},
    "progress": {WorkerId("t@n/0"): Progress(A, Epoch(1))},
    "latest": 2,
    "plan_version": 0,
    "checkpoints_version": 0,
}
WITH_A_VERSION = {"spec", "state", "assignment", "plan", "latest_version", "checkpoints"}
"""What does not change without the version, the number or the identity beside it."""


def decided(due: float | None = None) -> Decided:
    """When nothing was to be done on `FACTS`."""
    made = Decided()
    made.note(FACTS, BY, due)
    return made


def moved(move: MoveFacts) -> Facts:
    return replace(FACTS, topologies={T: replace(TOPOLOGY, moves={Epoch(1): move})})


def test_marks_and_pauses_are_no_reason() -> None:
    assert not Decided().covers(FACTS, BY)
    assert decided().covers(FACTS, BY) and decided().covers(replace(FACTS, now=101.0), BY)
    marks = {A: Marked(Marks(A, asked=(1,)), 1), B: Marked(Marks(B, restored={1: 1}), 4)}
    assert decided().covers(moved(MoveFacts(replace(RECORD, paused=1, ready=1), 7, marks)), BY)


def test_that_an_aborted_move_goes_on_is_one() -> None:
    """It came too late for that task, which shall be at its new place then."""
    marks = {**MOVE.marks, B: Marked(Marks(B, restored={1: 1}), 4)}
    aborted = replace(TOPOLOGY, plan=replace(PLAN, halted="tea time"))
    facts = replace(FACTS, topologies={T: replace(aborted, moves={Epoch(1): MOVE})})
    known = Decided()
    known.note(facts, BY, None)
    assert known.covers(facts, BY)
    on = replace(FACTS, topologies={T: replace(aborted, moves={Epoch(1): replace(MOVE, marks=marks)})})
    assert not known.covers(on, BY)


def test_what_becomes_of_a_move_is_one() -> None:
    over = replace(RECORD, tasks=(replace(PART, outcome=Outcome.COMMITTED),))
    other = replace(RECORD, tasks=(replace(PART, target=A, attempt=2),))
    for move in (replace(MOVE, record=over), replace(MOVE, record=other), replace(MOVE, marks={})):
        assert not decided().covers(moved(move), BY)
    assert not decided().covers(replace(FACTS, topologies={T: replace(TOPOLOGY, moves={})}), BY)


@pytest.mark.parametrize("name", [f.name for f in fields(TopologyFacts) if f.name != "moves"])
def test_everything_else_of_a_topology_is_one(name: str) -> None:
    if name in WITH_A_VERSION:
        return
    other = replace(TOPOLOGY, **{name: OTHERWISE[name]})
    assert not decided().covers(replace(FACTS, topologies={T: other}), BY)


def test_another_topology_of_that_name_is_one() -> None:
    other = replace(TOPOLOGY, state=replace(STATE, id="2"))
    assert not decided().covers(replace(FACTS, topologies={T: other}), BY)


@pytest.mark.parametrize("name", [f.name for f in fields(Facts) if f.name != "now"])
def test_everything_around_topologies_is_one(name: str) -> None:
    value = {
        "nodes": {N: NodeInfo(N, "h", 1, 1, "process")},
        "wanted": {N: WantedNode(2)},
        "drains": {N: True},
        "expected": {N: 1.0},
        "topologies": {},
        "elsewhere": {T: nothing(T)},
    }[name]
    assert not decided().covers(replace(FACTS, **{name: value}), BY)


def test_a_deadline_a_scheduler_and_what_was_done_are_reasons() -> None:
    assert decided(due=100.5).covers(FACTS, BY)
    assert not decided(due=100.5).covers(replace(FACTS, now=100.5), BY)
    assert not decided().covers(FACTS, object())
    made = decided(due=100.5)
    made.forget()
    assert not made.covers(FACTS, BY) and made.due is None
