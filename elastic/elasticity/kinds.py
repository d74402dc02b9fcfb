"""Two kinds of load, which scale differently in CPython, and what each component does.

*Computing* code holds the interpreter's lock: a second executor helps only in another process, and processes only up to the cores.
*Waiting* code (each tuple asks a service) releases it: executors are threads, and sixteen of them help on two cores.

The thread's CPU time against its busy wall time tells them apart, as long as threads do not wait for each other. The time in which a thread
could have run and got no core is measured, and left out: on a machine that is full of other programs, a computing thread would look like a
waiting one. Where others use some of the lock, waiting for it is estimated and left out. In a process whose CPU is near one core (and on a
node whose CPU is near its cores, where the system does not say who waited for one) the CPU that a thread *got* is compared with the fair
share that it could have had: who got far less did not want more (max-min fairness). What was seen of a component while nobody disturbed
it is remembered, and counts more than all of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from elastic.model.ids import ComponentId, node_of
from elastic.model.loadview import ComponentRates, ExecutorKey, LoadView, SmoothedLoad, by_component
from elastic.model.topology import TopologySpec

FULL_PROCESS = 0.8
"""Cores of one process from which on its threads wait for the interpreter's lock."""
FULL_NODE = 0.9
"""Share of a node's cores from which on its threads wait for a core."""
COMPUTES = 0.3
"""CPU share of busy wall time from which on it is computing. On a machine with other things to do, pure computing shows 0.4."""
TELLS = 0.3
"""Busy share below which a thread among waiting threads says nothing about its kind."""
WORKS = 0.01
"""Busy share below which nobody says anything about its kind."""
CALM = 0.3
"""Cores that others in its process use, up to which a thread counts as undisturbed."""
LEAST = 0.1
"""Cores that whoever computes gets at least on a full node, also where most of it goes to other programs."""
PATIENT = 0.5
"""Share of its busy time that a thread may have waited for a core and still count as undisturbed."""
_KEEPS = 0.995
"""What is left, a run later, of what was remembered. Whoever disturbs lowers what is seen, so the highest is nearest to the truth."""


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
        purity: CPU share of its busy time while nobody disturbs it, as far as it was seen; 0: never.
        held: Its threads wait for the interpreter's lock or a core: a thread more in the same process gains nothing if it computes.
        use: How much of what each could do it does, 0 to 1: its busy share; of one that computes and is held, its share of the CPU
            that it could have had.
        cpu: Cores, all executors together.
        tuples: Per second that it works on: executed by a bolt, emitted by a spout.
        emitted, newest, offered, queued: Sums, as in `SmoothedLoad`.
        service: Seconds of an executor's time per tuple, without waiting for the lock or a core; 0 when unknown.
        compute: CPU seconds per tuple; 0 when unknown.
        samples: Of the executor that has the fewest.
        makes: Tuples for each other component for each tuple that it works on, as far as pairs are measured.
    """

    id: ComponentId
    loads: Mapping[ExecutorKey, SmoothedLoad]
    kind: Kind
    purity: float
    held: bool
    use: Mapping[ExecutorKey, float]
    cpu: float
    tuples: float
    emitted: float
    newest: float
    offered: float
    queued: float
    service: float
    compute: float
    samples: int
    makes: Mapping[ComponentId, float] = field(default_factory=dict)

    @property
    def busy(self) -> float:
        """Mean busy share of its executors."""
        return sum(x.busy for x in self.loads.values()) / len(self.loads)

    @property
    def blocked(self) -> float:
        """Mean blocked share of its executors."""
        return sum(x.blocked for x in self.loads.values()) / len(self.loads)


@dataclass(frozen=True, slots=True)
class Measured:
    """What the parts of a view say about kinds.

    Attributes:
        held: Executors whose threads wait for the lock or a core.
        kinds: Those of single executors, as far as they can be told.
        fair: The cores that each could have had, where that has to be guessed.
        calm: Executors that nobody disturbs.
        lock: CPU of each with the waiting for the lock that is to be expected, where that can be estimated.
    """

    held: frozenset[ExecutorKey]
    kinds: Mapping[ExecutorKey, Kind]
    fair: Mapping[ExecutorKey, float] = field(default_factory=dict)
    calm: frozenset[ExecutorKey] = frozenset()
    lock: Mapping[ExecutorKey, float] = field(default_factory=dict)


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
    guessed, processes = set(held), len(crowds)
    for node, load in view.nodes.items():
        if load.cores <= 0 or load.cpu < FULL_NODE * load.cores:
            continue
        here = [k for k in placed.get(node, ()) if k not in guessed]
        held.update(here)
        silent = tuple(k for k in here if k not in view.executors or not view.executors[k].ready)
        if silent:
            crowds.append(silent)
            guessed.update(silent)
    others = {
        k: max(0.0, min(w.cpu, 1.0) - view.executors[k].cpu)
        for w in view.workers.values()
        for k in w.executors
        if k in view.executors
    }
    # Waiting for the lock, while it is free most of the time, is about that of an M/M/1 queue.
    lock = {
        k: x.cpu / (1.0 - min(0.9, others.get(k, 0.0))) for k, x in view.executors.items() if k not in guessed
    }
    kinds = {k: _alone(view.executors[k], mine) for k, mine in lock.items()}
    calm = frozenset(
        k
        for k in kinds
        if others.get(k, 0.0) <= CALM and view.executors[k].ready <= PATIENT * view.executors[k].busy
    )
    fair: dict[ExecutorKey, float] = {}
    for number, crowd in enumerate(crowds):
        loads = {k: view.executors[k] for k in crowd if k in view.executors}
        least = LEAST if number >= processes else 0.0
        shares = {k: max(share, least) for k, share in _fair(loads).items()}
        fair.update(shares)
        kinds.update((k, _crowded(load, shares[k])) for k, load in loads.items())
    return Measured(frozenset(held), kinds, fair, calm, lock)


def components(
    view: LoadView,
    spec: TopologySpec,
    measured: Measured | None = None,
    remembered: Mapping[ComponentId, float] | None = None,
) -> dict[ComponentId, ComponentLoad]:
    """What each measured component of a topology does.

    Args:
        measured: `classify(view)`, when it is known already.
        remembered: Their `purity` of earlier views: it counts where all their executors are disturbed.
    """
    known = measured if measured is not None else classify(view)
    sent: dict[ComponentId, dict[ComponentId, float]] = {}
    for (source, target), rate in view.traffic.items():
        if source.topology == spec.name:
            flows = sent.setdefault(source.executor.component, {})
            flows[target.executor.component] = flows.get(target.executor.component, 0.0) + rate

    def rates(id: ComponentId, loads: Iterable[SmoothedLoad]) -> ComponentRates:
        found = view.rates.get((spec.name, id))
        return found if found is not None else _summed(list(loads), sent.get(id, {}))

    return {
        component: _component(
            component,
            {ExecutorKey(spec.name, e): load for e, load in loads.items()},
            spec.component(component).kind == "spout",
            known,
            rates(component, loads.values()),
            (remembered or {}).get(component, 0.0),
        )
        for component, loads in by_component(view, spec.name).items()
        if any(c.id == component for c in spec.components)
    }


def _alone(load: SmoothedLoad, lock: float) -> Kind:
    """Its kind where the lock is free most of the time."""
    if load.busy < WORKS:
        return Kind.UNKNOWN
    return Kind.COMPUTING if lock >= COMPUTES * _own(load) else Kind.WAITING


def _own(load: SmoothedLoad) -> float:
    """Its busy share without the time in which it only waited for a core."""
    return max(load.busy - load.ready, load.cpu)


def _fair(loads: Mapping[ExecutorKey, SmoothedLoad]) -> dict[ExecutorKey, float]:
    """What each could have had of the cores that all got, if those who want less than an equal share leave the rest to the others."""
    result, left = {}, sum(x.cpu for x in loads.values())
    ascending = sorted(loads, key=lambda k: (loads[k].cpu, k))
    for i, key in enumerate(ascending):
        result[key] = left / (len(ascending) - i)
        left -= loads[key].cpu
    return result


def _crowded(load: SmoothedLoad, fair: float) -> Kind:
    """Its kind where CPU is scarce: who got much less than it could have had did not want more."""
    if load.busy < TELLS:
        return Kind.UNKNOWN
    return Kind.COMPUTING if load.cpu >= COMPUTES * min(load.busy, fair) else Kind.WAITING


def _component(
    id: ComponentId,
    loads: Mapping[ExecutorKey, SmoothedLoad],
    spout: bool,
    known: Measured,
    rates: ComponentRates,
    before: float,
) -> ComponentLoad:
    values = loads.values()
    emitted = sum(x.emitted for x in values)
    held = any(k in known.held and loads[k].busy >= TELLS for k in loads)
    purity = max(_purity(loads, known), _KEEPS * before)
    kind = _kind(loads, known, purity)
    wall = max(rates.busy, rates.cpu)
    if kind is Kind.COMPUTING:
        wall = min(wall, rates.cpu / (purity or 1.0))  # The time that others took is not its own.
    worked = rates.emitted if spout else rates.executed
    return ComponentLoad(
        id,
        loads,
        kind,
        purity,
        held,
        {k: _use(k, load, kind, known) for k, load in loads.items()},
        cpu=sum(x.cpu for x in values),
        tuples=emitted if spout else sum(x.executed for x in values),
        emitted=emitted,
        newest=sum(x.newest for x in values),
        offered=sum(x.offered for x in values),
        queued=sum(x.queued for x in values),
        service=wall / worked if worked > 0 else 0.0,
        compute=rates.cpu / worked if worked > 0 else 0.0,
        samples=min(x.samples for x in values),
        makes={target: rate / worked for target, rate in rates.sent.items()} if worked > 0 else {},
    )


def _summed(loads: Sequence[SmoothedLoad], sent: Mapping[ComponentId, float]) -> ComponentRates:
    """A component's rates where nobody has measured them: those of its executors."""
    return ComponentRates(
        sum(x.busy for x in loads),
        sum(x.cpu for x in loads),
        sum(x.executed for x in loads),
        sum(x.emitted for x in loads),
        sent,
    )


