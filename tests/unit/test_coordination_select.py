"""The server's socket: waited for as `select.select` would, for any number of open files; read and written with few calls. Beside it,
what tells of requests."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped, ConnectionLoss
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KeeperState

from elastic.coordination._client import Note, _Handler, make_client
from elastic.coordination._lease import Lease
from elastic.coordination._watches import Kind


def test_what_can_be_read_and_written_is_said() -> None:
    handler = _Handler(lambda address, began: None)
    a, b = socket.socketpair()
    with a, b:
        assert handler.select([a], [], [], 0.0) == ([], [], [])
        assert handler.select([], [a, b], [], None) == ([], [a, b], [])
        b.send(b"x")
        assert handler.select([a, b], [b], [], 5.0) == ([a], [b], [])
        assert handler.select([a.fileno()], [], [], 5.0)[0] == [a.fileno()]
        a.recv(1)
        b.close()
        assert handler.select([a], [], [], None)[0] == [a], "its end can be read"
    with pytest.raises(ValueError, match="not open"):
        handler.select([a], [], [], 0.0)


def test_what_came_with_what_was_asked_for_is_read_next_and_not_waited_for() -> None:
    client = make_client("127.0.0.1:1", Lease(6.0), lambda address, began: None)
    connection, handler = client._connection, client.handler
    ours, theirs = socket.socketpair()
    waker, _ = handler.create_socket_pair()
    with ours, theirs, contextlib.closing(waker):
        ours.setblocking(False)
        connection._socket, connection._read_sock = ours, waker
        theirs.send(b"abcdef")
        assert connection._read(4, 5.0) == b"abcd"
        assert handler.select([ours], [], [], 0.0)[0] == [], "nothing more is there"
        assert handler.select([ours, waker], [], [], None)[0] == [ours], "the loop need not wait for it"
        waker.send(b"\0")
        assert handler.select([ours, waker], [], [], None)[0] == [ours, waker], "a request need not either"
        waker.recv(1)
        theirs.send(b"ghij")
        assert connection._read(6, 5.0) == b"efghij"
        assert handler.select([ours, waker], [], [], 0.0)[0] == []
        with pytest.raises(handler.timeout_exception):
            connection._read(1, 0.01)
        theirs.send(b"k")
        connection._write(b"yz", 5.0)
        assert theirs.recv(2) == b"yz"
        theirs.close()
        assert connection._read(1, 5.0) == b"k"
        with pytest.raises(ConnectionDropped):
            connection._read(1, 5.0)


def test_requests_are_told_of_one_by_one_and_never_waited_for() -> None:
    handler = _Handler(lambda address, began: None)
    reader, writer = handler.create_socket_pair()
    for _ in range(5000):
        writer.send(b"\0")
    for _ in range(5000):
        assert handler.select([reader], [], [], 0.0)[0] == [reader]
        assert reader.recv(1)
    assert handler.select([reader], [], [], 0.0)[0] == []
    with pytest.raises(BlockingIOError):
        reader.recv(1)
    writer.close()
    reader.close()
    with pytest.raises(OSError, match="closed"):
        writer.send(b"\0")


def _deleted(path: str) -> bytes:
    """What the server says of it."""
    name = path.encode()
    told = struct.pack("!iqi", -1, 0, 0) + struct.pack("!iii", 2, 3, len(name)) + name
    return struct.pack("!i", len(told)) + told


def test_many_changes_at_once_are_read_and_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's thread makes a request for each, while requests of others wait as well."""
    client = make_client("127.0.0.1:1", Lease(6.0), lambda address, began: None)
    connection = client._connection
    watches: Any = SimpleNamespace(changed=lambda kind, path, gone: client.get_async(path))
    paths = [f"/n/{number}" for number in range(600)]
    for path in paths:
        client._data_watchers[path].add(Note(Kind.VALUE, path, watches))
        client._child_watchers[path].add(Note(Kind.CHILDREN, path, watches))
    ours, theirs = socket.socketpair()
    connection._read_sock, connection._write_sock = client.handler.create_socket_pair()

    def connect(*_: object) -> tuple[float, float]:
        ours.setblocking(False)
        connection._socket, client._state = ours, KeeperState.CONNECTED
        return 60_000.0, 60_000.0

    monkeypatch.setattr(connection, "_connect", connect)
    monkeypatch.setattr(client, "_session_callback", lambda state: setattr(client, "_state", state))
    client._state = KeeperState.CONNECTED
    client._stopped.clear()
    retry: Any = SimpleNamespace(reset=lambda: None)
    others = threading.Thread(target=lambda: [client.get_async("/other") for _ in range(600)], daemon=True)
    loop = threading.Thread(
        target=connection._connect_attempt, args=("localhost", "127.0.0.1", 1, retry), daemon=True
    )
    theirs.settimeout(20)
    with theirs:
        others.start()
        theirs.sendall(b"".join(map(_deleted, paths)))
        loop.start()
        asked = b""
        while asked.count(b"/n/") < 2 * len(paths) or asked.count(b"/other") < 600:
            asked += theirs.recv(1 << 16)
    loop.join(20)
    others.join(20)
    assert not loop.is_alive() and not others.is_alive()
    connection._read_sock.close()
    connection._write_sock.close()


