"""The topology of `wave`: requests at random times, each of which asks a service and waits for the answer."""

from __future__ import annotations

import argparse
import json
import random
import socket
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elastic import Bolt, Fields, StatefulSpout, Topology, TopologyBuilder, TopologyContext

TASKS = 32
BOUNDS = tuple(0.0005 * 2 ** (n / 8) for n in range(160))
"""Latencies are counted by these bounds, in seconds: each a tenth longer than the one before."""
REPORT = 0.25
"""Seconds between two measurements of the load."""
NOTE = 0.5
"""Seconds between two notes of a task."""
MOST = 64
"""Requests that are emitted at once at most, when it is late."""


class Requests(StatefulSpout):
    """Requests at random times, at rates that follow each other; what is late is made up for. It goes on wherever it is moved to.

    Args:
        directory: Gets a file that says when it began, and in the end one that says how many they were.
        rates: Requests per second of each phase.
        phase: Seconds of each.
    """

    outputs = Fields(number=int, phase=int, due=float)

    def __init__(self, directory: str, rates: Sequence[float], phase: float, seed: int = 1) -> None:
        self.directory, self.rates, self.phase = directory, tuple(rates), phase
        self.chance = random.Random(seed)
        self.number, self.began, self.next = 0, 0.0, 0.0

    def prepare(self, context: TopologyContext) -> None:
        context.gauge("offered", lambda: self._rate(time.time() - self.began) if self.began else 0.0)

    def _rate(self, at: float) -> float:
        return self.rates[int(at / self.phase)] if 0 <= at < self.phase * len(self.rates) else 0.0

    def next_tuple(self) -> float | None:
        now = time.time()
        if not self.began:
            self.began = now
            (Path(self.directory) / "began").write_text(repr(now), encoding="utf-8")
        for _ in range(MOST):
            due = self.began + self.next
            if due > now:
                return due - now
            rate = self._rate(self.next)
            if not rate:
                (Path(self.directory) / "emitted").write_text(str(self.number), encoding="utf-8")
                self.exhausted()
                return None
            self.emit(self.number, int(self.next / self.phase), due)
            self.number += 1
            self.next += self.chance.expovariate(rate)
        return None

    def get_state(self) -> object:
        return self.number, self.began, self.next, self.chance.getstate()

    def set_state(self, state: Any) -> None:
        self.number, self.began, self.next, chance = state
        self.chance.setstate(chance)


class Ask(Bolt):
    """Asks, waits, and notes how long after it was due the answer to each request was there.

    Args:
        directory: Each task appends to a file of its own there: lines of [phase, half of it, number of a bound, requests].
        address: host:port of `examples/pattern_service.py`.
    """

    PATIENCE = 10.0

    def __init__(self, directory: str, address: str, phase: float) -> None:
        self.directory, self.address, self.phase = directory, address, phase

    def prepare(self, context: TopologyContext) -> None:
        self.began = 0.0
        self.counts: Counter[tuple[int, int, int]] = Counter()
        self.file = Path(self.directory) / f"task-{context.task}"
        host, _, port = self.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), self.PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def execute(self, tup: Any) -> None:
        self.socket.sendall(b"?\n")
        if not self.socket.recv(2):
            raise ConnectionError(f"the service at {self.address} has ended the connection")
        if not self.began:
            self.began = float((Path(self.directory) / "began").read_text(encoding="utf-8"))
        into = tup.due - self.began - tup.phase * self.phase
        bound = min(bisect_left(BOUNDS, time.time() - tup.due), len(BOUNDS) - 1)
        self.counts[tup.phase, int(into >= self.phase / 2), bound] += 1

    def tick(self) -> None:
        self._note()

    def finish(self) -> None:
        self._note()

    def cleanup(self) -> None:
        self._note()
        self.socket.close()

    def _note(self) -> None:
        if self.counts:
            rows = "".join(json.dumps([*key, count]) + "\n" for key, count in self.counts.items())
            self.counts.clear()
            with self.file.open("a", encoding="utf-8") as file:
                file.write(rows)


def parser() -> argparse.ArgumentParser:
    """What a run is given."""
    made = argparse.ArgumentParser()
    made.add_argument("--name", required=True)
    made.add_argument("--directory", required=True)
    made.add_argument("--service", required=True)
    made.add_argument("--rates", required=True, help="requests/s of each phase, with commas")
    made.add_argument("--phase", type=float, required=True)
    made.add_argument("--executors", type=int, default=1)
    made.add_argument("--policy", default="off")
    return made


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology of one run."""
    o = parser().parse_args(list(args))
    rates = [float(r) for r in o.rates.split(",")]
    b = TopologyBuilder(o.name, elastic=o.policy, report_interval=REPORT)
    b.spout("requests", Requests(o.directory, rates, o.phase))
    b.bolt(
        "ask", Ask(o.directory, o.service, o.phase), tasks=TASKS, executors=o.executors, tick_interval=NOTE
    ).shuffle("requests")
    return b.build()
