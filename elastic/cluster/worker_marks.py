"""What a worker process writes in coordination for moves: its own marks.

Whoever has something to say begins to write it, and goes on with what follows when the answer is here, on the thread that reads it: each
thread that has to be woken beside busy executors takes a millisecond or several of a pause. What may have to wait, because something
else comes before it, or because it did not go well, is for a thread of its own: no mark waits for a view that is being read.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable

from elastic.coordination import paths
from elastic.coordination.base import Coordination, SessionState, Versioned, Watch
from elastic.errors import Conflict, ElasticError, NotFound, Refused, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.record import Marked, Marks, decode_marks, encode_marks
from elastic.model.ids import Epoch, Incarnation, TopologyName
from elastic.queues import take

log = logging.getLogger("elastic.worker")
_PAUSE = 1.0
"""Seconds until marks are written again after an error that nothing tells the end of."""


class MarksWriter:
    """The port `elastic.migration.ports.OwnMarks`.

    Args:
        before: Called before each write, with what is to be written: something else may have to be written down first.
        free: Whether `before` would do nothing with that. Must not wait.
        feed: Takes the events that follow.
        wrote: Told of what was written.
    """

    def __init__(
        self,
        coordination: Coordination,
        topology: TopologyName,
        me: Incarnation,
        before: Callable[[Marks], None],
        feed: Callable[[ev.MarksRead], None],
        wrote: Callable[[str, Versioned], None],
        free: Callable[[Marks], bool] = lambda marks: False,
    ) -> None:
        self._coordination = coordination
        self._topology = topology
        self._me = me
        self._wrote = wrote
        self._before = before
        self._free = free
        self._feed = feed
        self._closed = False
        self._orders: queue.SimpleQueue[ac.WriteMarks | int | None] = queue.SimpleQueue()
        self._unknown: set[int] = set()  # moves of which a write's fate is not known
        self._again_at = 0.0  # when they are asked for although nothing says that it may go now; 0.0: never
        self._thread = threading.Thread(target=self._run, name="marks", daemon=True)
        self._watch: Watch | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()
        self._watch = self._coordination.watch_session(self._on_session)

    def close(self) -> None:
        """Write no more. Safe to call twice."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        self._orders.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def write(self, action: ac.WriteMarks) -> None:
        """See the port."""
        if not self._begin(action):
            self._orders.put(action)

    def _begin(self, action: ac.WriteMarks) -> bool:
        """Whether it is being written, and nobody waits for that."""
        try:
            if self._closed or not self._free(action.marks):
                return False
            path, data = self._encoded(action, action.marks)
            self._coordination.begin_set(
                path,
                data,
                version=action.version,
                then=functools.partial(self._answered, action, path, data),
            )
        except Exception:  # noqa: BLE001 - the other way may wait for a connection, or says what is wrong
            return False
        return True

    def _answered(self, action: ac.WriteMarks, path: str, data: bytes, answer: Callable[[], int]) -> None:
        try:
            version = answer()
        except Exception as e:  # noqa: BLE001 - whatever it is, what is there is read by the thread
            log.info("marks of move %d were not written at once: %s", action.epoch, e)
            self._unknown.add(action.epoch)
            self._orders.put(action.epoch)
            return
        self._wrote(path, Versioned(data, version))
        self._feed(ev.MarksRead(action.epoch, Marked(action.marks, version)))

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            for epoch in list(self._unknown):
                self._orders.put(epoch)

    def _run(self) -> None:
        while (order := self._next()) is not None:
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
                try:
                    self._coordination.get(paths.moves(self._topology))
                    self._orders.put(epoch)
                except ElasticError:  # nor whether it has broken at all
                    self._again_at = self._again_at or time.monotonic() + _PAUSE
                continue
            except Exception:
                # Nobody writes more marks of the move before it is known what became of these.
                log.exception("marks of move %d cannot be written", epoch)
                self._unknown.add(epoch)
                self._again_at = self._again_at or time.monotonic() + _PAUSE
                continue
            self._unknown.discard(epoch)
            self._feed(ev.MarksRead(epoch, marked))

    def _next(self) -> ac.WriteMarks | int | None:
        while True:
            wait = max(0.0, self._again_at - time.monotonic()) if self._again_at else None
            try:
                return take(self._orders, wait)
            except queue.Empty:
                self._again_at = 0.0
                for epoch in list(self._unknown):
                    self._orders.put(epoch)

    def _write(self, action: ac.WriteMarks) -> Marked | None:
        self._before(action.marks)
        try:
            return self._set(action, action.marks)
        except Refused:  # thousands of tasks, and user code that fails in all of them
            return self._set(action, action.marks.brief())

    def _set(self, action: ac.WriteMarks, marks: Marks) -> Marked | None:
        path, data = self._encoded(action, marks)
        try:
            version = self._coordination.set(path, data, version=action.version)
        except (Conflict, NotFound):
            return self._read(action.epoch)
        self._wrote(path, Versioned(data, version))
        return Marked(marks, version)

    def _encoded(self, action: ac.WriteMarks, marks: Marks) -> tuple[str, bytes]:
        return paths.move_marks(self._topology, Epoch(action.epoch), self._me), encode_marks(marks)

    def _read(self, epoch: int) -> Marked | None:
        path = paths.move_marks(self._topology, Epoch(epoch), self._me)
        found: Versioned | None = self._coordination.get(path)
        return Marked(decode_marks(found.data), found.version) if found is not None else None