def _use(key: ExecutorKey, load: SmoothedLoad, kind: Kind, known: Measured) -> float:
    if kind is not Kind.COMPUTING or key not in known.fair:
        return load.busy
    fair = known.fair[key]
    return min(load.busy, load.cpu / fair) if fair > 0 else load.busy


def _purity(loads: Mapping[ExecutorKey, SmoothedLoad], known: Measured) -> float:
    calm = [k for k, x in loads.items() if k in known.calm and x.busy >= WORKS]
    busy = sum(_own(loads[k]) for k in calm)
    return min(1.0, max(0.001, sum(known.lock[k] for k in calm) / busy)) if busy > 0 else 0.0


def _kind(loads: Mapping[ExecutorKey, SmoothedLoad], known: Measured, purity: float) -> Kind:
    """What most of its work is: as seen undisturbed, otherwise by executors with some of the lock, otherwise by those in a crowd."""
    if purity > 0:
        return Kind.COMPUTING if purity >= COMPUTES else Kind.WAITING
    free = _majority((known.kinds.get(k, Kind.UNKNOWN), loads[k].busy) for k in loads if k not in known.held)
    if free is not Kind.UNKNOWN:
        return free
    return _majority((known.kinds.get(k, Kind.UNKNOWN), loads[k].busy) for k in loads)


def _majority(votes: Iterable[tuple[Kind, float]]) -> Kind:
    weight = {Kind.COMPUTING: 0.0, Kind.WAITING: 0.0}
    for kind, busy in votes:
        if kind in weight:
            weight[kind] += busy
    if not any(weight.values()):
        return Kind.UNKNOWN
    return max(weight, key=lambda k: (weight[k], k))
