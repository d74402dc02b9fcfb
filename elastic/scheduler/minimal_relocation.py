"""Placement after a scaling decision: as few tasks as possible leave their worker. Elastic Storm (2016), section IV.C.

A component's tasks are divided anew into ranges whose sizes differ by at most one. An executor whose range stays, stays; every other one
goes to the worker where, all in all, fewest tasks have to move, as long as capacities allow it. A worker can use one core only
(the interpreter lock), so what computes is spread over processes as it grows, and what waits stays together: nobody has to say which is
which. How it was read: docs/schedulers.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from elastic.errors import Refused
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId, worker_id
from elastic.model.loadview import ExecutorKey, LoadView, regrouped
from elastic.model.split import split_tasks
from elastic.model.words import counted
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Reason, homes
from elastic.scheduler.instance import assemble, cores_of
from elastic.scheduler.round_robin import natural
from elastic.scheduler.search import BUDGET, MILLION, Cost, Item, Seat, Solution, micro, search
from elastic.scheduler.tasks import regroup

ARRANGEMENTS = 64
"""Ways of dividing tasks that are all tried; of more, the one that looks best without capacities is taken."""
STATES = 20_000
"""How many states the choice among more arrangements may have; beyond it, larger ranges come first."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a placement has to keep to.

    Attributes:
        capacity: Share of a node's, and of a worker's, cores that may be given away.
        worker_cores: Cores that a worker can use; 0: no limit.
        measure: "cpu" or "busy".
        workers_per_node: Workers that a topology may have on a node; 0: as many as it has cores.
    """

    capacity: float = 0.9
    worker_cores: float = 1.0
    measure: str = "cpu"
    workers_per_node: int = 0


def relocate(
    demand: Demand,
    cluster: ClusterView,
    load: LoadView,
    places: Mapping[TopologyName, Assignment],
    limits: Limits,
) -> tuple[Assignment, list[Reason]]:
    """Give each component the number of executors that is wanted.

    Args:
        places: All assignments, this topology's among them.

    Returns:
        The new assignment, and what was done; the present one and nothing when all numbers are right already. Executors that found no
        worker are in `unassigned`.

    Raises:
        InvalidParallelism: More executors than tasks, or fewer than one.
    """
    name, current = demand.spec.name, places[demand.spec.name]
    wanted = {c.id: demand.executors.get(c.id, c.executors) for c in demand.spec.components}
    asked = _changing(current, wanted)
    if not asked:
        return current, []
    absent = {n.id for n in cluster.nodes if n.absent}
    for worker, slot in sorted(current.workers.items()):
        if slot.node in absent:
            text = (
                f"{name} keeps its executors until node {slot.node} is back or given up: {worker} is there."
            )
            return current, [Reason("postponed", text, name)]
    try:
        start = _divide_pinned(demand, current)
    except Refused as error:
        return current, [Reason("postponed", f"{error.message}.", name, warning=True)]
    if start is not current:
        load = regrouped(load, name, [*homes(start), *start.unassigned])
        places = {**places, name: start}
    changing = list(_changing(start, wanted))
    ground = _Ground(name, cluster, load, places, limits, set(changing))
    options = [_arrangements(c, demand.spec.tasks_of(c), wanted[c], ground.where) for c in changing]
    complete = (
        math.prod(math.comb(wanted[c], len(demand.spec.tasks_of(c)) % wanted[c]) for c in changing)
        <= ARRANGEMENTS
    )
    ways: Iterable[Sequence[tuple[ExecutorId, ...]]] = product(*options)
    if not complete:
        ways = [[_best(c, demand.spec.tasks_of(c), wanted[c], ground.where) for c in changing]]
    best: _Plan | None = None
    budget = BUDGET
    for way in sorted((ground.plan([e for part in way for e in part]) for way in ways), key=_Plan.bound):
        if best is None or best.solution is None or way.bound() < best.solution.cost:
            budget = way.solve(best, budget)
            complete = complete and way.complete
            if way.solution is not None or best is None:
                best = way
    assert best is not None
    new = _assembled(start, current, set(changing), best)
    return new, _reasons(new, current, asked, best, complete)


def _changing(current: Assignment, wanted: Mapping[ComponentId, int]) -> dict[ComponentId, tuple[int, int]]:
    """The components whose number of executors is not what is wanted: (how many they have, how many are wanted)."""
    have = Counter(e.component for e in [*homes(current), *current.unassigned])
    return {c: (have[c], wanted[c]) for c in wanted if wanted[c] != have[c]}


def _divide_pinned(demand: Demand, current: Assignment) -> Assignment:
    """The assignment with the components divided anew whose state has to stay where it is: no task leaves its worker.

    Raises:
        Refused: That cannot be done.
    """
    every: dict[ExecutorId, WorkerId | None] = {**dict.fromkeys(current.unassigned), **homes(current)}
    for component in demand.spec.components:
        old = {e: w for e, w in every.items() if e.component == component.id}
        wanted = demand.executors.get(component.id, component.executors)
        if len(old) == wanted or not any(demand.pinned(e) for e, w in old.items() if w is not None):
            continue
        where = {TaskId(t): w for e, w in old.items() if w is not None for t in e.tasks()}
        new = regroup(component, demand.spec.tasks_of(component.id), where, wanted)
        every = {e: w for e, w in every.items() if e not in old} | dict(new)
    places = {e: current.workers[w] for e, w in every.items() if w is not None}
    return assemble(current.topology, places, [e for e, w in every.items() if w is None], current)


class _Plan:
    """One way of dividing the tasks.

    Attributes:
        kept: Executors that exist already, with their workers.
        items: The others.
        excess: By how many cores those that are kept exceed capacities.
    """

    def __init__(self, ground: _Ground, executors: Sequence[ExecutorId]) -> None:
        self.ground = ground
        self.kept = {e: ground.home[e] for e in executors if e in ground.home}
        self.executors = [e for e in executors if e not in self.kept]
        self.room = dict(ground.node_room)
        for executor, worker in self.kept.items():
            self.room[ground.mine[worker].node] -= ground.load(executor)
        self.seats = ground.seats(len(self.executors), self.kept, self.room)
        self.excess = math.fsum(max(0.0, -r) for r in self.room.values())
        self.excess += math.fsum(max(0.0, s.load - s.room) for s in self.seats if s.count > 1)
        self.items = [ground.item(e, self.seats) for e in self.executors]
        self.solution: Solution | None = None
        self.complete = True

    def bound(self) -> Cost:
        """No solution costs less."""
        return micro(self.excess) / MILLION, sum(min(item.costs, default=0) for item in self.items)

    def solve(self, best: _Plan | None, budget: int) -> int:
        """Find seats that cost less than the best so far; returns what is left of the budget."""
        limit = None if best is None or best.solution is None else best.solution.cost
        found = search(self.items, self.seats, self.room, limit, self.excess, budget)
        self.solution, self.complete, left = found
        return left


class _Ground:
    """What does not depend on how the tasks are divided.

    Attributes:
        where: Each task's worker, as far as that worker can stay.
        home: The executors of changing components in such workers.
        node_room: Cores left on each node, without the executors of the changing components.
    """

    def __init__(
        self,
        name: TopologyName,
        cluster: ClusterView,
        load: LoadView,
        places: Mapping[TopologyName, Assignment],
        limits: Limits,
        changing: set[ComponentId],
    ) -> None:
        self.name, self.limits = name, limits
        self.nodes = {n.id: n for n in sorted(cluster.nodes, key=lambda n: natural(n.id)) if n.open}
        self.cores = {n: load.nodes[n].cores if n in load.nodes else math.inf for n in self.nodes}
        self.node_room = {n: c * limits.capacity for n, c in self.cores.items()}
        self.worker_room = limits.worker_cores * limits.capacity if limits.worker_cores else math.inf
        self.mine = {
            w: s
            for w, s in places[name].workers.items()
            if s.node in self.nodes and s.slot < self.nodes[s.node].slots
        }
        self.workers: dict[WorkerId, list[float]] = {w: [] for w in self.mine}
        self.where: dict[TaskId, WorkerId] = {}
        self.had: dict[TaskId, NodeId] = {}
        self.home: dict[ExecutorId, WorkerId] = {}
        self.each: dict[TaskId, float] = {}
        taken = {(s.node, s.slot) for a in places.values() for s in a.workers.values()}
        self.free = {n.id: [i for i in range(n.slots) if (n.id, i) not in taken] for n in self.nodes.values()}
        for other, assignment in places.items():
            for executor, worker in assignment.executors:
                node = assignment.workers[worker].node
                measured = load.executors.get(ExecutorKey(other, executor))
                cores = 0.0 if measured is None else max(0.0, getattr(measured, limits.measure))
                if other == name and executor.component in changing:
                    self._loosen(executor, worker, node, cores)
                    continue
                if node in self.node_room:
                    self.node_room[node] -= cores
                if other == name and worker in self.mine:
                    self.workers[worker].append(cores)

    def _loosen(self, executor: ExecutorId, worker: WorkerId, node: NodeId, cores: float) -> None:
        for task in map(TaskId, executor.tasks()):
            self.each[task] = cores / len(executor.tasks())
            self.had[task] = node
            if worker in self.mine:
                self.where[task] = worker
        if worker in self.mine:
            self.home[executor] = worker

    def load(self, executor: ExecutorId) -> float:
        """Cores that it will use."""
        return math.fsum(self.each.get(TaskId(t), 0.0) for t in executor.tasks())

    def plan(self, executors: Sequence[ExecutorId]) -> _Plan:
        """What has to be solved for this division."""
        return _Plan(self, executors)

    def seats(
        self, movers: int, kept: Mapping[ExecutorId, WorkerId], room: Mapping[NodeId, float]
    ) -> list[Seat]:
        """The workers that executors can go to: those that exist, and as many new ones as could be needed."""
        loads = {w: list(ls) for w, ls in self.workers.items()}
        for executor, worker in kept.items():
            loads[worker].append(self.load(executor))
        result = [
            Seat(self.mine[w].node, self.mine[w].slot, sum(loads[w]), len(loads[w]), self.worker_room)
            for w in sorted(self.mine, key=natural)
        ]
        have = Counter(s.node for s in self.mine.values())
        ranked = sorted(
            (n for n in self.nodes if self.free[n]), key=lambda n: (-room[n], n not in have, natural(n))
        )
        chosen = [n for n in ranked if n in have] + [n for n in ranked if n not in have][:movers]
        for node in chosen:
            most = self.limits.workers_per_node or cores_of(self.cores[node])
            for i, slot in enumerate(self.free[node][: max(0, min(movers, most - have[node]))]):
                before = len(result) - 1 if i else None
                result.append(Seat(node, slot, 0.0, 0, self.worker_room, fresh=True, after=before))
        return result

    def item(self, executor: ExecutorId, seats: Sequence[Seat]) -> Item:
        """An executor, with what it costs to put it into each seat: tasks that leave their worker count first, then those that
        leave their node, then new workers."""
        here = Counter(self.where[TaskId(t)] for t in executor.tasks() if TaskId(t) in self.where)
        near = Counter(self.had[TaskId(t)] for t in executor.tasks() if TaskId(t) in self.had)
        placed = sum(near.values())
        unit = 2 * (len(self.had) + len(self.each)) + 2
        costs = []
        for seat in seats:
            worker = worker_id(self.name, seat.node, seat.slot)
            moving = placed - (0 if seat.fresh else here[worker])
            costs.append((moving * unit + placed - near[seat.node]) * unit + seat.fresh)
        return Item(self.load(executor), tuple(costs))


# --- ranges


def _sizes(tasks: int, executors: int) -> tuple[int, int]:
    return divmod(tasks, executors)


def _arrangements(
    component: ComponentId,
    tasks: range,
    executors: int,
    where: Mapping[TaskId, WorkerId],
) -> list[tuple[ExecutorId, ...]]:
    """The ways of dividing tasks into ranges whose sizes differ by one at most; just one when there are too many."""
    usual = tuple(split_tasks(component, tasks, executors))
    size, larger = _sizes(len(tasks), executors)
    if math.comb(executors, larger) > ARRANGEMENTS:
        return [_best(component, tasks, executors, where)]
    result = []
    for big in combinations(range(executors), larger):
        bigger, first, way = set(big), tasks.start, []
        for i in range(executors):
            last = first + size - (0 if i in bigger else 1)
            way.append(ExecutorId(component, TaskId(first), TaskId(last)))
            first = last + 1
        result.append(tuple(way))
    return sorted(result, key=lambda way: way != usual)


def _best(
    component: ComponentId, tasks: range, executors: int, where: Mapping[TaskId, WorkerId]
) -> tuple[ExecutorId, ...]:
    """The division with fewest tasks outside their range's most frequent worker."""
    size, larger = _sizes(len(tasks), executors)
    if not larger or executors * (larger + 1) > STATES:
        return tuple(split_tasks(component, tasks, executors))

    def strays(first: int, count: int) -> int:
        here = Counter(
            where[TaskId(t)] for t in range(first, min(first + count, tasks.stop)) if TaskId(t) in where
        )
        return sum(here.values()) - max(here.values(), default=0)

    # cost[j]: the fewest strays of the first i ranges, j of them larger; made[i][j]: whether the last of them is.
    cost: list[float] = [0.0] + [math.inf] * larger
    made: list[list[bool]] = []
    for i in range(executors):
        new, how = [math.inf] * (larger + 1), [False] * (larger + 1)
        for j in range(min(i, larger) + 1):
            if math.isinf(cost[j]):
                continue
            first = tasks.start + i * size + j
            if (c := cost[j] + strays(first, size)) < new[j]:
                new[j], how[j] = c, False
            if j < larger and (c := cost[j] + strays(first, size + 1)) < new[j + 1]:
                new[j + 1], how[j + 1] = c, True
        cost = new
        made.append(how)
    sizes, j = [], larger
    for how in reversed(made):
        sizes.append(size + how[j])
        j -= how[j]
    result, first = [], tasks.start
    for count in reversed(sizes):
        result.append(ExecutorId(component, TaskId(first), TaskId(first + count - 1)))
        first += count
    return tuple(result)


