"""T-Storm's algorithm 1 (T-Storm (2014), section IV.C) on cases that can be checked by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from benchmarks.placements import Case, assignment, chain, cluster, executor, node_of, spec
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import NodeId, TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad
from elastic.scheduler import algorithm1
from elastic.scheduler.algorithm1 import Algorithm1, TStormParams
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Decision
from elastic.scheduler.instance import Instance
from elastic.scheduler.labels import Group, label
from elastic.scheduler.registry import choose

T = TopologyName("t")


def case(
    cpu: Mapping[str, float],
    traffic: Mapping[str, float],
    places: Mapping[str, tuple[str, int]],
    *,
    nodes: int = 2,
    slots: int = 2,
    cores: float = 4.0,
) -> Case:
    """Components a, b, c, ... of one task each; traffic by two letters: from and to."""
    names = sorted(cpu)
    executors = {n: executor(n, i + 1) for i, n in enumerate(names)}
    view, capacities = cluster(nodes, slots, cores)
    key = {n: ExecutorKey(T, e) for n, e in executors.items()}
    load = LoadView(
        {key[n]: SmoothedLoad(cpu=cpu[n]) for n in names},
        {(key[p[0]], key[p[1]]): rate for p, rate in traffic.items()},
        capacities,
    )
    current = {T: assignment("t", {executors[n]: places[n] for n in names})}
    return Case((Demand(spec("t", dict.fromkeys(names, (1, 1)), nodes), nodes),), view, load, current)


def nodes_of(a: Assignment) -> dict[str, str]:
    return {e.component: a.workers[w].node for e, w in a.executors}


def ask(question: Case, text: str = "tstorm") -> tuple[Assignment, Decision]:
    decision = question.ask(choose(text))
    return decision.assignments[T], decision


PAIRS = case(
    {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1},
    {"ab": 100.0, "bc": 10.0, "cd": 80.0},
    {"a": ("n1", 0), "b": ("n2", 0), "c": ("n1", 0), "d": ("n2", 0)},
)


def test_who_exchanges_most_shares_a_node() -> None:
    # Gamma 1 on two nodes: two executors each. In the order of traffic b (110), a (100), c (90), d (80): b opens a node, a joins it,
    # the node is full, c opens the other, d joins. Between nodes: only b -> c, 10 of 190.
    new, decision = ask(PAIRS)
    where = nodes_of(new)
    assert where["a"] == where["b"] != where["c"] == where["d"]
    (reason,) = decision.reasons
    assert reason.kind == "rescheduled"
    assert (reason.details["before"], reason.details["after"]) == (190.0, 10.0)
    assert "190 -> 10 of 190 tuples/s" in reason.message
    assert new.epoch == PAIRS.current[T].epoch + 1


def test_only_what_has_to_move_moves() -> None:
    # c, or a, can stay on n1; b and d on n2: two of four go.
    _, decision = ask(PAIRS)
    assert len(decision.relocated(PAIRS.current)[T]) == 2


def test_a_new_worker_takes_a_slot_that_another_topology_still_has_last() -> None:
    # On n1 t has 0 and 1, u has 2, and 3 is free. Both of t's workers go there anew with an executor from n2; u's goes to n2.
    u = TopologyName("u")
    places = {
        T: assignment(
            "t",
            {
                executor("a", 1): ("n1", 0),
                executor("b", 2): ("n1", 1),
                executor("c", 3): ("n2", 0),
                executor("d", 4): ("n2", 1),
            },
        ),
        u: assignment("u", {executor("a", 1): ("n1", 2), executor("b", 2): ("n2", 3)}),
    }
    p = Instance([T, u], cluster(2, 4, 4.0)[0], LoadView(), places)
    (n1, n2), cap = range(2), [1.0, 2.0]
    groups: list[Group | None] = [Group(T, n, members=[i]) for i, n in enumerate((n2, n1, n1, n1))]
    homes = label(p, [*groups, Group(u, n2, members=[4]), Group(u, n1, members=[5])], cap)
    slots = dict(zip([(k.topology, k.executor.component) for k in p.keys], homes, strict=True))
    assert slots[T, "b"] == (n1, 1), "where it is"
    assert {slots[T, "c"], slots[T, "d"]} == {(n1, 0), (n1, 3)}, "its own first, then one that is free"
    assert slots[u, "b"] == (n1, 2)


def test_gamma_consolidates() -> None:
    new, decision = ask(PAIRS, "tstorm --gamma 2")
    assert len(set(nodes_of(new).values())) == 1
    assert decision.reasons[0].details["after"] == 0


def test_capacity_stops_consolidation() -> None:
    # 0.5 cores each, one core a node, 90 % of it to give: one executor a node, whatever gamma says.
    heavy = case(dict.fromkeys("ab", 0.5), {"ab": 100.0}, {"a": ("n1", 0), "b": ("n2", 0)}, cores=1.0)
    new, decision = ask(heavy, "tstorm --gamma 2")
    assert new is heavy.current[T]
    assert decision.reasons[0].kind == "kept"
    assert ask(heavy, "tstorm --gamma 2 --capacity 1")[1].reasons[0].kind == "rescheduled"


def test_a_worker_computes_on_one_core_only() -> None:
    # Four cores a node, but a second worker of the topology is not allowed there, and one worker can use one core.
    two = case(dict.fromkeys("ab", 0.5), {"ab": 100.0}, {"a": ("n1", 0), "b": ("n2", 0)})
    assert ask(two, "tstorm --gamma 2")[1].reasons[0].kind == "kept"
    # The relaxation for the interpreter lock: two workers on one node, no traffic between nodes.
    new, _ = ask(two, "tstorm --gamma 2 --workers-per-node 0")
    assert len(new.workers) == 2
    assert len({s.node for s in new.workers.values()}) == 1
    # Work that releases the lock: one worker is enough.
    new, _ = ask(two, "tstorm --gamma 2 --worker-cores 0")
    assert len(new.workers) == 1


def test_overload_is_relieved_although_traffic_grows() -> None:
    full = case(
        dict.fromkeys("ab", 0.6),
        {"ab": 100.0},
        {"a": ("n1", 0), "b": ("n1", 0)},
    )
    new, decision = ask(full, "tstorm --gamma 2")
    assert len(set(nodes_of(new).values())) == 2
    assert "capacities were exceeded by 0.30 cores (now 0.00)" in decision.reasons[0].message


def test_a_full_cluster_is_not_stirred_by_a_little_less_overload() -> None:
    # Any placement exceeds the two nodes' 1.8 cores; the schedule, by 0.01 less than this one. That is worth no move.
    full = case(
        {"a": 1.0, "b": 0.99, "c": 0.02},
        {"ac": 1.0},
        {"a": ("n1", 0), "b": ("n2", 0), "c": ("n1", 0)},
        cores=1.0,
    )
    assert ask(full)[0] is full.current[T]
    new, decision = ask(full, "tstorm --gain 0")
    assert new is not full.current[T]
    assert "capacities were exceeded by 0.33 cores (now 0.32)" in decision.reasons[0].message


def test_lack_of_workers_is_told_from_lack_of_nodes() -> None:
    # One node of four cores: they use 1.6 cores in the one worker that the topology may have there.
    locked = case(dict.fromkeys("ab", 0.8), {"ab": 1.0}, {"a": ("n1", 0), "b": ("n1", 0)}, nodes=1)
    (warning,) = ask(locked)[1].warnings
    assert "--workers-per-node 0" in warning.message
    assert "Add nodes" not in warning.message
    new, decision = ask(locked, "tstorm --workers-per-node 0")
    assert len(new.workers) == 2 and not decision.warnings


def test_lack_of_resources_is_said() -> None:
    full = case(dict.fromkeys("ab", 0.8), {"ab": 1.0}, {"a": ("n1", 0), "b": ("n1", 0)}, nodes=1, cores=1.0)
    new, decision = ask(full)
    assert new is full.current[T]
    (warning,) = decision.warnings
    assert warning.kind == "resources-lack"
    assert "executors use 1.60, 1 node may give 0.90" in warning.message


def test_too_little_gain_changes_nothing() -> None:
    small = case(
        dict.fromkeys("abcd", 0.1),
        {"ab": 100.0, "cd": 100.0, "ac": 3.0, "bd": 3.0, "ad": 4.0, "bc": 4.0},
        {"a": ("n1", 0), "b": ("n1", 0), "c": ("n2", 0), "d": ("n2", 0)},
    )
    assert ask(small)[0] is small.current[T]


def test_several_workers_on_a_node_become_one() -> None:
    split = case(dict.fromkeys("ab", 0.1), {"ab": 10.0}, {"a": ("n1", 0), "b": ("n1", 1)}, nodes=1)
    new, decision = ask(split)
    assert list(new.workers) == ["t@n1/0"]
    assert "--workers-per-node" in decision.reasons[0].message
    assert ask(split, "tstorm --workers-per-node 2")[0] is split.current[T]


def test_each_topology_has_its_own_worker() -> None:
    first = case(dict.fromkeys("ab", 0.1), {"ab": 10.0}, {"a": ("n1", 0), "b": ("n2", 0)})
    other = TopologyName("u")
    e = executor("x", 1)
    both = Case(
        (*first.demands, Demand(spec("u", {"x": (1, 1)}), 1)),
        first.cluster,
        LoadView(
            {**first.load.executors, ExecutorKey(other, e): SmoothedLoad(cpu=0.1)},
            first.load.traffic,
            first.load.nodes,
        ),
        {**first.current, other: assignment("u", {e: ("n1", 1)})},
    )
    decision = both.ask(choose("tstorm --gamma 3"))
    slots = Counter((s.node, s.slot) for a in decision.assignments.values() for s in a.workers.values())
    assert max(slots.values()) == 1
    assert len(set(nodes_of(decision.assignments[T]).values())) == 1


def test_what_is_not_measured_stays() -> None:
    blind = Case(PAIRS.demands, PAIRS.cluster, LoadView(nodes=PAIRS.load.nodes), PAIRS.current)
    new, decision = ask(blind)
    assert new is PAIRS.current[T]
    assert decision.reasons[0].kind == "nothing-measured"


def test_a_new_topology_gets_at_most_one_worker_a_node() -> None:
    # T-Storm (2014): N_w* = min(N_u, N_w): five wanted, two nodes have free slots.
    demand = Demand(spec("t", {"a": (6, 6)}, workers=5), 5)
    view, capacities = cluster(2, slots=3)
    decision = Case((demand,), view, LoadView(nodes=capacities)).ask(choose("tstorm"))
    assert Counter(s.node for s in decision.assignments[T].workers.values()) == {"n1": 1, "n2": 1}
    assert decision.assignments[T].epoch == 1


def test_draining_nodes_are_left_and_absent_ones_kept() -> None:
    nodes = PAIRS.cluster.nodes
    draining = ClusterView((NodeSlots(NodeId("n1"), 2, draining=True), nodes[1]))
    new = Case(PAIRS.demands, draining, PAIRS.load, PAIRS.current).ask(choose("tstorm")).assignments[T]
    assert set(nodes_of(new).values()) == {"n2"}
    absent = ClusterView((NodeSlots(NodeId("n1"), 2, absent=True), nodes[1]))
    kept = Case(PAIRS.demands, absent, PAIRS.load, PAIRS.current).ask(choose("tstorm")).assignments[T]
    assert kept is PAIRS.current[T]


@pytest.mark.parametrize(
    ("parts", "gamma", "nodes"),
    [((5, 15, 15, 10), 1.0, 10), ((5, 15, 15, 10), 1.7, 7), ((5, 15, 15, 10), 6.0, 2)],
)
def test_the_papers_numbers_of_nodes(parts: tuple[int, ...], gamma: float, nodes: int) -> None:
    # T-Storm (2014), section V, figure 5: 45 executors on ten nodes use 10, 7 and 2 nodes.
    question = chain(parts, 10, cpu=0.02)
    decision = question.ask(choose(f"tstorm --gamma {gamma}"))
    (a,) = decision.assignments.values()
    count = Counter(a.workers[w].node for _, w in a.executors)
    assert len(count) == nodes
    if gamma == 1.0:
        assert set(count.values()) == {4, 5}, "almost even"
    else:
        assert max(count.values()) <= gamma * 4.5


def test_the_limit_is_that_of_constraint_3() -> None:
    question = chain((5, 15, 15, 10), 10)
    (name,) = question.current
    p = Instance([name], question.cluster, question.load, question.current)
    for gamma, limit, spare in ((1.0, 4, 5), (1.7, 7, 0), (6.0, 27, 0)):
        run = Algorithm1(p, TStormParams(gamma=gamma))
        assert (run.limit, run.spare) == (limit, spare)


def test_sorted_by_traffic_and_placed_by_increment() -> None:
    # Executors x (weight 9), y (6), z (5): x first, y with x (6 > 0), z does not fit with them at gamma 1 (limit 1, one spare node).
    question = case(
        {"x": 0.1, "y": 0.1, "z": 0.1},
        {"xy": 5.0, "xz": 4.0, "yz": 1.0},
        {"x": ("n1", 0), "y": ("n1", 0), "z": ("n1", 0)},
    )
    p = Instance([T], question.cluster, question.load, question.current)
    found = Algorithm1(p, TStormParams()).run()
    x, y, z = (g.node for g in found.groups if g is not None)
    assert x == y != z
    assert not found.strained
    assert not found.crowded


@pytest.mark.parametrize("small", [1, 2])
def test_what_is_beyond_the_limit_of_a_node_is_counted_as_crowding(small: int) -> None:
    """Two nodes may have two each, or of three two may have two. All but the first have room for one."""
    letters = "abcde"[: small + 3]
    question = case(dict.fromkeys(letters, 0.2), {}, dict.fromkeys(letters, ("n1", 0)), nodes=small + 1)
    cores = {n.id: NodeLoad(4.0 if n.id == "n1" else 0.25) for n in question.cluster.nodes}
    p = Instance([T], question.cluster, replace(question.load, nodes=cores), question.current)
    found = Algorithm1(p, TStormParams(worker_cores=0.0)).run()
    assert Counter(g.node for g in found.groups if g is not None) == {
        0: 3,
        **{n + 1: 1 for n in range(small)},
    }
    assert found.crowded == 1 and not found.strained


def test_only_as_many_nodes_have_one_more_as_are_left_over() -> None:
    """Seven executors and three nodes: two each, and one left over, although two groups of three exchange much."""
    question = case(
        dict.fromkeys("abcdefg", 0.1),
        {"ab": 100.0, "bc": 100.0, "ca": 100.0, "de": 50.0, "ef": 50.0, "fd": 50.0},
        dict.fromkeys("abcdefg", ("n1", 0)),
        nodes=3,
    )
    found = Algorithm1(Instance([T], question.cluster, question.load, question.current), TStormParams()).run()
    assert sorted(Counter(g.node for g in found.groups if g is not None).values()) == [2, 2, 3]


def test_who_has_to_stay_takes_room_and_who_finds_none_goes_where_least_is_used() -> None:
    question = case(
        {"a": 0.6, "b": 0.8, "c": 0.7}, {"ab": 100.0, "bc": 1.0}, dict.fromkeys("abc", ("n1", 0)), cores=1.0
    )
    stays = frozenset({ExecutorKey(T, executor("a", 1))})
    p = Instance([T], question.cluster, question.load, question.current, "cpu", stays)
    found = Algorithm1(p, TStormParams(gamma=2.0)).run()
    assert [g and g.node for g in found.groups] == [0, 1, 0] and found.strained == [2]


def test_unknown_cores_are_no_limit() -> None:
    question = Case(
        PAIRS.demands, PAIRS.cluster, LoadView(PAIRS.load.executors, PAIRS.load.traffic), PAIRS.current
    )
    new, _ = ask(question, "tstorm --gamma 2 --worker-cores 0")
    assert len(set(nodes_of(new).values())) == 1


def test_larger_nodes_take_more() -> None:
    executors: list[ExecutorId] = [executor("a", i) for i in range(1, 5)]
    keys = [ExecutorKey(T, e) for e in executors]
    load = LoadView(
        {k: SmoothedLoad(cpu=0.8) for k in keys},
        {(keys[i], keys[i + 1]): 10.0 for i in range(3)},
        {NodeId("n1"): NodeLoad(1.0), NodeId("n2"): NodeLoad(4.0)},
    )
    question = Case(
        (Demand(spec("t", {"a": (4, 4)}, 2), 2),),
        cluster(2, 4)[0],
        load,
        {T: assignment("t", {e: ("n1" if i < 2 else "n2", 0) for i, e in enumerate(executors)})},
    )
    new, decision = ask(question, "tstorm --gamma 2 --workers-per-node 0")
    assert Counter(new.workers[w].node for _, w in new.executors) == {"n2": 4}
    assert len(new.workers) == 4
    assert not decision.warnings


def test_traffic_that_is_about_equal_is_spread_over_the_nodes_in_use() -> None:
    """Two spouts, six bolts, six more, shuffled: measured, rates differ a little. All first bolts on one node would leave no room there."""
    case = chain((2, 6, 6), 4, cpu=0.02)
    # The first spout emits a little more: each bolt behind has most traffic with it.
    noisy = {
        (a, b): rate * (1.01 if a.executor.first == 1 else 1) for (a, b), rate in case.load.traffic.items()
    }
    case = replace(case, load=replace(case.load, traffic=noisy))
    after = case.after(case.ask(choose("tstorm --gamma 2")))
    assert len(set(node_of(after.current).values())) == 2
    assert after.cut() / after.traffic <= 0.55


def test_without_that_chance_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm1, "TIE", 0.0)
    with pytest.raises(AssertionError):
        test_traffic_that_is_about_equal_is_spread_over_the_nodes_in_use()


def test_gamma_may_be_infinite() -> None:
    """No limit on how many executors a node may have; also where there are none."""
    case = chain((1, 2), 2)
    choice = choose("tstorm --gamma inf")
    assert choice.decide(case.demands, case.cluster, case.load, case.current).assignments
    assert choice.decide([], case.cluster, case.load, {}) is not None
