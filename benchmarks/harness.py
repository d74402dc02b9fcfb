"""Running contenders side by side: interleaved, more than once, with medians, spread and ratios within rounds.

A benchmark is a module of this package with a `NAME`, a `SUMMARY` and a function `run(session)`. It measures with
`Session.interleave` and says what it found with `Session.report`; how that is shown is not its business.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TextIO


class Skip(Exception):
    """A contender cannot run here; the message says what is missing."""


class Wrong(Exception):
    """A contender's result is wrong: its speed means nothing."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What several runs gave, in the figure's unit."""

    minimum: float
    lower: float
    median: float
    upper: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Minimum, quartiles and maximum (inclusive quartiles: they never lie outside what was measured).

        Raises:
            ValueError: There are no values.
        """
        if not values:
            raise ValueError("There is nothing to summarise.")
        if len(values) == 1:
            return cls(values[0], values[0], values[0], values[0], values[0])
        lower, _, upper = quantiles(values, n=4, method="inclusive")
        return cls(min(values), lower, median(values), upper, max(values))


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure, or its ratio, is to reach.

    Args:
        value: The bound.
        of: "ratio" or "figure".
        at_least: Whether the bound is from below.
    """

    value: float
    of: str = "figure"
    at_least: bool = True

    def met(self, figure: Figure) -> bool | None:
        """Whether it is reached; None when there is nothing to compare."""
        measured = figure.figure if self.of == "figure" else figure.ratio
        if measured is None:
            return None
        return measured >= self.value if self.at_least else measured <= self.value

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {number(self.value)}{'x' if self.of == 'ratio' else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One result: the median of the runs of one contender.

    Attributes:
        ratio: The median, over the rounds, of this contender's value divided by the compared one's in the same round.
    """

    name: str
    figure: float
    unit: str
    spread: Spread
    runs: int
    compared_with: str | None = None
    ratio: float | None = None
    goal: Goal | None = None


