"""What Nimbus answers when it is asked: facts from coordination and measurements from reports, side by side.

Rates are per second, over the time between a worker's two newest reports; 0 while there is only one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic.model.assignment import Assignment
from elastic.model.events import Event
from elastic.model.ids import ComponentId, NodeId, TopologyName, WorkerId
from elastic.model.load import WorkerReport
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.topology import TopologySpec

STEPS = ("prepared", "paused", "stopped", "saved", "restored", "begun", "resumed", "received")
"""The steps of a moving task, in order."""


@dataclass(frozen=True, slots=True)
class TopologySummary:
    """One line of `elastic list`.

    Attributes:
        id: Differs between two topologies that had the same name one after the other.
        submitted: Seconds since 1970.
        uptime: Seconds from submission until now or until it ended.
        tasks, executors, workers: How many it has; of executors and workers those that are assigned.
        unassigned: Executors that wait for a slot.
        reason: Why it failed or was killed; "" otherwise.
    """

    name: TopologyName
    id: str
    status: TopologyStatus
    submitted: float
    uptime: float
    tasks: int
    executors: int
    workers: int
    unassigned: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ComponentView:
    """One component while it runs: the sums over its tasks.

    Attributes:
        kind: "spout" or "bolt".
        executed, emitted, failed: Tuples since its workers' present lives began.
        queued: Tuples in its tasks' queues.
        held: Tuples that its tasks hold for others that stand still.
        executed_rate, emitted_rate, failed_rate: Tuples per second.
        busy, blocked: Mean share of its executors' wall time, 0 to 1.
        finished: How many of its tasks have finished.
        custom: Its own metrics, summed over its tasks.
        state: Bytes of state that its tasks own, about; 0 when they have none, or it is not known.
    """

    id: ComponentId
    kind: str
    stateful: bool
    tasks: int
    executors: int
    executed: int = 0
    emitted: int = 0
    failed: int = 0
    queued: int = 0
    executed_rate: float = 0.0
    emitted_rate: float = 0.0
    failed_rate: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    finished: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)
    state: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class ExecutorView:
    """One executor: where it is, and what it does.

    Attributes:
        id: `component[first-last]`.
        worker, node: Its place; "" while it waits for a slot.
        busy, blocked, idle: Shares of wall time, 0 to 1.
        cpu: Thread CPU seconds per second.
        queued: Tuples in its tasks' queues.
        held: Tuples that its tasks hold for others that stand still.
        executed_rate, emitted_rate: Tuples per second.
        state: Bytes of state that its tasks own, about.
    """

    id: str
    component: ComponentId
    first: int
    last: int
    worker: str = ""
    node: str = ""
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    cpu: float = 0.0
    queued: int = 0
    executed_rate: float = 0.0
    emitted_rate: float = 0.0
    state: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class PairView:
    """What one executor sends another.

    Attributes:
        source, target: `component[first-last]`.
        tuples: Per second.
        bytes: Per second, encoded; 0 between two executors of one worker, where tuples go by reference.
    """

    source: str
    target: str
    tuples: float
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class TrafficView:
    """What the executors of a topology send each other, per second.

    Attributes:
        tuples: All.
        between_workers, between_nodes: How many of these go to another worker, and to another node.
        bytes: Encoded, of those that go to another worker.
        pairs: Who sends most to whom: the heaviest first, a bounded number.
    """

    tuples: float = 0.0
    between_workers: float = 0.0
    between_nodes: float = 0.0
    bytes: float = 0.0
    pairs: tuple[PairView, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker: its place and its present life.

    Attributes:
        alive: Whether a process is registered there.
        incarnation, pid, address: Of the living process; "" and 0 when there is none.
        epoch: The assignment that it has carried out, by its own record.
        drained: The newest drain generation that it has passed.
        executors: How many are assigned to it.
        uptime: Seconds since Nimbus first saw this life of it; 0 when none lives.
        restarts: Lives that came after the first, as far as this Nimbus has seen them.
        rss: Resident memory, bytes; 0 before the first report.
        cpu: CPU seconds per second, by the newest report.
        reported: When its newest report was made, seconds since 1970; 0 before the first.
    """

    worker: WorkerId
    node: NodeId
    slot: int
    alive: bool = False
    incarnation: str = ""
    pid: int = 0
    address: str = ""
    epoch: int = 0
    drained: int = 0
    executors: int = 0
    uptime: float = 0.0
    restarts: int = 0
    rss: int = 0
    cpu: float = 0.0
    reported: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """The checkpoints of a topology.

    Attributes:
        interval: Seconds from one to the next; 0.0: it takes none.
        number: Of the newest complete one; 0: there is none yet.
        began: When that began, seconds since 1970.
        seconds: How long it took.
        size: Bytes of its snapshots, without copies.
        taking: The number of the one that is being taken; 0: none is.
        failed: Why the one after the newest complete one was given up, or "".
        back: How often the topology has gone back.
    """

    interval: float = 0.0
    number: int = 0
    began: float = 0.0
    seconds: float = 0.0
    size: int = 0
    taking: int = 0
    failed: str = ""
    back: int = 0


