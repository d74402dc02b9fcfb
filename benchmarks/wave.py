"""The waiting load, 1 to 16 times its base rate and back: each request asks a local service that takes 4 ms, and waits for it.

One run under a policy, which begins with one executor; then a run for each rate with as many executors as are right for it, that nobody
changes. docs/benchmarks.md.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks._pauses_run import PATIENCE, cluster
from benchmarks._wave_job import BOUNDS, TASKS
from benchmarks.harness import Goal, Session, Wrong
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError
from elastic.model.events import Event
from elastic.model.records import TopologyStatus
from elastic.nimbus.balancing.elastic_lines import read_policy

NAME = "wave"
SUMMARY = "a waiting load, 1 to 16 times its base rate and back: what policies make of it, and fixed numbers beside them"

BASE = 90.0
"""Requests per second."""
TIMES = (1, 4, 16, 4, 1)
DELAY = 0.004
"""Seconds. So much that queues make the latency, and not how soon a machine with a few cores gets round to a thread."""
POLICIES = {"ds2": "ds2 --period 1", "thresholds": "thresholds --period 1 --cooldown 0"}
SERVICE = Path(__file__).resolve().parents[1] / "examples" / "pattern_service.py"
USED = 0.5
"""Share of its time that an executor is to be used at the right number: what `ds2` aims at."""
DECISIONS = frozenset({"scale-out", "scale-in", "more-workers", "fewer-workers", "crowded"})
SLOWER = 3.0
PERIODS = 2.0
LOOK = 0.25


@dataclass
class Run:
    """What one run gave.

    Attributes:
        latencies: Of each phase and half of it, by numbers of bounds.
        executors: At the end of each phase.
        services: Seconds of an executor for a request, at each look in the second half of a phase.
        decided, resized: What the policy has decided, and when it was carried out.
    """

    began: float = 0.0
    latencies: dict[tuple[int, int], Counter[int]] = field(default_factory=dict)
    executors: dict[int, int] = field(default_factory=dict)
    services: dict[int, list[float]] = field(default_factory=dict)
    decided: list[Event] = field(default_factory=list)
    resized: list[Event] = field(default_factory=list)

    def p95(self, phase: int, halves: Sequence[int] = (1,)) -> float:
        """The 95th percentile of a phase's second half, or of all of it, in seconds."""
        counts: Counter[int] = sum((self.latencies.get((phase, h), Counter()) for h in halves), Counter())
        wanted, seen = 0.95 * counts.total(), 0
        for bound in sorted(counts):
            seen += counts[bound]
            if seen >= wanted:
                return BOUNDS[bound]
        raise Wrong(f"nothing was noted in phase {phase + 1}")


