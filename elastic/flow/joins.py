"""Two keyed streams, joined within an interval of time.

Both sides are kept by key in windows much smaller than the interval, those of `WindowedBolt`: what they hold is dropped when they close,
which is so much later than the watermark that whoever is not late has met all its partners by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from elastic.api.windowed import WindowedBolt
from elastic.api.windows import Tumbling, Window
from elastic.errors import TopologyError
from elastic.flow.plan import Planned
from elastic.flow.windows import Time

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

Within = float | tuple[float, float]
Side = tuple[list[tuple[float, Any]], list[tuple[float, Any]]]
"""What a window of a key holds: the elements of the left and of the right stream, with their times."""

_PARTS = 4
"""Windows of an interval: fewer hold what is over for longer and are larger entries of the state, more are more to look into."""
_SMALLEST = 0.001
"""Seconds of a window at least, also where the interval is shorter, or none."""


class Joined(NamedTuple, Generic[K, V, W]):
    """Two elements of a key that belong together.

    Attributes:
        key: The key.
        left: The element of the stream that was joined.
        right: That of the other one.
    """

    key: K
    left: V
    right: W


class _Element(NamedTuple):
    """What has come, with its time, and whether from the right."""

    key: Any
    value: Any
    at: float
    right: bool


class Join(Planned, WindowedBolt):
    """Gives each pair of elements of a key that are within an interval of each other, when the second of them comes.

    Args:
        right: Component and stream that the elements of the right side come from.
        within: Seconds by which the right element may be earlier than the left one, and by which later.
        time, other_time: When an element of the left and of the right stream was; None: when it comes.
        lateness, idle: As of `WindowedBolt`.

    Raises:
        TopologyError: These do not go together.
    """

    def __init__(
        self,
        right: tuple[str, str] | None,
        within: Within,
        time: Time | None,
        other_time: Time | None,
        lateness: float,
        idle: float,
    ) -> None:
        self.earlier, self.later = _interval(within)
        longest = max(self.earlier, self.later)
        if not (isinstance(lateness, int | float) and 0 <= lateness < math.inf):
            raise TopologyError(f"Join: lateness is a number of seconds, not {lateness!r}.")
        if time is None and (lateness or other_time is not None):
            what = "by the time at which elements come none is late" if lateness else "one side has no time"
            raise TopologyError(f"Join: {what}.", remedy="Name the time of both: time=..., other_time=...")
        self.parts = Tumbling(max(longest / _PARTS, _SMALLEST))
        # What is no later than `lateness` finds all that may be so much older.
        super().__init__(self.parts, by="key", time="at", lateness=lateness + longest, idle=idle)
        self.right = right
        self.times = tuple(map(_function, (time, time if other_time is None else other_time)))

    def execute(self, tup: Any) -> None:
        source = self.context.source
        assert source is not None
        right = (source.component, source.stream) == self.right
        when = self.times[right]
        # A clock that is set back, or that of another machine, makes nothing late.
        at = max(self.clock(), self._closed_until()) if when is None else when(tup.value)
        super().execute(_Element(tup.key, tup.value, at, right))

    def begin(self) -> Side:
        return [], []

    def add(self, held: Side, tup: _Element) -> Side:
        key, value, at, right = tup
        before, after = (self.later, self.earlier) if right else (self.earlier, self.later)
        first, here, last = (self.parts.steps(t).start for t in (at - before, at, at + after))
        for step in range(first - 1, last + 2):  # one more to either side, as these times are rounded
            near: Side | None = held if step == here else self._open.get((step, key))
            for then, other in near[not right] if near is not None else ():
                # By the same difference whichever has come first: so a pair does not depend on that.
                if -self.earlier <= (at - then if right else then - at) <= self.later:
                    self._give(Joined(key, other, value) if right else Joined(key, value, other))
        held[right].append((at, value))
        return held

    def close(self, window: Window, key: Any, held: Side) -> None:
        """Nothing can come any more that these belong to."""


def _function(time: Time | None) -> Callable[[Any], float] | None:
    return attrgetter(time) if isinstance(time, str) else time


def _interval(within: object) -> tuple[float, float]:
    """Raises: TopologyError: It is none."""
    pair = within if isinstance(within, tuple) else (within, within)
    if len(pair) == 2 and all(isinstance(n, int | float) and 0 <= n < math.inf for n in pair):
        return pair
    raise TopologyError(
        f"Join: within is a number of seconds, not {within!r}.",
        remedy="within=60: as much earlier or later; within=(0, 60): the other one comes later, by that at most.",
    )
