"""The coordination port without any service: for tests, and for everything in one process.

`MemoryZooKeeper` is the server; each `connect` is a session with it. A test can take a session's connection
away (`suspend`), give it back (`resume`) and let the server expire it (`expire`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from elastic.coordination import _checks
from elastic.coordination._checks import check, parent
from elastic.coordination._watches import GONE, Kind, Subscription, Watches
from elastic.coordination.base import Check, Create, Delete, Looked, Operation, SessionState, Set, Versioned
from elastic.errors import Conflict, ElasticError, NotConnected, NotFound, SessionExpired


@dataclass(slots=True)
class _Node:
    data: bytes
    version: int = 0
    owner: int = 0
    changed: int = 0
    """When the value was set, in the server's count of changes."""
    created: int = 0
    children_changed: int = 0
    next: int = 0
    """Of the sequential children."""
    children: set[str] = field(default_factory=set)


class MemoryZooKeeper:
    """The server: a tree, and the sessions that watch it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._clock = itertools.count(1)
        self._ids = itertools.count(1)
        self._nodes: dict[str, _Node] = {"/": _Node(b"")}
        self._sessions: dict[int, MemoryCoordination] = {}
        self._opened: weakref.WeakSet[MemoryCoordination] = weakref.WeakSet()  # also those that have expired

    def connect(self, *, session_timeout: float = 6.0) -> MemoryCoordination:
        """Open a session.

        Args:
            session_timeout: Seconds that a request waits for a connection. Sessions end by `expire` only.
        """
        with self._lock:
            session = MemoryCoordination(self, next(self._ids), session_timeout)
            self._sessions[session.id] = session
            self._opened.add(session)
            return session

    def close(self) -> None:
        """Close every session: each has a thread. Those that are closed already may be closed again."""
        with self._lock:
            sessions = list(self._opened)
        for session in sessions:
            session.close()

    def suspend(self, session: MemoryCoordination) -> None:
        """Take the session's connection away."""
        session._watches.set_state(SessionState.SUSPENDED)

    def resume(self, session: MemoryCoordination) -> None:
        """Give the connection back: the session goes on, or learns that it has expired."""
        with self._lock:
            state = SessionState.CONNECTED if session.id in self._sessions else SessionState.LOST
            session._watches.set_state(state)

    def expire(self, session: MemoryCoordination) -> None:
        """End the session on the server. If it is suspended it learns that from `resume`."""
        with self._lock:
            self._end(session)
            if session.state is SessionState.CONNECTED:
                session._watches.set_state(SessionState.LOST)

    # -- what a session asks, under the lock

    def _end(self, session: MemoryCoordination) -> None:
        self._sessions.pop(session.id, None)
        for path in [p for p, n in self._nodes.items() if n.owner == session.id]:
            self._delete(path, -1)

    def _find(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NotFound(f"{path}: there is no such node")
        return node

    def _create(self, path: str, data: bytes, owner: int) -> None:
        above = self._find(parent(path))
        if path in self._nodes:
            raise Conflict(f"{path}: it exists already")
        if above.owner:
            raise Conflict(f"{path}: its parent is ephemeral and cannot have children")
        now = next(self._clock)
        self._nodes[path] = _Node(data, owner=owner, changed=now, created=now, children_changed=now)
        above.children.add(path.rpartition("/")[2])
        above.children_changed = now
        above.next += 1
        self._tell(path)

    def _set(self, path: str, data: bytes, version: int) -> int:
        node = self._find(path)
        if version not in (-1, node.version):
            raise Conflict(f"{path}: somebody else has changed it")
        node.data, node.version, node.changed = data, node.version + 1, next(self._clock)
        self._tell(path)
        return node.version

    def _delete(self, path: str, version: int) -> None:
        node = self._find(path)
        if version not in (-1, node.version):
            raise Conflict(f"{path}: somebody else has changed it")
        if node.children:
            raise Conflict(f"{path}: it has children")
        del self._nodes[path]
        above = self._nodes[parent(path)]
        above.children.discard(path.rpartition("/")[2])
        above.children_changed = next(self._clock)
        self._tell(path)

    def _check(self, path: str, version: int) -> None:
        if version not in (-1, self._find(path).version):
            raise Conflict(f"{path}: somebody else has changed it")

    def _tell(self, path: str) -> None:
        for session in self._sessions.values():
            session._watches.changed(Kind.VALUE, path)
            session._watches.changed(Kind.CHILDREN, path)
            session._watches.changed(Kind.CHILDREN, parent(path))

    def _copy(self) -> dict[str, _Node]:
        return {p: dataclasses.replace(n, children=set(n.children)) for p, n in self._nodes.items()}

    def _apply(self, operation: Operation, session: int) -> None:
        match operation:
            case Create(path, data, ephemeral):
                self._create(path, data, session if ephemeral else 0)
            case Set(path, data, version):
                self._set(path, data, version)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._check(path, version)


class MemoryCoordination:
    """One session with a `MemoryZooKeeper`. Made by its `connect`."""

    def __init__(self, server: MemoryZooKeeper, id: int, session_timeout: float) -> None:
        self.id = id
        self._server = server
        self._timeout = session_timeout
        self._closed = False
        self._watches = Watches(self._read_watched, "memory-coordination")

    @property
    def session_timeout(self) -> float:
        return self._timeout

    @property
    def state(self) -> SessionState:
        return self._watches.state

    def get(self, path: str) -> Versioned | None:
        with self._connected(check(path)):
            node = self._server._nodes.get(path)
            return None if node is None else Versioned(node.data, node.version)

    def look(self, values: Sequence[str], children: Sequence[str] = ()) -> Looked:
        with self._connected("look"):
            return Looked({p: self.get(p) for p in values}, {p: self.children(p) for p in children})

    def caught_up(self) -> bool:
        with self._connected("ask for news"):
            return self._watches.idle

    def children(self, path: str) -> tuple[str, ...] | None:
        with self._connected(check(path)):
            node = self._server._nodes.get(path)
            return None if node is None else tuple(sorted(node.children))

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = True) -> None:
        with self._connected(check(path, data)):
            if parents:
                self._make(parent(path))
            self._server._create(path, data, self.id if ephemeral else 0)

    def create_sequential(self, prefix: str, data: bytes = b"", *, ephemeral: bool = True) -> str:
        above = parent(check(prefix + "0", data))
        with self._connected(prefix):
            self._make(above)
            path = f"{prefix}{self._server._find(above).next:010d}"
            self._server._create(path, data, self.id if ephemeral else 0)
            return path

    def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        with self._connected(check(path, data)):
            return self._server._set(path, data, version)

    def begin_set(
        self, path: str, data: bytes, *, version: int = -1, then: Callable[[Callable[[], int]], None]
    ) -> None:
        check(path, data)
        if self.state is not SessionState.CONNECTED:
            raise NotConnected(f"set {path}: no connection")
        done: Future[int] = Future()
        try:
            done.set_result(self.set(path, data, version=version))
        except ElasticError as error:
            done.set_exception(error)
        then(done.result)

    def put(self, path: str, data: bytes) -> int:
        with self._connected(check(path, data)):
            if path in self._server._nodes:
                self._server._set(path, data, -1)
            else:
                self._make(parent(path))
                self._server._create(path, data, 0)
            return self._server._nodes[path].changed

    def delete(
        self, path: str, *, version: int = -1, recursive: bool = False, missing_ok: bool = True
    ) -> None:
        with self._connected(check(path)):
            if missing_ok and path not in self._server._nodes:
                return
            if recursive:
                for name in sorted(self._server._find(path).children):
                    self.delete(f"{path.rstrip('/')}/{name}", recursive=True)
            self._server._delete(path, version)

    def transaction(self, operations: Sequence[Operation]) -> None:
        paths = _checks.transaction(operations)
        with self._connected(paths):
            before = self._server._copy()
            for operation in operations:
                try:
                    self._server._apply(operation, self.id)
                except (Conflict, NotFound) as error:
                    self._server._nodes = before
                    raise Conflict(f"{operation}: {error.message}; nothing was changed") from error

    def watch_value(
        self,
        path: str,
        callback: Callable[[Versioned | None], None],
        *,
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
    ) -> Subscription:
        return self._watches.subscribe(Kind.VALUE, check(path), callback, early, until_gone)

    def watch_children(
        self,
        path: str,
        callback: Callable[[tuple[str, ...]], None],
        *,
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
    ) -> Subscription:
        return self._watches.subscribe(Kind.CHILDREN, check(path), callback, early, until_gone)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Subscription:
        return self._watches.subscribe_session(callback)

    def close(self) -> None:
        self._closed = True
        self._watches.close()
        with self._server._lock:
            self._server._end(self)

    @contextlib.contextmanager
    def _connected(self, what: str) -> Iterator[None]:
        """The server's lock, once there is a connection; callbacks don't wait for one."""
        state = self._watches.wait_connected(0.0 if self._watches.on_thread() else self._timeout)
        with self._server._lock:
            if state is not SessionState.SUSPENDED:
                state = self._watches.wait_connected(0.0)
            if state is SessionState.LOST:
                why = "was closed" if self._closed else "has expired"
                raise SessionExpired(f"{what}: the session {why}")
            if state is SessionState.SUSPENDED:
                raise NotConnected(f"{what}: no connection to the coordination service")
            yield

    def _make(self, path: str) -> None:
        if path not in self._server._nodes:
            self._make(parent(path))
            self._server._create(path, b"", 0)

    def _read_watched(self, kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        with self._connected(path):
            node = self._server._nodes.get(path)
            if node is None and not lasting:
                return GONE, None if kind is Kind.VALUE else ()
            if kind is Kind.VALUE:
                return (None, None) if node is None else (node.changed, Versioned(node.data, node.version))
            if node is None or node.children_changed == node.created:
                return None, ()
            return node.children_changed, tuple(sorted(node.children))
