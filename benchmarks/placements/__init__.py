"""Placement problems, small ones with their best answers and large ones, for the benchmark `schedulers` and for tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, NodeId, TaskId, TopologyName, WorkerId, worker_id
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Decision
from elastic.scheduler.registry import Choice
from elastic.scheduler.round_robin import RoundRobinScheduler


@dataclass(frozen=True)
class Case:
    """A question for a scheduler."""

    demands: tuple[Demand, ...]
    cluster: ClusterView
    load: LoadView
    current: Mapping[TopologyName, Assignment] = field(default_factory=dict)

    def ask(self, choice: Choice) -> Decision:
        """The scheduler's answer."""
        return choice.decide(self.demands, self.cluster, self.load, self.current)

    def after(self, decision: Decision) -> Case:
        """The question of the next period, when the answer has been carried out and the load is as before."""
        return replace(self, current={**self.current, **decision.assignments})

    def cut(self) -> float:
        """Tuples per second between nodes."""
        where = node_of(self.current)
        return math.fsum(t for (a, b), t in self.load.traffic.items() if where.get(a) != where.get(b))

    @property
    def traffic(self) -> float:
        """Tuples per second between executors."""
        return math.fsum(self.load.traffic.values())


def node_of(assignments: Mapping[TopologyName, Assignment]) -> dict[ExecutorKey, NodeId]:
    """Each assigned executor's node."""
    return {ExecutorKey(n, e): a.workers[w].node for n, a in assignments.items() for e, w in a.executors}


def spec(name: str, components: Mapping[str, tuple[int, int]], workers: int = 1) -> TopologySpec:
    """A topology of bolts: component -> (tasks, executors)."""
    parts = tuple(ComponentSpec(ComponentId(c), "bolt", t, e) for c, (t, e) in components.items())
    return TopologySpec(TopologyName(name), parts, workers=workers)


def executor(component: str, first: int, last: int | None = None) -> ExecutorId:
    """An executor, of one task when `last` is not given."""
    return ExecutorId(ComponentId(component), TaskId(first), TaskId(first if last is None else last))


def assignment(topology: str, places: Mapping[ExecutorId, tuple[str, int]], epoch: int = 1) -> Assignment:
    """An assignment: executor -> (node, slot)."""
    name = TopologyName(topology)
    slots = {e: WorkerSlot(NodeId(n), s) for e, (n, s) in places.items()}
    workers: dict[WorkerId, WorkerSlot] = {worker_id(name, s.node, s.slot): s for s in slots.values()}
    executors = tuple(
        (e, worker_id(name, slots[e].node, slots[e].slot)) for e in sorted(slots, key=lambda e: e.first)
    )
    return Assignment(name, Epoch(epoch), workers, executors)


def cluster(nodes: int, slots: int = 4, cores: float = 4.0) -> tuple[ClusterView, dict[NodeId, NodeLoad]]:
    """Nodes that are all alike: n1, n2, ..."""
    names = [NodeId(f"n{i}") for i in range(1, nodes + 1)]
    return ClusterView(tuple(NodeSlots(n, slots) for n in names)), {n: NodeLoad(cores) for n in names}


def chain(
    parts: Sequence[int],
    nodes: int,
    *,
    rate: float = 1000.0,
    skew: int | None = None,
    cpu: float = 0.1,
    slots: int = 4,
    cores: float = 4.0,
    name: str = "chain",
) -> Case:
    """A chain of components with one task per executor, as Storm's even scheduler places it with one worker a node.

    Args:
        parts: Executors of each component.
        rate: Tuples per second from each component to the next.
        skew: None: the same for every pair (shuffle grouping). A seed: uneven shares, as keys give.
    """
    random = Random(skew)
    view, capacities = cluster(nodes, slots, cores)
    topology = spec(name, {f"c{i}": (n, n) for i, n in enumerate(parts)}, workers=nodes)
    demand = Demand(topology, min(nodes, sum(parts)))
    current = RoundRobinScheduler().schedule([demand], view, {})
    keys: dict[str, list[ExecutorKey]] = {}
    for e, _ in current[topology.name].executors:
        keys.setdefault(e.component, []).append(ExecutorKey(topology.name, e))
    traffic: dict[tuple[ExecutorKey, ExecutorKey], float] = {}
    for here, there in pairwise(topology.components):
        pairs = [(a, b) for a in keys[here.id] for b in keys[there.id]]
        weights = [1.0 if skew is None else random.random() ** 3 + 0.01 for _ in pairs]
        traffic.update((pair, rate * w / sum(weights)) for pair, w in zip(pairs, weights, strict=True))
    loads = {k: SmoothedLoad(cpu=cpu, busy=cpu, samples=1) for ks in keys.values() for k in ks}
    return Case((demand,), view, LoadView(loads, traffic, capacities), current)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways of writing a number as a sum of that many positive numbers, order counted."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield first, *rest


