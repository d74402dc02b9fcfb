"""The port between the supervisor and its worker processes."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastic.model.events import Event
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.model.load import WorkerReport

CANNOT_LOAD = 203
"""A worker's exit code when its code bundle cannot be loaded: starting it again does not help,
unless a worker has run with it on the node before (`loading.py`). User code and libraries that end a process give it small numbers:
taken for one of those, such a worker would fail its whole topology."""
WORKER_SESSION_LOST = 204
"""A worker's exit code when its session with coordination is gone: no small number either, for the same reason."""
WORKER_WENT_BACK = 205
"""A worker's exit code when its topology goes back to a checkpoint: it is started again at once, and nothing is wrong with it."""
SESSION_LOST = 4
"""A supervisor's exit code when its session with coordination is gone."""


@dataclass(frozen=True, slots=True)
class WorkerLaunch:
    """What to start.

    Attributes:
        bundle: The unpacked code bundle.
        log: The file that takes the worker's output.
    """

    topology: TopologyName
    worker: WorkerId
    incarnation: Incarnation
    bundle: Path
    log: Path


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """How a worker process ended.

    Attributes:
        code: Its exit code; negative: the signal that ended it.
        tail: The last lines that it wrote, without the log of earlier lives.
    """

    code: int
    tail: str = ""

    def __str__(self) -> str:
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


class WorkerListener(Protocol):
    """Who is told about worker processes. Called on the launcher's thread; must not block."""

    def on_event(self, incarnation: Incarnation, event: Event) -> None: ...

    def on_report(self, incarnation: Incarnation, report: WorkerReport) -> None: ...

    def on_stacks(self, incarnation: Incarnation, text: str) -> None:
        """What its threads are doing, as it was asked by SIGUSR1."""

    def on_malformed(self, incarnation: Incarnation, what: str) -> None:
        """The worker sent something that is no message."""

    def on_exit(self, incarnation: Incarnation, exit: WorkerExit) -> None:
        """The process has ended; called once, after all that it sent."""


class RunningWorker(Protocol):
    """A worker process that was started. Signals to one that has ended do nothing. Thread-safe."""

    @property
    def pid(self) -> int: ...

    def tell(self, version: int) -> None:
        """A new version of its allocation is in the store. Never blocks; a worker that is behind reads the
        newest."""

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        """End it at once, with all that is in its process group."""


class WorkerLauncher(Protocol):
    def start(self, launch: WorkerLaunch, listener: WorkerListener) -> RunningWorker:
        """Start a worker process.

        Raises:
            EnvironmentProblem: It cannot be started.
        """

    def end_stray(self, pid: int, incarnation: Incarnation, timeout: float) -> bool:
        """End a process of this machine that an earlier supervisor started as this incarnation, and wait
        for its end.

        Returns:
            Whether there is no such process any more.
        """

    def close(self) -> None:
        """Kill all workers that still run, and wait for them. Safe to call twice."""
