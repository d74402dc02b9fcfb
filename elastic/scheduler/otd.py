"""Online Task Deployment: N-Storm/OTD (2024), section 4. One move a cycle, towards balance first and less traffic then.

Workers are classified by load. Case 1: high and low ones exist: an executor goes from the highest to a low one (algorithm 1). Case 2: high
ones and no low one: a warning that resources lack. Case 3: low ones and no high one: the move that takes most traffic off the network
(algorithm 2), if it takes off more than a threshold. Case 4: neither: nothing. How it was read: docs/schedulers.md.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from elastic.errors import ConfigError
from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName, worker_id
from elastic.model.loadview import LoadView
from elastic.model.parameters import parameter
from elastic.model.words import counted
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.instance import MEASURES, Home, Instance, cores_of
from elastic.scheduler.prepare import prepare

EPSILON = 1e-9
RELIEF = 0.5
"""An executor that uses less than this share of what its worker's executors use on average is no relief to it."""


@dataclass(frozen=True, slots=True)
class OtdParams:
    """What can be set."""

    threshold: float = parameter(
        0.0,
        minimum=0.0,
        help="Tuples per second between nodes that a move must save at least (threshold of algorithm 2).",
    )
    share: float = parameter(
        0.01,
        minimum=0.0,
        maximum=1.0,
        help="The same as a share of all tuples between executors; the larger one holds.",
    )
    high: float = parameter(
        0.8,
        minimum=0.01,
        maximum=1.0,
        help="A worker that uses more than this share of its cores has high load.",
    )
    low: float = parameter(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="A worker that uses less than this share of its cores has low load.",
    )
    queue_high: float = parameter(
        0.9, minimum=0.0, maximum=1.0, help="A worker with a queue that is fuller than this has high load."
    )
    queue_low: float = parameter(
        0.5,
        minimum=0.0,
        maximum=1.0,
        help="A worker has low load only if no queue of its is fuller than this.",
    )
    worker_cores: float = parameter(
        1.0,
        minimum=0.0,
        help="Cores that one worker can use: 1 because of the interpreter lock. 0: as many as the node has.",
    )
    workers_per_node: int = parameter(
        0, minimum=0, help="Workers that a topology may have on one node. 0: as many as it has cores."
    )
    measure: str = parameter("cpu", choices=MEASURES, help="Which load of an executor counts.")

    def __post_init__(self) -> None:
        for low, high, names in (
            (self.low, self.high, ("low", "high")),
            (self.queue_low, self.queue_high, ("queue-low", "queue-high")),
        ):
            if low >= high:
                raise ConfigError(
                    f"scheduler 'otd': --{names[0]} {low:g} is not below --{names[1]} {high:g}",
                    remedy="leave room between them for workers with normal load",
                )


class Class(StrEnum):
    """How loaded a worker is."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, or a free slot that can become one.

    Attributes:
        topology: Whose it is.
        home: Its node and slot.
        members: Indices of its executors; none in a free slot.
        cores: What its executors use.
        use: The share of what it can use that is used: its own, or its node's, whichever is larger.
        fill: Its fullest queue, 0 to 1.
    """

    topology: TopologyName
    home: Home
    members: tuple[int, ...]
    cores: float
    use: float
    fill: float

    @property
    def node(self) -> int:
        return self.home[0]


@dataclass(frozen=True, slots=True)
class Move:
    """A best-fit pair: the executor (by index) and the worker it goes to, with the change of allocation score it brings."""

    executor: int
    source: Worker
    target: Worker
    asc: float


def allocation_score(p: Instance, executor: int, node: int, node_of: Sequence[int | None]) -> float:
    """Equation 4: what the executor exchanges within the node minus what it exchanges with others, if it were on the node."""
    return math.fsum(t if node_of[j] == node else -t for j, t in p.rate[executor].items())


