"""What follows from which facts: one line of the table each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pytest

from elastic.model import codec
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    worker_id,
)
from elastic.model.records import Progress, TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nimbus.deciding import placing
from elastic.nimbus.deciding.decisions import (
    Action,
    Begin,
    End,
    ForgetDrain,
    Limits,
    Place,
    Remove,
    Unwant,
    decide,
    next_deadline,
)
from elastic.nimbus.observing.facts import KILL_AT, Facts, TopologyFacts
from elastic.nimbus.observing.plans import Left, Plan
from elastic.nimbus.requests import answers
from elastic.scheduler.base import Demand
from elastic.scheduler.round_robin import RoundRobinScheduler

NOW = 1000.0
LIMITS = Limits(retention=60, keep_ended=2)
T = TopologyName("t")
N1, N2 = NodeId("n1"), NodeId("n2")
W = worker_id(T, N1, 0)


def node(id: NodeId, slots: int = 2, **more: Any) -> NodeInfo:
    return NodeInfo(id, "h", slots, 1, "fake", store="h:1", **more)


def topology(
    status: TopologyStatus = TopologyStatus.ACTIVE,
    *,
    name: TopologyName = T,
    stateful: bool = False,
    ended: float = 0,
    drain: int = 0,
    kill_at: float | None = None,
    living: bool = True,
    **done: Any,
) -> TopologyFacts:
    """Two tasks in one worker on n1, whose progress says what is given."""
    spec = TopologySpec(name, (ComponentSpec(ComponentId("c"), "spout", 2, 2, stateful),))
    settings = {} if kill_at is None else {KILL_AT: kill_at}
    state = TopologyState(
        status, f"{name}-1", "b", submitted=1.0, ended=ended, drain=drain, settings=settings
    )
    worker = worker_id(name, N1, 0)
    running = status in (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE)
    cluster = Facts(NOW, {N1: node(N1)}).cluster
    assignment = RoundRobinScheduler().schedule([Demand(spec, 1)], cluster, {})[name] if running else None
    life = Incarnation(f"{worker}#1")
    return TopologyFacts(
        spec,
        state,
        3,
        assignment,
        5,
        {worker: WorkerInfo(worker, life, "", "", "", 1, Epoch(1))} if living else {},
        {worker: Progress(life, Epoch(1), **done)},
    )


def facts(*topologies: TopologyFacts, nodes: tuple[NodeInfo, ...] = (node(N1),), **more: Any) -> Facts:
    return Facts(NOW, {n.id: n for n in nodes}, topologies={t.name: t for t in topologies}, **more)


def ended(status: TopologyStatus, reason: str = "") -> End:
    return End(T, status, reason)


S = TopologyStatus
CASES: dict[str, tuple[Facts, list[Action]]] = {
    "nothing to do": (facts(topology()), []),
    "some tasks finished": (facts(topology(finished=(1,))), []),
    "all tasks finished": (facts(topology(finished=(1, 2))), [ended(S.FINISHED)]),
    "all finished while inactive": (facts(topology(S.INACTIVE, finished=(1, 2))), [ended(S.FINISHED)]),
    "an executor gave up": (facts(topology(failed="why")), [ended(S.FAILED, "why")]),
    "an executor gave up as the last task finished": (
        facts(topology(failed="why", finished=(1, 2))),
        [ended(S.FAILED, "why")],
    ),
    "killed, not drained": (facts(topology(S.INACTIVE, kill_at=NOW + 1, drain=1)), []),
    "killed, drained": (
        facts(topology(S.INACTIVE, kill_at=NOW + 1, drain=1, drained=1)),
        [ended(S.KILLED, "killed by request")],
    ),
    "killed, drained by having finished": (
        facts(topology(S.INACTIVE, kill_at=NOW + 1, drain=1, finished=(1, 2))),
        [ended(S.KILLED, "killed by request")],
    ),
    "killed, too late": (
        facts(topology(S.INACTIVE, kill_at=NOW, drain=1)),
        [ended(S.KILLED, "killed by request")],
    ),
    "killed, workers live": (facts(topology(S.KILLED, ended=NOW)), []),
    "killed, workers gone": (facts(topology(S.KILLED, ended=NOW, living=False)), [Remove(T)]),
    "finished, workers live": (facts(topology(S.FINISHED, ended=1)), []),
    "finished, kept": (facts(topology(S.FINISHED, ended=NOW - 59, living=False)), []),
    "finished, long ago": (facts(topology(S.FINISHED, ended=NOW - 60, living=False)), [Remove(T)]),
    "failed, kept": (facts(topology(S.FAILED, ended=NOW - 59, living=False)), []),
    "no node at all": (facts(topology(), nodes=()), []),
    "the node is expected back": (facts(topology(), nodes=(node(N2),), expected={N1: NOW + 1}), []),
    "a drained node without anything": (
        facts(nodes=(node(N1),), wanted={N1: WantedNode(2)}, drains={N1: False}),
        [Unwant(N1)],
    ),
    "a drained node with a living worker": (
        facts(
            topology(S.KILLED, ended=NOW),
            nodes=(node(N1),),
            wanted={N1: WantedNode(2)},
            drains={N1: False},
        ),
        [],
    ),
    "a drained node that nobody wants": (facts(nodes=(node(N1),), drains={N1: False}), []),
    "a drained node that is gone": (facts(nodes=(), drains={N1: False}), [ForgetDrain(N1)]),
}


@pytest.mark.parametrize("case", CASES)
def test_decisions(case: str) -> None:
    given, expected = CASES[case]
    assert list(decide(given, RoundRobinScheduler(), LIMITS)) == expected


def placed(actions: tuple[Action, ...]) -> Place:
    (place,) = actions
    assert isinstance(place, Place) and place.version == 5
    return place


def test_a_lost_node_is_left_when_it_is_not_expected_any_more() -> None:
    for expected in ({}, {N1: NOW}):
        given = facts(topology(living=False), nodes=(node(N2),), expected=expected)
        place = placed(decide(given, RoundRobinScheduler(), LIMITS))
        a = place.assignment
        assert list(a.workers) == ["t@n2/0"] and a.epoch == 2
        assert place.plan is None and place.gone == (W,), "none of its workers may live"


def test_a_worker_that_outlives_its_node_is_not_robbed() -> None:
    place = placed(decide(facts(topology(), nodes=(node(N2),)), RoundRobinScheduler(), LIMITS))
    assert set(place.assignment.place_of().values()) == {W} and place.plan is not None and not place.gone
    assert place.plan.why == "node n1 is gone"
    after = replace(topology(), assignment=place.assignment, plan=place.plan)
    assert decide(facts(after, nodes=(node(N2),)), RoundRobinScheduler(), LIMITS) == ()


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_a_draining_node_is_left_by_moves(stateful: bool, force: bool) -> None:
    t = topology(stateful=stateful)
    given = facts(t, nodes=(node(N1), node(N2)), drains={N1: force})
    place = placed(decide(given, RoundRobinScheduler(), LIMITS))
    target = worker_id(T, N2, 0)
    assert place.plan is not None and list(place.plan.assignment.workers) == [target]
    assert set(place.assignment.workers) == {W, target}, "a worker is started there"
    assert set(place.assignment.place_of().values()) == {W}, "and nothing is placed there without a move"
    t = replace(t, assignment=place.assignment, plan=place.plan)
    given = facts(t, nodes=(node(N1), node(N2)), drains={N1: force})
    assert decide(given, RoundRobinScheduler(), LIMITS) == (), "it has not registered"
    info = WorkerInfo(target, Incarnation(f"{target}#1"), "", "", "", 1, Epoch(2))
    t = replace(t, workers={**t.workers, target: info})
    given = facts(t, nodes=(node(N1), node(N2)), drains={N1: force})
    (begin,) = decide(given, RoundRobinScheduler(), LIMITS)
    assert isinstance(begin, Begin) and begin.record.epoch == 1 and begin.record.began == NOW
    assert begin.record.why == "node n1 is being drained"
    assert {(m.task, m.source, m.target) for m in begin.record.tasks} == {
        (n, f"{W}#1", f"{target}#1") for n in (1, 2)
    }


@pytest.mark.parametrize("ends", [False, True])
def test_what_leaves_by_force_begins_elsewhere_when_its_worker_has_let_go(ends: bool) -> None:
    """First it has no place; what runs it may be cut off, and go on until it hears of that or its session is over."""
    scheduler, nodes = RoundRobinScheduler(), (node(N1), node(N2))
    given = partial(facts, nodes=nodes, drains={N1: True})
    t = topology(stateful=True)
    place = placed(decide(given(t), scheduler, LIMITS))
    assert place.plan is not None
    target = worker_id(T, N2, 0)
    there = WorkerInfo(target, Incarnation(f"{target}#1"), "", "", "", 1, Epoch(2))
    plan = reduce(lambda p, n: p.with_failure(n, NOW, "no", LIMITS.moves.tries), (1, 2), place.plan)
    t = replace(
        t, assignment=place.assignment, plan=plan, plan_version=0, workers={**t.workers, target: there}
    )
    place = placed(decide(given(t), scheduler, LIMITS))
    assert place.plan is not None and not place.assignment.place_of()
    assert place.plan.left == tuple(Left(TaskId(n), W, place.assignment.epoch) for n in (1, 2))
    t = replace(t, assignment=place.assignment, plan=codec.decode(codec.encode(place.plan), Plan))
    for epoch in (1, place.assignment.epoch - 1):
        t = replace(t, progress={W: Progress(t.workers[W].incarnation, Epoch(epoch))})
        assert decide(given(t), scheduler, LIMITS) == (), "it may run them"
    assert "task 1 waits for worker t@n1/0 to let go of it" in placing.waits(t, given(t), LIMITS.moves)
    assert not [w for w in answers.waits(t, given(t)) if "no slot is free" in w], "it has one"
    asked = placing.asked(t, given(t), replace(t.plan, left=(), why="another request"))  # type: ignore[type-var]
    assert asked.plan is not None and asked.plan.left == place.plan.left, "nobody forgets it"
    if ends:
        t = replace(t, workers={target: there})
    else:
        t = replace(t, progress={W: Progress(t.workers[W].incarnation, place.assignment.epoch)})
    place = placed(decide(given(t), scheduler, LIMITS))
    assert set(place.assignment.place_of().values()) == {target} and place.plan is None


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ((), "; add nodes with `elastic nodes add`"),
        (("n1", "gone"), "; add nodes with `elastic nodes add`"),
        (("n1", "n2"), "; n2 is wanted and not there yet; if it stays away, the launcher's log"),
        (("n10", "n2"), "; n2, n10 are wanted and not there yet; if they stay away, the launcher's log"),
    ],
)
def test_who_waits_for_nodes_that_do_not_come_is_not_told_to_add_some(
    wanted: tuple[str, ...], says: str
) -> None:
    t = topology(living=False)
    assert t.assignment is not None
    executors = tuple(e for e, _ in t.assignment.executors)
    t = replace(t, assignment=replace(t.assignment, executors=(), workers={}, unassigned=executors))
    all_of = {"wanted": {NodeId(n): WantedNode(2) for n in wanted}, "drains": {NodeId("gone"): True}}
    (sentence,) = answers.waits(t, facts(t, nodes=(node(N1, draining=True),), **all_of))
    assert sentence.startswith("no slot is free for c[1-1], c[2-2]: ") and says in sentence
    (sentence,) = answers.waits(t, facts(t, nodes=(), **all_of))
    assert sentence.startswith("no node is alive; ") and ("add nodes" in sentence) == (not wanted)


def test_what_leaves_by_force_and_has_no_other_place_is_remembered() -> None:
    t = topology()
    place = placed(decide(facts(t, nodes=(node(N1),), drains={N1: True}), RoundRobinScheduler(), LIMITS))
    assert not place.assignment.place_of() and place.plan is not None and len(place.plan.left) == 2
    t = replace(t, assignment=place.assignment, plan=place.plan, plan_version=0)
    assert [w for w in answers.waits(t, facts(t, drains={N1: True})) if w.startswith("no slot is free for c")]
    given = facts(t, nodes=(node(N1), node(N2)), drains={N1: True})
    place = placed(decide(given, RoundRobinScheduler(), LIMITS))
    assert not place.assignment.place_of(), "a slot is free, and its worker may run it yet"
    t = replace(t, assignment=place.assignment, plan=place.plan)
    t = replace(t, progress={W: Progress(t.workers[W].incarnation, place.assignment.epoch)})
    place = placed(decide(replace(given, topologies={T: t}), RoundRobinScheduler(), LIMITS))
    assert len(place.assignment.place_of()) == 2 and place.plan is None


def test_a_plan_of_before_workers_had_to_let_go_is_read() -> None:
    plan = Plan(Assignment(T, Epoch(1)), "why", NOW)
    written = codec.encode(plan)
    assert b'"left":[],' in written
    assert codec.decode(written.replace(b'"left":[],', b""), Plan) == plan


def test_the_slots_of_a_topology_that_ends_are_free_at_once() -> None:
    waiting = topology(name=TopologyName("u"))
    waiting = replace(
        waiting,
        assignment=Assignment(
            waiting.name, Epoch(1), unassigned=tuple(e for e, _ in waiting.assignment.executors)
        ),  # type: ignore[union-attr]
        workers={},
    )
    given = facts(topology(finished=(1, 2)), waiting, nodes=(node(N1, 1),))
    end, place = decide(given, RoundRobinScheduler(), LIMITS)
    assert isinstance(end, End) and isinstance(place, Place)
    assert list(place.assignment.workers) == ["u@n1/0"]


def test_slots_of_topologies_that_are_not_fully_known_are_taken() -> None:
    other = topology(name=TopologyName("u")).assignment
    assert other is not None
    t = topology()
    assert t.assignment is not None
    t = replace(
        t,
        assignment=replace(
            t.assignment, workers={}, executors=(), unassigned=tuple(dict(t.assignment.executors))
        ),
    )
    given = facts(t, nodes=(node(N1, 1),), elsewhere={other.topology: other})
    assert decide(given, RoundRobinScheduler(), LIMITS) == ()


def test_only_the_newest_records_are_kept() -> None:
    old = [topology(S.FINISHED, name=TopologyName(f"t{i}"), ended=NOW - i, living=False) for i in range(4)]
    assert list(decide(facts(*old), RoundRobinScheduler(), LIMITS)) == [
        Remove(TopologyName("t2")),
        Remove(TopologyName("t3")),
    ]


def test_the_next_deadline_is_the_first_that_comes() -> None:
    assert next_deadline(facts(topology()), LIMITS) is None
    killed = topology(S.INACTIVE, kill_at=NOW + 7)
    kept = topology(S.FINISHED, name=TopologyName("u"), ended=NOW - 57)
    assert next_deadline(facts(killed, kept), LIMITS) == NOW + 3
    assert next_deadline(facts(killed), LIMITS) == NOW + 7
    assert next_deadline(facts(topology(), nodes=(node(N2),), expected={N1: NOW + 2}), LIMITS) == NOW + 2


def test_what_is_behind_after_a_change() -> None:
    t = topology()
    assert t.behind(1) == () and t.behind(2) == (W,)
    gone = replace(t, assignment=None)
    assert gone.behind(2) == (W,), "a worker that lost its executors has not heard of it yet"
    assert replace(t, progress={}).behind(1) == (W,)
    assert WorkerId("t@n1/0") == W


def test_what_a_worker_has_said_before_it_was_given_more_is_no_word_on_those() -> None:
    """It has passed a drain, and gets a task that has not: it is believed when it has carried out that assignment."""
    said = topology(S.INACTIVE, drain=1, drained=1)
    assert said.undrained() == () and said.assignment is not None
    later = replace(said, assignment=replace(said.assignment, epoch=Epoch(2)))
    assert later.undrained() == (W,)
    carried_out = {W: replace(said.progress[W], epoch=Epoch(2))}
    assert replace(later, progress=carried_out).undrained() == ()
