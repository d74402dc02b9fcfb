"""What every answer of the even scheduler keeps, for any topology, cluster and history."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic.errors import Refused
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.scheduler import round_robin
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.round_robin import RoundRobinScheduler


@st.composite
def components(draw: st.DrawFn, name: str) -> ComponentSpec:
    tasks = draw(st.integers(1, 9))
    return ComponentSpec(ComponentId(name), "bolt", tasks, draw(st.integers(1, tasks)), draw(st.booleans()))


@st.composite
def demands(draw: st.DrawFn, name: str) -> Demand:
    parts = tuple(draw(components(c)) for c in "abc"[: draw(st.integers(1, 3))])
    spec = TopologySpec(TopologyName(name), parts, workers=draw(st.integers(1, 5)))
    return Demand(spec, spec.workers)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    def node(i: int) -> NodeSlots:
        draining = draw(st.integers(0, 3)) == 0
        return NodeSlots(NodeId(f"n{i}"), draw(st.integers(0, 3)), draining, draining and draw(st.booleans()))

    return ClusterView(tuple(node(i) for i in range(draw(st.integers(0, 4)))))


Plan = dict[TopologyName, Assignment]
settled = settings(max_examples=150)


def valid_places(a: Assignment, cluster: ClusterView) -> dict[ExecutorId, WorkerId]:
    slots = {n.id: n.slots for n in cluster.nodes}
    return {e: w for e, w in a.executors if a.workers[w].slot < slots.get(a.workers[w].node, 0)}


def check(demands: list[Demand], cluster: ClusterView, before: Plan, after: Plan) -> None:
    nodes = {n.id: n for n in cluster.nodes}
    for demand in demands:
        a = after[demand.spec.name]
        everything = [e for e, _ in a.executors] + list(a.unassigned)
        tasks = Counter(t for e in everything for t in e.tasks())
        assert tasks == Counter(range(1, demand.spec.task_count + 1)), "a task was lost or doubled"
        for executor in everything:
            assert set(executor.tasks()) <= set(demand.spec.tasks_of(executor.component))
        assert set(a.workers) == {w for _, w in a.executors}
        old = before.get(demand.spec.name)
        if old is not None and a is not old:
            assert a.epoch == old.epoch + 1
        placed, was = dict(a.executors), valid_places(old, cluster) if old else {}
        for worker, slot in a.workers.items():
            node = nodes[slot.node]
            assert slot.slot < node.slots
            if node.draining:
                assert not node.evict
                assert worker in set(was.values())
                assert {e for e, w in placed.items() if w == worker} <= {
                    e for e, w in was.items() if w == worker
                }
        if a.unassigned:
            used = {(s.node, s.slot) for x in after.values() for s in x.workers.values()}
            free = [(n.id, i) for n in cluster.nodes if not n.draining for i in range(n.slots)]
            assert not set(free) - used, "something waits although a slot is free"
        for executor, worker in was.items():
            node = nodes[old.workers[worker].node]  # type: ignore[union-attr]
            if not node.draining or (demand.pinned(executor) and not node.evict):
                assert placed[executor] == worker, "something moved that did not have to"
    slots = Counter((s.node, s.slot) for a in after.values() for s in a.workers.values())
    assert not slots or max(slots.values()) == 1, "two workers in one slot"


def run(wanted: list[Demand], views: list[ClusterView], plan: Plan) -> Plan:
    for cluster in views:
        before, plan = plan, RoundRobinScheduler().schedule(wanted, cluster, plan)
        check(wanted, cluster, before, plan)
        again = RoundRobinScheduler().schedule(wanted, cluster, plan)
        assert all(again[name] is plan[name] for name in plan), "not settled after one step"
    return plan


@settled
@given(demands("x"), demands("y"), st.lists(clusters(), min_size=1, max_size=4))
def test_every_history_of_nodes_keeps_the_rules(x: Demand, y: Demand, views: list[ClusterView]) -> None:
    assert run([x, y], views, {}) == run([x, y], views, {})


@settled
@given(demands("x"), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_first_placement_is_even_within_one(demand: Demand, slots: list[int]) -> None:
    cluster = ClusterView(tuple(NodeSlots(NodeId(f"n{i}"), s) for i, s in enumerate(slots)))
    a = RoundRobinScheduler().schedule([demand], cluster, {})[demand.spec.name]
    load = Counter(w for _, w in a.executors)
    assert max(load.values()) - min(load.values()) <= 1
    executors = sum(c.executors for c in demand.spec.components)
    assert len(load) == min(demand.workers, executors, sum(slots))
    for component in demand.spec.components:
        each = Counter(dict.fromkeys(load, 0))
        each.update(w for e, w in a.executors if e.component == component.id)
        assert max(each.values()) - min(each.values()) <= 1 or len(demand.spec.components) > 1
    nodes = Counter(s.node for s in a.workers.values())
    room = [n for n in cluster.nodes if nodes[n.id] < n.slots]
    assert all(nodes[n.id] >= max(nodes.values()) - 1 for n in room), (
        "one node got two more than another with room"
    )


@settled
@given(demands("x"), clusters(), st.data())
def test_a_rebalance_keeps_the_rules_or_refuses(
    demand: Demand, cluster: ClusterView, data: st.DataObject
) -> None:
    name, spec = demand.spec.name, demand.spec
    plan = RoundRobinScheduler().schedule([demand], cluster, {})
    wanted = {c.id: data.draw(st.integers(1, c.tasks), label=c.id) for c in spec.components}
    asked = replace(
        demand,
        executors=wanted,
        workers=data.draw(st.integers(1, 5), label="workers"),
        rebalance=True,
        spread=data.draw(st.booleans()),
    )
    try:
        new = RoundRobinScheduler().schedule([asked], cluster, plan)[name]
    except Refused:
        return
    tasks = Counter(t for e in [*dict(new.executors), *new.unassigned] for t in e.tasks())
    assert tasks == Counter(range(1, spec.task_count + 1))
    was, now = plan[name].place_of(), new.place_of()
    for component in spec.components:
        number = [e for e in [*dict(new.executors), *new.unassigned] if e.component == component.id]
        assert len(number) == wanted[component.id]
        if component.stateful:
            for task in map(TaskId, spec.tasks_of(component.id)):
                assert task not in was or now[task] == was[task], "state would have to move"
    nodes = {n.id: n for n in cluster.nodes}
    if was:
        assert len(new.workers) == asked.workers
    assert all(s.slot < nodes[s.node].slots and not nodes[s.node].draining for s in new.workers.values())
    again = RoundRobinScheduler().schedule([replace(asked, rebalance=False)], cluster, {name: new})[name]
    assert again is new


class _Forgetful(RoundRobinScheduler):
    """A planted fault: deals everything anew each time."""

    def schedule(self, demands, cluster, current):  # type: ignore[no-untyped-def]
        others = {n: a for n, a in current.items() if n not in {d.spec.name for d in demands}}
        new = super().schedule(demands, cluster, others)
        return {n: replace(a, epoch=current[n].epoch + 1) if n in current else a for n, a in new.items()}


class _Blind(RoundRobinScheduler):
    """A planted fault: does not see what other topologies occupy."""

    def schedule(self, demands, cluster, current):  # type: ignore[no-untyped-def]
        result: Plan = {}
        for d in demands:
            mine = {d.spec.name: current[d.spec.name]} if d.spec.name in current else {}
            result |= super().schedule([d], cluster, mine)
        return result


class _Dropping(RoundRobinScheduler):
    """A planted fault: forgets what waits."""

    def schedule(self, demands, cluster, current):  # type: ignore[no-untyped-def]
        return {n: replace(a, unassigned=()) for n, a in super().schedule(demands, cluster, current).items()}


@pytest.mark.parametrize("fault", [_Forgetful, _Blind, _Dropping])
def test_the_rules_find_planted_faults(fault: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RoundRobinScheduler", fault)
    assert round_robin.RoundRobinScheduler is not fault
    search = settings(settled, database=None, phases=[p for p in settings().phases if p.name == "generate"])
    with pytest.raises(AssertionError):
        search(
            given(demands("x"), demands("y"), st.lists(clusters(), min_size=2, max_size=4))(
                lambda x, y, views: run([x, y], views, {}) and None
            )
        )()
