"""Moves when something fails: dead sides, stores that are away, conflicting writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from coordination_harness import PATIENCE
from move_harness import COUNT, WC, A, B, Moving, places
from nimbus_harness import spec

from elastic.coordination import paths
from elastic.coordination.base import Operation, Set
from elastic.errors import Refused
from elastic.migration.record import MoveRecord, Phase, decode_marks, encode_marks
from elastic.model.assignment import Lost
from elastic.model.codec import decode
from elastic.model.events import Severity
from elastic.model.ids import Epoch, TaskId
from elastic.model.views import PLANNED
from elastic.nimbus.deciding import placing
from elastic.nimbus.observing.facts import TopologyFacts
from elastic.nimbus.observing.plans import Plan

# --- dead sides


def test_a_target_that_dies_before_anything_is_saved_costs_nothing_and_is_tried_again(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)
    moving.crash(B)
    moving.cluster.event(nimbus, "task-move-rolled-back")
    moving.actors.let()
    moving.quiet(nimbus)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
    second, first = moving.moves(nimbus, 2)
    assert {t.phase for t in first.tasks} == {"rolled back"} and {t.phase for t in second.tasks} == {
        "committed"
    }
    assert first.tasks[0].reason == "worker wc@b/0, where it was to go, has ended"


def test_a_target_that_dies_with_saved_state_is_replaced(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.crash(B)
    moving.cluster.event(nimbus, "task-move-forward")
    moving.actors.let()
    moving.quiet(nimbus)
    assert {t for t, w in places(moving).items() if w == B} == set(COUNT)
    assert "state-lost" not in moving.cluster.kinds(nimbus)


def test_tasks_of_a_source_that_dies_are_placed_without_a_move(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)
    moving.crash(A, again=False)
    moving.cluster.event(nimbus, "task-move-rolled-back")
    moving.until(nimbus, lambda t: {t.assignment.place_of()[n] for n in COUNT} == {B})  # type: ignore[union-attr,index]
    moving.cluster.nodes["a"].start(A)
    moving.quiet(nimbus)
    (move,) = nimbus.moves()
    assert {(t.phase, t.reason) for t in move.tasks} == {
        ("lost", "its worker's process has ended; it starts anew, without its state")
    }
    said = [e.message for _, e in nimbus.events.since(0) if e.kind == "task-move-rolled-back"]
    assert all("starts anew" in s and "stays" not in s for s in said), "they are in another worker now"
    assert len(nimbus.moves()) == 1 and "move-given-up" not in moving.cluster.kinds(nimbus)


def test_a_node_that_dies_within_a_move_costs_its_own_tasks_only(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count[6-7]", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.SAVED)
    moving.cluster.nodes["a"].leave()
    moving.until(nimbus, lambda t: not t.moving or set(t.moving) == {6, 7})
    moving.actors.let()
    moving.quiet(nimbus)
    assert set(places(moving).values()) == {B}
    assert {t.phase for t in nimbus.moves()[0].tasks} == {"committed"}, "what was saved before is not lost"


def test_a_task_in_a_move_is_left_alone_when_its_node_is_lost(moving_in_memory: Moving) -> None:
    """Also by the plain placement: who runs it is for the move to say."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count[6-7]", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.SAVED)
    moving.cluster.nodes["a"].leave()
    moving.until(
        nimbus, lambda t: A not in {w for n, w in t.assignment.place_of().items() if n not in (6, 7)}
    )  # type: ignore[union-attr]
    assert places(moving)[6] == A and moving.facts(nimbus).moving == {6, 7}
    moving.actors.let()
    moving.quiet(nimbus)


