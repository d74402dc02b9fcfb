"""ZooKeeper, by kazoo.

Requests. Each waits for a connection and for its answer, together no longer than the session time-out. A
read whose answer was lost is asked again. A write whose answer was lost is repeated, and what is found then
tells:

    create, ephemeral        there, newer than the request, owned by this session: it was done
    create, persistent       there, and older than the request: Conflict; newer: nobody can know, NotConnected
    create_sequential        looked for before it is repeated, by owner and age (persistent: NotConnected)
    set with a version       one version further and the same bytes: it was done
    put, set, delete (any)   repeating does no harm
    transaction              conflicts now: nobody can know, NotConnected

So a write that raised `NotConnected` may have been done: read again when connected. `Conflict` is always
somebody else.

The session. kazoo finds out that a session has expired only when it reaches the server again. By then
others may have taken over, so this adapter gives the session up by itself, before the server can have
expired it (`_GIVE_UP`), also when it is the server that is away for so long.

Callbacks of kazoo only leave a note for the thread of `Watches`, which may block and call back into this
adapter. Registering a watch returns at once; the first call comes from that thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo import exceptions as kz
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from elastic.coordination._checks import check, parent, size
from elastic.coordination._watches import Kind, Subscription, Watches
from elastic.coordination.base import Check, Create, Delete, Looked, Operation, SessionState, Set, Versioned
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
log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("elastic.coordination.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it reports each of many attempts to connect; what matters is logged here
_RACES = 100
_MOMENT = 0.05
_GIVE_UP = 5 / 6
"""Share of the session time-out without any answer after which the session is given up; the rest is for
stopping what hung on it."""
_HANDSHAKES = 3
"""A server that is starting may accept a connection and never answer: an attempt gets this part of the
time-out."""


def connect(
    address: str, *, session_timeout: float = 6.0, connect_timeout: float = 10.0
) -> ZooKeeperCoordination:
    """Open a session.

    Args:
        address: "host:port", several of them with commas between, and optionally "/root": everything lies
            below that; it is created when missing.
        session_timeout: Seconds of silence after which the servers may end the session. They have limits of
            their own.
        connect_timeout: Seconds to wait for the first answer.

    Raises:
        Unavailable: Nothing answered there.
    """
    return ZooKeeperCoordination(address, session_timeout, connect_timeout)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's, which also remembers when the server last said something, and the time-out that it granted."""

    granted = 0.0
    heard = 0.0

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        read_timeout, connect_timeout = super()._connect(host, hostip, port)
        self.granted = read_timeout * 1.5 / 1000  # kazoo reads for two thirds of it
        return read_timeout, connect_timeout

    def _read_header(self, timeout: float) -> Any:
        header = super()._read_header(timeout)
        self.heard = time.monotonic()
        return header


@dataclass(frozen=True, slots=True)
class _Note:
    """Told by kazoo that something has changed. Equal ones are one to kazoo."""

    kind: Kind
    path: str
    watches: Watches = field(compare=False)

    def __call__(self, _event: object) -> None:
        self.watches.changed(self.kind, self.path)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Takes word of changes on the connection's own thread: before the answers that come after it."""

    def dispatch_callback(self, callback: Any) -> None:
        if isinstance(callback.func, _Note):
            callback.func(*callback.args)
        else:
            super().dispatch_callback(callback)


