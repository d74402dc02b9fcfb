"""What every decision by load keeps, for any topologies, cluster, load and history."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from benchmarks.placements import Case, spec
from elastic.model.assignment import Assignment
from elastic.model.ids import NodeId, TaskId, TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad
from elastic.scheduler import labels, tstorm
from elastic.scheduler.algorithm1 import Algorithm1, TStormParams
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Decision, same_places
from elastic.scheduler.instance import Instance
from elastic.scheduler.otd import Deployment, OtdParams, Worker
from elastic.scheduler.prepare import Prepared, prepare
from elastic.scheduler.registry import Choice, choose
from elastic.scheduler.round_robin import RoundRobinScheduler

SETTLED = settings(max_examples=120)
LINES = (
    "tstorm",
    "tstorm --gamma 2 --gain 0",
    "tstorm --gamma 3 --workers-per-node 0",
    "tstorm --gamma 2 --worker-cores 0",
    "otd --share 0",
    "otd --workers-per-node 1 --high 0.6 --low 0.3",
    "roundrobin",
)


@st.composite
def cases(draw: st.DrawFn, tight: bool = False) -> Case:
    """Questions; tight ones have more load than room in one place, and everything may move."""
    demands = []
    for name in "tu"[: draw(st.integers(1, 2))]:
        parts = {
            c: (n := draw(st.integers(1, 4)), draw(st.integers(1, n)))
            for c in "ab"[: draw(st.integers(1, 2))]
        }
        s = spec(name, parts, draw(st.integers(1, 3)))
        stateful = draw(st.booleans())
        s = replace(s, components=tuple(replace(c, stateful=stateful) for c in s.components))
        demands.append(Demand(s, s.workers, movable=tight or draw(st.booleans())))
    names = [NodeId(f"n{i}") for i in range(1, draw(st.integers(2 if tight else 1, 3)) + 1)]
    cluster = ClusterView(tuple(NodeSlots(n, draw(st.integers(1, 3))) for n in names))
    current = RoundRobinScheduler().schedule(demands, cluster, {})
    keys = [ExecutorKey(n, e) for n, a in current.items() for e in [*dict(a.executors), *a.unassigned]]
    measured = [k for k in keys if tight or draw(st.integers(0, 9))]
    some = (0.2, 0.4, 0.5) if tight else (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)
    loads = {
        k: SmoothedLoad(
            cpu=draw(st.sampled_from(some)),
            fill=draw(st.sampled_from((0.0, 0.0, 1.0))),
        )
        for k in measured
    }
    traffic = {
        (a, b): draw(st.sampled_from((1.0, 10.0, 200.0)))
        for a in keys
        for b in keys
        if a.topology == b.topology and a != b and draw(st.booleans())
    }
    nodes = {n: NodeLoad(draw(st.sampled_from((1.0, 2.0, 4.0)))) for n in names}
    return Case(tuple(demands), cluster, LoadView(loads, traffic, nodes), current)


@st.composite
def changed(draw: st.DrawFn, case: Case) -> Case:
    """The cluster a while later: a node drains or goes, or a scaling decision was made."""
    what = draw(st.sampled_from(("nothing", "drain", "absent", "gone", "marked", "marked")))
    nodes = list(case.cluster.nodes)
    i = draw(st.integers(0, len(nodes) - 1))
    if what == "drain":
        nodes[i] = replace(nodes[i], draining=True)
    elif what == "absent":
        nodes[i] = replace(nodes[i], absent=True)
    elif what == "gone":
        del nodes[i]
    demands = case.demands
    if what == "marked":
        demands = tuple(
            replace(
                d, marked=True, executors={c.id: draw(st.integers(1, c.tasks)) for c in d.spec.components}
            )
            for d in demands
        )
    return replace(case, cluster=ClusterView(tuple(nodes)), demands=demands)


def measures(
    ready: Prepared, places: Mapping[TopologyName, Assignment]
) -> tuple[float, dict[str, float], dict[str, list[float]]]:
    """From the definitions: tuples per second between nodes, cores by node, and cores of each executor by worker, of those
    topologies that the algorithm may place anew; by node of all."""
    nodes: dict[str, float] = defaultdict(float)
    workers: dict[str, list[float]] = defaultdict(list)
    where: dict[ExecutorKey, object] = {}
    for name, a in places.items():
        for e, w in a.executors:
            key = ExecutorKey(name, e)
            cores = ready.load.executors[key].cpu if key in ready.load.executors else 0.0
            nodes[a.workers[w].node] += cores
            if name in ready.movable:
                workers[w].append(cores)
                where[key] = a.workers[w].node
        if name in ready.movable:
            where.update((ExecutorKey(name, e), e) for e in a.unassigned)
    cut = sum(
        t for (x, y), t in ready.load.traffic.items() if x in where and y in where and where[x] != where[y]
    )
    return cut, nodes, workers


def check(case: Case, choice: Choice, decision: Decision) -> None:
    before, after = dict(case.current), {**case.current, **decision.assignments}
    nodes = {n.id: n for n in case.cluster.nodes}
    assert decision.reasons, "no reason is given"
    assert all(r.message.endswith(".") for r in decision.reasons)
    for demand in case.demands:
        name = demand.spec.name
        a, old = decision.assignments[name], before[name]
        everything = [e for e, _ in a.executors] + list(a.unassigned)
        tasks = Counter(t for e in everything for t in e.tasks())
        assert tasks == Counter(range(1, demand.spec.task_count + 1)), "a task was lost or doubled"
        assert set(a.workers) == {w for _, w in a.executors}
        assert a is old or a.epoch == old.epoch + 1
        was, had, has = dict(old.executors), old.place_of(), a.place_of()
        for e, w in a.executors:
            slot = a.workers[w]
            assert slot.slot < nodes[slot.node].slots, "a slot that does not exist"
            stays = was.get(e) == w or all(had.get(t) == w for t in map(TaskId, e.tasks()))
            assert nodes[slot.node].open or stays, "something new on a closed node"
        for t, w in had.items():
            if old.workers[w].node in nodes and not demand.movable and demand.spec.component_of(t).stateful:
                assert has.get(t) == w, "state was left behind"
    slots = Counter((s.node, s.slot) for a in after.values() for s in a.workers.values())
    assert not slots or max(slots.values()) == 1, "two workers in one slot"
    if choice.kind.name == "tstorm":
        check_tstorm(case, choice.params, decision, after)
    elif choice.kind.name == "otd":
        check_otd(case, choice.params, decision, after)


def check_tstorm(
    case: Case, p: TStormParams, decision: Decision, after: Mapping[TopologyName, Assignment]
) -> None:
    ready = prepare(
        *(case.demands, case.cluster, case.load, case.current),
        capacity=p.capacity,
        worker_cores=p.worker_cores,
        measure=p.measure,
        workers_per_node=p.workers_per_node,
        one_worker_a_node=p.workers_per_node == 1,
    )
    closed = {n.id for n in case.cluster.nodes if not n.open}

    def excess(nodes: Mapping[str, float], workers: Mapping[str, list[float]]) -> float:
        over = [
            c - p.capacity * case.load.nodes[NodeId(n)].cores for n, c in nodes.items() if n not in closed
        ]
        if p.worker_cores:
            over += [sum(cs) - p.capacity * p.worker_cores for cs in workers.values() if len(cs) > 1]
        return sum(max(0.0, x) for x in over)

    (verdict,) = [r for r in decision.reasons if r.kind in ("rescheduled", "kept", "nothing-measured")]
    (cut, *load), (new_cut, *new_load) = measures(ready, ready.places), measures(ready, after)
    if set(ready.movable) == set(after):
        told = tstorm.excess(case.cluster, ready.load, after, p)
        assert told == pytest.approx(excess(*new_load), abs=1e-6), "overload is not seen as it is"
    if verdict.kind != "rescheduled":
        assert all(same_places(after[n], ready.places[n]) for n in ready.movable), "changed without a word"
        return
    homeless = any(
        a.unassigned or closed & {s.node for s in a.workers.values()}
        for a in (ready.places[n] for n in ready.movable)
    )
    assert homeless or excess(*new_load) <= excess(*load) + 1e-6, (
        "capacities are exceeded by more than before"
    )
    warned = any(r.kind == "resources-lack" for r in decision.reasons)
    assert excess(*new_load) <= 1e-6 or warned, "a capacity is exceeded"
    if "saves" in verdict.message or "less and no more" in verdict.message:
        assert new_cut <= cut + 1e-6, "worse by its own measure"
    assert verdict.details["before"] == pytest.approx(cut)
    assert verdict.details["after"] == pytest.approx(new_cut)


def check_otd(case: Case, p: OtdParams, decision: Decision, after: Mapping[TopologyName, Assignment]) -> None:
    ready = prepare(
        *(case.demands, case.cluster, case.load, case.current),
        capacity=p.high,
        worker_cores=p.worker_cores,
        measure=p.measure,
        workers_per_node=p.workers_per_node,
    )
    moved = [
        (name, e, w)
        for name in ready.places
        for e, w in after[name].executors
        if dict(ready.places[name].executors)[e] != w
    ]
    kinds = [r.kind for r in decision.reasons]
    assert len(moved) == kinds.count("moved") <= 1, "more than one move"
    if not moved:
        return
    ((name, _, worker),) = moved
    cut, _, _ = measures(ready, ready.places)
    new_cut, nodes, workers = measures(ready, after)
    asc = decision.reasons[-1].details["asc"]
    assert cut - new_cut == pytest.approx(asc), "the score is not what the network is spared"
    assert asc > 0 or "case-1" in kinds, "worse by its own measure"
    node = after[name].workers[worker].node
    cores = case.load.nodes[node].cores
    assert sum(workers[worker]) <= p.high * min(p.worker_cores or cores, cores) + 1e-6, (
        "the target has high load"
    )
    assert nodes[node] <= p.high * cores + 1e-6, "the target's node has high load"


@SETTLED
@given(st.sampled_from(LINES), cases(), st.data())
def test_every_decision_keeps_the_rules(line: str, case: Case, data: st.DataObject) -> None:
    choice = choose(line)
    decision = case.ask(choice)
    check(case, choice, decision)
    assert case.ask(choice) == decision, "another answer to the same question"
    later = data.draw(changed(case.after(decision)))
    check(later, choice, later.ask(choice))


@SETTLED
@given(st.sampled_from(["otd --share 0", "otd --share 0 --workers-per-node 1"]), cases())
def test_otd_settles(line: str, case: Case) -> None:
    for _ in range(60):
        decision = case.ask(choose(line))
        if case.after(decision) == case:
            return
        case = case.after(decision)
    raise AssertionError("it still moves after 60 cycles")


@SETTLED
@given(st.sampled_from([line for line in LINES if line.startswith("tstorm")]), cases())
def test_tstorm_settles(line: str, case: Case) -> None:
    for _ in range(6):
        decision = case.ask(choose(line))
        if case.after(decision) == case:
            return
        case = case.after(decision)
    raise AssertionError("it still changes its mind after 6 periods")


_init = Algorithm1.__init__


def _boundless(self: Algorithm1, instance: Instance, params: TStormParams) -> None:
    """A planted fault: capacities are not looked at."""
    _init(self, instance, params)
    self.cap = [math.inf for _ in self.cap]


def _same_slot(p: Instance, k: int, groups: Any, *_: Any) -> dict[int, int]:
    """A planted fault: every worker of a node gets its first slot."""
    return {id(g): 0 for g in groups}


def _backwards(self: Deployment, executor: int, target: Worker) -> bool:
    """A planted fault: any target will do."""
    return True


FAULTS = [
    (Algorithm1, "__init__", _boundless, "tstorm --gamma 2 --gain 0"),
    (labels, "_slots", _same_slot, "tstorm --gamma 3 --workers-per-node 0"),
    (Deployment, "fits", _backwards, "otd --share 0 --high 0.5 --low 0.45"),
    (tstorm, "_verdict", lambda old, new, params: "it saves 5%", "tstorm"),
]


@pytest.mark.parametrize(("where", "name", "fault", "line"), FAULTS, ids=[f[1] for f in FAULTS])
def test_the_rules_find_planted_faults(
    where: Any, name: str, fault: Any, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, fault)
    hunt = settings(
        max_examples=1500,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
    )
    choice = choose(line)

    def ask(case: Case) -> None:
        check(case, choice, case.ask(choice))

    with pytest.raises(AssertionError):
        hunt(given(cases(tight=True))(ask))()