def score_change(
    p: Instance, executor: int, source: int, target: int, node_of: Sequence[int | None]
) -> float:
    """Equation 5: what it exchanges with the target node minus what it exchanges with the source node.

    It is half the change of equation 4, and exactly the traffic between nodes that the move saves.
    """
    return math.fsum(
        (t if node_of[j] == target else 0.0) - (t if node_of[j] == source else 0.0)
        for j, t in p.rate[executor].items()
    )


class Deployment:
    """One cycle.

    Args:
        instance: The problem; everybody is at home in it.
    """

    def __init__(self, instance: Instance, params: OtdParams) -> None:
        self.p, self.params = instance, params
        self.node_of = instance.home_nodes
        self.node_load = [n.load for n in instance.nodes]
        members: dict[tuple[TopologyName, Home], list[int]] = defaultdict(list)
        for i, home in enumerate(instance.home):
            if home is not None:
                self.node_load[home[0]] += instance.load[i]
                members[instance.keys[i].topology, home].append(i)
        self.workers = [self._worker(t, home, tuple(members[t, home])) for t, home in sorted(members)]
        held = {home for _, home in members}
        self.slots = {
            k: [s for s in n.free if (k, s) not in held] for k, n in enumerate(instance.nodes) if n.open
        }
        self.have = Counter((w.topology, w.node) for w in self.workers)
        by_class: dict[Class, list[Worker]] = {c: [] for c in Class}
        for worker in self.workers:
            by_class[self.classify(worker)].append(worker)
        self.high = sorted(by_class[Class.HIGH], key=lambda w: (-w.use, -w.fill, w.topology, w.home))
        self.low = [w for w in by_class[Class.LOW] if instance.nodes[w.node].open]
        self._lowest: dict[TopologyName, dict[int, Worker]] = {}
        self._widest: dict[TopologyName, float] = {}

    def _worker(self, topology: TopologyName, home: Home, members: tuple[int, ...]) -> Worker:
        cores = math.fsum(self.p.load[i] for i in members)
        fill = max((self.p.fill[i] for i in members), default=0.0)
        return Worker(topology, home, members, cores, self.use(home[0], cores, self.node_load[home[0]]), fill)

    def use(self, node: int, cores: float, node_load: float) -> float:
        """The share of its cores that a worker would use there."""
        have = self.p.nodes[node].cores
        own = min(self.params.worker_cores or have, have)
        return max(cores / own if own else math.inf, node_load / have if have else math.inf)

    def classify(self, worker: Worker) -> Class:
        """By CPU utilisation and queues: high if either is, low if both are."""
        if worker.use > self.params.high + EPSILON or worker.fill > self.params.queue_high + EPSILON:
            return Class.HIGH
        if worker.use < self.params.low - EPSILON and worker.fill <= self.params.queue_low + EPSILON:
            return Class.LOW
        return Class.NORMAL

    def empty(self, topology: TopologyName) -> list[Worker]:
        """Free slots that the topology may use: low-load workers without executors, one for each node."""
        result = []
        for k, free in self.slots.items():
            most = self.params.workers_per_node or cores_of(self.p.nodes[k].cores)
            if free and self.have[topology, k] < most:
                worker = self._worker(topology, (k, free[0]), ())
                if self.classify(worker) is Class.LOW:
                    result.append(worker)
        return result

    def lowest(self, topology: TopologyName) -> dict[int, Worker]:
        """`min_load_workers`: on each node the low-load worker of the topology with the lowest load, or a free slot."""
        if topology not in self._lowest:
            best: dict[int, Worker] = {}
            mine = [w for w in self.low if w.topology == topology]
            for w in [*mine, *self.empty(topology)]:
                if w.node not in best or _rank(w) < _rank(best[w.node]):
                    best[w.node] = w
            self._lowest[topology] = {k: best[k] for k in sorted(best)}
            self._widest[topology] = max((self.spare(w) for w in best.values()), default=-math.inf)
        return self._lowest[topology]

    def spare(self, target: Worker) -> float:
        """Cores that may come to it from another node without giving it high load."""
        high, have = self.params.high, self.p.nodes[target.node].cores
        own = min(self.params.worker_cores or have, have)
        return min(high * own - target.cores, high * have - self.node_load[target.node])

    def fits(self, executor: int, target: Worker) -> bool:
        """Whether the target would not have high load afterwards."""
        load, k = self.p.load[executor], target.node
        if self.node_of[executor] != k:
            return load <= self.spare(target) + EPSILON
        return self.use(k, target.cores + load, self.node_load[k]) <= self.params.high + EPSILON

    def helps(self, executor: int, source: Worker) -> bool:
        """Whether its going away could relieve the source.

        Who uses much less than the others there takes nothing away, however well it would stand elsewhere. Full queues are a symptom
        where the CPU is short. Where it is not, whoever has the full queue takes it along, and where the worker uses little it is not
        the worker that is slow.
        """
        p = self.params
        if source.use > p.high + EPSILON:
            return self.p.load[executor] >= RELIEF * source.cores / len(source.members) - EPSILON
        return source.use >= p.low and self.p.fill[executor] <= p.queue_high

    def balance(self, source: Worker) -> Move | None:
        """Algorithm 1 for one high-load worker: the pair with the greatest change of allocation score; of equals, the target with
        the lowest load."""
        best: Move | None = None
        targets = self.lowest(source.topology)
        widest = self._widest[source.topology]
        own = targets.get(source.node)
        for i in source.members:
            wide = self.p.load[i] <= widest + EPSILON
            if self.p.pinned[i] or not self.helps(i, source) or not (wide or own is not None):
                continue
            near = self.with_nodes(i)
            here = near.get(source.node, 0.0)
            room = targets.values() if wide else [own] if own is not None else []
            for w in room:
                if w.home == source.home or not self.fits(i, w):
                    continue
                if w.node == source.node and not w.members and len(source.members) == 1:
                    continue  # the same worker by another name
                move = Move(i, source, w, near.get(w.node, 0.0) - here)
                if best is None or (-move.asc, *_rank(w)) < (-best.asc, *_rank(best.target)):
                    best = move
        return best

    def with_nodes(self, executor: int) -> dict[int, float]:
        """Tuples per second that it exchanges with each node: the sums of equation 5."""
        result: dict[int, float] = defaultdict(float)
        for j, tuples in self.p.rate[executor].items():
            node = self.node_of[j]
            if node is not None:
                result[node] += tuples
        return result

    def optimise(self) -> Move | None:
        """Algorithm 2 without its threshold: the pair with the greatest change of allocation score, if that is positive."""
        p, best = self.p, None
        by_home = {w.home: w for w in self.workers}
        for i, home in enumerate(p.home):
            if home is None or p.pinned[i] or not p.rate[i]:
                continue
            targets = self.lowest(p.keys[i].topology)
            near = self.with_nodes(i)
            here = near.get(home[0], 0.0)
            for k in sorted(near):
                asc = near[k] - here
                if k == home[0] or asc <= EPSILON or (best is not None and asc <= best.asc):
                    continue
                target = targets.get(k)
                if target is not None and self.fits(i, target):
                    best = Move(i, by_home[home], target, asc)
        return best


