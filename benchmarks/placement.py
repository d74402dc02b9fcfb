"""Schedulers on a live cluster of four nodes: the papers' chains, as round robin places them and as T-Storm and OTD place them then.

One run submits a chain, measures it, lets a scheduler place it anew while it runs, and measures it again: share of tuples between nodes and
latency at a steady rate, throughput flat out. The scheduler decides under the load that is measured then, as it would where it is left on:
a placement for a light load is none for a heavy one. So every ratio is one of the same processes a minute apart. docs/benchmarks.md.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._pauses_notes import Window, parts, quantile
from benchmarks._pauses_run import Job, cluster
from benchmarks._placement_job import PARTS, SAMPLE, STOP
from benchmarks.harness import Session, Wrong, machine
from elastic.api.bundle import build_bundle
from elastic.cluster.launcher import ClusterInfo
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError
from elastic.model.ids import NodeId, node_of
from elastic.model.views import TopologyDetail
from elastic.model.words import counted

NAME = "placement"
SUMMARY = "T-Storm and OTD against round robin, live on four nodes: tuples between nodes, latency, throughput"

NODES = 4
SCHEDULERS = {
    "T-Storm, gamma 1": "tstorm --gamma 1",
    "T-Storm, gamma 2": "tstorm --gamma 2",
    "T-Storm, gamma 4": "tstorm --gamma 4",
    "OTD": "otd",
}
LIGHT = 0.25
"""Share of the machine's cores that workers use at most at the steady rate, under round robin. Few tuples a batch cost more each: how
little of what it does flat out that is, is found by trying."""
EVERY = 1.0
"""Seconds between two decisions."""
SETTLE = 1.0
"""Seconds after a change that are not measured."""
PATIENCE = 180.0
"""Seconds until a scheduler must have come to rest."""
REST = frozenset({"kept", "case-4"})
"""What a scheduler says when it does nothing any more; beside a case 3 that moves nothing, and OTD's lack of resources."""


@dataclass
class Measured:
    """One scheduler's placements, or round robin's.

    Attributes:
        between: Share of tuples between executors that go from node to node at the steady rate, 0 to 1.
        nodes: How many are used at the steady rate.
        p50, p99: ms, at the steady rate.
        cores: That its workers use at the steady rate.
        throughput: Tuples/s at the end of the chain, flat out.
        busy_nodes: How many are used flat out.
    """

    between: float = 0.0
    nodes: int = 0
    p50: float = 0.0
    p99: float = 0.0
    cores: float = 0.0
    throughput: float = 0.0
    busy_nodes: int = 0


@dataclass
class Windows:
    """When it was measured."""

    flat: Window | None = None
    steady: Window | None = None
    measured: Measured = field(default_factory=Measured)


@dataclass
class Run:
    """A chain on the cluster."""

    job: Job
    seconds: float
    windows: list[Windows] = field(default_factory=list)
    said: str = ""

    def pace(self, rate: float) -> None:
        """Tuples/s from now on; 0: flat out."""
        set_rate(self.job.directory, rate)
        time.sleep(SETTLE)

    def drain(self) -> None:
        """Emit nothing, until everything is worked off."""
        self.pace(STOP)
        self.job.wait("its queues to be empty", lambda d: not any(c.queued for c in d.components))

    def _window(self) -> Window:
        start = time.monotonic_ns()
        time.sleep(self.seconds)
        return Window(start, time.monotonic_ns())

    def flat_out(self, w: Windows) -> None:
        """Measure what it can do as it is placed."""
        self.pace(0)
        before = self.job.client.describe(self.job.name)
        w.flat = self._window()
        after = self.job.client.describe(self.job.name)
        between(before, after)  # nothing may have moved
        w.measured.busy_nodes = nodes_of(after)

    def steadily(self, w: Windows, rate: float) -> None:
        """Measure it at a rate, as it is placed."""
        self.pace(rate)
        before = self.job.client.describe(self.job.name)
        used = processor_time(before)
        w.steady = self._window()
        after = self.job.client.describe(self.job.name)
        now = processor_time(after)
        w.measured.cores = sum(now[pid] - used[pid] for pid in now.keys() & used.keys()) / self.seconds
        w.measured.between, w.measured.nodes = between(before, after), nodes_of(after)

    def fresh(self) -> Windows:
        """Measurements of another placement."""
        self.windows.append(Windows())
        return self.windows[-1]

    def place(self, line: str) -> int:
        """Let a scheduler place it until it comes to rest; how many tasks it has moved.

        Raises:
            Wrong: It does not come to rest.
        """
        client, name = self.job.client, self.job.name
        at = max((n for n, _ in client.events(tail=1)), default=0)
        moved = max((m.epoch for m in client.moves(name)), default=0)
        client.set_elasticity(scheduler=line, period=EVERY)
        try:
            deadline, rest = time.monotonic() + PATIENCE, False
            while not rest:
                if time.monotonic() > deadline:
                    raise Wrong(f"{line} has not come to rest after {PATIENCE:g} s; last: {self.said}")
                time.sleep(EVERY / 4)
                for number, event in client.events(since=at):
                    at, d = number, event.details
                    if event.kind in ("moved", "rescheduled", "dealt"):
                        rest = False
                    elif event.kind in REST or (line.startswith("otd") and event.kind == "resources-lack"):
                        rest = True
                    elif event.kind == "case-3":
                        rest = float(d["asc"]) <= float(d["threshold"])
                    else:
                        continue
                    self.said = event.message
        finally:
            client.set_elasticity(scheduler="off")
        self.job.wait("its moves to end", moved_all)
        return len({t.task for m in client.moves(name) if m.epoch > moved for t in m.tasks})

    def end(self) -> list[Measured]:
        """End it, and read what the last bolts have noted."""
        self.job.stop()
        noted = parts(self.job.directory)
        for w in self.windows:
            if w.flat is not None:
                flat = len(aged(noted, w.flat)) * SAMPLE
                w.measured.throughput = flat / (w.flat.end - w.flat.start) * 1e9
            if w.steady is None:
                continue
            latencies = [ns / 1e6 for ns in aged(noted, w.steady)]
            if not latencies:
                raise Wrong(f"{self.job.name}: nothing came at the steady rate")
            w.measured.p50, w.measured.p99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
        return [w.measured for w in self.windows]


