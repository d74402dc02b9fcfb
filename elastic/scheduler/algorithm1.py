"""Algorithm 1 of T-Storm: T-Storm (2014), section IV.C. How it was read: docs/schedulers.md.

Executors in descending order of their traffic each go to the slot that adds least traffic between nodes, among the slots where
(1) the topology has no other worker on the node, (2) the node's capacity is not exceeded, and (3) the node has at most gamma times the
mean number of executors. Adding least traffic is the same as having most of it on the node already, so only the nodes of an executor's
neighbours have to be looked at: that is what makes ten thousand executors on a thousand nodes quick.

Where several nodes add as little, the paper leaves it open. Here it is the emptiest of as few nodes as can hold everything.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from elastic.model.ids import TopologyName
from elastic.model.parameters import parameter
from elastic.scheduler.instance import MEASURES, Home, Instance, cores_of
from elastic.scheduler.labels import Group

EPSILON = 1e-9
TIE = 0.05
"""Traffic with two nodes that differs by less than this share is the same: what is measured is not more exact."""


@dataclass(frozen=True, slots=True)
class TStormParams:
    """What can be set."""

    gamma: float = parameter(
        1.0,
        minimum=1.0,
        help="Consolidation factor: a node gets at most this many times the mean number of executors per node.",
    )
    capacity: float = parameter(
        0.9,
        minimum=0.01,
        maximum=1.0,
        help="The share of a node's, and of a worker's, cores that may be given away.",
    )
    workers_per_node: int = parameter(
        1,
        minimum=0,
        help="Workers that a topology may have on one node; the paper has 1. 0: as many as the node has cores.",
    )
    worker_cores: float = parameter(
        1.0,
        minimum=0.0,
        help="Cores that one worker can use: 1 because of the interpreter lock. 0: as many as there are.",
    )
    gain: float = parameter(
        0.05,
        minimum=0.0,
        maximum=1.0,
        help="The share of the traffic between nodes that a new schedule must save, if nothing else speaks for it.",
    )
    measure: str = parameter("cpu", choices=MEASURES, help="Which load of an executor counts.")


@dataclass(slots=True)
class Schedule:
    """What algorithm 1 found.

    Attributes:
        groups: Each executor's worker-to-be; None: there was no slot for it.
        strained: The executors for which no node had room, and that went where least was used.
        crowded: How many executors are on nodes that have more than gamma allows, because nothing else was left.
    """

    groups: list[Group | None]
    strained: list[int] = field(default_factory=list)
    crowded: int = 0


class Algorithm1:
    """One run.

    Args:
        instance: The problem; its executors' homes only decide ties.

    Attributes:
        usable: The nodes that executors can be placed on.
        cap: Each node's capacity (the paper's C_k), cores.
        worker_cap: A worker's, cores.
        limit: How many executors a node may have; `spare` nodes may have one more.
    """

    def __init__(self, instance: Instance, params: TStormParams) -> None:
        self.p = instance
        self.params = params
        nodes = instance.nodes
        self.usable = [k for k, n in enumerate(nodes) if n.open and n.free]
        self.placeable = frozenset(self.usable)
        self.cap = [n.cores * params.capacity for n in nodes]
        self.worker_cap = params.worker_cores * params.capacity if params.worker_cores else math.inf
        self.executors = len(instance.keys) + sum(nodes[k].count for k in self.usable)
        exact = params.gamma * self.executors / len(self.usable) if self.usable else 0.0
        if not self.executors:
            exact = 0.0  # also without a limit on how many a node may have (gamma is infinite)
        self.limit = math.floor(min(exact, self.executors) + EPSILON)
        # Of more executors than nodes times the limit (gamma near 1), the rest goes one by one to different nodes.
        self.spare = max(0, self.executors - self.limit * len(self.usable))
        self.spare -= sum(max(0, nodes[k].count - self.limit) for k in self.usable)
        self.load = [n.load for n in nodes]
        self.count = [n.count for n in nodes]
        self.slots = [len(n.free) for n in nodes]
        self.most = [params.workers_per_node or cores_of(n.cores) for n in nodes]
        self.groups: dict[tuple[TopologyName, int], list[Group]] = defaultdict(list)
        self.taken: dict[TopologyName, dict[int, float]] = {k.topology: {} for k in instance.keys}
        """By topology and node: what its roomiest worker there has, cores, once it may have no other one there. It only shrinks."""
        self.chosen: list[Group | None] = [None] * len(instance.keys)
        self.at = [-1] * len(instance.keys)
        """Each executor's node, if others may follow it there."""
        # Nodes only get fuller: where an executor found no room, none of its topology that needs as much will.
        self.barred: dict[TopologyName, float] = {}
        self.hopeless: dict[TopologyName, float] = {}
        self.all_open = False
        self.fresh = dict.fromkeys(self._by_size())
        self.opened: list[tuple[float, int]] = []
        """The nodes in use, or to be used, by how full they are: a heap with outdated entries."""
        for k in list(self.fresh)[: self._needed()]:
            self._open(k)

    def _by_size(self) -> list[int]:
        """Usable nodes in the order in which they are taken into use: those that have executors which stay, then the largest."""
        return sorted(self.usable, key=lambda k: (not self.count[k], -self.cap[k], k))

    def _needed(self) -> int:
        """As few nodes as can hold everything, were it divisible."""
        loads: dict[TopologyName, float] = defaultdict(float)
        for key, cores in zip(self.p.keys, self.p.load, strict=True):
            loads[key.topology] += cores
        total = math.fsum(loads.values())
        executors, spare, cores_left, in_workers = 0, self.spare, 0.0, 0.0
        for n, k in enumerate(self.fresh, 1):
            executors += max(0, self.limit - self.count[k]) + (spare > 0)
            spare -= 1
            cores_left += max(0.0, self.cap[k] - self.load[k])
            in_workers += min(self.most[k], self.slots[k]) * self.worker_cap
            if executors < len(self.p.keys) or cores_left < total:
                continue
            if all(cores <= in_workers for cores in loads.values()):
                return n
        return len(self.fresh)

    def _open(self, k: int) -> None:
        del self.fresh[k]
        heappush(self.opened, (self._fullness(k), k))

    def _fullness(self, k: int) -> float:
        by_count = self.count[k] / self.limit if self.limit else float(self.count[k])
        by_load = self.load[k] / self.cap[k] if self.cap[k] else math.inf
        return max(by_count, by_load)

    def run(self) -> Schedule:
        """Place every executor."""
        p = self.p
        weight = [math.fsum(r.values()) for r in p.rate]
        order = sorted(range(len(p.keys)), key=lambda i: (-weight[i], -p.load[i], i))
        result = Schedule(self.chosen)
        self._settle()
        for i in order:
            if p.pinned[i]:
                continue
            topology, cores = p.keys[i].topology, p.load[i]
            group = None
            if cores < self.barred.get(topology, math.inf):
                group = self._by_traffic(i) or self._without_traffic(i)
                if group is None:
                    self.barred[topology] = cores
            if group is None and cores < self.hopeless.get(topology, math.inf):
                group = self._crowding(i)
                if group is None:
                    self.hopeless[topology] = cores
                else:
                    result.crowded += 1
            if group is None and (group := self._straining(i)) is not None:
                result.strained.append(i)
            if group is not None:
                self._put(i, group)
        return result

    def _settle(self) -> None:
        """Who has to stay, stays."""
        fixed: dict[tuple[TopologyName, Home], Group] = {}
        for i, home in enumerate(self.p.home):
            if not self.p.pinned[i] or home is None:
                continue
            at = self.p.keys[i].topology, home
            if at not in fixed:
                have = len(self.groups.get((at[0], home[0]), ()))
                fixed[at] = Group(at[0], home[0], have, slot=home[1])
            self._put(i, fixed[at])

    def _by_traffic(self, i: int) -> Group | None:
        """On the node that it exchanges most with, or the next."""
        affinity: dict[int, float] = {}
        at, count, load = self.at, self.count, self.load
        for j, tuples in self.p.rate[i].items():
            k = at[j]
            if k >= 0:
                affinity[k] = affinity.get(k, 0.0) + tuples
        more, full = self.p.load[i] - EPSILON, self.limit + (self.spare > 0)
        left = self.taken[self.p.keys[i].topology]
        room = [
            (-a, k)
            for k, a in affinity.items()
            if count[k] < full and load[k] + more <= self.cap[k] and left.get(k, math.inf) >= more
        ]
        if not room:
            return None
        home, near = self._home_node(i), min(room)[0] * (1.0 - TIE)
        # Nodes that add about as little: as with none of its partners, the emptiest first, and where it is before others.
        alike = [(self._fullness(k), k != home, k) for a, k in room if a <= near]
        for _, _, k in sorted(alike) if len(alike) > 1 else alike:
            if (group := self._fit(i, k)) is not None:
                return group
        rest = [(a, k) for a, k in room if a > near]
        heapify(rest)
        while rest:
            if (group := self._fit(i, heappop(rest)[1])) is not None:
                return group
        return None

    def _without_traffic(self, i: int) -> Group | None:
        """Where it adds as much as anywhere: on the emptiest of the nodes in use, or on one not used yet."""
        home = self._home_node(i)
        full = self.limit + (self.spare > 0)
        drop = None if self.all_open else lambda k: self.count[k] >= full
        found = self._emptiest(lambda k: self._fit(i, k), drop)
        if found is not None:
            if home is not None and home != found.node and home not in self.fresh:
                same = self._fullness(home) <= self._fullness(found.node)
                return (self._fit(i, home) if same else None) or found
            return found
        for k in [home, *self.fresh] if home in self.fresh else list(self.fresh):
            if k is not None and (group := self._fit(i, k)) is not None:
                return group
        return None

    def _emptiest(
        self, fit: Callable[[int], Group | None], drop: Callable[[int], bool] | None = None
    ) -> Group | None:
        """The first fit among the nodes in use, the emptiest first."""
        kept, found, heap = [], None, self.opened
        while heap and found is None:
            entry = heappop(heap)
            fullness, k = entry
            if fullness != self._fullness(k) or (drop is not None and drop(k)):
                continue  # outdated: there is another entry for it; or it takes nobody any more
            kept.append(entry)
            found = fit(k)
        for entry in kept:
            heappush(heap, entry)
        return found

    def _crowding(self, i: int) -> Group | None:
        """Where capacity is left, although gamma forbids it."""
        self._open_all()
        return self._emptiest(lambda k: self._fit(i, k, crowd=True))

    def _straining(self, i: int) -> Group | None:
        """Where least is used."""
        self._open_all()
        return self._emptiest(lambda k: min(self._candidates(i, k), key=lambda g: g.load, default=None))

    def _open_all(self) -> None:
        """Every usable node counts from now on, also those that gamma had excluded."""
        if not self.all_open:
            self.all_open, self.fresh = True, {}
            self.opened = [(self._fullness(k), k) for k in self.usable]
            heapify(self.opened)

    # --- constraints

    def _admits(self, k: int) -> bool:
        """Constraint 3."""
        return self.count[k] < self.limit or (self.count[k] == self.limit and self.spare > 0)

    def _fit(self, i: int, k: int, *, crowd: bool = False) -> Group | None:
        """The best worker for it on the node, within all constraints."""
        more = self.p.load[i]
        if self.load[k] + more > self.cap[k] + EPSILON or not (crowd or self._admits(k)):
            return None
        topology = self.p.keys[i].topology
        if self.taken[topology].get(k, math.inf) < more - EPSILON:
            return None
        mine = self.groups.get((topology, k))
        if not mine:
            return self._new(i, k)
        roomy = [g for g in mine if g.load + more <= self.worker_cap + EPSILON]
        if not roomy:
            return self._new(i, k)
        if len(roomy) == 1:
            return roomy[0]
        affinity: dict[int, float] = defaultdict(float)
        for j, tuples in self.p.rate[i].items():
            group = self.chosen[j]
            if group is not None:
                affinity[id(group)] += tuples
        return max(roomy, key=lambda g: (affinity[id(g)], -g.load, -g.number))

    def _new(self, i: int, k: int) -> Group | None:
        """A worker that the topology does not have on the node yet, if it may have another."""
        topology = self.p.keys[i].topology
        have = len(self.groups.get((topology, k), ()))
        return Group(topology, k, have) if self.slots[k] > 0 and have < self.most[k] else None

    def _candidates(self, i: int, k: int) -> list[Group]:
        new = self._new(i, k)
        return [*self.groups.get((self.p.keys[i].topology, k), ()), *([] if new is None else [new])]

    def _home_node(self, i: int) -> int | None:
        home = self.p.home[i]
        return home[0] if home is not None and home[0] in self.placeable else None

    def _put(self, i: int, group: Group) -> None:
        k = group.node
        if not group.members:
            self.groups[group.topology, k].append(group)
            self.slots[k] -= 1
        group.members.append(i)
        group.load += self.p.load[i]
        mine = self.groups[group.topology, k]
        if len(mine) >= self.most[k]:
            self.taken[group.topology][k] = self.worker_cap - min(g.load for g in mine)
        self.chosen[i] = group
        self.load[k] += self.p.load[i]
        self.count[k] += 1
        if self.count[k] > self.limit:
            self.spare -= 1
        if k in self.placeable:
            self.at[i] = k
            self.fresh.pop(k, None)
            heappush(self.opened, (self._fullness(k), k))
