"""Where executors go in a simulation: a plain placer that keeps tasks where they are as far as balance allows."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from elastic.elasticity.infrastructure import Node
from elastic.elasticity.kinds import FULL_PROCESS
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, TaskId, WorkerId, worker_id
from elastic.model.loadview import LoadView, by_component
from elastic.model.split import split_tasks
from elastic.model.topology import TopologySpec
from elastic.scheduler.base import Demand

Place = Callable[[Demand, Assignment, Sequence[Node], LoadView], Assignment]
"""(what the topology wants, assignment in force, nodes that are there, load) -> assignment."""


def place(demand: Demand, current: Assignment, nodes: Sequence[Node], view: LoadView) -> Assignment:
    """Every component's executors evenly over the workers, the largest first; each where most of its tasks are, if there is room."""
    spec, executors = demand.spec, demand.executors
    chosen = _workers(spec, current, demand.workers, nodes)
    if not chosen:
        waiting = tuple(e for c in spec.components for e in _executors(spec, c.id, executors))
        return Assignment(spec.name, Epoch(current.epoch + 1), {}, (), waiting)
    homes = current.place_of()
    load: dict[WorkerId, float] = dict.fromkeys(chosen, 0.0)
    placed: list[tuple[ExecutorId, WorkerId]] = []
    cpu = {c: sum(x.cpu for x in of.values()) for c, of in by_component(view, spec.name).items()}
    ordered = sorted(spec.components, key=lambda c: -cpu.get(c.id, 0.0) / executors[c.id])
    for component in ordered:
        parts = _executors(spec, component.id, executors)
        fair, use = -(-len(parts) // len(chosen)), cpu.get(component.id, 0.0) / len(parts)
        here: Counter[WorkerId] = Counter()
        queue = [(0, load[w], w) for w in chosen]
        heapq.heapify(queue)
        for executor in parts:
            owners = Counter(homes.get(TaskId(t)) for t in executor.tasks())
            owning = [
                w
                for w in owners
                if w is not None and w in chosen and here[w] < fair and load[w] + use <= FULL_PROCESS
            ]
            best = min(owning, key=lambda w: (-owners[w], w)) if owning else _emptiest(queue, here, load)
            here[best] += 1
            load[best] += use
            heapq.heappush(queue, (here[best], load[best], best))
            placed.append((executor, best))
    return Assignment(spec.name, Epoch(current.epoch + 1), chosen, tuple(placed))


def _emptiest(
    queue: list[tuple[int, float, WorkerId]], here: Mapping[WorkerId, int], load: Mapping[WorkerId, float]
) -> WorkerId:
    """The worker with the fewest; entries that are not true any more are passed over."""
    while True:
        few, used, worker = heapq.heappop(queue)
        if (few, used) == (here[worker], load[worker]):
            return worker


def _executors(
    spec: TopologySpec, component: ComponentId, numbers: Mapping[ComponentId, int]
) -> list[ExecutorId]:
    return split_tasks(component, spec.tasks_of(component), numbers[component])


def _workers(
    spec: TopologySpec, current: Assignment, wanted: int, nodes: Sequence[Node]
) -> dict[WorkerId, WorkerSlot]:
    """The workers of today that can stay, the fullest first, and new ones on the emptiest nodes."""
    open = {n.id: n for n in nodes if n.alive and not n.draining}
    stay = [w for w, slot in current.workers.items() if slot.node in open]
    full = Counter(w for _, w in current.executors)
    stay.sort(key=lambda w: (-full[w], w))
    chosen = {w: current.workers[w] for w in stay[:wanted]}
    taken = set(chosen.values())
    others = Counter(n.id for n in nodes for _ in range(n.used))
    for slot in current.workers.values():
        others[slot.node] -= 1
    used = Counter(slot.node for slot in chosen.values())
    queue = [(used[n.id], n.id) for n in open.values()]
    heapq.heapify(queue)
    while len(chosen) < wanted and queue:
        number, id = heapq.heappop(queue)
        node = open[id]
        if number + max(0, others[id]) >= node.slots:
            continue
        slot = next(s for i in range(node.slots) if (s := WorkerSlot(id, i)) not in taken)
        taken.add(slot)
        chosen[worker_id(spec.name, id, slot.slot)] = slot
        heapq.heappush(queue, (number + 1, id))
    return dict(sorted(chosen.items()))