def test_state_that_no_store_has_is_said_to_be_lost(moving_in_memory: Moving) -> None:
    """The process that the task was to leave, which had it as well, is gone by then."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "7", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.cluster.nodes["a"].leave()
    moving.until(nimbus, lambda t: A not in t.workers)
    moving.actors.fails["restored", 7] = "it is gone everywhere"
    moving.actors.let()
    moving.cluster.event(nimbus, "state-lost")
    (lost,) = [e for _, e in nimbus.events.since(0) if e.kind == "state-lost"]
    assert lost.task == 7 and "gone everywhere" in lost.message and lost in nimbus.describe("wc").errors
    moving.quiet(nimbus)
    assert moving.moves(nimbus)[0].tasks[0].phase == "lost"


def test_state_that_no_store_has_goes_on_where_it_was(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.fails["restored", 7] = "it is gone everywhere"
    with pytest.raises(Refused, match="task 7: it is gone everywhere"):
        nimbus.move("wc", "7", "b", wait=PATIENCE)
    (task,) = moving.moves(nimbus)[0].tasks
    assert task.came_back and moving.facts(nimbus).assignment.place_of()[TaskId(7)] == A  # type: ignore[union-attr]
    assert "state-lost" not in moving.cluster.kinds(nimbus)


def test_what_was_lost_with_both_nodes_is_remembered_until_the_task_moves_again(
    moving_in_memory: Moving,
) -> None:
    """Whoever begins it anew may begin when nothing is left of the move."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    before = moving.facts(nimbus).workers[A].incarnation
    moving.actors.hold("restored")
    nimbus.move("wc", "7", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.cluster.nodes["a"].leave()
    moving.until(nimbus, lambda t: A not in t.workers)
    moving.actors.fails["restored", 7] = "it is gone everywhere"
    moving.actors.let()
    moving.quiet(nimbus)
    assert moving.moves(nimbus)[0].tasks[0].phase == "lost"
    after = moving.facts(nimbus).assignment
    assert after is not None and after.lost == (Lost(before, (TaskId(7),)),)
    del moving.actors.fails["restored", 7]
    nimbus.move("wc", "6", "c", wait=PATIENCE)
    assert moving.facts(nimbus).assignment.lost == (Lost(before, (TaskId(7),)),)  # type: ignore[union-attr]
    nimbus.move("wc", "7", "c" if after.place_of()[TaskId(7)] == B else "b", wait=PATIENCE)
    assert moving.facts(nimbus).assignment.lost == ()  # type: ignore[union-attr]


# --- what fails again and again


def test_a_move_that_fails_is_given_up_and_said_and_tried_again_when_asked(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.fails["prepared", 7] = "class not found"
    with pytest.raises(Refused, match="1 task cannot be moved: task 7: class not found"):
        nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert {t for t, w in places(moving).items() if w == B} == {6, 8, 9}
    assert len(moving.moves(nimbus, 3)) == 3
    assert "task 7 stays in worker wc@a/0: class not found" in nimbus.describe("wc").waits[0]
    moving.cluster.event(nimbus, "move-given-up")
    moving.actors.fails.clear()
    nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert moving.quiet(nimbus) and len(moving.moves(nimbus, 4)) == 4


def test_a_worker_that_never_starts_is_not_waited_for_for_ever(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.nimbus(move_start=2.0)  # as long also the one that starts in the end may take
    for node in "ab":
        moving.cluster.node(node, 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    moving.cluster.nodes["b"].down.add(B)
    moving.cluster.started(nimbus, spec(workers=1))
    with pytest.raises(Refused, match=r"worker wc@b/0, where it was to go, did not start within 2 s"):
        nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert nimbus.moves() == () and set(places(moving).values()) == {A}
    moving.cluster.nodes["b"].start(B)
    nimbus.move("wc", "count", "b", wait=PATIENCE)


def test_times_run_before_the_point_of_no_return(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.nimbus(move_pause=0.1, move_tries=1)
    for node in "ab":
        moving.cluster.node(node, 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    moving.cluster.started(nimbus, spec(workers=1))
    moving.actors.hold("saved")
    with pytest.raises(Refused, match="task 7: it was not saved in time"):
        nimbus.move("wc", "7", "b", wait=PATIENCE)
    marks = [m for v in nimbus.moves() if v.state != PLANNED for m in v.tasks]
    assert [m.phase for m in marks] == ["rolled back"]


# --- stores that are away


@pytest.mark.parametrize(("away", "served"), [("a", True), ("b", True), ("b", False)])
def test_a_move_waits_for_a_store_that_is_being_started_again(
    moving: Moving, away: str, served: bool, background: ThreadPoolExecutor
) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    if served:  # Otherwise its node has just come, and nothing is wrong.
        moving.cluster.nodes[away].store(True)
    moving.cluster.nodes[away].store(False)
    moving.until(nimbus, lambda t: not moving.node(nimbus, away).store)
    asked = background.submit(nimbus.move, "wc", "count", "b", wait=PATIENCE)
    moving.cluster.event(nimbus, "move-waits")
    (said,) = (e for _, e in nimbus.events.since(0) if e.kind == "move-waits")
    assert said.severity is (Severity.WARNING if served else Severity.INFO)
    waits = nimbus.describe("wc").waits
    assert f"task 6 waits for the state store of node {away}, which is being started again" in waits
    assert [m.state for m in nimbus.moves()] == [PLANNED] and not asked.done()
    moving.cluster.nodes[away].store(True)
    assert {t for t, w in asked.result(PATIENCE).place_of().items() if w == B} == set(COUNT)  # type: ignore[union-attr]
    assert len(moving.moves(nimbus)) == 1 and moving.cluster.kinds(nimbus).count("move-waits") == 1


def test_what_fails_while_a_store_is_started_again_is_not_given_up(moving: Moving) -> None:
    """With a single try, so that any failure that counted would be the last."""
    nimbus = moving.nimbus(move_tries=1)
    for node in "ab":
        moving.cluster.node(node, 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    moving.cluster.started(nimbus, spec(workers=1))
    moving.actors.fails["prepared", 7] = "the store does not answer"
    moving.actors.hold("prepared")
    nimbus.move("wc", "7", "b", wait=0)
    moving.phase(nimbus, Phase.PREPARING)
    moving.cluster.nodes["b"].store(False)
    moving.until(nimbus, lambda t: not moving.node(nimbus, "b").store)
    moving.actors.let()
    (failed,) = moving.moves(nimbus)
    assert failed.tasks[0].phase == "rolled back"
    moving.cluster.event(nimbus, "move-waits")
    moving.actors.fails.clear()
    moving.cluster.nodes["b"].store(True)
    moving.quiet(nimbus)
    assert places(moving)[7] == B
    assert "move-given-up" not in moving.cluster.kinds(nimbus)


def test_a_store_that_does_not_come_back_is_not_waited_for_for_ever(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.nimbus(move_store=0.2)
    for node in "ab":
        moving.cluster.node(node, 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    moving.cluster.started(nimbus, spec(workers=1))
    moving.cluster.nodes["b"].store(False)
    moving.until(nimbus, lambda t: not moving.node(nimbus, "b").store)
    with pytest.raises(Refused, match=r"the state store of node b has not come back within 0\.2 s"):
        nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert nimbus.moves() == () and set(places(moving).values()) == {A}
    moving.cluster.nodes["b"].store(True)
    moving.until(nimbus, lambda t: bool(moving.node(nimbus, "b").store))  # else its time would run once more
    nimbus.move("wc", "count", "b", wait=PATIENCE)


# --- conflicting transactions


def conflicting(
    moving: Moving, when: Callable[[list[Operation]], bool], first: Callable[[], None]
) -> list[int]:
    """Before the first transaction for which `when` is so, somebody else writes. Returns how often that came."""
    session, came = moving.cluster.sessions["h:1"], [0]
    real = session.transaction

    def late(operations: list[Operation]) -> None:
        if came[0] == 0 and when(operations):
            came[0] += 1
            first()
        real(operations)

    session.transaction = late  # type: ignore[method-assign]
    return came


def sets_record(operations: list[Operation], outcome: bool) -> bool:
    return any(
        isinstance(o, Set)
        and o.path == paths.move(WC, Epoch(1))
        and any(bool(t.outcome) == outcome for t in decode(o.data, MoveRecord).tasks)
        for o in operations
    )


def test_a_saved_mark_that_comes_before_the_rollback_wins(moving: Moving) -> None:
    """The abort is decided on marks without `saved`; it comes just before the transaction that would refuse it."""
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.PAUSED)

    def save() -> None:
        moving.actors.let("saved")
        moving.phase(nimbus, Phase.SAVED) if not nimbus._reign.lock._is_owned() else _saved(moving)  # type: ignore[union-attr,attr-defined]

    came = conflicting(moving, lambda o: sets_record(o, True), save)
    nimbus.abort_move("wc")
    moving.quiet(nimbus)
    assert came == [1] and {t for t, w in places(moving).items() if w == B} == set(COUNT)


def _saved(moving: Moving) -> None:
    """Wait until the source has written its marks, by asking coordination: this runs with Nimbus's lock."""

    look, done = moving.cluster.look, threading.Event()
    path = paths.move(WC, Epoch(1))
    (name,) = [n for n in look.children(path) or () if n.startswith("wc@a")]
    watch = look.watch_value(
        f"{path}/{name}", lambda v: done.set() if v is not None and decode_marks(v.data).saved else None
    )
    assert done.wait(PATIENCE)
    watch.cancel()


def test_an_assignment_that_changes_under_a_commit_is_read_again(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})

    def touch() -> None:
        found = moving.cluster.look.get(paths.assignment(WC))
        assert found is not None
        moving.cluster.look.set(paths.assignment(WC), found.data)

    came = conflicting(moving, lambda o: sets_record(o, True), touch)
    nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert came == [1] and {t for t, w in places(moving).items() if w == B} == set(COUNT)


def test_marks_that_change_meanwhile_do_not_stop_a_move(moving_in_memory: Moving) -> None:
    """A rollback that is refused again and again by other marks of the same node comes through in the end."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)

    def touch() -> None:
        look = moving.cluster.look
        path = paths.move(WC, Epoch(1))
        for name in look.children(path) or ():
            found = look.get(f"{path}/{name}")
            assert found is not None
            look.set(f"{path}/{name}", encode_marks(decode_marks(found.data)))

    came = conflicting(moving, lambda o: sets_record(o, True), touch)
    nimbus.abort_move("wc")
    moving.until(nimbus, lambda t: not t.moves)
    assert came == [1] and set(places(moving).values()) == {A}


# --- planted faults


def test_a_placement_that_does_not_look_who_lives_is_found(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker registers between the decision to give its tasks away and the write: the write must not go through."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("asked")

    def run() -> dict[int, str]:
        moving.cluster.nodes["b"].down.add(B)
        nimbus.move("wc", "count", "b", wait=0)
        came = conflicting(
            moving,
            lambda o: any(isinstance(x, Set) and x.path == paths.assignment(WC) for x in o),
            lambda: moving.cluster.nodes["a"].start(A),
        )
        moving.crash(A, again=False)
        moving.cluster.until(nimbus, lambda: came == [1])
        moving.until(nimbus, lambda t: A in t.workers)
        with nimbus._reign.deciding():  # type: ignore[union-attr]
            pass
        return places(moving)

    assert {w for n, w in run().items() if n in COUNT} == {A}
    nimbus.abort_move("wc")
    moving.quiet(nimbus)
    real = placing.step

    def blind(t: TopologyFacts, facts: object, plan: Plan, rules: object) -> placing.Step:
        found = real(t, facts, plan, rules)  # type: ignore[arg-type]
        return placing.Step(found.assignment, found.plan, ())

    monkeypatch.setattr(placing, "step", blind)
    assert {w for n, w in run().items() if n in COUNT} == {B}, "the planted fault"