@contextlib.contextmanager
def service() -> Iterator[str]:
    """The service that is asked; gives its address."""
    program = [sys.executable, str(SERVICE), "--delay", str(DELAY)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # it ends with its input


def once(
    client: Client, address: str, name: str, rates: Sequence[float], phase: float, executors: int, policy: str
) -> Run:
    """Run it to its end.

    Raises:
        Wrong: Not every request was answered once.
        RuntimeError: It does not end.
    """
    with tempfile.TemporaryDirectory(prefix="eb-") as directory:
        given = ["--name", name, "--directory", directory, "--service", address, "--phase", str(phase)]
        given += ["--rates", ",".join(map(str, rates)), "--executors", str(executors), "--policy", policy]
        loaded = load("benchmarks._wave_job", given)
        bundle = build_bundle(loaded.topology, loaded.entry, Path(directory) / "bundle.zip")
        client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
        try:
            run = _follow(client, name, Path(directory), phase, len(rates))
        finally:
            with contextlib.suppress(ElasticError):
                client.kill(name, wait=0.0)
        for file in Path(directory).glob("task-*"):
            for row in file.read_text(encoding="utf-8").splitlines():
                number, half, bound, count = json.loads(row)
                run.latencies.setdefault((number, half), Counter())[bound] += count
        emitted = int((Path(directory) / "emitted").read_text(encoding="utf-8"))
    noted = sum(c.total() for c in run.latencies.values())
    if noted != emitted:
        raise Wrong(f"{name}: {emitted} requests, {noted} answers")
    return run


def _follow(client: Client, name: str, directory: Path, phase: float, phases: int) -> Run:
    run, began = Run(), directory / "began"
    deadline = time.monotonic() + PATIENCE + phase * phases
    while time.monotonic() < deadline:
        detail = client.describe(name)
        if detail.summary.status is TopologyStatus.FINISHED:
            for _, event in client.events(topology=name):
                if event.kind == "topology-resized":
                    run.resized.append(event)
                elif event.kind in DECISIONS:
                    run.decided.append(event)
            return run
        if detail.summary.status is not TopologyStatus.ACTIVE:
            raise RuntimeError(f"{name} is {detail.summary.status.value}: {detail.summary.reason}")
        if not run.began and began.exists() and (text := began.read_text(encoding="utf-8")):
            run.began = float(text)
        at, into = divmod((time.time() - run.began) / phase, 1) if run.began else (-1, 0)
        ask = next(c for c in detail.components if c.id == "ask")
        if 0 <= at < phases and ask.executed_rate:
            run.executors[int(at)] = ask.executors
            if into > 0.5:
                run.services.setdefault(int(at), []).append(ask.busy * ask.executors / ask.executed_rate)
        time.sleep(LOOK)
    raise RuntimeError(f"{name} has not ended in time")


@dataclass
class Found:
    """Figures of all rounds: by name and unit, with what is to be reached."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    goals: dict[str, Goal | None] = field(default_factory=dict)

    def record(self, name: str, value: float, unit: str, most: float | None = None) -> None:
        """Add a round's."""
        self.values.setdefault((name, unit), []).append(value)
        self.goals[name] = Goal(most, at_least=False) if most is not None else None

    def report(self, session: Session) -> None:
        """Hand all of them on."""
        for (name, unit), values in self.values.items():
            session.record(name, values, unit, goal=self.goals[name])


def follows(found: Found, name: str, policy: str, run: Run, phase: float) -> None:
    """Keep how quickly a run's executors followed."""
    line = read_policy(policy)
    assert line is not None
    period = line.manager.period
    for number, (before, times) in enumerate(pairwise(TIMES), 1):
        low = run.began + number * phase
        inside = [e.time - low for e in run.resized if low < e.time <= low + phase]
        made = {e.time for e in run.decided if low < e.time <= low + phase}
        what = f"{name}, {before} to {times} times the rate"
        most = PERIODS if name == "ds2" else None  # thresholds need several decisions, and say how many
        found.record(f"{what}: last change runs after", max(inside, default=phase) / period, "periods", most)
        if most is None:
            first = min(inside, default=phase) / period
            found.record(f"{what}: first change runs after", first, "periods", PERIODS)
        found.record(f"{what}: decisions", len(made), "")


def measure(session: Session, found: Found, info: ClusterInfo, number: int) -> None:
    """One round: each policy, and the fixed runs beside them."""
    phase = 6.0 if session.quick else 30.0
    rates = [BASE * t for t in TIMES]
    with service() as address, Client(info.nimbus) as client:
        elastic: dict[str, Run] = {}
        for name, policy in POLICIES.items():
            if session.wants(name):
                elastic[name] = once(client, address, f"{name}-{number}", rates, phase, 1, policy)
                session.progress(f"  {name}: executors {list(elastic[name].executors.values())}")
                for event in elastic[name].decided:
                    session.progress(f"    {event.time - elastic[name].began:.1f} s: {event.message}")
        for name, run in elastic.items():
            follows(found, name, POLICIES[name], run, phase)
        for times in sorted(set(TIMES)):
            phases = [i for i, t in enumerate(TIMES) if t == times]
            took = [x for run in elastic.values() for i in phases for x in run.services.get(i, ())]
            if not took:
                continue
            right = min(TASKS, max(1, math.ceil(BASE * times * sum(took) / len(took) / USED)))
            fixed = once(client, address, f"fixed-{times}-{number}", [BASE * times], phase, right, "off")
            session.progress(f"  {times} times the rate: {right} executors, p95 {1000 * fixed.p95(0):.1f} ms")
            base = fixed.p95(0)
            for name, run in elastic.items():
                for i in phases:
                    what = f"{name}, phase {i + 1} ({times} times)"
                    found.record(f"{what}: executors", run.executors[i], "")
                    found.record(f"{what}: right number", right, "")
                    found.record(f"{what}: p95, second half", 1000 * run.p95(i), "ms")
                    found.record(f"{what}: p95, second half, to fixed", run.p95(i) / base, "x", SLOWER)
                    # Of a short phase a good part is the second in which nobody can know yet that more has come.
                    whole, most = run.p95(i, (0, 1)) / base, None if session.quick else SLOWER
                    found.record(f"{what}: p95, all of it, to fixed", whole, "x", most)


def run(session: Session) -> None:
    """Measure and report."""
    found = Found()
    with cluster("process", "embedded", 2) as info:
        for number in range(session.runs):
            measure(session, found, info, number)
    found.report(session)