@dataclass(frozen=True, slots=True)
class TopologyDetail:
    """Everything about one topology.

    Attributes:
        components: In the order of the specification.
        executors: Sorted by component and first task, those that wait included.
        workers: Those of the assignment, and those that still live without being assigned; sorted.
        reports: The newest report of each worker, sorted by worker; over the network without pairs of tasks where these are very many.
        errors: The newest errors of user code and workers, oldest first (bounded).
        waits: Sentences that say why something does not run, or is not carried out yet.
        moves: Those under way, that which began last first.
        moved: What the moves that have ended came to.
        policy: What resizes it by load, with its parameters; "" when nothing does.
        decided: What was decided by load about it, and about nodes since it is there, why, and what that led to; the newest, oldest first.
        traffic: What its executors send each other.
        checkpoints: How far back it would go after a crash.
    """

    summary: TopologySummary
    spec: TopologySpec
    state: TopologyState
    assignment: Assignment
    components: tuple[ComponentView, ...] = ()
    executors: tuple[ExecutorView, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    reports: tuple[WorkerReport, ...] = ()
    errors: tuple[Event, ...] = ()
    waits: tuple[str, ...] = ()
    moves: tuple[MoveView, ...] = ()
    moved: MoveTotals = field(default_factory=lambda: MoveTotals())
    policy: str = ""
    decided: tuple[Event, ...] = ()
    traffic: TrafficView = field(default_factory=TrafficView)
    checkpoints: CheckpointView = field(default_factory=CheckpointView)


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One line of `elastic nodes list`.

    Attributes:
        alive: Whether its supervisor is registered.
        wanted: Whether the launcher is to keep it running.
        draining: It is being emptied, and gets nothing new.
        slots, used: How many workers it may run, and how many are assigned to it.
        workers: Those, sorted.
        host, kind, generation, address, pid: As in NodeInfo; empty while it is not alive.
        cores: CPUs that its workers may use, its part of a machine that several nodes share; 0.0 before it has reported.
        cpu: Cores of them in use, by its newest report.
        memory: Bytes in use by its workers; 0 when unknown.
    """

    id: NodeId
    alive: bool
    wanted: bool
    draining: bool
    slots: int
    used: int
    workers: tuple[WorkerId, ...] = ()
    host: str = ""
    kind: str = ""
    generation: int = 0
    address: str = ""
    pid: int = 0
    cores: float = 0.0
    cpu: float = 0.0
    memory: int = 0


PLANNED = "planned"
"""The state of what is to move and is in no move yet."""


@dataclass(frozen=True, slots=True)
class TaskMoveView:
    """One task's part of a move.

    Attributes:
        source, target: The workers that it goes from and to; no target: there is no place for it yet.
        phase: "waiting", "preparing", "paused", "saved", "restored", "committed", "rolled back", "lost" (its state went with the stores, or
            with the process that it was in: it starts anew without it) or "started anew" (the same of a task that has no state).
        reason: Why it was rolled back or lost, or why another attempt was made; "" otherwise.
        size: Bytes that were saved; 0 before that.
        times: When it was prepared, paused, stopped, saved, restored, begun, resumed and received (those behind it have got the first
            from its new place), seconds since 1970, as far as it came. The clocks are those of the processes in which it happened.
        pause: Seconds that the emitters held tuples for it: the longest; 0.0 when none had to, or it is not over.
        gap: Seconds between the last that those behind it got from its old place and the first from its new one: the longest in any
            worker; 0.0 where that is not known: nobody is behind it, or nothing came.
    """

    task: int
    component: ComponentId
    source: WorkerId
    target: WorkerId
    phase: str
    attempt: int = 1
    reason: str = ""
    size: int = 0
    times: Mapping[str, float] = field(default_factory=dict)
    pause: float = 0.0
    gap: float = 0.0

    @property
    def moved(self) -> bool:
        """Whether it runs in another worker than before, with its state."""
        return self.phase == "committed" and self.source != self.target

    @property
    def came_back(self) -> bool:
        """Whether it was saved, and runs in the worker that it came from: the one that it was to go to could not restore it, or ended."""
        return self.phase == "committed" and self.source == self.target

    @property
    def went_back(self) -> bool:
        """Whether it did not move, and no state of it is lost."""
        return self.phase in ("rolled back", "started anew")


@dataclass(frozen=True, slots=True)
class MoveView:
    """A move of some tasks of one topology, under way or ended. What `elastic moves` lists.

    Attributes:
        epoch: Its number within the topology.
        why: What caused it, for people.
        state: "planned" (of what is to move and is in no move yet: `epoch` is 0), "running", "aborting", "closing" (all tasks have
            their outcome; what is left is removed, and the last measurements come in) or "ended".
        began, ended: Seconds since 1970; 0.0 while it is not so.
        waits: Sentences that say what it waits for.
    """

    topology: TopologyName
    epoch: int
    why: str
    state: str
    began: float
    ended: float
    tasks: tuple[TaskMoveView, ...]
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveTotals:
    """What the moves of a topology that have ended came to, since this Nimbus leads. All of it only grows.

    Attributes:
        moves: How many there were.
        committed, rolled_back, lost: Tasks by outcome: at their new place; where they were before, or without a state begun anew; begun
            anew without the state that they had.
        size: Bytes of what was saved of the tasks that are at their new place.
        pauses: For how many of those the pause was not longer than so many seconds: by bound, written as a number; `+Inf` counts all.
        pause_sum, pause_max: Seconds of all their pauses, and of the longest.
        gaps, gap_sum, gap_max: The same of the gaps that those behind them saw, as far as these are known.
    """

    moves: int = 0
    committed: int = 0
    rolled_back: int = 0
    lost: int = 0
    size: int = 0
    pauses: Mapping[str, int] = field(default_factory=dict)
    pause_sum: float = 0.0
    pause_max: float = 0.0
    gaps: Mapping[str, int] = field(default_factory=dict)
    gap_sum: float = 0.0
    gap_max: float = 0.0


@dataclass(frozen=True, slots=True)
class SizedView:
    """A running topology, and the policy that resizes it: "" when none does."""

    name: TopologyName
    policy: str


@dataclass(frozen=True, slots=True)
class ElasticityView:
    """Who resizes and places topologies by load.

    Attributes:
        policy: The cluster's, with its parameters; "": none.
        scheduler: With its parameters; "": what has a place stays there.
        period: Seconds between two of its decisions; 0.0 without one.
        nodes: When nodes are asked for and returned: parameters that differ from the defaults, "--enabled" at least; "": never.
        topologies: Those that run, by name.
        policies, schedulers: The names that can be chosen.
        generators: Schedule generators that are connected; the first one decides. None: Nimbus does.
        decided: What was decided by load about nodes and about placements of several topologies, and why; the newest, oldest first.
    """

    policy: str = ""
    scheduler: str = ""
    period: float = 0.0
    nodes: str = ""
    topologies: tuple[SizedView, ...] = ()
    policies: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    generators: tuple[str, ...] = ()
    decided: tuple[Event, ...] = ()
