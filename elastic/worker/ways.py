"""The ways from this worker to every task of the topology: who is here, who is behind which link, who is nowhere at present."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elastic.model.ids import Incarnation, WorkerId
from elastic.model.records import Allocation, WorkerInfo
from elastic.transport.base import Address, Link, Transport
from elastic.worker.destination import Destination

if TYPE_CHECKING:
    from elastic.worker.task import Task


@dataclass(frozen=True, slots=True)
class Changed:
    """What a refresh has found.

    Attributes:
        targets: Tasks that are behind another process than before.
        renewed: Workers whose process is another one than before.
    """

    targets: tuple[int, ...]
    renewed: tuple[WorkerId, ...]


class Ways:
    """One `Destination` for each task, for the life of the worker.

    Args:
        here: The worker.
        tasks: Its own tasks, kept up to date by the worker.
    """

    def __init__(self, here: WorkerId, tasks: Mapping[int, Task], transport: Transport | None) -> None:
        self._here = here
        self._tasks = tasks
        self._transport = transport
        self._lock = threading.Lock()
        self._destinations: dict[int, Destination] = {}
        self._peers: dict[WorkerId, Incarnation] = {}
        self._links: dict[Incarnation, Link] = {}

    def to(self, task: int) -> Destination:
        """The way to a task."""
        with self._lock:
            found = self._destinations.get(task)
            if found is None:
                found = self._destinations[task] = Destination(task)
                local = self._tasks.get(task)
                if local is not None:
                    found.to_local(local)
            return found

    def signal(self, task: int) -> None:
        """There may be room on the way to that task."""
        found = self._destinations.get(task)
        if found is not None:
            found.signal()

    def signal_all(self) -> None:
        """Whoever waits for a way looks again."""
        with self._lock:
            found = list(self._destinations.values())
        for destination in found:
            destination.signal()

    def refresh(self, allocation: Allocation) -> Changed:
        """Follow an allocation (N-Storm's refresh-connections)."""
        peers = {p.worker: p for p in allocation.peers if p.worker != self._here}
        renewed = sorted(w for w, p in peers.items() if self._peers.get(w) not in (None, p.incarnation))
        self._peers.update({w: p.incarnation for w, p in peers.items()})
        living = {p.incarnation for p in allocation.peers}
        changed = [
            number
            for first, last, worker in allocation.places
            for number in range(first, last + 1)
            if self._point(number, worker, peers.get(worker), living)
        ]
        for incarnation in self._links.keys() - living:
            # Nobody will ever answer there: stop dialling, and have what it had not received counted.
            self._links.pop(incarnation).close()
        return Changed(tuple(changed), tuple(renewed))

    def _point(self, task: int, worker: WorkerId, peer: WorkerInfo | None, living: set[Incarnation]) -> bool:
        """Point the way to a task; returns whether it leads to another process now."""
        destination = self.to(task)
        if worker == self._here:
            local = self._tasks.get(task)
            if local is not None and destination.local is not local:
                destination.to_local(local)
            return False
        before = destination.incarnation
        if peer is None or self._transport is None:
            if before not in living and (destination.local is not None or destination.link is not None):
                destination.to_nowhere()
            return False
        if before == peer.incarnation:
            return False
        link = self._links[peer.incarnation] = self._transport.link(peer.incarnation, _address(peer))
        destination.to_link(link)
        return True


def _address(peer: WorkerInfo) -> Address:
    return Address(peer.address, peer.unix, peer.boot)
