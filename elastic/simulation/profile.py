"""How many tuples per second arrive, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastic.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Phase:
    """A time of constant rate.

    Attributes:
        rate: Tuples per second.
        seconds: How long.
    """

    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Phases, one after the other."""

    name: str
    phases: tuple[Phase, ...]

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.phases)

    def at(self, time: float) -> tuple[int, Phase]:
        """The phase at that time since the beginning, and its number; after the end the last one."""
        for i, phase in enumerate(self.phases):
            if time < phase.seconds:
                return i, phase
            time -= phase.seconds
        return len(self.phases) - 1, self.phases[-1]

    def starts(self) -> list[float]:
        """When each phase begins."""
        result, at = [], 0.0
        for phase in self.phases:
            result.append(at)
            at += phase.seconds
        return result


def fivephase(seconds: float = 180.0, scale: float = 1.0) -> Profile:
    """The five phases of Elastic Storm (2016), section VI.A (there 900 s each)."""
    return Profile("fivephase", _phases((120, 350, 900, 250, 120), seconds, scale))


def waitingwave(seconds: float = 60.0, base: float = 300.0) -> Profile:
    """1 to 16 times the base rate and back."""
    return Profile("waitingwave", _phases((1, 4, 16, 4, 1), seconds, base))


def square(low: float, high: float, seconds: float, times: int) -> Profile:
    """Low and high in turn: what makes a careless policy oscillate."""
    return Profile("square", _phases((low, high) * times, seconds, 1.0))


def steady(seconds: float = 600.0, rate: float = 120.0) -> Profile:
    """One rate all the time."""
    return Profile("steady", (Phase(rate, seconds),))


def named(name: str, seconds: float, scale: float) -> Profile:
    """The profile of that name.

    Args:
        seconds: Of each phase.
        scale: Factor on all rates.

    Raises:
        ConfigError: There is none.
    """
    if name == "fivephase":
        return fivephase(seconds, scale)
    if name == "waitingwave":
        return waitingwave(seconds, 300.0 * scale)
    if name == "steady":
        return steady(seconds, 120.0 * scale)
    if name == "square":
        return square(120.0 * scale, 480.0 * scale, seconds, 5)
    raise ConfigError(
        f"there is no load profile {name!r}", remedy="choose fivephase, waitingwave, square or steady"
    )


def _phases(rates: Sequence[float], seconds: float, scale: float) -> tuple[Phase, ...]:
    return tuple(Phase(rate * scale, seconds) for rate in rates)
