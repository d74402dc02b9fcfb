"""The receiving end of links over sockets: one `Source` per dialling process, one `Inlet` per connection.

A connection begins with a Hello, within `GREETING_TIME`. The newest connection of a session takes it over from the one
before. What is not understood closes the connection with one warning, and harms nothing else.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from elastic.model.ids import Incarnation
from elastic.transport.base import Buffer, Receiver
from elastic.transport.channel import Channel
from elastic.transport.framing import TOTALS, ProtocolError, Request, Splitter, reports
from elastic.transport.handshake import Hello, Verdict, Welcome, WrongVersion, parse_hello, split
from elastic.transport.inbound import Inbound
from elastic.transport.loop import READ, Loop, Timer
from elastic.transport.peer import GREETING_TIME

logger = logging.getLogger(__name__)

_SMALLEST_CHUNK = 64 << 10
_LARGEST_CHUNK = 1 << 20
"""Bytes asked for in one call: all that a sender may have in flight, as between two calls a busy executor may run."""

_SHARE = 16
"""A frame that is a smaller part of what was received together is copied: a task that stands still would keep all of that with it, of
which its window knows nothing."""

_CONFIRM_TIME = 0.01
"""Seconds that the confirmation of a few frames may wait for more."""


class Source:
    """What is known of one dialling process; it outlives its connections.

    Args:
        hello: The first that it said.

    Attributes:
        inlet: Its connection, or None.
        attempt: The number of that connection.
    """

    __slots__ = ("attempt", "inbound", "incarnation", "inlet", "lock", "session")

    def __init__(self, hello: Hello) -> None:
        self.incarnation = hello.sender
        self.session = hello.session
        self.attempt = hello.attempt
        self.inbound = Inbound(hello.window, hello.in_flight, hello.window_rows)
        self.lock = threading.Lock()  # guards inbound
        self.inlet: Inlet | None = None

    def consumed(self, target: int, size: int, rows: int, soon: bool) -> None:
        """See `Transport.consumed`."""
        with self.lock:
            due = self.inbound.consumed(target, size, rows)
        if due or soon:
            inlet = self.inlet
            if inlet is not None:  # else the next one begins with all totals
                inlet.report()


class Inlet:
    """One accepted connection. All but `report` is for the loop's thread.

    Args:
        loop: Serves it.
        sock: The connection.
        name: Who it comes from, for messages.
        own: Who we are.
        receiver: Gets the frames.
        admit: Decides about a Hello: its source, or why not.
        gone: Called when the connection is closed.
        forget: Called when the dialler has closed its link for good.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        name: str,
        own: Incarnation,
        receiver: Receiver,
        *,
        admit: Callable[[Inlet, Hello], Source | Verdict],
        gone: Callable[[Inlet], None],
        forget: Callable[[Source], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._name = name
        self._own = own
        self._receiver = receiver
        self._admit = admit
        self._gone = gone
        self._forget = forget
        self._closed = False
        self._heard = b""
        self._greeting: list[Buffer] = []
        self._due = False
        self._channel: Channel | None = None
        self._splitter = Splitter(0)
        self._chunk = bytearray(_SMALLEST_CHUNK)
        self._confirm: Timer | None = None
        self.source: Source | None = None
        self._timer: Timer | None = loop.later(GREETING_TIME, self.close)
        loop.watch(sock, READ, self._listen)

    def report(self) -> None:
        """Tell the dialler what it doesn't know yet. Any thread."""
        self._due = True
        channel = self._channel
        if channel is not None:
            channel.flush()

    def close(self) -> None:
        """Close the connection; the session stays."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._timer, self._confirm):
            if timer is not None:
                timer.cancel()
        if self.source is not None and self.source.inlet is self:
            self.source.inlet = None
        if self._channel is not None:
            self._channel.close()
        else:
            self._loop.forget(self._sock)
            self._sock.close()
        self._gone(self)

    def sever(self) -> None:
        """Break the connection, as a failing network would."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _listen(self, _events: int) -> None:
        """Input before the Hello is complete."""
        size = self._receive_into(self._chunk)
        if not size:
            return
        self._heard += self._chunk[:size]
        try:
            greeting = split(self._heard)
            if greeting is not None:
                self._heard = b""
                self._begin(parse_hello(greeting.body), greeting.rest)
        except WrongVersion as e:
            self._refuse(Verdict.WRONG_VERSION)
            self._malformed(e)
        except ProtocolError as e:
            self._malformed(e)
        except Exception:  # noqa: BLE001 - it is told there
            self._in_doubt()

    def _begin(self, hello: Hello, rest: bytes) -> None:
        decision = self._admit(self, hello)
        if isinstance(decision, Verdict):
            logger.info("%s refused for %s: %s", hello.sender, hello.receiver, decision.name)
            self._refuse(decision)
            self.close()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._name = hello.sender
        self.source = source = decision
        if source.inlet is not None:
            source.inlet.close()
        source.inlet = self
        source.attempt = hello.attempt
        self._splitter = Splitter(hello.max_frame)
        with source.lock:
            welcome = Welcome(Verdict.OK, source.inbound.received, self._own)
            self._greeting = [welcome.encode(), reports(source.inbound.resumed())]
        self._due = True
        self._channel = Channel(
            self._loop,
            self._sock,
            pending=lambda: self._due,
            pull=self._pull,
            readable=self._readable,
            failed=lambda _: self.close(),
        )
        self._channel.flush()
        if rest:
            self._split(rest)

    def _refuse(self, verdict: Verdict) -> None:
        with suppress(OSError):
            self._sock.send(Welcome(verdict, 0, self._own).encode())

    def _pull(self) -> list[Buffer]:
        source = self.source
        assert source is not None
        self._due = False  # first: what becomes due from here on is either in this report or in one more
        with source.lock:
            entries = source.inbound.report()
        greeting, self._greeting = self._greeting, []
        return [*greeting, reports(entries)]

    def _receive_into(self, space: bytearray | memoryview) -> int:
        """How much has come; 0 when there is nothing yet, or when the connection has ended and was closed."""
        try:
            size = self._sock.recv_into(space)
        except BlockingIOError:
            return 0
        except OSError as e:
            logger.debug("the connection from %s broke: %s", self._name, e)
            size = 0
        if not size:
            self.close()
        return size

    def _readable(self) -> None:
        try:
            space = self._splitter.space
            if space is not None:
                size = self._receive_into(space)
                if size:
                    self._arrived(self._splitter.filled(size), size)
                return
            chunk = self._chunk
            size = self._receive_into(chunk)
            if size == 0:
                return
            data: bytes | memoryview
            whole = len(chunk)
            if 2 * size >= whole:  # the frames keep this chunk; the next may have to be larger
                data = memoryview(chunk)[:size].toreadonly()
                self._chunk = bytearray(min(2 * whole, _LARGEST_CHUNK) if size == whole else whole)
            else:  # don't let a few small frames keep so much memory
                data = bytes(memoryview(chunk)[:size])
                if 8 * size < whole > _SMALLEST_CHUNK:
                    self._chunk = bytearray(whole // 2)
            self._split(data)
        except ProtocolError as e:
            self._malformed(e)
        except Exception:  # noqa: BLE001 - it is told there
            self._in_doubt()

    def _split(self, data: bytes | memoryview) -> None:
        """Raises ProtocolError."""
        self._arrived(self._splitter.feed(data), len(data))

    def _arrived(self, frames: list[tuple[int, memoryview]], size: int) -> None:
        source = self.source
        assert source is not None
        on_frame = self._receiver.on_frame
        sender = source.incarnation
        small = size // _SHARE
        for target, payload in frames:
            if len(payload) < small:
                payload = memoryview(bytes(payload))
            try:
                on_frame(sender, target, payload)
            except Exception:
                logger.exception("a frame from %s for task %d was not taken", sender, target)
        inbound = source.inbound
        with source.lock:
            due = inbound.arrived(len(frames), size)
            owes = inbound.owes
        if self._splitter.requests:
            due = self._answer(source) or due
        if due:
            self.report()
        elif owes and self._confirm is None:
            self._confirm = self._loop.later(_CONFIRM_TIME, self._confirm_rest)

    def _confirm_rest(self) -> None:
        self._confirm = None
        if self.source is not None and self.source.inbound.owes:
            self.report()

    def _answer(self, source: Source) -> bool:
        due = False
        requests = self._splitter.requests
        for kind, target, body in requests:
            if kind is Request.BYE:
                self._forget(source)
                self.close()
                break
            with source.lock:
                due = source.inbound.asked(target, *TOTALS.unpack(body)) or due
        requests.clear()
        return due

    def _in_doubt(self) -> None:
        """What has come is lost, or a part of it: only from the last confirmed frame on it is whole again. Within `except`."""
        logger.exception("closed a connection from %s, which connects again", self._name)
        self.close()

    def _malformed(self, error: ProtocolError) -> None:
        logger.warning("closed a connection from %s: %s", self._name, error)
        self.close()
