"""The checker: `python -m chaos.check [--json] FILE...`. Reads what the sinks and spouts wrote down, and nothing else.

It imports nothing of elastic, and nothing of the run: whether every number of every key arrived once and in order is said by the
record alone. A file is lines of text:

    S <sink task> <process> <already>        a life of a sink begins; how many arrivals its state knows of
    A <time> <key> <n> <task> <count>        number n of a key arrived, by way of that task, whose state had counted so many of the key
    E <key> <numbers>                        a spout has ended: the numbers 0 to numbers - 1 of the key were emitted

`time` is the machine's monotonic clock in nanoseconds. A last line without an end is not there: who wrote it was killed meanwhile.

What it finds, per key, in the order of arrival:

    lost        a number that never came, before a later one did or before the end that the spout wrote
    doubled     a number that came again
    reordered   a number that came after a later one
    forgotten   the count that came along is not the number of arrivals before: the state of the task was not that of the tuples before

and over all: `overlaps` (two lives of a sink task wrote at the same time), `recounts` (a sink's life began with another count of arrivals
than there are in the record), `open` (keys whose spout never wrote an end: lost tuples at their end cannot be seen), `unknown` (lines that
are none of these; `torn` are last lines without an end).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Hole:
    """Numbers `first` to `last` of a key are missing: after an arrival at `after`, before one at `before` (0: the end)."""

    first: int
    last: int
    after: int
    before: int


@dataclass
class Again:
    """A number that came at `at` though it, or a later one, had come."""

    n: int
    at: int


@dataclass
class Forgotten:
    """At `at` a state had counted `count` instead of `expected`; the arrival before was at `after`."""

    count: int
    expected: int
    after: int
    at: int


@dataclass
class Key:
    """What became of one key.

    Attributes:
        path: Every task that its tuples came through: those named in the lines, and the sinks.
        emitted: As its spout says; -1: it doesn't.
        gap: The longest time between two arrivals, ns.
    """

    key: str
    path: list[int] = field(default_factory=list)
    arrived: int = 0
    emitted: int = -1
    gap: int = 0
    first: int = 0
    last: int = 0
    lost: list[Hole] = field(default_factory=list)
    doubled: list[Again] = field(default_factory=list)
    reordered: list[Again] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return sum(h.last - h.first + 1 for h in self.lost)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.forgotten)


@dataclass
class Life:
    """One life of a sink's task: a file."""

    file: str
    task: int
    process: int
    already: int
    arrivals: list[tuple[int, str, int, int, int]] = field(default_factory=list)  # time, key, n, task, count


@dataclass
class Report:
    """Everything that was found."""

    keys: dict[str, Key] = field(default_factory=dict)
    files: int = 0
    lives: int = 0
    arrived: int = 0
    overlaps: list[str] = field(default_factory=list)
    recounts: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    torn: int = 0

    @property
    def lost(self) -> int:
        return sum(k.missing for k in self.keys.values())

    @property
    def doubled(self) -> int:
        return sum(len(k.doubled) for k in self.keys.values())

    @property
    def reordered(self) -> int:
        return sum(len(k.reordered) for k in self.keys.values())

    @property
    def forgotten(self) -> int:
        return sum(len(k.forgotten) for k in self.keys.values())

    @property
    def open(self) -> list[str]:
        return sorted(k.key for k in self.keys.values() if k.emitted < 0)

    @property
    def good(self) -> bool:
        """Everything that was emitted arrived once and in order, and that can be said of all of it."""
        wrong = self.lost or self.doubled or self.reordered or self.forgotten or self.open
        return bool(self.keys) and not (wrong or self.overlaps or self.recounts or self.unknown)

    def summary(self) -> dict[str, int | bool]:
        return {
            "good": self.good,
            "files": self.files,
            "lives": self.lives,
            "keys": len(self.keys),
            "arrived": self.arrived,
            "lost": self.lost,
            "doubled": self.doubled,
            "reordered": self.reordered,
            "forgotten": self.forgotten,
            "overlaps": len(self.overlaps),
            "recounts": len(self.recounts),
            "open": len(self.open),
            "unknown": len(self.unknown),
            "torn": self.torn,
        }


def check(files: Iterable[Path]) -> Report:
    """Read the files, and say what they say."""
    report = Report()
    lives: list[Life] = []
    ends: dict[str, int] = {}
    for file in sorted(files):
        report.files += 1
        _read(file, report, lives, ends)
    report.lives = len(lives)
    arrivals = sorted(
        ((at, index, key, n, task, count, life.task)
         for life in lives for index, (at, key, n, task, count) in enumerate(life.arrivals)),
        key=lambda a: (a[0], a[1]),
    )  # fmt: skip
    state: dict[str, _Follow] = {}
    for at, _, key, n, task, count, sink in arrivals:
        report.arrived += 1
        if key not in state:
            state[key] = _Follow(report.keys.setdefault(key, Key(key)))
        state[key].arrival(at, n, task, count, sink)
    for key, emitted in ends.items():
        if key not in state:
            state[key] = _Follow(report.keys.setdefault(key, Key(key)))
        state[key].key.emitted = emitted
    for follow in state.values():
        follow.end()
    _lives(lives, report)
    return report


