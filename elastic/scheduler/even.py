"""Storm's even scheduler as an algorithm among others: what has a valid place stays, whatever the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.model.parameters import parameter
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decision, Reason
from elastic.scheduler.instance import MEASURES
from elastic.scheduler.prepare import prepare


@dataclass(frozen=True, slots=True)
class EvenParams:
    """What can be set: what minimal relocation of marked topologies has to keep to."""

    capacity: float = parameter(
        0.9,
        minimum=0.01,
        maximum=1.0,
        help="The share of a node's, and of a worker's, cores that executors of a scaling decision may fill.",
    )
    worker_cores: float = parameter(
        1.0,
        minimum=0.0,
        help="Cores that one worker can use: 1 because of the interpreter lock. 0: as many as there are.",
    )
    measure: str = parameter("cpu", choices=MEASURES, help="Which load of an executor counts.")


def decide(
    demands: Sequence[Demand],
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
    params: EvenParams,
) -> Decision:
    """Places for what has none. See `elastic.scheduler.decision.Decide`."""
    ready = prepare(
        demands,
        cluster,
        load,
        current,
        capacity=params.capacity,
        worker_cores=params.worker_cores,
        measure=params.measure,
    )
    if ready.reasons:
        return ready.decision()
    return ready.decision(Reason("kept", "Everything has a valid place and stays there."))
