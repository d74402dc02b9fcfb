"""A placement problem in numbers: what algorithms compute with, made from demands, nodes, load and what runs.

Executors and nodes are indices here: the same decision with names and dataclasses in the inner loops takes ten times as long.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import Epoch, NodeId, TopologyName, worker_id
from elastic.model.loadview import ExecutorKey, LoadView
from elastic.scheduler.base import ClusterView
from elastic.scheduler.decision import same_places
from elastic.scheduler.round_robin import natural

Home = tuple[int, int]
"""A node's index and a slot."""

MEASURES = ("cpu", "busy")


@dataclass(slots=True)
class Node:
    """A living node.

    Attributes:
        cores: What it has; infinite when unknown.
        open: It may get more.
        free: Slots that nobody holds who stays where he is.
        load, count: Cores that those who stay use there, and how many executors they are.
    """

    id: NodeId
    cores: float
    open: bool
    free: list[int]
    load: float = 0.0
    count: int = 0


class Instance:
    """The problem.

    Args:
        movable: The topologies whose executors may be placed anew. All others stay, and what they use is taken.
        places: Where everything is now: of every topology, movable or not.
        measure: Which load counts: "cpu" or "busy".
        pinned: Executors of movable topologies that have to stay all the same.

    Attributes:
        keys: The movable executors, by topology and first task; the others of the lists are in this order.
        load: Cores each uses; 0 when it was not measured.
        fill: How full each one's queue is, 0 to 1.
        home: Where each is; None when it waits for a slot or its node is gone.
        rate: For each, the executors that it exchanges tuples with, and how many a second, both ways together (r_ij + r_ji).
        pinned: Those that have to stay at home.
    """

    def __init__(
        self,
        movable: Collection[TopologyName],
        cluster: ClusterView,
        load: LoadView,
        places: Mapping[TopologyName, Assignment],
        measure: str = "cpu",
        pinned: Collection[ExecutorKey] = frozenset(),
    ) -> None:
        self.places = {name: places[name] for name in sorted(places)}
        self.movable = frozenset(movable)
        self.nodes = [
            Node(
                n.id,
                load.nodes[n.id].cores if n.id in load.nodes else math.inf,
                n.open,
                list(range(n.slots)),
            )
            for n in sorted(cluster.nodes, key=lambda n: natural(n.id))
        ]
        self.node_index = {n.id: i for i, n in enumerate(self.nodes)}
        self.keys: list[ExecutorKey] = []
        self.home: list[Home | None] = []
        for name, assignment in self.places.items():
            if name in self.movable:
                self._take_movable(name, assignment)
            else:
                self._take_fixed(name, assignment, load, measure)
        loads = [load.executors.get(key) for key in self.keys]
        self.load = [0.0 if x is None else max(0.0, getattr(x, measure)) for x in loads]
        self.fill = [0.0 if x is None else x.fill for x in loads]
        self.pinned = [k in pinned and h is not None for k, h in zip(self.keys, self.home, strict=True)]
        self._pairs = self._exchanged(load)
        self.rate: list[dict[int, float]] = [{} for _ in self.keys]
        for i, j, tuples in self._pairs:
            self.rate[i][j] = self.rate[j][i] = tuples

    def _take_movable(self, name: TopologyName, assignment: Assignment) -> None:
        home: dict[ExecutorId, Home | None] = dict.fromkeys(assignment.unassigned)
        for executor, worker in assignment.executors:
            slot = assignment.workers[worker]
            node = self.node_index.get(slot.node)
            home[executor] = None if node is None else (node, slot.slot)
        for executor in sorted(home, key=lambda e: e.first):
            self.keys.append(ExecutorKey(name, executor))
            self.home.append(home[executor])

    def _take_fixed(self, name: TopologyName, assignment: Assignment, load: LoadView, measure: str) -> None:
        where = {w: self.node_index.get(s.node) for w, s in assignment.workers.items()}
        for worker, slot in assignment.workers.items():
            index = where[worker]
            if index is not None and slot.slot in self.nodes[index].free:
                self.nodes[index].free.remove(slot.slot)
        for executor, worker in assignment.executors:
            index = where[worker]
            if index is None:
                continue
            measured = load.executors.get(ExecutorKey(name, executor))
            self.nodes[index].count += 1
            self.nodes[index].load += 0.0 if measured is None else max(0.0, getattr(measured, measure))

    def _exchanged(self, load: LoadView) -> list[tuple[int, int, float]]:
        """(i, j, r_ij + r_ji), ascending: so are then the neighbours of each, and sums do not depend on the order of a mapping."""
        # A topology's tasks are numbered through: the first one names an executor, and is looked up faster than its name.
        tables: dict[TopologyName, dict[int, tuple[int, int]]] = {name: {} for name in self.movable}
        for number, (name, e) in enumerate(self.keys):
            tables[name][e.first] = number, e.last
        nobody: dict[int, tuple[int, int]] = {}
        nothing, many = (-1, -1), len(self.keys)
        sums: dict[int, float] = {}
        for ((name, e), (other, f)), tuples in load.traffic.items():
            i, last = tables.get(name, nobody).get(e.first, nothing)
            j, end = tables.get(other, nobody).get(f.first, nothing)
            if e.last != last or f.last != end or i == j or tuples <= 0.0:
                continue
            pair = i * many + j if i < j else j * many + i
            sums[pair] = sums.get(pair, 0.0) + tuples
        return [(*divmod(pair, many), tuples) for pair, tuples in sorted(sums.items())]

    # --- measures

    def cut(self, node_of: Sequence[int | None]) -> float:
        """Tuples per second between different nodes: what both algorithms minimise. Who has no node counts as apart from everybody."""
        where = [-1 - i if node is None else node for i, node in enumerate(node_of)]
        return math.fsum([t for i, j, t in self._pairs if where[i] != where[j]])

    @property
    def traffic(self) -> float:
        """Tuples per second between all executors."""
        return math.fsum([t for _, _, t in self._pairs])

    @property
    def home_nodes(self) -> list[int | None]:
        """Each executor's present node."""
        return [None if h is None else h[0] for h in self.home]

    # --- the answer

    def assignments(
        self, homes: Sequence[Home | None], current: Mapping[TopologyName, Assignment]
    ) -> dict[TopologyName, Assignment]:
        """The assignments of the movable topologies when their executors are in `homes`.

        Args:
            current: Those in force: they give the epochs, and are returned themselves where nothing changes.
        """
        placed: dict[TopologyName, list[tuple[ExecutorId, Home | None]]] = {n: [] for n in self.movable}
        for key, home in zip(self.keys, homes, strict=True):
            placed[key.topology].append((key.executor, home))
        result = {}
        for name in sorted(placed):
            where = {
                e: WorkerSlot(self.nodes[home[0]].id, home[1]) for e, home in placed[name] if home is not None
            }
            waiting = [e for e, home in placed[name] if home is None]
            result[name] = assemble(name, where, waiting, current.get(name))
        return result


def cores_of(cores: float) -> int:
    """How many workers can compute at the same time on that many cores; 1 when they are unknown."""
    return max(1, int(cores)) if math.isfinite(cores) else 1


def assemble(
    name: TopologyName,
    where: Mapping[ExecutorId, WorkerSlot],
    waiting: Iterable[ExecutorId],
    old: Assignment | None,
) -> Assignment:
    """An assignment from places; `old` itself when it says the same, otherwise with the epoch after its."""
    slots = {worker_id(name, s.node, s.slot): s for s in where.values()}
    executors = tuple(
        (e, worker_id(name, where[e].node, where[e].slot)) for e in sorted(where, key=lambda e: e.first)
    )
    new = Assignment(
        name,
        Epoch(1 if old is None else old.epoch + 1),
        {w: slots[w] for w in sorted(slots, key=lambda w: natural(w))},
        executors,
        tuple(sorted(waiting, key=lambda e: e.first)),
    )
    return old if old is not None and same_places(old, new) else new
