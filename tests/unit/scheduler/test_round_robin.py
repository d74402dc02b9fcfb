"""The even scheduler: what it decides in the cases that people meet."""

from __future__ import annotations

import pytest

from elastic.errors import InvalidParallelism, Refused
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.split import split_tasks
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.round_robin import RoundRobinScheduler, natural
from elastic.scheduler.tasks import regroup, runs


def spec(name: str = "t", workers: int = 2, **components: tuple[int, int, bool]) -> TopologySpec:
    return TopologySpec(
        TopologyName(name),
        tuple(
            ComponentSpec(ComponentId(c), "bolt", tasks, executors, stateful)
            for c, (tasks, executors, stateful) in components.items()
        ),
        workers=workers,
    )


def nodes(**slots: int) -> ClusterView:
    return ClusterView(tuple(NodeSlots(NodeId(n), s) for n, s in slots.items()))


def place(demand: Demand, cluster: ClusterView, *current: Assignment) -> Assignment:
    name = demand.spec.name
    return RoundRobinScheduler().schedule([demand], cluster, {a.topology: a for a in current})[name]


def shape(a: Assignment) -> dict[str, list[str]]:
    return {w: [str(e) for e in a.executors_of(w)] for w in a.workers}


def test_executors_are_dealt_in_turn_and_neighbours_share_a_worker() -> None:
    a = place(Demand(spec(a=(1, 1, False), b=(8, 4, True)), 2), nodes(n1=2, n2=2))
    assert shape(a) == {
        "t@n1/0": ["a[1-1]", "b[2-3]", "b[4-5]"],
        "t@n2/0": ["b[6-7]", "b[8-9]"],
    }
    assert a.epoch == 1 and not a.unassigned


def test_the_same_object_comes_back_when_nothing_changes() -> None:
    demand, cluster = Demand(spec(b=(4, 4, False)), 2), nodes(n1=2, n2=2)
    a = place(demand, cluster)
    assert place(demand, cluster, a) is a
    assert place(demand, nodes(n1=2, n2=2, n3=4), a) is a


def test_without_slots_everything_waits_and_is_placed_when_a_node_comes() -> None:
    demand = Demand(spec(b=(4, 2, False)), 2)
    a = place(demand, nodes())
    assert [str(e) for e in a.unassigned] == ["b[1-2]", "b[3-4]"] and not a.workers
    b = place(demand, nodes(n1=1), a)
    assert shape(b) == {"t@n1/0": ["b[1-2]", "b[3-4]"]} and b.epoch == 2


def test_only_what_was_on_the_lost_node_moves() -> None:
    demand = Demand(spec(workers=3, b=(9, 9, True)), 3)
    a = place(demand, nodes(n1=2, n2=2, n3=2))
    b = place(demand, nodes(n1=2, n3=2), a)
    lost = {e for e, w in a.executors if "@n2/" in w}
    assert {e: w for e, w in a.executors if e not in lost}.items() <= dict(b.executors).items()
    assert all("@n2/" not in w for _, w in b.executors) and len(b.workers) == 3


def test_without_a_free_slot_the_living_workers_take_over() -> None:
    demand = Demand(spec(b=(4, 4, False)), 2)
    a = place(demand, nodes(n1=1, n2=1))
    b = place(demand, nodes(n1=1), a)
    assert [len(x) for x in shape(b).values()] == [4]


def test_slots_of_other_topologies_are_taken() -> None:
    a = place(Demand(spec("x", workers=3, b=(4, 4, False)), 3), nodes(n1=2, n2=2))
    b = place(Demand(spec("y", workers=3, b=(4, 4, False)), 3), nodes(n1=2, n2=2), a)
    assert list(b.workers) == ["y@n2/1"]


def test_a_draining_node_keeps_state_and_gives_away_the_rest() -> None:
    demand = Demand(spec(workers=1, a=(2, 2, False), b=(2, 2, True)), 1)
    a = place(demand, nodes(n1=2))
    view = ClusterView((NodeSlots(NodeId("n1"), 2, draining=True), NodeSlots(NodeId("n2"), 1)))
    assert shape(place(demand, view, a)) == {
        "t@n1/0": ["b[3-3]", "b[4-4]"],
        "t@n2/0": ["a[1-1]", "a[2-2]"],
    }
    finished = Demand(demand.spec, 1, finished=frozenset({TaskId(3), TaskId(4)}))
    assert list(place(finished, view, a).workers) == ["t@n2/0"]


