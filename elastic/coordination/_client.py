"""kazoo's client as the adapter needs it: it keeps a `Lease`, and takes notes of what has changed in order."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, NoWatcherError
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import Auth, int_struct, write_string
from kazoo.protocol.states import EventType, WatchedEvent
from kazoo.retry import KazooRetry

from elastic.coordination._lease import Lease
from elastic.coordination._watches import Kind, Watches

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("elastic.coordination.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it reports each of many attempts to connect; what matters is logged here
_HANDSHAKES = 3
"""A server that is starting may accept a connection and never answer: an attempt gets this part of the time-out at most,"""
_FIRST = 1.0
"""and the first one so many seconds, each next one twice as many. Of eight clients of a server that is started again about one every
other time is not answered, while the next attempt is within milliseconds."""
_CLOSING = 1.0
"""Seconds for a handshake that is under way when the connection is closed: answered, the session ends in order."""
_CONNECTS = 12
"""The same of an attempt to connect with one of several: a machine that is off does not answer at all, and beside it another one serves.
When a connection has broken because nothing came any more, a sixth of the time is left."""
_CHUNK = 64 << 10
"""Bytes that are asked for at a time."""
_GREETING = 16
"""Bytes of the answer to whoever asks for a session, at least."""
_MOST = (1 << 31) - 1
"""The greatest number that a request may have."""


@dataclass(frozen=True, slots=True)
class Note:
    """Told by kazoo that something has changed. Equal ones are one to kazoo."""

    kind: Kind
    path: str
    watches: Watches = field(compare=False)

    def __call__(self, event: WatchedEvent) -> None:
        self.watches.changed(self.kind, self.path, gone=event.type == EventType.DELETED)


class _Waker:
    """Tells the connection's thread of requests: both ends of what kazoo takes for a pair of sockets.

    kazoo sends a byte for each request, and waits while 278 of them have not been read. The thread that reads them makes requests itself,
    one or two for each change that it is told of: many changes at once, or many requests of others at that moment, and it would wait for
    itself. So requests are counted, and a byte lies there as long as there are some.

    Args:
        sends: Sends a request that waits, if that can be done here and now.
    """

    def __init__(self, sends: Callable[[], bool]) -> None:
        self._sends = sends
        self._ours, self._theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._closed = False
        self.count = 0
        """Requests that are to be sent."""

    def send(self, _byte: bytes) -> int:
        """A request more waits; or one is on its way, and as many wait as before."""
        if not self._sends():
            self.leave()
        return 1

    def leave(self) -> None:
        """A request more waits, for the connection's thread."""
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "closed")
            self.count += 1
            if self.count == 1:
                self._theirs.send(b"\0")

    def recv(self, _size: int) -> bytes:
        """One request less; never waits."""
        with self._lock:
            if not self.count:
                raise BlockingIOError(errno.EAGAIN, "no request")
            self.count -= 1
            if not self.count:
                self._ours.recv(1)
        return b"\0"

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._ours.close()
            self._theirs.close()


@dataclass(frozen=True, slots=True)
class _RemoveWatches:
    """The request that kazoo lacks: this session wants to hear of a node no more, neither of its value nor of its children."""

    path: str
    type: ClassVar[int] = 18
    _any: ClassVar[int] = 3

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + bytes(int_struct.pack(self._any))

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        return True


