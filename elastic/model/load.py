"""What workers measure and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """One task's counters since its incarnation began; they only grow, except `queued`.

    Attributes:
        executed: Tuples applied.
        emitted: Tuples emitted, all streams.
        failed: Tuples whose `execute` raised.
        queued: Tuples in its queue now.
        finished: Whether it has worked off all it will ever get.
        custom: What the component's own metrics say, by name.
    """

    task: int
    component: str
    executor: str
    executed: int = 0
    emitted: int = 0
    failed: int = 0
    queued: int = 0
    finished: bool = False
    custom: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """One executor's shares of wall time since the previous report, each 0 to 1; they add up to about 1.

    Attributes:
        busy: In user code and the framework's work for it.
        blocked: Waiting for room in a queue further down.
        idle: Waiting for input.
        cpu: Thread CPU seconds per second of wall time.
    """

    executor: str
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    cpu: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says about itself, once a period.

    Attributes:
        time: Seconds since 1970.
        epoch: The assignment that it has carried out.
        drained: The newest drain generation whose marks have passed all of its tasks.
        rss: Resident memory, bytes.
    """

    topology: str
    worker: str
    incarnation: str
    time: float
    epoch: int
    drained: int = 0
    rss: int = 0
    cpu: float = 0.0
    tasks: tuple[TaskLoad, ...] = ()
    executors: tuple[ExecutorLoad, ...] = ()
