"""What tasks do per second, from the reports of the workers that they are in one after the other: counters go along when a task moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastic.model.load import TaskLoad, WorkerReport


@dataclass(frozen=True, slots=True)
class Rated:
    """A task by the newest report that has it, and what it has done since the one before.

    Attributes:
        time: Of the report, seconds since 1970.
        worker, incarnation: Whose it is.
        executed, emitted, failed: Tuples per second; 0.0 while there is only one report, and when it has begun anew.
    """

    load: TaskLoad
    time: float
    worker: str
    incarnation: str
    executed: float = 0.0
    emitted: float = 0.0
    failed: float = 0.0


def rated(report: WorkerReport, known: Mapping[int, Rated]) -> dict[int, Rated]:
    """The tasks of a report.

    Args:
        report: Newer than all that is known of the same life of its worker.
        known: What is known of tasks, by number.
    """
    return {load.task: _rated(load, report, known.get(load.task)) for load in report.tasks}


def _rated(load: TaskLoad, report: WorkerReport, known: Rated | None) -> Rated:
    first = Rated(load, report.time, report.worker, report.incarnation)
    if known is None:
        return first
    seconds, old = report.time - known.time, known.load
    # By the clock of another machine, perhaps: it may be behind, for one report.
    if seconds <= 0 or load.executed < old.executed or load.emitted < old.emitted:
        return first
    return Rated(
        load,
        report.time,
        report.worker,
        report.incarnation,
        (load.executed - old.executed) / seconds,
        (load.emitted - old.emitted) / seconds,
        max(0, load.failed - old.failed) / seconds,
    )
