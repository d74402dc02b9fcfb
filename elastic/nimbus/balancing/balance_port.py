"""What balancing needs of a reign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from elastic.model.assignment import Assignment
from elastic.model.events import Event
from elastic.model.ids import ComponentId, NodeId, TopologyName
from elastic.model.records import ElasticitySettings
from elastic.model.views import MoveView
from elastic.nimbus.balancing.remembering import NodesMemory, TopologyMemory
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts
from elastic.scheduler.base import Demand


class Ruler(Protocol):
    """See the module. What it cannot do it says by Superseded, Unavailable or Conflict."""

    rules: Rules

    def wait_changed(self, seen: int, timeout: float) -> int:
        """Wait until something in coordination has changed, the reign is over, or the time is.

        Args:
            seen: What the call before has returned; -1 at first.
            timeout: Seconds.
        """

    def wait_asked(self, seen: int) -> int:
        """Wait until it may be another thing that is asked of it, or the reign is over. That is who resizes and places, and what topologies
        there are, in what state; what moves and measurements change is not of it.

        Args:
            seen: What the call before has returned; -1 at first.
        """

    def facts(self) -> Facts: ...

    def facts_now(self) -> Facts:
        """The same, also where what is shown lags behind what this leader has written."""

    def settings(self) -> ElasticitySettings:
        """Who resizes and places, as coordination says."""

    def tell(self, event: Event) -> None: ...

    def adopt(
        self,
        name: str,
        desired: Assignment,
        why: str,
        executors: Mapping[ComponentId, int] | None = None,
        workers: int | None = None,
    ) -> bool:
        """See `elastic.nimbus.requests.placement_requests.adopt`."""

    def even(self, demand: Demand, facts: Facts) -> Assignment:
        """Storm's even placement, made true. Raises Refused."""

    def moves(self, name: TopologyName) -> tuple[MoveView, ...]:
        """Those of a topology, the newest first."""

    def add_nodes(self, count: int) -> None: ...

    def drain_node(self, node: NodeId) -> None: ...

    # --- what the next leader goes on with

    def recall(self) -> tuple[dict[TopologyName, TopologyMemory], NodesMemory]:
        """What leaders before have written down."""

    def remember(self, topologies: Mapping[TopologyName, TopologyMemory], nodes: NodesMemory | None) -> None:
        """Write down what has changed, in one transaction."""

    def forget(self, topologies: Iterable[TopologyName]) -> None:
        """Remove what was written down of them."""
