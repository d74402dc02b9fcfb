"""What is said about decisions by load: as events, and kept for whoever asks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import isfinite

from elastic.elasticity.base import Reason
from elastic.model.events import Event, Severity
from elastic.nimbus.balancing.balance_port import Ruler
from elastic.scheduler.decision import Reason as PlacingReason

MOST = 100
"""Events that are kept for each topology, of nodes, and of what a scheduler says of all topologies."""
QUIET = frozenset({"kept", "nothing-measured", "case-1", "case-3", "case-4"})
"""What schedulers say when they do nothing, and beside what they do: alone it is said once while it lasts."""


class Teller:
    """See the module. `told` is for any thread, the rest for one."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._lock = threading.Lock()
        self._said: tuple[tuple[str, str], ...] = ()
        self._told: dict[tuple[str, bool], deque[Event]] = {}
        """By topology, and whether it is about nodes: schedulers may say so much that nothing else would be left."""
        self.news: set[str] = set()
        """Topologies ("": nodes) of which something was said since whoever writes it down has emptied this."""

    def told(self, topology: str = "", newest: int = MOST) -> tuple[Event, ...]:
        """What was decided about a topology (or about nodes and all topologies: ""), and why; oldest first.

        Args:
            newest: So many of each sort at most.
        """
        with self._lock:
            found = [e for nodes in (False, True) for e in [*self._told.get((topology, nodes), ())][-newest:]]
        return tuple(sorted(found, key=lambda e: e.time))

    def recall(self, topology: str, told: Sequence[Event]) -> None:
        """What a leader before has said comes first."""
        with self._lock:
            for nodes in (False, True):
                since = self._told.get((topology, nodes), ())
                before = [e for e in told if _of_nodes(e) == nodes]
                self._told[topology, nodes] = deque([*before, *since], maxlen=MOST)

    def forget(self, topologies: Collection[str]) -> None:
        """Keep nothing about topologies other than these."""
        with self._lock:
            for name, nodes in [k for k in self._told if k[0] not in {*topologies, ""}]:
                del self._told[name, nodes]
                self.news.discard(name)

    def say(self, reasons: Sequence[Reason], dry: bool) -> None:
        """Say why a policy does something, or would do it. The reasons of one decision have one time."""
        now = time.time()
        for reason in reasons:
            event = reason.event(now)
            if dry:
                event = replace(
                    event, message=f"dry run: {event.message}", details={**event.details, "dry_run": 1}
                )
            self.tell(event)

    def anew(self) -> None:
        """Another scheduler is in use: what it says first is news."""
        self._said = ()

    def explain(self, reasons: Sequence[PlacingReason]) -> None:
        """Say why a scheduler did something, and once why it does nothing."""
        idle = tuple(sorted((r.topology, r.kind) for r in reasons if r.kind in QUIET or r.warning))
        news = len(idle) < len(reasons)
        if not news and self._said == idle:
            return
        self._said = () if news else idle
        for r in reasons:
            severity = Severity.WARNING if r.warning else Severity.INFO
            self.tell(Event(time.time(), r.kind, r.message, severity, topology=r.topology, details=r.details))

    def tell(self, event: Event) -> None:
        """Put an event into the stream, and keep it."""
        event = replace(event, details={k: _plain(v) for k, v in event.details.items()})
        with self._lock:
            self._told.setdefault((event.topology, _of_nodes(event)), deque(maxlen=MOST)).append(event)
            self.news.add(event.topology)
        self._ruler.tell(event)


def _of_nodes(event: Event) -> bool:
    return event.kind.startswith("node-")


def _plain(value: object) -> str | int | float:
    """A detail as it can be written down, and read again by the next leader. Numbers that JSON does not have become text, and so does
    whatever else a plug-in names.
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and isfinite(value):
        return float(value)  # numpy's is one, and cannot be written
    return str(value)
