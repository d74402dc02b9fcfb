"""What was observed, in one piece: the input of every decision. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.ids import ComponentId, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.scheduler.base import ClusterView, Demand, NodeSlots

KILL_AT = "nimbus.kill_at"
"""In a state's settings: when to stop a topology that is being killed, seconds since 1970, if it has not
drained before."""
WORKERS = "nimbus.workers"
"""In a state's settings: how many workers were asked for by a rebalance."""
EXECUTORS = "nimbus.executors."
"""In a state's settings, with a component's name behind it: how many executors were asked for by a
rebalance."""

RUNNING = (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE)


def node_of(worker: WorkerId) -> NodeId:
    """The node in a worker's name."""
    return NodeId(worker.rpartition("@")[2].rpartition("/")[0])


@dataclass(frozen=True)
class TopologyFacts:
    """One topology as coordination has it; versions are those of the values."""

    spec: TopologySpec
    state: TopologyState
    state_version: int
    assignment: Assignment | None = None
    assignment_version: int = 0
    workers: Mapping[WorkerId, WorkerInfo] = field(default_factory=dict)
    progress: Mapping[WorkerId, Progress] = field(default_factory=dict)

    @property
    def name(self) -> TopologyName:
        return self.spec.name

    @property
    def running(self) -> bool:
        return self.state.status in RUNNING

    @property
    def kill_at(self) -> float | None:
        """When to stop it, if it is being killed."""
        value = self.state.settings.get(KILL_AT)
        return float(value) if value is not None else None

    @cached_property
    def finished(self) -> frozenset[TaskId]:
        """Tasks that have finished, in whatever life of whatever worker."""
        return frozenset(TaskId(t) for p in self.progress.values() for t in p.finished)

    @property
    def all_finished(self) -> bool:
        return len(self.finished) >= self.spec.task_count

    @property
    def failed(self) -> str:
        """Why an executor gave up, or ""."""
        return next((p.failed for _, p in sorted(self.progress.items()) if p.failed), "")

    @property
    def trace(self) -> str:
        """The traceback of `failed`, or "": known as soon as the failure is, whatever way the events take."""
        return next((p.trace for _, p in sorted(self.progress.items()) if p.failed), "")

    def undrained(self) -> tuple[WorkerId, ...]:
        """Assigned workers that the newest drain marks have not passed yet."""
        if self.assignment is None:
            return ()
        return tuple(
            w
            for w in sorted(self.assignment.workers)
            if not (w in self.progress and self.progress[w].drained >= self.state.drain)
            and not all(
                TaskId(t) in self.finished for e in self.assignment.executors_of(w) for t in e.tasks()
            )
        )

    def behind(self, epoch: int) -> tuple[WorkerId, ...]:
        """Workers, assigned or still living, that have not carried out that epoch."""
        concerned = {*self.workers, *(self.assignment.workers if self.assignment is not None else ())}
        return tuple(sorted(w for w in concerned if w not in self.progress or self.progress[w].epoch < epoch))

    def workers_wanted(self) -> int:
        return int(self.state.settings.get(WORKERS, self.spec.workers))

    def executors_wanted(self) -> dict[ComponentId, int]:
        """Of every component."""
        settings = self.state.settings
        return {c.id: int(settings.get(EXECUTORS + c.id, c.executors)) for c in self.spec.components}

    def demand(self) -> Demand:
        """What it asks of the scheduler when nobody has asked for a change."""
        return Demand(self.spec, self.workers_wanted(), self.executors_wanted(), self.finished)


@dataclass(frozen=True)
class Facts:
    """Everything that a decision may depend on.

    Attributes:
        now: Seconds since 1970.
        nodes: The living ones.
        drains: Nodes to be emptied; the value says whether state there may be lost.
        expected: Nodes that are gone, and until when they keep what they have.
        elsewhere: Assignments of topologies about which not everything is known yet: their slots are taken.
    """

    now: float
    nodes: Mapping[NodeId, NodeInfo] = field(default_factory=dict)
    wanted: Mapping[NodeId, WantedNode] = field(default_factory=dict)
    drains: Mapping[NodeId, bool] = field(default_factory=dict)
    expected: Mapping[NodeId, float] = field(default_factory=dict)
    topologies: Mapping[TopologyName, TopologyFacts] = field(default_factory=dict)
    elsewhere: Mapping[TopologyName, Assignment] = field(default_factory=dict)

    @cached_property
    def assignments(self) -> dict[TopologyName, Assignment]:
        """All that are in force."""
        known = {n: t.assignment for n, t in self.topologies.items() if t.assignment is not None}
        return {**self.elsewhere, **known}

    @cached_property
    def cluster(self) -> ClusterView:
        """The nodes as the scheduler sees them."""
        view = [
            NodeSlots(
                n.id, n.slots, draining=n.draining or n.id in self.drains, evict=self.drains.get(n.id, False)
            )
            for n in self.nodes.values()
        ]
        used = [s for a in self.assignments.values() for s in a.workers.values()]
        for id, until in self.expected.items():
            slots = [s.slot + 1 for s in used if s.node == id]
            if id not in self.nodes and until > self.now and slots:
                view.append(NodeSlots(id, max(slots), absent=True))
        return ClusterView(tuple(view))

    def missing(self) -> set[NodeId]:
        """Nodes that have executors and are not there."""
        return {s.node for a in self.assignments.values() for s in a.workers.values()} - set(self.nodes)

    def assigned_to(self, node: NodeId) -> tuple[WorkerId, ...]:
        """Workers that some assignment gives to the node."""
        return tuple(
            sorted(w for a in self.assignments.values() for w, s in a.workers.items() if s.node == node)
        )

    def living_on(self, node: NodeId) -> tuple[WorkerId, ...]:
        """Worker processes that are registered from the node."""
        return tuple(sorted(w for t in self.topologies.values() for w in t.workers if node_of(w) == node))

    def in_order(self) -> list[TopologyFacts]:
        """The topologies, those submitted first first."""
        return sorted(self.topologies.values(), key=lambda t: (t.state.submitted, t.name))