def _rank(w: Worker) -> tuple[float, float, bool, Home]:
    """The order of targets: the lowest load first, one that exists before a free slot."""
    return w.use, w.cores, not w.members, w.home


def decide(
    demands: Sequence[Demand],
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
    params: OtdParams,
) -> Decision:
    """One cycle of OTD. See `elastic.scheduler.decision.Decide`. At most one executor moves, beside those that had no valid place."""
    ready = prepare(
        demands,
        cluster,
        load,
        current,
        capacity=params.high,
        worker_cores=params.worker_cores,
        measure=params.measure,
        workers_per_node=params.workers_per_node,
    )
    if ready.relocated:
        return ready.decision()  # that was this cycle's change
    if not ready.movable:
        return ready.decision(Reason("nothing-measured", "Nothing was measured yet: OTD waits."))
    p = Instance(ready.movable, cluster, ready.load, ready.places, params.measure, ready.pinned)
    cycle = Deployment(p, params)
    before = p.cut(p.home_nodes)
    move, reasons = _case(p, cycle, params)
    homes = list(p.home)
    if move is not None:
        homes[move.executor] = move.target.home
        after = p.cut([None if h is None else h[0] for h in homes])
        reasons.append(_told(p, move, before, after))
    return ready.decision(*reasons, assignments=p.assignments(homes, current))


