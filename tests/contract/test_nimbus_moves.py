"""Nimbus runs moves: from the request to the last trace of them, with workers that write their marks as the protocol says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from coordination_harness import PATIENCE
from move_harness import WC, A, B, Moving, on
from nimbus_harness import FakeLauncher, spec

from elastic.coordination import paths
from elastic.coordination.base import Operation
from elastic.errors import Conflict, DeadlineExceeded, NotFound, Refused
from elastic.migration.record import Phase
from elastic.model.assignment import Assignment, WorkerSlot
from elastic.model.events import Event
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.observing.facts import slot_of
from elastic.nimbus.observing.plans import relocated
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests.placement_requests import adopt


def test_a_rebalance_moves_stateful_tasks_to_a_worker_that_is_started_for_it(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    before = nimbus.describe("wc").assignment
    assert set(before.workers) == {A}
    after = nimbus.rebalance("wc", workers=2, wait=PATIENCE)
    assert set(after.workers) == {A, B}
    assert after == moving.quiet(nimbus) or moving.quiet(nimbus).executors == after.executors
    (move,) = moving.moves(nimbus)
    there = sorted(t for t, w in after.place_of().items() if w == B)
    assert there and sorted(t.task for t in move.tasks) == there
    assert all(t.phase == "committed" and t.size == 100 + t.task for t in move.tasks)
    assert {(t.source, t.target) for t in move.tasks} == {(A, B)} and move.why == "rebalance 2 workers"
    assert moving.stores.cleaned == [(WC, move.epoch, tuple(there), ("a", "b"))]
    kinds = moving.cluster.kinds(nimbus)
    story = [k for k in kinds if k.startswith(("move-", "task-", "topology-reb"))]
    assert story == [
        "topology-rebalanced",
        "move-began",
        "move-paused",
        *["task-moved"] * len(there),
        "move-ended",
    ]


def test_with_the_last_outcome_the_plan_is_gone(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    """To remove it by itself was one more write, with all that was read before and after it."""
    nimbus = moving.started({"a": 1, "b": 1})
    session, written = moving.cluster.sessions["h:1"], list[list[str]]()
    write = session.transaction

    def writing(operations: Sequence[Operation]) -> None:
        written.append([o.path.removeprefix("/topologies/wc/") for o in operations])
        write(operations)

    monkeypatch.setattr(session, "transaction", writing)
    nimbus.move("wc", "count", "b", wait=PATIENCE)
    moving.quiet(nimbus)
    *_, last = [w for w in written if "plan" in w]
    assert last[1:] == ["moves/0000000001", "assignment", "plan"]


def test_scaling_regroups_within_a_worker_without_any_move(moving: Moving) -> None:
    nimbus = moving.started({"a": 1})
    after = nimbus.scale("wc", "count", 4, wait=PATIENCE)
    assert [str(e) for e, _ in after.executors if e.component == "count"] == [
        f"count[{n}-{n}]" for n in (6, 7, 8, 9)
    ]
    assert nimbus.moves() == () and nimbus.moves("wc") == ()
    with pytest.raises(NotFound, match="no topology 'no'"):
        nimbus.moves("no")


@pytest.mark.parametrize(
    ("what", "where", "tasks"),
    [("count", "b", [6, 7, 8, 9]), ("count[6-7]", "b/0", [6, 7]), ("7,9", "wc@b/0", [7, 9]), ("1", "b", [1])],
)
def test_what_an_operator_names_is_moved(
    moving_in_memory: Moving, what: str, where: str, tasks: list[int]
) -> None:
    nimbus = moving_in_memory.started({"a": 1, "b": 1})
    after = nimbus.move("wc", what, where, wait=PATIENCE)
    assert sorted(t for t, w in after.place_of().items() if w == B) == tasks
    moving_in_memory.quiet(nimbus)
    assert nimbus.move("wc", what, where, wait=PATIENCE).executors == after.executors, "it is there already"
    assert len(moving_in_memory.moves(nimbus)) == 1
    back = nimbus.move("wc", what, "a", wait=PATIENCE)
    assert set(back.place_of().values()) == {A}
    assert [m.epoch for m in moving_in_memory.moves(nimbus, 2)] == [2, 1]


def test_what_cannot_be_named_is_refused(moving_in_memory: Moving) -> None:
    nimbus = moving_in_memory.started({"a": 1, "b": 1})
    moving_in_memory.cluster.started(nimbus, spec("other", workers=1))
    for what, where, kind, words in (
        ("count[1-2]", "b", NotFound, "has no tasks 1 to 2"),
        ("12", "b", NotFound, "has no task 12"),
        ("counts", "b", NotFound, "no task or component 'counts'"),
        ("count", "c", NotFound, "no node 'c'"),
        ("count", "b/7", NotFound, "no slot 7"),
        ("count", "other@b/0", NotFound, "no worker of topology 'wc'"),
        ("count", "b/0", Refused, "taken by topology 'other'"),
    ):
        with pytest.raises(kind, match=words):
            nimbus.move("wc", what, where, wait=PATIENCE)
    assert nimbus.moves() == ()


def test_draining_a_node_moves_its_state_away_and_ends_it(moving: Moving) -> None:
    nimbus = moving.nimbus()
    FakeLauncher(moving.cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    moving.cluster.started(nimbus, spec())
    nimbus.drain_node("node-1", wait=PATIENCE)
    after = moving.quiet(nimbus)
    assert {s.node for s in after.workers.values()} == {"node-2"}
    assert [n.id for n in nimbus.nodes()] == ["node-2"]
    assert "executors-reassigned" not in moving.cluster.kinds(nimbus)
    assert all(t.phase == "committed" for t in moving.moves(nimbus)[0].tasks)


def test_what_is_added_is_used_when_somebody_asks(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.nimbus()
    moving.cluster.node("a", 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    nimbus.submit(spec(), bundle=moving.cluster.bundle(nimbus))
    assert "wanted: 2 workers; there are slots for 1" in nimbus.describe("wc").waits
    moving.cluster.node("b", 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    waits = lambda: nimbus.describe("wc").waits  # noqa: E731
    # It does not wait for a slot any more; the worker that it has may still be starting.
    moving.cluster.until(nimbus, lambda: waits() == (), waits)
    after = nimbus.rebalance("wc", wait=PATIENCE)
    assert set(after.workers) == {A, B} and waits() == ()


def test_large_moves_pause_a_part_at_a_time(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1}, tasks=12)
    nimbus.move("wc", "count", "b", wait=PATIENCE)
    paused = lambda: [e.details for _, e in nimbus.events.since(0) if e.kind == "move-paused"]  # noqa: E731
    assert [(d["batch"], d["batches"], d["tasks"]) for d in paused()] == [(0, 12, 12)]
    nimbus.move("wc", "count", "a", wait=PATIENCE, share=0.25)
    assert [(d["batch"], d["batches"], d["tasks"]) for d in paused()[1:]] == [(0, 4, 12)]
    assert [m.why for m in nimbus.moves()] == ["move count to a, share 0.25", "move count to b"]


def test_while_tasks_are_on_their_way_both_workers_are_named_and_nobody_is_placed_twice(
    moving_in_memory: Moving,
) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved", "closed")
    nimbus.move("wc", "count", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.PAUSED)
    between = nimbus.describe("wc").assignment
    assert set(between.workers) == {A, B} and set(between.place_of().values()) == {A}
    view = moving.shown(nimbus, lambda v: {t.phase for t in v.tasks} == {"paused"})
    assert view.state == "running"
    assert "4 tasks (6 to 9) wait for worker wc@a/0, to have all fences and to save it" in view.waits
    assert f"move {view.epoch}: {view.waits[0]}" in nimbus.describe("wc").waits
    with pytest.raises(DeadlineExceeded, match="to have all fences"):
        nimbus.move("wc", "count", "b", wait=0.1, share=1.0)
    moving.actors.let("saved")
    moving.until(nimbus, lambda t: all(m.record.settled for m in t.moves.values()))
    moving.shown(nimbus, lambda v: v.state == "closing")
    nimbus.move("wc", "1-5", "b", wait=0)
    moving.until(nimbus, lambda t: all(w == B for w in t.assignment.place_of().values()))  # type: ignore[union-attr]
    assert set(nimbus.describe("wc").assignment.workers) == {A, B}, (
        "it took part, and has not read the outcome"
    )
    moving.actors.let("closed")
    assert set(moving.quiet(nimbus).workers) == {B}


def test_what_workers_tell_is_in_the_history(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("closed")
    nimbus.move("wc", "7", "b", wait=0)
    moving.phase(nimbus, Phase.COMMITTED)
    for at, pause in ((100.5, 20.0), (100.2, 30.0)):
        details = {"epoch": 1, "step": "resumed", "at": at, "bytes": 0, "pause_ms": pause}
        nimbus.ingest("a", [], [Event(1.0, "move-step", "", topology="wc", task=7, details=details)])
    moving.actors.let()
    (move,) = moving.moves(nimbus)
    assert move.tasks[0].times["resumed"] == 100.5 and move.tasks[0].pause == 0.03
    (ended,) = [e for _, e in nimbus.events.since(0) if e.kind == "move-ended"]
    assert ended.details["pause_ms"] == 30.0 and ended.details["bytes"] == 107
    assert "move-step" not in moving.cluster.kinds(nimbus)


def test_a_topology_that_is_killed_takes_its_moves_along(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    nimbus.kill("wc", wait=0)
    assert moving.cluster.look.get(paths.topology(WC)) is None
    assert moving.stores.cleaned[-1] == (WC, 1, (6, 7, 8, 9), ("a", "b"))
    moving.actors.let()
    moving.cluster.started(nimbus, spec(workers=1))
    nimbus.move("wc", "count", "b", wait=PATIENCE)
    assert nimbus.moves("wc")[0].epoch == 2, "stores remember the number of the former topology's move"


def test_a_topology_that_finishes_within_a_move_leaves_nothing(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)
    moving.cluster.nodes["a"].finish("wc")
    moving.cluster.event(nimbus, "topology-finished")
    moving.until(nimbus, lambda t: not t.moves and not t.workers)
    assert moving.stores.cleaned and moving.cluster.look.get(paths.plan(WC)) is None


def test_other_topologies_do_not_get_the_slot_of_a_task_on_its_way(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("saved")
    nimbus.move("wc", "1-9", "b", wait=0)
    moving.phase(nimbus, Phase.PAUSED)
    nimbus.submit(spec("second", workers=1), bundle=moving.cluster.bundle(nimbus))
    second = TopologyName("second")
    assert moving.facts(nimbus, second).assignment.unassigned  # type: ignore[union-attr]
    moving.actors.let()
    moving.cluster.until(nimbus, lambda: not nimbus.describe("second").assignment.unassigned)
    assert on(nimbus.describe("wc").assignment, "count") == {"b"}


def _ruling(moving: Moving) -> tuple[Nimbus, Reign]:
    nimbus = moving.started({"a": 1, "b": 1})
    assert nimbus._reign is not None
    return nimbus, nimbus._reign


def test_a_move_that_has_begun_is_shown_before_it_is_taken_down(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks then must not find that nothing is under way and nothing waited for."""
    moving = moving_in_memory
    nimbus, reign = _ruling(moving)
    moving.actors.hold("saved")
    monkeypatch.setattr(reign.move_log, "see", lambda *_: [])
    nimbus.move("wc", "6", "b", wait=0)
    moving.cluster.until(nimbus, lambda: bool(reign.facts().topologies[WC].moves))
    shown = nimbus.describe("wc")
    (epoch,) = reign.facts().topologies[WC].moves
    # A worker may not have carried out the first assignment yet: that is said as well.
    assert not shown.moves and f"move {epoch} has just begun" in shown.waits


