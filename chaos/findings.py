"""What the checker finds in a record: nouns alone. Imports nothing of elastic."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = ("lost", "doubled", "reordered", "forgotten", "mixed")
"""Kinds of faults, in the order in which they are told."""
MOST = 1000
"""Faults of a kind and key that are told one by one; the others are counted."""


@dataclass
class Hole:
    """Numbers `first` to `last` of a key are missing: after an arrival at `after`, before one at `before` (0: the end)."""

    first: int
    last: int
    after: int
    before: int


@dataclass
class Again:
    """A number at which something was wrong, and when it came: it, or a later one, had come (doubled, reordered); or the state that it came
    by was none that there has ever been (mixed)."""

    n: int
    at: int


@dataclass
class Forgotten:
    """At `at` a state had counted `count` instead of `expected`; the arrival before was at `after`.

    Attributes:
        hole: How many numbers are missing between the two.
        task, sink: By whom it came: whose state that was, and who noted it down.
    """

    count: int
    expected: int
    after: int
    at: int
    hole: int
    task: int
    sink: int


@dataclass
class Recount:
    """A sink's life began with `already` arrivals instead of `expected`: with its first one at `first`, when the last of the life before
    had been at `after`."""

    sink: int
    life: str
    already: int
    expected: int
    after: int
    first: int

    def __str__(self) -> str:
        return f"sink {self.sink}: {self.life} begins with {self.already}, not {self.expected}"


@dataclass
class Key:
    """What became of one key.

    Attributes:
        tasks, sinks: Every task that its tuples came through: those named in the arrivals, and those that noted them down. One each, as
            the tasks of a component are what they are.
        emitted: As its spout says; -1: it doesn't.
        gap: The longest time between two arrivals, ns.
        more: Faults that are not told one by one.
    """

    key: str
    tasks: list[int] = field(default_factory=list)
    sinks: list[int] = field(default_factory=list)
    arrived: int = 0
    emitted: int = -1
    gap: int = 0
    first: int = 0
    last: int = 0
    lost: list[Hole] = field(default_factory=list)
    doubled: list[Again] = field(default_factory=list)
    reordered: list[Again] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)
    mixed: list[Again] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str, found: Any) -> None:
        """One fault more."""
        told: list[Any] = getattr(self, kind)
        if len(told) < MOST:
            told.append(found)
        else:
            self.more[kind] = self.more.get(kind, 0) + 1

    def number(self, kind: str) -> int:
        """How many there are of a kind; of lost ones, numbers."""
        if kind == "lost":
            return sum(h.last - h.first + 1 for h in self.lost)
        return len(getattr(self, kind)) + self.more.get(kind, 0)


@dataclass
class Report:
    """Everything that was found."""

    keys: dict[str, Key] = field(default_factory=dict)
    files: int = 0
    lives: int = 0
    arrived: int = 0
    overlaps: list[str] = field(default_factory=list)
    recounts: list[Recount] = field(default_factory=list)
    strayed: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    torn: int = 0

    def number(self, kind: str) -> int:
        """How many there are of a kind, of all keys."""
        return sum(k.number(kind) for k in self.keys.values())

    @property
    def open(self) -> list[str]:
        return sorted(k.key for k in self.keys.values() if k.emitted < 0)

    @property
    def good(self) -> bool:
        """Everything that was emitted arrived once and in order, and that can be said of all of it."""
        wrong = any(map(self.number, KINDS)) or self.open or self.strayed or self.invented
        return bool(self.keys) and not (wrong or self.overlaps or self.recounts or self.unknown)

    def summary(self) -> dict[str, int | bool]:
        return {
            "good": self.good,
            "files": self.files,
            "lives": self.lives,
            "keys": len(self.keys),
            "arrived": self.arrived,
            **{kind: self.number(kind) for kind in KINDS},
            "overlaps": len(self.overlaps),
            "recounts": len(self.recounts),
            "strayed": len(self.strayed),
            "invented": len(self.invented),
            "open": len(self.open),
            "unknown": len(self.unknown),
            "torn": self.torn,
        }

    def full(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {**asdict(self), "summary": self.summary(), "open": self.open}
