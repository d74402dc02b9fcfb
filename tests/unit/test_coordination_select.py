"""Waiting for the server's socket: as `select.select` would, for any number of open files."""

from __future__ import annotations

import socket

import pytest

from elastic.coordination._client import _Handler


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
