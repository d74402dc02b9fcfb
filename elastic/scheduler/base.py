"""The port: a pure function from what is wanted, what there is and what runs, to what shall run.

A scheduler has no clock, thread or randomness, changes nothing that it is given, and gives the same answer
for the same question. Whoever calls it writes the answer to coordination, where a version check refuses it
if the question has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName
from elastic.model.topology import TopologySpec


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """A living node, as far as scheduling is concerned.

    Attributes:
        slots: Workers may run in the slots 0 to `slots` - 1, one each, whatever their topology.
        draining: It gets nothing new; what can move away does.
        evict: What is there must go even if it loses its state or finds no other place. Only together with
            `draining`.
        absent: It is expected back in a moment: it keeps what it has, and gets nothing new.
    """

    id: NodeId
    slots: int
    draining: bool = False
    evict: bool = False
    absent: bool = False

    @property
    def open(self) -> bool:
        """Whether it may get more."""
        return not self.draining and not self.absent


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The living nodes; one that is not listed runs nothing."""

    nodes: tuple[NodeSlots, ...] = ()


@dataclass(frozen=True, slots=True)
class Demand:
    """What one topology wants.

    Attributes:
        executors: How many each component shall have; those that are not named: as in the specification.
        workers: How many workers it shall have.
        finished: Tasks that have finished: they hold no state that could be lost.
        rebalance: Make the numbers of executors and workers true now, or refuse. Without it the executors
            that exist are kept as they are, and only those that have no valid place get one.
        spread: With `rebalance`: also move workers without state to nodes that have fewer of this topology.
        marked: A scaling decision changed `executors` (the label of Elastic Storm (2016), section IV.C): algorithms
            (`elastic.scheduler.decision`) make them true, relocating as few tasks as possible.
        movable: State goes along with a task that changes its worker: nothing has to stay for its sake.
    """

    spec: TopologySpec
    workers: int
    executors: Mapping[ComponentId, int] = field(default_factory=dict)
    finished: frozenset[TaskId] = frozenset()
    rebalance: bool = False
    spread: bool = False
    marked: bool = False
    movable: bool = False

    def pinned(self, executor: ExecutorId) -> bool:
        """Whether it owns state that would be lost if it went to another worker."""
        if self.movable or not self.spec.component(executor.component).stateful:
            return False
        return any(TaskId(t) not in self.finished for t in executor.tasks())


class Scheduler(Protocol):
    """Decides placements."""

    def schedule(
        self, demands: Sequence[Demand], cluster: ClusterView, current: Mapping[TopologyName, Assignment]
    ) -> dict[TopologyName, Assignment]:
        """The assignment of each topology in `demands`.

        Args:
            demands: What to place, the first comes first where slots are scarce.
            cluster: The living nodes.
            current: All assignments that are in force, also of topologies that are not in `demands` (their
                slots are taken).

        Returns:
            An assignment for each demand: the very object of `current` when nothing changes, otherwise a new
            one whose epoch is one larger. Executors that find no slot are in its `unassigned`.

        Raises:
            Refused: A demand with `rebalance` cannot be met; the message says why.
        """