def test_a_draining_node_stops_nothing_when_there_is_no_other_place() -> None:
    demand = Demand(spec(workers=1, a=(2, 2, False)), 1)
    a = place(demand, nodes(n1=2))
    assert place(demand, ClusterView((NodeSlots(NodeId("n1"), 2, draining=True),)), a) is a


def test_an_evicted_node_is_emptied_state_or_not() -> None:
    demand = Demand(spec(workers=1, b=(2, 2, True)), 1)
    a = place(demand, nodes(n1=2))
    evicted = NodeSlots(NodeId("n1"), 2, draining=True, evict=True)
    assert list(place(demand, ClusterView((evicted, NodeSlots(NodeId("n2"), 1))), a).workers) == ["t@n2/0"]
    assert len(place(demand, ClusterView((evicted,)), a).unassigned) == 2


def rebalanced(
    a: Assignment, cluster: ClusterView, s: TopologySpec, /, workers: int = 0, **executors: int
) -> Assignment:
    wanted = {ComponentId(c): n for c, n in executors.items()}
    return place(Demand(s, workers or len(a.workers), wanted, rebalance=True), cluster, a)


def test_rebalance_regroups_a_stateful_component_within_its_workers() -> None:
    s, cluster = spec(b=(8, 2, True)), nodes(n1=1, n2=1)
    a = place(Demand(s, 2), cluster)
    b = rebalanced(a, cluster, s, b=8)
    assert b.place_of() == a.place_of() and len(b.executors) == 8
    assert rebalanced(b, cluster, s, b=2).executors == a.executors


def test_rebalance_refuses_fewer_executors_than_separate_runs() -> None:
    s, cluster = spec(b=(8, 4, True)), nodes(n1=1, n2=1)
    a = place(Demand(s, 2), cluster)
    with pytest.raises(Refused, match=r"'b' cannot have 1 executor:.*2 separate runs in t@n1/0, t@n2/0"):
        rebalanced(a, cluster, s, b=1)


def test_rebalance_refuses_more_executors_than_tasks() -> None:
    s, cluster = spec(b=(8, 4, True)), nodes(n1=1, n2=1)
    with pytest.raises(InvalidParallelism, match="8 tasks and cannot have 9"):
        rebalanced(place(Demand(s, 2), cluster), cluster, s, b=9)


def test_rebalance_of_a_stateless_component_may_merge_over_workers() -> None:
    s, cluster = spec(a=(8, 4, False), c=(2, 2, False)), nodes(n1=1, n2=1)
    a = place(Demand(s, 2), cluster)
    b = rebalanced(a, cluster, s, a=1)
    assert [str(e) for e, _ in b.executors] == ["a[1-8]", "c[9-9]", "c[10-10]"]
    assert sorted(len(x) for x in shape(b).values()) == [1, 2]


def test_rebalance_to_more_workers_moves_only_stateless_executors() -> None:
    s, cluster = spec(workers=1, a=(4, 4, False), b=(4, 2, True)), nodes(n1=1, n2=1)
    a = place(Demand(s, 1), cluster)
    b = rebalanced(a, cluster, s, workers=2)
    assert sorted(len(x) for x in shape(b).values()) == [3, 3]
    assert {w for e, w in b.executors if e.component == "b"} == {"t@n1/0"}


def test_rebalance_to_more_workers_refuses_when_only_state_could_move() -> None:
    s, cluster = spec(workers=1, b=(4, 2, True)), nodes(n1=1, n2=1)
    a = place(Demand(s, 1), cluster)
    with pytest.raises(Refused, match=r"cannot have 2 workers.*'b'.*their state does not go along"):
        rebalanced(a, cluster, s, workers=2)


def test_rebalance_to_fewer_workers() -> None:
    s, cluster = spec(workers=3, a=(6, 6, False)), nodes(n1=2, n2=2)
    a = place(Demand(s, 3), cluster)
    b = rebalanced(a, cluster, s, workers=2)
    assert sorted(len(x) for x in shape(b).values()) == [3, 3] and set(b.workers) < set(a.workers)
    stateful = spec(workers=3, a=(6, 6, True))
    with pytest.raises(Refused, match=r"cannot shrink to 2 workers: .* hold tasks of 'a'"):
        rebalanced(a, cluster, stateful, workers=2)


