"""What workers have reported: the two newest reports of each, their errors, and how often each has begun
anew."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass

from elastic.model.events import Event, Severity
from elastic.model.ids import NodeId, TaskId, TopologyName, WorkerId
from elastic.model.load import SET_BACK, NodeReport, WorkerReport
from elastic.model.rates import Rated, rated
from elastic.model.records import WorkerInfo

ERRORS = frozenset(
    {
        "tuple-failed",
        "executor-failed",
        "executor-stuck",
        "executor-abandoned",
        "bundle-failed",
        "hook-failed",
        "cleanup-emitted",
        "cleanup-failed",
        "state-lost",
        "worker-lost",
    }
)
"""Kinds of events that `elastic errors` shows, beside everything of severity `error`."""

_ANEW = ("topology-submitted", "topology-removed")
"""Kinds of events with which a name has no errors yet, or any more."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A worker's newest report, and the one before it if that is of the same life."""

    newest: WorkerReport
    before: WorkerReport | None = None

    @property
    def seconds(self) -> float:
        """Between the two; 0 when there is only one."""
        return max(0.0, self.newest.time - self.before.time) if self.before is not None else 0.0

    def sent(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Tuples and bytes per second by pairs of tasks; nothing while there is only one report."""
        if self.before is None or self.seconds <= 0:
            return {}
        old = {(p.source, p.target): p for p in self.before.pairs}
        result = {}
        for p in self.newest.pairs:
            known = old.get((p.source, p.target))
            # Else it came from elsewhere, or began anew, between the two.
            if known is not None and p.tuples >= known.tuples:
                size = max(0, p.bytes - known.bytes)
                result[p.source, p.target] = (p.tuples - known.tuples) / self.seconds, size / self.seconds
        return result


@dataclass(frozen=True, slots=True)
class Life:
    """The present life of a worker: since when it is known, and how many came before it."""

    incarnation: str
    since: float
    earlier: int


class ReportStore:
    """Thread-safe. Bounded by the topologies that exist and their workers.

    Args:
        errors: How many errors are kept for each topology.
    """

    def __init__(self, errors: int) -> None:
        self._limit = errors
        self._lock = threading.Lock()
        self._measured: dict[TopologyName, dict[WorkerId, Measured]] = {}
        self._tasks: dict[TopologyName, dict[int, Rated]] = {}
        self._errors: dict[TopologyName, deque[Event]] = {}
        self._lives: dict[TopologyName, dict[WorkerId, Life]] = {}
        self._nodes: dict[NodeId, NodeReport] = {}

    def add_reports(self, reports: Iterable[WorkerReport]) -> None:
        """Take in measurements; a report that is older than what is known of the same life does not count, unless a clock was set back."""
        with self._lock:
            for report in reports:
                workers = self._measured.setdefault(TopologyName(report.topology), {})
                known = workers.get(WorkerId(report.worker))
                same = known is not None and known.newest.incarnation == report.incarnation
                ahead = report.time - known.newest.time if known is not None and same else 0.0
                if same and -SET_BACK <= ahead <= 0:
                    continue
                before = known.newest if known is not None and ahead > 0 else None
                workers[WorkerId(report.worker)] = Measured(report, before)
                tasks = self._tasks.setdefault(TopologyName(report.topology), {})
                tasks.update(rated(report, tasks))

    def add_nodes(self, reports: Iterable[NodeReport], known: Collection[NodeId]) -> None:
        """Keep each node's newest, of those nodes that are known."""
        with self._lock:
            self._nodes.update((NodeId(r.node), r) for r in reports)
            for node in self._nodes.keys() - set(known):
                del self._nodes[node]

    def nodes(self) -> dict[NodeId, NodeReport]:
        """The newest report of each node."""
        with self._lock:
            return dict(self._nodes)

    def add_event(self, event: Event) -> None:
        """Keep it if it is an error of some topology."""
        if event.topology and (event.severity is Severity.ERROR or event.kind in ERRORS):
            with self._lock:
                errors = self._errors.setdefault(TopologyName(event.topology), deque(maxlen=self._limit))
                errors.append(event)

    def load(self, events: Iterable[Event]) -> None:
        """Take in the errors among what a log has, at the beginning of a reign; not those of earlier topologies of the same names."""
        for event in events:
            if event.kind in _ANEW:
                self.forget(TopologyName(event.topology))
            self.add_event(event)

    def see(self, topology: TopologyName, workers: Mapping[WorkerId, WorkerInfo], now: float) -> None:
        """Note which lives are there now."""
        with self._lock:
            lives = self._lives.setdefault(topology, {})
            for worker, info in workers.items():
                known = lives.get(worker)
                if known is None or known.incarnation != info.incarnation:
                    earlier = 0 if known is None else known.earlier + 1
                    lives[worker] = Life(info.incarnation, now, earlier)

    def measured(self, topology: TopologyName) -> dict[WorkerId, Measured]:
        with self._lock:
            return dict(sorted(self._measured.get(topology, {}).items()))

    def rated(self, topology: TopologyName) -> dict[int, Rated]:
        """Its tasks, each by the newest report that has it."""
        with self._lock:
            return dict(self._tasks.get(topology, {}))

    def sizes(self, topology: TopologyName) -> dict[TaskId, int]:
        """Bytes of state by task, of those that have any."""
        newest = sorted((m.newest for m in self.measured(topology).values()), key=lambda r: r.time)
        return {TaskId(t.task): t.state for r in newest for t in r.tasks if t.state}

    def errors(self, topology: TopologyName) -> tuple[Event, ...]:
        with self._lock:
            return tuple(self._errors.get(topology, ()))

    def lives(self, topology: TopologyName) -> dict[WorkerId, Life]:
        with self._lock:
            return dict(self._lives.get(topology, {}))

    def retain(self, topologies: Container[TopologyName]) -> None:
        """There are no others: what came of one after its record had gone is dropped."""
        with self._lock:
            known = {*self._measured, *self._tasks, *self._errors, *self._lives}
        for name in known:
            if name not in topologies:
                self.forget(name)

    def forget(self, topology: TopologyName) -> None:
        """The topology's record is gone."""
        with self._lock:
            for store in (self._measured, self._tasks, self._errors, self._lives):
                store.pop(topology, None)
