"""A reporter that keeps what it is told, and has bundles in a dictionary: for tests and for one process."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from elastic.errors import NotFound, Unavailable
from elastic.model.events import Event
from elastic.model.load import NodeReport, WorkerReport

KEEP = 10_000


class MemoryReporter:
    """See `elastic.reporting.base.Reporter`. Thread-safe.

    Attributes:
        reports: The newest measurements, oldest first, at most `keep`.
        events: The newest events, oldest first, at most `keep`.
        dropped: How many were too many.
        measured: What the node has said about itself last.
        bundles: What can be fetched: hash to bytes.
        reachable: Whether there is a Nimbus to fetch from.
        fetched: How often a bundle was asked for.
    """

    def __init__(self, keep: int = KEEP) -> None:
        self._changed = threading.Condition()
        self.reports: deque[tuple[str, WorkerReport]] = deque(maxlen=keep)
        self.events: deque[Event] = deque(maxlen=keep)
        self.dropped = 0
        self.measured: NodeReport | None = None
        self.bundles: dict[str, bytes] = {}
        self.reachable = True
        self.fetched = 0

    def report(
        self,
        node: str,
        reports: Sequence[WorkerReport],
        events: Sequence[Event],
        measured: NodeReport | None = None,
    ) -> None:
        with self._changed:
            before = len(self.reports) + len(self.events) + len(reports) + len(events)
            self.reports.extend((node, r) for r in reports)
            self.events.extend(events)
            self.dropped += before - len(self.reports) - len(self.events)
            self.measured = measured or self.measured
            self._changed.notify_all()

    def fetch_bundle(self, sha256: str, into: Path, timeout: float) -> None:
        with self._changed:
            self.fetched += 1
            self._changed.notify_all()
            if not self.reachable:
                raise Unavailable("no Nimbus leads", remedy="see whether one is running")
            content = self.bundles.get(sha256)
        if content is None:
            raise NotFound(f"Nimbus has no code bundle {sha256[:12]}")
        part = into.with_name(into.name + ".coming")
        part.write_bytes(content)
        part.replace(into)

    def close(self) -> None:
        pass

    def add_bundle(self, content: bytes) -> str:
        """Make a bundle available. Returns its hash."""
        sha256 = hashlib.sha256(content).hexdigest()
        with self._changed:
            self.bundles[sha256] = content
        return sha256

    def kinds(self) -> list[str]:
        """The kinds of the events, in order."""
        with self._changed:
            return [e.kind for e in self.events]

    def wait(self, condition: Callable[[], bool], timeout: float = 30.0) -> bool:
        """Wait until `condition` holds; it is looked at after each report. Returns whether it does."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def wait_for(self, kind: str, count: int = 1, timeout: float = 30.0) -> Event:
        """Wait for the `count`-th event of that kind, and return it.

        Raises:
            TimeoutError: It did not come.
        """

        def matching() -> list[Event]:
            return [e for e in self.events if e.kind == kind]

        if not self.wait(lambda: len(matching()) >= count, timeout):
            raise TimeoutError(
                f"no event {kind!r} (number {count}) within {timeout:g} s; there were {self.kinds()}"
            )
        with self._changed:
            return matching()[count - 1]
