"""What every algorithm does first: give a place to what has none, and make scaling decisions true.

Executors without a valid place (new topologies, lost or draining nodes) are dealt evenly, as Storm does and as T-Storm does for a topology
that has just been launched. Marked topologies are placed by minimal relocation. Only what is left is the algorithm's own business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, regrouped
from elastic.model.words import counted
from elastic.scheduler.base import ClusterView, Demand
from elastic.scheduler.decision import Decision, Reason, homes, same_places
from elastic.scheduler.minimal_relocation import Limits, relocate
from elastic.scheduler.round_robin import RoundRobinScheduler


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an algorithm starts from.

    Attributes:
        current: The assignments in force.
        places: The same with everything placed that could be; also of topologies that are not in the demands.
        asked: The demanded topologies.
        movable: Those of them that the algorithm may place anew: measured, not marked this time, and without executors on a
            node that is expected back.
        pinned: Executors of theirs that have to stay, because state does not go along.
        load: What was measured, as it would be with the executors in `places`.
    """

    current: Mapping[TopologyName, Assignment]
    places: Mapping[TopologyName, Assignment]
    asked: tuple[TopologyName, ...]
    movable: tuple[TopologyName, ...]
    pinned: frozenset[ExecutorKey]
    load: LoadView
    reasons: tuple[Reason, ...]

    @property
    def relocated(self) -> bool:
        """Whether a scaling decision has been made true."""
        return any(r.kind == "relocated" for r in self.reasons)

    def decision(
        self, *reasons: Reason, assignments: Mapping[TopologyName, Assignment] | None = None
    ) -> Decision:
        """The answer: what was prepared, overlaid by what the algorithm says."""
        result = {}
        for name in self.asked:
            new = (assignments or {}).get(name, self.places[name])
            old = self.current.get(name)
            if old is None:
                result[name] = replace(new, epoch=Epoch(1))
            else:
                result[name] = old if same_places(old, new) else replace(new, epoch=Epoch(old.epoch + 1))
        return Decision(result, (*self.reasons, *reasons))


def prepare(
    demands: Sequence[Demand],
    cluster: ClusterView,
    load: LoadView,
    current: Mapping[TopologyName, Assignment],
    *,
    capacity: float,
    worker_cores: float,
    measure: str,
    workers_per_node: int = 0,
    one_worker_a_node: bool = False,
) -> Prepared:
    """Place what has no place.

    Args:
        capacity, worker_cores, measure, workers_per_node: What minimal relocation has to keep to.
        one_worker_a_node: A topology that is new gets at most one worker on each node (T-Storm (2014), section IV.C).

    Raises:
        Refused: A demand with `rebalance` cannot be met.
    """
    limits = Limits(capacity, worker_cores, measure, workers_per_node)
    reasons: list[Reason] = []
    places = dict(current)
    marked = set()
    plain = []
    for demand in demands:
        name = demand.spec.name
        if demand.marked:
            demand = replace(demand, rebalance=False, spread=False)
            if name in places:
                places[name], why = relocate(demand, cluster, load, places, limits)
                reasons += why
                if why:
                    marked.add(name)
        elif one_worker_a_node and name not in current:
            used = {(s.node, s.slot) for a in places.values() for s in a.workers.values()}
            roomy = sum(any((n.id, i) not in used for i in range(n.slots)) for n in cluster.nodes if n.open)
            demand = replace(demand, workers=max(1, min(demand.workers, roomy)))
        plain.append(demand)
    dealt = RoundRobinScheduler().schedule(plain, cluster, places)
    for demand in plain:
        reasons += _said(demand.spec.name, places.get(demand.spec.name), dealt[demand.spec.name])
    places.update(dealt)
    asked = tuple(d.spec.name for d in demands)
    absent = {n.id for n in cluster.nodes if n.absent}
    movable = []
    for name in asked:
        executors = [*homes(places[name]), *places[name].unassigned]
        load = regrouped(load, name, executors)
        if name not in marked and not any(s.node in absent for s in places[name].workers.values()):
            movable.append(name)
    measured = {key.topology for key in load.executors}
    pinned = frozenset(
        ExecutorKey(d.spec.name, e)
        for d in plain
        if not d.movable and any(c.stateful for c in d.spec.components)
        for e in homes(places[d.spec.name])
        if d.pinned(e)
    )
    ready = tuple(n for n in movable if n in measured)
    return Prepared(current, places, asked, ready, pinned, load, tuple(reasons))


def _said(name: TopologyName, old: Assignment | None, new: Assignment) -> list[Reason]:
    """What round robin did."""
    if new is old:
        return []
    reasons = []
    was = {} if old is None else homes(old)
    moved = [e for e, w in new.executors if was.get(e) != w]
    if moved:
        nodes = {new.workers[w].node for e, w in new.executors if was.get(e) != w}
        reasons.append(
            Reason(
                "dealt",
                f"{counted(len(moved), 'executor')} of {name} without a place to stay: dealt evenly to {counted(len(nodes), 'node')}.",
                name,
                details={"executors": len(moved), "nodes": len(nodes)},
            )
        )
    if new.unassigned:
        reasons.append(
            Reason(
                "slots-lack",
                f"{name}: no slot is free for {counted(len(new.unassigned), 'executor')}. Add nodes or slots.",
                name,
                warning=True,
                details={"executors": len(new.unassigned)},
            )
        )
    return reasons
