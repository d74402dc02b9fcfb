"""Where executors go in a simulation when a scheduler of the product places them: asked as Nimbus asks it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic.elasticity.infrastructure import Node
from elastic.errors import Refused
from elastic.model.assignment import Assignment
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.decision import Reason, same_places
from elastic.scheduler.overload import RELIEF
from elastic.scheduler.registry import choose
from elastic.scheduler.round_robin import RoundRobinScheduler


@dataclass(frozen=True, slots=True)
class Placed:
    """What a scheduler decided when its period was over.

    Attributes:
        time: Seconds since the beginning.
        took: Seconds of CPU time that the decision cost here.
        moved: Tasks that went to another worker.
        reasons: Its own.
    """

    time: float
    took: float
    moved: int
    reasons: tuple[Reason, ...]


class Scheduled:
    """A scheduler with its parameters, in place of `elastic.simulation.placement.place`.

    Args:
        line: "tstorm --gamma 2", as `elastic scheduler set` takes it.
        period: Seconds between two decisions; 0: as suits the scheduler.

    Raises:
        ConfigError: There is no such scheduler, or a parameter is wrong.
    """

    def __init__(self, line: str, period: float = 0.0) -> None:
        self._choice = choose(line)
        self._period = period or self._choice.kind.period
        self._last = 0.0

    @property
    def processes(self) -> bool:
        """Whether it leaves it to policies how many workers there are."""
        return not self._choice.kind.workers

    def due(self, current: Assignment, nodes: Sequence[Node], view: LoadView) -> bool:
        """Whether it is to place everything anew: a period is over, or capacities are exceeded."""
        since = view.time - self._last
        if since >= self._period:
            return True
        return since >= RELIEF and self._choice.excess(_cluster(nodes), view, _claims(current)) > 0

    def place(self, demand: Demand, current: Assignment, nodes: Sequence[Node], view: LoadView) -> Assignment:
        """Places for what has none, and for what a scaling decision changed: relocating little, and evenly if that changes nothing."""
        cluster, claims = _cluster(nodes), _claims(current)
        name, even = demand.spec.name, RoundRobinScheduler()
        if not claims or current.unassigned or any(n.draining for n in nodes):
            return even.schedule([demand], cluster, claims)[name]
        try:
            marked = self._choice.decide([replace(demand, marked=True)], cluster, view, claims)
            desired = marked.assignments[name]
            if same_places(replace(desired, workers=current.workers), current):
                evenly = replace(demand, rebalance=True, spread=True)
                desired = even.schedule([evenly], cluster, claims)[name]
        except Refused:
            return current
        return desired

    def again(
        self, demand: Demand, current: Assignment, nodes: Sequence[Node], view: LoadView
    ) -> tuple[Assignment, Placed]:
        """Everything anew, by what was measured. The assignment is `current` itself when nothing changes."""
        self._last = view.time
        name, claims = demand.spec.name, _claims(current)
        began = time.thread_time()
        decision = self._choice.decide([demand], _cluster(nodes), view, claims)
        took = time.thread_time() - began
        moved = len(decision.relocated(claims).get(name, ()))
        return decision.assignments[name], Placed(view.time, took, moved, decision.reasons)


def _cluster(nodes: Sequence[Node]) -> ClusterView:
    return ClusterView(tuple(NodeSlots(n.id, n.slots, draining=n.draining) for n in nodes if n.alive))


def _claims(current: Assignment) -> dict[TopologyName, Assignment]:
    return {current.topology: current} if current.executors or current.unassigned else {}
