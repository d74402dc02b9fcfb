"""The load of the whole cluster as one value: what a load monitor fills, and schedulers and policies decide by.

Loads are counted in cores (CPU seconds per second of wall time), traffic in tuples per second, both smoothed. T-Storm (2014), section IV.B,
measures the same in MHz and in tuples per period of 20 s; only ratios matter to the algorithms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, NodeId, TopologyName, WorkerId


class ExecutorKey(NamedTuple):
    """An executor of one of several topologies. The order is by topology, component and first task."""

    topology: TopologyName
    executor: ExecutorId

    def __str__(self) -> str:
        return f"{self.topology}/{self.executor}"


@dataclass(frozen=True, slots=True)
class SmoothedLoad:
    """What one executor does, averaged over the past.

    Attributes:
        cpu: Cores: thread CPU seconds per second of wall time.
        busy, blocked, idle: Shares of wall time, 0 to 1, as in `elastic.model.load.ExecutorLoad`.
        ready: Share of wall time in which its thread could have run and got no core; 0 when unknown.
        queued: Tuples that wait for its tasks.
        fill: `queued` as a share of what its queue may hold, 0 to 1.
        state: Bytes of state that its tasks own; 0 when none or unknown.
        executed, emitted: Tuples per second. What a spout "executes" are calls of it, not tuples.
        newest: `emitted` in the newest sample alone: far from the average while the load changes.
        offered: Tuples per second that a spout's source offers, taken or not; 0 when unknown, and for bolts.
        samples: How many samples the averages are made of; 0: derived, not measured.
    """

    cpu: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    queued: float = 0.0
    fill: float = 0.0
    state: float = 0.0
    executed: float = 0.0
    emitted: float = 0.0
    newest: float = 0.0
    offered: float = 0.0
    samples: int = 0
    ready: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What a worker process uses.

    Attributes:
        cpu: Cores. Python threads of one process share one lock: near 1 they wait for each other, not for work.
        memory: Resident bytes.
        executors: Those that it reported.
    """

    cpu: float = 0.0
    memory: float = 0.0
    executors: tuple[ExecutorKey, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a node has, and how much of it is used by whomever.

    Attributes:
        cores: CPUs that its workers may use; a fraction where a quota says so.
        cpu: Cores in use, by everything that runs there.
        memory: Bytes in use by its workers; 0 when unknown.
        sharing: How many nodes the machine's cores are divided among; 1: they are its own.
    """

    cores: float
    cpu: float = 0.0
    memory: float = 0.0
    sharing: int = 1


@dataclass(frozen=True, slots=True)
class ComponentRates:
    """What all executors of a component do together, averaged over a longer past than theirs, whoever they were: what a tuple costs,
    and what is made of it, follow from it.

    Attributes:
        busy, cpu: Seconds per second, as in `SmoothedLoad`.
        executed, emitted: Tuples per second.
        sent: Tuples per second to other components, as far as pairs are measured.
    """

    busy: float = 0.0
    cpu: float = 0.0
    executed: float = 0.0
    emitted: float = 0.0
    sent: Mapping[ComponentId, float] = field(default_factory=dict)


Traffic = Mapping[tuple[ExecutorKey, ExecutorKey], float]
"""(from, to) -> tuples per second. A pair that is not there exchanges nothing."""


@dataclass(frozen=True, slots=True)
class LoadView:
    """The load of the whole cluster.

    Attributes:
        executors: Those that have been measured. One that is not there has just been started: nothing is known about it.
        traffic: Tuples per second between pairs of them.
        nodes: Of a node that is not there the capacity is unknown.
        time: When it was made, seconds since 1970; for people.
        workers: Those that have reported.
        rates: Of components; where one is not there, its executors' loads say what a tuple costs.
    """

    executors: Mapping[ExecutorKey, SmoothedLoad] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeLoad] = field(default_factory=dict)
    time: float = 0.0
    workers: Mapping[WorkerId, WorkerLoad] = field(default_factory=dict)
    rates: Mapping[tuple[TopologyName, ComponentId], ComponentRates] = field(default_factory=dict)


def regrouped(view: LoadView, topology: TopologyName, executors: Iterable[ExecutorId]) -> LoadView:
    """What the load would be if a topology's tasks were divided into other executors.

    An executor's load and traffic are taken to be spread evenly over its tasks (Elastic Storm (2016), section IV.C, assumes the same of its
    state), so what a new executor does is the sum of the shares of its tasks.

    Args:
        executors: All executors of the topology as they are to be. Those that were measured as they are keep what was measured.

    Returns:
        The view with this topology's entries replaced; the same object when there is nothing to replace. A new executor without
        any measured task is not in it. What two tasks of one new executor exchange is no traffic any more.
    """
    wanted = list(executors)
    old = [key for key in view.executors if key.topology == topology]
    if {key.executor for key in old} <= set(wanted):
        return view
    known = set(wanted) & {key.executor for key in old}
    new_of: dict[int, ExecutorId] = {t: e for e in wanted for t in e.tasks()}
    shares: dict[ExecutorKey, list[tuple[ExecutorKey, float]]] = {}
    for key in old:
        if key.executor in known:
            shares[key] = [(key, 1.0)]
            continue
        parts: dict[ExecutorId, int] = defaultdict(int)
        for task in key.executor.tasks():
            if task in new_of:
                parts[new_of[task]] += 1
        size = len(key.executor.tasks())
        shares[key] = [(ExecutorKey(topology, e), n / size) for e, n in parts.items()]
    sums: dict[ExecutorKey, list[float]] = {}
    for key in old:
        for new, share in shares[key]:
            total = sums.setdefault(new, [0.0] * len(_FIELDS))
            for i, value in enumerate(_values(view.executors[key])):
                total[i] += value * share
    loads = {key: load for key, load in view.executors.items() if key.topology != topology}
    loads.update((key, _load(key.executor, values)) for key, values in sums.items())
    traffic: dict[tuple[ExecutorKey, ExecutorKey], float] = defaultdict(float)
    for (a, b), rate in view.traffic.items():
        for new_a, part_a in shares.get(a, [(a, 1.0)]):
            for new_b, part_b in shares.get(b, [(b, 1.0)]):
                if new_a != new_b:
                    traffic[new_a, new_b] += rate * part_a * part_b
    return replace(view, executors=loads, traffic=dict(traffic))


_FIELDS = (
    *("cpu", "ready", "busy", "blocked", "idle", "queued", "fill", "state"),
    *("executed", "emitted", "newest", "offered"),
)


def _values(load: SmoothedLoad) -> Iterator[float]:
    return (getattr(load, name) for name in _FIELDS)


def _load(executor: ExecutorId, sums: list[float]) -> SmoothedLoad:
    values = dict(zip(_FIELDS, sums, strict=True))
    for share in ("busy", "blocked", "fill"):
        values[share] = min(1.0, values[share])
    values["idle"] = max(0.0, min(values["idle"], 1.0 - values["busy"] - values["blocked"]))
    return SmoothedLoad(**values, samples=0)


def by_component(view: LoadView, topology: TopologyName) -> dict[ComponentId, dict[ExecutorId, SmoothedLoad]]:
    """The measured executors of one topology, by component, ascending."""
    result: dict[ComponentId, dict[ExecutorId, SmoothedLoad]] = {}
    for key in sorted(k for k in view.executors if k.topology == topology):
        result.setdefault(key.executor.component, {})[key.executor] = view.executors[key]
    return result
