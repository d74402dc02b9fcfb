"""What was observed, in one piece: the input of every decision. Values only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from elastic.migration.record import Marked, MoveRecord, Phase, ReadMove, stage_of
from elastic.model.assignment import Assignment, NodeInfo, WorkerSlot
from elastic.model.checkpoints import Checkpoints
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    node_of,
    worker_of,
)
from elastic.model.records import Progress, TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.nimbus.observing.plans import Plan, relocated
from elastic.scheduler.base import ClusterView, Demand, NodeSlots
from elastic.scheduler.round_robin import natural

KILL_AT = "nimbus.kill_at"
"""In a state's settings: when to stop a topology that is being killed, seconds since 1970, if it has not
drained before."""
WORKERS = "nimbus.workers"
"""In a state's settings: how many workers were asked for by a rebalance."""
EXECUTORS = "nimbus.executors."
"""In a state's settings, with a component's name behind it: how many executors were asked for by a
rebalance."""

RUNNING = (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE)


def slot_of(worker: WorkerId) -> WorkerSlot:
    """The place in a worker's name."""
    return WorkerSlot(node_of(worker), int(worker.rpartition("/")[2]))


@dataclass(frozen=True)
class MoveFacts(ReadMove):
    """One move as coordination has it."""

    record: MoveRecord
    version: int
    marks: Mapping[Incarnation, Marked] = field(default_factory=dict)

    def unclosed(self, living: Collection[Incarnation]) -> list[WorkerId]:
        """The workers of these lives that take part in it and have not closed it."""
        return sorted(worker_of(i) for i, m in self.marks.items() if i in living and not m.marks.closed)

    @property
    def workers(self) -> set[WorkerId]:
        """All that take part, or have taken part."""
        return {worker_of(i) for i in (*self.record.participants, *self.marks)}


