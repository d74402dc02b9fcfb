"""The sending end of a link over sockets: dials, greets, writes frames, reads reports, and dials again when it broke.

    WAITING  --timer-->  DIALLING  --connected-->  GREETING  --welcome-->  OPEN
       ^                     |                        |                      |
       +---------------------+------- failed ---------+------- broken -------+

    ENDED from anywhere: closed here, or the peer's process turned out to be gone. Nothing leads out of it.

What is offered in WAITING, DIALLING and GREETING is kept, up to the bounds.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from elastic.model.ids import Incarnation
from elastic.transport.addresses import dial_target, tune
from elastic.transport.base import Address, Buffer, Receiver, TransportOptions
from elastic.transport.channel import Channel
from elastic.transport.framing import ProtocolError, ReportReader, Request, request
from elastic.transport.handshake import Hello, Verdict, Welcome, parse_welcome, split
from elastic.transport.link import BaseLink
from elastic.transport.loop import READ, WRITE, Loop, Timer

logger = logging.getLogger(__name__)

GREETING_TIME = 5.0
"""Seconds from the beginning of a dial to the Welcome."""

_CHUNK = 64 << 10


class SocketLink(BaseLink):
    """A `Link` over sockets.

    Args:
        loop: Serves its connections.
        own: Who dials.
        peer: Whom it wants.
        address: Where the peer listens.
        options: The bounds.
        receiver: Is told of room and of losses, on the loop's thread.
        moved: Called on the loop's thread when fewer frames are unconfirmed, or the connection came or went.
    """

    def __init__(
        self,
        loop: Loop,
        own: Incarnation,
        peer: Incarnation,
        address: Address,
        options: TransportOptions,
        receiver: Receiver,
        moved: Callable[[], None],
    ) -> None:
        super().__init__(loop, peer, options, receiver, moved)
        self._own = own
        self._address = address
        self._session = secrets.randbits(64)
        self._channel: Channel | None = None
        # Below: for the loop's thread alone.
        self._attempt = 0
        self._failures = 0
        self._unreachable = False  # the last attempt to connect has failed
        self._welcomed = False
        self._prefer_tcp = False
        self._complained = False
        self._sock: socket.socket | None = None  # while dialling and greeting
        self._heard = b""
        self._reader = ReportReader()
        self._timer: Timer | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection at this moment."""
        return self._channel is not None

    @property
    def hopeful(self) -> bool:
        """Whether waiting for confirmations makes sense: connected, or about to be."""
        return not self._ended and (self._channel is not None or not self._unreachable)

    def flush(self) -> None:
        """See `Link.flush`."""
        channel = self._channel
        if channel is not None:
            channel.flush()

    def settle(self) -> None:
        """Ask the peer to confirm everything at once. On the loop's thread."""
        with self._lock:
            self._outbound.ask()
        self.flush()

    def sever(self) -> None:
        """Break the connection, as a failing network would. On the loop's thread."""
        sock = self._channel.sock if self._channel is not None else self._sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def dial(self) -> None:
        """Begin to connect. On the loop's thread."""
        self._timer = None
        if self._ended:
            return
        self._attempt += 1
        self._heard = b""
        try:
            family, target = dial_target(self._address, prefer_tcp=self._prefer_tcp)
            self._sock = sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            tune(sock)
            code = sock.connect_ex(target)
        except OSError as e:
            self._retry(str(e))
            return
        if code not in (0, errno.EINPROGRESS):
            self._retry(os.strerror(code))
            return
        self._timer = self._loop.later(GREETING_TIME, lambda: self._retry("no answer"))
        self._loop.watch(sock, WRITE, self._greet)

    def _greet(self, _events: int) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._retry(os.strerror(code))
            return
        hello = Hello(
            session=self._session,
            attempt=self._attempt,
            resuming=self._welcomed,
            window=self._options.window,
            in_flight=self._options.in_flight,
            max_frame=self._options.max_frame,
            window_rows=self._options.window_rows,
            sender=self._own,
            receiver=self._peer,
        )
        try:
            if sock.family != socket.AF_UNIX and sock.getsockname() == sock.getpeername():
                self._retry("nobody listens there")  # the kernel has connected the socket with itself
                return
            sock.send(hello.encode())  # a fresh socket has room for it
        except OSError as e:
            self._retry(str(e))
            return
        self._loop.watch(sock, READ, self._listen)

    def _listen(self, _events: int) -> None:
        sock = self._sock
        assert sock is not None
        try:
            data = sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as e:
            self._retry(str(e))
            return
        if not data:
            self._retry("it hung up")
            return
        self._heard += data
        try:
            greeting = split(self._heard)
            if greeting is not None:
                self._welcome(sock, parse_welcome(greeting.body), greeting.rest)
        except ProtocolError as e:
            self._malformed(e)

    def _welcome(self, sock: socket.socket, welcome: Welcome, rest: bytes) -> None:
        if welcome.verdict is Verdict.STALE:
            self._retry("a later attempt was there already")
            return
        if welcome.verdict is Verdict.WRONG_VERSION:
            raise ProtocolError("it speaks another version of the protocol")
        if welcome.verdict is not Verdict.OK or welcome.incarnation != self._peer:
            logger.info("%s is gone: %s answers at its address", self._peer, welcome.incarnation)
            self._end()
            return
        try:
            with self._lock:
                room = self._outbound.resumed(welcome.received)
        except ProtocolError as e:  # it will say the same each time
            logger.warning("the link to %s has ended: %s", self._peer, e)
            self._end()
            return
        self._unreachable = False
        self._cancel()
        self._sock = None
        self._welcomed = True
        self._reader = ReportReader()
        self._channel = Channel(
            self._loop,
            sock,
            pending=lambda: bool(self._outbound.unsent),
            pull=self._pull,
            readable=self._readable,
            failed=lambda e: self._broken(str(e)),
        )
        self._announce(room)
        if rest:
            self._heard_reports(rest)
        self.flush()
        self._moved()

    def _pull(self) -> list[Buffer]:
        with self._lock:
            return self._outbound.take()

    def _readable(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            data = channel.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as e:
            self._broken(str(e))
            return
        if data:
            try:
                self._heard_reports(data)
            except ProtocolError as e:
                self._malformed(e)
        else:
            self._broken("it hung up")

    def _heard_reports(self, data: bytes) -> None:
        # Not at the Welcome: a connection that breaks before anything got through isn't a success.
        self._failures = 0
        self._take_reports(self._reader.feed(data))

    def _malformed(self, error: ProtocolError) -> None:
        # Once: whoever answers there will say the same at each attempt.
        level = logging.DEBUG if self._complained else logging.WARNING
        self._complained = True
        logger.log(level, "closed the connection to %s at %s: %s", self._peer, self._address.tcp, error)
        if self._channel is not None:
            self._broken("malformed input")
        else:
            self._retry("malformed input")

    def _broken(self, why: str) -> None:
        """The open connection has ended."""
        if self._channel is None:
            return
        logger.info("the connection to %s broke (%s): connecting again", self._peer, why)
        self._again()

    def _retry(self, why: str) -> None:
        """An attempt to connect has failed."""
        logger.debug("cannot reach %s (%s)", self._peer, why)
        self._unreachable = True
        self._prefer_tcp = not self._prefer_tcp  # if there are two ways, try them in turn
        self._again()

    def _again(self) -> None:
        self._disconnect()
        if self._ended:
            return
        options = self._options
        pause = min(options.reconnect_max, options.reconnect_min * 2 ** min(self._failures, 30))
        self._failures += 1
        self._timer = self._loop.later(pause, self.dial)
        self._moved()

    def _disconnect(self) -> None:
        self._cancel()
        if self._sock is not None:
            self._loop.forget(self._sock)
            self._sock.close()
            self._sock = None
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()  # first: afterwards nobody pulls for it
            with self._lock:
                self._outbound.broken()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say_goodbye(self) -> None:
        if self._ended:
            return
        channel = self._channel
        if channel is not None:
            with self._lock:
                self._outbound.broken()
                self._outbound.unsent = [request(Request.BYE)]
            channel.flush()
        self._end()

    def shut(self) -> None:
        """The transport closes: end, and report only a real loss. On the loop's thread."""
        if self.unconfirmed:
            self._say_goodbye()
        else:
            self._end(quiet=True)
