"""What both adapters share: one thread that reads what has changed and calls back, one call at a time, in
order.

An adapter tells it *that* something may have changed, never what: the thread reads the node when it gets
there, so changes close together become one call, the last is never missed, and what waits is bounded by the
number of watched paths. While the session is not connected nothing is read; when it is connected again,
everything is.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any

from elastic.coordination.base import SessionState
from elastic.errors import Unavailable

log = logging.getLogger(__name__)


class Kind(Enum):
    VALUE = "value"
    CHILDREN = "children"


class _Gone:
    """Said of a node that was removed, and that nobody needs to hear of again."""


GONE = _Gone()
Key = tuple[Kind, str]
Read = Callable[[Kind, str, Any, bool], tuple[Hashable, Any]]
"""Reads a node and leaves a watch on it; returns something that differs when the node has changed, and the value. The third argument is
what was begun for it, or None; the fourth says whether there may be another node once this one is removed. If not, and there is none:
`GONE`, without a watch."""
Begin = Callable[[Kind, str, bool], Any]
"""Begins to read a node and to leave a watch on it; never blocks. None: it cannot now. The third argument says whether it was removed."""
End = Callable[[str, bool], None]
"""Takes back the watches on a node, of which nobody wants to hear any more; never blocks, and calls nobody. The second argument says
whether one may be on its way."""


class Subscription:
    """A `base.Watch`."""

    def __init__(
        self,
        callback: Callable[[Any], None],
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._ended = ended
        self.callback = callback
        self.early = early
        self.until_gone = until_gone
        self.cancelled = False
        self.was_there = False
        self.seen: Hashable = _NEVER

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._ended()


class _Never:
    pass


_NEVER = _Never()
_IDLE = 3600.0
_MOMENT = 0.05
_JOIN = 10.0


class Watches:
    """Runs the callbacks of one session.

    Args:
        read: See `Read`; raises `Unavailable` when there is no connection.
        name: Of the thread.
        expire: Called on this thread when it is past `deadline`; it sets the state to LOST.
        deadline: Says when that is, on the monotonic clock. It may be put off at any time, and is never put forward.
        begin: Called as soon as a node may have changed: its answer is on the way while the thread is still being woken.
        end: Called when the last subscription to a node is gone: of one that never changes the watch would stay for as long as the
            connection.
    """

    def __init__(
        self,
        read: Read,
        name: str,
        expire: Callable[[], None] = lambda: None,
        deadline: Callable[[], float] = lambda: math.inf,
        begin: Begin = lambda kind, path, gone: None,
        end: End = lambda path, begun: None,
    ) -> None:
        self._read = read
        self._begin = begin
        self._end = end
        self._expire = expire
        self._deadline = deadline
        self._wake = threading.Condition()
        self._subscriptions: dict[Key, list[Subscription]] = {}
        self._cancelled: deque[Key] = deque()  # what somebody has cancelled a subscription to
        self._session: list[Subscription] = []
        self._dirty: dict[Key, Any] = {}  # and what was begun to read it
        self._states: deque[tuple[SessionState, list[Subscription]]] = deque()
        self._state = SessionState.CONNECTED
        self._connections = 0  # how often the state has changed: what was begun before has no watch any more
        self._closed = False
        self._failing: set[Key] = set()  # what cannot be read, although there is a connection: said once
        self._busy = False
        self._on_end: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def state(self) -> SessionState:
        return self._state

    @property
    def idle(self) -> bool:
        """Whether all that this session has heard of has been told."""
        with self._wake:
            return (
                self._state is SessionState.CONNECTED
                and not self._closed
                and not self._busy
                and not self._dirty
                and not self._states
            )

    def subscribe(
        self,
        kind: Kind,
        path: str,
        callback: Callable[[Any], None],
        early: Callable[[], None] | None = None,
        until_gone: bool = False,
    ) -> Subscription:
        key = (kind, path)
        subscription = Subscription(
            callback, early, until_gone, functools.partial(self._cancelled.append, key)
        )
        with self._wake:
            # Not where it is cancelled: that must not wait. And a node that is not there may never be heard of again.
            while self._cancelled:
                self._living(self._cancelled.popleft())
            self._subscriptions.setdefault(key, []).append(subscription)
            first = key not in self._dirty
            if first:
                self._dirty[key] = None
            connected, before = self._state is SessionState.CONNECTED, self._connections
        # Of many that are subscribed to one after the other all answers are on their way at once.
        begun = self._begin(kind, path, False) if first and connected else None
        with self._wake:
            # What a change has begun meanwhile is newer, and the thread may be reading it already.
            if begun is not None and self._connections == before and self._dirty.get(key, begun) is None:
                self._dirty[key] = begun
            elif begun is not None:
                self._unwatch(key, begun)
            self._wake.notify()
        return subscription

    def subscribe_session(self, callback: Callable[[SessionState], None]) -> Subscription:
        subscription = Subscription(callback)
        with self._wake:
            self._session = [s for s in self._session if not s.cancelled] + [subscription]
            self._states.append((self._state, [subscription]))
            self._wake.notify()
        return subscription

    def changed(self, kind: Kind, path: str, *, gone: bool = False) -> None:
        """The node may have changed: it will be read.

        Args:
            gone: It was removed; by now there may be another.
        """
        key = (kind, path)
        with self._wake:
            living = self._living(key)
        if not living:
            return
        begun: Any = None
        if gone and all(s.until_gone for s in living):
            begun = GONE
        elif self._state is SessionState.CONNECTED:
            begun = self._begin(kind, path, gone)
        with self._wake:
            self._mark(key, begun)
            early = [s.early for s in self._subscriptions.get(key, ()) if s.early and not s.cancelled]
        for tell in early:
            try:
                tell()
            except Exception:  # this thread is the connection's: the session would end with it
                log.exception("who is told early of %s raised", path)

    def set_state(self, state: SessionState) -> bool:
        """The session's state, as the client sees it. LOST is for ever: what comes after it is ignored.

        Returns:
            Whether it changed anything.
        """
        with self._wake:
            if self._closed or self._state in (state, SessionState.LOST):
                return False
            self._state = state
            self._connections += 1
            self._states.append((state, self._session))
            if state is SessionState.CONNECTED:
                for key, subscriptions in self._subscriptions.items():
                    for subscription in subscriptions:
                        subscription.seen = _NEVER
                    self._dirty[key] = None
            self._wake.notify_all()
            return True

    def attend(self) -> None:
        """There is a deadline now: it is looked at."""
        with self._wake:
            self._wake.notify_all()

    def wait_connected(self, timeout: float) -> SessionState:
        """Wait until the session is connected or lost, but not longer than `timeout` seconds."""
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._state is not SessionState.SUSPENDED, timeout)
            return SessionState.LOST if self._closed else self._state

    def wait_disconnected(self, timeout: float) -> None:
        """Wait until the session is not connected, but not longer than `timeout` seconds."""
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._state is not SessionState.CONNECTED, timeout)

    def on_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def close(self, then: Callable[[], None] | None = None) -> None:
        """No call begins after this. Waits for one under way, unless it is that call which closes.

        Args:
            then: Run when the thread has ended, by the thread itself when it is that which closes.
        """
        with self._wake:
            already, self._closed = self._closed, True
            self._on_end = then if self.on_thread() and not already else None
            self._subscriptions.clear()
            self._wake.notify_all()
        if not self.on_thread():
            self._thread.join(_JOIN)
            if then is not None and not already:
                then()

    def _living(self, key: Key) -> list[Subscription]:
        """Those that want to hear of it. If there are none, nothing is kept of it."""
        living = [s for s in self._subscriptions.get(key, ()) if not s.cancelled]
        if living:
            self._subscriptions[key] = living
        else:
            self._subscriptions.pop(key, None)
            self._unwatch(key, self._dirty.pop(key, None))
        return living

    def _unwatch(self, key: Key, begun: Any) -> None:
        """With the lock: what whoever subscribes next asks for comes after this.

        Args:
            begun: What was begun to read it, and is not read.
        """
        path = key[1]  # without a connection there are no watches
        if self._state is SessionState.CONNECTED and not any((k, path) in self._subscriptions for k in Kind):
            self._end(path, begun not in (None, GONE))

    def _mark(self, key: Key, begun: Any = None) -> None:
        if key in self._subscriptions:
            self._dirty[key] = begun
            self._wake.notify()
        else:
            self._unwatch(key, begun)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if isinstance(job, tuple):
                self._refresh(*job)
            else:
                job()
        if self._on_end is not None:
            self._on_end()

    def _next(self) -> tuple[Key, Any] | Callable[[], None] | None:
        """Waits for the next thing to do. Session states go before values: whoever must stop learns of it first."""
        with self._wake:
            self._busy = False
            while not self._closed:
                if self._states:
                    self._busy = True
                    state, subscriptions = self._states.popleft()
                    return functools.partial(self._tell, subscriptions, state)
                wait = _IDLE
                if self._state is not SessionState.LOST:
                    wait = min(_IDLE, self._deadline() - time.monotonic())
                    if wait <= 0:
                        return self._expire
                if self._dirty and self._state is SessionState.CONNECTED:
                    self._busy = True
                    key = next(iter(self._dirty))
                    return key, self._dirty.pop(key)
                self._wake.wait(wait)
            return None

    def _refresh(self, key: Key, begun: Any) -> None:
        with self._wake:
            living = self._living(key)
        if not living:
            return
        absent = None if key[0] is Kind.VALUE else ()
        try:
            lasting = not all(s.until_gone and s.was_there for s in living)
            if begun is GONE and not all(s.until_gone for s in living):
                begun = None  # somebody has come since who wants to hear of another one
            seen, value = (GONE, absent) if begun is GONE else self._read(*key, begun, lasting)
        except Exception as error:
            # Whatever it is, this thread gives the session up in time, and tells of everything else.
            if not isinstance(error, Unavailable) and key not in self._failing:
                self._failing.add(key)
                log.exception("%s cannot be watched; it is tried again", key[1])
            with self._wake:
                if key in self._subscriptions:
                    self._dirty[key] = None
                # The client may fail requests a moment before it says that the connection is gone.
                self._wake.wait_for(lambda: self._closed or bool(self._states), _MOMENT)
            return
        self._failing.discard(key)
        for subscription in living:
            subscription.was_there |= seen is not None
            if subscription.seen == seen:
                continue
            if subscription.early is None:
                subscription.seen = seen
                self._call(subscription, value)
                continue
            with self._wake:
                # Whoever gets early word takes a value for the present one until there is. So none may come after that. Unless it is
                # the last: nothing that is heard of such a node can be news any more.
                if key not in self._dirty or seen is GONE:
                    subscription.seen = seen
                    self._call(subscription, value)

        if seen is GONE:
            for subscription in living:
                subscription.cancel()
        with self._wake:
            self._living(key)  # what was read has left a watch, and who wanted it may have gone meanwhile

    def _tell(self, subscriptions: list[Subscription], state: SessionState) -> None:
        for subscription in subscriptions:
            self._call(subscription, state)

    def _call(self, subscription: Subscription, argument: object) -> None:
        if subscription.cancelled or self._closed:
            return
        try:
            subscription.callback(argument)
        except Exception:  # one callback's fault must not silence the others
            log.exception("a watch callback raised")
