"""Transport inside one process: several transports on a network that tests can break, hold and cut.

Numbers, windows and confirmations are those of the real one (`session.py`, `framing.py`); only the connections are not
sockets. Each transport has a thread of its own, on which its receiver is called.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from elastic.model.ids import Incarnation, worker_of
from elastic.transport.base import Address, Receiver, TransportOptions
from elastic.transport.framing import TOTALS, Report, Request, Splitter, request
from elastic.transport.inbound import Inbound
from elastic.transport.link import BaseLink
from elastic.transport.loop import Loop

logger = logging.getLogger(__name__)

Route = tuple[Incarnation, Incarnation]


class MemoryNetwork:
    """Joins transports. One address per worker: a later incarnation takes it over from an earlier one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: dict[str, MemoryTransport] = {}
        self._transports: list[MemoryTransport] = []
        self._waiting: dict[MemoryLink, None] = {}  # links that nobody answers
        self._cuts: set[Route] = set()
        self._held: dict[Route, list[tuple[_Wire, bytes]]] = {}

    def transport(
        self,
        incarnation: Incarnation,
        *,
        options: TransportOptions = TransportOptions(),  # noqa: B008 frozen
        linger: float = 1.0,
    ) -> MemoryTransport:
        """A new transport on this network."""
        transport = MemoryTransport(self, incarnation, options, linger)
        with self._lock:
            self._transports.append(transport)
        return transport

    def sever(self, sender: Incarnation, receiver: Incarnation) -> None:
        """Break the connection of the link from `sender` to `receiver`, with what is under way; it is made again."""
        link = self._find(sender, receiver)
        if link is not None:
            link.sever()

    def cut(self, sender: Incarnation, receiver: Incarnation) -> None:
        """`sever`, and let no new connection come about until `heal`."""
        with self._lock:
            self._cuts.add((sender, receiver))
        self.sever(sender, receiver)

    def heal(self, sender: Incarnation, receiver: Incarnation) -> None:
        """Let connections come about again."""
        with self._lock:
            self._cuts.discard((sender, receiver))
        self._wake()

    def hold(self, sender: Incarnation, receiver: Incarnation) -> None:
        """Keep back what `sender` writes to `receiver` until `release`, as a slow network does."""
        with self._lock:
            self._held.setdefault((sender, receiver), [])

    def release(self, sender: Incarnation, receiver: Incarnation) -> None:
        """Let through what was held back, in order, and hold no more."""
        with self._lock:
            for wire, data in self._held.pop((sender, receiver), []):
                wire.deliver(data)

    def close(self) -> None:
        """Close all transports of the network."""
        for transport in list(self._transports):
            transport.close()

    def carry(self, wire: _Wire, data: bytes) -> None:
        """Bring bytes to the other end of a connection."""
        with self._lock:
            held = self._held.get(wire.route)
            if held is not None:
                held.append((wire, data))
            else:
                wire.deliver(data)

    def join(self, transport: MemoryTransport) -> None:
        """A transport listens from now on."""
        with self._lock:
            before = self._listening.get(transport.address.tcp)
            self._listening[transport.address.tcp] = transport
        if before is not None:
            before.hang_up()
        self._wake()

    def leave(self, transport: MemoryTransport) -> None:
        """It doesn't listen any more."""
        with self._lock:
            if self._listening.get(transport.address.tcp) is transport:
                del self._listening[transport.address.tcp]
            if transport in self._transports:
                self._transports.remove(transport)
            for link in [k for k in self._waiting if k.transport is transport]:
                del self._waiting[link]

    def reach(self, link: MemoryLink) -> MemoryTransport | None:
        """Who listens where the link leads; None: nobody now, and the link is called when that changes."""
        with self._lock:
            if link.route not in self._cuts:
                found = self._listening.get(link.address.tcp)
                if found is not None:
                    return found
            self._waiting[link] = None
            return None

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting), {}
        for link in waiting:
            link.transport.loop.post(link.connect)

    def _find(self, sender: Incarnation, receiver: Incarnation) -> MemoryLink | None:
        with self._lock:
            transports = list(self._transports)
        return next(
            (t.links[receiver] for t in transports if t.incarnation == sender and receiver in t.links), None
        )


