"""The load monitor: from what workers report to smoothed measurements. (T-Storm (2014), section IV.B.)

Counters become rates over at least one period, and every rate is averaged as Y = alpha Y + (1 - alpha) sample. A sample that covers
k periods weighs as k of them: its old part is alpha^k. What cannot be trusted is no sample: a life's first report, an executor's first
appearance in a worker (its share of wall time would count time in which it was not there), and a counter that went back.

Not thread-safe: whoever owns it has a lock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from elastic.elasticity.averages import Average, Sums
from elastic.elasticity.costs import WorkerCosts, together
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId, node_of
from elastic.model.load import SET_BACK, ExecutorLoad, NodeReport, PairLoad, TaskLoad, WorkerReport
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad, Traffic, WorkerLoad
from elastic.model.parameters import make, parameter

_EXECUTOR = re.compile(r"(.+)\[(\d+)-(\d+)\]", re.DOTALL)
_SHORT = 0.9
"""A period has passed when this share of it has: reports come a little early as often as late."""
_RATES = ("busy", "blocked", "idle", "cpu", "ready", "executed", "emitted")
_NEGLIGIBLE = 1e-9
_BITS = 32
_MASK = (1 << _BITS) - 1
"""Two numbers of tasks in one: half the time of a tuple of them."""
Pair = tuple[ExecutorKey, ExecutorKey]


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """How measurements are smoothed. T-Storm (2014) has alpha 0.5 and a period of 20 s, for nodes that report to a data base."""

    alpha: float = parameter(
        0.5, minimum=0.0, maximum=0.99, help="Weight of the past in every average; 0: only the newest sample."
    )
    period: float = parameter(1.0, minimum=0.05, help="Seconds that a sample covers at least.")
    stale: float = parameter(
        30.0, minimum=1.0, help="Seconds after which what has not reported is forgotten."
    )


@dataclass(slots=True)
class _Executor:
    worker: WorkerId
    epoch: int
    seen: float
    averages: dict[str, Average] = field(default_factory=dict)
    newest: float = 0.0
    queued: float = 0.0
    capacity: float = 0.0
    state: float = 0.0
    offered: float = 0.0

    @property
    def samples(self) -> int:
        found = self.averages.get("busy")
        return found.samples if found is not None else 0

    def load(self) -> SmoothedLoad:
        rates = {name: average.value for name, average in self.averages.items()}
        fill = min(1.0, self.queued / self.capacity) if self.capacity else 0.0
        return SmoothedLoad(
            **rates,
            queued=self.queued,
            fill=fill,
            state=self.state,
            newest=self.newest,
            offered=self.offered,
            samples=self.samples,
        )


@dataclass(slots=True)
class _Worker:
    """One worker's present life."""

    incarnation: str
    newest: WorkerReport
    seen: float
    tasks: dict[int, TaskLoad]
    pairs: dict[int, PairLoad]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    sums: dict[ExecutorKey, Sums] = field(default_factory=dict)
    sent: dict[Pair, tuple[float, float]] = field(default_factory=dict)
    cpu: Average = field(default_factory=Average)
    members: set[ExecutorKey] = field(default_factory=set)
    flow: dict[Pair, _Pair] = field(default_factory=dict)
    costs: WorkerCosts = field(default_factory=WorkerCosts)


@dataclass(slots=True)
class _Node:
    newest: NodeReport
    seen: float
    cpu: Average = field(default_factory=Average)


@dataclass(slots=True)
class _Pair:
    tuples: Average = field(default_factory=Average)
    bytes: Average = field(default_factory=Average)


class _First(dict[int, int]):
    """The first task of the executor that owns a task, looked up once, for those that a report names.

    0 when no executor does, or when that first task itself is not its own now: it is just being moved.
    """

    def __init__(self, owners: Mapping[int, ExecutorKey]) -> None:
        self._owners = owners

    def __missing__(self, task: int) -> int:
        key = self._owners.get(task)
        found = key is not None and self._owners.get(key.executor.first) == key
        first = self[task] = key.executor.first if key is not None and found else 0
        return first


