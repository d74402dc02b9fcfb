"""Several requests, and a drain, of one topology: none waits for what another one needs; together they pause no more than one may."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Conflict
from elastic.migration.record import MoveRecord, Outcome
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId, node_of
from elastic.model.records import Progress, TopologyState, TopologyStatus, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nimbus.deciding import placing
from elastic.nimbus.deciding.decisions import planned
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.moves.moves import Moves
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts, slot_of
from elastic.nimbus.observing.plans import Plan, relocated

T = TopologyName("t")
HERE, THERE, LATE = (WorkerId(f"t@n{n}/0") for n in range(3))
COUNT = ComponentId("count")
SPEC = TopologySpec(
    T,
    (
        ComponentSpec(ComponentId("lines"), "spout", 1, 1),
        ComponentSpec(COUNT, "bolt", 8, 2, stateful=True),
        ComponentSpec(ComponentId("one"), "bolt", 1, 1),
    ),
    workers=2,
)
RULES = Rules()
NOW = 1000.0


def facts(t: TopologyFacts, drains: Mapping[NodeId, bool] | None = None) -> Facts:
    nodes = {node_of(w): NodeInfo(node_of(w), "h", 2, 1, "fake", store="h:1") for w in (HERE, THERE, LATE)}
    return Facts(NOW, nodes, drains=drains or {}, topologies={T: t})


def topology(*living: WorkerId) -> TopologyFacts:
    """All tasks are in one worker."""
    executors = tuple(
        ExecutorId(c.id, SPEC.tasks_of(c.id)[0], SPEC.tasks_of(c.id)[-1]) for c in SPEC.components
    )
    slots = {w: slot_of(w) for w in (HERE, THERE, LATE)}
    assignment = Assignment(T, Epoch(1), slots, tuple((e, HERE) for e in executors))
    lives = {w: WorkerInfo(w, Incarnation(f"{w}#1"), "h:1", "", "boot", 1, Epoch(1)) for w in living}
    done = {w: Progress(i.incarnation, Epoch(1)) for w, i in lives.items()}
    state = TopologyState(TopologyStatus.ACTIVE, "t-1", "b", 1.0)
    return TopologyFacts(SPEC, state, 0, assignment, 1, lives, done)


def going(t: TopologyFacts, to: Mapping[int, WorkerId]) -> Assignment:
    desired = t.plan.assignment if t.plan is not None else t.assignment
    assert desired is not None
    for task, worker in to.items():
        desired = relocated(desired, [TaskId(task)], worker, slot_of(worker), t.executors_wanted())
    return desired


def asks(
    t: TopologyFacts, share: float = 0.0, at: float = NOW, **why: tuple[list[int], WorkerId]
) -> TopologyFacts:
    """With a request for each, the newest last."""
    for said, (tasks, worker) in why.items():
        desired = going(t, dict.fromkeys(tasks, worker))
        earlier = t.plan.assignment.place_of() if t.plan is not None else {}
        before = frozenset(n for n, w in earlier.items() if w != HERE and n not in tasks)
        asked = t.plan.asked_before(before) if t.plan is not None else ()
        t = replace(t, plan=Plan(desired, said, at, True, share, earlier=asked), plan_version=0)
    return t


def begun(t: TopologyFacts) -> MoveRecord | None:
    return placing.begin(t, facts(t), RULES)


def with_move(t: TopologyFacts, record: MoveRecord | None) -> TopologyFacts:
    assert record is not None
    return replace(t, moves={**t.moves, record.epoch: MoveFacts(record, 0, {})}, latest=record.epoch)


def test_a_request_does_not_wait_for_a_worker_that_another_one_needs() -> None:
    t = asks(topology(HERE, THERE), first=([2, 3], LATE), second=([4], THERE))
    record = begun(t)
    assert record is not None and [m.task for m in record.tasks] == [4]
    assert any("worker t@n2/0 to start" in w for w in placing.waits(t, facts(t), RULES, [TaskId(2)]))


def test_all_that_one_request_wants_begins_together() -> None:
    assert (
        begun(asks(topology(HERE, THERE), only=([2], LATE), same=([2, 3], THERE), late=([4], LATE)))
        is not None
    )
    t = topology(HERE, THERE)
    t = replace(t, plan=Plan(going(t, {2: LATE, 3: THERE}), "only", NOW, True), plan_version=0)
    assert begun(t) is None


@pytest.mark.parametrize(("share", "at_once"), [(0.25, 2), (0.5, 4), (1.0, 8), (0.0, 4)])
def test_moves_together_pause_no_more_of_a_component_than_one_may(share: float, at_once: int) -> None:
    """One task each, as often as somebody asks."""
    t = topology(HERE, THERE)
    for task in SPEC.tasks_of(COUNT):
        t = asks(t, share, **{f"task {task}": ([task], THERE)})
        if (record := begun(t)) is not None:
            t = with_move(t, record)
    assert placing.pausing_elsewhere(t)[COUNT] == at_once
    waiting = SPEC.tasks_of(COUNT)[-1]
    if at_once < 8:
        said = placing.waits(t, facts(t), RULES, [waiting])
        assert said == [
            f"task {waiting} waits for move 1, beside which no more of its component may be paused"
        ]
    first = t.moves[Epoch(1)]
    ended = tuple(replace(m, outcome=Outcome.COMMITTED) for m in first.record.tasks)
    t = replace(t, moves={**t.moves, Epoch(1): replace(first, record=replace(first.record, tasks=ended))})
    assert at_once == 8 or begun(t) is not None, "its turn comes"


def test_what_is_left_of_a_share_bounds_the_batches() -> None:
    t = asks(topology(HERE, THERE), 0.5, first=([2], THERE))
    t = with_move(t, begun(t))
    record = begun(asks(t, 0.5, second=([3, 4, 5, 6, 7], THERE)))
    assert record is not None
    assert list(Counter(m.batch for m in record.tasks).values()) == [3, 2], (
        "one of four is paused by the first"
    )


def test_another_component_is_not_kept_waiting() -> None:
    t = with_move(t := asks(topology(HERE, THERE), 0.125, first=([2], THERE)), begun(t))
    record = begun(asks(t, 0.125, second=([3, 10], THERE)))
    assert record is not None and [m.task for m in record.tasks] == [10]


def test_what_has_to_wait_for_its_component_does_not_hold_up_another_share() -> None:
    t = asks(topology(HERE, THERE), 1.0, first=([2], THERE))
    t = with_move(t, begun(t))
    t = asks(t, 0.125, second=([3], THERE))
    assert begun(t) is None
    record = begun(asks(t, 0.5, third=([10], THERE)))
    assert record is not None and [m.task for m in record.tasks] == [10]


@pytest.mark.parametrize("over", [False, True])
def test_a_drain_does_not_move_with_the_share_of_a_request(over: bool) -> None:
    t = asks(topology(HERE, THERE, LATE), 1.0, first=([2], THERE))
    assert t.plan is not None
    desired = going(t, dict.fromkeys([1, *range(3, 11)], LATE))
    plan = planned(t, desired, facts(t, {NodeId("n0"): False}), over=over)
    shares = {n: ask.share for n, ask in plan.asks().items() if ask.share}
    assert plan.share == 0.0 and shares == ({} if over else {2: 1.0})
    record = begun(replace(t, plan=plan))
    assert record is not None
    batches = Counter(m.batch for m in record.tasks if m.component == COUNT)
    assert set(batches.values()) == {1}


def test_a_worker_that_does_not_start_is_given_up_in_time_although_others_go_on_asking() -> None:
    t = asks(topology(HERE, THERE), at=NOW, first=([2], LATE))
    for n in range(1, 7):
        t = asks(t, at=NOW + 9.0 * n, **{f"request {n}": ([2 + n], THERE)})
    now = replace(facts(t), now=NOW + RULES.start_timeout + 1.0)
    assert t.plan is not None
    plan = placing.step(t, now, t.plan, RULES).plan
    assert plan is not None and [f.task for f in plan.failures] == [2]
    assert "did not start within 60 s" in plan.failures[0].reason


@pytest.mark.parametrize("there", [False, True])
def test_a_task_that_goes_elsewhere_since_a_node_has_gone_has_its_time_anew(there: bool) -> None:
    t = asks(topology(HERE), at=NOW, first=([2], LATE), second=([3], THERE))
    later = replace(facts(t), now=NOW + RULES.start_timeout - 1.0)
    desired = going(t, {2: THERE} if there else {3: LATE})
    plan = planned(t, desired, later, over=False)
    assert [plan.asked_at(n) for n in (2, 3)] == ([later.now, NOW] if there else [NOW, later.now])
    assert [plan.why_of([TaskId(n)]) for n in (2, 3)] == ["first", "second"]


def test_what_moves_is_placed_by_its_move_alone_whoever_ends_meanwhile() -> None:
    t = with_move(t := asks(topology(HERE, THERE), only=([2], THERE)), begun(t))
    left = replace(t, workers={THERE: t.workers[THERE]})
    assert left.plan is not None
    step = placing.step(left, facts(left), left.plan, RULES)
    assert step.assignment.place_of()[TaskId(2)] == HERE and step.gone == ()
    back = left.moves[Epoch(1)]
    ended = tuple(replace(m, outcome=Outcome.ROLLED_BACK) for m in back.record.tasks)
    left = replace(left, moves={Epoch(1): replace(back, record=replace(back.record, tasks=ended))})
    assert left.plan is not None
    step = placing.step(left, facts(left), left.plan, RULES)
    assert step.assignment.place_of()[TaskId(2)] == THERE and step.gone == (HERE,)


def test_what_time_alone_brings_is_looked_for_when_it_is_due() -> None:
    """A worker that does not start, another attempt, a store that is away: nothing else may change until then."""

    def due(t: TopologyFacts, store: str = "h:1") -> set[float]:
        known = facts(t)
        nodes = {n: replace(i, store=store) for n, i in known.nodes.items()}
        return {at for at in placing.deadlines(t, replace(known, nodes=nodes), RULES) if at > NOW}

    assert due(asks(topology(HERE), only=([2], THERE))) == {NOW + RULES.start_timeout}
    t = asks(topology(HERE, THERE), only=([2], THERE))
    assert due(t) == set() and due(t, store="") == {NOW + RULES.store_timeout}
    assert t.plan is not None
    assert due(replace(t, plan=t.plan.with_failure(2, NOW, "no"))) == {NOW + RULES.retry}


def test_who_is_asked_back_while_it_moves_is_not_forgotten() -> None:
    """It is written where it shall be, until its move has ended elsewhere."""
    asked = asks(topology(HERE, THERE), only=([2], THERE))
    moving = with_move(asked, begun(asked))
    back = Plan(going(asked, {2: HERE}), "back", NOW, True)
    for t, stays in ((moving, True), (asked, False)):
        for step in (placing.asked(t, facts(t), back), placing.step(t, facts(t), back, RULES)):
            assert step.assignment.place_of()[TaskId(2)] == HERE and (step.plan is not None) == stays


@pytest.mark.parametrize("path", [paths.state(T), paths.assignment(T), paths.plan(T), ""])
def test_no_move_begins_on_what_somebody_has_changed_since(path: str) -> None:
    """As the plan: an operator may have taken back what was asked for, and the mirror does not show that yet."""
    t = asks(topology(HERE, THERE), only=([2], THERE))
    record = begun(t)
    assert record is not None
    with contextlib.closing(MemoryZooKeeper()) as server:
        session = server.connect()
        for there in (paths.state(T), paths.assignment(T), paths.plan(T)):
            session.create(there)
        t = replace(t, state_version=0, assignment_version=0, plan_version=0)
        told: list[object] = []
        leader: Any = SimpleNamespace(commit=session.transaction, coordination=session, tell=told.append)
        options: Any = SimpleNamespace(move_prepare=1.0, move_pause=1.0, move_restore=1.0)
        moves = Moves(leader, options, leader, lambda: None)
        if path:
            session.set(path, b"")
            with pytest.raises(Conflict):
                moves.begin(t, record, facts(t))
            assert session.get(paths.move(T, record.epoch)) is None and not told
        else:
            moves.begin(t, record, facts(t))
            assert session.get(paths.move(T, record.epoch)) is not None and told
        moves.close()
