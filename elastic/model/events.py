"""What happened, for people and programs: the entries of the event stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        time: Seconds since 1970, by the clock of whoever noticed it.
        kind: A short stable name, for programs: `worker-lost`, `state-lost`, `topology-finished`, ...
            (`docs/events.md` lists them).
        message: One sentence for people.
        severity: How loud.
        topology, component, task, worker, node: What it happened to, as far as that is one thing.
        details: More, by name; numbers as numbers. A user's traceback is under `traceback`.
    """

    time: float
    kind: str
    message: str
    severity: Severity = Severity.INFO
    topology: str = ""
    component: str = ""
    task: int = 0
    worker: str = ""
    node: str = ""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
