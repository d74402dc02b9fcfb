"""What this worker knows of where tuples can go: the tasks that are here, and the links to other worker processes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from elastic.model.ids import Incarnation
from elastic.model.records import WorkerInfo
from elastic.transport.base import Address, Link, Transport
from elastic.worker.emitting.destination import Destination

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task


class Ways:
    """One `Destination` for each task, and one link for each living worker process, for the life of the worker.

    Args:
        me: The worker's life.
    """

    def __init__(self, me: Incarnation, transport: Transport | None) -> None:
        self.me = me
        self._transport = transport
        self._lock = threading.Lock()
        self._destinations: dict[int, Destination] = {}
        self._addresses: dict[Incarnation, Address] = {}
        self._links: dict[Incarnation, Link] = {}

    def to(self, task: int) -> Destination:
        """The way to a task."""
        with self._lock:
            found = self._destinations.get(task)
            if found is None:
                found = self._destinations[task] = Destination(task)
            return found

    def put_here(self, task: Task) -> None:
        """The task runs in this process now."""
        self.to(task.id).local = task
        self.signal(task.id)

    def take_away(self, task: Task) -> None:
        """It doesn't any more."""
        destination = self.to(task.id)
        if destination.local is task:
            destination.local = None
        destination.signal()

    def link(self, where: Incarnation) -> Link | None:
        """The link to a worker process; None when it does not live, or is not known yet."""
        found = self._links.get(where)
        if found is None and where:
            with self._lock:
                address = self._addresses.get(where)
                if address is not None and self._transport is not None:
                    found = self._links[where] = self._transport.link(where, address)
        return found

    def refresh(self, peers: Iterable[WorkerInfo]) -> None:
        """These worker processes live (N-Storm's refresh-connections). Links to others are closed: nobody will answer there."""
        addresses = {
            p.incarnation: Address(p.address, p.unix, p.boot) for p in peers if p.incarnation != self.me
        }
        with self._lock:
            before, self._addresses = self._addresses, addresses
            gone = [self._links.pop(i) for i in list(self._links) if i not in addresses]
        for link in gone:
            link.close()  # what it had not received is counted
        if addresses != before:
            self.signal_all()

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
