"""Two kinds of load, which scale differently in CPython, and what each component does.

*Computing* code holds the interpreter's lock: a second executor helps only in another process, and processes only up to the cores.
*Waiting* code (each tuple asks a service) releases it: executors are threads, and sixteen of them help on two cores.

The thread's CPU time against its busy wall time tells them apart, unless threads wait for each other: in a process whose CPU is near
one core they wait for the lock, on a node whose CPU is near its cores for a core. There the CPU that a thread *got* is compared with the
fair share that it could have had: who got far less did not want more (max-min fairness). A thread with little to do says nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastic.elasticity.monitor import node_of
from elastic.model.ids import ComponentId, TopologyName, WorkerId
from elastic.model.loadview import ExecutorKey, LoadView, SmoothedLoad, by_component
from elastic.model.topology import TopologySpec

FULL_PROCESS = 0.8
"""Cores of one process from which on its threads wait for the interpreter's lock."""
FULL_NODE = 0.9
"""Share of a node's cores from which on its threads wait for a core."""
COMPUTES = 0.5
"""CPU share of busy wall time from which on it is computing."""
TELLS = 0.3
"""Busy share below which a thread among waiting threads says nothing about its kind."""
WORKS = 0.01
"""Busy share below which nobody says anything about its kind."""


class Kind(StrEnum):
    COMPUTING = "computing"
    WAITING = "waiting"
    UNKNOWN = "unknown"
    """It has hardly anything to do."""


@dataclass(frozen=True, slots=True)
class ComponentLoad:
    """What the measured executors of one component do together.

    Attributes:
        loads: Each measured executor's.
        kind: What limits it.
        held: Its threads wait for the interpreter's lock or a core: a thread more in the same process gains nothing if it computes.
        cpu: Cores, all executors together.
        executed, emitted, newest, offered, queued: Sums, as in `SmoothedLoad`.
        service: Seconds of an executor's time per tuple, without waiting for the lock or a core; 0 when unknown.
        compute: CPU seconds per tuple; 0 when unknown.
        samples: Of the executor that has the fewest.
        sent: Tuples per second to other components, as far as pairs are measured.
    """

    id: ComponentId
    loads: Mapping[ExecutorKey, SmoothedLoad]
    kind: Kind
    held: bool
    cpu: float
    executed: float
    emitted: float
    newest: float
    offered: float
    queued: float
    service: float
    compute: float
    samples: int
    sent: Mapping[ComponentId, float] = field(default_factory=dict)

    @property
    def busy(self) -> float:
        """Mean busy share of its executors."""
        return sum(x.busy for x in self.loads.values()) / len(self.loads)

    @property
    def blocked(self) -> float:
        """Mean blocked share of its executors."""
        return sum(x.blocked for x in self.loads.values()) / len(self.loads)

    @property
    def tuples(self) -> float:
        """Tuples per second that it works on: executed, or emitted by a spout."""
        return self.executed or self.emitted


@dataclass(frozen=True, slots=True)
class Measured:
    """What the parts of a view say about kinds.

    Attributes:
        held: Executors whose threads wait for the lock or a core.
        kinds: Those of single executors, as far as they can be told.
    """

    held: frozenset[ExecutorKey]
    kinds: Mapping[ExecutorKey, Kind]


def classify(view: LoadView) -> Measured:
    """The kind of each executor."""
    crowds: list[tuple[ExecutorKey, ...]] = []
    placed: dict[str, list[ExecutorKey]] = {}
    held: set[ExecutorKey] = set()
    for id, worker in view.workers.items():
        placed.setdefault(node_of(id), []).extend(worker.executors)
        if worker.cpu >= FULL_PROCESS and len(worker.executors) > 1:
            crowds.append(worker.executors)
            held.update(worker.executors)
    for node, load in view.nodes.items():
        here = [k for k in placed.get(node, ()) if k not in held]
        if load.cores > 0 and load.cpu >= FULL_NODE * load.cores and here:
            crowds.append(tuple(here))
    for crowd in crowds:
        held.update(crowd)
    kinds = {k: _alone(x) for k, x in view.executors.items() if k not in held}
    for crowd in crowds:
        kinds.update(_crowded({k: view.executors[k] for k in crowd if k in view.executors}))
    return Measured(frozenset(held), kinds)


