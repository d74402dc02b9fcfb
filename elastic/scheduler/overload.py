"""Whether something uses more than a scheduler may give away: T-Storm (2014), section IV.C, detects that and does not wait for its period.

It is looked at with every sample of the load, so it is no more than a few sums.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from elastic.model.assignment import Assignment
from elastic.model.ids import NodeId, TopologyName, WorkerId
from elastic.model.loadview import ExecutorKey, LoadView
from elastic.scheduler.base import ClusterView

RELIEF = 10.0
"""Seconds between two decisions because of overload: the period in which T-Storm (2014), section IV.C, takes new schedules."""


def excess(
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
    *,
    capacity: float,
    worker_cores: float,
    measure: str,
) -> float:
    """Cores by which open nodes, and workers, exceed what they may use.

    Args:
        capacity: The share of a node's, and of a worker's, cores that may be used.
        worker_cores: Cores that a worker can use; 0: no limit. An executor alone in its worker never exceeds it: no other place would help.
        measure: "cpu" or "busy".
    """
    nodes: dict[NodeId, list[float]] = {n.id: [] for n in cluster.nodes if n.open}
    over: list[float] = []
    limit = worker_cores * capacity if worker_cores else math.inf
    for name, assignment in current.items():
        workers: dict[WorkerId, list[float]] = defaultdict(list)
        for executor, worker in assignment.executors:
            found = load.executors.get(ExecutorKey(name, executor))
            workers[worker].append(0.0 if found is None else max(0.0, getattr(found, measure)))
        for worker, each in workers.items():
            if (node := assignment.workers[worker].node) in nodes:
                nodes[node] += each
            if len(each) > 1:
                over.append(math.fsum(each) - limit)
    over += [math.fsum(nodes[n]) - x.cores * capacity for n, x in load.nodes.items() if n in nodes]
    return math.fsum(x for x in over if x > 0)
