"""What comes from a store's socket and is no message: the connection is given up, and the call goes on with another."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore import near
from statestore.base import Fetched, pack
from statestore.near_client import NearStore


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """Of a store that answers first with garbage, and then as it should."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "s"))
    listening.listen(8)

    def serve() -> None:
        garbage = True
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                _, wanted, *_ = near.receive(connection).body
                if garbage:
                    garbage = False
                    connection.sendall(struct.pack("<IQ", 1 << 31, 0))
                    continue
                for key, epoch in wanted:
                    near.send(connection, ["ok", key, epoch, 1, "w", pack([]), b"", []])

    serving = threading.Thread(target=serve)
    serving.start()
    yield str(tmp_path / "s")
    listening.shutdown(socket.SHUT_RDWR)
    serving.join(30)
    listening.close()
    assert not serving.is_alive()


def test_a_call_goes_on_after_what_is_no_message_and_gives_everything_back(path: str) -> None:
    store = NearStore(path, patience=30)
    try:
        found = list(store.fetch([("a", 1), ("b", 1)]))
        assert [f.head.key for f in found if isinstance(f, Fetched)] == ["a", "b"]
        assert not store._used
    finally:
        store.close()
