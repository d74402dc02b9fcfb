"""gRPC servers: translated errors, bounded threads, loopback unless told otherwise."""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc

from elastic.errors import ConfigError, ElasticError, Ended, EnvironmentProblem, Refused
from elastic.machine import limit_reached
from elastic.rpc.channels import SHARED
from elastic.rpc.errors import NotLeading, to_status

_log = logging.getLogger(__name__)
STREAMS = 32
"""Streams that are followed at a server at the same time."""
WAITS = 64
"""Requests that may wait for what they have asked for, at the same time: what is told at once, reports, and aborts need threads as well."""

_SERVER = (
    *SHARED,
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 15_000),
)


def check_listen(address: str, *, allow_remote: bool) -> None:
    """See that `host:port` is only reachable from this machine, unless that is wanted.

    Raises:
        ConfigError: It is not `host:port`, or reachable from elsewhere without `allow_remote`.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{address!r} is no address to listen at", remedy="Write host:port, e.g. 127.0.0.1:6627."
        )
    if allow_remote or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"listening at {address} would let other machines control this cluster: there is no authentication",
            remedy="Listen at 127.0.0.1, or say that remote access is wanted (allow_remote).",
        )


class Server:
    """A gRPC server with translated errors, bounded threads and a bounded number of long streams.

    Args:
        listen: `host:port`; port 0 takes a free one.
        name: For thread names and messages.
        allow_remote: Whether it may be reached from other machines.
        threads: Calls that are served at the same time.
        streams: How many of those may be streams that a caller follows.
        waits: And how many may be such that wait (`waiting`).

    Attributes:
        over: Why nobody goes on when it has gone: `cluster x has ended`; "": somebody else may.

    Raises:
        ConfigError: See `check_listen`.
        EnvironmentProblem: The port is taken.
    """

    def __init__(
        self,
        listen: str,
        *,
        name: str,
        allow_remote: bool = False,
        threads: int = WAITS + STREAMS + 32,
        streams: int = STREAMS,
        waits: int = WAITS,
    ) -> None:
        check_listen(listen, allow_remote=allow_remote)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._name = name
        self._streams = threading.BoundedSemaphore(streams)
        self._most = streams
        self._waiting = threading.BoundedSemaphore(waits)
        self._most_waits = waits
        self._lock = threading.Lock()
        self._open: set[threading.Event] = set()
        self._started = self._stopping = False
        self.over = ""
        self.grpc: grpc.Server = grpc.server(
            self._pool, options=_SERVER, interceptors=[_Translate()], maximum_concurrent_rpcs=4 * threads
        )
        try:
            port = self.grpc.add_insecure_port(listen)
        except RuntimeError as e:
            self._pool.shutdown()
            raise EnvironmentProblem(
                f"cannot listen at {listen}: {e}",
                remedy="Is the port taken? Choose another, or 0 for a free one.",
            ) from e
        self.address = f"{listen.rpartition(':')[0]}:{port}"

    def start(self) -> None:
        """Begin to answer; returns at once."""
        self._started = True
        self.grpc.start()

    def end_streams(self, over: str = "") -> None:
        """End those that are followed, also any that begin from now on. Returns at once.

        Args:
            over: See the attribute.
        """
        with self._lock:
            self.over, self._stopping = over, True
            for ended in self._open:
                ended.set()

    def close(self, grace: float = 1.0) -> None:
        """Refuse new calls, end the followed streams, give other calls `grace` seconds. Its threads have ended then."""
        self.end_streams(self.over)
        if not self._started:  # gRPC gives the port of a server back only when that has run
            self.start()
        self.grpc.stop(grace).wait()
        self._pool.shutdown(wait=True)

    @contextmanager
    def stream(self, context: grpc.ServicerContext, *, follows: bool = True) -> Iterator[threading.Event]:
        """A stream: gives an event that is set when the caller or the server goes.

        Args:
            follows: Whether it is one of the bounded long ones.

        Raises:
            Refused: Too many of those are open.
        """
        if follows and not self._streams.acquire(blocking=False):
            raise Refused(
                f"{self._name} at {self.address} already serves {self._most} followed streams",
                remedy="End some of the commands that follow events or logs.",
            )
        ended = threading.Event()
        with self._lock:
            self._open.add(ended)
            if self._stopping:
                ended.set()
        try:
            if not context.add_callback(ended.set):
                ended.set()
            yield ended
        finally:
            with self._lock:
                self._open.discard(ended)
            if follows:
                self._streams.release()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A call that is about to wait, on one of the threads.

        Raises:
            Refused: Too many wait already.
        """
        if not self._waiting.acquire(blocking=False):
            raise Refused(
                f"at {self._name} at {self.address} {self._most_waits} requests wait already for what they have asked for",
                remedy="Ask again when some have ended, or without waiting (a wait of 0).",
            )
        try:
            yield
        finally:
            self._waiting.release()

    def gone(self) -> ElasticError:
        """What a stream raises when its event was set: reaches the caller when it was the server that went."""
        if self.over:
            return Ended(self.over)
        return NotLeading(f"{self._name} at {self.address} is going down", remedy="Ask another one.")


if TYPE_CHECKING:
    Interceptor = grpc.ServerInterceptor[Any, Any]
else:
    Interceptor = grpc.ServerInterceptor


class _Translate(Interceptor):
    """Turns what a service method raises into a status with details; anything unexpected also into a log entry."""

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = continuation(details)
        method = str(details.method)
        if handler is None or not method.startswith("/elastic."):
            return handler
        if handler.response_streaming:
            return _replace(handler, _guard_stream(_behaviour(handler), method))
        return _replace(handler, _guard(_behaviour(handler), method))


def _behaviour(handler: Any) -> Callable[..., Any]:
    found = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    assert found is not None
    return found  # type: ignore[no-any-return]


def _replace(handler: Any, behaviour: Callable[..., Any]) -> Any:
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _guard(behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(request, context)
        except Exception as e:  # noqa: BLE001  whatever it is, the caller gets a status
            _abort(context, e, method)

    return call


def _guard_stream(behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            yield from behaviour(request, context)
        except Exception as e:  # noqa: BLE001
            _abort(context, e, method)

    return call


def _abort(context: grpc.ServicerContext, error: Exception, method: str) -> None:
    if not isinstance(error, ElasticError):
        if context.is_active():  # else it may well be that the caller has gone
            _log.error("%s failed", method, exc_info=error)
        error = ElasticError(
            f"{method.rpartition('/')[2]} failed in the server: {type(error).__name__}: {error}",
            remedy=limit_reached(error) or "This is a defect; the server's log has the traceback.",
        )
    # Also when nobody is left to be told: gRPC takes what is returned for an answer, and logs that it is none.
    context.abort_with_status(to_status(error))
