"""The server's socket: waited for as `select.select` would, for any number of open files; read and written with few calls."""

from __future__ import annotations

import socket

import pytest
from kazoo.exceptions import ConnectionDropped

from elastic.coordination._client import _Handler, make_client
from elastic.coordination._lease import Lease


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
    waker, other = socket.socketpair()
    with ours, theirs, waker, other:
        ours.setblocking(False)
        connection._socket, connection._read_sock = ours, waker
        theirs.send(b"abcdef")
        assert connection._read(4, 5.0) == b"abcd"
        assert handler.select([ours], [], [], 0.0)[0] == [], "nothing more is there"
        assert handler.select([ours, waker], [], [], None)[0] == [ours], "the loop need not wait for it"
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
