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
expired it (`_lease`), whatever kazoo believes of the connection. A server that cannot be reached may live,
and answer others: unless it is our own, and this machine's kernel says that no process has its port.

Callbacks of kazoo only leave a note for the thread of `Watches`, which may block and call back into this
adapter. Registering a watch returns at once; the first call comes from that thread.

`begin_set` waits for nothing, and its answer is told on kazoo's own connection thread: waking another one
beside threads that compute takes longer than all the rest of it. It is asked for once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from kazoo import exceptions as kz
from kazoo.protocol.states import KazooState

from elastic.coordination import _checks
from elastic.coordination._checks import check, parent
from elastic.coordination._client import Note, end_watches, is_own, make_client, why_not
from elastic.coordination._lease import Lease
from elastic.coordination._requests import All, Lost, Requests, add, failures, said, unknown
from elastic.coordination._watches import GONE, Kind, Subscription, Watches
from elastic.coordination.base import Looked, Operation, SessionState, Versioned
from elastic.errors import Conflict, NotConnected, NotFound, Unavailable

log = logging.getLogger(__name__)
_RACES = 100


def connect(
    address: str,
    *,
    session_timeout: float = 6.0,
    connect_timeout: float = 10.0,
    own_server: bool = False,
    on_proof: Callable[[float], None] = lambda _: None,
) -> ZooKeeperCoordination:
    """Open a session.

    Args:
        address: "host:port", several of them with commas between, and optionally "/root": everything lies
            below that; it is created when missing.
        session_timeout: Seconds of silence after which the servers may end the session. They have limits of
            their own.
        connect_timeout: Seconds to wait for the first answer.
        own_server: The address is that of the one server that `elastic up` runs, and nothing is between: no
            ensemble behind it, no proxy, no tunnel. On the server's own machine a connection that is refused
            then shows that the server is down, and the session lives on meanwhile. Elsewhere it changes
            nothing: whatever is on the way could refuse in its place.
        on_proof: Told on a thread of this module, whenever that becomes later, until when (monotonic) the servers
            surely do not end the session. Must not block.

    Raises:
        Unavailable: Nothing answered there.
    """
    return ZooKeeperCoordination(address, session_timeout, connect_timeout, own_server, on_proof)


@dataclass(frozen=True, slots=True)
class _Exists:
    """The answer to whether there is a node, with a watch: it is on its way."""

    asked: Any