def ratio_of(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The median of the ratios within each round; None when a round is missing or the other is 0."""
    if not values or len(values) != len(others) or any(other == 0 for other in others):
        return None
    return median(value / other for value, other in zip(values, others, strict=True))


@dataclass
class Session:
    """What a benchmark is given.

    Attributes:
        runs: How many rounds to measure.
        quick: Use less input: for a look, not for a figure.
        only: Parts of contenders' names; empty: all contenders.
        options: What else was given on the command line (`input`).
        failed: What broke down, and why: it has no figures, or not all.
    """

    runs: int = 3
    quick: bool = False
    only: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    narration: TextIO = field(default_factory=lambda: sys.stderr)
    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def progress(self, text: str) -> None:
        """One line about what is happening, on standard error."""
        print(text, file=self.narration, flush=True)

    def fail(self, name: str, error: Exception) -> None:
        """A contender broke down: the others go on, and the command ends with an error. The traceback is for the progress."""
        self.progress(f"{name}: FAILED\n{''.join(traceback.format_exception(error))}")
        self.failed[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def wants(self, name: str, names: Collection[str] = ()) -> bool:
        """Whether the command line asks for that contender.

        Args:
            names: Of all of them: who names one of these in full does not ask for others that have its name in theirs.
        """
        return not self.only or any(
            part == name or (part in name and part not in names) for part in self.only
        )

    def interleave(
        self,
        contenders: Mapping[str, Callable[[], float]],
        *,
        unit: str,
        order_seed: int = 0,
    ) -> dict[str, list[float]]:
        """Run all contenders once, then all again, and so on: what disturbs the machine disturbs all of them.

        Each round begins with another contender, so that none always runs in the shadow of the same one.

        Args:
            contenders: Name -> a function that runs it once and returns its value in `unit`.
            unit: What the values are, for the progress.
            order_seed: Which contender begins the first round.

        Returns:
            Name -> a value per round, in the order of rounds; without the contenders that cannot run here.

        Raises:
            Wrong: A contender computed something wrong.
        """
        names = [name for name in contenders if self.wants(name)]
        values: dict[str, list[float]] = {name: [] for name in names}
        began, done = time.monotonic(), 0
        for number_of_round in range(self.runs):
            shift = (number_of_round + order_seed) % max(1, len(names))
            for name in names[shift:] + names[:shift]:
                if name in self.skipped:
                    continue
                started = time.monotonic()
                try:
                    value = contenders[name]()
                except Skip as reason:
                    self.skipped[name] = str(reason)
                    values.pop(name, None)
                    self.progress(f"  {name}: skipped: {reason}")
                    continue
                except Wrong as error:
                    raise Wrong(f"{name}: {error}") from error
                values[name].append(value)
                done += 1
                left = (time.monotonic() - began) / done * (self.runs * len(values) - done)
                more = f"; about {left / 60:.0f} min left" if left >= 60 else ""
                took = time.monotonic() - started
                self.progress(
                    f"  round {number_of_round + 1}/{self.runs}  {name}: {number(value)} {unit}  ({took:.1f} s{more})"
                )
        return values

    def report(
        self,
        values: Mapping[str, Sequence[float]],
        *,
        unit: str,
        compare: Mapping[str, str | tuple[str, ...]] | None = None,
        goals: Mapping[tuple[str, str], Goal] | None = None,
    ) -> None:
        """Keep figures for the output.

        Args:
            values: What `interleave` gave.
            unit: What the values are.
            compare: Name -> whom it is compared with (several: one figure each).
            goals: (name, compared with, or "" for the figure itself) -> what is to be reached.
        """
        goals = goals or {}
        for name, series in values.items():
            others = (compare or {}).get(name, ())
            present = [o for o in ((others,) if isinstance(others, str) else others) if o in values]
            for other in present or [""]:
                self.figures.append(
                    Figure(
                        name=name,
                        figure=median(series),
                        unit=unit,
                        spread=Spread.of(series),
                        runs=len(series),
                        compared_with=other or None,
                        ratio=ratio_of(series, values[other]) if other else None,
                        goal=goals.get((name, other)),
                    )
                )

    def record(self, name: str, values: Sequence[float], unit: str, *, goal: Goal | None = None) -> None:
        """Keep one figure that is compared with nobody."""
        self.report({name: values}, unit=unit, goals={(name, ""): goal} if goal else None)


def number(value: float) -> str:
    """A figure for people: three significant digits or the whole number, with thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    cpu = platform.processor() or platform.machine()
    memory = 0
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        pass  # not a machine that tells
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": cpu,
        "memory_gib": round(memory / (1 << 30), 1),
        "python": platform.python_version(),
        "os": f"{platform.system()} {platform.release()}",
    }


def to_json(benchmark: str, session: Session) -> list[str]:
    """A line for each figure, then one for each contender that was skipped."""
    about = machine()
    lines = []
    for figure in session.figures:
        line = {"benchmark": benchmark, **asdict(figure), "machine": about}
        line["goal"] = str(figure.goal) if figure.goal else None
        line["met"] = figure.goal.met(figure) if figure.goal else None
        lines.append(json.dumps(line))
    for what, those in (("skipped", session.skipped), ("failed", session.failed)):
        lines += [
            json.dumps({"benchmark": benchmark, "name": name, what: reason, "machine": about})
            for name, reason in those.items()
        ]
    return lines


def to_table(session: Session) -> str:
    """The figures as a table for people, and what was skipped and why."""
    head = ["", "median", "unit", "min", "quartiles", "max", "runs", "ratio", "to", "goal"]
    rows = [head]
    for f in session.figures:
        met = f.goal.met(f) if f.goal else None
        verdict = "" if f.goal is None else f"{f.goal} {'?' if met is None else 'yes' if met else 'NO'}"
        spread = [
            number(f.spread.minimum),
            f"{number(f.spread.lower)} - {number(f.spread.upper)}",
            number(f.spread.maximum),
        ]
        ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
        rows.append(
            [f.name, number(f.figure), f.unit, *spread, str(f.runs), ratio, f.compared_with or "", verdict]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    left = {0, 2, 8, 9}
    lines = []
    for row in rows:
        cells = (
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    about = machine()
    lines += [f"skipped: {name}: {reason}" for name, reason in session.skipped.items()]
    lines += [f"FAILED: {name}: {reason}" for name, reason in session.failed.items()]
    lines.append(
        f"{about['cores']} cores, {about['cpu']}, {about['memory_gib']} GiB, Python {about['python']}, {about['os']}"
    )
    return "\n".join(lines)
