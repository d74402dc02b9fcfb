"""Workers that are only pretended, for tests: they do what the test says."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field

from elastic.errors import EnvironmentProblem
from elastic.model.ids import Incarnation, WorkerId
from elastic.supervisor.ports import WorkerExit, WorkerLaunch, WorkerListener


@dataclass(slots=True, eq=False)
class PretendedWorker:
    """See `elastic.supervisor.ports.RunningWorker`.

    Attributes:
        told: The versions that it was told.
        signals: The signals that it was sent; a SIGKILL ends it.
        obedient: Whether it ends, with 0, on SIGTERM.
    """

    launch: WorkerLaunch
    listener: WorkerListener
    pid: int
    obedient: bool = True
    told: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, version: int) -> None:
        self.told.append(version)

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGTERM and self.obedient:
            self.end(0)

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.end(-signal.SIGKILL)

    def end(self, code: int, tail: str = "") -> None:
        """It has ended."""
        with self.lock:
            already, self.ended = self.ended, True
        if not already:
            self.listener.on_exit(self.launch.incarnation, WorkerExit(code, tail))


class MemoryLauncher:
    """See `elastic.supervisor.ports.WorkerLauncher`.

    Attributes:
        started: All workers that were ever started, in order.
        strays: Incarnations of earlier supervisors that were to be ended.
        failing: Why none can be started, or "".
        obedient: See `PretendedWorker`, for those that are started from now on.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.started: list[PretendedWorker] = []
        self.strays: list[Incarnation] = []
        self.failing = ""
        self.obedient = True

    def start(self, launch: WorkerLaunch, listener: WorkerListener) -> PretendedWorker:
        with self._changed:
            if self.failing:
                raise EnvironmentProblem(f"worker {launch.worker} cannot be started: {self.failing}")
            worker = PretendedWorker(launch, listener, 1_000_000 + len(self.started), self.obedient)
            self.started.append(worker)
            self._changed.notify_all()
            return worker

    def end_stray(self, pid: int, incarnation: Incarnation, timeout: float) -> bool:
        self.strays.append(incarnation)
        return True

    def close(self) -> None:
        for worker in list(self.started):
            if not worker.ended:
                worker.kill()

    def wait_for(self, worker: WorkerId, life: int = 1, timeout: float = 30.0) -> PretendedWorker:
        """Wait for the start number `life` of that worker.

        Raises:
            TimeoutError: It did not come.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._lives(worker)) >= life, timeout):
                raise TimeoutError(f"{worker} was started {len(self._lives(worker))} times, not {life} times")
            return self._lives(worker)[life - 1]

    def _lives(self, worker: WorkerId) -> list[PretendedWorker]:
        return [w for w in self.started if w.launch.worker == worker]
