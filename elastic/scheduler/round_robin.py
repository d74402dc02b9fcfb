"""Storm's even scheduler: executors dealt in turn to workers, workers dealt in turn to nodes.

What runs in a valid place stays there. Only executors that have none (their node is gone, or they are new)
are dealt, and those that can leave a draining node. A rebalance may move executors. The tasks of a stateful
component keep their worker unless the demand says that state goes along (`Demand.movable`).
"""

from __future__ import annotations

import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from elastic.errors import Refused
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, NodeId, TaskId, TopologyName, WorkerId, worker_id
from elastic.model.split import split_tasks
from elastic.model.topology import ComponentSpec
from elastic.model.words import counted
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.tasks import STAYS, regroup, runs

_Slot = tuple[NodeId, int]


class RoundRobinScheduler:
    """See the module. Stateless: one object may serve everybody."""

    name = "round-robin"

    def schedule(
        self, demands: Sequence[Demand], cluster: ClusterView, current: Mapping[TopologyName, Assignment]
    ) -> dict[TopologyName, Assignment]:
        """See `Scheduler.schedule`."""
        nodes = {n.id: n for n in sorted(cluster.nodes, key=lambda n: natural(n.id))}
        asked = {d.spec.name for d in demands}
        order = [n for n in sorted(current) if n not in asked] + [
            d.spec.name for d in demands if d.spec.name in current
        ]
        taken: dict[_Slot, TopologyName] = {}
        for name in order:
            for slot in current[name].workers.values():
                node = nodes.get(slot.node)
                if node is not None and slot.slot < node.slots:
                    taken.setdefault((slot.node, slot.slot), name)
        result = {}
        for demand in demands:
            name = demand.spec.name
            result[name] = _Placing(demand, nodes, taken, current.get(name)).assignment()
            for key in [k for k, owner in taken.items() if owner == name and not demand.movable]:
                del taken[key]  # what moves away keeps its slot until it has
            for slot in result[name].workers.values():
                taken[slot.node, slot.slot] = name
        return result


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts `node-2` before `node-10`."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name))


def _first(executor: ExecutorId) -> int:
    return executor.first


