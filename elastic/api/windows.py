"""Windows: pieces of a stream, by time or by number. What works with them is `elastic.api.windowed`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from elastic.errors import TopologyError

_MOST_WINDOWS = 10_000
_STEPS_OF_A_GAP = 8
"""By how many steps a gap sessions close: the time of each single end would be a list of its own."""


class Window(NamedTuple):
    """A piece of a stream: from `start` on, before `end`.

    Attributes:
        start, end: Seconds, of the events' time or since 1970; of `Batches` numbers of the key's tuples.
    """

    start: float
    end: float


@dataclass(frozen=True)
class Tumbling:
    """Windows of one size, one after the other.

    Args:
        size: Seconds.
        offset: Seconds by which they begin later than at multiples of the size.
    """

    size: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        _positive("Tumbling", "size", self.size)
        _finite("Tumbling", "offset", self.offset)

    def steps(self, at: float) -> range:
        """The numbers of the windows that a time is in."""
        number = math.floor((at - self.offset) / self.size)
        return range(number, number + 1)

    def start_of(self, step: int) -> float:
        """When the window of that number begins."""
        return self.offset + step * self.size

    def end_of(self, step: int) -> float:
        """When it ends."""
        return self.offset + step * self.size + self.size


@dataclass(frozen=True)
class Sliding:
    """Windows of one size, a new one begins each `slide`: a tuple is in several, or with a larger slide in none.

    Args:
        size: Seconds.
        slide: Seconds from the beginning of one to that of the next.
        offset: As of `Tumbling`.
    """

    size: float
    slide: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        _positive("Sliding", "size", self.size)
        _positive("Sliding", "slide", self.slide)
        _finite("Sliding", "offset", self.offset)
        if self.size / self.slide > _MOST_WINDOWS:
            raise TopologyError(
                f"Sliding({self.size!r}, {self.slide!r}): each tuple would be in {self.size / self.slide:,.0f} windows.",
                remedy=f"A larger slide: at most {_MOST_WINDOWS:,} windows may overlap.",
            )

    def steps(self, at: float) -> range:
        """As of `Tumbling`; perhaps none."""
        since = at - self.offset
        return range(math.floor((since - self.size) / self.slide) + 1, math.floor(since / self.slide) + 1)

    def start_of(self, step: int) -> float:
        """As of `Tumbling`."""
        return self.offset + step * self.slide

    def end_of(self, step: int) -> float:
        """As of `Tumbling`."""
        return self.offset + step * self.slide + self.size


@dataclass(frozen=True)
class Sessions:
    """Windows by activity: one ends when its key has had no tuple for `gap`. It closes up to an eighth of that later.

    Args:
        gap: Seconds.
    """

    gap: float

    def __post_init__(self) -> None:
        _positive("Sessions", "gap", self.gap)

    def step_of(self, end: float) -> int:
        """The first step at which a session that ends then can be closed."""
        return math.ceil(end * _STEPS_OF_A_GAP / self.gap)

    def end_of(self, step: int) -> float:
        """When that step is."""
        return step * self.gap / _STEPS_OF_A_GAP


@dataclass(frozen=True)
class Batches:
    """So many tuples of a key, one batch after the other, whatever time it is.

    Args:
        size: Tuples.
    """

    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 1:
            raise TopologyError(f"Batches takes a number of tuples, at least 1, not {self.size!r}.")


Windows = Tumbling | Sliding | Sessions | Batches


def _positive(kind: str, name: str, value: object) -> None:
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        raise TopologyError(f"{kind}: {name} is a number of seconds, above 0, not {value!r}.")


def _finite(kind: str, name: str, value: object) -> None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TopologyError(f"{kind}: {name} is a number of seconds, not {value!r}.")
