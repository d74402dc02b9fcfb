"""Who runs what, where. Nimbus writes it, supervisors copy it to their nodes, workers carry it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId


@dataclass(frozen=True, slots=True, order=True)
class ExecutorId:
    """A thread that runs the tasks `first`..`last` (both included) of one component."""

    component: ComponentId
    first: TaskId
    last: TaskId

    def tasks(self) -> range:
        """Its task numbers, ascending."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.component}[{self.first}-{self.last}]"


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """A worker process's place."""

    node: NodeId
    slot: int


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """Tasks whose states ended with one life of a worker."""

    incarnation: Incarnation
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True)
class Assignment:
    """The placement of one topology.

    Attributes:
        epoch: Grows with every change; what carries an older one is stale.
        workers: Each worker's place.
        executors: Each executor's worker. Their ranges cover every task of the topology exactly once, except
            tasks that cannot be placed because no slot is free: those are in `unassigned`.
        unassigned: Executors that wait for a slot.
        lost: States that moves have lost with processes that have died. That has been said, and whoever begins such a task anew finds
            nothing else that tells. Until another move brings the task a state.
    """

    topology: TopologyName
    epoch: Epoch
    workers: Mapping[WorkerId, WorkerSlot] = field(default_factory=dict)
    executors: tuple[tuple[ExecutorId, WorkerId], ...] = ()
    unassigned: tuple[ExecutorId, ...] = ()
    lost: tuple[Lost, ...] = ()

    def executors_of(self, worker: WorkerId) -> tuple[ExecutorId, ...]:
        """The executors of one worker, sorted."""
        return tuple(sorted(e for e, w in self.executors if w == worker))

    def place_of(self) -> dict[TaskId, WorkerId]:
        """Each assigned task's worker. The dictionary is the caller's."""
        return self._places.copy()

    @cached_property
    def _places(self) -> dict[TaskId, WorkerId]:
        return {TaskId(t): w for e, w in self.executors for t in e.tasks()}


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node that offers slots to run workers in.

    Attributes:
        id: The node's name, unique in the cluster; kept when its host starts it again.
        host: The name or address that others reach it by.
        slots: How many workers it may run.
        generation: Which start of the node this is; grows.
        kind: What hosts it ("process" or "spark").
        draining: It keeps running until its workers have gone elsewhere, and gets no new ones.
        address: `host:port` of its node service (logs, code checks).
        store: Where its state store answers, as `statestore.address.StoreAddress` reads it; "" while it has none, as when it is
            being started again.
        store_life: How often its state store has begun to serve.
    """

    id: NodeId
    host: str
    slots: int
    generation: int
    kind: str
    draining: bool = False
    address: str = ""
    pid: int = 0
    store: str = ""
    store_life: int = 0
