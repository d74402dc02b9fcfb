"""Two coordination services to run one contract against, and what a test can do to a session's connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kazoo.client import KazooClient

from elastic.coordination.base import Coordination
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect

T = TypeVar("T")
PATIENCE = 30.0


class Seen(Generic[T]):
    """Records calls; waits for one that satisfies a condition."""

    def __init__(self) -> None:
        self.calls: list[T] = []
        self._news = threading.Condition()

    def __call__(self, value: T) -> None:
        with self._news:
            self.calls.append(value)
            self._news.notify_all()

    def wait(self, condition: Callable[[list[T]], bool]) -> list[T]:
        with self._news:
            assert self._news.wait_for(lambda: condition(self.calls), PATIENCE), f"only saw {self.calls}"
            return list(self.calls)

    def until_last(self, value: T) -> list[T]:
        return self.wait(lambda calls: bool(calls) and calls[-1] == value)


class Service(Protocol):
    def connect(self, session_timeout: float = 20.0) -> Coordination:
        """A session, by default longer than a busy machine keeps this process, or the server at its disk, waiting."""

    def cut(self, session: Coordination) -> None:
        """Take the connection away, until `restore`."""

    def restore(self, session: Coordination) -> None: ...
    def expire(self, session: Coordination) -> None:
        """Let the server end the session; it learns of that when it has a connection."""

    def close(self) -> None: ...


class Memory:
    def __init__(self) -> None:
        self.server = MemoryZooKeeper()
        self.sessions: list[MemoryCoordination] = []

    def connect(self, session_timeout: float = 0.2) -> MemoryCoordination:
        session = self.server.connect(session_timeout=min(session_timeout, 0.2))
        self.sessions.append(session)
        return session

    def cut(self, session: Coordination) -> None:
        assert isinstance(session, MemoryCoordination)
        self.server.suspend(session)

    def restore(self, session: Coordination) -> None:
        assert isinstance(session, MemoryCoordination)
        self.server.resume(session)

    def expire(self, session: Coordination) -> None:
        assert isinstance(session, MemoryCoordination)
        self.server.expire(session)

    def close(self) -> None:
        for session in self.sessions:
            session.close()


class Real:
    """Sessions with a real server, each through a proxy of its own."""

    def __init__(self, address: str) -> None:
        self.host, _, self.root = address.partition("/")
        self.proxies: dict[int, Proxy] = {}
        self.sessions: list[ZooKeeperCoordination] = []

    def connect(self, session_timeout: float = 20.0) -> ZooKeeperCoordination:
        proxy = Proxy(self.host)
        session = connect(
            f"{proxy.address}/{self.root}", session_timeout=session_timeout, connect_timeout=PATIENCE
        )
        self.proxies[id(session)] = proxy
        self.sessions.append(session)
        return session

    def proxy(self, session: Coordination) -> Proxy:
        return self.proxies[id(session)]

    def cut(self, session: Coordination) -> None:
        self.proxy(session).cut()

    def restore(self, session: Coordination) -> None:
        self.proxy(session).restore()

    def expire(self, session: Coordination) -> None:
        """Whoever takes a session over may close it. Meanwhile its owner must not take it back."""
        assert isinstance(session, ZooKeeperCoordination)
        was_open = self.proxy(session).cut()
        thief = KazooClient(
            self.host, client_id=(session._client._session_id, session._client._session_passwd)
        )
        thief.start(PATIENCE)
        thief.stop()
        thief.close()
        if was_open:
            self.proxy(session).restore()

    def close(self) -> None:
        for session in self.sessions:
            session.close()
        for proxy in self.proxies.values():
            proxy.close()


class Proxy:
    """Forwards TCP connections to one server. `cut` ends them and takes no new ones; `silence` forwards nothing, and ends nothing."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._open = True
        self._lose = False
        self._silent = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._from_server: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="proxy", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> bool:
        """Returns whether it was open."""
        with self._lock:
            was_open, self._open = self._open, False
            for one in list(self._pairs):
                self._end(one)
            return was_open

    def restore(self) -> None:
        with self._lock:
            self._open = True

    def silence(self) -> None:
        """What is sent disappears from now on, also that somebody has hung up."""
        with self._lock:
            self._silent = True

    def lose_next_answer(self) -> None:
        """The next answer to a request does not reach the client: its connection breaks instead."""
        with self._lock:
            self._lose = True

    def close(self) -> None:
        self._closing = True
        self._wake_write.send(b"x")
        self._thread.join(PATIENCE)
        with self._lock:
            for one in list(self._pairs):
                self._end(one)
        for one in (self._listener, self._wake_read, self._wake_write):
            one.close()
        self._selector.close()

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        for end in filter(None, (one, other)):
            self._pairs.pop(end, None)
            self._from_server.discard(end)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def _work(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                with self._lock:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is not self._wake_read and key.fileobj in self._pairs:
                        self._forward(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            if not self._open:
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=5.0)
        except OSError:
            client.close()
            return
        self._pairs[client], self._pairs[server] = server, client
        self._from_server.add(server)
        for one in (client, server):
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 20)
            if (
                self._lose
                and source in self._from_server
                and len(data) >= 8
                and struct.unpack_from(">ii", data)[1] > 0
            ):
                self._lose = False
                data = b""
            if data and not self._silent:
                self._pairs[source].sendall(data)
        except OSError:
            data = b""
        if not data and self._silent:
            self._selector.unregister(source)
        elif not data:
            self._end(source)
