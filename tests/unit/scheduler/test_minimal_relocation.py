"""Placement after scaling decisions (Elastic Storm (2016), section IV.C): by hand, and against brute force."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.placements import assignment, cluster, executor, spec
from elastic.errors import InvalidParallelism
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, SmoothedLoad
from elastic.model.split import split_tasks
from elastic.scheduler import minimal_relocation, search
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.minimal_relocation import Limits, relocate
from elastic.scheduler.registry import choose

T = TopologyName("t")
A = ComponentId("a")


def demand(tasks: int, executors: int) -> Demand:
    return Demand(spec("t", {"a": (tasks, 1)}), 1, {A: executors}, marked=True)


def view(a: Assignment, cores: Mapping[ExecutorId, float], nodes: int = 2, of: float = 4.0) -> LoadView:
    return LoadView(
        {ExecutorKey(T, e): SmoothedLoad(cpu=c) for e, c in cores.items()}, {}, cluster(nodes, cores=of)[1]
    )


def moved(old: Assignment, new: Assignment) -> list[int]:
    was, now = old.place_of(), new.place_of()
    return [t for t in sorted(was) if now.get(t) != was[t]]


def test_what_waits_is_split_in_place() -> None:
    # One executor, busy waiting: 0.1 cores. A second one in the same worker relocates nothing.
    a = assignment("t", {executor("a", 1, 8): ("n1", 0)})
    new, (reason,) = relocate(
        demand(8, 2), cluster(2)[0], view(a, {executor("a", 1, 8): 0.1}), {T: a}, Limits()
    )
    assert [str(e) for e, _ in new.executors] == ["a[1-4]", "a[5-8]"]
    assert moved(a, new) == []
    assert reason.message == (
        "Executors of t: a 1 -> 2; 0 of 8 tasks leave their worker (the fewest possible), 0 new workers."
    )


def test_what_computes_is_split_over_processes() -> None:
    # 0.95 cores are more than 90 % of one: half of the tasks go to a second process of the same node.
    a = assignment("t", {executor("a", 1, 8): ("n1", 0)})
    load = view(a, {executor("a", 1, 8): 0.95})
    new, (reason,) = relocate(demand(8, 2), cluster(2)[0], load, {T: a}, Limits())
    assert len(moved(a, new)) == 4
    assert {s.node for s in new.workers.values()} == {"n1"}
    assert reason.details == {"moved": 4, "tasks": 8, "new_workers": 1}
    # With one worker a node, as T-Storm wants it, to another node.
    new, _ = relocate(demand(8, 2), cluster(2)[0], load, {T: a}, Limits(workers_per_node=1))
    assert {s.node for s in new.workers.values()} == {"n1", "n2"}
    # And without the limit of the interpreter lock nowhere.
    assert not moved(a, relocate(demand(8, 2), cluster(2)[0], load, {T: a}, Limits(worker_cores=0))[0])


def test_scaling_in_keeps_the_larger_part_where_it_is() -> None:
    # Tasks 1-3 on n1, 4-8 on n2; one executor: three tasks move, not five.
    a = assignment("t", {executor("a", 1, 3): ("n1", 0), executor("a", 4, 8): ("n2", 0)})
    new, _ = relocate(demand(8, 1), cluster(2)[0], LoadView(), {T: a}, Limits())
    assert moved(a, new) == [1, 2, 3]
    assert list(new.workers) == ["t@n2/0"]


def test_which_ranges_are_larger_is_chosen_so_that_fewest_move() -> None:
    # Seven tasks, three executors: sizes 3, 2, 2 in some order. Four on n1, three on n2: 2, 2, 3 moves nothing.
    a = assignment("t", {executor("a", 1, 4): ("n1", 0), executor("a", 5, 7): ("n2", 0)})
    new, _ = relocate(demand(7, 3), cluster(2)[0], LoadView(), {T: a}, Limits())
    assert [str(e) for e, _ in new.executors] == ["a[1-2]", "a[3-4]", "a[5-7]"]
    assert moved(a, new) == []
    assert (executor("a", 5, 7), "t@n2/0") in new.executors


def test_nothing_to_do_is_the_very_object() -> None:
    a = assignment("t", {executor("a", 1, 8): ("n1", 0)})
    assert relocate(demand(8, 1), cluster(2)[0], LoadView(), {T: a}, Limits()) == (a, [])


def test_lack_of_room_is_said() -> None:
    a = assignment("t", {executor("a", 1, 2): ("n1", 0)})
    load = view(a, {executor("a", 1, 2): 1.0}, nodes=1, of=1.0)
    _, reasons = relocate(demand(2, 2), cluster(1, slots=1)[0], load, {T: a}, Limits())
    assert [r.kind for r in reasons] == ["relocated", "resources-lack"]
    assert "by 0.20 cores" in reasons[1].message  # 0.10 of the node, and 0.10 of the worker


def test_a_topology_on_an_absent_node_waits() -> None:
    a = assignment("t", {executor("a", 1, 8): ("n1", 0)})
    nodes = ClusterView((NodeSlots(NodeId("n1"), 4, absent=True), NodeSlots(NodeId("n2"), 4)))
    new, (reason,) = relocate(demand(8, 2), nodes, LoadView(), {T: a}, Limits())
    assert new is a
    assert reason.kind == "postponed"


def test_more_executors_than_tasks_are_refused() -> None:
    a = assignment("t", {executor("a", 1, 2): ("n1", 0)})
    for wanted in (0, 3):
        with pytest.raises(InvalidParallelism, match="2 tasks"):
            relocate(demand(2, wanted), cluster(1)[0], LoadView(), {T: a}, Limits())


def test_state_that_cannot_go_along_stays() -> None:
    a = assignment("t", {executor("a", 1, 3): ("n1", 0), executor("a", 4, 8): ("n2", 0)})
    part = replace(demand(8, 1).spec.components[0], stateful=True)
    pinned = replace(demand(8, 3), spec=replace(demand(8, 1).spec, components=(part,)))
    load = view(a, dict.fromkeys([e for e, _ in a.executors], 1.0))
    new, (reason, *_) = relocate(pinned, cluster(2)[0], load, {T: a}, Limits())
    assert reason.kind == "relocated"
    assert len(new.executors) == 3
    assert not moved(a, new)
    assert new.epoch == a.epoch + 1
    kept, (reason,) = relocate(replace(pinned, executors={A: 1}), cluster(2)[0], load, {T: a}, Limits())
    assert kept is a
    assert reason.kind == "postponed"
    assert "2 separate runs" in reason.message
    free, _ = relocate(
        replace(pinned, executors={A: 1}, movable=True), cluster(2)[0], LoadView(), {T: a}, Limits()
    )
    assert moved(a, free) == [1, 2, 3]


def test_state_that_cannot_go_along_stays_although_others_of_its_component_wait() -> None:
    # As many executors have a place as are wanted in all: those that wait count as well.
    there = assignment("t", {executor("a", i, i): ("n1", 0) for i in (1, 2, 3)})
    a = replace(there, unassigned=tuple(executor("a", i, i) for i in (4, 5, 6)))
    part = replace(demand(6, 1).spec.components[0], stateful=True)
    pinned = replace(demand(6, 3), spec=replace(demand(6, 1).spec, components=(part,)))
    load = view(a, dict.fromkeys([e for e, _ in a.executors], 1.0))
    new, _ = relocate(pinned, cluster(2)[0], load, {T: a}, Limits())
    assert moved(a, new) == []
    every = [e for e, _ in new.executors] + list(new.unassigned)
    assert len(every) == 3 and sorted(t for e in every for t in e.tasks()) == list(range(1, 7))


@pytest.mark.parametrize("name", ["roundrobin", "tstorm", "otd"])
def test_every_scheduler_places_marked_topologies_so(name: str) -> None:
    a = assignment("t", {executor("a", 1, 8): ("n1", 0)}, epoch=7)
    decision = choose(name).decide([demand(8, 2)], cluster(2)[0], view(a, {executor("a", 1, 8): 0.1}), {T: a})
    assert len(decision.assignments[T].executors) == 2
    assert decision.assignments[T].epoch == 8
    assert decision.reasons[0].kind == "relocated"
    assert not decision.relocated({T: a})


def test_many_executors_are_divided_quickly_and_evenly() -> None:
    tasks = range(1, 1001)
    old = split_tasks(A, tasks, 90)
    a = assignment("t", {e: (f"n{i % 9 + 1}", 0) for i, e in enumerate(old)})
    wanted = replace(demand(1000, 130), executors={A: 130})
    new, (reason, *_) = relocate(
        wanted, cluster(9)[0], view(a, dict.fromkeys(old, 0.02), 9), {T: a}, Limits()
    )
    sizes = Counter(len(e.tasks()) for e, _ in new.executors)
    assert sizes == {8: 90, 7: 40}
    assert "the fewest found" in reason.message
    assert len(moved(a, new)) < 500


# --- against brute force


@st.composite
def questions(draw: st.DrawFn) -> tuple[Demand, ClusterView, LoadView, Assignment]:
    tasks = draw(st.integers(1, 7))
    old = split_tasks(A, range(1, tasks + 1), draw(st.integers(1, min(tasks, 4))))
    nodes = draw(st.integers(1, 2))
    slots = draw(st.integers(1, 2))
    places = {e: (f"n{draw(st.integers(1, nodes))}", draw(st.integers(0, slots - 1))) for e in old}
    a = assignment("t", places)
    # Whole numbers of millionths of a core for each task, so that nothing is rounded.
    cpu = {e: len(e.tasks()) * draw(st.sampled_from((0.0, 0.05, 0.1, 0.25, 0.4))) for e in old}
    wanted = draw(st.integers(1, min(tasks, 4)))
    assume(wanted != len(old))
    cores = draw(st.sampled_from((1.0, 2.0)))
    names, capacities = cluster(nodes, slots, cores)
    load = LoadView({ExecutorKey(T, e): SmoothedLoad(cpu=c) for e, c in cpu.items()}, {}, capacities)
    return demand(tasks, wanted), names, load, a


def quality(
    old: Assignment, executors: Mapping[ExecutorId, tuple[str, int]], load: LoadView
) -> tuple[float, int]:
    """(cores by which capacities are exceeded, tasks that leave their worker), from the definitions."""
    each: dict[int, float] = {}
    for key, measured in load.executors.items():
        for t in key.executor.tasks():
            each[t] = measured.cpu / len(key.executor.tasks())
    nodes: dict[str, float] = defaultdict(float)
    workers: dict[tuple[str, int], list[float]] = defaultdict(list)
    for e, place in executors.items():
        cores = sum(each[t] for t in e.tasks())
        nodes[place[0]] += cores
        workers[place].append(cores)
    excess = sum(max(0.0, c - 0.9 * load.nodes[NodeId(n)].cores) for n, c in nodes.items())
    excess += sum(max(0.0, sum(cs) - 0.9) for cs in workers.values() if len(cs) > 1)
    was = old.place_of()
    strangers = sum(
        was[TaskId(t)] != f"t@{place[0]}/{place[1]}" for e, place in executors.items() for t in e.tasks()
    )
    return round(excess, 6), strangers


def best(d: Demand, nodes: ClusterView, load: LoadView, a: Assignment) -> tuple[float, int]:
    """The best quality of all even divisions and all places; what keeps its range keeps its place."""
    tasks, wanted = d.spec.task_count, d.executors[A]
    size, larger = divmod(tasks, wanted)
    was = dict(a.executors)
    slots = [(n.id, i) for n in nodes.nodes for i in range(n.slots)]
    result = (math.inf, 0)
    for big in combinations(range(wanted), larger):
        executors, first = [], 1
        for i in range(wanted):
            count = size + (i in big)
            executors.append(executor("a", first, first + count - 1))
            first += count
        choices = []
        for e in executors:
            if e in was:
                slot = a.workers[was[e]]
                choices.append([(slot.node, slot.slot)])
            else:
                choices.append(slots)
        for places in product(*choices):
            if any(
                len({s for n, s in places if n == node.id}) > cores_of(load, node.id, a)
                for node in nodes.nodes
            ):
                continue
            result = min(result, quality(a, dict(zip(executors, places, strict=True)), load))
    return result


def cores_of(load: LoadView, node: NodeId, a: Assignment) -> int:
    """How many workers the topology may have there: its cores, or as many as it has already."""
    return max(int(load.nodes[node].cores), sum(s.node == node for s in a.workers.values()))


def check(question: tuple[Demand, ClusterView, LoadView, Assignment]) -> None:
    d, nodes, load, a = question
    new, reasons = relocate(d, nodes, load, {T: a}, Limits())
    assert not new.unassigned
    assert sorted(t for e, _ in new.executors for t in e.tasks()) == list(range(1, d.spec.task_count + 1))
    assert len(new.executors) == d.executors[A]
    assert new.epoch == a.epoch + 1
    places = {e: (str(new.workers[w].node), new.workers[w].slot) for e, w in new.executors}
    got = quality(a, places, load)
    assert got == best(d, nodes, load, a)
    assert (got[0] > 0) == any(r.kind == "resources-lack" for r in reasons)
    assert reasons[0].details["moved"] == got[1]


thorough = settings(max_examples=150)


@thorough
@given(questions())
def test_relocations_are_the_fewest_possible(
    question: tuple[Demand, ClusterView, LoadView, Assignment],
) -> None:
    check(question)


def _greedy(*args: Any) -> object:
    """A planted fault: the first way is taken."""
    state = search._Search(*args[:3], None, search.BUDGET)
    state.greedy(search.micro(args[4]))
    assert state.best is not None
    cost = state.best_cost[0] / search.MILLION, state.best_cost[1]
    return search.Solution(tuple(state.best), cost), True, search.BUDGET


def _usual(component: ComponentId, tasks: range, executors: int, *_: object) -> object:
    """A planted fault: larger ranges always come first."""
    return [tuple(split_tasks(component, tasks, executors))]


@pytest.mark.parametrize(("name", "fault"), [("search", _greedy), ("_arrangements", _usual)])
def test_brute_force_finds_planted_faults(name: str, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimal_relocation, name, fault)
    hunt = settings(max_examples=400, database=None, report_multiple_bugs=False)
    with pytest.raises(AssertionError):
        hunt(given(questions())(check))()
