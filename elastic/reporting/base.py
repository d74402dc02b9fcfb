"""The port between a node's supervisor and Nimbus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from elastic.model.events import Event
from elastic.model.load import NodeReport, WorkerReport


def aside_of(path: Path) -> Path:
    """Where the content of a log is moved when it has become too large: the supervisor moves it, and who reads the log looks there."""
    return path.with_name(path.name + ".1")


class Reporter(Protocol):
    """A supervisor's line to whoever is Nimbus's leader now."""

    def report(
        self,
        node: str,
        reports: Sequence[WorkerReport],
        events: Sequence[Event],
        measured: NodeReport | None = None,
    ) -> None:
        """Hand over measurements and events. Never blocks: what cannot be delivered is kept up to a bound; beyond it the oldest
        measurements are dropped first, and events last (with a count of how many).

        Args:
            measured: What the node says about itself; only the newest is kept.
        """

    def fetch_bundle(self, sha256: str, into: Path, timeout: float) -> None:
        """Write the code bundle with that hash to the file `into`, completely or not at all.

        Raises:
            NotFound: Nimbus has no such bundle.
            Unavailable: No leader could be reached in time.
        """

    def close(self) -> None:
        """Deliver what can be delivered within a second, and end. A Nimbus that does not lead yet is not waited for."""
