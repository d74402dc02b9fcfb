"""OTD (N-Storm/OTD (2024), section 4): equations 4 and 5, the four cases, algorithms 1 and 2, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.placements import Case, assignment, cluster, executor, spec
from elastic.model.ids import TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, SmoothedLoad
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decision
from elastic.scheduler.instance import Instance
from elastic.scheduler.otd import Class, Deployment, OtdParams, allocation_score, score_change
from elastic.scheduler.registry import choose

T = TopologyName("t")
FIXED = "otd --share 0 --workers-per-node 1"
"""No free slot of a node that has a worker counts."""


def case(
    workers: Mapping[tuple[str, int], str],
    cpu: Mapping[str, float],
    traffic: Mapping[str, float],
    *,
    fill: Mapping[str, float] | None = None,
    nodes: int = 2,
    slots: int = 2,
    cores: float = 4.0,
) -> Case:
    """Workers (node, slot) with the letters of their executors, all of one topology."""
    names = sorted(cpu)
    executors = {n: executor(n, i + 1) for i, n in enumerate(names)}
    key = {n: ExecutorKey(T, e) for n, e in executors.items()}
    view, capacities = cluster(nodes, slots, cores)
    load = LoadView(
        {key[n]: SmoothedLoad(cpu=cpu[n], fill=(fill or {}).get(n, 0.0)) for n in names},
        {(key[p[0]], key[p[1]]): rate for p, rate in traffic.items()},
        capacities,
    )
    current = {T: assignment("t", {executors[n]: w for w, members in workers.items() for n in members})}
    return Case((Demand(spec("t", dict.fromkeys(names, (1, 1))), len(workers)),), view, load, current)


def moves(question: Case, decision: Decision) -> dict[str, str]:
    """Executors that go, with where."""
    was, now = dict(question.current[T].executors), dict(decision.assignments[T].executors)
    return {e.component: w for e, w in now.items() if was[e] != w}


def kinds(decision: Decision) -> list[str]:
    return [r.kind for r in decision.reasons]


#        n1: a, b     n2: c, d      a-b 5, a-c 30 + 12, a-d 8, b-c 1
SCORES = case(
    {("n1", 0): "ab", ("n2", 0): "cd"},
    dict.fromkeys("abcd", 0.1),
    {"ab": 5.0, "ac": 30.0, "ca": 12.0, "da": 8.0, "bc": 1.0},
)


#        n1: a, b, c: 1.2 cores; n2: d 0.1; n3: e 0.3
BALANCE = case(
    {("n1", 0): "abc", ("n2", 0): "d", ("n3", 0): "e"},
    {"a": 0.4, "b": 0.4, "c": 0.4, "d": 0.1, "e": 0.3},
    {"ab": 50.0, "bd": 20.0, "ce": 30.0, "cb": 5.0},
    nodes=3,
)


def test_equations_4_and_5() -> None:
    p = Instance([T], SCORES.cluster, SCORES.load, SCORES.current)
    a, n1, n2 = 0, 0, 1
    where = p.home_nodes
    assert allocation_score(p, a, n1, where) == 5 - (42 + 8)
    assert allocation_score(p, a, n2, where) == (42 + 8) - 5
    assert score_change(p, a, n1, n2, where) == 50 - 5
    assert score_change(p, a, n1, n2, where) == (45 - -45) / 2
    # It is what the network is spared.
    after = [n2, *where[1:]]
    assert p.cut(where) - p.cut(after) == 45


def test_case_3_takes_the_best_pair_and_one_only() -> None:
    decision = SCORES.ask(choose(FIXED))
    assert moves(SCORES, decision) == {"a": "t@n2/0"}
    assert kinds(decision) == ["case-3", "moved"]
    assert decision.reasons[1].details["asc"] == 45
    assert (decision.reasons[1].details["before"], decision.reasons[1].details["after"]) == (51, 6)
    assert "traffic between nodes 51 -> 6 tuples/s" in decision.reasons[1].message
    again = SCORES.after(decision)
    assert moves(again, again.ask(choose(FIXED))) == {"b": "t@n2/0"}


@pytest.mark.parametrize("question", [SCORES, BALANCE], ids=["case 3", "case 1"])
def test_state_that_may_not_move_stays(question: Case) -> None:
    (e,) = moves(question, question.ask(choose(FIXED)))
    (demand,) = question.demands
    components = tuple(replace(c, stateful=c.id == e) for c in demand.spec.components)
    fixed = replace(demand, movable=False, spec=replace(demand.spec, components=components))
    assert moves(question, replace(question, demands=(fixed,)).ask(choose(FIXED))).keys() not in ({e}, set())


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("--threshold 44", True),
        ("--threshold 45", False),
        ("--share 0.8", True),  # of 56
        ("--share 0.81", False),
        ("--threshold 30 --share 0.5", True),  # the larger one holds, not both together
    ],
)
def test_algorithm_2_moves_only_above_its_threshold(text: str, moved: bool) -> None:
    decision = SCORES.ask(
        choose(f"otd --workers-per-node 1 {'' if '--share' in text else '--share 0'} {text}")
    )
    assert bool(moves(SCORES, decision)) is moved
    assert ("not more than the threshold" in decision.reasons[0].message) is not moved
    if not moved:
        assert decision.assignments[T] is SCORES.current[T]


def test_classes_of_workers() -> None:
    question = case(
        {("n1", 0): "ab", ("n1", 1): "c", ("n2", 0): "d", ("n2", 1): "e"},
        {"a": 0.5, "b": 0.4, "c": 0.6, "d": 0.2, "e": 0.1},
        {},
        fill={"e": 0.95},
    )
    p = Instance([T], question.cluster, question.load, question.current)
    cycle = Deployment(p, OtdParams())
    assert [cycle.classify(w) for w in cycle.workers] == [Class.HIGH, Class.NORMAL, Class.LOW, Class.HIGH]
    assert [w.use for w in cycle.workers] == pytest.approx([0.9, 0.6, 0.2, 0.1])


def test_what_is_as_much_as_a_bound_is_not_over_it() -> None:
    question = case(
        {("n1", 0): "a", ("n1", 1): "b", ("n2", 0): "c", ("n2", 1): "d"},
        {"a": 0.8, "b": 0.5, "c": 0.6, "d": 0.1},
        {},
        fill={"c": 0.9, "d": 0.5},
    )
    cycle = Deployment(Instance([T], question.cluster, question.load, question.current), OtdParams())
    assert [cycle.classify(w) for w in cycle.workers] == [*[Class.NORMAL] * 3, Class.LOW]


def test_a_queue_that_is_half_full_is_no_low_load() -> None:
    question = case({("n1", 0): "a", ("n2", 0): "b"}, {"a": 0.1, "b": 0.1}, {}, fill={"a": 0.6})
    cycle = Deployment(Instance([T], question.cluster, question.load, question.current), OtdParams())
    assert [cycle.classify(w) for w in cycle.workers] == [Class.NORMAL, Class.LOW]


def test_case_1_begins_with_the_highest_that_can_be_relieved() -> None:
    # n2 has the highest load, and a single executor; n3 comes next.
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c", ("n3", 0): "de", ("n4", 0): "f"},
        {"a": 0.41, "b": 0.4, "c": 0.99, "d": 0.45, "e": 0.4, "f": 0.1},
        {"af": 100.0, "df": 1.0},
        nodes=4,
    )
    assert moves(question, question.ask(choose(FIXED))) == {"d": "t@n4/0"}


def test_of_targets_with_the_same_score_it_is_the_one_with_the_lowest_load() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c", ("n3", 0): "d"},
        {"a": 0.45, "b": 0.44, "c": 0.3, "d": 0.2},
        {},
        nodes=3,
    )
    assert moves(question, question.ask(choose(FIXED))) == {"a": "t@n3/0"}


def test_a_worker_that_exists_comes_before_a_free_slot() -> None:
    question = case({("n1", 0): "ab", ("n2", 1): "c"}, {"a": 0.45, "b": 0.45, "c": 0.0}, {"ac": 1.0})
    decision = question.ask(choose("otd --share 0"))
    assert moves(question, decision) == {"a": "t@n2/1"}


def test_nothing_goes_to_a_node_that_is_to_be_left() -> None:
    """Although something stays there, as state that may not move does."""
    question = case({("n1", 0): "ab", ("n2", 0): "c"}, {"a": 0.5, "b": 0.5, "c": 0.1}, {"ac": 10.0})
    nodes = tuple(replace(n, draining=n.id == "n2") for n in question.cluster.nodes)
    cycle = Deployment(Instance([T], ClusterView(nodes), question.load, question.current), OtdParams())
    assert not cycle.low and {w.node for w in cycle.empty(T)} <= {0} and set(cycle.lowest(T)) <= {0}


def test_a_move_never_makes_its_targets_node_high() -> None:
    # n2 has one core, of which two workers use a little.
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c", ("n2", 1): "d"},
        {"a": 0.5, "b": 0.45, "c": 0.1, "d": 0.3},
        {"ac": 10.0},
        cores=1.0,
    )
    decision = question.ask(choose(FIXED))
    assert not moves(question, decision) and [w.kind for w in decision.warnings] == ["resources-lack"]


def test_nor_does_one_within_a_node() -> None:
    question = case({("n1", 0): "ab", ("n1", 1): "c"}, {"a": 0.5, "b": 0.5, "c": 0.45}, {"ac": 10.0}, nodes=1)
    decision = question.ask(choose(FIXED))
    assert not moves(question, decision) and [w.kind for w in decision.warnings] == ["resources-lack"]


def test_nor_does_one_that_is_to_spare_the_network() -> None:
    question = case({("n1", 0): "a", ("n2", 0): "c"}, {"a": 0.4, "c": 0.45}, {"ac": 100.0})
    decision = question.ask(choose(FIXED))
    assert not moves(question, decision) and kinds(decision) == ["case-3"]


def test_what_other_topologies_use_of_a_node_counts() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c"}, {"a": 0.5, "b": 0.45, "c": 0.05}, {"ac": 10.0}, cores=1.0
    )
    other, x = TopologyName("u"), executor("x", 1)
    load = replace(
        question.load, executors={**question.load.executors, ExecutorKey(other, x): SmoothedLoad(cpu=0.4)}
    )
    current = {**question.current, other: assignment("u", {x: ("n2", 1)})}
    question = replace(question, load=load, current=current)
    assert not moves(question, question.ask(choose(FIXED)))


def test_who_fits_into_no_other_node_may_fit_into_its_own() -> None:
    # The node has 0.65 of its cores left below high load, and a has these already.
    question = case({("n1", 0): "ab"}, {"a": 0.7, "b": 0.25}, {"ab": 1.0}, nodes=1, cores=2.0)
    assert moves(question, question.ask(choose("otd"))) == {"a": "t@n1/1"}


def test_who_fits_exactly_fits() -> None:
    question = case({("n1", 0): "ab", ("n2", 0): "c"}, {"a": 0.5, "b": 0.5, "c": 0.3}, {"ac": 1.0})
    assert moves(question, question.ask(choose(FIXED))) == {"a": "t@n2/0"}


def test_whose_queue_is_full_takes_it_along_so_another_one_goes() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c"}, {"a": 0.3, "b": 0.3, "c": 0.1}, {"ac": 10.0}, fill={"a": 1.0}
    )
    assert moves(question, question.ask(choose(FIXED))) == {"b": "t@n2/0"}


def test_a_crowded_node_makes_its_workers_high() -> None:
    # Each process uses half a core, but the node has only one.
    question = case({("n1", 0): "a", ("n1", 1): "b"}, {"a": 0.5, "b": 0.5}, {}, cores=1.0)
    p = Instance([T], question.cluster, question.load, question.current)
    assert [w.use for w in Deployment(p, OtdParams()).workers] == [1.0, 1.0]


def test_case_1_balances_by_the_score() -> None:
    # b -> n2: 20 - 55; c -> n3: 30 - 5 = 25; a: -50. c goes, and no threshold applies.
    decision = BALANCE.ask(choose("otd --workers-per-node 1 --threshold 1000"))
    assert moves(BALANCE, decision) == {"c": "t@n3/0"}
    assert kinds(decision) == ["case-1", "moved"]
    assert decision.reasons[0].details == {"high": 1, "low": 2}


def test_case_1_moves_even_if_the_network_has_to_carry_more() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c"}, {"a": 0.5, "b": 0.6, "c": 0.1}, {"ab": 100.0, "ac": 1.0}
    )
    decision = question.ask(choose(FIXED))
    assert moves(question, decision) == {"a": "t@n2/0"}
    assert decision.reasons[1].details["asc"] == -99
    # And it does not go back: n1 would have high load again.
    again = question.after(decision)
    assert not moves(again, again.ask(choose(FIXED)))


def test_a_move_never_makes_its_target_high() -> None:
    # e would be the better partner of c, but has no room for it.
    question = case(
        {("n1", 0): "ac", ("n2", 0): "d", ("n3", 0): "e"},
        {"a": 0.5, "c": 0.5, "d": 0.1, "e": 0.45},
        {"ce": 30.0, "cd": 1.0},
        nodes=3,
    )
    assert moves(question, question.ask(choose(FIXED))) == {"c": "t@n2/0"}


def test_case_2_warns() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "cd"}, {"a": 0.5, "b": 0.4, "c": 0.3, "d": 0.3}, {"ac": 10.0}
    )
    decision = question.ask(choose(FIXED))
    assert decision.assignments[T] is question.current[T]
    (warning,) = decision.warnings
    assert warning.kind == "resources-lack"
    assert "Case 2" in warning.message
    assert "t@n1/0 the highest (90% of its cores)" in warning.message


def test_case_1_without_a_pair_that_helps_warns_too() -> None:
    question = case({("n1", 0): "a", ("n2", 0): "b"}, {"a": 0.95, "b": 0.1}, {"ab": 10.0})
    (warning,) = question.ask(choose(FIXED)).warnings
    assert "its only executor would bring the load along" in warning.message


def test_case_4_does_nothing() -> None:
    question = case({("n1", 0): "a", ("n2", 0): "b"}, {"a": 0.6, "b": 0.7}, {"ab": 10.0})
    decision = question.ask(choose(FIXED))
    assert kinds(decision) == ["case-4"]
    assert decision.assignments[T] is question.current[T]


def test_a_free_slot_is_a_worker_without_load() -> None:
    # Both executors are in one process that computes at its limit; the node has four cores, and a free slot.
    question = case({("n1", 0): "ab"}, {"a": 0.5, "b": 0.5}, {"ab": 10.0}, nodes=1)
    decision = question.ask(choose("otd"))
    assert len(moves(question, decision)) == 1
    assert list(decision.assignments[T].workers) == ["t@n1/0", "t@n1/1"]
    assert decision.reasons[1].details["asc"] == 0, "they stay on one node"
    assert question.ask(choose("otd --workers-per-node 1")).warnings


def test_another_topologys_slot_is_not_free() -> None:
    question = case({("n1", 0): "ab"}, {"a": 0.5, "b": 0.5}, {"ab": 10.0}, nodes=1)
    other = TopologyName("u")
    taken = {**question.current, other: assignment("u", {executor("x", 1): ("n1", 1)})}
    decision = Case(question.demands, question.cluster, question.load, taken).ask(choose("otd"))
    assert "Case 2" in decision.warnings[0].message


def test_full_queues_without_computing_want_executors_not_another_place() -> None:
    question = case(
        {("n1", 0): "ab", ("n2", 0): "c"},
        {"a": 0.05, "b": 0.05, "c": 0.1},
        {"ca": 10.0},
        fill={"a": 1.0},
    )
    decision = question.ask(choose(FIXED))
    assert decision.assignments[T] is question.current[T]
    assert "not short of CPU but of executors" in decision.warnings[0].message


def test_cycles_settle_and_never_make_the_score_worse() -> None:
    question = SCORES
    cuts = [question.cut()]
    for _ in range(10):
        question = question.after(question.ask(choose(FIXED)))
        cuts.append(question.cut())
    assert cuts == sorted(cuts, reverse=True)
    assert cuts[-1] == cuts[-2]


def test_who_uses_nothing_is_no_relief_however_well_it_would_stand_elsewhere() -> None:
    # a uses nothing and exchanges much with n2; b and c share the load. Case 1 is to relieve n1.
    crowded = case(
        {("n1", 0): "abc", ("n2", 0): "d"},
        {"a": 0.0, "b": 0.5, "c": 0.5, "d": 0.1},
        {"ad": 1000.0, "bc": 10.0, "cd": 1.0},
    )
    decision = crowded.ask(choose(FIXED))
    assert kinds(decision) == ["case-1", "moved"]
    assert moves(crowded, decision) == {"c": "t@n2/0"}