# --- the answer


def _assembled(start: Assignment, current: Assignment, changing: set[ComponentId], plan: _Plan) -> Assignment:
    where = {e: start.workers[w] for e, w in start.executors if e.component not in changing}
    where.update((e, plan.ground.mine[w]) for e, w in plan.kept.items())
    waiting = [e for e in start.unassigned if e.component not in changing]
    if plan.solution is None:
        waiting += plan.executors
    else:
        for executor, seat in zip(plan.executors, plan.solution.seats, strict=True):
            where[executor] = WorkerSlot(plan.seats[seat].node, plan.seats[seat].slot)
    return assemble(current.topology, where, waiting, current)


def _reasons(
    new: Assignment,
    old: Assignment,
    asked: Mapping[ComponentId, tuple[int, int]],
    plan: _Plan,
    complete: bool,
) -> list[Reason]:
    name, solution = new.topology, plan.solution
    was, now = old.place_of(), new.place_of()
    moved = sum(now.get(t) != w for t, w in was.items())
    fresh = len(set(new.workers) - set(old.workers))
    numbers = ", ".join(f"{c} {have} -> {wanted}" for c, (have, wanted) in asked.items())
    proof = "the fewest possible" if complete else "the fewest found"
    reasons = [
        Reason(
            "relocated",
            f"Executors of {name}: {numbers}; {moved} of {len(was)} tasks leave their worker ({proof}), "
            f"{counted(fresh, 'new worker')}.",
            name,
            details={"moved": moved, "tasks": len(was), "new_workers": fresh},
        )
    ]
    if solution is not None and solution.cost[0] > 0:
        reasons.append(
            Reason(
                "resources-lack",
                f"Executors of {name} exceed the capacity of their nodes or workers by {solution.cost[0]:.2f} cores: "
                "there is no better place. Add nodes or slots.",
                name,
                warning=True,
                details={"excess": solution.cost[0]},
            )
        )
    return reasons
