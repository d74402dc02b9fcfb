"""What was seen of one run, and what follows from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from elastic.model.events import Event
from elastic.model.views import TopologyDetail

PROPORTIONS = (120.0, 350.0, 900.0, 250.0, 120.0)
TIMES = 3.0
"""So many times the latency of the first phase is the goal for all of them."""
DEGRADED = 0.4
"""Less than this share of what is offered, and it counts as degraded by 60 % or more (N-Storm 2019, section V)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the topology.

    Attributes:
        time: Seconds since 1970.
        offered, taken: Transactions per second: by the schedule, and those that the input has emitted.
        counted: Patterns per second that the detector has worked off.
        executors: By component.
        busy: Mean share of time that executors were busy.
        cpu: CPU seconds per second of all workers.
        moved: Tasks that have moved so far; `pause` is the longest of their pauses, seconds.
        detectors: Of each executor of the detector how busy it was, and how many patterns waited for it.
    """

    time: float
    offered: float
    taken: float
    counted: float
    executors: Mapping[str, int]
    workers: int
    busy: float
    cpu: float
    moved: int
    pause: float
    detectors: tuple[tuple[float, int], ...] = ()

    @property
    def total(self) -> int:
        """Of executors."""
        return sum(self.executors.values())


def look(detail: TopologyDetail, now: float, ends: float) -> Sample:
    """What one answer of Nimbus says.

    Args:
        ends: How often per second the input emits the end of a pane instead of a transaction.
    """
    by = {str(c.id): c for c in detail.components}
    executors = Counter(str(e.component) for e in detail.executors)
    return Sample(
        now,
        max(0.0, by["input"].custom.get("offered", 0.0) - ends),
        max(0.0, by["input"].emitted_rate - ends),
        by["detector"].executed_rate,
        dict(executors),
        sum(w.alive for w in detail.workers),
        sum(e.busy for e in detail.executors) / max(1, len(detail.executors)),
        sum(w.cpu for w in detail.workers),
        detail.moved.committed,
        detail.moved.pause_max,
        tuple((round(e.busy, 4), e.queued) for e in detail.executors if e.component == "detector"),
    )


@dataclass(frozen=True, slots=True)
class Pane:
    """The end of a pane, as the reporter has told it.

    Attributes:
        due: When it ended, seconds since 1970, by the transactions' clock.
        age: Seconds from then to its result.
        latencies: By the number of a bound of `frequent_patterns.BOUNDS`: how many occurrences of patterns.
    """

    number: int
    due: float
    age: float
    frequent: int
    latencies: Mapping[int, int]


class Panes:
    """Reads the file that the reporter appends to, as far as it has come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def more(self) -> list[Pane]:
        """What has come since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole, _, _ = text.rpartition(b"\n")
        self._at += len(whole) + 1 if whole else 0
        told = [json.loads(line) for line in whole.splitlines()]
        return [
            Pane(t["pane"], t["due"], t["age"], t["frequent"], {int(b): int(n) for b, n in t["latencies"]})
            for t in told
        ]


def p95(panes: Iterable[Pane], bounds: Sequence[float]) -> float:
    """The 95th percentile of the latencies of panes, in seconds; 0.0 when nothing was counted."""
    counts: Counter[int] = Counter()
    for pane in panes:
        counts.update(pane.latencies)
    wanted, seen = 0.95 * counts.total(), 0
    for bound in sorted(counts):
        seen += counts[bound]
        if seen >= wanted:
            return bounds[min(bound, len(bounds) - 1)]
    return 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """The second half of a phase.

    Attributes:
        latency: The 95th percentile, seconds.
        executors, busy, workers: Means.
        decisions: How often something was decided in it.
        each: Patterns per second that came for each executor: how much they are used, whether they wait for a service or for each other.
        first, after: Seconds from the beginning of the phase until what was decided first and last in it was running; 0.0: nothing was.
        late: Seconds from the beginning of the phase until all that came afterwards, taken in parts of half a second, was below three
            times the latency of the first phase.
    """

    latency: float
    executors: float
    workers: float
    busy: float
    decisions: int
    first: float = 0.0
    after: float = 0.0
    late: float = 0.0
    each: float = 0.0


@dataclass
class Recording:
    """One run.

    Attributes:
        phase, pane: Seconds.
        bounds: Of latencies.
        decisions: The events that say that executors or workers are changed.
        resized: Those that say that such a change has been made.
        equal: Whether its patterns are those of the reference.
    """

    name: str
    phase: float
    pane: float
    bounds: Sequence[float]
    samples: list[Sample] = field(default_factory=list)
    panes: list[Pane] = field(default_factory=list)
    decisions: list[Event] = field(default_factory=list)
    resized: list[Event] = field(default_factory=list)
    equal: bool = False

    def told(self) -> dict[str, Any]:
        """Everything as plain values: what a program that looks into a run reads."""
        plain: dict[str, Any] = to_builtins(self)
        return plain

    @property
    def began(self) -> float:
        """When the first transaction could come, seconds since 1970; 0.0 before a pane has ended."""
        return self.panes[0].due - (self.panes[0].number + 1) * self.pane if self.panes else 0.0

    @property
    def end(self) -> float:
        """When the last pane had its result, seconds after the beginning."""
        return max((p.due + p.age for p in self.panes), default=0.0) - self.began

    def settled(self) -> list[Settled]:
        """The second half of each phase.

        By then everything has had its time: two periods of a policy, and as long again to work off what has waited meanwhile.
        """
        result: list[Settled] = []
        for number in range(len(PROPORTIONS)):
            low, high = (self.began + self.phase * (number + part) for part in (0.5, 1.0))
            panes = [p for p in self.panes if low < p.due <= high]
            samples = [s for s in self.samples if low < s.time <= high]
            decisions = {e.time for e in self.decisions if low < e.time <= high}
            begin = low - 0.5 * self.phase
            resized = [e.time - begin for e in self.resized if begin < e.time <= high]
            mean = 1 / max(1, len(samples))
            latency = p95(panes, self.bounds)
            patterns = sum(sum(p.latencies.values()) for p in panes)
            executors = mean * sum(s.total for s in samples)
            limit = TIMES * (result[0].latency if result else latency)
            result.append(
                Settled(
                    latency,
                    executors,
                    mean * sum(s.workers for s in samples),
                    mean * sum(s.busy for s in samples),
                    len(decisions),
                    min(resized, default=0.0),
                    max(resized, default=0.0),
                    self._late(begin, limit),
                    patterns / (0.5 * self.phase * max(1.0, executors)),
                )
            )
        return result

    def _late(self, begin: float, limit: float) -> float:
        """Seconds from the beginning of a phase until the end of the last part of it that was above a limit; see `Settled`."""
        together = max(1, round(0.5 / self.pane))
        panes = [p for p in self.panes if begin < p.due <= begin + self.phase]
        parts = [panes[i : i + together] for i in range(0, len(panes), together)]
        return max((part[-1].due - begin for part in parts if p95(part, self.bounds) > limit), default=0.0)

    def came(self) -> list[tuple[float, int]]:
        """When patterns came, seconds after the beginning, and how many: those of a pane in its middle."""
        return [(p.due - self.began - 0.5 * self.pane, sum(p.latencies.values())) for p in self.panes]

    def worked(self) -> list[tuple[float, int]]:
        """The same of when they had been counted."""
        last = len(self.bounds) - 1
        return [
            (p.due - self.began - 0.5 * self.pane + self.bounds[min(bound, last)], count)
            for p in self.panes
            for bound, count in p.latencies.items()
        ]

    def degraded(self) -> float:
        """The share of the phases' time in which less than 40 % of the patterns that came were worked off."""
        total = len(PROPORTIONS) * self.phase
        parts = max(1, int(total / max(1.0, 2 * self.pane)))

        def counted(times: Iterable[tuple[float, int]]) -> Counter[int]:
            found: Counter[int] = Counter()
            for time, count in times:
                found[int(time / total * parts)] += count
            return found

        came, worked = counted(self.came()), counted(self.worked())
        if not came:
            return 1.0
        return sum(worked[n] < DEGRADED * came[n] for n in range(parts)) / parts
