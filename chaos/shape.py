"""The tasks of the job's topology, as `chaos/job.py` makes it, and how fast it is to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SPOUTS, SINKS = 3, 6
SLOW = 0.3
"""Share of the time in which a task takes much less than what a flood may bring for it."""


@dataclass(frozen=True)
class Shape:
    """Which tasks there are: spouts first, sinks last.

    Args:
        counts: Tasks of the bolt in the middle.
        keys: Keys of each of the spout's tasks.
    """

    counts: int = 12
    keys: int = 16

    @property
    def spout_tasks(self) -> range:
        return range(1, 1 + SPOUTS)

    @property
    def count_tasks(self) -> range:
        return range(1 + SPOUTS, 1 + SPOUTS + self.counts)

    @property
    def sink_tasks(self) -> range:
        return range(1 + SPOUTS + self.counts, 1 + SPOUTS + self.counts + SINKS)

    @property
    def tasks(self) -> range:
        return range(1, 1 + SPOUTS + self.counts + SINKS)

    @property
    def held(self) -> tuple[int, ...]:
        """Tasks that can be held within `get_state` and `set_state`."""
        return (*self.spout_tasks, *self.sink_tasks)


def set_pace(place: Path, rate: float, *, slow: bool) -> None:
    """Have the spouts emit so many tuples per second from now on, and the others be slow now and then, or not."""
    part = place / "pace.part"
    part.write_text(f"{rate:g} {SLOW if slow else 0:g}\n")
    part.rename(place / "pace")