def test_spreading_moves_workers_without_state_to_nodes_that_came_later() -> None:
    s = spec(workers=3, a=(6, 6, False))
    a = place(Demand(s, 3), nodes(n1=3))
    spread = Demand(s, 3, rebalance=True, spread=True)
    b = place(spread, nodes(n1=3, n2=3), a)
    assert sorted(len([w for w in b.workers if f"@{n}/" in w]) for n in ("n1", "n2")) == [1, 2]
    assert place(spread, nodes(n1=3, n2=3), b) is b
    stateful = spec(workers=3, a=(6, 6, True))
    a = place(Demand(stateful, 3), nodes(n1=3))
    assert place(Demand(stateful, 3, rebalance=True, spread=True), nodes(n1=3, n2=3), a) is a


@pytest.mark.parametrize("slot", [0, 1])
def test_a_worker_that_a_new_number_of_executors_empties_is_used_again(slot: int) -> None:
    """Its process lives, and some of the tasks are in it: none of them goes to a third worker."""
    s = spec(workers=2, numbers=(1, 1, False), count=(4, 2, True))
    a, b = WorkerId("t@n1/0"), WorkerId(f"t@n2/{slot}")
    now = Assignment(
        TopologyName("t"),
        Epoch(1),
        {a: WorkerSlot(NodeId("n1"), 0), b: WorkerSlot(NodeId("n2"), slot)},
        (
            (ExecutorId(ComponentId("numbers"), TaskId(1), TaskId(1)), a),
            (ExecutorId(ComponentId("count"), TaskId(2), TaskId(3)), a),
            (ExecutorId(ComponentId("count"), TaskId(4), TaskId(5)), b),
        ),
    )
    demand = Demand(s, 2, {ComponentId("count"): 1}, rebalance=True, movable=True)
    assert shape(place(demand, nodes(n1=2, n2=2), now)) == {a: ["numbers[1-1]"], b: ["count[2-5]"]}


def test_rebalance_refuses_workers_that_have_no_slot_or_no_executor() -> None:
    s, cluster = spec(workers=1, a=(4, 4, False)), nodes(n1=2)
    a = place(Demand(s, 1), cluster)
    with pytest.raises(Refused, match="there are slots for 2"):
        rebalanced(a, cluster, s, workers=3)
    with pytest.raises(Refused, match=r"is to have 4 executors \(a=4\) and cannot run in 5 workers"):
        rebalanced(a, cluster, s, workers=5)


def test_split_tasks_is_contiguous_and_even() -> None:
    assert [str(e) for e in split_tasks(ComponentId("c"), range(3, 10), 3)] == ["c[3-5]", "c[6-7]", "c[8-9]"]


def test_regroup_gives_the_larger_runs_more_executors() -> None:
    places = {TaskId(t): ("x" if t <= 6 else "y") for t in range(1, 9)}
    component = ComponentSpec(ComponentId("c"), "bolt", 8, 2, stateful=True)
    new = regroup(component, range(1, 9), places, 4)  # type: ignore[arg-type]
    assert [(str(e), w) for e, w in new] == [
        ("c[1-2]", "x"),
        ("c[3-4]", "x"),
        ("c[5-6]", "x"),
        ("c[7-8]", "y"),
    ]
    assert len(runs(range(1, 9), places)) == 2  # type: ignore[arg-type]


def test_nodes_sort_as_people_count() -> None:
    assert sorted(["node-10", "node-2", "b", "node-1"], key=natural) == ["b", "node-1", "node-2", "node-10"]


def test_a_node_that_is_expected_back_keeps_what_it_has_and_gets_nothing() -> None:
    demand = Demand(spec(workers=2, a=(4, 4, False)), 2)
    a = place(demand, nodes(n1=1, n2=1))
    absent = NodeSlots(NodeId("n1"), 1, absent=True)
    assert place(demand, ClusterView((absent, NodeSlots(NodeId("n2"), 1))), a) is a
    assert list(place(Demand(spec("y", a=(1, 1, False)), 1), ClusterView((absent,))).workers) == []


def test_levelling_looks_at_each_executor_a_few_times_not_once_for_each_that_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 4,000 executors it took half a minute, in which Nimbus decided nothing else."""
    asked, pinned = [0], Demand.pinned

    def counting(self: Demand, executor: ExecutorId) -> bool:
        asked[0] += 1
        return pinned(self, executor)

    monkeypatch.setattr(Demand, "pinned", counting)
    s, cluster = spec(a=(200, 200, False), b=(200, 200, True)), nodes(n1=10, n2=10, n3=10, n4=10)
    few = place(Demand(s, 4, movable=True), cluster)
    asked[0] = 0
    many = place(Demand(s, 40, movable=True, rebalance=True), cluster, few)
    assert {len(executors) for executors in shape(many).values()} == {10} and len(many.workers) == 40
    assert asked[0] < 10 * len(many.executors)
