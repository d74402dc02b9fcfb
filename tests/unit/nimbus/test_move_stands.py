"""What only Nimbus knows that a move waits for is an event, when that has lasted, and again and again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.migration.mover_old import MoverOld
from elastic.migration.record import AT_ONCE, Marked, Marks, MoveRecord, Outcome, SavedMark, TaskMove
from elastic.migration.table import OldState
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName
from elastic.nimbus.moves import move_stands
from elastic.nimbus.moves.move_stands import AFTER, AGAIN, MoveStands
from elastic.nimbus.observing.facts import MoveFacts

T = TopologyName("t")
A, B = Incarnation("t@n1/0#1"), Incarnation("t@n2/0#1")
RECORD = MoveRecord(
    T, Epoch(3), "why", tuple(TaskMove(TaskId(n), "c", A, B, NodeId("n1"), NodeId("n2")) for n in (4, 5)), 1
)
SETTLED = replace(RECORD, tasks=tuple(replace(t, outcome=Outcome.COMMITTED) for t in RECORD.tasks))
SAVED = {4: SavedMark((NodeId("n1"),))}


def facts(now: float, record: MoveRecord, *lives: Incarnation, closed: bool = False) -> Any:
    marks = {
        A: Marked(Marks(A, saved=SAVED, closed=True), 1),
        B: Marked(Marks(B, closed=closed), 1),
    }
    workers = {str(i).partition("#")[0]: SimpleNamespace(incarnation=i) for i in lives}
    move = MoveFacts(record, 1, marks)
    topology = SimpleNamespace(
        name=T, state=SimpleNamespace(id="t-1"), running=True, moves={Epoch(3): move}, workers=workers
    )
    return SimpleNamespace(now=now, topologies={T: topology})


def test_nobody_who_lives_can_restore_it() -> None:
    stands = MoveStands()
    assert stands.next_deadline() is None and stands.news(facts(10.0, RECORD, A, B)) == []
    assert stands.next_deadline() is None, "a worker has it to do, and says itself what it waits for"
    assert stands.news(facts(20.0, RECORD, A)) == [] and stands.next_deadline() == 20.0 + AFTER
    (said,) = stands.news(facts(20.0 + AFTER, RECORD, A))
    assert (said.kind, said.topology, said.task, said.worker) == ("move-stands", T, 4, "")
    assert said.details == {
        "epoch": 3,
        "tasks": "4",
        "for": "a living worker, to restore what is saved",
        "seconds": AFTER,
    }
    assert stands.news(facts(21.0 + AFTER, RECORD, A)) == []
    assert stands.next_deadline() == 20.0 + AFTER + AGAIN
    assert len(stands.news(facts(20.0 + AFTER + AGAIN, RECORD, A))) == 1
    assert stands.news(facts(90.0, RECORD, A, B)) == [] and stands.next_deadline() is None
    assert stands.news(facts(99.0, RECORD, A)) == [], "it begins anew"


def test_those_who_live_try_in_vain_to_restore_it() -> None:
    """Its only copy is damaged, say: an operator has to give it up, and is told how."""
    tasks = tuple(replace(t, attempt=AT_ONCE) for t in RECORD.tasks)
    record = replace(RECORD, tasks=tasks)
    stands = MoveStands()
    assert stands.news(facts(1.0, record, A, B)) == [] and stands.next_deadline() is None, "it goes back"
    assert stands.news(facts(1.0, record, B)) == []
    (said,) = stands.news(facts(1.0 + AFTER, record, B))
    assert "that can restore what is saved" in said.message
    assert "`elastic move t --abort --force` gives its state up" in said.message
    assert said.details["tasks"] == "4"
    later = replace(record, tasks=tuple(replace(t, attempt=AT_ONCE + 3) for t in tasks))
    assert len(stands.news(facts(1.0 + AFTER + AGAIN, later))) == 1, (
        "it is the same, also when that worker has ended"
    )
    assert stands.news(facts(99.0, replace(later, abort="enough", forced=True), B)) == []


def test_somebody_has_not_closed() -> None:
    stands = MoveStands()
    assert stands.news(facts(1.0, SETTLED, A, B)) == []
    (said,) = stands.news(facts(1.0 + AFTER, SETTLED, A, B))
    assert said.details["for"] == "t@n2/0 to close it" and said.details["tasks"] == "4,5"
    assert stands.news(facts(99.0, SETTLED, A, B, closed=True)) == []
    assert stands.news(facts(100.0, SETTLED, A)) == [] and stands.next_deadline() is None, (
        "who is gone closes nothing"
    )


def test_an_old_side_says_that_its_mark_is_not_written() -> None:
    old = MoverOld(4, 3)
    old.missing = {2}
    waits = {}
    for state in OldState:
        old.state = state
        waits[state] = old.waits_for
    assert "saved" in waits[OldState.MARKING]
    paused = (OldState.DRAINING, OldState.STOPPING, OldState.CONFIRMING, OldState.SAVING, OldState.MARKING)
    assert all(waits[s] for s in paused)


def test_what_is_never_said_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_stands, "_waits", lambda move, t: iter(()))
    for test in (
        test_nobody_who_lives_can_restore_it,
        test_those_who_live_try_in_vain_to_restore_it,
        test_somebody_has_not_closed,
    ):
        with pytest.raises((AssertionError, ValueError)):
            test()
