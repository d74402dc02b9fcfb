"""What a node says about itself, once a period."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elastic import machine
from elastic.model.ids import Incarnation, NodeId
from elastic.model.load import NodeReport, WorkerReport

_JOIN = 5.0


class NodeMeter:
    """Measures a node on a thread of its own.

    Args:
        interval: Seconds between two measurements.
        cores: That the node's workers may use together: then what they use is what counts. 0.0: all of the machine, with
            everything that runs there.
        send: Takes each measurement; must not block.
    """

    def __init__(
        self, node: NodeId, interval: float, cores: float, send: Callable[[NodeReport], None]
    ) -> None:
        self._node, self._interval, self._cores, self._send = node, interval, cores, send
        self._lock = threading.Lock()
        self._workers: dict[Incarnation, WorkerReport] = {}
        self._meter = machine.MachineMeter()
        self._machine = "" if cores else machine.boot()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-meter", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def close(self) -> None:
        """Measure no more. Safe to call twice, and without `start`."""
        self._end.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def saw(self, incarnation: Incarnation, report: WorkerReport) -> None:
        """A worker of the node has said something about itself."""
        with self._lock:
            self._workers[incarnation] = report

    def gone(self, incarnation: Incarnation) -> None:
        """A worker of the node has ended."""
        with self._lock:
            self._workers.pop(incarnation, None)

    def measure(self) -> NodeReport:
        """The node now; cores in use are those since the call before."""
        with self._lock:
            workers = list(self._workers.values())
        memory, used = sum(w.rss for w in workers), self._meter.read()
        if self._cores:
            return NodeReport(self._node, time.time(), self._cores, sum(w.cpu for w in workers), memory)
        return NodeReport(self._node, time.time(), machine.cores(), used, memory, self._machine)

    def _run(self) -> None:
        while not self._end.wait(self._interval):
            self._send(self.measure())
