"""What a worker process reads in coordination for moves: views of everything.

A view is read in the order that `elastic.migration.view` asks for, each time anew: watches only say that it is time to.
"""

from __future__ import annotations

import functools
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Looked, Versioned, Watch
from elastic.errors import Unavailable
from elastic.migration.record import Marked, MoveRecord, decode_marks
from elastic.migration.view import EMPTY, MoveView, View
from elastic.model import codec
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId
from elastic.model.records import WorkerInfo
from elastic.queues import take

log = logging.getLogger("elastic.worker")
T = TypeVar("T")

_TRIES = 20
"""Times that a view is read anew because a move ended while it was being read."""

_ON_THEIR_WAY = 0.005
"""Seconds that a view waits for values that watches are reading already: they are here within that, nearly always, and would be asked for a
second time else."""

_PAUSE, _LONGEST = 1.0, 30.0
"""Seconds until a view that came to nothing is read again although nothing is heard: twice as long each time, up to the longer one."""

_Key = tuple[str, bool]
"""A path, and whether it is about the names of its children instead of its value."""


class Mirror:
    """What a session's watches have said, for as long as nothing else was heard: values that need not be read.

    Args:
        notice: Called when something is not as it was known; must not block.
        passing: Below this path nodes come once: of one that is removed nothing is heard any more.
        early: Called at the first word that one of these may have changed, before it is read, with what is to be called. Must not block.
    """

    def __init__(
        self,
        coordination: Coordination,
        notice: Callable[[], None],
        passing: str,
        early: Mapping[_Key, Callable[[], None]] = MappingProxyType({}),
    ) -> None:
        self._coordination = coordination
        self._early = early
        self._below = f"{passing}/"
        self._notice = notice
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._watches: dict[_Key, Watch] = {}
        # Nothing was heard of these since their watches gave a value: the next change is.
        self._told: set[_Key] = set()
        self._present: dict[_Key, Any] = {}
        self._last: dict[_Key, Any] = {}
        self._words: dict[_Key, int] = {}
        self._looked: dict[_Key, int] = {}  # the words that had been heard when children were asked for last

    def follow(self, keys: set[_Key]) -> None:
        """Watch these, and nothing else."""
        for key in keys - self._watches.keys():
            path, children = key
            watch = self._coordination.watch_children if children else self._coordination.watch_value
            self._watches[key] = watch(
                path,
                functools.partial(self._given, key),
                early=functools.partial(self._heard, key),
                until_gone=path.startswith(self._below),
            )
        for key in self._watches.keys() - keys:
            self._watches.pop(key).cancel()
            with self._lock:
                self._told.discard(key)
                for known in (self._present, self._last, self._words, self._looked):
                    known.pop(key, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self.follow(set())

    def forget(self) -> None:
        """What was read came to nothing: whatever the watches say next is news."""
        with self._lock:
            self._last.clear()

    def await_values(self, timeout: float, but: Collection[str] = ()) -> None:
        """Wait until all that is watched has been read since it changed. Not on the watches' own thread.

        Args:
            timeout: Seconds, at most.
            but: Values that need not be waited for.
        """
        keys = {k for k in self._watches if k[1] or k[0] not in but}
        with self._arrived:
            self._arrived.wait_for(lambda: keys <= self._told, timeout)

    def doubt(self, keys: Iterable[_Key]) -> None:
        """What is known of these does not go with what is known of others: it is asked for again."""
        with self._lock:
            for key in keys:
                self._present.pop(key, None)

    def words(self, key: _Key) -> int:
        """How many changes were heard of; -1 while what is known of it is not the present."""
        with self._lock:
            return self._words.get(key, 0) if key in self._present else -1

    def wrote(self, path: str, value: Versioned) -> None:
        """This session has written that: nothing new when a watch says so, too."""
        with self._lock:
            last = self._last.get((path, False))
            if last is None or last.version < value.version:
                self._last[path, False] = value
        self._notice()

    def look(
        self, values: Sequence[str], children: Sequence[str], own: Mapping[str, Versioned] | None = None
    ) -> Looked:
        """As `Coordination.look`, of which it asks only what it does not know.

        Args:
            own: Answers to take for what it would ask for.
        """
        keys: list[_Key] = [*((p, False) for p in values), *((p, True) for p in children)]
        for _ in range(_TRIES):
            with self._lock:
                known = {k: self._present[k] for k in keys if k in self._present}
                given = {p: v for p, v in (own or {}).items() if (p, False) not in known}
                words = {k: self._words.get(k, 0) for k in keys if k not in known}
            found = self._coordination.look(
                [p for p in values if (p, False) not in known and p not in given],
                [p for p in children if (p, True) not in known],
            )
            with self._lock:
                # By identity: what has changed before the answer came may be known anew by now. The old value would be older than what was
                # asked for: a committed move with the places from before it, and tuples would be sent to where a task has been.
                if any(k not in self._present or self._present[k] is not v for k, v in known.items()):
                    continue
                self._last.update({(path, False): value for path, value in found.values.items()})
                self._last.update({(path, True): names or () for path, names in found.children.items()})
                self._looked.update({k: heard for k, heard in words.items() if k[1]})
                # What is watched is the present again: of a change before that answer there would have been word.
                self._present.update(
                    {
                        k: self._last[k]
                        for k, heard in words.items()
                        if k in self._told and self._words.get(k, 0) == heard and k[0] not in given
                    }
                )
            return Looked(
                {
                    p: known[p, False] if (p, False) in known else (given.get(p) or found.values[p])
                    for p in values
                },
                {p: known[p, True] if (p, True) in known else found.children[p] for p in children},
            )
        raise Unavailable("coordination changes faster than it can be read")

    def _heard(self, key: _Key) -> None:
        # The value follows (`_given`): who is told only then does not ask for it a second time.
        with self._lock:
            self._told.discard(key)
            self._present.pop(key, None)
            self._words[key] = self._words.get(key, 0) + 1
        if key in self._early:
            self._early[key]()

    def _given(self, key: _Key, value: Any) -> None:
        with self._lock:
            news = key not in self._last or self._last[key] != value
            if key[1] and self._looked.get(key) != self._words.get(key, 0):
                news = True  # the same names may be other nodes: a worker that has begun anew while the server was away
            self._present[key] = self._last[key] = value
            self._told.add(key)
            self._arrived.notify_all()
        if news:
            self._notice()


class ViewReader:
    """Reads views, on a thread of its own whenever something changes, and on any thread that asks.

    Args:
        on_view: Given every view with the living workers, oldest first, one at a time.
        me: Whose marks are read of every move, also when the record does not name it any more: who was to restore a task, and was given
            up, has to say that nothing of the move is left there.
        begins: Called at the first word that tasks are to change their places, some milliseconds before a view says so. Must not block.
        generation: Workers of others do not live, as far as this one is concerned: what they do was given up, or is yet to begin.
    """

    def __init__(
        self,
        coordination: Coordination,
        topology: TopologyName,
        on_view: Callable[[View, tuple[WorkerInfo, ...]], None],
        me: Incarnation | None = None,
        begins: Callable[[], None] = lambda: None,
        generation: int = 0,
    ) -> None:
        self._generation = generation
        self._topology = topology
        self._me = me
        self._on_view = on_view
        self._reading = threading.Lock()
        self._number = 0
        self._last = EMPTY  # the newest view
        # The places change when it has been decided what is to move, and again at the end.
        early = dict.fromkeys([(paths.moves(topology), False), (paths.assignment(topology), False)], begins)
        self._mirror = Mirror(coordination, self._changed, paths.moves(topology), early)
        self._always: set[_Key] = {
            (paths.moves(topology), False),
            (paths.moves(topology), True),
            (paths.workers(topology), True),
            (paths.assignment(topology), False),
        }
        self._moves: dict[Epoch, tuple[Incarnation, ...]] = {}
        self._workers: tuple[str, ...] = ()
        self._known: dict[str, tuple[Versioned, Any]] = {}
        self._own: dict[str, Versioned] = {}  # the newest marks that this process has written
        self._infos: tuple[int, tuple[WorkerInfo, ...]] = (-1, ())
        self._notices: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._told = threading.Event()
        self._numbers = itertools.count(1)
        # Changes that were heard of; and of these those that the newest view shows, which was followed.
        self._news = self._seen = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="views", daemon=True)

    def start(self) -> None:
        """Begin to watch. The first view follows at once."""
        with self._reading:
            self._mirror.follow(self._always)
        self._thread.start()

    def close(self) -> None:
        """No view comes any more. Safe to call twice."""
        self._notices.put(False)
        with self._reading:
            self._closed = True
            self._mirror.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def read(self) -> None:
        """Read a view now, and hand it on before this returns.

        Raises:
            Unavailable: There is no connection.
        """
        self._hand_on(0.0)

    def _hand_on(self, wait: float) -> None:
        with self._reading:
            if not self._closed:
                self._number += 1
                view, infos, news = self._read(self._number, wait)
                view.follows(self._last)
                self._last = view
                self._on_view(view, infos)
                self._seen = news

    def wrote(self, path: str, value: Versioned) -> None:
        """Own marks were written, and that was answered: a view follows without another question. From any thread."""
        self._own[path] = value
        self._mirror.wrote(path, value)

    def _changed(self) -> None:
        self._news = next(self._numbers)
        if not self._told.is_set():  # one notice covers everything that changes before it is read
            self._told.set()
            self._notices.put(True)

    def _run(self) -> None:
        pause = 0.0  # until it is looked again although nothing is heard: after what came to nothing
        while True:
            with suppress(queue.Empty):
                if not take(self._notices, pause or None):
                    return
            self._told.clear()
            if self._news == self._seen and not pause:
                continue  # it came while the view before was being read, and is in that
            try:
                self._hand_on(_ON_THEIR_WAY)
                pause = 0.0
                continue
            except Unavailable as e:
                # Every watch fires when the connection is back. But it may also be that all changed faster than it could be read.
                log.log(logging.DEBUG if pause else logging.INFO, "moves cannot be followed now: %s", e)
            except Exception:  # one view that cannot be followed must not be the last
                log.exception("a view could not be followed")
            self._mirror.forget()
            self._seen = 0
            pause = min(_LONGEST, 2 * pause) or _PAUSE

    def _read(self, number: int, wait: float) -> tuple[View, tuple[WorkerInfo, ...], int]:
        """Reads what has changed, as long as the same moves, participants and workers are there as in the view before; else again.

        Args:
            wait: Seconds that it waits each time for what watches read at that moment, at most.
        """
        name = self._topology
        latest, placed, workers = paths.moves(name), paths.assignment(name), paths.workers(name)
        own_known = True
        for _ in range(_TRIES):
            if wait:
                self._mirror.await_values(wait, self._own if own_known else ())
            news = self._news  # first: what is heard of from here on may be in this view, or not
            written = dict(self._own) if own_known else {}
            moves, lives = self._moves, self._workers
            marks, own = _marks(name, moves), self._left(moves)
            words, (known, infos) = self._mirror.words((workers, True)), self._infos
            fresh = words < 0 or words != known
            # In the order that a view asks for; the names of the children come last and say whether that was all.
            found = self._mirror.look(
                [
                    latest,
                    *(paths.move(name, e) for e in moves),
                    *marks,
                    *own.values(),
                    placed,
                    *(f"{workers}/{w}" for w in lives if fresh),
                ],
                [latest, workers],
                written,
            )
            values = found.values
            if written and any(self._is_new(paths.move(name, e), values) for e in moves):
                # Marks must not be older than the record: what Nimbus has written may have come after what this process wrote.
                own_known = False
                continue
            epochs = tuple(Epoch(int(leaf)) for leaf in found.children[latest] or ())
            records = {}
            for epoch in moves:
                value = values[paths.move(name, epoch)]
                if value is not None:
                    records[epoch] = self._decoded(paths.move(name, epoch), value, _record)
            participants = {e: records[e].participants if e in records else () for e in epochs}
            here = found.children[workers] or ()
            gone = any(e not in records for e in moves) or not all(values[at] for at in marks)
            complete = participants == moves and here == lives and not gone
            self._moves, self._workers = participants, here
            self._known = {p: k for p, k in self._known.items() if p in values}
            for path, mine in list(self._own.items()):
                value = values.get(path)
                if value is None or value.version > mine.version:
                    self._own.pop(path, None)  # it must never be taken for the present one again
            # Those of moves that this has just heard of as well: they are read once then, by what watches them.
            self._mirror.follow(
                self._always
                | {(paths.move(name, e), False) for e in epochs}
                | {(m, False) for m in (*_marks(name, participants), *self._left(participants).values())}
            )
            if gone:
                # That a move is removed is heard of each of its nodes for itself, of some of them sooner than of others.
                self._mirror.doubt([(latest, True), *((paths.move(name, e), False) for e in moves)])
            if not complete:
                continue
            if fresh:
                found_infos = [
                    codec.decode(v.data, WorkerInfo) for w in lives if (v := values[f"{workers}/{w}"])
                ]
                infos = tuple(i for i in found_infos if i.generation == self._generation)
                if self._mirror.words((workers, True)) == words >= 0:
                    self._infos = (words, infos)
            views = [
                MoveView(
                    records[e],
                    {
                        i: self._marked(values, at)
                        for i in (*parts, *((self._me,) if self._me is not None and e in own else ()))
                        if values[at := paths.move_marks(name, e, i)]
                    },
                )
                for e, parts in moves.items()
            ]
            value, newest = values[placed], values[latest]
            view = View(
                number,
                int(newest.data or b"0") if newest is not None else 0,
                tuple(views),
                self._decoded(placed, value, _places) if value is not None else {},
                {i.worker: i.incarnation for i in infos},
            )
            return view, infos, news
        raise Unavailable("moves begin and end faster than they can be read")

    def _left(self, moves: Mapping[Epoch, tuple[Incarnation, ...]]) -> dict[Epoch, str]:
        """Where this process may have marks of moves of which it is no participant any more."""
        if self._me is None:
            return {}
        return {
            e: paths.move_marks(self._topology, e, self._me)
            for e, parts in moves.items()
            if self._me not in parts
        }

    def _is_new(self, path: str, values: Mapping[str, Versioned | None]) -> bool:
        known = self._known.get(path)
        return known is None or known[0] != values[path]

    def _decoded(self, path: str, value: Versioned, decode: Callable[[bytes], T]) -> T:
        """Decoded once: a record of a thousand tasks is read again with each mark of one of them."""
        known = self._known.get(path)
        if known is not None and known[0] == value:
            found: T = known[1]
            return found
        made = decode(value.data)
        self._known[path] = (value, made)
        return made

    def _marked(self, values: Mapping[str, Versioned | None], path: str) -> Marked:
        value = values[path]
        assert value is not None
        return Marked(self._decoded(path, value, decode_marks), value.version)


def _marks(topology: TopologyName, moves: Mapping[Epoch, tuple[Incarnation, ...]]) -> list[str]:
    """Where the participants of moves have theirs."""
    return [paths.move_marks(topology, e, i) for e, parts in moves.items() for i in parts]


def _record(data: bytes) -> MoveRecord:
    return codec.decode(data, MoveRecord)


def _places(data: bytes) -> dict[int, WorkerId]:
    return dict(codec.decode(data, Assignment).place_of().items())
