"""A queueing model of one topology: what each executor does in a short step of time.

An executor is a server with a queue. A tuple costs CPU, which threads of one process take turns in (one core to a process, as with
Python's lock) and processes of one node share (its cores), and waiting, which costs nobody else anything. Scarce CPU is divided max-min
fairly. A queue that is full holds up those who feed it. Within a step queues flow; what arrives by chance within it is added to the
latency as in an M/M/1 queue.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, WorkerId
from elastic.simulation.model import Cost, Model
from elastic.simulation.noise import Noise

K = TypeVar("K")
_CROWD = 0.95
"""Utilisation up to which waiting for one's turn is computed; beyond it, the queue says it."""
QUEUE = 2048
"""Tuples that wait for an executor at most: the default of the setting `queue_rows`."""


@dataclass(slots=True)
class Executor:
    """One executor's queue, and what it did since it was measured last. Seconds and tuples."""

    id: ExecutorId
    worker: WorkerId
    node: NodeId
    cost: Cost
    share: float
    queue: float = 0.0
    paused: float = 0.0
    able: float = 0.0
    """Tuples that it can do in this step."""
    crowd: float = 0.0
    """Share of the CPU that others around it use."""
    wanted: float = 0.0
    limit: float = math.inf
    """Tuples that those further down let through: who is held up does not use CPU."""
    done: float = 0.0
    executed: float = 0.0
    emitted: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    cpu: float = 0.0


@dataclass(slots=True)
class Step:
    """What a step gave.

    Attributes:
        latency: Mean seconds from arrival at the source to the end of the last component.
        flow: Tuples done in each component, as a share of what arrived for it; above 1 while a backlog is worked off.
        cpu: Core seconds used.
    """

    latency: float = 0.0
    flow: float = 1.0
    cpu: float = 0.0


