"""Transport over TCP and Unix sockets: length-prefixed frames, one I/O thread. See `docs/transport.md`.

SocketTransport   listens, keeps the links and the sources
  SocketLink        peer.py       the way to one process: dials                     (sending end; link.py)
  Source, Inlet     inlet.py      one dialling process, one connection from it      (receiving end)
    Outbound, Inbound session.py, inbound.py   numbers, windows, retained frames: pure
    Channel         channel.py    an open connection that any thread may write to
    framing.py, handshake.py      the bytes: pure
  Loop              loop.py       the I/O thread
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from pathlib import Path

from elastic.errors import ConfigError
from elastic.model.ids import Incarnation, life_of, worker_of
from elastic.transport.addresses import (
    boot_id,
    format_tcp,
    listen_tcp,
    listen_unix,
    parse_tcp,
    tune,
    unix_path,
)
from elastic.transport.base import Address, Receiver, TransportOptions
from elastic.transport.framing import LARGEST_FRAME
from elastic.transport.handshake import Hello, Verdict
from elastic.transport.inlet import Inlet, Source
from elastic.transport.loop import READ, Loop
from elastic.transport.peer import SocketLink

logger = logging.getLogger(__name__)

_MOST_GUESTS = 128
"""Connections that have not said Hello."""

_MOST_SOURCES = 4096
"""Sessions of diallers, beyond which those without a connection are forgotten, the oldest first."""

_LONGEST_NAME = 1000
_ACCEPT_PAUSE = 0.2


class SocketTransport:
    """A `Transport` over TCP, and over a Unix socket between workers of one machine.

    Args:
        incarnation: Who this is.
        host: The address to listen on, and that others are told.
        port: The TCP port, 0 for any that is free.
        run_dir: Where the Unix socket goes; None (or a path that is too long for one): TCP alone.
        options: The bounds of the links that go out from here.
        linger: Seconds that `close` waits at most until living peers have confirmed what was offered to them.

    Raises:
        ConfigError: An option has a value that it cannot have.
    """

    def __init__(
        self,
        incarnation: Incarnation,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        run_dir: Path | None = None,
        options: TransportOptions = TransportOptions(),  # noqa: B008 frozen
        linger: float = 1.0,
    ) -> None:
        _validate(options)
        _validate_name(incarnation)
        self._incarnation = incarnation
        self._host = host
        self._port = port
        self._run_dir = run_dir
        self._options = options
        self._linger = linger
        self._address: Address | None = None
        self._unix: Path | None = None
        self._receiver: Receiver | None = None
        self._loop = Loop(f"transport-{incarnation}")
        self._lock = threading.Lock()  # guards _links, _closed
        self._links: dict[Incarnation, SocketLink] = {}
        self._closed = False
        self._closing: threading.Event | None = None  # set when nothing is left to wait for
        self._sources: dict[Incarnation, Source] = {}  # changed by the loop alone
        self._listeners: list[socket.socket] = []
        self._inlets: dict[Inlet, None] = {}  # in order of their coming

    @property
    def address(self) -> Address:
        """Where others reach this transport; known from `start` on."""
        if self._address is None:
            raise RuntimeError("the transport has not been started")
        return self._address

    def start(self, receiver: Receiver) -> None:
        """See `Transport.start`. Nobody can be reached before."""
        if self._receiver is not None or self._closed:
            raise RuntimeError("a transport is started once")
        try:
            tcp = listen_tcp(self._host, self._port)
            self._listeners.append(tcp)
            path = unix_path(self._run_dir, self._incarnation)
            if path is not None:
                self._listeners.append(listen_unix(path))
                self._unix = path
            elif self._run_dir is not None:
                logger.warning("no Unix socket in %s: its path would be too long; TCP is used", self._run_dir)
        except BaseException:
            self.close()
            raise
        host, port = tcp.getsockname()[:2]
        self._address = Address(tcp=format_tcp(host, port), unix=str(path or ""), boot=boot_id())
        self._receiver = receiver
        self._loop.post(self._listen)
        self._loop.start()

    def link(self, peer: Incarnation, address: Address) -> SocketLink:
        """See `Transport.link`. Remembers an ended link until the worker's next incarnation but one is asked for.

        Raises:
            ConfigError: The address is not one.
        """
        receiver = self._receiver
        if receiver is None:
            raise RuntimeError("the transport has not been started")
        with self._lock:
            link = self._links.get(peer)
            if link is None:
                parse_tcp(address.tcp)
                _validate_name(peer)
                worker = worker_of(peer)
                for old in [k for p, k in self._links.items() if worker_of(p) == worker]:
                    if old.ended:
                        del self._links[old.peer]
                    else:
                        old.close()  # a place has one process: whoever asks for this one knows that the other is gone
                link = SocketLink(
                    self._loop, self._incarnation, peer, address, self._options, receiver, self._check
                )
                if self._closed:
                    link.close()
                    return link
                self._links[peer] = link
                self._loop.post(link.dial)
        return link

    def consumed(
        self, source: Incarnation, target: int, size: int, rows: int = 0, *, soon: bool = False
    ) -> None:
        """See `Transport.consumed`. Cheap: a system call only when half of a window has come together, or if it is to be soon."""
        known = self._sources.get(source)
        if known is not None:
            known.consumed(target, size, rows, soon)

    def sever(self) -> None:
        """Break all connections, as a failing network would; the links go on by themselves. For tests."""
        self._loop.post(self._sever)

    def close(self) -> None:
        """See `Transport.close`. What living peers have not confirmed yet is waited for, up to `linger` seconds."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._receiver is not None and not self._loop.inside:
            settled = threading.Event()
            self._loop.post(lambda: self._settle(settled))
            settled.wait(self._linger)
        self._loop.post(self._shut)
        self._loop.stop()
        self._stop_listening()  # if it never ran

    def _listen(self) -> None:
        for listener in self._listeners:
            self._watch(listener)

    def _watch(self, listener: socket.socket) -> None:
        if not self._closed:
            self._loop.watch(listener, READ, lambda _: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        assert self._receiver is not None
        try:
            sock, peer = listener.accept()
        except BlockingIOError:
            return
        except OSError as e:  # no descriptor is left, or the dialler has gone again
            logger.warning("the transport of %s cannot accept a connection: %s", self._incarnation, e)
            self._loop.forget(listener)
            self._loop.later(_ACCEPT_PAUSE, lambda: self._watch(listener))
            return
        try:
            sock.setblocking(False)
            tune(sock)
        except OSError:
            sock.close()
            return
        guests = [inlet for inlet in self._inlets if inlet.source is None]
        if len(guests) >= _MOST_GUESTS:
            guests[0].close()
        inlet = Inlet(
            self._loop,
            sock,
            format_tcp(*peer[:2]) if isinstance(peer, tuple) else "a process of this machine",
            self._incarnation,
            self._receiver,
            admit=self._admit,
            gone=self._gone,
            forget=self._forget,
        )
        self._inlets[inlet] = None

    def _admit(self, inlet: Inlet, hello: Hello) -> Source | Verdict:
        if hello.receiver != self._incarnation:
            return Verdict.WRONG_INCARNATION
        source = self._sources.get(hello.sender)
        if source is None:
            if hello.resuming:
                return Verdict.UNKNOWN_SESSION
            self._make_room(hello.sender)
            source = self._sources[hello.sender] = Source(hello)
            return source
        if source.session != hello.session:
            return Verdict.UNKNOWN_SESSION
        if hello.attempt <= source.attempt:
            return Verdict.STALE
        return source

    def _gone(self, inlet: Inlet) -> None:
        self._inlets.pop(inlet, None)

    def _forget(self, source: Source) -> None:
        self._sources.pop(source.incarnation, None)

    def _make_room(self, sender: Incarnation) -> None:
        """Forget sessions of earlier lives of that worker, and the oldest of too many; never a connected one."""
        worker, life = worker_of(sender), life_of(sender)
        idle = [i for i, s in self._sources.items() if s.inlet is None]
        earlier = [i for i in idle if worker_of(i) == worker and life_of(i) <= life]
        for incarnation in earlier + [i for i in idle if i not in earlier]:
            if incarnation in earlier or len(self._sources) >= _MOST_SOURCES:
                del self._sources[incarnation]

    def _sever(self) -> None:
        for link in list(self._links.values()):
            link.sever()
        for inlet in list(self._inlets):
            inlet.sever()

    def _settle(self, settled: threading.Event) -> None:
        self._closing = settled
        for link in list(self._links.values()):
            link.settle()
        self._check()

    def _check(self) -> None:
        """Something has been confirmed, or a connection has come or gone: is there still something to wait for?"""
        if self._closing is not None and not any(
            link.hopeful and link.unconfirmed for link in list(self._links.values())
        ):
            self._closing.set()

    def _shut(self) -> None:
        for link in list(self._links.values()):
            link.shut()
        for inlet in list(self._inlets):
            inlet.close()
        for listener in self._listeners:
            self._loop.forget(listener)
        self._stop_listening()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        if self._unix is not None:
            with suppress(OSError):
                self._unix.unlink()


def _validate(options: TransportOptions) -> None:
    for name, least, most in (
        ("window", 1, 1 << 62),
        ("in_flight", 1, 1 << 62),
        ("max_frame", 1, LARGEST_FRAME),
        ("window_rows", 0, 1 << 62),
        ("reconnect_min", 0.001, 3600),
        ("reconnect_max", options.reconnect_min, 3600),
    ):
        value = getattr(options, name)
        if not least <= value <= most:
            raise ConfigError(
                f"the transport's {name} is {value}", remedy=f"it must be from {least} to {most}"
            )


def _validate_name(name: str) -> None:
    if not 0 < len(name.encode()) <= _LONGEST_NAME:
        raise ConfigError(
            f"the incarnation {name[:40]!r} is not from 1 to {_LONGEST_NAME} bytes long",
            remedy="choose a shorter topology or node name",
        )
