"""What workers measure and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SET_BACK = 60.0
"""Seconds by which what is measured may be older than what is known of the same life: it has come before. What is older by more is of a
clock that was set back."""


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """One task's counters since its incarnation began; they only grow, except `queued` and `held`.

    Attributes:
        executed: Tuples applied.
        emitted: Tuples emitted, all streams.
        failed: Tuples whose `execute` raised.
        queued: Tuples in its queue now.
        held: Tuples that it has emitted to tasks that stand still, and that wait here until these go on.
        finished: Whether it has worked off all it will ever get.
        state: Bytes of state that it owns, about (see `elastic.worker.moving.state_sizes`); 0 when it has none, or when it is behind a
            `get_state` and the task has never moved.
        custom: What the component's own metrics say, by name. A spout's `offered` is special: the tuples per second that its source
            offers it, taken or not.
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
    state: int = 0
    held: int = 0


class PairLoad(NamedTuple):
    """What one task has sent to another since its incarnation began; the counters only grow.

    There are many of them in a report: a tuple is made and sent in a third of the time that a dataclass takes.

    Attributes:
        source, target: The tasks.
        bytes: Encoded, as far as it left the worker; 0 between two tasks of one worker, where tuples go by reference.
    """

    source: int
    target: int
    tuples: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """One executor's shares of wall time since the previous report, each 0 to 1; they add up to about 1.

    Attributes:
        busy: In user code and the framework's work for it.
        blocked: Waiting for room in a queue further down.
        idle: Waiting for input.
        cpu: Thread CPU seconds per second of wall time.
        capacity: Tuples that its queue may hold; 0 when unknown.
        ready: Seconds per second of wall time in which its thread could have run and got no core; 0 where the system does not say.
    """

    executor: str
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    cpu: float = 0.0
    capacity: int = 0
    ready: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says about itself, once a period.

    Attributes:
        time: Seconds since 1970.
        epoch: The assignment that it has carried out.
        drained: The newest drain generation whose marks have passed all of its tasks.
        rss: Resident memory, bytes.
        cpu: CPU seconds of the whole process per second of wall time.
        cores: CPUs that the process may use; 0 when unknown.
        pairs: What its tasks have sent, by pairs of tasks. One that has sent nothing may be left out.
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
    cores: float = 0.0
    pairs: tuple[PairLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node says about itself, once a period.

    Attributes:
        time: Seconds since 1970.
        cores: CPUs that its workers may use; a fraction where a quota says so.
        cpu: Cores in use by everything that runs there, since the report before.
        memory: Bytes in use by its workers; 0 when unknown.
        machine: Identifies the machine, when `cores` and `cpu` are those of all of it: nodes on one machine share them. "" when they are
            the node's own.
    """

    node: str
    time: float
    cores: float
    cpu: float = 0.0
    memory: int = 0
    machine: str = ""
