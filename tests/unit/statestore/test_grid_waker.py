"""A fault of the Hazelcast client that made every request wait: see `statestore.hazelcast.connection.mend`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hazelcast import reactor as reactors

from statestore.hazelcast.connection import mend


@pytest.fixture
def reactor() -> Iterator[Any]:
    """Not started: this thread plays its part."""
    made: Any = reactors.AsyncoreReactor()
    yield made
    made._loop.waker.close()


@pytest.mark.parametrize("mended", [True, False])
def test_a_request_that_comes_while_another_is_noticed_is_not_the_last_one_to_be(
    reactor: Any, mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waker = reactor._loop.waker
    if mended:
        mend(reactor)

    class Meanwhile:
        """Another thread has a request just before what woke the client is read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def read(self, file: int, size: int) -> bytes:
            waker.wake()
            return os.read(file, size)

    waker.wake()
    monkeypatch.setattr(reactors, "os", Meanwhile())
    waker.handle_read()
    monkeypatch.undo()
    waker.wake()  # the next request
    if mended:
        assert os.read(waker._read_fd, 1) == b"x"
    else:  # the fault: should it be gone from the client, `mend` can go as well
        with pytest.raises(BlockingIOError):
            os.read(waker._read_fd, 1)