class _Placing:
    """The work on one topology. `placed` is what will run where, `waiting` what has no place yet."""

    def __init__(
        self,
        demand: Demand,
        nodes: Mapping[NodeId, NodeSlots],
        taken: Mapping[_Slot, TopologyName],
        current: Assignment | None,
    ) -> None:
        self.demand = demand
        self.nodes = nodes
        self.name = demand.spec.name
        self.others = {slot for slot, owner in taken.items() if owner != self.name}
        self.owned = {slot for slot, owner in taken.items() if owner == self.name}
        self.current = current
        self.workers: dict[WorkerId, WorkerSlot] = {}
        self.placed: dict[ExecutorId, WorkerId] = {}
        self.waiting: list[ExecutorId] = []
        self.leaving: dict[ExecutorId, WorkerId] = {}
        """Can leave a draining node; stay when there is nowhere to go."""

    def assignment(self) -> Assignment:
        if self.current is None:
            for component in self.demand.spec.components:
                tasks = self.demand.spec.tasks_of(component.id)
                self.waiting += split_tasks(component.id, tasks, self._wanted(component))
        else:
            self._keep(self.current)
        if self.demand.rebalance:
            self._regroup()
            self._resize()
        else:
            self._deal(self._take_slots(self._missing_workers()))
        return self._result()

    # --- what exists

    def _keep(self, current: Assignment) -> None:
        """Sort what is assigned into what stays, what may leave and what must."""
        self.waiting += current.unassigned
        for executor, worker in current.executors:
            slot = current.workers[worker]
            if (slot.node, slot.slot) not in self.owned:
                self.waiting.append(executor)
                continue
            node = self.nodes[slot.node]
            if node.draining and node.evict:
                self.waiting.append(executor)
                continue
            self.workers[worker] = slot
            if node.draining and not self.demand.pinned(executor):
                self.leaving[executor] = worker
            else:
                self.placed[executor] = worker

    def _wanted(self, component: ComponentSpec) -> int:
        return self.demand.executors.get(component.id, component.executors)

    def _open(self, worker: WorkerId) -> bool:
        """Whether the worker may get more."""
        return self.nodes[self.workers[worker].node].open

    def _staying(self) -> set[WorkerId]:
        return set(self.placed.values())

    # --- slots

    def _free(self) -> dict[NodeId, list[int]]:
        """Slots for further workers, by node; those of workers of its own that have got empty first: their processes live."""
        busy = self._staying() | set(self.leaving.values())
        mine = {(s.node, s.slot) for w, s in self.workers.items() if w in busy}
        result = {}
        for node in self.nodes.values():
            if node.open:
                free = [
                    i
                    for i in range(node.slots)
                    if (node.id, i) not in self.others and (node.id, i) not in mine
                ]
                if free:
                    result[node.id] = sorted(free, key=lambda i, n=node.id: ((n, i) not in self.owned, i))  # type: ignore[misc]
        return result

    def _take_slots(self, count: int) -> list[WorkerId]:
        """Make up to `count` workers, on the nodes that have fewest of this topology, then where one of it has got empty, then on
        those with most free slots."""
        free = self._free()
        staying = self._staying()
        mine = Counter(slot.node for worker, slot in self.workers.items() if worker in staying)
        result = []
        while count > 0 and free:
            node = min(
                free,
                key=lambda n: (mine[n], (n, free[n][0]) not in self.owned, -len(free[n]), natural(n)),
            )
            slot = WorkerSlot(node, free[node].pop(0))
            if not free[node]:
                del free[node]
            mine[node] += 1
            worker = worker_id(self.name, node, slot.slot)
            self.workers[worker] = slot
            result.append(worker)
            count -= 1
        return result

    def _missing_workers(self) -> int:
        """How many workers are missing: as wanted, and one at least when nobody is left who may take
        anything."""
        movers = len(self.waiting) + len(self.leaving)
        staying = self._staying()
        missing = self.demand.workers - len(staying)
        if not any(self._open(w) for w in staying):
            missing = max(missing, 1)
        return max(0, min(missing, movers))

    # --- dealing

    def _deal(self, fresh: Iterable[WorkerId]) -> None:
        """Give every waiting and leaving executor to the worker that has fewest, in turn; `fresh` are
        workers without any."""
        targets = self._in_order(w for w in {*self._staying(), *fresh} if self._open(w))
        if not targets:
            self.placed.update(self.leaving)
            self.leaving = {}
            return
        total = Counter(self.placed.values())
        each: dict[ComponentId, Counter[WorkerId]] = defaultdict(Counter)
        for executor, worker in self.placed.items():
            each[executor.component][worker] += 1
        movers: dict[ComponentId, list[ExecutorId]] = defaultdict(list)
        for executor in sorted([*self.waiting, *self.leaving], key=lambda e: e.first):
            movers[executor.component].append(executor)
        for component, executors in movers.items():
            dealt: Counter[WorkerId] = Counter()
            for _ in executors:
                i = min(
                    range(len(targets)), key=lambda i: (total[targets[i]], each[component][targets[i]], i)
                )
                for counter in (total, each[component], dealt):
                    counter[targets[i]] += 1
            # Neighbours go together: later a component can be regrouped into as few executors as it has
            # separate runs.
            hands = [w for w in targets for _ in range(dealt[w])]
            self.placed.update(zip(executors, hands, strict=True))
        self.waiting, self.leaving = [], {}

    def _in_order(self, workers: Iterable[WorkerId]) -> list[WorkerId]:
        """By slot number, then node: the order of dealing goes around the nodes."""
        return sorted(workers, key=lambda w: (self.workers[w].slot, natural(self.workers[w].node)))

    # --- rebalance

    def _regroup(self) -> None:
        """Make the number of executors of each component what is wanted."""
        spec = self.demand.spec
        where = {**self.placed, **self.leaving}
        existing: dict[ComponentId, list[ExecutorId]] = defaultdict(list)
        for executor in [*where, *self.waiting]:
            existing[executor.component].append(executor)
        for component in spec.components:
            old, wanted = existing[component.id], self._wanted(component)
            if len(old) == wanted:
                continue
            tasks = spec.tasks_of(component.id)
            places = {TaskId(t): where[e] for e in old if e in where for t in e.tasks()}
            fixed = component.stateful and not self.demand.movable
            if fixed or wanted >= len(runs(tasks, places)) or not 1 <= wanted <= len(tasks):
                new = regroup(component, tasks, places, wanted)
            else:
                new = self._redeal(component.id, tasks, places, wanted)
            for executor in old:
                self.placed.pop(executor, None)
                self.leaving.pop(executor, None)
            self.waiting = [e for e in self.waiting if e.component != component.id]
            for executor, worker in new:
                if worker is None:
                    self.waiting.append(executor)
                elif self._open(worker) or self.demand.pinned(executor):
                    self.placed[executor] = worker
                else:
                    self.leaving[executor] = worker

    def _redeal(
        self, component: ComponentId, tasks: range, places: Mapping[TaskId, WorkerId], wanted: int
    ) -> list[tuple[ExecutorId, WorkerId | None]]:
        """New even ranges of a stateless component, each with the worker that has most of its tasks as far
        as that is even."""
        workers = self._in_order(set(places.values()))
        base, extra = divmod(wanted, len(workers))
        count: Counter[WorkerId] = Counter()
        result: list[tuple[ExecutorId, WorkerId | None]] = []
        for executor in split_tasks(component, tasks, wanted):
            overlap = Counter(places[TaskId(t)] for t in executor.tasks() if TaskId(t) in places)
            room = [w for w in workers if count[w] < base or (count[w] == base and extra > 0)]
            worker = min(room, key=lambda w: (-overlap[w], workers.index(w)))
            if count[worker] == base:
                extra -= 1
            count[worker] += 1
            result.append((executor, worker))
        return result

    def _resize(self) -> None:
        """Make the number of workers what is wanted, and spread evenly what may move."""
        wanted = self.demand.workers
        executors = len(self.placed) + len(self.waiting) + len(self.leaving)
        if not 1 <= wanted <= executors:
            each = ", ".join(f"{c.id}={self._wanted(c)}" for c in self.demand.spec.components)
            raise Refused(
                f"topology {self.name!r} is to have {counted(executors, 'executor')} ({each}) and cannot run in "
                f"{counted(wanted, 'worker')}",
                remedy=f"ask for 1 to {counted(executors, 'worker')}, or for more executors (`--executors COMPONENT=N`)",
            )
        holding = {w for e, w in self.placed.items() if self.demand.pinned(e)}
        if wanted < len(holding):
            raise Refused(
                f"topology {self.name!r} cannot shrink to {counted(wanted, 'worker')}: {', '.join(sorted(holding))} hold "
                f"tasks of {self._stateful_names(holding)}, and {STAYS}",
                remedy=f"ask for at least {counted(len(holding), 'worker')}",
            )
        self._close_workers(wanted, holding)
        fresh = self._take_slots(wanted - len(self._staying()))
        have = len({*self.placed.values(), *self.leaving.values()}) + len(fresh)
        if have < wanted and (self.placed or self.leaving):
            raise Refused(
                f"topology {self.name!r} cannot have {counted(wanted, 'worker')}: there are slots for {have}",
                remedy="add nodes (`elastic nodes add`), or ask for fewer workers",
            )
        self._deal(fresh)
        if self.waiting and self.placed:
            raise Refused(
                f"topology {self.name!r} cannot have {counted(wanted, 'worker')}: those that would remain are on draining nodes",
                remedy="add nodes (`elastic nodes add`)",
            )
        self._level(fresh)
        if self.demand.spread:
            self._spread()

    def _stateful_names(self, workers: Iterable[WorkerId]) -> str:
        among = set(workers)
        names = {e.component for e, w in self.placed.items() if w in among and self.demand.pinned(e)}
        return ", ".join(repr(str(n)) for n in sorted(names))

    def _close_workers(self, wanted: int, holding: set[WorkerId]) -> None:
        """Empty the workers that are too many: on the nodes that have most of them, those with fewest
        executors."""
        while len(staying := self._staying()) > wanted:
            nodes = Counter(self.workers[w].node for w in staying)
            load = Counter(self.placed.values())
            closing = min(
                (w for w in reversed(self._in_order(staying)) if w not in holding),
                key=lambda w: (-nodes[self.workers[w].node], load[w]),
            )
            for executor in [e for e, w in self.placed.items() if w == closing]:
                del self.placed[executor]
                self.waiting.append(executor)

    def _level(self, fresh: Sequence[WorkerId]) -> None:
        """Move stateless executors from workers that have more to those that have fewer, as long as they
        differ by two."""
        workers = [w for w in self._in_order({*self._staying(), *fresh}) if self._open(w)]
        total = Counter(self.placed.values())
        each = Counter((e.component, w) for e, w in self.placed.items())
        # Of those of a component in a worker the last one is the next to go: only that one is looked at. There may be thousands.
        groups: dict[WorkerId, dict[ComponentId, list[ExecutorId]]] = {w: defaultdict(list) for w in workers}
        for executor in sorted(self.placed, key=_first):
            if (w := self.placed[executor]) in groups and not self.demand.pinned(executor):
                groups[w][executor.component].append(executor)
        while workers:
            low = min(workers, key=lambda w: total[w])
            most = max((total[w] for w in workers if any(groups[w].values())), default=0)
            if most - total[low] <= 1:
                break
            _, _, best = max(
                (each[c, w] - each[c, low], group[-1].first, group[-1])
                for w in workers
                if total[w] == most
                for c, group in groups[w].items()
                if group
            )
            old, component = self.placed[best], best.component
            insort(groups[low][component], groups[old][component].pop(), key=_first)
            total.subtract((old,))
            each.subtract(((component, old),))
            total[low] += 1
            each[component, low] += 1
            self.placed[best] = low
        empty = sorted(set(fresh) - self._staying())
        if empty and self.placed:
            raise Refused(
                f"topology {self.name!r} cannot have {counted(self.demand.workers, 'worker')}: what could move there are "
                f"tasks of {self._stateful_names(self._staying())}, and {STAYS}",
                remedy="ask for fewer workers",
            )

    def _spread(self) -> None:
        """Move workers that hold no state from nodes that have two more of them than one with a free slot."""
        while free := self._free():
            staying = self._staying()
            mine = Counter(self.workers[w].node for w in staying)
            low = min(free, key=lambda n: (mine[n], -len(free[n]), natural(n)))
            holding = {w for e, w in self.placed.items() if self.demand.pinned(e)}
            movable = [
                w
                for w in self._in_order(staying - holding)
                if self._open(w) and mine[self.workers[w].node] - mine[low] > 1
            ]
            if not movable:
                return
            old = max(movable, key=lambda w: mine[self.workers[w].node])
            (new,) = self._take_slots(1)
            self.placed.update({e: new for e, w in self.placed.items() if w == old})
            del self.workers[old]

    # --- the answer

    def _result(self) -> Assignment:
        placed = {**self.placed, **self.leaving}
        used = set(placed.values())
        workers = {w: self.workers[w] for w in sorted(used, key=lambda w: natural(w))}
        executors = tuple(sorted(placed.items(), key=lambda item: item[0].first))
        unassigned = tuple(sorted(self.waiting, key=lambda e: e.first))
        old = self.current
        if old is None:
            return Assignment(self.name, Epoch(1), workers, executors, unassigned)
        # It may name workers without executors: those of moves that have not ended. They are for others to think of.
        busy = {w: old.workers[w] for _, w in old.executors}
        same = (
            busy == workers
            and set(old.executors) == set(executors)
            and set(old.unassigned) == set(unassigned)
        )
        return old if same else Assignment(self.name, Epoch(old.epoch + 1), workers, executors, unassigned)
