"""What checkpoints cost a stream, and how soon it goes on after a worker was killed.

Spout -> bolt that holds 16 MB in small entries, any of which changes at any time -> sink, in two workers on two nodes, as `pauses` has it
for a move. Tuples carry the time at which they were due; the sink notes how late the latest of each second is, and when it began.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._pauses_job import BURST, FIRST, STRIDE, TICK
from benchmarks.cluster import Cluster, cluster
from benchmarks.harness import Session, Wrong
from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, Topology, TopologyBuilder

NAME = "checkpoints"
SUMMARY = "a stream with and without checkpoints of 16 MB a second, and how soon it goes on after a worker was killed"

KEYS = 800_000
RATE = 50_000.0
INTERVAL = 1.0
FILLED = 20.0
"""Seconds at the beginning that do not count, in which the state is made."""
LIMIT = 120.0


class Due(StatefulSpout):
    """Keys in turn, at a steady rate, or as many as possible (0)."""

    outputs = Fields(key=int, due=int)

    def __init__(self, rate: float) -> None:
        self.rate, self.number, self.began = rate, 0, 0

    def next_tuple(self) -> float | None:
        now = time.monotonic_ns()
        self.began = self.began or now
        count, step = BURST, 0.0
        if self.rate:
            step = 1e9 / self.rate
            count = min(BURST, int((now - self.began) / step) - self.number)
            if count <= 0:
                return TICK
        first, began = self.number, self.began
        self.emit_all(
            [(n * STRIDE % KEYS, began + int(n * step) if step else now) for n in range(first, first + count)]
        )
        self.number += count
        return None

    def get_state(self) -> tuple[int, int]:
        return self.number, self.began

    def set_state(self, state: tuple[int, int]) -> None:
        self.number, self.began = state


class Hold(StatefulBolt):
    """Counts each key; has all of them from the first tuple on."""

    outputs = Fields(due=int)
    counts = KeyedState[int, int]()

    def execute(self, tup: Any) -> None:
        if not self.counts:
            self.counts.update(dict.fromkeys(range(KEYS), FIRST))
        self.counts[tup.key] += 1
        self.emit(tup.due)


class Late(StatefulBolt):
    """Writes down for each second how many came and how late the latest was, in ms; and when this process's first one did."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.seconds: list[tuple[int, float]] = []
        self.until = self.count = self.latest = 0

    def get_state(self) -> None: ...

    def set_state(self, state: None) -> None: ...

    def execute(self, tup: Any) -> None:
        now = time.monotonic_ns()
        if now >= self.until:
            self._note(now)
        self.count += 1
        self.latest = max(self.latest, now - tup.due)

    def _note(self, now: int) -> None:
        if self.until:
            self.seconds.append((self.count, self.latest / 1e6))
        else:
            (self.path / f"first.{os.getpid()}").write_text(str(now))
        self.until, self.count, self.latest = now + 1_000_000_000, 0, 0
        written = self.path / f"seconds.{os.getpid()}"
        written.with_suffix(".new").write_text(json.dumps(self.seconds))
        written.with_suffix(".new").rename(written)


def topology(args: Sequence[str]) -> Topology:
    """For `elastic submit`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("path")
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--interval", type=float)
    o = parser.parse_args(args)
    more = {} if o.interval is None else {"checkpoint_interval": o.interval}
    b = TopologyBuilder(o.name, workers=2, **more)
    b.spout("due", Due(o.rate))
    b.bolt("hold", Hold()).shuffle("due")
    b.bolt("late", Late(o.path)).shuffle("hold")
    return b.build()


class Run:
    """A topology while it runs."""

    def __init__(self, on: Cluster, name: str, path: str, rate: float, interval: float | None) -> None:
        self.on, self.name, self.path = on, name, Path(path)
        with_it = [] if interval is None else ["--interval", str(interval)]
        on.call("submit", "benchmarks.checkpoints", name, path, "--rate", str(rate), *with_it)

    def seconds(self, count: int) -> list[tuple[int, float]]:
        """What the sink of the newest process has noted, when it is so much after the beginning."""
        deadline = time.monotonic() + FILLED + count + LIMIT
        while True:
            files = sorted(self.path.glob("seconds.*[0-9]"), key=lambda p: p.stat().st_mtime)
            noted = json.loads(files[-1].read_text()) if files else []
            if len(noted) >= FILLED + count:
                return [(n, late) for n, late in noted[int(FILLED) :]][:count]
            if time.monotonic() > deadline:
                raise Wrong(f"{self.name} has come to a stand: {len(noted)} s are noted")
            time.sleep(0.5)

    def described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.on.ask("describe", self.name)
        return found

    def kill(self) -> float:
        """Kill the worker of the bolt that holds the state; returns after how many seconds a tuple came again."""
        described = self.described()
        (holder,) = [e["worker"] for e in described["executor_list"] if e["component"] == "hold"]
        (pid,) = [w["pid"] for w in described["worker_list"] if w["worker"] == holder]
        before = set(self.path.glob("first.*"))
        killed = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        while not (new := set(self.path.glob("first.*")) - before):
            if time.monotonic_ns() - killed > LIMIT * 1e9:
                raise Wrong(f"{self.name} did not go on after its worker was killed")
            time.sleep(0.01)
        return (int(new.pop().read_text()) - killed) / 1e9

    def end(self) -> None:
        self.on.call("kill", self.name, "--wait", "0s")


def run(session: Session) -> None:
    """Measure and report."""
    count = 10 if session.quick else 30
    rate = session.options.get("rate") or RATE
    found: dict[str, list[float]] = {}
    number = iter(range(1 << 20))

    def once(on: Cluster, rate: float, interval: float | None) -> float:
        with tempfile.TemporaryDirectory() as path:
            made = Run(on, f"checkpoints-{next(number)}", path, rate, interval)
            seconds = made.seconds(count)
            which = "without" if interval is None else f"every {interval:g} s"
            if rate:
                found.setdefault(f"latest tuple of a second, {which}", []).extend(late for _, late in seconds)
            if interval is not None:
                c = made.described()["checkpoints"]
                if not c["number"]:
                    raise Wrong(f"no checkpoint was complete: {c['failed']}")
                found.setdefault("a checkpoint", []).append(c["seconds"] * 1000)
                found.setdefault("bytes of one", []).append(c["bytes"] / 1e6)
                if rate:
                    found.setdefault("until a tuple came again", []).append(made.kill() * 1000)
            made.end()
            return sum(n for n, _ in seconds) / count

    every = f"every {INTERVAL:g} s"
    with cluster(nodes=2, slots=1) as on:
        values = session.interleave(
            {
                "without": lambda: once(on, 0.0, None),
                every: lambda: once(on, 0.0, INTERVAL),
                f"without, {rate:,.0f}/s": lambda: once(on, rate, None),
                f"{every}, {rate:,.0f}/s": lambda: once(on, rate, INTERVAL),
            },
            unit="tuples/s",
        )
    session.report(
        values,
        unit="tuples/s",
        compare={every: "without", f"{every}, {rate:,.0f}/s": f"without, {rate:,.0f}/s"},
    )
    for name, noted in found.items():
        session.record(name, noted, "MB" if name.startswith("bytes") else "ms")
