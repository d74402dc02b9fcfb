"""Simulated connections between worker processes, worse than the product's transport: after a break, what was on its way is lost or
comes late, behind what the new connection carries; what was not confirmed is sent again, so it may come twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elastic.model.ids import Incarnation
from protocol_tests.clock import Clock

if TYPE_CHECKING:
    from protocol_tests.worker import Worker


class Connection:
    """From one process to another."""

    def __init__(self, network: Network, source: Worker, target: Incarnation) -> None:
        self.network = network
        self.source, self.target = source, target
        self.waiting: dict[int, Any] = {}
        self._delivered: set[int] = set()
        self.broken = False
        self._number = 0
        self._life = 0
        self._last = 0.0

    def send(self, frame: Any) -> None:
        self._number += 1
        self.waiting[self._number] = frame
        if not self.broken:
            self._transmit(self._number, frame)

    def _transmit(self, number: int, frame: Any) -> None:
        clock = self.network.clock
        longest = 0.05 if self.source.me == self.target else self.network.delay
        self._last = max(self._last, clock.now + clock.rnd.random() * longest)
        clock.at(self._last, self._arrive, self._life, number, frame)

    def _arrive(self, life: int, number: int, frame: Any) -> None:
        clock = self.network.clock
        if life != self._life:
            if clock.rnd.random() < 0.5:
                return
            if clock.rnd.random() < 0.5:  # it lies in the old connection's buffers for a while
                clock.after(4 * self.network.delay, self._deliver, number, frame)
                return
        self._deliver(number, frame)
        if life == self._life:
            clock.after(self.network.delay, self._confirmed, life, number)

    def _deliver(self, number: int, frame: Any) -> None:
        target = self.network.processes.get(self.target)
        if target is not None:
            target.on_frame(self.source.me, frame, number in self._delivered)
            self._delivered.add(number)

    def _confirmed(self, life: int, number: int) -> None:
        if (
            life == self._life
            and self.network.processes.get(self.target) is not None
            and number in self.waiting
        ):
            frame = self.waiting.pop(number)
            self.source.on_confirmed(frame)

    def cut(self, longest: float) -> None:
        """Break it. Often the next connection is there at once, and what is new overtakes what has to be sent again."""
        self._life += 1
        self.broken = self.network.clock.rnd.random() < 0.5
        self.network.clock.after(longest, self._mend, self._life, self._number)

    def _mend(self, life: int, last: int) -> None:
        if life != self._life or not self.source.alive:
            return
        self._last = self.network.clock.now
        broken, self.broken = self.broken, False
        for number, frame in list(self.waiting.items()):
            if not broken and number > last:
                continue
            self._transmit(number, frame)

    def lost(self) -> None:
        """The peer's process is gone: what it had not confirmed is given up."""
        frames, self.waiting = list(self.waiting.values()), {}
        for frame in frames:
            self.source.on_confirmed(frame)


class Network:
    """All connections, and the processes that live."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.delay = 1.0
        self.processes: dict[Incarnation, Worker] = {}
        self.connections: dict[tuple[Incarnation, Incarnation], Connection] = {}

    def send(self, source: Worker, target: Incarnation, frame: Any) -> None:
        key = (source.me, target)
        connection = self.connections.get(key)
        if connection is None:
            connection = self.connections[key] = Connection(self, source, target)
        connection.send(frame)
        if target not in self.processes:
            self.clock.after(self.delay, connection.lost)

    def frames(self, wanted: Callable[[Connection], bool]) -> list[Any]:
        """What is not confirmed on those connections."""
        return [f for c in self.connections.values() if wanted(c) for f in c.waiting.values()]

    def died(self, me: Incarnation) -> None:
        """A process has ended."""
        del self.processes[me]
        for key, connection in list(self.connections.items()):
            if key[0] == me:
                connection.waiting.clear()
                connection.broken = True
                del self.connections[key]
            elif key[1] == me:
                self.clock.after(self.delay, connection.lost)
