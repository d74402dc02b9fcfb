"""What a worker process reads and writes in coordination for moves: views of everything, and its own marks.

A view is read in the order that `elastic.migration.view` asks for, each time anew: watches only say that it is time to. Writes of marks
have a thread of their own, so that one does not wait for a view that is being read.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from elastic.coordination import paths
from elastic.coordination.base import Coordination, SessionState, Versioned, Watch
from elastic.errors import Conflict, ElasticError, NotFound, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.record import Marked, MoveRecord, decode_marks, encode_marks
from elastic.migration.view import MoveView, View
from elastic.model import codec
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, Incarnation, TopologyName
from elastic.model.records import WorkerInfo

log = logging.getLogger("elastic.worker")

_TRIES = 20
"""Times that a view is read anew because a move ended while it was being read."""


class ViewReader:
    """Reads views, on a thread of its own whenever something changes, and on any thread that asks.

    Args:
        on_view: Given every view with the living workers, oldest first, one at a time.
    """

    def __init__(
        self,
        coordination: Coordination,
        topology: TopologyName,
        on_view: Callable[[View, tuple[WorkerInfo, ...]], None],
    ) -> None:
        self._coordination = coordination
        self._topology = topology
        self._on_view = on_view
        self._reading = threading.Lock()
        self._number = 0
        self._watches: dict[str, Watch] = {}
        self._known_moves: dict[Epoch, tuple[Incarnation, ...]] = {}
        self._known_workers: tuple[str, ...] = ()
        self._notices: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._run, name="views", daemon=True)

    def start(self) -> None:
        """Begin to watch. The first view follows at once."""
        name, watch = self._topology, self._coordination
        self._watches = {
            "moves": watch.watch_children(paths.moves(name), self._changed, early=self._notice),
            "workers": watch.watch_children(paths.workers(name), self._changed, early=self._notice),
            "assignment": watch.watch_value(paths.assignment(name), self._changed, early=self._notice),
        }
        self._thread.start()

    def close(self) -> None:
        """No view comes any more. Safe to call twice."""
        self._notices.put(False)
        with self._reading:
            for watch in self._watches.values():
                watch.cancel()
            self._watches.clear()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def read(self) -> None:
        """Read a view now, and hand it on before this returns.

        Raises:
            Unavailable: There is no connection.
        """
        with self._reading:
            self._number += 1
            self._on_view(*self._read(self._number))

    def _changed(self, _: object) -> None:
        self._notice()

    def _notice(self) -> None:
        if not self._told.is_set():  # one notice covers everything that changes before it is read
            self._told.set()
            self._notices.put(True)

    def _run(self) -> None:
        while self._notices.get():
            self._told.clear()
            try:
                self.read()
            except Unavailable as e:
                log.info(
                    "moves cannot be followed now: %s", e
                )  # every watch fires when the connection is back
            except ElasticError:
                log.exception("a view could not be followed")

    def _read(self, number: int) -> tuple[View, tuple[WorkerInfo, ...]]:
        """One exchange, as long as the same moves, participants and workers are there as in the view before; else another one."""
        name = self._topology
        latest, placed, workers = paths.moves(name), paths.assignment(name), paths.workers(name)
        for _ in range(_TRIES):
            moves, lives = self._known_moves, self._known_workers
            marks = [paths.move_marks(name, e, i) for e, parts in moves.items() for i in parts]
            # In the order that a view asks for; the names of the children come last and say whether that was all.
            found = self._coordination.look(
                [
                    latest,
                    *(paths.move(name, e) for e in moves),
                    *marks,
                    placed,
                    *(f"{workers}/{w}" for w in lives),
                ],
                [latest, workers],
            )
            values = found.values
            epochs = tuple(Epoch(int(leaf)) for leaf in found.children[latest] or ())
            records = {}
            for epoch in moves:
                value = values[paths.move(name, epoch)]
                if value is not None:
                    records[epoch] = codec.decode(value.data, MoveRecord)
            participants = {e: records[e].participants() if e in records else () for e in epochs}
            here = found.children[workers] or ()
            complete = participants == moves and here == lives and all(values[at] for at in marks)
            self._known_moves, self._known_workers = participants, here
            self._follow({paths.move(name, e) for e in epochs} | set(marks))
            if not complete:
                continue
            views = [
                MoveView(records[e], {i: _marked(values[paths.move_marks(name, e, i)]) for i in parts})
                for e, parts in moves.items()
            ]
            infos = [codec.decode(v.data, WorkerInfo) for w in lives if (v := values[f"{workers}/{w}"])]
            value, newest = values[placed], values[latest]
            view = View(
                number,
                int(newest.data or b"0") if newest is not None else 0,
                tuple(views),
                dict(codec.decode(value.data, Assignment).place_of()) if value is not None else {},
                {i.worker: i.incarnation for i in infos},
            )
            return view, tuple(infos)
        raise Unavailable("moves begin and end faster than they can be read")

    def _follow(self, wanted: set[str]) -> None:
        """Watch these, beside what is always watched."""
        for path in wanted - self._watches.keys():
            self._watches[path] = self._coordination.watch_value(path, self._changed, early=self._notice)
        for path in [p for p in self._watches if p.startswith("/") and p not in wanted]:
            self._watches.pop(path).cancel()


def _marked(value: Versioned | None) -> Marked:
    assert value is not None
    return Marked(decode_marks(value.data), value.version)


class MarksWriter:
    """The port `elastic.migration.ports.OwnMarks`.

    Args:
        before: Called before each write: what has to be written down first.
        feed: Takes the events that follow.
    """

    def __init__(
        self,
        coordination: Coordination,
        topology: TopologyName,
        me: Incarnation,
        before: Callable[[], None],
        feed: Callable[[ev.MarksRead], None],
    ) -> None:
        self._coordination = coordination
        self._topology = topology
        self._me = me
        self._before = before
        self._feed = feed
        self._orders: queue.SimpleQueue[ac.WriteMarks | int | None] = queue.SimpleQueue()
        self._unknown: set[int] = set()  # moves of which a write's fate is not known
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)
        self._watch: Watch | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._watch = self._coordination.watch_session(self._on_session)

    def close(self) -> None:
        """Write no more. Safe to call twice."""
        if self._watch is not None:
            self._watch.cancel()
        self._orders.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def write(self, action: ac.WriteMarks) -> None:
        """See the port."""
        self._orders.put(action)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            for epoch in list(self._unknown):
                self._orders.put(epoch)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            epoch = order if isinstance(order, int) else order.epoch
            try:
                if isinstance(order, int):
                    if epoch not in self._unknown:
                        continue
                    marked = self._read(epoch)
                else:
                    marked = self._write(order)
            except Unavailable as e:
                log.info("marks of move %d cannot be written now: %s", epoch, e)
                self._unknown.add(epoch)
                # If the connection came back before that was noted, nobody else says so.
                with suppress(ElasticError):
                    self._coordination.get(paths.moves(self._topology))
                    self._orders.put(epoch)
                continue
            except ElasticError:
                log.exception("marks of move %d cannot be written", epoch)
                continue
            self._unknown.discard(epoch)
            self._feed(ev.MarksRead(epoch, marked))

    def _write(self, action: ac.WriteMarks) -> Marked | None:
        self._before()
        path = paths.move_marks(self._topology, Epoch(action.epoch), self._me)
        try:
            version = self._coordination.set(path, encode_marks(action.marks), version=action.version)
        except (Conflict, NotFound):
            return self._read(action.epoch)
        return Marked(action.marks, version)

    def _read(self, epoch: int) -> Marked | None:
        path = paths.move_marks(self._topology, Epoch(epoch), self._me)
        found: Versioned | None = self._coordination.get(path)
        return Marked(decode_marks(found.data), found.version) if found is not None else None
