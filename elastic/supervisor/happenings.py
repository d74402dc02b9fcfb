"""The events that a supervisor reports, in one place: kinds, severities and sentences."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping

from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId
from elastic.supervisor.decide import Life
from elastic.supervisor.ports import CANNOT_LOAD, WORKER_SESSION_LOST, WorkerExit

_EXITS = {
    CANNOT_LOAD: "its code bundle cannot be loaded",
    WORKER_SESSION_LOST: "it lost its session with coordination",
    -signal.SIGALRM: "it had not ended when its session with coordination was over (it stood still, or was busy)",
}


class Happenings:
    """Makes events of one node."""

    def __init__(self, node: NodeId) -> None:
        self._node = node

    def node(self, kind: str, message: str, severity: Severity = Severity.INFO) -> Event:
        return Event(time.time(), kind, message, severity, node=self._node)

    def worker(
        self,
        kind: str,
        life: Life,
        message: str,
        severity: Severity = Severity.INFO,
        details: Mapping[str, str | int | float] | None = None,
    ) -> Event:
        return Event(
            time.time(),
            kind,
            message,
            severity,
            topology=life.topology,
            worker=life.worker,
            node=self._node,
            details={"incarnation": life.incarnation, **(details or {})},
        )

    def started(self, life: Life, pid: int) -> Event:
        again = life.failures > 0
        return self.worker(
            "worker-restarted" if again else "worker-started",
            life,
            f"worker {life.worker} was started{' again' if again else ''}",
            details={"pid": pid, "failures": life.failures},
        )

    def stopped(self, life: Life, exit: WorkerExit) -> Event:
        how = "" if exit.code == 0 else f" ({exit})"
        return self.worker(
            "worker-stopped", life, f"worker {life.worker} has stopped{how}", details=_how(exit)
        )

    def went_back(self, life: Life) -> Event:
        return self.worker(
            "worker-went-back",
            life,
            f"worker {life.worker} has ended, as its topology goes back to a checkpoint; it is started again at once",
        )

    def lost(self, life: Life, exit: WorkerExit, pause: float, uptime: float) -> Event:
        why = f"{exit}: {_EXITS[exit.code]}" if exit.code in _EXITS else str(exit)
        again = "at once" if pause <= 0 else f"in {pause:g} s"
        details = {**_how(exit), "tail": exit.tail, "uptime": round(uptime, 3), "failures": life.failures}
        return self.worker(
            "worker-lost",
            life,
            f"worker {life.worker} has ended unasked ({why}); it is started again {again}",
            Severity.WARNING,
            details,
        )

    def not_started(self, life: Life, why: str, pause: float) -> Event:
        again = "at once" if pause <= 0 else f"in {pause:g} s"
        return self.worker(
            "worker-lost",
            life,
            f"worker {life.worker} could not be started ({first_line(why)}); it is tried again {again}",
            Severity.WARNING,
            {"tail": why, "failures": life.failures},
        )

    def store_lost(self, why: str, pause: float, failures: int) -> Event:
        again = "at once" if pause <= 0 else f"in {pause:g} s"
        return Event(
            time.time(),
            "store-lost",
            f"the state store of node {self._node} has ended unasked ({first_line(why)}); it is started again {again}",
            Severity.WARNING,
            node=self._node,
            details={"reason": why, "failures": failures, "retry_in": pause},
        )

    def broken(self, life: Life, exit: WorkerExit) -> Event:
        return self.worker(
            "bundle-failed",
            life,
            f"worker {life.worker} cannot load the code of topology {life.topology}: {last_line(exit.tail)}",
            Severity.ERROR,
            {**_how(exit), "traceback": exit.tail},
        )


def first_line(text: str) -> str:
    """What a message says before its remedy."""
    return text.partition("\n")[0]


def last_line(tail: str) -> str:
    """The last line that says something: of a traceback, the error itself."""
    return next(
        (line.strip() for line in reversed(tail.splitlines()) if line.strip()), "its log does not say why"
    )


def _how(exit: WorkerExit) -> dict[str, str | int | float]:
    return {"exit_code": exit.code} if exit.code >= 0 else {"signal": str(exit)}
