"""What a simulation gave, second by second and phase by phase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from elastic.elasticity.base import Reason
from elastic.elasticity.manager import Decision
from elastic.simulation.profile import Profile
from elastic.simulation.scheduled import Placed

SERIOUS = 0.6
"""Loss of throughput from which on it counts as seriously degraded. (N-Storm (2019), section V.)"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampling interval.

    Attributes:
        time: Seconds since the beginning, at its end.
        rate: Tuples per second that arrived.
        flow: Tuples per second that went through, as a share of the rate; above 1 while a backlog is worked off.
        latency: Mean seconds from end to end.
        executors, workers, nodes: How many there were.
        cpu: Cores in use.
        cores: Of the nodes that were there.
        backlog: Tuples that the source holds.
        between: Share of the tuples between executors that goes to another node.
    """

    time: float
    rate: float
    flow: float
    latency: float
    executors: int
    workers: int
    nodes: int
    cpu: float
    cores: float
    backlog: float
    between: float = 0.0

    @property
    def degraded(self) -> bool:
        """Whether so much throughput was lost that it counts."""
        return self.flow <= 1.0 - SERIOUS


@dataclass(frozen=True, slots=True)
class Made:
    """A decision, and when it was made and carried out. Seconds since the beginning."""

    time: float
    decision: Decision
    done: float
    moved: int


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One phase.

    Attributes:
        decisions: That were made in it.
        unsettled: Of those, in its second half, where it should have settled.
        p95: Latency in its second half, seconds, the 95th percentile.
        executors, workers, nodes: At its end.
        use: Cores in use of those of the nodes, mean of its second half.
        between: Share of the tuples between executors that goes to another node, at its end.
        degraded: Share of its time in which 60 % of throughput or more was lost.
        late: Share of its time in which the latency was above three times that of the settled first phase.
    """

    rate: float
    decisions: int
    unsettled: int
    p95: float
    executors: int
    workers: int
    nodes: int
    use: float
    between: float
    degraded: float
    late: float


@dataclass(slots=True)
class Result:
    """A whole run."""

    profile: Profile
    samples: list[Sample] = field(default_factory=list)
    decisions: list[Made] = field(default_factory=list)
    reasons: list[tuple[float, Reason]] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)

    @property
    def degraded(self) -> float:
        """Share of all time in which 60 % of throughput or more was lost."""
        return sum(s.degraded for s in self.samples) / max(1, len(self.samples))

    @property
    def late(self) -> float:
        """Share of all time in which the latency was above three times that of the settled first phase."""
        limit = self._limit()
        return sum(s.latency > limit for s in self.samples) / max(1, len(self.samples))

    def sequence(self, component: str) -> list[int]:
        """A component's numbers of executors, in the order in which it had them."""
        result: list[int] = []
        for made in self.decisions:
            for c, (before, after) in made.decision.changes.items():
                if c == component:
                    result += [after] if result else [before, after]
        return result

    def phases(self) -> list[PhaseResult]:
        """Each phase of the profile."""
        limit = self._limit()
        return [self._phase(i, limit) for i in range(len(self.profile.phases))]

    def within(self, start: float, end: float) -> list[Sample]:
        """The samples of a time."""
        return [s for s in self.samples if start < s.time <= end]

    def _settled(self, i: int) -> list[Sample]:
        start, seconds = self.profile.starts()[i], self.profile.phases[i].seconds
        return self.within(start + seconds / 2, start + seconds)

    def _limit(self) -> float:
        return 3.0 * quantile([s.latency for s in self._settled(0)], 0.95)

    def _phase(self, i: int, limit: float) -> PhaseResult:
        phase, start = self.profile.phases[i], self.profile.starts()[i]
        end = start + phase.seconds
        all_, settled = self.within(start, end), self._settled(i)
        made = [m for m in self.decisions if start <= m.time < end]
        last = all_[-1]
        return PhaseResult(
            phase.rate,
            len(made),
            sum(m.time >= start + phase.seconds / 2 for m in made),
            quantile([s.latency for s in settled], 0.95),
            last.executors,
            last.workers,
            last.nodes,
            sum(s.cpu for s in settled) / max(1e-9, sum(s.cores for s in settled)),
            last.between,
            sum(s.degraded for s in all_) / len(all_),
            sum(s.latency > limit for s in all_) / len(all_),
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of them lies; 0.0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