class ZooKeeperCoordination:
    """One session; see `base.Coordination` and the top of this module. Made by `connect`."""

    def __init__(
        self,
        address: str,
        session_timeout: float,
        connect_timeout: float,
        own_server: bool,
        on_proof: Callable[[float], None],
    ) -> None:
        self.address = address
        hosts, _, root = address.partition("/")
        root = root.strip("/")
        self._own_server = own_server
        self._lease = Lease(session_timeout, on_proof)
        self._down = False
        try:
            check(f"/{root}")
            if (
                "," in root or "://" in address
            ):  # what seem to be more servers, or an address, would be taken for the root
                raise ValueError(root)
            self._client = make_client(hosts, self._lease, self._refused)
        except ValueError as error:
            raise Unavailable(
                f"not a ZooKeeper address: {address!r}",
                remedy="host:port[,host:port...][/root]: one root, behind the last of the servers",
            ) from error
        self._sequential = threading.Lock()
        self._watches = Watches(
            self._read_watched,
            "elastic-coordination",
            self._give_up,
            lambda: self._lease.deadline,
            self._begin_watched,
            lambda path, begun: end_watches(self._client, path, begun=begun),
        )
        self._requests = Requests(address, self._watches, self._lease, self._give_up)
        self._ask = self._requests.ask
        self._client.add_listener(self._listen)
        try:
            if not self._client.start_async().wait(connect_timeout):
                raise Unavailable(
                    f"no ZooKeeper at {address}: {why_not(hosts)}", remedy="Is it running there?"
                )
            if root:  # kazoo cannot create a root that it was given from the start
                self._make(f"/{root}")
                self._client.chroot = f"/{root}"
        except BaseException:
            self.close()
            raise

    # -- the session

    @property
    def session_timeout(self) -> float:
        return self._lease.timeout

    @property
    def state(self) -> SessionState:
        return self._watches.state

    def close(self) -> None:
        self._requests.closed = True
        self._watches.close(then=self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(Exception):  # kazoo raises all sorts of things when it is stopped halfway
            self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()

    def _listen(self, state: str) -> None:
        """On kazoo's connection thread: must not block."""
        if state == KazooState.CONNECTED:
            self._down = False
            if self._watches.set_state(SessionState.CONNECTED):
                log.info("connected with ZooKeeper at %s again", self.address)
        elif state == KazooState.SUSPENDED:
            if self._watches.set_state(SessionState.SUSPENDED):
                left = max(0.0, self._lease.deadline - time.monotonic())
                log.warning("connection with ZooKeeper at %s lost; trying for %.1f s", self.address, left)
        else:
            self._give_up()

    def _refused(self, ip: str, since: float) -> None:
        """On kazoo's connection thread: nobody listens at the server's address."""
        if self._own_server and is_own(ip) and self._lease.down(since) and not self._down:
            self._down = True
            log.warning("ZooKeeper at %s is down: waiting for it", self.address)

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

        def ask() -> All:
            # A session's requests are answered in their order.
            found = [client.get_async(p) for p in values]
            return All([*found, *(client.get_children_async(p) for p in children)])

        answers = self._ask(f"look at {len(values) + len(children)} nodes", ask) if values or children else []
        return Looked(
            {p: Versioned(a[0], a[1].version) if a else None for p, a in zip(values, answers, strict=False)},
            {
                p: None if a is None else tuple(sorted(a))
                for p, a in zip(children, answers[len(values) :], strict=True)
            },
        )

    def caught_up(self) -> bool:
        # kazoo's thread takes word of changes before it takes an answer that came after it (`_Handler`).
        self._ask("ask for news", lambda: self._client.exists_async("/"))
        return self._watches.idle

    def children(self, path: str) -> tuple[str, ...] | None:
        check(path)
        try:
            return tuple(sorted(self._ask(f"list {path}", lambda: self._client.get_children_async(path))))
        except NotFound:
            return None

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = True) -> None:
        check(path, data)
        before, lost = self._client.last_zxid, Lost()
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
                raise unknown(f"{path} was created by this session") from None
            if stat.ephemeralOwner != self._session_id:
                raise

    def create_sequential(self, prefix: str, data: bytes = b"", *, ephemeral: bool = True) -> str:
        above = parent(check(prefix + "0", data))
        with self._sequential:  # so that an unknown node of this session is the one of this request
            while True:
                before, lost = self._client.last_zxid, Lost(once=True)
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
                        raise unknown(f"a node {prefix}... was created") from None
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
        lost = Lost()
        try:
            done = self._ask(f"set {path}", lambda: self._client.set_async(path, data, version), lost)
            return int(done.version)
        except Conflict:
            now = self.get(path) if lost.happened else None
            if now is not None and now == Versioned(data, version + 1):
                return now.version
            raise

    def begin_set(
        self, path: str, data: bytes, *, version: int = -1, then: Callable[[Callable[[], int]], None]
    ) -> None:
        check(path, data)
        what = f"set {path}"
        self._requests.begin(
            what,
            lambda: self._client.set_async(path, data, version),
            lambda answer: then(lambda: int(answer().version)),
        )

    def put(self, path: str, data: bytes) -> int:
        for _ in range(_RACES):
            try:
                self.set(path, data)
            except NotFound:
                try:
                    self.create(path, data)
                except Conflict:
                    continue
            # That of our write, or of something later that this session has seen.
            return int(self._client.last_zxid)
        raise Conflict(f"{path}: somebody keeps creating and deleting it")

    def delete(
        self, path: str, *, version: int = -1, recursive: bool = False, missing_ok: bool = True
    ) -> None:
        check(path)
        lost = Lost()
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
        paths = _checks.transaction(operations)

        def commit() -> Any:
            request = self._client.transaction()
            for operation in operations:
                add(request, operation)
            return request.commit_async()

        lost = Lost()
        results = self._ask(f"a transaction on {paths}", commit, lost)
        for operation, error in failures(operations, results):
            if lost.happened:
                raise unknown(f"a transaction on {paths} was done") from error
            raise Conflict(f"{operation}: {said(error)}; nothing was changed") from error

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

    # -- how

    @property
    def _session_id(self) -> int:
        return int(self._client._session_id or 0)

    def _stat(self, path: str) -> Any:
        return self._ask(f"look at {path}", lambda: self._client.exists_async(path))

    def _make(self, path: str) -> None:
        self._ask(f"create {path}", lambda: self._client.ensure_path_async(path))

    def _begin_watched(self, kind: Kind, path: str, gone: bool = False) -> Any:
        note = Note(kind, path, self._watches)
        if gone:  # else the value is asked for in vain first; and when a move ends all its nodes go, which everybody watches
            return _Exists(self._client.exists_async(path, watch=note))
        if kind is Kind.VALUE:
            return self._client.get_async(path, watch=note)
        return self._client.get_children_async(path, watch=note, include_data=True)

    def _read_watched(self, kind: Kind, path: str, begun: Any, lasting: bool) -> tuple[Hashable, Any]:
        note, what = Note(kind, path, self._watches), f"watch {path}"
        absent = None if kind is Kind.VALUE else ()
        exists = isinstance(begun, _Exists)
        asked = begun.asked if isinstance(begun, _Exists) else begun
        while True:
            if exists:
                there = self._ask(what, lambda: self._client.exists_async(path, watch=note), begun=asked)
                if there is None:
                    return None, absent
                asked = None
            try:
                found, stat = self._ask(what, lambda: self._begin_watched(kind, path), begun=asked)
                if kind is Kind.VALUE:
                    return (stat.czxid, stat.mzxid), Versioned(found, stat.version)
                # One that has never had children is as good as none; one whose only child has come and gone has changed.
                changed = bool(found) or stat.pzxid != stat.czxid
                return (stat.czxid, stat.pzxid) if changed else None, tuple(sorted(found))
            except NotFound:
                if not lasting:
                    return GONE, absent
                exists, asked = True, None