class _Wire:
    """One connection. Once broken, nothing that is still under way on it has an effect."""

    def __init__(self, link: MemoryLink, target: MemoryTransport) -> None:
        self.link = link
        self.target = target
        self.route = link.route
        self.splitter = Splitter(link.transport.options.max_frame)
        self.broken = False

    def deliver(self, data: bytes) -> None:
        self.target.loop.post(partial(self.target.arrived, self, data))


class _Source:
    """What a transport knows of one that sends to it."""

    def __init__(self, wire: _Wire) -> None:
        options = wire.link.transport.options
        self.inbound = Inbound(options.window, options.in_flight, options.window_rows)
        self.lock = threading.Lock()
        self.wire = wire

    def report(self) -> None:
        with self.lock:
            entries = self.inbound.report()
            wire = self.wire
            wire.link.transport.loop.post(partial(wire.link.reported, wire, entries))


class MemoryLink(BaseLink):
    """A `Link` on a `MemoryNetwork`."""

    def __init__(self, transport: MemoryTransport, peer: Incarnation, address: Address) -> None:
        super().__init__(transport.loop, peer, transport.options, transport.receiver, transport.moved)
        self.transport = transport
        self.address = address
        self.route: Route = (transport.incarnation, peer)
        self._wire: _Wire | None = None
        self._next: _Wire | None = None  # offered to the peer, not answered yet
        self._welcomed = False
        self._unanswered = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._wire is not None

    @property
    def hopeful(self) -> bool:
        """Whether waiting for confirmations makes sense: connected, or about to be."""
        return not self._ended and not self._unanswered

    def flush(self) -> None:
        """See `Link.flush`."""
        with self._lock:
            wire = self._wire
            if wire is not None and self._outbound.unsent:
                self.transport.network.carry(wire, b"".join(self._outbound.take()))

    def sever(self) -> None:
        """Break the connection; any thread."""
        with self._lock:
            for wire in (self._wire, self._next):
                if wire is not None:
                    wire.broken = True
        self.transport.loop.post(self._reconnect)

    # The rest is for the transport's thread.

    def connect(self) -> None:
        """Look for the peer."""
        if self._ended or self._wire is not None or self._next is not None:
            return
        target = self.transport.network.reach(self)
        self._unanswered = target is None
        if target is None:
            self.transport.moved()
            return
        if target.incarnation != self._peer:
            self.end()
            return
        self._next = wire = _Wire(self, target)
        target.loop.post(partial(target.accept, wire, self._welcomed))

    def welcome(self, wire: _Wire, received: int | None, entries: list[Report]) -> None:
        """The peer has answered; `received` is None when it doesn't know the session any more."""
        if self._ended or wire is not self._next:
            return
        self._next = None
        if received is None:
            self.end()
            return
        with self._lock:
            if not wire.broken:
                room = self._outbound.resumed(received)
                self._welcomed = True
                self._wire = wire
        if self._wire is None:
            self.connect()
            return
        self._announce(room)
        self.reported(wire, entries)
        self.flush()

    def reported(self, wire: _Wire, entries: list[Report]) -> None:
        """The peer has confirmed frames, or its tasks have taken some."""
        if wire.broken or wire is not self._wire:
            return
        self._take_reports(entries)

    def end(self, *, quiet: bool = False) -> None:
        """Give up: say what is lost; not even that nothing is, when `quiet`."""
        self._end(quiet=quiet)

    def _say_goodbye(self) -> None:
        self._end()

    def _disconnect(self) -> None:
        with self._lock:
            wire, self._wire, self._next = self._wire, None, None
        if wire is not None and not wire.broken:
            self.transport.network.carry(wire, request(Request.BYE))

    def _reconnect(self) -> None:
        with self._lock:
            if self._wire is not None and self._wire.broken:
                self._wire = None
                self._outbound.broken()
            if self._next is not None and self._next.broken:
                self._next = None
        self.transport.moved()
        self.connect()


