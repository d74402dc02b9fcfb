"""Sums over a period and averages over the past."""

from __future__ import annotations

from dataclasses import dataclass

from elastic.model.load import ExecutorLoad

_NOTHING = 1e-9
"""What is less than that is nothing: an average over zeros would become ever smaller, until what is divided by it overflows."""


@dataclass(slots=True)
class Average:
    """An exponentially weighted one: Y = weight Y + (1 - weight) sample (T-Storm (2014), section IV.B). The first is taken as it is."""

    value: float = 0.0
    samples: int = 0

    def take(self, sample: float, weight: float) -> None:
        """Take in a sample.

        Args:
            weight: Of the past, 0 to 1.
        """
        self.value = sample if not self.samples else weight * self.value + (1.0 - weight) * sample
        if abs(self.value) < _NOTHING:
            self.value = 0.0
        self.samples += 1


@dataclass(slots=True)
class Sums:
    """What one executor did since the last sample: seconds of each kind, and tuples."""

    seconds: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0
    idle: float = 0.0
    cpu: float = 0.0
    ready: float = 0.0
    executed: float = 0.0
    emitted: float = 0.0

    def shares(self, load: ExecutorLoad, seconds: float) -> None:
        """Add the shares of a report that covers so many seconds."""
        self.seconds += seconds
        self.busy += load.busy * seconds
        self.blocked += load.blocked * seconds
        self.idle += load.idle * seconds
        self.cpu += load.cpu * seconds
        self.ready += load.ready * seconds

    def rate(self, name: str) -> float:
        """One of the sums per second."""
        value: float = getattr(self, name)
        return value / self.seconds if self.seconds > 0 else 0.0
