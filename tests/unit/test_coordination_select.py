"""The server's socket: waited for as `select.select` would, for any number of open files; read and written with few calls. Beside it,
what tells of requests."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped
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
