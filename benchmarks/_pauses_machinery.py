"""What it costs that any task may move at any time, while none does.

There is no engine without it. So it is taken out for the comparison, as far as it is on the way of tuples: the gate that an emitter's
pause would close, the counting of positions, the receiver's look at them. What is compared is the processor time of the whole process.

That differs by less than a machine's speed does from one second to the next. So a round is many short runs, which take turns: with,
without, without, with.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.harness import Goal, Session, Wrong
from benchmarks.passing import Count, Pass
from elastic import Fields, LocalCluster, Spout, Topology, TopologyBuilder
from elastic.migration.emitter import Emitter
from elastic.migration.receiver import Receiver
from elastic.worker.emitting.outputs import Outputs


class _Words(Spout):
    outputs = Fields(word=str)

    def __init__(self, count: int) -> None:
        self.count = count

    def tuples(self) -> Iterator[str]:
        words = [f"w{n}" for n in range(1000)]
        for n in range(self.count):
            yield words[n % 1000]


class _Count(Count):
    def finish(self) -> None:
        counted.append(sum(self.counts.values()))


counted: list[int] = []
WITH, WITHOUT = "machinery: with", "machinery: without"


def _topology(count: int) -> Topology:
    b = TopologyBuilder("machinery")
    b.spout("words", _Words(count))
    b.bolt("pass", Pass(), tasks=4).shuffle("words")
    b.bolt("count", _Count(), tasks=4).fields("pass", "word")
    return b.build()


@contextlib.contextmanager
def _without() -> Iterator[None]:
    """The engine as if nothing ever moved."""
    left, takes, made = Emitter.left, Receiver.takes, Outputs.__init__

    def make(self: Outputs, *arguments: Any, **more: Any) -> None:
        made(self, *arguments, **more)
        self.gate = contextlib.nullcontext()  # type: ignore[assignment]

    Emitter.left = lambda self, count: 1  # type: ignore[method-assign]
    Receiver.takes = lambda self, life, first, count: True  # type: ignore[method-assign]
    Outputs.__init__ = make  # type: ignore[method-assign]
    try:
        yield
    finally:
        Emitter.left, Receiver.takes, Outputs.__init__ = left, takes, made  # type: ignore[method-assign]


TURNS = 40
"""Times that each of the two runs within a round."""


def measure(session: Session) -> None:
    """Measure and report."""
    count = 50_000 if session.quick else 200_000

    def once() -> float:
        counted.clear()
        with LocalCluster() as local:
            began = time.process_time()
            local.submit(_topology(count)).wait(300)
            took = time.process_time() - began
        if sum(counted) != count:
            raise Wrong(f"{sum(counted)} tuples instead of {count}")
        return took / count * 1e9

    def stripped() -> float:
        with _without():
            return once()

    values: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    once()  # warm
    for number in range(1, session.runs + 1):
        parts: dict[str, list[float]] = {WITH: [], WITHOUT: []}
        for turn in range(TURNS):
            pair = ((WITH, once), (WITHOUT, stripped))
            for name, run in pair if turn % 2 else reversed(pair):
                parts[name].append(run())
        for name, some in parts.items():
            values[name].append(median(some))
        session.progress(
            f"  round {number} of {session.runs}: ratio {values[WITH][-1] / values[WITHOUT][-1]:.3f}"
        )
    session.report(
        values,
        unit="ns of CPU a tuple",
        compare={WITH: WITHOUT},
        goals={(WITH, WITHOUT): Goal(1.02, of="ratio", at_least=False)},
    )