class LoadMonitor:
    """See the module.

    Args:
        config: Can be changed while it runs (`configure`).
    """

    def __init__(self, config: MonitorConfig | None = None) -> None:
        self.config = config or MonitorConfig()
        self._executors: dict[ExecutorKey, _Executor] = {}
        self._workers: dict[WorkerId, _Worker] = {}
        self._nodes: dict[NodeId, _Node] = {}
        self._owners: dict[TopologyName, dict[int, ExecutorKey]] = {}
        self._intervals: Mapping[TopologyName, float] = {}

    def expect(self, intervals: Mapping[TopologyName, float]) -> None:
        """How often the workers of topologies report, seconds: who reports rarely is not silent before a third report is missing."""
        self._intervals = intervals

    def configure(self, **values: object) -> MonitorConfig:
        """Change alpha, period or stale from now on; what was measured stays.

        Raises:
            ConfigError: An unknown name or an impossible value.
        """
        old = {f.name: getattr(self.config, f.name) for f in fields(self.config)}
        self.config = make("the load monitor", MonitorConfig, {**old, **values})
        return self.config

    # --- taking in

    def observe(self, report: WorkerReport, now: float) -> bool:
        """Take in a report.

        Args:
            now: Seconds by the observer's clock; reports' own times are only compared with each other.

        Returns:
            Whether it counted: one that is older than what is known of the same life does not, unless a clock was set back.
        """
        id = WorkerId(report.worker)
        known = self._workers.get(id)
        if known is not None and known.incarnation == report.incarnation:
            seconds = report.time - known.newest.time
            if -SET_BACK <= seconds <= 0 or report.epoch < known.newest.epoch:
                return False
            if seconds > 0:  # else nobody knows how long it was since
                self._follow(known, report, seconds, now)
        else:
            if known is not None:
                # Whatever assignment they were of: a new life may not have read its own yet.
                self._drop(set(known.members))
            known = self._workers[id] = _Worker(report.incarnation, report, now, {}, {})
            # Who is there, and nothing that could be called a rate.
            for load in report.executors:
                self._meet(id, report, load, now)
            self._own(report)
        known.newest, known.seen = report, now
        known.tasks = {t.task: t for t in report.tasks}
        known.pairs = {p.source << _BITS | p.target: p for p in report.pairs}
        return True

    def observe_node(self, report: NodeReport, now: float) -> bool:
        """Take in what a node says about itself. Returns whether it counted."""
        id = NodeId(report.node)
        known = self._nodes.get(id)
        if known is None:
            known = self._nodes[id] = _Node(report, now)
            known.cpu.take(report.cpu, 0.0)
            return True
        seconds = report.time - known.newest.time
        if -SET_BACK <= seconds <= 0:
            return False
        known.cpu.take(report.cpu, self._weight(max(0.0, seconds)))
        known.newest, known.seen = report, now
        return True

    def forget(self, topology: TopologyName) -> None:
        """The topology has gone."""
        self._drop_workers({w for w, known in self._workers.items() if known.newest.topology == topology})
        self._owners.pop(topology, None)

    def retain(self, topology: TopologyName, workers: Collection[WorkerId]) -> None:
        """Forget the workers of a topology that its assignment does not name any more."""
        gone = {w for w, known in self._workers.items() if known.newest.topology == topology}
        self._drop_workers(gone - set(workers))

    def forget_node(self, node: NodeId) -> None:
        """The node has gone, and its workers with it."""
        self._nodes.pop(node, None)
        self._drop_workers({w for w in self._workers if node_of(w) == node})

    # --- what is known

    def view(self, now: float) -> LoadView:
        """The load as far as it is known and not stale. Forgets what is.

        Args:
            now: Seconds, by the same clock as in `observe`.
        """
        limit = now - max(self.config.stale, 3 * self.config.period)
        silent = {w: known for w, known in self._workers.items() if known.seen < limit}
        every = {
            w: self._intervals.get(TopologyName(known.newest.topology), 0.0) for w, known in silent.items()
        }
        self._drop_workers({w for w, known in silent.items() if known.seen < now - 3 * every[w]})
        for node in [n for n, known in self._nodes.items() if known.seen < limit]:
            del self._nodes[node]
        executors = {k: e.load() for k, e in self._executors.items() if e.samples}
        rates = {
            (name, component): found
            for name in self._owners
            for component, found in together(
                w.costs for w in self._workers.values() if w.newest.topology == name
            ).items()
        }
        return LoadView(executors, self.traffic(), self._node_loads(), now, self._worker_loads(), rates)

    def traffic(self) -> Traffic:
        """Tuples per second between pairs of executors."""
        return {pair: p.tuples.value for pair, p in self._flowing()}

    def volume(self) -> Mapping[Pair, float]:
        """Bytes per second between pairs of executors, as far as they left a worker."""
        return {pair: p.bytes.value for pair, p in self._flowing()}

    def topologies(self) -> set[TopologyName]:
        """Those of which something was reported."""
        return set(self._owners)

    def state(self, topology: TopologyName) -> dict[TaskId, int]:
        """Bytes of state of each task, by the newest reports."""
        return {
            TaskId(t.task): t.state
            for known in self._workers.values()
            if known.newest.topology == topology
            for t in known.newest.tasks
        }

    # --- inside

    def _flowing(self) -> Iterator[tuple[Pair, _Pair]]:
        for id, known in self._workers.items():
            yield from ((pair, p) for pair, p in known.flow.items() if self._flows(id, pair))

    def _weight(self, seconds: float) -> float:
        """What is left of the past after a sample that covers so many seconds."""
        return float(self.config.alpha ** (seconds / self.config.period))

    def _meet(self, id: WorkerId, report: WorkerReport, load: ExecutorLoad, now: float) -> _Executor | None:
        """The record of an executor in that worker; None when a newer assignment has it elsewhere."""
        key = key_of(report.topology, load.executor)
        found = self._executors.get(key)
        if found is None:
            found = self._executors[key] = _Executor(id, report.epoch, now)
        elif found.worker != id:
            if found.epoch > report.epoch:
                return None
            old = self._workers.get(found.worker)
            if old is not None:
                old.members.discard(key)
            found.worker = id  # It moved. What it did there is what it does here.
        self._workers[id].members.add(key)
        found.epoch, found.seen, found.capacity = report.epoch, now, float(load.capacity)
        return found

    def _own(self, report: WorkerReport) -> None:
        owners = self._owners.setdefault(TopologyName(report.topology), {})
        sums: dict[ExecutorKey, tuple[int, int, float]] = {}
        for t in report.tasks:
            if not t.executor:
                continue
            key = key_of(report.topology, t.executor)
            found = self._executors.get(key)
            if found is None or found.worker != report.worker:
                continue
            before = owners.get(t.task)
            if before is not None and before != key and before in self._executors:
                if self._executors[before].epoch > report.epoch:
                    continue  # A newer assignment has given it to somebody else.
                self._drop({before})  # What had it before is no executor any more.
            owners[t.task] = key
            queued, state, offered = sums.get(key, (0, 0, 0.0))
            offers = 0.0 if t.finished else max(0.0, t.custom.get("offered", 0.0))
            sums[key] = (queued + t.queued, state + t.state, offered + offers)
        for key, (queued, state, offered) in sums.items():
            found = self._executors[key]
            found.queued, found.state, found.offered = float(queued), float(state), offered

    def _follow(self, known: _Worker, report: WorkerReport, seconds: float, now: float) -> None:
        id = WorkerId(report.worker)
        before = {e.executor for e in known.newest.executors}
        present = set()
        for load in report.executors:
            if self._meet(id, report, load, now) is None:
                continue
            key = key_of(report.topology, load.executor)
            present.add(key)
            if load.executor in before:
                known.sums.setdefault(key, Sums()).shares(load, seconds)
        self._drop(known.members - present)
        self._own(report)
        self._count(known, report)
        known.seconds += seconds
        known.cpu_seconds += report.cpu * seconds
        if known.seconds >= _SHORT * self.config.period:
            self._sample(id, known)

    def _count(self, known: _Worker, report: WorkerReport) -> None:
        """Add what the counters have grown by."""
        for t in report.tasks:
            old = known.tasks.get(t.task)
            sums = known.sums.get(key_of(report.topology, t.executor)) if t.executor else None
            if old is not None and sums is not None and t.executed >= old.executed:
                sums.executed += t.executed - old.executed
                sums.emitted += max(0, t.emitted - old.emitted)
        owners = self._owners[TopologyName(report.topology)]
        # Pairs of tasks are many: they are summed by an executor's first task, a number, not by its name.
        first = _First(owners)
        tuples: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for p in report.pairs:
            before = known.pairs.get(p.source << _BITS | p.target)
            source, target = first[p.source], first[p.target]
            if not source or not target or source == target:
                if source and not target and (before is None or p.tuples > before.tuples):
                    known.costs.blind.add(owners[source].executor.component)
                continue
            if before is None:
                if p.source not in known.tasks:
                    continue  # It has just come, with what it had sent before.
                before = PairLoad(p.source, p.target, 0)  # It was there, and had sent nothing.
            pair = source << _BITS | target
            if p.tuples > before.tuples:
                tuples[pair] = tuples.get(pair, 0) + p.tuples - before.tuples
            if p.bytes > before.bytes:
                sizes[pair] = sizes.get(pair, 0) + p.bytes - before.bytes
        for pair, count in tuples.items():
            between = owners[pair >> _BITS], owners[pair & _MASK]
            sent, size = known.sent.get(between, (0.0, 0.0))
            known.sent[between] = (sent + count, size + sizes.get(pair, 0))
            if between[0] in known.sums:
                known.costs.count(*between, count)

    def _sample(self, id: WorkerId, known: _Worker) -> None:
        """A period is full: every average takes its sample."""
        weight = self._weight(known.seconds)
        for key, sums in known.sums.items():
            found = self._executors.get(key)
            if found is None or found.worker != id:
                continue
            for name in _RATES:
                found.averages.setdefault(name, Average()).take(sums.rate(name), weight)
            found.newest = sums.rate("emitted")
        known.costs.sample(known.sums, known.seconds, weight)
        known.cpu.take(known.cpu_seconds / known.seconds, weight)
        for pair in known.flow.keys() | known.sent.keys():
            if not self._flows(id, pair):
                known.flow.pop(pair, None)
                continue
            # Who has come within the period was counted for a part of it.
            seconds = known.sums[pair[0]].seconds if pair[0] in known.sums else 0.0
            if seconds <= 0:
                continue
            tuples, size = known.sent.get(pair, (0.0, 0.0))
            average = known.flow.setdefault(pair, _Pair())
            average.tuples.take(tuples / seconds, self._weight(seconds))
            average.bytes.take(size / seconds, self._weight(seconds))
            if average.tuples.value < _NEGLIGIBLE:
                del known.flow[pair]
        known.sums, known.sent, known.seconds, known.cpu_seconds = {}, {}, 0.0, 0.0

    def _flows(self, id: WorkerId, pair: Pair) -> bool:
        """Whether both ends are there, and the first in that worker."""
        source = self._executors.get(pair[0])
        return source is not None and source.worker == id and pair[1] in self._executors

    def _drop(self, keys: Collection[ExecutorKey]) -> None:
        for key in keys:
            found = self._executors.pop(key)
            worker = self._workers.get(found.worker)
            if worker is not None:
                worker.members.discard(key)
            owners = self._owners.get(key.topology, {})
            for task in key.executor.tasks():
                if owners.get(task) == key:
                    del owners[task]

    def _drop_workers(self, ids: Collection[WorkerId]) -> None:
        for id in ids:
            self._drop(set(self._workers[id].members))
            del self._workers[id]

    def _worker_loads(self) -> dict[WorkerId, WorkerLoad]:
        return {
            id: WorkerLoad(known.cpu.value, float(known.newest.rss), tuple(sorted(known.members)))
            for id, known in sorted(self._workers.items())
        }

    def _node_loads(self) -> dict[NodeId, NodeLoad]:
        """What nodes say, and for those that say nothing the sums of their workers (as in T-Storm (2014))."""
        result = {
            id: NodeLoad(known.newest.cores, known.cpu.value, float(known.newest.memory))
            for id, known in sorted(self._nodes.items())
        }
        sums: dict[NodeId, NodeLoad] = {}
        for worker, w in self._workers.items():
            node = node_of(worker)
            if node not in result and w.newest.cores > 0:
                sum = sums.get(node, NodeLoad(0.0))
                sums[node] = replace(
                    sum,
                    cores=max(sum.cores, w.newest.cores),
                    cpu=sum.cpu + w.cpu.value,
                    memory=sum.memory + w.newest.rss,
                )
        return {**result, **dict(sorted(sums.items()))}


@lru_cache(maxsize=1 << 16)
def key_of(topology: str, executor: str) -> ExecutorKey:
    """The executor that is written `component[first-last]`.

    Raises:
        ValueError: It is not written so.
    """
    found = _EXECUTOR.fullmatch(executor)
    if found is None:
        raise ValueError(f"{executor!r} is not an executor: component[first-last]")
    component, first, last = found.groups()
    id = ExecutorId(ComponentId(component), TaskId(int(first)), TaskId(int(last)))
    return ExecutorKey(TopologyName(topology), id)
