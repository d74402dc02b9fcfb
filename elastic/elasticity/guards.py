"""Guards against oscillation: what the manager remembers of a topology, and when a change that a policy wants is made.

- *Cooldown*: after a decision a topology is left alone for some runs. (EM_cld of Elastic Storm (2016), section IV.A.)
- *Confirmation*: a change has to be wanted in so many runs in a row.
- *Damping*: a scale-in that had to be undone soon was a mistake; each such mistake doubles the runs that the next scale-in of that
  component has to be wanted. What has not erred for long enough begins anew. Scale-outs are never damped: they protect the latency.
  Nor is a number of processes asked for again and again that somebody else undoes, such as a scheduler that opens and closes workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic.model.ids import ComponentId

MOST = 5
"""Mistakes that are counted; with more it does not become slower any more."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How much of each guard. All in runs of the manager."""

    out: int
    back: int
    memory: int


@dataclass(frozen=True, slots=True)
class Track:
    """What is remembered of one component.

    Attributes:
        wish: The direction that was wanted in the last run: 1, -1 or 0.
        runs: In how many runs in a row.
        last_in: The run of the last scale-in, 0: none.
        mistakes: Scale-ins that were undone soon.
        last_mistake: The run of the last one.
    """

    wish: int = 0
    runs: int = 0
    last_in: int = 0
    mistakes: int = 0
    last_mistake: int = 0

    def wished(self, direction: int) -> Track:
        """After a run in which that direction was wanted."""
        runs = self.runs + 1 if direction and direction == self.wish else int(bool(direction))
        return replace(self, wish=direction, runs=runs)

    def forgiven(self, run: int, patience: Patience) -> Track:
        """Without the mistakes that are too long ago."""
        if self.mistakes and run - self.last_mistake > patience.memory << self.mistakes:
            return replace(self, mistakes=0)
        return self

    def needs(self, patience: Patience) -> int:
        """In how many runs in a row the present wish has to come."""
        return patience.out if self.wish > 0 else patience.back << self.mistakes

    def ready(self, patience: Patience) -> bool:
        """Whether the wish has come often enough."""
        return self.wish != 0 and self.runs >= self.needs(patience)

    def done(self, direction: int, run: int, patience: Patience) -> Track:
        """After a change in that direction was decided."""
        track = replace(self, wish=0, runs=0)
        if direction < 0:
            return replace(track, last_in=run)
        if self.last_in and run - self.last_in <= patience.memory << self.mistakes:
            return replace(track, last_in=0, mistakes=min(MOST, self.mistakes + 1), last_mistake=run)
        return replace(track, last_in=0)


@dataclass(frozen=True, slots=True)
class Before:
    """How it was when something was decided, to say later what it led to.

    Attributes:
        changes: Executors before and after, of each component that was changed.
        busy, queued: Of those, then.
    """

    time: float
    changes: Mapping[ComponentId, tuple[int, int]]
    busy: Mapping[ComponentId, float]
    queued: Mapping[ComponentId, float]


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one topology.

    Attributes:
        run: How often it was looked at.
        cooldown: Runs for which it is left alone.
        tracks: By component, and by what no component can be called: "" is the number of workers.
        deferred: Runs in which nothing was done because its load was just changing.
        said: What was said, as "kind component", and in which run it was so last: it is not said in every run.
        purity: CPU share of each component's busy time when it was seen undisturbed.
        before: What is to be compared when it has been measured again.
        workers: How many worker processes it was to have by the last decision about that, 0: none was made.
    """

    run: int = 0
    cooldown: int = 0
    tracks: Mapping[str, Track] = field(default_factory=dict)
    deferred: int = 0
    said: Mapping[str, int] = field(default_factory=dict)
    purity: Mapping[ComponentId, float] = field(default_factory=dict)
    before: Before | None = None
    workers: int = 0

    def track(self, component: str) -> Track:
        return self.tracks.get(component, Track())

    def later(self, runs: int) -> Memory:
        """What is left of it after so many runs in which nobody looked. A wish has to be wanted anew."""
        tracks = {c: replace(t, wish=0, runs=0) for c, t in self.tracks.items()}
        return replace(
            self, run=self.run + runs, cooldown=max(0, self.cooldown - runs), tracks=tracks, deferred=0
        )
