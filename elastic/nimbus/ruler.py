"""What the balancer needs of a reign, by the requests that people make as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elastic.coordination import paths
from elastic.coordination.base import Create, Delete, Operation, Set
from elastic.model.assignment import Assignment
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import ComponentId, NodeId, TopologyName
from elastic.model.records import ElasticitySettings
from elastic.model.views import MoveView
from elastic.nimbus.balancing.remembering import NodesMemory, TopologyMemory
from elastic.nimbus.observing.facts import Facts
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests import node_requests, placement_requests
from elastic.scheduler.base import Demand


class ReignRuler:
    """See `elastic.nimbus.balancing.balance_port.Ruler`."""

    def __init__(self, reign: Reign) -> None:
        self._reign = reign
        self.rules = reign.rules

    def wait_changed(self, seen: int, timeout: float) -> int:
        mirror = self._reign.mirror
        mirror.wait_for(lambda: self._reign.over or mirror.revision != seen, timeout)
        return mirror.revision

    def wait_asked(self, seen: int) -> int:
        mirror = self._reign.mirror
        mirror.wait_asked(lambda: self._reign.over or mirror.asked != seen)
        return mirror.asked

    def facts(self) -> Facts:
        return self._reign.facts()

    def facts_now(self) -> Facts:
        with self._reign.lock:
            return self._reign.refresh()

    def settings(self) -> ElasticitySettings:
        return self._reign.mirror.elasticity

    def tell(self, event: Event) -> None:
        self._reign.tell(event)

    def adopt(
        self,
        name: str,
        desired: Assignment,
        why: str,
        executors: Mapping[ComponentId, int] | None = None,
        workers: int | None = None,
    ) -> bool:
        return placement_requests.adopt(self._reign, name, desired, why, executors=executors, workers=workers)

    def even(self, demand: Demand, facts: Facts) -> Assignment:
        return self._reign.scheduler.schedule([demand], facts.cluster, facts.claims())[demand.spec.name]

    def moves(self, name: TopologyName) -> tuple[MoveView, ...]:
        return self._reign.move_log.views(name)

    def add_nodes(self, count: int) -> None:
        node_requests.add_nodes(self._reign, count, None, "", 0)

    def drain_node(self, node: NodeId) -> None:
        node_requests.drain_node(self._reign, node, 0, False)

    def recall(self) -> tuple[dict[TopologyName, TopologyMemory], NodesMemory]:
        found = {}
        for name in map(TopologyName, self._reign.coordination.children(paths.MEMORIES) or ()):
            value, _ = self._reign.read(paths.memory(name), TopologyMemory)
            # What nobody can read any more is nothing to go on with, and is removed like what is left of a topology that has gone.
            found[name] = value or TopologyMemory("", 0.0)
        nodes, _ = self._reign.read(paths.NODES_MEMORY, NodesMemory)
        return found, nodes or NodesMemory()

    def remember(self, topologies: Mapping[TopologyName, TopologyMemory], nodes: NodesMemory | None) -> None:
        values: dict[str, object] = {paths.memory(name): value for name, value in topologies.items()}
        if nodes is not None:
            values[paths.NODES_MEMORY] = nodes
        with self._reign.lock:
            self._reign.commit([self._written(path, encode(value)) for path, value in sorted(values.items())])

    def forget(self, topologies: Iterable[TopologyName]) -> None:
        with self._reign.lock:
            there = [p for p in map(paths.memory, topologies) if self._reign.coordination.get(p) is not None]
            if there:
                self._reign.commit([Delete(p) for p in there])

    def _written(self, path: str, data: bytes) -> Operation:
        return Create(path, data) if self._reign.coordination.get(path) is None else Set(path, data)
