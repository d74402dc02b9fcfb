"""A task's outputs: a buffer for each target task, and how what is in it is handed on.

The order of emission from this task to each target is kept across all of its streams: they share the target's buffer. Who appends to
it is `elastic.worker.emitting.calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any

from elastic.errors import ExecutionError
from elastic.migration.emitter import Emitter as LinkEnd
from elastic.migration.table import EmitterState
from elastic.model.ids import Incarnation
from elastic.model.topology import ComponentSpec
from elastic.transport.base import Link
from elastic.worker.emitting.calls import Calls
from elastic.worker.emitting.crossing import ASK, FULL, TAKEN, Crossing, Out, Subscription
from elastic.worker.emitting.destination import Destination, Emitter, TaskReleased
from elastic.worker.emitting.routes import LocalFirst
from elastic.worker.emitting.stack import need_stack
from elastic.worker.tuples import wire
from elastic.worker.tuples.batch import Batch, Item, Mark, Stream, Streams
from elastic.worker.tuples.joining import joined

FLOWING = EmitterState.FLOWING
ANSWERS = 32
"""So often all is handed on once more that a task hook has emitted when it was told of what was."""
LEFT = 8
"""So many full buffers may wait for the way back from the end of the stack or, if a thread of the user's own emits, for the executor."""
_NOBODYS: AbstractContextManager[object] = nullcontext()
"""The turn where no executor runs the task."""
WITHIN = 8
"""So many waits for room may be within each other. With thousands of targets of which none has room each would begin the next one."""