@dataclass(frozen=True)
class TopologyFacts:
    """One topology as coordination has it; versions are those of the values.

    Attributes:
        moves: Those that have a record, by number.
        latest: The number of the newest move; its version is -1 while there is no node for it.
        progress: What workers have done in the present generation.
        checkpoints: None: it takes none.
    """

    spec: TopologySpec
    state: TopologyState
    state_version: int
    assignment: Assignment | None = None
    assignment_version: int = 0
    workers: Mapping[WorkerId, WorkerInfo] = field(default_factory=dict)
    progress: Mapping[WorkerId, Progress] = field(default_factory=dict)
    moves: Mapping[Epoch, MoveFacts] = field(default_factory=dict)
    latest: int = 0
    latest_version: int = -1
    plan: Plan | None = None
    plan_version: int = -1
    checkpoints: Checkpoints | None = None
    checkpoints_version: int = -1

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

    @cached_property
    def moving(self) -> frozenset[int]:
        """Tasks of moves that have no outcome yet: who runs them is for the move to say."""
        return frozenset(t.task for m in self.moves.values() for t in m.record.tasks if not t.outcome)

    @cached_property
    def base(self) -> Assignment | None:
        """Who shall run what, as far as it is decided: the planned assignment, else the one in force, as moves that go on will leave it.

        Those are moves that were aborted too late for some of their tasks: nobody has asked for these to come back.
        """
        if self.plan is not None and not self.plan.halted:
            return self.plan.assignment
        result = self.assignment
        if result is None:
            return None
        for worker, tasks in self.beyond_return.items():
            result = relocated(result, tasks, worker, slot_of(worker), self.executors_wanted())
        return result

    @cached_property
    def beyond_return(self) -> dict[WorkerId, list[TaskId]]:
        """The tasks that will be in another worker whatever anybody asks for, by worker."""
        result: dict[WorkerId, list[TaskId]] = {}
        for _, move in sorted(self.moves.items()):
            marks = move.marks
            for task in move.record.tasks:
                if stage_of(task, move.record, marks, move.turn)[0] in (Phase.SAVED, Phase.RESTORED):
                    result.setdefault(worker_of(task.target), []).append(task.task)
        return result

    def seat(self, worker: WorkerId) -> Incarnation | None:
        """The living process of a worker that the assignment names."""
        info = self.workers.get(worker)
        if info is None or self.assignment is None or worker not in self.assignment.workers:
            return None
        return info.incarnation

    def begun(self, worker: WorkerId) -> bool:
        """Whether its living process has started what it was given first. Before that a task is at most about to run there."""
        info, done = self.workers.get(worker), self.progress.get(worker)
        return (
            info is not None and done is not None and done.incarnation == info.incarnation and done.epoch > 0
        )

    def undrained(self) -> tuple[WorkerId, ...]:
        """Assigned workers that the newest drain marks have not passed yet, or that a task is on its way from. What one has said before
        it was given more tasks says nothing of those."""
        if self.assignment is None:
            return ()
        wanted = self.state.drain, self.assignment.epoch
        passed = {w for w, p in self.progress.items() if p.drained >= wanted[0] and p.epoch >= wanted[1]}
        leaving = {worker_of(t.source) for m in self.moves.values() for t in m.record.tasks if not t.outcome}
        return tuple(
            w
            for w in sorted(self.assignment.workers)
            if w in leaving
            or (
                w not in passed
                and not all(
                    TaskId(t) in self.finished for e in self.assignment.executors_of(w) for t in e.tasks()
                )
            )
        )

    def behind(self, epoch: int) -> tuple[WorkerId, ...]:
        """Workers, assigned or still living, that have not carried out that epoch."""
        concerned = {*self.workers, *(self.assignment.workers if self.assignment is not None else ())}
        return tuple(sorted(w for w in concerned if w not in self.progress or self.progress[w].epoch < epoch))

    @property
    def idle(self) -> frozenset[WorkerId]:
        """Workers that are named for what the plan wants there, and that have no tasks. When that was given up, nobody waits for them."""
        if self.plan is None or self.assignment is None:
            return frozenset()
        return frozenset(self.plan.assignment.workers) - {w for _, w in self.assignment.executors}

    def workers_wanted(self) -> int:
        return int(self.state.settings.get(WORKERS, self.spec.workers))

    def executors_wanted(self) -> dict[ComponentId, int]:
        """Of every component."""
        settings = self.state.settings
        return {c.id: int(settings.get(EXECUTORS + c.id, c.executors)) for c in self.spec.components}

    def demand(self) -> Demand:
        """What it asks of the scheduler when nobody has asked for a change."""
        return Demand(self.spec, self.workers_wanted(), self.executors_wanted(), self.finished, movable=True)


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

    def claims(self) -> dict[TopologyName, Assignment]:
        """All assignments as they shall be. Each also names the workers of the one in force: their slots are not free yet."""
        result = dict(self.elsewhere)
        for name, t in self.topologies.items():
            base, written = t.base, t.assignment
            if base is None or written is None:
                continue
            result[name] = base
            if base is not written and not set(written.workers) <= set(base.workers):
                result[name] = replace(base, workers={**written.workers, **base.workers})
        return result

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

    def more_slots(self) -> str:
        """What gives those a slot that have none. More nodes help nobody while those that are wanted do not come."""
        coming = [n for n in sorted(self.wanted, key=natural) if n not in self.nodes and n not in self.drains]
        if not coming:
            return "add nodes with `elastic nodes add`"
        are, they = ("is", "it stays") if len(coming) == 1 else ("are", "they stay")
        return (
            f"{', '.join(coming)} {are} wanted and not there yet; if {they} away,"
            " the launcher's log (launcher.log in the cluster's directory) says why"
        )

    def draining(self, node: NodeId) -> bool:
        """Whether the node is to be emptied: it was asked for, or the node says so itself."""
        return node in self.drains or (node in self.nodes and self.nodes[node].draining)

    def missing(self) -> set[NodeId]:
        """Nodes that have executors and are not there."""
        return {s.node for a in self.assignments.values() for s in a.workers.values()} - set(self.nodes)

    def assigned_to(self, node: NodeId) -> tuple[WorkerId, ...]:
        """Workers that some assignment, or plan, gives to the node."""
        both = [*self.assignments.values(), *self.claims().values()]
        return tuple(sorted({w for a in both for w, s in a.workers.items() if s.node == node}))

    def living_on(self, node: NodeId) -> tuple[WorkerId, ...]:
        """Worker processes that are registered from the node."""
        return tuple(sorted(w for t in self.topologies.values() for w in t.workers if node_of(w) == node))

    def in_order(self) -> list[TopologyFacts]:
        """The topologies, those submitted first first."""
        return sorted(self.topologies.values(), key=lambda t: (t.state.submitted, t.name))