def small_chains(most: int = 8, nodes: Sequence[int] = (2, 3)) -> Iterator[Case]:
    """Every chain of two to four components with up to `most` executors, on two and three nodes, with even and uneven traffic."""
    for total in range(2, most + 1):
        for parts in range(2, min(4, total) + 1):
            for composition in compositions(total, parts):
                for n in nodes:
                    yield chain(composition, n)
                    yield chain(composition, n, skew=hash(composition) & 0xFFFF)


def best_cut(case: Case, allowed: Callable[[Sequence[int], Sequence[float]], bool]) -> float:
    """The least traffic between nodes, by trying everything. The nodes have to be alike.

    Args:
        allowed: Whether nodes may have these (executors, cores); asked for complete placements.
    """
    keys = sorted(case.load.executors)
    index = {k: i for i, k in enumerate(keys)}
    earlier: list[list[tuple[int, float]]] = [[] for _ in keys]
    for (a, b), tuples in case.load.traffic.items():
        i, j = sorted((index[a], index[b]))
        earlier[j].append((i, tuples))
    nodes = len(case.cluster.nodes)
    place = [0] * len(keys)
    count, cores = [0] * nodes, [0.0] * nodes
    best = math.inf

    def descend(i: int, used: int, cut: float) -> None:
        nonlocal best
        if cut >= best:
            return
        if i == len(keys):
            if allowed(count, cores):
                best = cut
            return
        load = case.load.executors[keys[i]].cpu
        for node in range(min(used + 1, nodes)):
            place[i] = node
            count[node] += 1
            cores[node] += load
            descend(i + 1, max(used, node + 1), cut + sum(t for j, t in earlier[i] if place[j] != node))
            count[node] -= 1
            cores[node] -= load

    descend(0, 0, 0.0)
    return best


def even_enough(executors: int, nodes: int, gamma: float) -> Callable[[Sequence[int], Sequence[float]], bool]:
    """T-Storm's constraint 3, as docs/schedulers.md reads it."""
    limit = math.floor(gamma * executors / nodes + 1e-9)
    spare = max(0, executors - limit * nodes)

    def allowed(count: Sequence[int], cores: Sequence[float]) -> bool:
        return max(count) <= limit + (spare > 0) and sum(c > limit for c in count) <= spare

    return allowed


def large(
    executors: int = 10_000, nodes: int = 1_000, pairs: int = 100_000, *, seed: int = 1, topologies: int = 20
) -> Case:
    """Chains of five components on many nodes, each executor exchanging tuples with some of the next component's.

    The executors use half of what the nodes have, unevenly.
    """
    random = Random(seed)
    view, capacities = cluster(nodes, slots=8)
    each, width = executors // topologies, 5
    demands = []
    for t in range(topologies):
        parts = {f"c{c}": (each // width, each // width) for c in range(width)}
        demands.append(Demand(spec(f"t{t}", parts), max(1, nodes * 2 // topologies)))
    current = RoundRobinScheduler().schedule(demands, view, {})
    loads: dict[ExecutorKey, SmoothedLoad] = {}
    traffic: dict[tuple[ExecutorKey, ExecutorKey], float] = {}
    fan = math.ceil(pairs / (executors * (width - 1) / width))
    for name, a in current.items():
        keys: dict[ComponentId, list[ExecutorKey]] = {}
        for e, _ in a.executors:
            key = ExecutorKey(name, e)
            keys.setdefault(e.component, []).append(key)
            loads[key] = SmoothedLoad(cpu=random.uniform(0.05, 0.35), samples=1)
        columns = list(keys.values())
        for here, there in pairwise(columns):
            for k in here:
                for other in random.sample(there, min(fan, len(there))):
                    traffic[k, other] = random.uniform(10, 1000)
    return Case(tuple(demands), view, LoadView(loads, traffic, capacities), current)