class Outputs:
    """All outputs of one task.

    Args:
        task: The emitting task's number.
        subscriptions: Who gets what, by stream.
        destination: Gives the way to a target task.
        batch_rows: How many tuples are handed on together at most.
        crossing: The rest of the way.
        on_emit: Told the stream and number of each batch that leaves, or None.
        on_unsendable: Told of a tuple that cannot be sent to another process; it is left out. Without it, the error is raised.

    Attributes:
        outs: What it has for each of its targets.
        me: This worker process.
        calls: What its component calls.
        limit: Tuples that make a buffer full.
        local_first: Who chooses by which targets are in this worker.
        gate: Held while something is put on a link: what a move asks of the link comes before it or after it.
    """

    def __init__(
        self,
        task: int,
        component: ComponentSpec,
        streams: Streams,
        subscriptions: dict[Stream, list[Subscription]],
        destination: Callable[[int], Destination],
        batch_rows: int,
        crossing: Crossing,
        on_emit: Callable[[str, int], None] | None = None,
        on_unsendable: Callable[[ExecutionError, Any], None] | None = None,
    ) -> None:
        self.task = task
        self.component = component
        self.emitter: Emitter | None = None
        self._turn = _NOBODYS
        self.emitted = 0
        self.unrouted = 0
        self._on_emit = on_emit
        self._crossing = crossing
        self.me = crossing.me
        self.gate = threading.RLock()
        self._released = False
        self._waits = 0  # for room, within each other
        self._beside = False  # something is handed on by another thread than the executor's
        self._untold: dict[str, int] = {}  # what was, by stream: hooks are called by the executor
        self.on_unsendable = on_unsendable or _raise
        self._streams = streams
        targets = sorted({t for subs in subscriptions.values() for s in subs for t in s.targets})
        self.outs: dict[int, Out] = {t: Out(destination(t)) for t in targets}
        self._list = list(self.outs.values())
        # All buffers together stay small enough to be in the processor's cache when they are handed on.
        self.limit = max(1, min(batch_rows, max(32, 4 * batch_rows // max(1, len(targets)))))
        self._rows = [o.rows for o in self._list]
        self._by_rows = {id(o.rows): o for o in self._list}
        for consumer in {s.consumer.id for subs in subscriptions.values() for s in subs}:
            here = [s for subs in subscriptions.values() for s in subs if s.consumer.id == consumer]
            if len({s.spec.stream for s in here}) > 1:
                for t in here[0].targets:
                    self.outs[t].mixed = True
        self.local_first: list[LocalFirst] = []
        self.calls = Calls(self, subscriptions)

    def give_to(self, emitter: Emitter | None) -> None:
        """That executor runs the task from now on; None: nobody does."""
        self.emitter, self._turn = emitter, emitter.turn if emitter is not None else _NOBODYS

    # ------------------------------------------------------------------ sending

    def full(self, rows: list[Any]) -> None:
        """Hand on as much of the buffer that `rows` is as makes a full one.

        What is more, as many tuples were emitted at once, goes with the next ones: their task does not stand still for twice as many while
        there is no room. Nothing, where user code has hardly any stack left, nor on a thread of its own: two that hand on at once would
        turn the order round. It goes with the next ones, too.

        Raises:
            RecursionError: So much of it waits already.
            ExecutionError: The same, on another thread.
        """
        try:
            need_stack()
        except RecursionError:
            if len(rows) < LEFT * self.limit:
                return
            raise
        if self.on_another_thread():
            if len(rows) < LEFT * self.limit:
                return
            raise self.not_its_thread()
        with self._turn:
            if self._untold:
                self._tell_untold()
            self._flush(self._by_rows[id(rows)], self.limit)

    def send_parts(self, stream: Stream, parts: Iterable[tuple[int, Any]]) -> None:
        """Send parts of a record batch, each to a task, behind what was emitted to it before."""
        with self._turn:
            for target, part in parts:
                out = self.outs[target]
                if out.rows:
                    self._flush(out)
                self._send(out, stream, part.num_rows, None, part)

    def on_another_thread(self) -> bool:
        """Whether somebody else than the executor that runs the task emits."""
        emitter = self.emitter
        return (
            emitter is not None
            and emitter.thread.ident != threading.get_ident()
            and self._list[0].link is not None  # set_state(), and what is over, is answered elsewhere
        )

    def not_its_thread(self) -> ExecutionError:
        """What is wrong with that."""
        return ExecutionError(
            f"Task {self.task} of {str(self.component.id)!r} emits on thread {threading.current_thread().name!r}, which is not the one "
            "that runs the task.",
            remedy="Let that thread put what it has into a queue.Queue, and emit it in next_tuple(), execute() or tick().",
        )

    def pending(self) -> bool:
        """Whether something waits to be handed on."""
        return any(self._rows)

    def waiting(self) -> int:
        """How many tuples wait to be handed on."""
        return sum(map(len, self._rows))

    def flush(self) -> None:
        """Hand on everything."""
        with self._turn:
            if self._untold:
                self._tell_untold()
            for out in self._list:
                if out.rows:
                    self._flush(out)

    def flush_beside(self) -> None:
        """Hand on what needs no waiting, on another thread than the executor's, which is in a call into user code. With its turn."""
        self._beside = True
        try:
            for out in self._list:
                if out.rows and not out.handing:
                    self._offer(out)
        finally:
            self._beside = False

    def flush_all(self) -> None:
        """Hand on everything, and what a hook that is told of it emits meanwhile. Not for ever, if that one answers itself."""
        for _ in range(ANSWERS):
            self.flush()
            if self._on_emit is None or not self.pending():
                return

    def stream_of(self, kind: type) -> Stream:
        """The stream of tuples of that class."""
        return self._streams.by_kind[kind]

    def way(self, where: Incarnation) -> Link | None:
        """To another worker."""
        return self._crossing.link(where)

    def starving(self) -> bool:
        """Whether something waits for an executor with nothing to do."""
        return any(True for _ in self._starving())

    def flush_starving(self) -> None:
        """Hand on what is for executors with nothing to do.

        One that is at another of its tasks would not come to it yet: what waits for it here meanwhile goes along as one batch.
        """
        for out in self._starving():
            self._flush(out)

    def _starving(self) -> Iterator[Out]:
        return (o for o in self._list if o.rows and o.destination.starves(self.emitter))

    def flush_besides(self, full: Out) -> None:
        """Hand on what is for others, as far as there is room for it: whoever waits for room there may do so for long.

        Not to whom something is being handed on already, further out: what is in the buffer was emitted after that.
        """
        self._waits += 1
        try:
            for out in self._list:
                if out is not full and out.rows and not out.handing:
                    if self._waits <= WITHIN and out.destination.hungry():
                        self._flush(out)
                    else:
                        self._offer(out)
        finally:
            self._waits -= 1

    def _offer(self, out: Out) -> None:
        """Hand on a buffer, or as many of its first tuples as that needs no waiting for, nor anybody who knows of moves."""
        if out.mixed and not self._beside:
            return  # a hook that is told of some may emit more, which would come before the others
        rows = out.rows[:]
        del out.rows[: len(rows)]  # first: a hook that is told of them may emit more, which may make it full
        while rows:
            run = list(next(groupby(rows, type))[1]) if out.mixed else rows
            stream = self._streams.by_kind[type(rows[0])]
            if not (self._here_at_once(out, stream, run) or self._at_once(out, stream, run)):
                out.rows[:0] = rows
                return
            rows = rows[len(run) :]

    def mark(self, mark: Mark, targets: Iterable[int] | None = None) -> None:
        """Send a mark to all targets (or these), after everything that was emitted to them."""
        assert self.emitter is not None
        if self._on_emit is not None:
            self.flush_all()  # what is emitted while one target is served may be for one that has had the mark
        with self._turn:
            for out in self._list if targets is None else [self.outs[t] for t in targets if t in self.outs]:
                if out.rows:
                    self._flush(out)
                self._put(out, mark)

    def attach(self, links: Mapping[int, LinkEnd]) -> None:
        """The task is where it is to run: these are its ends of the links to its targets."""
        for target, link in links.items():
            out = self.outs[target]
            out.link = link
            out.destination.signal()

    def release(self) -> None:
        """The task runs elsewhere: what is emitted here from now on goes nowhere."""
        with self.gate:
            self._released = True
            for out in self._list:
                out.link = None
        for out in self._list:
            out.rows.clear()
            out.destination.signal()

    def _flush(self, out: Out, most: int | None = None) -> None:
        rows = out.rows[:most]
        if not rows:
            return  # the task has just been taken away, and they with it
        del out.rows[: len(rows)]
        kinds = self._streams.by_kind
        if not out.mixed:
            stream = kinds[type(rows[0])]
            if self._here_at_once(out, stream, rows) or self._at_once(out, stream, rows):
                return
            runs = [(stream, rows)]
        else:
            runs = [(kinds[kind], list(run)) for kind, run in groupby(rows, type)]
        out.handing += 1
        try:
            for stream, run in runs:
                self._send(out, stream, len(run), run, None)
        finally:
            out.handing -= 1

    def _at_once(self, out: Out, stream: Stream, rows: list[Any]) -> bool:
        """The usual case of `_send`, in a third of the steps: plain tuples for another worker, over a link that flows and has room. With a
        hundred targets batches are a few tuples each, and what is done for each batch is most of the work. False: nothing was handed on.
        """
        link, emitter = out.link, self.emitter
        if link is None or emitter is None or link.state is not FLOWING or link.where == self.me:
            return False
        body = wire.packed(stream, rows)
        if body is None:
            return False
        count = len(rows)
        with self.gate:
            if link.state is not FLOWING or link.where == self.me or out.link is not link:
                return False
            way = self._crossing.link(link.where)
            if way is None:
                return False
            head = wire.head(stream, self.task, count, link.life, link.sent + 1)
            if not way.offer(out.destination.task, (head, body), rows=count):
                return False
            link.left(count)
        emitter.written(way)
        self.count(out, stream, count, len(body))
        return True

    def _here_at_once(self, out: Out, stream: Stream, rows: list[Any]) -> bool:
        """The same for a task of this worker. False: nothing was handed on."""
        if out.destination.local is None:
            return False
        count = len(rows)
        with self.gate:
            link, local = out.link, out.destination.local
            if link is None or local is None or link.state is not FLOWING or link.where != self.me:
                return False
            if local.offer(Batch(stream, self.task, count, rows), link.life, link.sent + 1) != TAKEN:
                return False
            link.left(count)
        self.count(out, stream, count)
        return True

    def count(self, out: Out, stream: Stream, count: int, size: int = 0) -> None:
        """So many tuples have been handed on; bytes are those that have left this process."""
        self.emitted += count
        out.tuples += count
        out.bytes += size
        if self._on_emit is None:
            return
        if self._beside:
            name = str(stream.spec.id)
            self._untold[name] = self._untold.get(name, 0) + count
        else:
            self._on_emit(str(stream.spec.id), count)

    def _tell_untold(self) -> None:
        while self._untold and self._on_emit is not None:
            self._on_emit(*self._untold.popitem())

    def _send(self, out: Out, stream: Stream, count: int, rows: list[Any] | None, record: Any) -> None:
        batch = Batch(stream, self.task, count, rows, record)
        try:
            self._put(out, batch)
        except ExecutionError as e:
            if out.link is None:
                raise  # not because of what it is
            # Nothing of the batch was sent. One tuple that cannot be sent must not cost those around it.
            if count == 1:
                self.on_unsendable(e, rows[0] if rows else record)
                return
            half = count // 2
            for start, stop in ((0, half), (half, count)):
                some = None if rows is None else rows[start:stop]
                part = None if record is None else record.slice(start, stop - start)
                self._send(out, stream, stop - start, some, part)
            return
        self.count(out, stream, count)

    def _put(self, out: Out, item: Item) -> None:
        """Put something on its link; waits while there is no room or no way (back-pressure).

        A position is given to what the other side has taken, or what is held back here, never to what waits: nothing that
        counts as sent can be stuck in front of a task that stands still.

        Raises:
            ExecutorStopped: The executor has to end; `TaskReleased`: the task has.
            ExecutionError: It cannot be sent to another process (`TupleTooLarge`, unpicklable); or the task does not run here yet.
        """
        crossing, me, destination, emitter = self._crossing, self.me, out.destination, self.emitter
        assert emitter is not None
        frames: list[wire.Frame] | None = None
        blocked = False
        try:
            while True:
                sequence = destination.sequence
                link, done = out.link, FULL
                if link is not None:
                    if frames is None and (link.where != me or link.state is not FLOWING):
                        frames = wire.encode(item)  # what is kept cannot fail to be sent later
                    with self.gate:
                        if link.state is FLOWING:
                            if link.where == me:
                                done = self._put_here(out, link, item, frames)
                            elif frames is not None:
                                done = self._put_there(out, link, frames, emitter)
                            else:
                                continue  # it led elsewhere a moment ago
                        elif frames is not None:
                            done = self._keep(link, frames)
                        else:
                            continue  # it has just been stopped
                    if done:
                        if done is ASK:
                            crossing.work()
                        return
                elif self._released:
                    raise TaskReleased  # before all else that is for others, and has no link either
                else:  # others may come to wait for whoever waited here, and it might never run
                    raise ExecutionError(
                        f"Task {self.task} of {str(self.component.id)!r} has emitted more than can wait until it runs here "
                        f"({self.limit} tuples for each target task, no record batches).",
                        remedy="Emit less in prepare() and set_state(), or later.",
                    )
                if not blocked:
                    self.flush_besides(out)  # what is for others need not wait along
                    # First: whoever wants it to attend to something signals there.
                    emitter.begin_blocked(destination)
                    blocked = True
                emitter.flush_links()
                emitter.attend()
                if self._released:
                    raise TaskReleased
                destination.wait(sequence)
        finally:
            if blocked:
                emitter.end_blocked()

    def _keep(self, link: LinkEnd, frames: list[wire.Frame]) -> int:
        while frames:
            part, size = frames[0].item(self._streams), sum(map(len, frames[0].body))
            if not link.kept(part, part.weight, joined, size):
                return FULL
            frames.pop(0)
        return TAKEN

    def _put_here(self, out: Out, link: LinkEnd, item: Item, frames: list[wire.Frame] | None) -> int:
        local = out.destination.local
        if local is None:
            return FULL  # it is to start here and has not: its emitters wait for that as they wait for room
        if frames:  # it was to go elsewhere, and some of it may have
            while frames:
                part = frames.pop(0).item(self._streams)
                self._crossing.arrived(out.destination.task, link.life, link.left(part.weight), part)
            return ASK
        answer = local.offer(item, link.life, link.sent + 1)
        if answer == TAKEN:
            link.left(item.weight)
        elif answer == ASK:
            if not local.keeps_up(link):
                return FULL
            self._crossing.arrived(out.destination.task, link.life, link.left(item.weight), item)
        return answer

    def _put_there(self, out: Out, link: LinkEnd, frames: list[wire.Frame], emitter: Emitter) -> int:
        way = self._crossing.link(link.where)
        if way is None:
            return FULL
        while frames:
            frame = frames[0]
            if not way.offer(out.destination.task, frame.at(link.life, link.sent + 1), rows=frame.rows):
                return FULL
            link.left(frame.weight)
            out.bytes += sum(map(len, frame.body))
            emitter.written(way)
            frames.pop(0)
        return TAKEN

    def refresh(self) -> None:
        """Which targets are in this worker has changed."""
        for chooser in self.local_first:
            chooser.refresh()


def _raise(error: ExecutionError, row: Any) -> None:
    raise error
