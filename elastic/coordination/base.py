"""The port: a tree of small versioned values with watches, ephemeral nodes and transactions.

States of a session, in words:

    CONNECTED  <->  SUSPENDED  ->  LOST (for ever; a new session is a new object)

While SUSPENDED nothing is known: reads and writes raise `NotConnected` (after a bounded wait), watches stay silent.
No answer is ever made up: an empty list means that a connected server said so.
When the connection returns within the session, every watch fires once, so that what was missed is read again.
LOST means that ephemeral nodes are gone or will be gone: whoever owned something by them must have stopped by then. An adapter that
cannot reach the service says it by itself when `GIVE_UP` of the session time-out is over, so that there is time left for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MAX_BYTES = 1_000_000
"""Of a value, or of all that a transaction writes. A little under what a ZooKeeper server accepts as one request: it answers a larger
one by hanging up."""
GIVE_UP = 5 / 6
"""Share of the session time-out, since the service has surely heard of the session, after which an adapter gives it up; what is left
is for stopping what hung on it."""


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Versioned:
    """A node's value and the number of times it was set (0 when it was created)."""

    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Looked:
    """What `look` has found, by path; None: a connected server says that there is no such node."""

    values: Mapping[str, Versioned | None]
    children: Mapping[str, tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Set, if the version is still that one (-1: any)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """The transaction goes through only if the node exists with this version (-1: any)."""

    path: str
    version: int = -1


Operation = Create | Set | Delete | Check


class Watch(Protocol):
    def cancel(self) -> None:
        """No call begins after this returns. Safe to call twice, and from within the callback."""


class Coordination(Protocol):
    """One session with the coordination service.

    Every method has a bound: it raises `NotConnected` when no answer came in time, `SessionExpired` once the session is lost.
    Callbacks run on the adapter's own thread, one at a time, in order; a callback must not block for long, but it may call
    the other methods (an adapter whose client forbids that must run callbacks elsewhere).
    """

    def get(self, path: str) -> Versioned | None:
        """The value, or None when a connected server says that there is no such node."""

    def look(self, values: Sequence[str], children: Sequence[str] = ()) -> Looked:
        """Several values, then the names of the children of several nodes: as `get` and `children`, in one exchange.

        Read in the order in which they are given: none is older than one before it.
        """

    def caught_up(self) -> bool:
        """Whether every watch of this session has told by now what was so when this was called. On the thread of the callbacks: no.

        One short question to the service, however much is watched: word of changes comes before answers.
        """

    def children(self, path: str) -> tuple[str, ...] | None:
        """Names (not paths) of the children, sorted; None when there is no such node."""

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, parents: bool = True) -> None:
        """Raises `Conflict` when it exists."""

    def create_sequential(self, prefix: str, data: bytes = b"", *, ephemeral: bool = True) -> str:
        """Creates `prefix` plus ten digits that no sibling had before; returns the whole path. Makes parents."""

    def set(self, path: str, data: bytes, *, version: int = -1) -> int:
        """Returns the new version. Raises `Conflict` when the version is another, `NotFound` when there is no such node."""

    def begin_set(
        self, path: str, data: bytes, *, version: int = -1, then: Callable[[Callable[[], int]], None]
    ) -> None:
        """As `set`, without waiting for the answer.

        Args:
            then: Called once with what returns the new version, or raises what `set` would. If that is an `Unavailable` it may have been
                done. It may be called before this returns, or on a thread of the adapter's own which reads the answers of all others: it
                must not wait.

        Raises:
            NotConnected, Refused: Nothing was asked for, and `then` is not called.
        """

    def put(self, path: str, data: bytes) -> int:
        """Create or set, whatever is there; makes parents. Persistent.

        Returns:
            The write's place in the order of all writes to the service: greater than that of every write before it. What this
            session reads from now on is not older than that.
        """

    def delete(
        self, path: str, *, version: int = -1, recursive: bool = False, missing_ok: bool = True
    ) -> None:
        """Raises `Conflict` when the version is another or, without `recursive`, when it has children."""

    def transaction(self, operations: Sequence[Operation]) -> None:
        """All or nothing. Raises `Conflict` naming the operation that could not be done. Does not make parents."""

    def watch_value(
        self,
        path: str,
        callback: Callable[[Versioned | None], None],
        *,
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
    ) -> Watch:
        """Calls at once with the present value, and again after each change (also creation and deletion) with the value
        that was read then. Changes close together may come as one call; the last is never missed.

        Args:
            early: Called as soon as there is word of a change: before anything newer than the change can be read by this session. On
                any thread; may come once too often. A value that `callback` was given is the present one for as long as nothing
                is heard here. Neither of the two may block then, nor use this port.
            until_gone: Once the node has been there and is removed nobody needs to hear of another at its place: that it is gone is
                the last call, and no watch is left.
        """

    def watch_children(
        self,
        path: str,
        callback: Callable[[tuple[str, ...]], None],
        *,
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
    ) -> Watch:
        """The same for the names of the children. A node that does not exist has none, and is watched for being created."""

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        """Calls at once with the present state, and on each change."""

    @property
    def session_timeout(self) -> float:
        """Seconds after which the service may declare a silent session dead."""

    def close(self) -> None:
        """Ends the session: its ephemeral nodes go at once. Safe to call twice."""