class ZooKeeperCoordination:
    """One session; see `base.Coordination` and the top of this module. Made by `connect`."""

    def __init__(self, address: str, session_timeout: float, connect_timeout: float) -> None:
        self.address = address
        hosts, _, root = address.partition("/")
        root = root.strip("/")
        if hosts.count(",") < _HANDSHAKES - 1:
            hosts = ",".join([hosts] * _HANDSHAKES)
        self._wanted_timeout = session_timeout
        retry = KazooRetry(max_tries=-1, delay=0.03, backoff=1.5, max_delay=0.5, max_jitter=0.2)
        try:
            self._client = KazooClient(
                hosts,
                timeout=session_timeout,
                handler=_Handler(),
                connection_retry=retry,
                command_retry=KazooRetry(max_tries=1),
                logger=_kazoo_log,
            )
        except ValueError as error:
            raise Unavailable(
                f"not a ZooKeeper address: {address!r}", remedy="host:port or host:port/root"
            ) from error
        patience = self._client._conn_retry.copy()
        self._connection = _Connection(self._client, patience, logger=self._client.logger)
        self._client._connection = self._connection
        self._closed = False
        self._sequential = threading.Lock()
        self._watches = Watches(self._read_watched, "elastic-coordination", self._give_up)
        self._client.add_listener(self._listen)
        try:
            if not self._client.start_async().wait(connect_timeout):
                raise Unavailable(f"no ZooKeeper at {address}: {_why(hosts)}", remedy="Is it running there?")
            if root:  # kazoo cannot create a root that it was given from the start
                self._make(f"/{root}")
                self._client.chroot = f"/{root}"
        except BaseException:
            self.close()
            raise

    # -- the session

    @property
    def session_timeout(self) -> float:
        return self._connection.granted or self._wanted_timeout

    @property
    def state(self) -> SessionState:
        return self._watches.state

    def close(self) -> None:
        self._closed = True
        self._watches.close(then=self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # kazoo raises all sorts of things when it is stopped halfway
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()

    def _listen(self, state: str) -> None:
        """On kazoo's connection thread: must not block."""
        if state == KazooState.CONNECTED:
            if self._watches.set_state(SessionState.CONNECTED):
                log.info("connected with ZooKeeper at %s again", self.address)
        elif state == KazooState.SUSPENDED:
            heard = self._connection.heard or time.monotonic()
            deadline = heard + _GIVE_UP * self.session_timeout
            if self._watches.set_state(SessionState.SUSPENDED, deadline):
                left = max(0.0, deadline - time.monotonic())
                log.warning("connection with ZooKeeper at %s lost; trying for %.1f s", self.address, left)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self._watches.set_state(SessionState.LOST):
            log.error("the session with ZooKeeper at %s has expired", self.address)
            self._end_client()

    def _end_client(self) -> None:
        """kazoo would open a new session: nobody wants that one. Not from kazoo's thread, which it waits for."""
        threading.Thread(target=self._stop, name="elastic-coordination-end", daemon=True).start()

    # -- requests

    def get(self, path: str) -> Versioned | None:
        check(path)
        try:
            data, stat = self._ask(f"get {path}", lambda: self._client.get_async(path))
        except NotFound:
            return None
        return Versioned(data, stat.version)

    def look(self, values: Sequence[str], children: Sequence[str] = ()) -> Looked:
        for path in (*values, *children):
            check(path)
        client = self._client

        def ask() -> _All:
            # A session's requests are answered in their order.
            found = [client.get_async(p) for p in values]
            return _All([*found, *(client.get_children_async(p) for p in children)])

        answers = self._ask(f"look at {len(values) + len(children)} nodes", ask) if values or children else []
        return Looked(
            {p: Versioned(a[0], a[1].version) if a else None for p, a in zip(values, answers, strict=False)},
            {
                p: None if a is None else tuple(sorted(a))
                for p, a in zip(children, answers[len(values) :], strict=True)
            },
        )

    def children(self, path: str) -> tuple[str, ...] | None:
        check(path)
        try:
            return tuple(sorted(self._ask(f"list {path}", lambda: self._client.get_children_async(path))))
        except NotFound:
            return None

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = True) -> None:
        check(path, data)
        before, lost = self._client.last_zxid, _Lost()
        try:
            self._ask(
                f"create {path}", lambda: self._client.create_async(path, data, ephemeral=ephemeral), lost
            )
        except NotFound:
            if not parents:
                raise
            self._make(parent(path))
            self.create(path, data, ephemeral=ephemeral, parents=False)
        except Conflict:
            stat = self._stat(path) if lost.happened else None
            if stat is None or stat.czxid <= before:
                raise
            if not ephemeral:
                raise _unknown(f"{path} was created by this session") from None
            if stat.ephemeralOwner != self._session_id:
                raise

    def create_sequential(self, prefix: str, data: bytes = b"", *, ephemeral: bool = True) -> str:
        above = parent(check(prefix + "0", data))
        with self._sequential:  # so that an unknown node of this session is the one of this request
            while True:
                before, lost = self._client.last_zxid, _Lost(once=True)
                path: str | None
                try:
                    path = self._ask(
                        f"create {prefix}...",
                        lambda: self._client.create_async(prefix, data, ephemeral=ephemeral, sequence=True),
                        lost,
                    )
                except NotFound:
                    self._make(above)
                    continue
                except NotConnected:
                    if not lost.happened:
                        raise
                    if not ephemeral:
                        raise _unknown(f"a node {prefix}... was created") from None
                    path = self._find_mine(above, prefix, before)
                if path is not None:
                    return path

    def _find_mine(self, above: str, prefix: str, since: int) -> str | None:
        for name in self.children(above) or ():
            path = f"{above.rstrip('/')}/{name}"
            stat = self._stat(path) if path.startswith(prefix) else None
            if stat is not None and stat.ephemeralOwner == self._session_id and stat.czxid > since:
                return path
        return None

    def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        check(path, data)
        lost = _Lost()
        try:
            done = self._ask(f"set {path}", lambda: self._client.set_async(path, data, version), lost)
            return int(done.version)
        except Conflict:
            now = self.get(path) if lost.happened else None
            if now is not None and now == Versioned(data, version + 1):
                return now.version
            raise

    def put(self, path: str, data: bytes) -> int:
        for _ in range(_RACES):
            try:
                self.set(path, data)
            except NotFound:
                try:
                    self.create(path, data)
                except Conflict:
                    continue
            return int(
                self._client.last_zxid
            )  # of our write, or of something later that this session has seen
        raise Conflict(f"{path}: somebody keeps creating and deleting it")

    def delete(
        self, path: str, *, version: int = -1, recursive: bool = False, missing_ok: bool = True
    ) -> None:
        check(path)
        lost = _Lost()
        for _ in range(_RACES):
            if recursive:
                for name in self.children(path) or ():
                    self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
            try:
                self._ask(f"delete {path}", lambda: self._client.delete_async(path, version), lost)
                return
            except NotFound:
                if missing_ok or lost.happened:
                    return
                raise
            except Conflict as error:
                if not recursive or not isinstance(error.__cause__, kz.NotEmptyError):
                    raise
        raise Conflict(f"{path}: somebody keeps creating nodes below it")

    def transaction(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        paths = ", ".join(check(o.path) for o in operations)
        size(
            paths, sum(len(o.path) + (len(o.data) if isinstance(o, Create | Set) else 0) for o in operations)
        )

        def commit() -> Any:
            request = self._client.transaction()
            for operation in operations:
                _add(request, operation)
            return request.commit_async()

        lost = _Lost()
        results = self._ask(f"a transaction on {paths}", commit, lost)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                if lost.happened:
                    raise _unknown(f"a transaction on {paths} was done") from result
                raise Conflict(f"{operation}: {_said(result)}; nothing was changed") from result

    def watch_value(
        self,
        path: str,
        callback: Callable[[Versioned | None], None],
        *,
        early: Callable[[], None] | None = None,
    ) -> Subscription:
        return self._watches.subscribe(Kind.VALUE, check(path), callback, early)

    def watch_children(
        self,
        path: str,
        callback: Callable[[tuple[str, ...]], None],
        *,
        early: Callable[[], None] | None = None,
    ) -> Subscription:
        return self._watches.subscribe(Kind.CHILDREN, check(path), callback, early)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Subscription:
        return self._watches.subscribe_session(callback)

    # -- how

    @property
    def _session_id(self) -> int:
        return int(self._client._session_id or 0)

    def _stat(self, path: str) -> Any:
        return self._ask(f"look at {path}", lambda: self._client.exists_async(path))

    def _make(self, path: str) -> None:
        self._ask(f"create {path}", lambda: self._client.ensure_path_async(path))

    def _read_watched(self, kind: Kind, path: str) -> tuple[Hashable, Any]:
        note, what = _Note(kind, path, self._watches), f"watch {path}"
        while True:
            try:
                if kind is Kind.VALUE:
                    data, stat = self._ask(what, lambda: self._client.get_async(path, watch=note))
                    return (stat.czxid, stat.mzxid), Versioned(data, stat.version)
                read = functools.partial(self._client.get_children_async, path, watch=note, include_data=True)
                names, stat = self._ask(what, read)
                return (stat.czxid, stat.pzxid) if names else None, tuple(sorted(names))
            except NotFound:
                if self._ask(what, lambda: self._client.exists_async(path, watch=note)) is None:
                    return None, None if kind is Kind.VALUE else ()

    def _ask(self, what: str, request: Callable[[], Any], lost: _Lost | None = None) -> Any:
        """Send a request and wait for its answer; again when the answer was lost, until the time is over.

        On the thread of the callbacks it does not wait for a connection: the news that it is gone must get
        through.

        Args:
            what: For messages.
            lost: Learns that an answer was lost before this one came.
        """
        deadline = time.monotonic() + self.session_timeout
        while True:
            patience = 0.0 if self._watches.on_thread() else deadline - time.monotonic()
            state = self._watches.wait_connected(patience)
            if state is SessionState.LOST:
                raise self._expired(what)
            left = deadline - time.monotonic()
            if state is SessionState.SUSPENDED or left <= 0:
                raise NotConnected(f"{what}: no connection to ZooKeeper at {self.address}")
            try:
                return request().get(timeout=left)
            except _LOST_ANSWER as error:
                if lost is not None:
                    lost.happened = True
                    if lost.once:
                        raise NotConnected(f"{what}: no answer from ZooKeeper at {self.address}") from error
                self._watches.wait_disconnected(_MOMENT)
            except kz.SessionExpiredError as error:
                raise self._expired(what) from error
            except kz.NoNodeError as error:
                raise NotFound(f"{what}: there is no such node") from error
            except _CONFLICTS as error:
                raise Conflict(f"{what}: {_said(error)}") from error
            except kz.KazooException as error:
                raise Unavailable(
                    f"{what}: refused by ZooKeeper at {self.address}: {_said(error)}"
                ) from error

    def _expired(self, what: str) -> SessionExpired:
        why = "was closed" if self._closed else "has expired"
        return SessionExpired(f"{what}: the session with ZooKeeper at {self.address} {why}")


class _All:
    """Several answers that are waited for together; None stands for a node that is not there."""

    def __init__(self, asked: Sequence[Any]) -> None:
        self._asked = asked

    def get(self, timeout: float) -> list[Any]:
        until = time.monotonic() + timeout
        answers = []
        for one in self._asked:
            try:
                answers.append(one.get(timeout=max(0.0, until - time.monotonic())))
            except kz.NoNodeError:
                answers.append(None)
        return answers


@dataclass(slots=True)
class _Lost:
    happened: bool = False
    once: bool = False
    """Don't repeat the request: the caller finds out first."""


def _add(request: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral):
            request.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            request.set_data(path, data, version)
        case Delete(path, version):
            request.delete(path, version)
        case Check(path, version):
            request.check(path, version)


def _unknown(what: str) -> NotConnected:
    return NotConnected(f"the connection broke before it was known whether {what}", remedy="Read it again.")


def _said(error: Exception) -> str:
    texts: dict[type[Exception], str] = {
        kz.NodeExistsError: "it exists already",
        kz.BadVersionError: "somebody else has changed it",
        kz.NotEmptyError: "it has children",
        kz.NoNodeError: "there is no such node",
        kz.NoChildrenForEphemeralsError: "its parent is ephemeral and cannot have children",
    }
    return texts.get(type(error)) or str(error) or type(error).__name__


def _why(hosts: str) -> str:
    """Why nothing answers there, for people."""
    host, _, port = hosts.partition(",")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return "something accepts connections there, but does not answer as ZooKeeper does"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
