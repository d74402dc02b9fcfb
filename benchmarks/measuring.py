"""What it costs to measure the load: one run flat out, in which slots with and without measuring alternate.

A report is made, encoded as for the supervisor, decoded and taken into a load monitor that is asked for its view: all that is done for it
in a worker, a supervisor and Nimbus, here in one process with the tuples, whose interpreter it shares. One report a second would be lost
in the noise of throughput, so in slots with measuring there are many, and the loss is divided by how many.

What stays on in both are the counters themselves: a few additions for a batch of tuples, which positions and metrics need as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.harness import Goal, Session, Wrong
from benchmarks.passing import Count, Pass
from elastic import Fields, LocalCluster, Spout, Topology, TopologyBuilder
from elastic.elasticity.monitor import LoadMonitor
from elastic.model import codec
from elastic.model.load import WorkerReport

NAME = "measuring"
SUMMARY = "throughput with and without measuring, in alternating slots of one run"

OFTEN = 20
"""Reports a second in the slots with measuring; it is one by default."""
SLOT = 1.0
"""Seconds."""
SIZES = {"33 tasks": 16, "129 tasks": 64}
"""Tasks of each of the two bolts: their pairs are what a report is made of."""


class _Words(Spout):
    outputs = Fields(word=str)

    def tuples(self) -> Iterator[str]:
        words = [f"w{n}" for n in range(1000)]
        while True:
            yield from words


def topology(tasks: int) -> Topology:
    """Two bolts of so many tasks, each with four executors."""
    b = TopologyBuilder("measuring")
    b.spout("words", _Words())
    b.bolt("pass", Pass(), tasks=tasks, executors=4).shuffle("words")
    b.bolt("count", Count(), tasks=tasks, executors=4).fields("pass", "word")
    return b.build()


class Slots:
    """One run.

    Attributes:
        rates: Tuples/s in slots with and without measuring, side by side.
        seconds: CPU of each report.
        pairs: How many pairs of tasks the last report had.
    """

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._monitor = LoadMonitor()
        self._never = threading.Event()
        self.rates: tuple[list[float], list[float]] = ([], [])
        self.seconds: list[float] = []
        self.pairs = 0

    def run(self, count: int) -> None:
        """So many pairs of slots: on, off, off, on, on, ...

        Raises:
            Wrong: The monitor knows nothing in the end.
        """
        with LocalCluster() as local:
            running = local.submit(topology(self._tasks))
            self._never.wait(2 * SLOT)
            for number in range(2 * count):
                on = number % 4 in (0, 3)
                before, began = self._done(running), time.monotonic()
                while (left := began + SLOT - time.monotonic()) > 0:
                    self._never.wait(min(left, 1 / OFTEN))
                    if on:
                        self._measure(running)
                took = time.monotonic() - began
                self.rates[0 if on else 1].append((self._done(running) - before) / took)
            view = self._monitor.view(time.monotonic())
        if len(view.executors) != 9 or not view.traffic:
            raise Wrong(f"the monitor knows {len(view.executors)} executors of 9, {len(view.traffic)} pairs")

    def _done(self, running: Any) -> int:
        return sum(t.executed for t in running.worker.tasks.values())

    def _measure(self, running: Any) -> None:
        began = time.thread_time()
        report: WorkerReport = running.report()
        self.pairs = len(report.pairs)
        self._monitor.observe(codec.decode(codec.encode(report), WorkerReport), time.monotonic())
        self._monitor.view(time.monotonic())
        self.seconds.append(time.thread_time() - began)


def run(session: Session) -> None:
    """Measure and report."""
    count = 4 if session.quick else 10
    for name, tasks in SIZES.items():
        if not session.wants(name):
            continue
        on: list[float] = []
        off: list[float] = []
        cpu: list[float] = []
        for number in range(session.runs):
            slots = Slots(tasks)
            slots.run(count)
            on, off, cpu = on + slots.rates[0], off + slots.rates[1], cpu + slots.seconds
            session.progress(f"  {name}, run {number + 1}/{session.runs}: {slots.pairs} pairs of tasks")
        many, none = f"{name}: {OFTEN} reports a second", f"{name}: none"
        session.report({many: on, none: off}, unit="tuples/s", compare={many: none})
        goal = Goal(1.0, at_least=False)
        loss = [100 * (1 - a / b) / OFTEN for a, b in zip(on, off, strict=True)]
        session.record(f"{name}: loss by one report a second", loss, "% of throughput", goal=goal)
        share = [100 * seconds for seconds in cpu]
        session.record(f"{name}: one report a second, CPU", share, "% of a core", goal=goal)
