"""How long a tuple takes through three components, at a steady rate: time stamps in the tuples, end to end.

The spout stamps a tuple when it emits it, a bolt in the middle hands it on, the last one looks at the clock (the monotonic
clock is the same in all processes of a machine). In two workers it crosses from one to the other and back.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.cluster import Cluster, cluster
from benchmarks.harness import Goal, Session
from elastic import Bolt, Fields, Spout, Topology, TopologyBuilder

NAME = "latency"
SUMMARY = "a tuple's way through three components at 10,000 tuples/s, one process and two workers"

RATE = 10_000
WARM_UP = 2.0
PARTS = {"median": 0.5, "p99": 0.99, "p99.9": 0.999}


class Stamps(Spout):
    """The time, at a steady rate."""

    outputs = Fields(stamp=float)

    def __init__(self, count: int) -> None:
        self.count = count

    def tuples(self) -> Iterator[float]:
        clock = time.monotonic
        for _ in range(self.count):
            yield clock()


class Pass(Bolt):
    """Hands on what it gets."""

    outputs = Fields(stamp=float)

    def execute(self, tup: Any) -> None:
        self.emit(tup.stamp)


class Ages(Bolt):
    """Notes how old each tuple is when it arrives."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ages: list[float] = []
        self.first = 0.0

    def execute(self, tup: Any) -> None:
        now = time.monotonic()
        self.first = self.first or now
        if now - self.first > WARM_UP:
            self.ages.append(now - tup.stamp)

    def finish(self) -> None:
        self.ages.sort()
        found = {name: self.ages[int(len(self.ages) * part)] for name, part in PARTS.items()}
        Path(self.path).write_text(json.dumps(found))


def build(name: str, workers: int, seconds: float, path: str) -> Topology:
    """The topology.

    Args:
        seconds: How long it runs, after the warm-up.
        path: Where its last bolt writes what it found, in seconds.
    """
    b = TopologyBuilder(name, workers=workers)
    b.spout("stamps", Stamps(int(RATE * (seconds + WARM_UP))), rate=RATE)
    b.bolt("pass", Pass()).shuffle("stamps")
    b.bolt("ages", Ages(path)).shuffle("pass")
    return b.build()


def topology(args: list[str]) -> Topology:
    """For `elastic submit`."""
    return build(args[0], 2, float(args[1]), args[2])


def run(session: Session) -> None:
    """Measure and report."""
    seconds = 2.0 if session.quick else 10.0
    found: dict[str, dict[str, list[float]]] = {}

    def once(where: str, go: Callable[[str, str], None]) -> float:
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory) / "ages.json")
            go(f"latency-{len(found.get(where, {}).get('median', []))}", path)
            for part, value in json.loads(Path(path).read_text()).items():
                found.setdefault(where, {}).setdefault(part, []).append(value * 1000)
        return found[where]["median"][-1]

    def here(name: str, path: str) -> None:
        from elastic.local import run as run_local

        run_local(build(name, 1, seconds, path), timeout=120)

    def there(on: Cluster, name: str, path: str) -> None:
        on.call("submit", "--wait", "benchmarks.latency", name, str(seconds), path)

    with cluster(nodes=2, slots=1) as made:
        contenders: dict[str, Callable[[], float]] = {
            "1 process": lambda: once("1 process", here),
            "2 workers": lambda: once("2 workers", lambda name, path: there(made, name, path)),
        }
        session.interleave(contenders, unit="ms")
    goals = {("2 workers", "median"): Goal(1, at_least=False), ("2 workers", "p99"): Goal(5, at_least=False)}
    for where, parts in found.items():
        for part, values in parts.items():
            session.record(f"{where}, {part}", values, "ms", goal=goals.get((where, part)))