class MemoryTransport:
    """A `Transport` on a `MemoryNetwork`; made by `MemoryNetwork.transport`."""

    def __init__(
        self, network: MemoryNetwork, incarnation: Incarnation, options: TransportOptions, linger: float
    ) -> None:
        self.network = network
        self.incarnation = incarnation
        self.options = options
        self.loop = Loop(f"memory-transport-{incarnation}")
        self.links: dict[Incarnation, MemoryLink] = {}
        self._linger = linger
        self._receiver: Receiver | None = None
        self._sources: dict[Incarnation, _Source] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def address(self) -> Address:
        """Where others reach this transport."""
        return Address(tcp=f"memory:{worker_of(self.incarnation)}")

    @property
    def receiver(self) -> Receiver:
        """Who gets the frames."""
        if self._receiver is None:
            raise RuntimeError("the transport has not been started")
        return self._receiver

    def start(self, receiver: Receiver) -> None:
        """See `Transport.start`."""
        if self._receiver is not None or self._closed:
            raise RuntimeError("a transport is started once")
        self._receiver = receiver
        self.loop.start()
        self.network.join(self)

    def link(self, peer: Incarnation, address: Address) -> MemoryLink:
        """See `Transport.link`."""
        assert self.receiver is not None
        with self._lock:
            link = self.links.get(peer)
            if link is None:
                for old in [k for p, k in self.links.items() if worker_of(p) == worker_of(peer)]:
                    old.close()
                link = self.links[peer] = MemoryLink(self, peer, address)
                if self._closed:
                    link.close()
                else:
                    self.loop.post(link.connect)
        return link

    def consumed(
        self, source: Incarnation, target: int, size: int, rows: int = 0, *, soon: bool = False
    ) -> None:
        """See `Transport.consumed`."""
        known = self._sources.get(source)
        if known is not None:
            with known.lock:
                due = known.inbound.consumed(target, size, rows)
            if due or soon:
                known.report()

    def close(self) -> None:
        """See `Transport.close`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._receiver is None:
            self.loop.stop()
            return
        for link in list(self.links.values()):
            link.flush()
        with self._changed:
            self._changed.wait_for(self._settled, self._linger)
        self.network.leave(self)
        self.loop.post(self._shut)
        self.loop.stop()

    def moved(self) -> None:
        """Something was confirmed, or a connection came or went."""
        with self._changed:
            self._changed.notify_all()

    def hang_up(self) -> None:
        """Somebody else listens at this address now: break what leads here."""
        for source in list(self._sources.values()):
            source.wire.link.sever()

    # The rest is for the transport's thread.

    def accept(self, wire: _Wire, resuming: bool) -> None:
        """A link wants a connection."""
        link = wire.link
        sender = link.transport.incarnation
        source = self._sources.get(sender)
        received: int | None = None
        entries: list[Report] = []
        if source is None and not resuming:
            source = self._sources[sender] = _Source(wire)
        if source is not None:
            with source.lock:
                source.wire.broken = source.wire.broken or source.wire is not wire
                source.wire = wire
                received = source.inbound.received
                entries = source.inbound.resumed()
        link.transport.loop.post(partial(link.welcome, wire, received, entries))

    def arrived(self, wire: _Wire, data: bytes) -> None:
        """Bytes have come on a connection."""
        sender = wire.route[0]
        source = self._sources.get(sender)
        if wire.broken or source is None or source.wire is not wire:
            return
        frames = wire.splitter.feed(data)
        for target, payload in frames:
            try:
                self.receiver.on_frame(sender, target, payload)
            except Exception:
                logger.exception("a frame from %s for task %d was not taken", sender, target)
        with source.lock:
            source.inbound.arrived(len(frames), len(data))
            for kind, target, body in wire.splitter.requests:
                if kind is Request.BYE:
                    self._sources.pop(sender, None)
                else:
                    source.inbound.asked(target, *TOTALS.unpack(body))
            wire.splitter.requests.clear()
        source.report()

    def _settled(self) -> bool:
        return not any(link.hopeful and link.unconfirmed for link in list(self.links.values()))

    def _shut(self) -> None:
        for link in list(self.links.values()):
            link.end(quiet=True)
        self.hang_up()
        self._sources.clear()