def _case(p: Instance, cycle: Deployment, params: OtdParams) -> tuple[Move | None, list[Reason]]:
    high, low = cycle.high, cycle.low
    if high:
        for source in high:
            move = cycle.balance(source)
            if move is not None:
                text = (
                    f"Case 1: {counted(len(high), 'worker')} with high load, {_name(p, move.source)} the highest that can be relieved "
                    f"({_use(source)}); {len(low)} with low load."
                )
                return move, [
                    Reason("case-1", text, source.topology, details={"high": len(high), "low": len(low)})
                ]
        return None, [_lack(p, cycle, high)]
    open_low = [*low] or [w for t in sorted(p.movable) for w in cycle.empty(t)]
    if not open_low:
        text = f"Case 4: of {counted(len(cycle.workers), 'worker')} none has high or low load."
        return None, [Reason("case-4", text, details={"workers": len(cycle.workers)})]
    move = cycle.optimise()
    threshold = max(params.threshold, params.share * p.traffic)
    asc = 0.0 if move is None else move.asc
    verdict = "more" if asc > threshold else "not more"
    text = (
        f"Case 3: no worker has high load, {counted(len(low), 'worker')} low load. The best move saves {asc:,.0f} tuples/s between nodes, "
        f"{verdict} than the threshold of {threshold:,.0f}."
    )
    details: dict[str, str | int | float] = {"asc": asc, "threshold": threshold, "low": len(low)}
    return (move if asc > threshold else None), [Reason("case-3", text, details=details)]


def _lack(p: Instance, cycle: Deployment, high: Sequence[Worker]) -> Reason:
    """Case 2, or case 1 without a pair that helps."""
    worst = high[0]
    room = [
        w
        for t in sorted({w.topology for w in high})
        for w in cycle.lowest(t).values()
        if w.home != worst.home
    ]
    if not room:
        why = "Case 2: there is no worker or slot with low load that its topology could use"
    elif not any(cycle.helps(i, worst) for i in worst.members):
        why = "its queues are full although its cores are not: it is not short of CPU but of executors"
    elif len(worst.members) == 1:
        why = "its only executor would bring the load along to any other worker"
    else:
        why = f"none of its {len(worst.members)} executors fits into a worker with low load without making that one's high"
    return Reason(
        "resources-lack",
        f"{counted(len(high), 'worker')} with high load, {_name(p, worst)} the highest ({_use(worst)}), and {why}. "
        "Add nodes, slots or executors.",
        worst.topology,
        warning=True,
        details={"high": len(high), "use": worst.use, "fill": worst.fill},
    )


def _told(p: Instance, move: Move, before: float, after: float) -> Reason:
    key = p.keys[move.executor]
    return Reason(
        "moved",
        f"{key} goes from {_name(p, move.source)} ({_use(move.source)}) to {_name(p, move.target)} ({_use(move.target)}): "
        f"it uses {p.load[move.executor]:.2f} cores, the allocation score changes by {move.asc:+,.0f}, "
        f"traffic between nodes {before:,.0f} -> {after:,.0f} tuples/s.",
        key.topology,
        details={"asc": move.asc, "before": before, "after": after, "cores": p.load[move.executor]},
    )


def _name(p: Instance, w: Worker) -> str:
    return worker_id(w.topology, p.nodes[w.node].id, w.home[1])


def _use(w: Worker) -> str:
    return f"{w.use:.0%} of its cores" + (f", queue {w.fill:.0%} full" if w.fill else "")
