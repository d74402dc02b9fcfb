"""What Nimbus needs from outside beside coordination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from elastic.model.ids import NodeId, TopologyName


class NodeGateway(Protocol):
    """How Nimbus asks a node's supervisor. Thread-safe."""

    def missing_modules(self, address: str, modules: Sequence[str], timeout: float) -> tuple[str, ...]:
        """Those of `modules` that the node's Python cannot find.

        Args:
            address: `NodeInfo.address`.
            modules: Names of top-level modules.
            timeout: Seconds.

        Raises:
            Unavailable: The node did not answer in time.
        """


class MemoryNodeGateway:
    """A gateway for tests and for everything in one process: knows what each address lacks.

    Args:
        lacking: Modules that cannot be found, by address; an address that is not named lacks nothing.
    """

    def __init__(self, lacking: Mapping[str, Sequence[str]] | None = None) -> None:
        self.lacking = dict(lacking or {})

    def missing_modules(self, address: str, modules: Sequence[str], timeout: float) -> tuple[str, ...]:
        lacks = self.lacking.get(address, ())
        return tuple(m for m in modules if m in lacks)


class StateCleaning(Protocol):
    """How Nimbus empties the nodes' state stores after a move. Thread-safe."""

    def clean(
        self, topology: TopologyName, epoch: int, tasks: Iterable[int], nodes: Iterable[NodeId]
    ) -> Sequence[NodeId]:
        """Delete what these nodes' stores hold of the move's tasks, and refuse what may still come of it. Blocks, with a bound.

        Returns:
            Nodes that were out of reach: they collect it when the record has gone, or when they come back.
        """

    def nodes_changed(self) -> None:
        """Nodes have come or gone."""

    def close(self) -> None:
        """Calls under way end. Safe to call twice."""


class MemoryStateCleaning:
    """For tests, and where there are no state stores: remembers what it was asked."""

    def __init__(self) -> None:
        self.cleaned: list[tuple[TopologyName, int, tuple[int, ...], tuple[NodeId, ...]]] = []
        self.closed = False

    def clean(
        self, topology: TopologyName, epoch: int, tasks: Iterable[int], nodes: Iterable[NodeId]
    ) -> Sequence[NodeId]:
        self.cleaned.append((topology, epoch, tuple(tasks), tuple(nodes)))
        return ()

    def nodes_changed(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