@dataclass(slots=True)
class Engine:
    """See the module.

    Args:
        cores: Of each node.
    """

    model: Model
    noise: Noise
    executors: dict[ComponentId, list[Executor]] = field(default_factory=dict)
    cores: dict[NodeId, float] = field(default_factory=dict)
    backlog: float = 0.0
    time: float = 0.0
    counts: dict[TaskId, tuple[float, float]] = field(default_factory=dict)
    sent: dict[tuple[ComponentId, ComponentId], float] = field(default_factory=dict)
    _inflow: dict[ComponentId, float] = field(default_factory=dict)

    def arrange(self, assignment: Assignment, pause: float) -> int:
        """Put executors where an assignment says.

        Args:
            pause: Seconds for which an executor stands still that has tasks from another worker.

        Returns:
            How many tasks came from another worker.
        """
        self.settle()
        queued: dict[TaskId, float] = {}
        was: dict[TaskId, WorkerId] = {}
        paused: dict[ExecutorId, float] = {}
        for old in self.all():
            paused[old.id] = old.paused
            for t in old.id.tasks():
                queued[TaskId(t)] = old.queue / len(old.id.tasks())
                was[TaskId(t)] = old.worker
        moved = 0
        fresh: dict[ComponentId, list[Executor]] = {c.id: [] for c in self.model.spec.components}
        for id, worker in sorted(assignment.executors):
            tasks = id.tasks()
            came = sum(1 for t in tasks if was.get(TaskId(t), worker) != worker)
            moved += came
            fresh[id.component].append(
                Executor(
                    id,
                    worker,
                    assignment.workers[worker].node,
                    self.model.costs[id.component],
                    len(tasks) / len(self.model.spec.tasks_of(id.component)),
                    queue=sum(queued.get(TaskId(t), 0.0) for t in tasks),
                    paused=max(paused.get(id, 0.0), pause if came else 0.0),
                )
            )
        self.executors = fresh
        return moved

    def all(self) -> Iterable[Executor]:
        """All executors."""
        return (e for of in self.executors.values() for e in of)

    def settle(self) -> None:
        """Add what executors did to the counters of their tasks."""
        for e in self.all():
            each = len(e.id.tasks())
            for t in e.id.tasks():
                executed, emitted = self.counts.get(TaskId(t), (0.0, 0.0))
                self.counts[TaskId(t)] = (executed + e.executed / each, emitted + e.emitted / each)
            e.executed = e.emitted = 0.0

    def step(self, rate: float, seconds: float) -> Step:
        """Go on by some seconds, in which so many tuples per second arrive."""
        spec = self.model.spec
        arrived = self.noise.count(rate * seconds)
        self.backlog += arrived
        self._wants(seconds)
        self._share_cpu(seconds)
        self._work(seconds)
        flow = 1.0
        expected: dict[ComponentId, float] = {}
        for c in spec.components:
            feeds = [expected[i.source] * self.model.costs[i.source].makes for i in c.inputs]
            expected[c.id] = sum(feeds) if feeds else rate * seconds
            done = sum(e.done for e in self.executors[c.id])
            if expected[c.id] > 0:
                flow = min(flow, done / expected[c.id])
        self.time += seconds
        used = sum(e.done * e.cost.compute for e in self.all())
        return Step(self._latency(rate, seconds), flow, used)

    def _wants(self, seconds: float) -> None:
        """What everybody would do if there were CPU enough; the components come in the order of the stream."""
        inflow: dict[ComponentId, float] = defaultdict(float)
        for c in self.model.spec.components:
            executors = self.executors[c.id]
            total = 0.0
            for e in executors:
                here = e.queue + (inflow[c.id] if c.inputs else self.backlog) * e.share
                time = max(0.0, seconds - e.paused)
                most = time / e.cost.service if e.cost.service > 0 else here
                e.wanted = min(here, most, e.limit)
                total += e.wanted
            for consumer, _ in self.model.spec.consumers(c.id):
                inflow[consumer.id] += total * self.model.costs[c.id].makes

    def _share_cpu(self, seconds: float) -> None:
        processes: dict[WorkerId, list[Executor]] = defaultdict(list)
        for e in self.all():
            processes[e.worker].append(e)
        nodes: dict[NodeId, list[WorkerId]] = defaultdict(list)
        asks: dict[WorkerId, float] = {}
        for worker, executors in processes.items():
            asks[worker] = min(seconds, sum(e.wanted * e.cost.compute for e in executors))
            nodes[executors[0].node].append(worker)
        for node, workers in nodes.items():
            most = self.cores.get(node, 1.0) * seconds
            given = divide({w: asks[w] for w in workers}, most)
            load = sum(given.values()) / most if most > 0 else 1.0
            for worker in workers:
                self._share_lock(processes[worker], given[worker], load, seconds)

    def _share_lock(self, executors: list[Executor], cpu: float, node: float, seconds: float) -> None:
        wants = {i: e.wanted * e.cost.compute for i, e in enumerate(executors)}
        total = sum(wants.values())
        given = wants if total <= cpu * (1 + 1e-9) else divide(wants, cpu)
        for i, e in enumerate(executors):
            own = given[i]
            e.able = e.wanted if e.cost.compute <= 0 else min(e.wanted, own / e.cost.compute)
            e.crowd = min(
                _CROWD, max((total - wants[i]) / seconds, (node - own / seconds) * 0.5 * (node > 0.8))
            )

    def _work(self, seconds: float) -> None:
        spec = self.model.spec
        free = {c.id: self._room(c.id) for c in spec.components}
        for c in spec.components:
            cost = self.model.costs[c.id]
            makes = cost.makes
            executors = self.executors[c.id]
            able = sum(e.able for e in executors)
            open = 1.0
            for consumer, _ in spec.consumers(c.id):
                if able * makes > 0:
                    open = min(open, free[consumer.id] / (able * makes))
            total = 0.0
            for e in executors:
                if not c.inputs:
                    arrivals = self.backlog * e.share
                    e.queue = 0.0
                else:
                    arrivals = self._inflow[c.id] * e.share
                e.queue += arrivals
                e.done = min(e.able * open, e.queue)
                self._account(e, open, seconds)
                e.queue = max(0.0, e.queue - e.done)
                total += e.done
            if not c.inputs:
                self.backlog = max(0.0, self.backlog - total)
                for e in executors:
                    e.queue = 0.0
            for consumer, _ in spec.consumers(c.id):
                self._inflow[consumer.id] += total * makes
                pair = (c.id, consumer.id)
                self.sent[pair] = self.sent.get(pair, 0.0) + total * makes

    def _room(self, component: ComponentId) -> float:
        """Tuples that the whole component can take in this step: its fullest queue decides."""
        self._inflow[component] = 0.0
        return min(
            (max(0.0, QUEUE - e.queue + e.able) / e.share for e in self.executors[component]), default=0.0
        )

    def _account(self, e: Executor, open: float, seconds: float) -> None:
        """Where the executor's time went."""
        cost = e.cost
        left = e.queue - e.done
        stretched = cost.compute / (1.0 - e.crowd) + cost.wait
        e.limit = math.inf
        if open < 1.0 and left > 0.5:
            e.limit = 1.1 * e.done + 1.0
            busy = min(seconds, e.done * stretched)
            e.blocked += seconds - busy
        elif left > 0.5 and e.paused <= 0:
            busy = seconds
        else:
            busy = min(seconds, e.done * stretched)
        e.busy += busy
        e.cpu += e.done * cost.compute
        e.executed += e.done
        e.emitted += e.done * cost.makes
        e.paused = max(0.0, e.paused - seconds)

    def _latency(self, rate: float, seconds: float) -> float:
        """Mean seconds from the source to the end: each component's queue, its service, and the turns of others."""
        at: dict[ComponentId, float] = {}
        for c in self.model.spec.components:
            own, weight = 0.0, 0.0
            for e in self.executors[c.id]:
                service = e.cost.compute / (1.0 - e.crowd) + e.cost.wait
                speed = e.able / seconds if e.able > 0 else 1.0 / max(service, 1e-9)
                use = min(_CROWD, e.done * service / seconds)
                queue = e.queue / speed if e.queue > 0.5 else 0.0
                time = e.paused + queue + service / (1.0 - use)
                own += time * e.share
                weight += e.share
            own = own / weight if weight else 0.0
            at[c.id] = own + max((at[i.source] for i in c.inputs), default=0.0)
        first = sum(e.done for c in self.model.spec.components if not c.inputs for e in self.executors[c.id])
        wait = self.backlog / max(first / seconds, 1e-9) if self.backlog > 0.5 else 0.0
        return max(at.values()) + min(wait, 3600.0)


def divide(wants: Mapping[K, float], most: float) -> dict[K, float]:
    """Max-min fairly: who wants less than a fair share gets it all, the others divide what is left."""
    given: dict[K, float] = {}
    left, n = most, len(wants)
    for key, want in sorted(wants.items(), key=lambda item: item[1]):
        given[key] = min(want, left / n)
        left -= given[key]
        n -= 1
    return given
