"""How long attempts at one thing go on."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from statestore import wire
from statestore.errors import StateStoreError


class Patience:
    """Attempts at one thing, until nothing has moved for a while.

    Args:
        pause: Waits some seconds; raises when there is nothing to wait for any more.
        seconds: How long it may stand still.
        doing: What is tried, for messages.
        address: Of the other end.
    """

    def __init__(self, pause: Callable[[float], None], seconds: float, *, doing: str, address: str) -> None:
        self._pause = pause
        self._seconds = seconds
        self._doing = doing
        self._address = address
        self._until = time.monotonic() + seconds
        self._failures = 0
        self._moved = False

    def left(self) -> float:
        """Seconds."""
        return max(0.05, self._until - time.monotonic())

    def progress(self) -> None:
        """Something moved."""
        self._until = time.monotonic() + self._seconds
        self._failures = 0
        self._moved = True

    def moved(self) -> bool:
        """Whether something has moved since this was asked before."""
        moved, self._moved = self._moved, False
        return moved

    def failed(self, error: grpc.RpcError) -> None:
        """Returns when another attempt is worth it, after a short pause.

        Raises:
            StateStoreError: What the other end refused with, or that it can't be reached.
        """
        found, again = wire.error_in(error, doing=self._doing, address=self._address)
        if not again:
            raise found from error
        self.broken(found)

    def broken(self, error: StateStoreError) -> None:
        """The same for something that may always be tried again."""
        self._failures += 1
        if time.monotonic() >= self._until:
            raise error
        self._pause(min(0.01 * 2**self._failures, 0.5))
