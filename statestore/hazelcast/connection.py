"""The connection to a Hazelcast cluster through its official client: options that lose nothing, and bounded waits."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any

from hazelcast.client import HazelcastClient
from hazelcast.errors import HazelcastError, HazelcastSerializationError

from statestore.errors import Damaged, Unavailable

WAIT = 30.0
"""Seconds for one answer; the client itself gives up sooner."""

_SILENT = 10
"""Seconds without a word from a member until the client gives up its connection. One that has died is noticed by its closed connection; one
that says nothing is mostly one that has not been given the processor."""
_TAKES = 10.0
"""Seconds for a member to say whether it takes a connection."""
_BUFFER = 1 << 20
"""Bytes of the sockets' buffers. With the client's own 128,000, pieces wait 40 ms for a delayed ACK."""

NOT_SENT = (HazelcastError, OSError, RuntimeError)
"""What the client raises when a request fails."""


def name_of(members: Sequence[str], cluster: str) -> str:
    """Of a cluster, for people."""
    return f"{cluster} at {','.join(members)}"


def address_of(member: Any) -> str:
    """`host:port` of a member, as the client knows it."""
    return f"{member.address.host}:{member.address.port}"


class _Client(HazelcastClient):
    """Gives up a connection of which it is not said in time whether it is taken. As it is, it waits for that for ever: also where others
    would answer, and where the one who listens is no member."""

    def _init_context(self) -> None:
        super()._init_context()  # type: ignore[no-untyped-call]
        manager: Any = self._connection_manager
        authenticate = manager._authenticate

        def in_time(connection: Any) -> Any:
            answer = authenticate(connection)
            over = manager._reactor.add_timer(
                _TAKES, lambda: connection.close_connection(f"it has not answered within {_TAKES:g} s", None)
            )
            answer.add_done_callback(lambda _: over.cancel())
            return answer

        manager._authenticate = in_time


def connect(members: Sequence[str], cluster: str, patience: float = 10.0) -> Any:
    """The official client, connected; whoever has it shuts it down.

    Args:
        members: `host:port` of some members.
        cluster: Its name.
        patience: Seconds after which it gives up, now and whenever the connection is lost.

    Raises:
        Unavailable: No member can be reached, or none is of that cluster.
    """
    logging.getLogger("hazelcast").setLevel(logging.WARNING)  # it tells every connection
    try:
        client: Any = _Client(
            cluster_members=list(members),
            cluster_name=cluster,
            redo_operation=True,
            backup_ack_to_client_enabled=False,
            invocation_retry_pause=0.1,
            invocation_timeout=10,
            heartbeat_interval=1,
            heartbeat_timeout=_SILENT,
            cluster_connect_timeout=patience,
            connection_timeout=5,
            shuffle_member_list=False,
            statistics_enabled=False,
            socket_options=_socket_options(),
        )
    except NOT_SENT as error:
        raise Unavailable(
            f"the Hazelcast cluster {name_of(members, cluster)} cannot be reached: {error}",
            remedy="Do its members run?",
        ) from error
    mend(client._reactor)
    try:
        refuse_pickles(client)
    except BaseException:
        client.shutdown()
        raise
    return client


def wait(future: Any, name: str) -> Any:
    """The answer to a request.

    Args:
        future: Of the client.
        name: Of the cluster, for people.

    Raises:
        Unavailable: There is none, or an error of the cluster.
        Damaged: It is nothing that a store has put there.
    """
    answered = threading.Event()
    future.add_done_callback(lambda _: answered.set())
    if not answered.wait(WAIT):
        raise Unavailable(f"the Hazelcast cluster {name} has not answered within {WAIT:g} s")
    try:
        return future.result()
    except HazelcastSerializationError as error:
        raise Damaged(f"the Hazelcast cluster {name} holds what no store has put there: {error}") from error
    except NOT_SENT as error:
        raise Unavailable(f"the Hazelcast cluster {name}: {type(error).__name__}: {error}") from error


def mend(reactor: Any) -> None:
    """Have a client's thread notice each request at once, also after one that came while it was reading of another.

    It says that it is to be woken again, and only then reads what has woken it. A request that comes in between takes back the one, and
    is read with the other: from then on nothing wakes it any more, and every request waits up to 10 ms until it looks by itself.
    """
    waker = getattr(reactor._loop, "waker", None)
    if waker is None:
        return  # there are no pipes here: it looks every millisecond
    read = waker.handle_read

    def handle_read() -> None:
        read()
        waker.awake = False  # what came in between lies in the queue, at which it looks next

    waker.handle_read = handle_read


def refuse_pickles(client: Any) -> None:
    """Have a client neither write nor read what only `pickle` can.

    Whoever reaches a member may put a value there, members having no authentication; as it is, the client runs whatever a pickled one
    says, on reading it. A store's own values are `bytearray`.
    """

    def refuse(*_: object) -> None:
        raise HazelcastSerializationError("a pickled value, which nobody reads here")

    serializer = client._serialization_service._python_serializer
    serializer.read = serializer.write = refuse


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    """Of the client's connections.

    BBR (the default of some systems) paces the few bytes of a commit behind the many of its pieces: the last of them waits
    40 ms for a delayed ACK. Reno does not; any process may choose it.
    """
    options: list[tuple[int, int, int | bytes]] = [
        (socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER),
        (socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER),
    ]
    if sys.platform == "linux":
        reno = (socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(*reno)
            options.append(reno)
    return options
