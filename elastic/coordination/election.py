"""Who leads: the candidate whose node is the oldest.

    STANDING  <->  LEADING          by the candidates that are there
    either    ->   UNKNOWN          the connection is lost: nobody acts who does not know
    UNKNOWN   ->   either           it is back, and the candidates were read again
    any       ->   LOST             the session is gone, for ever

A candidate is an ephemeral sequential node. Each watches only the one before it, so that the end of one wakes
one. Knowing that one leads is knowledge of a moment ago: a write that only a leader may do goes into a
transaction with `guard`, which fails when the candidate's node is gone. Each time that one comes to lead it writes its
node: a guard of before then fails as well, also in a transaction that was on its way when the connection broke.

A candidate's data (its address) is its own: nodes with the same data are those of an earlier life of it,
whose session has not expired yet, and are removed when it stands.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from elastic.coordination.base import Check, Coordination, SessionState, Versioned, Watch
from elastic.errors import ElasticError, NotFound, Refused, Unavailable

log = logging.getLogger(__name__)


class Election:
    """One candidate.

    Args:
        coordination: The session that it stands with.
        path: The node below which the candidates are.
        data: Says who it is; nobody else has the same.
        on_change: Told whether it leads, each time that changes, on the thread of the session's callbacks.
    """

    def __init__(
        self, coordination: Coordination, path: str, data: bytes, on_change: Callable[[bool], None]
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._data = data
        self._on_change = on_change
        self._lock = threading.Lock()
        self._leading = False
        self._standing = False
        self._term = -1  # the version of `_mine` since it leads
        self._mine: str | None = None
        self._watched: dict[str, Watch] = {}
        self._session: Watch | None = None

    @property
    def leading(self) -> bool:
        return self._leading

    def start(self) -> None:
        """Stand; returns at once. Once only."""
        self._standing = True
        self._session = self._coordination.watch_session(self._on_session)

    def close(self) -> None:
        """Stand no longer: the next candidate leads. `on_change` is not told. Safe to call twice."""
        with self._lock:
            self._standing = self._leading = False
            mine, self._mine = self._mine, None
            watches, self._watched = list(self._watched.values()), {}
        if self._session is not None:
            self._session.cancel()
        for watch in watches:
            watch.cancel()
        if mine is not None:
            with contextlib.suppress(Unavailable):  # then it goes with the session
                self._coordination.delete(mine)

    def guard(self) -> Check:
        """To be part of a transaction that only the leader may do. The same for as long as it leads without a break, and another one
        after each.

        Raises:
            Refused: This candidate does not lead.
        """
        with self._lock:
            if not self._leading or self._mine is None:
                raise Refused("this candidate does not lead")
            return Check(self._mine, self._term)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._evaluate()
        else:
            self._change(False)

    def _on_node(self, _value: Versioned | None) -> None:
        self._evaluate()

    def _evaluate(self) -> None:
        """On the callbacks' thread. Without a connection it ends half done: it is called again with the
        connection."""
        try:
            self._look()
        except Unavailable as error:
            self._change(False)
            log.info("election at %s: %s", self._path, error)
        except ElasticError:
            self._change(False)
            log.exception("election at %s", self._path)

    def _look(self) -> None:
        while self._standing:
            candidates = _ordered(self._coordination.children(self._path) or ())
            mine = self._mine
            if mine is not None and _name(mine) in candidates:
                place = candidates.index(_name(mine))
                before = [f"{self._path}/{candidates[place - 1]}"] if place else []
                self._watch([mine, *before])
                if place == 0 and not self._leading:
                    try:
                        self._term = self._coordination.set(mine, self._data)
                    except NotFound:  # it has gone since
                        continue
                self._change(place == 0)
                return
            self._change(False)
            self._stand(candidates)

    def _stand(self, candidates: list[str]) -> None:
        for name in candidates:
            path = f"{self._path}/{name}"
            value = self._coordination.get(path)
            if value is not None and value.data == self._data:
                self._coordination.delete(path)
        mine = self._coordination.create_sequential(f"{self._path}/", self._data, ephemeral=True)
        with self._lock:
            wanted = self._standing
            self._mine = mine if wanted else None
        if not wanted:
            self._coordination.delete(mine)

    def _watch(self, paths: list[str]) -> None:
        with self._lock:
            if not self._standing:
                return
            old = self._watched
            new = [p for p in paths if p not in old]
            gone = [w for p, w in old.items() if p not in paths]
            self._watched = {p: w for p, w in old.items() if p in paths}
            for path in new:
                self._watched[path] = self._coordination.watch_value(path, self._on_node)
        for watch in gone:
            watch.cancel()

    def _change(self, leading: bool) -> None:
        with self._lock:
            if self._leading == leading or (leading and not self._standing):
                return
            self._leading = leading
            standing = self._standing
        if standing:
            self._on_change(leading)


def leader(coordination: Coordination, path: str) -> bytes | None:
    """The data of the candidate that leads; None when there is no candidate.

    Raises:
        NotConnected, SessionExpired: See the port.
    """
    while True:
        candidates = _ordered(coordination.children(path) or ())
        if not candidates:
            return None
        value = coordination.get(f"{path}/{candidates[0]}")
        if value is not None:
            return value.data


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _ordered(names: tuple[str, ...]) -> list[str]:
    """By number; what is no candidate does not count."""
    return sorted(n for n in names if n.isdigit())
