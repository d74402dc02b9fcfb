"""Nodes that are being drained and do not get empty, because there is no other place for what is there."""

from __future__ import annotations

from collections.abc import Iterator

from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId, TopologyName, WorkerId, node_of
from elastic.nimbus.observing.facts import Facts, TopologyFacts

Kept = dict[NodeId, tuple[WorkerId, ...]]
"""By node: the workers that stay there."""


def kept(t: TopologyFacts, facts: Facts) -> Kept:
    """What stays on nodes that are being drained: no place was found for it, or it would be on its way."""
    wanted = t.plan.assignment if t.plan is not None else t.assignment
    if wanted is None or not t.running:
        return {}
    found: dict[NodeId, set[WorkerId]] = {}
    for _, worker in wanted.executors:
        if node_of(worker) in facts.nodes and facts.draining(node_of(worker)):
            found.setdefault(node_of(worker), set()).add(worker)
    return {n: tuple(sorted(workers)) for n, workers in sorted(found.items())}


def waits(t: TopologyFacts, facts: Facts) -> list[str]:
    """Sentences for people."""
    return [sentence(node, workers) for node, workers in kept(t, facts).items()]


def sentence(node: NodeId, workers: tuple[WorkerId, ...]) -> str:
    """Of one node."""
    return f"node {node} is being drained, and {no_place(workers)}"


def no_place(workers: tuple[WorkerId, ...]) -> str:
    """The part of it that says why."""
    return f"no other place is free for {', '.join(workers)}; add nodes with `elastic nodes add`"


def told(t: TopologyFacts, node: NodeId, workers: tuple[WorkerId, ...], now: float) -> Event:
    """The same as an event."""
    return Event(
        now,
        "node-drain-waits",
        f"topology {t.name}: {sentence(node, workers)}",
        Severity.WARNING,
        topology=t.name,
        node=node,
        details={"workers": " ".join(workers)},
    )


class Stays:
    """Says it once, for as long as it lasts. Not thread-safe."""

    def __init__(self) -> None:
        self._said: dict[TopologyName, Kept] = {}

    def news(self, facts: Facts) -> Iterator[Event]:
        """What has not been said.

        Args:
            facts: From which nothing follows any more: where there is a place, the plan has it.
        """
        before, self._said = self._said, {}
        for name, t in facts.topologies.items():
            if found := kept(t, facts):
                self._said[name] = found
            for node, workers in found.items():
                if before.get(name, {}).get(node) != workers:
                    yield told(t, node, workers, facts.now)
