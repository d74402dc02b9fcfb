"""A scheduler's question as plain data, so that another process can answer it (the schedule generator of T-Storm (2014), section IV.A).

`ask` takes apart what `Decide` is given, `answer` puts it together, decides and takes the decision apart, and `decision` reads that. What
comes out is what deciding in place would have given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.errors import ElasticError
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.loadview import ExecutorKey, LoadView, NodeLoad, SmoothedLoad, WorkerLoad
from elastic.model.topology import TopologySpec
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.registry import Choice, choose

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AskedTopology:
    """What one topology wants; see `Demand`."""

    spec: TopologySpec
    workers: int
    executors: Mapping[ComponentId, int]
    finished: tuple[int, ...]
    movable: bool


@dataclass(frozen=True, slots=True)
class MeasuredExecutor:
    """One executor's load."""

    topology: TopologyName
    executor: ExecutorId
    load: SmoothedLoad


@dataclass(frozen=True, slots=True)
class MeasuredWorker:
    """One worker's load; its executors by their places among those of the question."""

    worker: WorkerId
    cpu: float
    memory: float
    executors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """All that a decision depends on.

    Attributes:
        number: Says which question an answer is to.
        scheduler: With its parameters, as `choose` reads it.
        time: When the load was looked at, seconds since 1970.
        capacities: Of each measured node.
        sources, targets, rates: Pairs of executors (by their places in `executors`) and the tuples per second from one to the other.
    """

    number: int
    scheduler: str
    time: float
    topologies: tuple[AskedTopology, ...]
    nodes: tuple[NodeSlots, ...]
    current: tuple[Assignment, ...]
    capacities: Mapping[NodeId, NodeLoad]
    executors: tuple[MeasuredExecutor, ...]
    workers: tuple[MeasuredWorker, ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided.

    Attributes:
        assignments: Of the topologies for which something changes.
        failure: Why nothing could be decided; "" otherwise.
    """

    number: int
    assignments: tuple[Assignment, ...] = ()
    reasons: tuple[Reason, ...] = ()
    failure: str = ""


def ask(
    number: int,
    choice: Choice,
    demands: Sequence[Demand],
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
) -> Question:
    """The question that `choice.decide` would answer. Demands are those of a period: nothing is marked or to be rebalanced."""
    place: dict[ExecutorKey, int] = {key: i for i, key in enumerate(load.executors)}
    # A pair may name an executor that was not measured yet; no scheduler asks for its traffic.
    pairs = [(place[a], place[b], rate) for (a, b), rate in load.traffic.items() if a in place and b in place]
    return Question(
        number,
        str(choice),
        load.time,
        tuple(
            AskedTopology(d.spec, d.workers, d.executors, tuple(sorted(d.finished)), d.movable)
            for d in demands
        ),
        cluster.nodes,
        tuple(current.values()),
        load.nodes,
        tuple(MeasuredExecutor(k.topology, k.executor, x) for k, x in load.executors.items()),
        tuple(
            MeasuredWorker(w, x.cpu, x.memory, tuple(place[k] for k in x.executors if k in place))
            for w, x in load.workers.items()
        ),
        tuple(p[0] for p in pairs),
        tuple(p[1] for p in pairs),
        tuple(p[2] for p in pairs),
    )


def answer(question: Question) -> Answer:
    """Decide. What the scheduler raises is the answer's `failure`."""
    q = question
    keys = [ExecutorKey(m.topology, m.executor) for m in q.executors]
    pairs = zip(q.sources, q.targets, q.rates, strict=True)
    load = LoadView(
        {key: m.load for key, m in zip(keys, q.executors, strict=True)},
        {(keys[a], keys[b]): rate for a, b, rate in pairs},
        q.capacities,
        q.time,
        {
            w.worker: WorkerLoad(w.cpu, w.memory, tuple(keys[i] for i in w.executors if i < len(keys)))
            for w in q.workers
        },
    )
    demands = [
        Demand(t.spec, t.workers, t.executors, frozenset(map(TaskId, t.finished)), movable=t.movable)
        for t in q.topologies
    ]
    current = {a.topology: a for a in q.current}
    try:
        found = choose(q.scheduler).decide(demands, ClusterView(q.nodes), load, current)
        changed = tuple(a for name, a in found.assignments.items() if a is not current.get(name))
        return Answer(q.number, changed, found.reasons)
    except ElasticError as error:
        return Answer(q.number, failure=error.message)
    except Exception as error:  # whatever a plug-in's scheduler does: who asks hears of it, and need not wait
        log.exception("scheduler %s has failed", q.scheduler)
        return Answer(
            q.number, failure=f"scheduler {q.scheduler} has failed: {type(error).__name__}: {error}"
        )


def decision(
    found: Answer, demands: Sequence[Demand], current: Mapping[TopologyName, Assignment]
) -> Decision | None:
    """The decision in an answer; None when it is not one about these topologies."""
    asked = {d.spec.name for d in demands}
    if not found.reasons or not {a.topology for a in found.assignments} <= asked:
        return None
    placed = {name: current[name] for name in asked if name in current}
    placed.update((a.topology, a) for a in found.assignments)
    return Decision(placed, found.reasons) if placed.keys() == asked else None