def components(
    view: LoadView, topology: TopologyName, measured: Measured | None = None
) -> dict[ComponentId, ComponentLoad]:
    """What each measured component of a topology does.

    Args:
        measured: `classify(view)`, when it is known already.
    """
    known = measured if measured is not None else classify(view)
    sent: dict[ComponentId, dict[ComponentId, float]] = {}
    for (source, target), rate in view.traffic.items():
        if source.topology == topology:
            flows = sent.setdefault(source.executor.component, {})
            flows[target.executor.component] = flows.get(target.executor.component, 0.0) + rate
    return {
        component: _component(
            component,
            {ExecutorKey(topology, e): load for e, load in loads.items()},
            known,
            sent.get(component, {}),
        )
        for component, loads in by_component(view, topology).items()
    }


def crowded_workers(view: LoadView, spec: TopologySpec) -> list[WorkerId]:
    """Workers of a topology whose executors wait for the interpreter's lock, ascending."""
    return sorted(
        id
        for id, w in view.workers.items()
        if w.cpu >= FULL_PROCESS
        and len(w.executors) > 1
        and any(k.topology == spec.name for k in w.executors)
    )


def _alone(load: SmoothedLoad) -> Kind:
    if load.busy < WORKS:
        return Kind.UNKNOWN
    return Kind.COMPUTING if load.cpu >= COMPUTES * load.busy else Kind.WAITING


def _crowded(loads: Mapping[ExecutorKey, SmoothedLoad]) -> dict[ExecutorKey, Kind]:
    """Kinds where the CPU is scarce: whoever got less than half of what it could have had did not want more."""
    kinds = {}
    left = sum(x.cpu for x in loads.values())
    ascending = sorted(loads, key=lambda k: (loads[k].cpu, k))
    for i, key in enumerate(ascending):
        load, fair = loads[key], left / (len(ascending) - i)
        if load.busy < TELLS:
            kinds[key] = Kind.UNKNOWN
        elif load.cpu >= COMPUTES * min(load.busy, fair):
            kinds[key] = Kind.COMPUTING
        else:
            kinds[key] = Kind.WAITING
        left -= load.cpu
    return kinds


def _component(
    id: ComponentId,
    loads: Mapping[ExecutorKey, SmoothedLoad],
    known: Measured,
    sent: Mapping[ComponentId, float],
) -> ComponentLoad:
    values = loads.values()
    cpu, busy = sum(x.cpu for x in values), sum(x.busy for x in values)
    executed, emitted = sum(x.executed for x in values), sum(x.emitted for x in values)
    tuples = executed or emitted
    held = any(k in known.held and loads[k].busy >= TELLS for k in loads)
    kind = _kind(loads, known)
    wall = cpu if held and kind is Kind.COMPUTING else max(busy, cpu)
    return ComponentLoad(
        id,
        loads,
        kind,
        held,
        cpu=cpu,
        executed=executed,
        emitted=emitted,
        newest=sum(x.newest for x in values),
        offered=sum(x.offered for x in values),
        queued=sum(x.queued for x in values),
        service=wall / tuples if tuples > 0 else 0.0,
        compute=cpu / tuples if tuples > 0 else 0.0,
        samples=min(x.samples for x in values),
        sent=sent,
    )


def _kind(loads: Mapping[ExecutorKey, SmoothedLoad], known: Measured) -> Kind:
    """What most of its work is. Executors that nobody disturbs say it better than those in a crowd."""
    for among in ([k for k in loads if k not in known.held], list(loads)):
        found = _majority((known.kinds.get(k, Kind.UNKNOWN), loads[k].busy) for k in among)
        if found is not Kind.UNKNOWN:
            return found
    return Kind.UNKNOWN


def _majority(votes: Iterable[tuple[Kind, float]]) -> Kind:
    weight = {Kind.COMPUTING: 0.0, Kind.WAITING: 0.0}
    for kind, busy in votes:
        if kind in weight:
            weight[kind] += busy
    if not any(weight.values()):
        return Kind.UNKNOWN
    return max(weight, key=lambda k: (weight[k], k))
