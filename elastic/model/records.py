"""What lies in coordination beside spec and assignment: the durable facts that recovery is a function of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastic.model.checkpoints import Taken
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId


class TopologyStatus(StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    """Spouts are not asked for tuples; what is under way is worked off."""
    KILLED = "killed"
    """Being stopped; removed when its workers are gone."""
    FINISHED = "finished"
    """All spouts were exhausted and everything has been worked off; workers are gone, the record stays for a while."""
    FAILED = "failed"
    """An executor gave up (too many errors); the reason is in the events."""


@dataclass(frozen=True, slots=True)
class TopologyState:
    """What is wanted of a topology.

    Attributes:
        status: See TopologyStatus.
        id: Differs between two topologies that had the same name one after the other.
        drain: Grows with each `deactivate`; spouts send a drain mark with this number through the streams.
        bundle: SHA-256 of the code bundle, hex.
        submitted: Seconds since 1970.
        ended: Seconds since 1970, or 0.
        reason: Why it failed or was killed, for people.
        settings: Changed while it runs, over those of the spec.
    """

    status: TopologyStatus
    id: str
    bundle: str
    submitted: float
    drain: int = 0
    ended: float = 0.0
    reason: str = ""
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)


MAX_NODES = MAX_SLOTS = 1000
"""Nodes that are started at a time at most, and workers that a node may run."""


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A node that should run.

    Attributes:
        slots: How many workers it may run.
        host: The kind of host to start it with ("process" or "spark"), or "" for the launcher's default.
    """

    slots: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class ElasticitySettings:
    """Who resizes and places topologies by load, as texts that `elastic policy`, `elastic scheduler` and `elastic nodes auto` read.

    Attributes:
        policy: For topologies that have no setting `elastic` of their own; "": they are left alone.
        scheduler: "": what has a place stays there.
        period: Seconds between two decisions of the scheduler; 0.0: as suits it.
        nodes: When nodes are asked for and returned; "": never.
    """

    policy: str = ""
    scheduler: str = ""
    period: float = 0.0
    nodes: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A living worker process.

    Attributes:
        address: Where its transport listens, as the transport writes it.
        unix: The same on a Unix socket, for workers with the same `boot`; or "".
        boot: Identifies the machine (and its file system) it runs on.
        generation: `Checkpoints.generation` that it belongs to; 0 without checkpoints. Those of different ones have nothing to say to each
            other.
    """

    worker: WorkerId
    incarnation: Incarnation
    address: str
    unix: str
    boot: str
    pid: int
    epoch: Epoch
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """Stateful tasks that one life of a worker has started, or has been about to.

    Attributes:
        since: The place among all writes of the one that said so first; 0 as long as they have not begun.
    """

    incarnation: Incarnation
    since: int
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a worker has done that must outlive its process.

    Attributes:
        incarnation: Which life of the worker says so.
        epoch: The newest assignment that it has carried out.
        held: Stateful tasks that this life has started, or an earlier life of this worker. Whoever starts one of them in another
            life has lost its state, unless it was handed over, and says so.
        finished: Tasks that have worked off all they will ever get: they are not started again.
        drained: The newest drain generation that has passed all of its tasks.
        failed: Why an executor gave up, or "".
        trace: The traceback of that, or "".
        generation: As in `WorkerInfo`. What an older one has done is not so any more.
        taken: Of the newest checkpoint that it has heard of.
    """

    incarnation: Incarnation
    epoch: Epoch
    held: tuple[Held, ...] = ()
    finished: tuple[int, ...] = ()
    drained: int = 0
    failed: str = ""
    trace: str = ""
    generation: int = 0
    taken: Taken | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the node-local store tells one worker: its part, and where everybody else is. (N-Storm 2019, section III.B.)

    Attributes:
        epoch: Of the assignment that it comes from.
        version: Grows with every write for this worker; also when only peers or status have changed.
        status: Of the topology.
        executors: (component, first task, last task) to run here; none while tasks are only on their way here, or gone. When to stop is
            for the supervisor to say.
        places: Each task's worker, as (first task, last task, worker).
        peers: The living incarnation of each worker of the topology.
    """

    topology: TopologyName
    worker: WorkerId
    epoch: Epoch
    version: int
    status: TopologyStatus
    drain: int
    executors: tuple[tuple[str, int, int], ...] = ()
    places: tuple[tuple[int, int, WorkerId], ...] = ()
    peers: tuple[WorkerInfo, ...] = ()
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)