class Open:
    """A client whose connection is open; the other end is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lease = Lease(6.0)
        self.client = make_client("127.0.0.1:1", self.lease, lambda address, began: None)
        self.connection = self.client._connection
        self.ours, self.server = socket.socketpair()
        self.ours.setblocking(False)
        self.server.settimeout(20)
        self.waker, _ = self.client.handler.create_socket_pair()
        self.connection._read_sock = self.connection._write_sock = self.waker
        self.connection._socket, self.connection._xid = self.ours, 0
        self.client._state = KeeperState.CONNECTED
        self.connection._open = True
        monkeypatch.setattr(self.client, "_session_callback", lambda state: None)

    def received(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self.server.recv(size - len(found))
        return found

    def answered(self, xid: int, data: bytes) -> None:
        """As the server does; read as kazoo's thread does."""
        stat = struct.pack("!qqqqiiiqiiq", *(0,) * 11)
        body = struct.pack("!iqi", xid, 7, 0) + struct.pack("!i", len(data)) + data + stat
        self.server.sendall(struct.pack("!i", len(body)) + body)
        self.connection._read_socket(5.0)

    def close(self) -> None:
        self.ours.close()
        self.server.close()
        self.waker.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    made = Open(monkeypatch)
    yield made
    made.close()


def test_who_makes_a_request_sends_it_and_nobody_is_woken(opened: Open) -> None:
    first, second = opened.client.get_async("/a"), opened.client.get_async("/b")
    sent = opened.received(2 * 19)
    assert sent.index(b"/a") < sent.index(b"/b")
    assert not opened.waker.count and not opened.client._queue
    assert [xid for _, _, xid in opened.client._pending] == [1, 2]
    opened.answered(1, b"x")
    opened.answered(2, b"y")
    assert (first.get()[0], second.get()[0]) == (b"x", b"y")
    assert opened.lease.deadline < float("inf"), "the lease has heard of what was sent, and of the answer"


def test_who_waits_for_an_answer_is_told_by_who_reads_it(opened: Open) -> None:
    told: list[str] = []
    answer = opened.client.get_async("/a")
    answer.tell(lambda: told.append(threading.current_thread().name))
    raising = opened.client.get_async("/b")
    raising.tell(lambda: [][0])
    opened.answered(1, b"x")
    opened.answered(2, b"y")  # what is raised there does not end the connection's thread
    assert told == [threading.current_thread().name]
    answer.tell(lambda: told.append("here already"))
    assert told[1:] == ["here already"]


@pytest.mark.parametrize("way", ["connects", "somebody sends"])
def test_where_it_cannot_be_sent_at_once_the_connections_thread_does(opened: Open, way: str) -> None:
    connection = opened.connection
    if way == "connects":
        connection._open = False
        opened.client.get_async("/a")
        connection._open = True
    else:
        with connection._sending:
            opened.client.get_async("/a")
    assert opened.waker.count == 1 and len(opened.client._queue) == 1
    opened.client.get_async("/b")  # in order: what has waited goes first, and this one waits
    assert b"/a" in opened.received(19)
    assert opened.waker.count == 1 and len(opened.client._queue) == 1
    connection._send_request(5.0, 5.0)
    assert b"/b" in opened.received(19)
    assert not opened.waker.count and not opened.client._queue
    assert [xid for _, _, xid in opened.client._pending] == [1, 2]


def test_what_the_socket_does_not_take_is_sent_by_the_connections_thread_before_all_else(
    opened: Open,
) -> None:
    opened.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = bytes(range(256)) * 3000
    opened.client.set_async("/large", data)
    assert opened.waker.count == 1, "its thread is woken for the rest"
    opened.client.get_async("/b")
    assert opened.waker.count == 2
    received: list[bytes] = []
    size = 4 + 8 + (4 + 6) + (4 + len(data)) + 4
    reader = threading.Thread(target=lambda: received.append(opened.received(size + 19)), daemon=True)
    reader.start()
    opened.connection._send_request(5.0, 5.0)
    opened.connection._send_request(5.0, 5.0)
    reader.join(20)
    assert data in received[0] and received[0].endswith(b"/b\0"), "whole, and one after the other"
    assert not opened.waker.count and not opened.client._queue and not opened.connection._rest
    assert [xid for _, _, xid in opened.client._pending] == [1, 2]


def test_a_request_over_a_broken_connection_is_as_one_whose_answer_is_lost(opened: Open) -> None:
    opened.ours.close()
    answer = opened.client.get_async("/a")
    with pytest.raises(ConnectionLoss):
        answer.get(timeout=5.0)
    assert not opened.client._queue and not opened.client._pending


def test_what_was_sent_while_a_connection_ended_is_given_up(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo has given up all that waited before: nobody would, and the next answer would be taken for that of this request."""
    found: list[Any] = []

    def ends(*_: object) -> str:
        found.append(opened.client.get_async("/late"))
        return "ended"

    monkeypatch.setattr(ConnectionHandler, "_connect_attempt", ends)
    assert opened.connection._connect_attempt("h", "127.0.0.1", 1, None) == "ended"
    with pytest.raises(ConnectionLoss):
        found[0].get(timeout=5.0)
    assert not opened.client._pending and not opened.connection._open


def test_an_answer_is_not_read_before_it_is_known_whose_it_is(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is quicker than who has sent the request."""
    connection, sent, go = opened.connection, threading.Event(), threading.Event()
    submit = connection._submit

    def slow(*arguments: Any) -> None:
        submit(*arguments)
        sent.set()
        assert go.wait(20.0)

    monkeypatch.setattr(connection, "_submit", slow)
    asks = threading.Thread(target=lambda: found.append(opened.client.get_async("/a")), daemon=True)
    found: list[Any] = []
    asks.start()
    assert sent.wait(20.0)
    reads = threading.Thread(target=opened.answered, args=(1, b"x"), daemon=True)
    reads.start()
    reads.join(0.05)
    assert reads.is_alive()
    go.set()
    asks.join(20.0)
    reads.join(20.0)
    assert found[0].get(timeout=5.0)[0] == b"x"
