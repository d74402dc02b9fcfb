"""The load of the cluster as Nimbus measures it, from what workers and nodes report."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from elastic.api.settings import setting
from elastic.elasticity.monitor import LoadMonitor
from elastic.model.ids import NodeId, TopologyName, WorkerId
from elastic.model.load import NodeReport, WorkerReport
from elastic.model.loadview import LoadView
from elastic.nimbus.balancing import subjects
from elastic.nimbus.observing.facts import Facts


class Measuring:
    """A monitor for several threads, and which nodes are on one machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._monitor = LoadMonitor()
        self._machines: dict[NodeId, str] = {}
        self._heard: Counter[WorkerId] = Counter()
        self._resting: set[TopologyName] = set()

    @property
    def sample(self) -> float:
        """Seconds that a sample covers."""
        return self._monitor.config.period

    def configure(self, **values: object) -> None:
        """See `LoadMonitor.configure`."""
        with self._lock:
            self._monitor.configure(**values)

    def anew(self) -> None:
        """Forget what was measured, as nobody has looked since."""
        with self._lock:
            self._monitor = LoadMonitor(self._monitor.config)
            self._machines.clear()
            self._heard.clear()

    def heard(self) -> Mapping[WorkerId, int]:
        """How often each worker has reported."""
        with self._lock:
            return Counter(self._heard)

    def observe(self, reports: Iterable[WorkerReport], nodes: Iterable[NodeReport]) -> None:
        """Take in measurements."""
        now = time.monotonic()
        with self._lock:
            for report in reports:
                self._monitor.observe(report, now)
                self._heard[WorkerId(report.worker)] += 1
            for measured in nodes:
                self._monitor.observe_node(measured, now)
                self._machines[NodeId(measured.node)] = measured.machine

    def view(self, facts: Facts, now: float) -> LoadView:
        """The load now, without what is not assigned any more, and without what was measured of a topology while its spouts rested: it
        would look idle for a while when they do not any more.

        Args:
            now: Seconds, by `time.monotonic`.
        """
        with self._lock:
            known = self._monitor.topologies()
            resting = {t.name for t in facts.in_order() if not subjects.telling(t)}
            for name in (known - facts.assignments.keys()) | (known & self._resting - resting):
                self._monitor.forget(name)
            self._resting = resting
            for name in known & facts.assignments.keys():
                self._monitor.retain(name, set(facts.assignments[name].workers))
            workers = {w for a in facts.assignments.values() for w in a.workers}
            for worker in self._heard.keys() - workers:
                del self._heard[worker]
            for node in self._machines.keys() - facts.nodes.keys():
                del self._machines[node]
                self._monitor.forget_node(node)
            self._monitor.expect(
                {t.name: setting("report_interval", t.spec.config) for t in facts.in_order()}
            )
            view = self._monitor.view(now)
            machines = dict(self._machines)
        return subjects.shared(replace(view, time=time.time()), machines)