def nodes_of(detail: TopologyDetail) -> int:
    """How many nodes have executors."""
    return len({node_of(w) for _, w in detail.assignment.executors})


def processor_time(detail: TopologyDetail) -> dict[int, float]:
    """Seconds of CPU that its workers, processes of this machine, have used, by process."""
    result = {}
    for worker in detail.workers:
        with contextlib.suppress(OSError):  # it has just ended
            fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
            # User and system: 14 and 15 of the line, whose second may have spaces.
            result[worker.pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return result


def moved_all(detail: TopologyDetail) -> bool:
    """Whether everything is where it is to be, and every worker knows."""
    epoch = detail.assignment.epoch
    return not detail.moves and not detail.waits and all(w.epoch >= epoch for w in detail.workers)


def aged(noted: Sequence[tuple[array[int], array[int], array[int]]], window: Window) -> list[int]:
    """How old each tuple was that came within the window, in ns."""
    result: list[int] = []
    for _, stamps, came in noted:
        first, last = bisect_left(came, window.start), bisect_right(came, window.end)
        result += [c - s for c, s in zip(came[first:last], stamps[first:last], strict=True)]
    return result


def between(before: TopologyDetail, after: TopologyDetail) -> float:
    """The share of tuples that went from node to node from one look to the next, by what the workers count.

    Raises:
        Wrong: Nothing was sent, or it moved meanwhile.
    """
    places = after.assignment.place_of()
    if places != before.assignment.place_of():
        raise Wrong(f"tasks of {after.spec.name} moved while it was measured")
    node: dict[int, NodeId] = {int(task): node_of(w) for task, w in places.items()}
    sent: Counter[tuple[int, int]] = Counter()
    for detail, sign in ((after, 1), (before, -1)):
        for report in detail.reports:
            for pair in report.pairs:
                sent[pair.source, pair.target] += sign * pair.tuples
    total = sum(sent.values())
    if total <= 0:
        raise Wrong(f"{after.spec.name} sent nothing while it was measured")
    return sum(n for (a, b), n in sent.items() if node[a] != node[b]) / total


def set_rate(directory: Path, rate: float) -> None:
    """Tuples/s of the chain whose directory that is."""
    new = directory / "rate.new"
    new.write_text(str(rate))
    new.replace(directory / "rate")


@contextlib.contextmanager
def chain(info: ClusterInfo, name: str, kind: str, seconds: float, input: str | None) -> Iterator[Run]:
    """A chain, submitted and running on all nodes; ended whatever happens."""
    with tempfile.TemporaryDirectory(prefix="eb-") as folder, Client(info.nimbus) as client:
        directory = Path(folder)
        set_rate(directory, STOP)
        given: tuple[str, ...] = (
            "--name",
            name,
            "--chain",
            kind,
            "--directory",
            folder,
            "--workers",
            str(NODES),
        )
        given += ("--input", input) if input else ()
        loaded = load("benchmarks._placement_job", given)
        bundle = build_bundle(loaded.topology, loaded.entry, directory / "bundle.zip")
        client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
        job = Job(info, name, given, client, directory)
        try:
            job.wait("all its workers", lambda d: not d.waits and len(d.workers) == NODES == len(d.reports))
            yield Run(job, seconds)
        finally:
            with contextlib.suppress(ElasticError):
                client.kill(name, wait=0.0)


class Placement:
    """One run of the benchmark."""

    def __init__(self, session: Session, info: ClusterInfo) -> None:
        self.session, self.info = session, info
        self.seconds = 3.0 if session.quick else 4.0
        self.rates: dict[str, float] = {}
        self.found: dict[str, dict[str, list[float]]] = {}
        self._number = 0

    def contenders(self) -> Mapping[str, Callable[[], float]]:
        """Each chain with each scheduler: returns the share of tuples between nodes afterwards."""
        names = list(SCHEDULERS)
        if self.session.quick:
            names = ["T-Storm, gamma 2", "OTD"]
        return {
            f"{kind}, {name}": lambda k=kind, n=name: self.once(k, n)  # type: ignore[misc]
            for kind in PARTS
            for name in names
        }

    def _open(self, kind: str) -> contextlib.AbstractContextManager[Run]:
        self._number += 1
        given = self.session.options.get("input")
        return chain(self.info, f"chain-{self._number}", kind, self.seconds, given)

    def rate(self, kind: str) -> float:
        """The steady rate of a chain, tuples/s of its spouts: a light load under round robin."""
        given = self.session.options.get("rate")
        if given:
            return float(given)
        if kind not in self.rates:
            cores = machine()["cores"]
            with self._open(kind) as run:
                probe = Windows()
                run.flat_out(probe)
                assert probe.flat is not None
                emitted = run.job.client.describe(run.job.name).components[0].emitted
                most = emitted / (time.monotonic_ns() - probe.flat.start) * 1e9
                run.drain()
                rate = most / 16
                while True:
                    run.steadily(probe, rate)
                    if probe.measured.cores <= LIGHT * cores:
                        break
                    rate /= 2
            self.rates[kind] = rate
            self.session.progress(
                f"  {kind}: the spouts emit about {most:,.0f} tuples/s flat out; at {rate:,.0f} tuples/s, the steady rate, "
                f"workers use {probe.measured.cores:.2f} of {cores} cores"
            )
        return self.rates[kind]

    def once(self, kind: str, name: str) -> float:
        """Measure, place, measure again."""
        rate, line = self.rate(kind), SCHEDULERS[name]
        with self._open(kind) as run:
            as_dealt = run.fresh()
            run.flat_out(Windows())  # until every word was met once
            run.flat_out(as_dealt)
            run.drain()
            run.steadily(as_dealt, rate)
            placed = run.fresh()
            tasks, said = run.place(line), run.said
            run.steadily(placed, rate)
            run.pace(0)
            more = run.place(line)
            run.flat_out(placed)
            first, then = run.end()
        self.session.progress(f"    light load: {said}\n    full load: {run.said}")
        self.session.progress(
            f"    light load: nodes {first.nodes} -> {then.nodes}, {counted(tasks, 'task')} moved; "
            f"between nodes {first.between:.0%} -> {then.between:.0%}; "
            f"p50 {first.p50:.2f} -> {then.p50:.2f} ms, p99 {first.p99:.2f} -> {then.p99:.2f} ms; "
            f"{first.cores:.2f} -> {then.cores:.2f} cores\n"
            f"    full load: nodes {first.busy_nodes} -> {then.busy_nodes}, {counted(more, 'task')} moved; "
            f"{first.throughput:,.0f} -> {then.throughput:,.0f} tuples/s"
        )
        rows = self.found.setdefault(f"{kind}, {name}", {})
        for label, before, after in (
            ("between nodes, % of tuples", 100 * first.between, 100 * then.between),
            ("nodes", first.nodes, then.nodes),
            ("latency p50, ms", first.p50, then.p50),
            ("latency p99, ms", first.p99, then.p99),
            ("CPU, cores", first.cores, then.cores),
            ("nodes at full load", first.busy_nodes, then.busy_nodes),
            ("throughput, tuples/s", first.throughput, then.throughput),
        ):
            rows.setdefault(label, []).append(after)
            rows.setdefault(f"{label}: round robin", []).append(before)
        rows.setdefault("tasks moved", []).append(tasks)
        rows.setdefault("tasks moved at full load", []).append(more)
        return 100 * then.between

    def report(self) -> None:
        """Every figure beside round robin's in the same run."""
        for name, rows in self.found.items():
            for label, values in rows.items():
                if label.endswith(": round robin"):
                    continue
                what, _, unit = label.rpartition(", ")
                key, other = f"{name}: {what or label}", f"{name}: {what or label}, round robin"
                values_of = {key: values}
                if f"{label}: round robin" in rows:
                    values_of[other] = rows[f"{label}: round robin"]
                self.session.report(values_of, unit=unit if what else "", compare={key: other})


def run(session: Session) -> None:
    """Measure and report."""
    # The nodes share the machine's cores: that is what each can do, and what schedulers are to go by.
    with cluster("process", "embedded", 2, nodes=NODES) as info:
        placement = Placement(session, info)
        session.interleave(placement.contenders(), unit="% of tuples between nodes")
        placement.report()