def test_a_move_that_ends_while_somebody_looks_is_shown(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken down of moves is read before the facts: these are of the time before its end otherwise, and that of the time after."""
    moving = moving_in_memory
    nimbus, reign = _ruling(moving)
    order: list[str] = []
    for where, name in ((reign, "facts"), (reign.move_log, "views")):
        given = getattr(where, name)

        def look(*of: object, name: str = name, given: Callable[..., object] = given) -> object:
            order.append(name)
            return given(*of)

        monkeypatch.setattr(where, name, look)
    nimbus.describe("wc")
    assert order.index("views") < order.index("facts")


def test_what_an_algorithm_decides_is_made_true_by_moves(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus, reign = _ruling(moving)
    base = nimbus.describe("wc").assignment
    wanted = reign.facts().topologies[TopologyName("wc")].executors_wanted()
    desired = relocated(base, [TaskId(6), TaskId(7)], B, slot_of(B), wanted)
    assert adopt(reign, "wc", desired, "b is idle", executors={ComponentId("count"): 2})
    assert not adopt(reign, "wc", desired, "b is idle"), "it is on its way"
    moving.moves(nimbus)
    after = moving.quiet(nimbus)
    assert set(after.executors) == set(desired.executors) and nimbus.moves()[0].why == "b is idle"
    assert not adopt(reign, "wc", after, "again")
    nowhere = WorkerId("wc@c/0")
    with pytest.raises(Conflict, match="no slot any more"):
        adopt(reign, "wc", relocated(base, [TaskId(6)], nowhere, slot_of(nowhere), wanted), "why")
    with pytest.raises(Conflict, match="another topology"):
        adopt(reign, "wc", replace(desired, executors=desired.executors[1:]), "why")


def test_what_no_scheduler_may_decide_is_a_conflict_and_writes_nothing(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus, reign = _ruling(moving)
    base = nimbus.describe("wc").assignment
    (*others, (count, _)) = base.executors
    b1, foreign = WorkerId("wc@b/1"), WorkerId("other@b/0")

    def to(worker: WorkerId, slot: WorkerId) -> Assignment:
        workers = {**base.workers, worker: slot_of(slot)}
        return replace(base, executors=(*others, (count, worker)), workers=workers)

    twice, all_in_one = (*base.executors, (count, A)), replace(others[0][0], last=count.last)
    for wrong, said in (
        (replace(base, executors=twice), "another topology"),
        (replace(base, executors=((all_in_one, A),)), "another topology"),
        (replace(base, executors=(*others, (count, B))), "otherwise than their slots: wc@b/0"),
        (to(b1, B), "otherwise than their slots: wc@b/0, wc@b/1"),
        (to(foreign, foreign), "otherwise than their slots: other@b/0, wc@b/0"),
        (
            replace(to(B, B), workers={**base.workers, B: WorkerSlot(NodeId("b"), -1)}),
            "otherwise than their slots",
        ),
    ):
        with pytest.raises(Conflict, match=said):
            adopt(reign, "wc", wrong, "why")
    nimbus.drain_node("b", wait=0)
    with pytest.raises(Conflict, match="node 'b', where worker wc@b/0 was to be, is being drained"):
        adopt(reign, "wc", to(B, B), "why")
    assert nimbus.describe("wc").assignment == base and list(nimbus.moves()) == []
