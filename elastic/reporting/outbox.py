"""What a node wants to tell Nimbus and hasn't yet: bounded, measurements dropped before events. Not thread-safe."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elastic.model.events import Event, Severity

if TYPE_CHECKING:
    from elastic.reporting.v1 import measurements_pb2 as pb


@dataclass
class Batch:
    """What goes in one request."""

    reports: list[pb.WorkerReport] = field(default_factory=list)
    events: list[pb.Event] = field(default_factory=list)
    nodes: list[pb.NodeReport] = field(default_factory=list)


class Outbox:
    """Two queues with a bound in bytes each.

    A measurement that is minutes old is worth little and a new one comes soon, so theirs is the smaller bound; they
    never push out an event. Nor does one worker's push out the newest of another, which would never be heard of.

    Args:
        node: The node's name, for the event that counts what was dropped.
        report_bytes: Bound of the measurements, encoded; the newest of each worker is kept all the same.
        event_bytes: Bound of the events, encoded.
        batch_bytes: Most that one batch carries (a single larger item goes alone).

    Attributes:
        node: What the node says about itself: the newest, it goes with the next batch.
    """

    def __init__(
        self,
        node: str,
        *,
        report_bytes: int = 1 << 20,
        event_bytes: int = 8 << 20,
        batch_bytes: int = 1 << 20,
    ) -> None:
        self._node = node
        self._reports: deque[pb.WorkerReport] = deque()
        self._of_worker = Counter[str]()  # how many of the reports are whose
        self._events: deque[pb.Event] = deque()
        self._report_size = self._event_size = 0
        self._report_bytes, self._event_bytes, self._batch_bytes = report_bytes, event_bytes, batch_bytes
        self.node: pb.NodeReport | None = None
        self.dropped_reports = 0
        self.dropped_events = 0

    def __bool__(self) -> bool:
        return bool(self._reports or self._events or self.dropped_events or self.node is not None)

    @property
    def urgent(self) -> bool:
        """Whether there is an event: those don't wait for company."""
        return bool(self._events)

    def add(self, reports: Sequence[pb.WorkerReport], events: Sequence[pb.Event]) -> None:
        """Keep these, at the cost of the oldest of their kind when there is no room."""
        for report in reports:
            self._reports.append(report)
            self._of_worker[report.worker] += 1
            self._report_size += report.ByteSize()
        for event in events:
            self._events.append(event)
            self._event_size += event.ByteSize()
        while self._report_size > self._report_bytes and len(self._reports) > len(self._of_worker):
            at = next(n for n, r in enumerate(self._reports) if self._of_worker[r.worker] > 1)
            self._remove(at)
            self.dropped_reports += 1
        while self._event_size > self._event_bytes and len(self._events) > 1:
            self._event_size -= self._events.popleft().ByteSize()
            self.dropped_events += 1

    def take(self) -> Batch:
        """Remove and return the oldest, events first, as much as fits in a batch."""
        batch, room = Batch(), self._batch_bytes
        if self.node is not None:
            batch.nodes.append(self.node)
            self.node = None
        if self.dropped_events:
            batch.events.append(self._confession())
            self.dropped_events = 0
        while self._events:
            size = self._events[0].ByteSize()
            if size > room and batch.events:
                return batch
            batch.events.append(self._events.popleft())
            self._event_size -= size
            room -= size
        while self._reports:
            size = self._reports[0].ByteSize()
            if size > room and (batch.reports or batch.events):
                return batch
            batch.reports.append(self._remove(0))
            room -= size
        return batch

    def _remove(self, at: int) -> pb.WorkerReport:
        report = self._reports[at]
        del self._reports[at]
        self._report_size -= report.ByteSize()
        self._of_worker[report.worker] -= 1
        if not self._of_worker[report.worker]:
            del self._of_worker[report.worker]
        return report

    def _confession(self) -> pb.Event:
        from elastic.reporting.codec import EVENT

        return EVENT.encode(
            Event(
                time=time.time(),
                kind="events-dropped",
                message=f"{self.dropped_events} events of node {self._node} were dropped: "
                "Nimbus was out of reach for too long",
                severity=Severity.WARNING,
                node=self._node,
                details={"count": self.dropped_events},
            )
        )