class _Follow:
    """One key, arrival by arrival."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.came: set[int] = set()
        self.highest = -1
        self.holes: list[Hole] = []
        self.counted = 0

    def arrival(self, at: int, n: int, task: int, count: int, sink: int) -> None:
        key = self.key
        if key.arrived:
            key.gap = max(key.gap, at - key.last)
        else:
            key.first = at
        for way in (task, sink):
            if way not in key.path:
                key.path.append(way)
        if n in self.came:
            key.doubled.append(Again(n, at))
        elif n < self.highest:
            key.reordered.append(Again(n, at))
        else:
            if n > self.highest + 1:
                self.holes.append(Hole(self.highest + 1, n - 1, key.last, at))
            self.highest = n
        if count != self.counted:
            key.forgotten.append(Forgotten(count, self.counted, key.last, at))
        self.counted = count + 1
        self.came.add(n)
        key.arrived += 1
        key.last = at

    def end(self) -> None:
        key = self.key
        if key.emitted > self.highest + 1:
            self.holes.append(Hole(self.highest + 1, key.emitted - 1, key.last, 0))
        for hole in self.holes:  # what came late is not lost
            first = None
            for n in range(hole.first, hole.last + 2):
                missing = n <= hole.last and n not in self.came
                if missing and first is None:
                    first = n
                elif not missing and first is not None:
                    key.lost.append(Hole(first, n - 1, hole.after, hole.before))
                    first = None


def _read(file: Path, report: Report, lives: list[Life], ends: dict[str, int]) -> None:
    *lines, rest = file.read_text().split("\n")
    if rest:
        report.torn += 1
    life: Life | None = None
    for number, line in enumerate(lines, 1):
        kind, *words = line.split(" ")
        try:
            if kind == "A" and life is not None:
                at, key, n, task, count = words
                life.arrivals.append((int(at), key, int(n), int(task), int(count)))
            elif kind == "S":
                sink, process, already = map(int, words)
                life = Life(file.name, sink, process, already)
                lives.append(life)
            elif kind == "E":
                key, emitted = words
                if key in ends and ends[key] != int(emitted):
                    raise ValueError(f"{key} has ended twice")
                ends[key] = int(emitted)
            else:
                raise ValueError("no such line is written")
        except ValueError as e:
            report.unknown.append(f"{file.name}:{number}: {line[:100]!r}: {e}")


def _lives(lives: list[Life], report: Report) -> None:
    """One life of a task after the other, each going on with the count of the one before."""
    tasks: dict[int, list[Life]] = {}
    for life in lives:
        if life.arrivals:
            tasks.setdefault(life.task, []).append(life)
    for task, own in sorted(tasks.items()):
        own.sort(key=lambda x: x.arrivals[0][0])
        total = 0
        for before, life in zip([None, *own], own, strict=False):
            if before is not None and life.arrivals[0][0] <= before.arrivals[-1][0]:
                report.overlaps.append(f"sink {task}: {before.file} and {life.file}")
            if life.already != total:
                report.recounts.append(f"sink {task}: {life.file} begins with {life.already}, not {total}")
                total = life.already
            total += len(life.arrivals)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.check", description="Did every number arrive once and in order?"
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="files of the record, or directories of them"
    )
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    options = parser.parse_args()
    files = [f for p in options.files for f in (p.glob("*.txt") if p.is_dir() else [p])]
    report = check(files)
    if options.json:
        full = {**asdict(report), "summary": report.summary(), "open": report.open}
        sys.stdout.write(json.dumps(full) + "\n")
    else:
        for name, value in report.summary().items():
            sys.stdout.write(f"{name:10} {value}\n")
        for key in (k for k in report.keys.values() if not k.good):
            for hole in key.lost:
                sys.stdout.write(f"lost: {key.key} {hole.first}-{hole.last} (by tasks {key.path})\n")
            for what, found in (("doubled", key.doubled), ("reordered", key.reordered)):
                for again in found[:20]:
                    sys.stdout.write(f"{what}: {key.key} {again.n} at {again.at}\n")
            for f in key.forgotten:
                sys.stdout.write(
                    f"forgotten: {key.key}: {f.count} counted instead of {f.expected} at {f.at}\n"
                )
        for line in (*report.overlaps, *report.recounts, *report.unknown):
            sys.stdout.write(f"{line}\n")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