class Answer(AsyncResult):  # type: ignore[misc]
    """kazoo's, of which one can be told without another thread being woken."""

    def __init__(self, handler: SequentialThreadingHandler) -> None:
        super().__init__(handler)
        self._told: Callable[[], None] | None = None

    def tell(self, told: Callable[[], None]) -> None:
        """Have somebody called when it is here: at once, or by who brings it, which is the connection's thread. Must not wait."""
        with self._condition:
            self._told = told
            if self.ready():
                self._tell()

    def _do_callbacks(self) -> None:
        super()._do_callbacks()
        self._tell()

    def _tell(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            try:
                told()
            except Exception:  # the session would end with this thread
                log.exception("who waits for an answer of ZooKeeper raised")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Takes word of changes on the connection's own thread: before the answers that come after it.

    Args:
        refused: See `make_client`.
    """

    def __init__(self, refused: Callable[[str, float], None]) -> None:
        super().__init__()
        self._refused = refused
        self.ahead: Callable[[Sequence[Any]], list[Any]] = lambda rlist: []
        self.sends: Callable[[], bool] = lambda: False

    def dispatch_callback(self, callback: Any) -> None:
        if isinstance(callback.func, Note):
            callback.func(*callback.args)
        else:
            super().dispatch_callback(callback)

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """By `poll`, as `select.select`. kazoo makes a selector and throws it away, four times for each answer that it reads: 45 us each
        time in place of 3, on the way of every mark of a move."""
        if ahead := self.ahead(rlist):
            return ahead, [], []
        wanted: dict[int, int] = {}
        for files, event in ((rlist, select.POLLIN), (wlist, select.POLLOUT)):
            for file in files:
                fd = file if isinstance(file, int) else file.fileno()
                if fd < 0:
                    raise ValueError(f"not open: {file!r}")
                wanted[fd] = wanted.get(fd, 0) | event
        poll = select.poll()
        for fd, events in wanted.items():
            poll.register(fd, events)
        # Whatever is wrong with a file is said by reading from it, or writing to it.
        found = dict(poll.poll(None if timeout is None else math.ceil(timeout * 1000)))
        readable = [
            f for f in rlist if found.get(f if isinstance(f, int) else f.fileno(), 0) & ~select.POLLOUT
        ]
        writable = [
            f for f in wlist if found.get(f if isinstance(f, int) else f.fileno(), 0) & ~select.POLLIN
        ]
        return readable, writable, []

    def create_socket_pair(self) -> tuple[_Waker, _Waker]:
        waker = _Waker(self.sends)
        return waker, waker

    def async_result(self) -> Answer:
        return Answer(self)

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        kwargs["timeout"] = kwargs["timeout"] / _CONNECTS
        try:
            return super().create_connection(*args, **kwargs)
        except ConnectionRefusedError:
            self._refused(kwargs["address"][0], began)
            raise


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Tells the lease what is sent and what is answered; reads and writes with few calls.

    Each call to the system lets go of the interpreter. Beside computing threads its caller gets that back only when their turn is over,
    milliseconds later: kazoo's five calls for each message that it reads were most of what a move's marks took on their way.

    So is each thread that has to be woken: who makes a request sends it, if nobody else is sending, as far as the socket takes it. Else
    the connection's thread does, as kazoo has it, and what is left.
    """

    def __init__(self, client: KazooClient, patience: KazooRetry, lease: Lease) -> None:
        super().__init__(client, patience, logger=client.logger)
        self._lease = lease
        self._handshake = _FIRST
        self._at = "", 0  # whom it connects with
        self._foreign = False  # what answered last was no ZooKeeper, which has been said
        self._greeting = False  # it waits for that answer
        self._unread = bytearray()  # what came with what was asked for: the beginning of the next message
        # Held from before something is sent until it is known what answer belongs to it.
        self._sending = threading.Lock()
        self._open = False  # under it: requests may be sent
        self._at_once = False  # under it: by a thread that must not wait
        self._rest = b""  # under it: of a request that such a thread has sent a part of
        client.handler.ahead = self._ahead
        client.handler.sends = self._send_at_once

    def stop(self, timeout: float | None = None) -> Any:
        """Wait for its end, once it has been told to. Whoever does not answer a handshake is not waited for as long as that might take."""
        if not self.connection_stopped.wait(_CLOSING) and self._greeting:
            with contextlib.suppress(OSError, AttributeError):  # it is over by now
                self._socket.shutdown(socket.SHUT_RDWR)
        return super().stop(timeout)

    def _connect_attempt(self, *args: Any) -> Any:
        try:
            return super()._connect_attempt(*args)
        finally:
            with self._sending:
                self._open = False
            # Sent while kazoo was giving up what this connection had asked for: nobody answers that any more.
            pending = self.client._pending
            while pending:
                _, answer, _ = pending.popleft()
                if answer is not None:
                    answer.set_exception(ConnectionLoss())

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._at = host, port
        self._lease.connecting()
        self._unread.clear()
        self._rest = b""
        timeouts = super()._connect(host, hostip, port)
        with self._sending:
            self._open = True
        return timeouts

    def _send_at_once(self) -> bool:
        """Send the request that has waited longest, on whatever thread. False: there is something to do for the connection's thread."""
        if not self._open or not self._sending.acquire(blocking=False):
            return False
        client, lost = self.client, None
        try:
            if not self._open or self._rest:
                return False
            try:
                request, answer = waiting = client._queue.popleft()
            except IndexError:  # given up meanwhile
                return True
            if not _is_usual(request):
                client._queue.appendleft(waiting)
                return False
            xid = self._xid % _MOST + 1  # type: ignore[has-type]
            self._xid = xid
            self._at_once = True
            try:
                self._submit(request, 0.0, xid)
            except Exception as error:  # noqa: BLE001 - most likely it is broken, which its own thread finds as well
                log.debug("a request was not sent: %s", error)
                lost = answer
                return True
            finally:
                self._at_once = False
            client._pending.append((request, answer, xid))
            return not self._rest
        finally:
            self._sending.release()
            if lost is not None:
                lost.set_exception(ConnectionLoss())

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        with self._sending:
            if self._rest:
                self._write(b"", connect_timeout)
            super()._send_request(read_timeout, connect_timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        with self._sending:
            super()._send_ping(connect_timeout)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        # It may be here before whoever has sent the request has written down that it is under way.
        with self._sending:
            pass
        return super()._read_response(header, buffer, offset)

    def _ahead(self, rlist: Sequence[Any]) -> list[Any]:
        """The socket, when the loop is about to wait for it while something of it has been read already. And whether there are requests:
        the loop sends one for each message that it reads, so that neither waits for the other."""
        if not self._unread or self._read_sock not in rlist:
            return []
        return [self._socket, self._read_sock] if self._read_sock.count else [self._socket]

    def _read(self, length: int, timeout: float) -> bytes:
        unread = self._unread
        while len(unread) < length:
            with self._socket_error_handling():
                try:
                    chunk = self._socket.recv(max(_CHUNK, length - len(unread)))
                except BlockingIOError:
                    if not self.handler.select([self._socket], [], [], timeout)[0]:
                        raise self.handler.timeout_exception("socket time-out during read") from None
                    continue
            if not chunk:
                raise ConnectionDropped("socket connection broken")
            unread += chunk
        taken = bytes(unread[:length])
        del unread[:length]
        return taken

    def _write(self, msg: bytes, timeout: float) -> None:
        if self._rest:
            msg, self._rest = self._rest + msg, b""
        sent = 0
        with self._socket_error_handling(), contextlib.suppress(BlockingIOError):
            sent = self._socket.send(msg)
        if sent == len(msg):
            return
        if self._at_once:
            self._rest = bytes(msg[sent:])
        else:
            super()._write(msg[sent:], timeout)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if xid is not None:
            return super()._invoke(timeout, request, xid)
        asked, patience = time.monotonic(), self._handshake
        self._handshake = 2 * patience  # unless it is answered
        self._greeting = True
        try:
            if self.client._stopped.is_set():
                patience = min(patience, _CLOSING)
            result = self._greet(min(timeout, patience), request)
        finally:
            self._greeting = False
        self._handshake = _FIRST
        if result.time_out > 0:
            self._lease.granted(asked, result.time_out / 1000)
        return result, None

    def _greet(self, timeout: float, request: Any) -> Any:
        """Ask for the session. kazoo takes what answers for ZooKeeper whatever it is: a web server would have it read a gigabyte."""
        self._submit(request, timeout)
        length = int.from_bytes(self._read(4, timeout), "big", signed=True)
        if _GREETING <= length <= _CHUNK:
            with contextlib.suppress(struct.error):
                result, _ = request.deserialize(self._read(length, timeout), 0)
                if result.protocol_version == 0 and result.time_out >= 0:
                    self._foreign = False
                    return result
        if not self._foreign:
            self._foreign = True
            log.warning(
                "what answers at %s:%d is no ZooKeeper; it is tried again: see what listens there, and whether that is ZooKeeper's address",
                *self._at,
            )
        raise ConnectionDropped("that is no ZooKeeper")

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        if xid is not None:
            self._lease.sent(xid, time.monotonic())
        super()._submit(request, timeout, xid)

    def _read_header(self, timeout: float) -> Any:
        header = super()._read_header(timeout)
        self._lease.answered(header[0].xid)
        return header


def _is_usual(request: Any) -> bool:
    """Whether it is a question to the server: not a sign for kazoo's own thread, nor one that begins or ends a session."""
    return bool(0 < getattr(request, "type", 0) < Auth.type)


def make_client(hosts: str, lease: Lease, refused: Callable[[str, float], None]) -> KazooClient:
    """A client that has not been started.

    Args:
        hosts: "host:port", several of them with commas between.
        lease: Is kept up to date.
        refused: Told, on the connection's thread, that nobody listens at an IP address of them, and since when that was tried.

    Raises:
        ValueError: That is no address.
    """
    if hosts.count(",") < _HANDSHAKES - 1:
        hosts = ",".join([hosts] * _HANDSHAKES)
    client = KazooClient(
        hosts,
        timeout=lease.timeout,
        handler=_Handler(refused),
        connection_retry=KazooRetry(max_tries=-1, delay=0.03, backoff=1.5, max_delay=0.5, max_jitter=0.2),
        command_retry=KazooRetry(max_tries=1),
        logger=_kazoo_log,
    )
    for host, _ in client.hosts:
        host.encode("idna")  # kazoo's thread does so, and ends if that cannot be
    client._connection = _Connection(client, client._conn_retry.copy(), lease)
    return client


def end_watches(client: KazooClient, path: str, *, begun: bool) -> None:
    """Have the server, and kazoo, forget the watches on a node: they go by themselves only when it changes, or with the connection.

    Never waits, and never sends: who sends may have to tell others that the connection is broken.

    Args:
        begun: Whether a request that leaves one may be under way.
    """
    path = _prefix_root(client.chroot, path)
    if not begun and path not in client._data_watchers and path not in client._child_watchers:
        return
    answer = client.handler.async_result()

    def forget() -> None:
        if answer.exception is None or isinstance(answer.exception, NoWatcherError):
            client._data_watchers.pop(path, None)
            client._child_watchers.pop(path, None)

    answer.tell(forget)
    client._queue.append((_RemoveWatches(path), answer))
    with contextlib.suppress(OSError):  # it is being closed
        client._connection._write_sock.leave()


def is_own(address: str) -> bool:
    """Whether that is an IP address of this machine, and so a connection to it is answered by this machine's own kernel."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EINVAL):
                log.info("whether %s is an address of this machine cannot be told: %s", address, error)
            return False
        return True


def why_not(hosts: str) -> str:
    """Why nothing answers there, for people."""
    (first, *_), _ = collect_hosts(hosts)  # without a port it has ZooKeeper's own
    try:
        with socket.create_connection(first, timeout=1.0):
            return "something accepts connections there, but does not answer as ZooKeeper does"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
