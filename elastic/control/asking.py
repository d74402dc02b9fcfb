"""How a client asks: whichever Nimbus leads, again where that is safe, and with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from elastic.control.connection import Connection, Link
from elastic.errors import Begun, ConfigError, ElasticError, Ended, Unavailable
from elastic.rpc.errors import NotLeading, Unanswered, Unreachable, from_call

R = TypeVar("R")
L = TypeVar("L", float, float | None)
Ask = Callable[[Link, float], R]
_PATIENCE = 15.0
_ALL = 600.0
_PAUSE = 0.4
_LASTING = 5.0
_FAILURES = 20
_OUT_OF_RANGE = "Value out of range"  # what protobuf says


@contextmanager
def sendable(doing: str) -> Iterator[None]:
    """Around what makes a request of what a caller has given.

    Args:
        doing: What is asked for, for the message: "kill word-count".

    Raises:
        ConfigError: No message can hold it: a text that is not Unicode, or a number of too many bits.
    """
    try:
        yield
    except UnicodeEncodeError as e:
        raise ConfigError(f"cannot {doing}: {e.object!r} is not text in UTF-8") from e
    except ValueError as e:
        what, _, number = str(e).partition(": ")
        if what != _OUT_OF_RANGE:
            raise
        raise ConfigError(f"cannot {doing}: the number {number} is too large") from e


class Asking:
    """What all requests of a client have in common; see `elastic.control.client.Client`."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        timeout: float = 30.0,
        patience: float = 3.0,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        given = addresses.split(",") if isinstance(addresses, str) else list(addresses)
        lasting = max(patience, _PATIENCE)
        self._connection = Connection(
            [a.strip() for a in given if a.strip()], patience=(min(timeout, patience), min(timeout, lasting))
        )
        self._timeout = timeout
        self._explain = explain

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if isinstance(error, ElasticError):
            self._explained(error)
        self.close()

    def on_lost(self, told: Callable[[str], None]) -> None:
        """Have it told, within about two seconds, that there is no leader and that it is tried again.

        Args:
            told: Called with what is so, e.g. `no Nimbus answers`, and with "" when there is a leader again; on the thread of the request.
        """
        self._connection.on_lost = told

    def close(self) -> None:
        """End all calls and streams. Safe to call twice."""
        self._connection.close()

    def _ask(self, doing: str, ask: Ask[R], timeout: float | None = None, *, once: bool = False) -> R:
        """One request to the leader, whoever that is.

        Args:
            once: It must not be sent twice: when the connection breaks under way, nobody knows whether it was done; and when the leader
                has begun and stopped leading, the next one goes on with it.
        """
        try:
            return self._asked(doing, ask, self._timeout if timeout is None else timeout, once)
        except ElasticError as error:
            self._explained(error)  # at once: it may be told later, when this client is closed
            raise

    def _explained(self, error: ElasticError) -> None:
        if isinstance(error, Ended):  # it says so itself
            return
        if not getattr(error, "__notes__", ()) and (said := self._explain()):
            error.add_note(said)

    def _asked(self, doing: str, ask: Ask[R], timeout: float, once: bool) -> R:
        deadline = time.monotonic() + timeout
        for pause in _pauses():
            link = self._connection.leader(deadline, sure=once)
            try:
                with sendable(doing):
                    return self._called(ask, link, max(0.001, deadline - time.monotonic()))
            except grpc.RpcError as e:
                error = from_call(e, doing=doing, address=link.address)
                if isinstance(error, Unreachable) and once:
                    self._connection.forget(link)
                    raise Unavailable(
                        f"{error.message}; whether it was done is not known",
                        remedy=Begun.LOOK,
                    ) from e
                again = self._elsewhere(link, error) and not (once and isinstance(error, Begun))
                if not again or time.monotonic() + pause >= deadline:
                    raise error from e
            time.sleep(pause)
        raise AssertionError("pauses do not end")

    def _stream(self, doing: str, ask: Callable[[Link, float | None], Any], follow: bool) -> Iterator[Any]:
        """The messages of a stream; a followed one goes on with the next leader."""
        failures = 0
        while True:
            began = time.monotonic()
            link = self._connection.leader(began + self._timeout)
            # A followed stream has no end, so no deadline: keepalive pings notice a Nimbus that vanished.
            with sendable(doing):
                call = self._called(ask, link, None if follow else _ALL)
            read = False
            try:
                for message in call:
                    read = True
                    yield message
                return
            except grpc.RpcError as e:
                if self._connection.closed:
                    return
                error = from_call(e, doing=doing, address=link.address)
                failures = failures + 1 if time.monotonic() - began < _LASTING else 1
                again = self._elsewhere(link, error)
                if not follow and (read or isinstance(error, Unreachable)):
                    again = False  # what was read would come twice
                if not again or failures > _FAILURES:
                    raise error from e
            finally:
                call.cancel()
            if failures > 1:
                time.sleep(_PAUSE)

    def _called(self, ask: Callable[[Link, L], R], link: Link, left: L) -> R:
        """Make a call on a channel that another thread may close. Raises: Unavailable: it has."""
        try:
            return ask(link, left)
        except ValueError as e:  # what gRPC raises then
            if self._connection.closed:
                raise Unavailable("this client is closed") from e
            raise

    def _elsewhere(self, link: Link, error: ElasticError) -> bool:
        """Whether the same request to another Nimbus may do; the next one then goes there."""
        if isinstance(error, NotLeading):  # it did nothing
            self._connection.forget(link, error.leader)
            return True
        if isinstance(error, Unreachable | Begun):
            self._connection.forget(link)
            return True
        if isinstance(error, Unanswered):
            # No time is left to ask another one; but what is asked next need not wait for one that hangs.
            self._connection.forget(link)
        return False


def _pauses() -> Iterator[float]:
    """Seconds before the second, third, ... attempt: none, then more and more."""
    yield 0.0
    pause = _PAUSE / 8
    while True:
        yield pause
        pause = min(2 * pause, 2 * _PAUSE)
