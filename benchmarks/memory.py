"""How much memory a worker takes: with 64 idle tasks, and after ten million tuples went through it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cluster import Cluster, cluster
from benchmarks.harness import Goal, Session, Wrong
from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, Topology, TopologyBuilder

NAME = "memory"
SUMMARY = "memory of a worker with 64 tasks: idle, and after ten million tuples"

AT_ONCE = 256
PATIENCE = 300.0


class Numbers(Spout):
    """Nothing until a file says go; then so many numbers, then nothing more, without being exhausted."""

    outputs = Fields(number=int)

    def __init__(self, directory: str, count: int) -> None:
        self.go, self.count, self.sent = Path(directory) / "go", count, 0

    def next_tuple(self) -> float | None:
        if self.sent >= self.count or (self.sent == 0 and not self.go.exists()):
            return 0.05
        for number in range(self.sent, self.sent + AT_ONCE):
            self.emit(number % 1000)
        self.sent += AT_ONCE
        return None


class Pass(Bolt):
    """Hands on what it gets."""

    outputs = Fields(number=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.number)


class Count(StatefulBolt):
    """Counts by number."""

    counts: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        self.counts[tup.number] += 1


def build(directory: str, count: int) -> Topology:
    """64 tasks: 2 of a spout, 31 of each bolt."""
    b = TopologyBuilder("memory")
    b.spout("numbers", Numbers(directory, count // 2), tasks=2)
    b.bolt("pass", Pass(), tasks=31, executors=2).shuffle("numbers")
    b.bolt("count", Count(), tasks=31, executors=2).fields("pass", "number")
    return b.build()


def topology(args: list[str]) -> Topology:
    """For `elastic submit`."""
    return build(args[0], int(args[1]))


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    """Ask until the answer is true."""
    give_up = time.monotonic() + PATIENCE
    while not (found := check()):
        if time.monotonic() > give_up:
            raise Wrong(f"waited {PATIENCE:g} s in vain for {what}")
        time.sleep(0.5)
    return found


def resident(pid: int) -> float:
    """Resident memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise Wrong(f"process {pid} has ended")


def measure(on: Cluster, count: int) -> tuple[float, float]:
    """MB idle, and after `count` tuples."""
    with tempfile.TemporaryDirectory() as directory:
        on.call("submit", "benchmarks.memory", directory, str(count))

        def pid() -> int:
            workers = on.ask("describe", "memory")["worker_list"]
            return int(workers[0]["pid"] or 0) if workers and workers[0]["alive"] else 0

        def executed() -> bool:
            components = {c["id"]: c for c in on.ask("describe", "memory")["components"]}
            return bool(components["count"]["executed"] >= count)

        worker = wait_for("the worker", pid)
        time.sleep(3)  # what it loads when it starts belongs to it
        idle = resident(worker)
        (Path(directory) / "go").touch()
        wait_for(f"{count:,} tuples", executed)
        time.sleep(2)
        after = resident(worker)
        on.call("kill", "memory", "--wait", "0", "-y")
    return idle, after


def run(session: Session) -> None:
    """Measure and report."""
    count = (1_000_000 if session.quick else 10_000_000) // (2 * AT_ONCE) * (2 * AT_ONCE)
    idle: list[float] = []
    after: list[float] = []
    with cluster(nodes=1, slots=1) as made:
        for number in range(session.runs):
            before, later = measure(made, count)
            idle.append(before)
            after.append(later)
            session.progress(
                f"  round {number + 1}/{session.runs}: {before:.0f} MB idle, {later:.0f} MB after"
            )
    grown = f"after {count:,} tuples"
    session.report(
        {"64 idle tasks": idle, grown: after},
        unit="MB",
        compare={grown: "64 idle tasks"},
        goals={
            ("64 idle tasks", ""): Goal(120, at_least=False),
            (grown, "64 idle tasks"): Goal(120, at_least=False),
        },
    )
