"""Transports of every kind, for the suites that all of them must pass, and a receiver that remembers what it was told."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from elastic.model.ids import Incarnation
from elastic.transport.base import Link, Transport, TransportOptions
from elastic.transport.memory import MemoryNetwork, MemoryTransport
from elastic.transport.sockets import SocketTransport

BOUND = 30.0
A, B, C = Incarnation("t@n/0#1"), Incarnation("t@n/1#1"), Incarnation("t@n/2#1")
B2 = Incarnation("t@n/1#2")
DEFAULT = TransportOptions()
SMALL = TransportOptions(window=1000, in_flight=4000, max_frame=1 << 20)


class Worker:
    """A receiver that remembers everything; `take` is what a task does."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.frames: list[tuple[Incarnation, int, bytes]] = []
        self.rooms: list[tuple[Incarnation, int]] = []
        self.losses: list[tuple[Incarnation, int, int]] = []
        self.transport: Transport | None = None
        self.keep = True  # False: count and consume at once
        self.gate = threading.Event()  # cleared: the transport's thread stands still at the next frame
        self.gate.set()
        self.count = 0
        self.digest = hashlib.sha256()

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        self.gate.wait(BOUND)
        with self.changed:
            self.count += 1
            if self.keep:
                self.frames.append((source, target, bytes(payload)))
            else:
                self.digest.update(payload)
            self.changed.notify_all()
        if not self.keep:
            assert self.transport is not None
            self.transport.consumed(source, target, len(payload))

    def on_room(self, peer: Incarnation, target: int) -> None:
        with self.changed:
            self.rooms.append((peer, target))
            self.changed.notify_all()

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        with self.changed:
            self.losses.append((peer, frames, size))
            self.changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, BOUND), "it did not happen"

    def consume_all(self) -> None:
        assert self.transport is not None
        for source, target, payload in self.frames:
            self.transport.consumed(source, target, len(payload))


def push(worker: Worker, link: Link, target: int, payload: bytes) -> None:
    """Offer until it is taken, as an executor does."""
    while True:
        with worker.changed:
            before = len(worker.rooms)
        if link.offer(target, [payload]):
            return
        worker.until(lambda before=before: len(worker.rooms) > before)  # type: ignore[misc]


class World:
    """Where transports live, whatever kind they are."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self.network = MemoryNetwork()
        self.transports: list[Transport] = []

    def start(
        self,
        incarnation: Incarnation,
        options: TransportOptions = DEFAULT,
        port: int = 0,
    ) -> tuple[Transport, Worker]:
        transport: Transport
        if self.kind == "memory":
            transport = self.network.transport(incarnation, options=options)
        else:
            run_dir = self.directory if self.kind == "unix" else None
            transport = SocketTransport(incarnation, port=port, run_dir=run_dir, options=options)
        worker = Worker()
        worker.transport = transport
        transport.start(worker)
        self.transports.append(transport)
        return transport, worker

    def sever(self, transport: Transport, peer: Incarnation) -> None:
        """Break the connections between two transports, from the one side."""
        if isinstance(transport, MemoryTransport):
            self.network.sever(transport.incarnation, peer)
            self.network.sever(peer, transport.incarnation)
        else:
            assert isinstance(transport, SocketTransport)
            transport.sever()

    def replacement_port(self, transport: Transport) -> int:
        return 0 if self.kind == "memory" else int(transport.address.tcp.rpartition(":")[2])

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


def joined(
    world: World, options: TransportOptions = SMALL
) -> tuple[Transport, Worker, Transport, Worker, Link]:
    a, at_a = world.start(A, options)
    b, at_b = world.start(B, options)
    return a, at_a, b, at_b, a.link(B, b.address)
