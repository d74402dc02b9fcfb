"""Requests to ZooKeeper: waiting for their answers no longer than the session surely lives, and kazoo's errors as ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions as kz
from kazoo.handlers.threading import KazooTimeoutError

from elastic.coordination._lease import Lease
from elastic.coordination._watches import Watches
from elastic.coordination.base import Check, Create, Delete, Operation, SessionState, Set
from elastic.errors import Conflict, NotConnected, NotFound, SessionExpired, Unavailable

_LOST_ANSWER = (
    kz.ConnectionLoss,
    kz.OperationTimeoutError,
    kz.ConnectionClosedError,
    kz.SessionMovedError,
    KazooTimeoutError,
)
_CONFLICTS = (kz.NodeExistsError, kz.BadVersionError, kz.NotEmptyError, kz.NoChildrenForEphemeralsError)
_NOT_THE_CAUSE = (kz.RolledBackError, kz.RuntimeInconsistency)
_MOMENT = 0.05


@dataclass(slots=True)
class Lost:
    """Whether an answer was lost on the way to the one that came."""

    happened: bool = False
    once: bool = False
    """Don't repeat the request: the caller finds out first."""


class Requests:
    """Asks the server in one session.

    Args:
        address: Of the server, for messages.
        watches: Knows the state of the session.
        lease: Of the session.
        give_up: Has the session given up.
    """

    def __init__(self, address: str, watches: Watches, lease: Lease, give_up: Callable[[], None]) -> None:
        self._address = address
        self._watches = watches
        self._lease = lease
        self._give_up = give_up
        self.closed = False

    def ask(self, what: str, request: Callable[[], Any], lost: Lost | None = None, begun: Any = None) -> Any:
        """Send a request and wait for its answer; again when the answer was lost, until the time is over.

        On the thread of the callbacks it does not wait for a connection: the news that it is gone must get
        through.

        Args:
            what: For messages.
            lost: Learns that an answer was lost before this one came.
            begun: The same request, if it was sent already.
        """
        deadline = time.monotonic() + self._lease.timeout
        while True:
            patience = 0.0 if self._watches.on_thread() else deadline - time.monotonic()
            state = self._watches.wait_connected(patience)
            if state is SessionState.LOST:
                raise self._expired(what)
            if state is SessionState.SUSPENDED or deadline <= time.monotonic():
                raise self._away(what)
            try:
                asked, begun = begun or request(), None
                return self._answer(asked, deadline)
            except _LOST_ANSWER as error:
                if lost is not None:
                    lost.happened = True
                    if lost.once:
                        raise self._ours(what, error) from error
                self._watches.wait_disconnected(_MOMENT)
            except kz.KazooException as error:
                raise self._ours(what, error) from error

    def begin(self, what: str, request: Callable[[], Any], then: Callable[[Callable[[], Any]], None]) -> None:
        """Send a request once, and wait for nothing.

        Args:
            what: For messages.
            request: Makes it; its answer is an `Answer`.
            then: Called with what returns the answer, or raises; see `Answer.tell`.

        Raises:
            NotConnected: There is no connection; nothing was asked for.
        """
        if self._watches.state is not SessionState.CONNECTED:
            raise self._away(what)
        asked = request()

        def answer() -> Any:
            try:
                return asked.get_nowait()
            except kz.KazooException as error:
                raise self._ours(what, error) from error

        asked.tell(lambda: then(answer))

    def _ours(self, what: str, error: Exception) -> Exception:
        if isinstance(error, _LOST_ANSWER):
            return NotConnected(f"{what}: no answer from ZooKeeper at {self._address}")
        if isinstance(error, kz.SessionExpiredError):
            return self._expired(what)
        if isinstance(error, kz.NoNodeError):
            return NotFound(f"{what}: there is no such node")
        if isinstance(error, _CONFLICTS):
            return Conflict(f"{what}: {said(error)}")
        remedy = (
            "It has to let everybody read, write, create and delete below its root: elastic shows no credentials."
            if isinstance(error, kz.NoAuthError)
            else ""
        )
        return Unavailable(f"{what}: refused by ZooKeeper at {self._address}: {said(error)}", remedy=remedy)

    def _answer(self, asked: Any, deadline: float) -> Any:
        """Whoever waits gives the session up when it is time: it may be the very thread that would else see to that."""
        while True:
            until = min(deadline, self._lease.deadline)
            try:
                return asked.get(timeout=max(0.0, until - time.monotonic()))
            except KazooTimeoutError:
                now = time.monotonic()
                if now >= self._lease.deadline:
                    self._give_up()
                if now >= min(deadline, self._lease.deadline):
                    raise

    def _away(self, what: str) -> NotConnected:
        return NotConnected(f"{what}: no connection to ZooKeeper at {self._address}")

    def _expired(self, what: str) -> SessionExpired:
        why = "was closed" if self.closed else "has expired"
        return SessionExpired(f"{what}: the session with ZooKeeper at {self._address} {why}")


class All:
    """Several answers that are waited for together; None stands for a node that is not there."""

    def __init__(self, asked: Sequence[Any]) -> None:
        self._asked = asked
        self._answers: list[Any] = []

    def get(self, timeout: float) -> list[Any]:
        until = time.monotonic() + timeout
        for one in self._asked[len(self._answers) :]:
            try:
                self._answers.append(one.get(timeout=max(0.0, until - time.monotonic())))
            except kz.NoNodeError:
                self._answers.append(None)
        return self._answers


def add(request: Any, operation: Operation) -> None:
    """Make an operation part of kazoo's transaction."""
    match operation:
        case Create(path, data, ephemeral):
            request.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            request.set_data(path, data, version)
        case Delete(path, version):
            request.delete(path, version)
        case Check(path, version):
            request.check(path, version)


def failures(operations: Sequence[Operation], results: Sequence[Any]) -> list[tuple[Operation, Exception]]:
    """What kept a transaction from being done, by operation; nothing when it was."""
    return [
        (operation, result)
        for operation, result in zip(operations, results, strict=True)
        if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE)
    ]


def unknown(what: str) -> NotConnected:
    """Nobody can know whether it was done."""
    return NotConnected(f"the connection broke before it was known whether {what}", remedy="Read it again.")


def said(error: Exception) -> str:
    """What kazoo's error says, for people."""
    texts: dict[type[Exception], str] = {
        kz.NodeExistsError: "it exists already",
        kz.BadVersionError: "somebody else has changed it",
        kz.NotEmptyError: "it has children",
        kz.NoNodeError: "there is no such node",
        kz.NoChildrenForEphemeralsError: "its parent is ephemeral and cannot have children",
    }
    return texts.get(type(error)) or str(error) or type(error).__name__
