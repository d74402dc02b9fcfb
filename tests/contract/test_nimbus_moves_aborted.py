"""Moves that an operator ends early: what goes back, what arrives, and what is given up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from coordination_harness import PATIENCE
from move_harness import COUNT, A, B, Moving, places, takes_over

from elastic.coordination.base import Operation
from elastic.errors import NotConnected, NotFound, Refused, Unavailable
from elastic.migration.record import AT_ONCE, Phase, TaskMove
from elastic.model.ids import worker_of
from elastic.nimbus.observing.facts import TopologyFacts


def test_an_abort_takes_back_what_is_not_saved(moving: Moving, background: ThreadPoolExecutor) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    waiting = background.submit(nimbus.move, "wc", "count", "b", wait=3 * PATIENCE)
    moving.phase(nimbus, Phase.PAUSED)
    with pytest.raises(NotFound, match=r"no move 7 under way"):
        nimbus.abort_move("wc", 7)
    assert nimbus.abort_move("wc", 1, "tea time") == (1,)
    with pytest.raises(Refused, match="tasks stay where they are: tea time"):
        waiting.result(PATIENCE)
    moving.actors.let()
    assert set(moving.quiet(nimbus).workers) == {A}
    (move,) = moving.moves(nimbus)
    assert {(t.phase, t.reason) for t in move.tasks} == {("rolled back", "tea time")}
    with pytest.raises(Refused, match="no move of topology 'wc' is under way"):
        nimbus.abort_move("wc")


def test_an_abort_leaves_what_is_saved(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.SAVED)
    assert nimbus.abort_move("wc") == (1,)
    assert nimbus.moves("wc")[0].state == "aborting"
    moving.actors.let()
    moving.quiet(nimbus)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)


def test_a_state_that_nobody_can_restore_is_given_up_when_somebody_asks(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    task = min(COUNT)
    nimbus.move("wc", str(task), "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.crash(A)

    def target_dies() -> None:
        (move,) = moving.facts(nimbus).moves.values()
        before = move.record.tasks[0]
        moving.crash(worker_of(before.target))
        moving.until(
            nimbus, lambda t: not t.moves or _part(t).attempt > before.attempt or bool(_part(t).outcome)
        )

    for _ in range(AT_ONCE - 2):
        target_dies()
    assert nimbus.abort_move("wc", force=True, why="enough") == (1,)
    target_dies()  # one of those that follow each other at once: it is tried once more
    (waits,) = nimbus.moves("wc")[0].waits
    assert "to restore it" in waits and "gives its state up" not in waits, "that was asked for already"
    target_dies()
    moving.actors.let()
    moving.quiet(nimbus)
    (told,) = moving.moves(nimbus)
    assert told.tasks[0].phase == "lost" and "given up after 4 attempts to restore it" in told.tasks[0].reason
    said = {e.kind: e.message for _, e in nimbus.events.since(0)}
    assert f"The state of task {task} is lost: given up after 4 attempts" in said["state-lost"]
    assert "states that nobody could restore are given up" in said["move-abort-asked"]


def test_who_waits_for_what_nobody_can_restore_is_told_how_to_give_it_up(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", str(min(COUNT)), "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.crash(A)
    for attempt in range(1, AT_ONCE + 1):
        found = moving.shown(nimbus, lambda m, at=attempt: m.tasks[0].attempt >= at)  # type: ignore[misc]
        assert any("`elastic move wc --abort --force`" in w for w in found.waits) is (attempt == AT_ONCE)
        if attempt < AT_ONCE:
            moving.crash(found.tasks[0].target)


def _part(t: TopologyFacts) -> TaskMove:
    (move,) = t.moves.values()
    return move.record.tasks[0]


def test_an_abort_that_was_answered_is_known_to_whoever_leads_next(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nimbus dies before it has decided anything on it: it may not have read all marks yet."""
    moving = moving_in_memory
    first = moving.started({"a": 1, "b": 1})
    second = moving.nimbus("h:2", wait=False)
    moving.actors.hold("saved")
    first.move("wc", "count", "b", wait=0)
    moving.phase(first, Phase.PAUSED)
    assert first._reign is not None
    monkeypatch.setattr(first._reign.moves, "run", lambda facts: True)
    assert first.abort_move("wc", why="tea time") == (1,)
    assert first.moves("wc")[0].state == "aborting"
    takes_over(moving, second)
    moving.until(second, lambda t: not t.moves)
    (move,) = moving.moves(second)
    assert {(t.phase, t.reason) for t in move.tasks} == {("rolled back", "tea time")}
    assert set(places(moving).values()) == {A}


def test_an_abort_of_which_nobody_knows_whether_it_was_written_is_asked_again(
    moving_in_memory: Moving,
) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)
    session = moving.cluster.sessions["h:1"]
    real = session.transaction

    def breaking(operations: list[Operation]) -> None:
        session.transaction = real  # type: ignore[method-assign]
        real(operations)
        raise NotConnected("the connection broke")

    session.transaction = breaking  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        nimbus.abort_move("wc", why="tea time")
    assert nimbus.abort_move("wc") == (1,)
    moving.until(nimbus, lambda t: not t.moves)
    (move,) = moving.moves(nimbus)
    assert {(t.phase, t.reason) for t in move.tasks} == {("rolled back", "tea time")}


def test_an_aborted_drain_stays_aborted_until_somebody_asks(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("prepared")
    nimbus.drain_node("a", wait=0)
    moving.phase(nimbus, Phase.PREPARING)
    nimbus.abort_move("wc", why="not now")
    moving.until(nimbus, lambda t: not t.moves)
    moving.actors.let()
    assert set(places(moving).values()) == {A}
    moving.cluster.until(nimbus, lambda: "stays in worker wc@a/0: not now" in nimbus.describe("wc").waits[-1])
    moving.until(nimbus, lambda t: t.assignment is not None and set(t.assignment.workers) == {A})
    moving.cluster.until(nimbus, lambda: {n.id: n.used for n in nimbus.nodes()} == {"a": 1, "b": 0})
    nimbus.drain_node("a", wait=PATIENCE)
    assert set(places(moving).values()) == {B}
