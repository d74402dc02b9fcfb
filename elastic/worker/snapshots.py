"""Snapshots of this worker's tasks for the topology's checkpoints: taken between two tuples, on their way into the nodes' stores.

A state is encoded on its task's executor, and is bytes when that goes on; what waits for stores is for threads of this module. (Carbone et
al., Lightweight Asynchronous Snapshots for Distributed Dataflows, 2015, section 4.)
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from elastic import timeslice
from elastic.api.components import Component, overrides
from elastic.api.settings import setting
from elastic.errors import Superseded, Unavailable
from elastic.migration.snapshot import TaskLinks
from elastic.model.checkpoints import COPIES, Checkpoints, Stored, Taken, merged, number_of, snapshot_key
from elastic.model.events import Severity
from elastic.model.ids import Incarnation, NodeId, WorkerId, node_of
from elastic.worker.content import Arrival, Copier
from elastic.worker.content.engine import EngineState, decode_engine, encode_engine
from elastic.worker.copying_ahead import CopiedAhead
from elastic.worker.moving.going import begins_anew
from elastic.worker.moving.stores import GROWN, LOT, SMALL, Nodes, SmallState, StateStores, StoredState
from elastic.worker.moving.together import Together
from elastic.worker.pools import have_done
from elastic.worker.shown import why

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
THREADS = 2
_NOTHING = TaskLinks(0)
"""A task that goes back has new links."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    task: int
    ticket: int
    state: SmallState


class Snapshots:
    """See the module.

    Args:
        said: Called when `taken` has changed.
    """

    def __init__(self, worker: Worker, stores: StateStores, said: Callable[[], None]) -> None:
        self._worker = worker
        self._stores = stores
        self._said = said
        self._copies: int = setting(COPIES, worker.spec.config)
        self._lock = threading.Lock()
        self._id = ""
        self._wanted = self._given_up = self._complete = 0
        self._taken: Taken | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._copying = 0  # the ticket of the checkpoint that states are copied ahead for
        self._left: set[int] = set()  # tasks that are being
        self._ahead: dict[int, CopiedAhead] = {}
        self._small: Together[Nodes, _Snapshot] = Together(self._submit, self._save_many, LOT)

    @property
    def wanted(self) -> tuple[int, int]:
        """See `TaskListener.checkpoint_wanted`."""
        return self._wanted, self._given_up

    @property
    def taken(self) -> Taken | None:
        """What is to be said of the newest checkpoint; None: nothing."""
        return self._taken

    def see(self, checkpoints: Checkpoints) -> None:
        """What coordination says now. From any thread."""
        with self._lock:
            self._id = checkpoints.id
            self._wanted = checkpoints.newest if checkpoints.taking else 0
            if not checkpoints.under_way and checkpoints.failed:
                self._given_up = max(self._given_up, checkpoints.newest)
            copy = checkpoints.copying and checkpoints.newest != self._copying
            if copy:
                self._copying = checkpoints.newest
            before, self._complete = self._complete, max(self._complete, checkpoints.back_to)
            stale = [] if checkpoints.under_way else list(self._ahead.values())
        for ahead in stale:
            ahead.task.between_slices(functools.partial(self._forget, ahead))
        if copy:
            self._copy_ahead(checkpoints.newest)
        for task in list(self._worker.tasks.values()):
            task.marks.look_for_checkpoint()
            if before != self._complete:
                self.tell(task)

    def tell(self, task: Task) -> None:
        """Have a task know of the newest complete checkpoint, if it cares, and is in that. From any thread."""
        if self._complete and overrides(task.component, "checkpoint_complete", Component):
            task.between_slices(functools.partial(self._tell, task, self._complete))

    def _tell(self, task: Task, ticket: int) -> None:
        """On its executor's thread, between two slices."""
        if task.prepared and task.marks.checkpoint >= ticket and not (task.closed or task.stopped):
            number = number_of(ticket)
            task.failures.guarded(lambda: task.component.checkpoint_complete(number))

    def take(self, task: Task, ticket: int) -> None:
        """Read the state of a task that is between all that is before a checkpoint and all that is after it. On its executor's thread."""
        with self._lock:
            if ticket <= self._given_up or self._closed:
                return
            id = self._id
        key = snapshot_key(self._worker.spec.name, id, ticket, task.id)
        try:
            if task.prepared:
                task.component.checkpoint_begins(number_of(ticket))
            ahead = self._ahead.pop(task.id, None)
            rest = ahead.rest() if ahead is not None and ahead.ticket == ticket else None
            if rest is not None:
                before = encode_engine(task.snapshot(), _NOTHING, self._worker.generation)
                self._submit(self._commit, task.id, ticket, self._nodes(), functools.partial(rest, before))
                return
            pieces, meta = encode_engine(task.snapshot(), _NOTHING, self._worker.generation), b""
            if task.spec.stateful and not task.marks.finished:
                content = Copier(task.component).rest()
                pieces += content.in_order()
                meta = content.meta
            state = SmallState(key, ticket, self._worker.incarnation, tuple(pieces), meta)
            snapshot, nodes = _Snapshot(task.id, ticket, state), self._nodes()
            if state.size <= GROWN:
                self._small.add(nodes, snapshot)
            else:
                self._submit(self._save, nodes, snapshot)
        except BaseException as e:  # what user code raises while it is encoded may be anything
            self._failed(task.id, ticket, e)

    def _copy_ahead(self, ticket: int) -> None:
        tasks = [
            t
            for t in list(self._worker.tasks.values())
            if t.spec.stateful and not t.marks.finished and t.executor is not None  # else it has not begun
        ]
        with self._lock:
            self._left = {t.id for t in tasks}
            self._taken = Taken(ticket, ready=not tasks)
        if not tasks:
            self._said()
        for task in tasks:
            task.between_slices(functools.partial(self._begin_copy, task, ticket))

    def _begin_copy(self, task: Task, ticket: int) -> None:
        """On its executor's thread, between two tuples."""
        ready = functools.partial(self._is_ready, task.id, ticket)
        try:
            size = Copier(task.component).size()
            if size < SMALL or task.stopped or self._worker.saving.goes(task.id):
                ready()
                return
            key = snapshot_key(self._worker.spec.name, self._id, ticket, task.id)
            begin = functools.partial(
                self._stores.begin, key, ticket, self._worker.incarnation, self._nodes(), size
            )
            self._ahead[task.id] = CopiedAhead(task, ticket, size, begin, self._submit, ready)
        except BaseException:  # of user code: who takes the snapshot says what is wrong
            ready()

    def _is_ready(self, task: int, ticket: int) -> None:
        with self._lock:
            self._left.discard(task)
            taken = self._of(ticket)
            if self._left or taken is None or taken.ready:
                return
            self._taken = replace(taken, ready=True)
        self._said()

    def _forget(self, ahead: CopiedAhead) -> None:
        """On its task's executor, between two tuples."""
        if self._ahead.get(ahead.task.id) is ahead:
            del self._ahead[ahead.task.id]
        ahead.give_up()

    def left(self, task: int) -> None:
        """The task runs elsewhere: nothing of it is copied here any more. From any thread."""
        if task in self._left:
            self._is_ready(task, self._copying)

    def give_way(self, task: Task) -> None:
        """The task is to move: its state is copied for that. On its executor's thread, between two tuples."""
        ahead = self._ahead.get(task.id)
        if ahead is not None:
            self._forget(ahead)

    def _commit(self, task: int, ticket: int, nodes: Nodes, commit: Callable[[], int]) -> None:
        try:
            size = commit()
        except Exception as e:
            self._failed(task, ticket, e)
            return
        self._are_stored(nodes, ticket, (task,), size)

    def close(self) -> None:
        """End its threads; what is under way comes to nothing."""
        with self._lock:
            self._closed, pool = True, self._pool
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, what: Callable[..., None], *arguments: object) -> None:
        with self._lock:
            if self._closed:
                raise Unavailable("the worker is about to end")
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, "snapshots", timeslice.usual)
            pool = self._pool
        have_done(pool, what, *arguments)

    def _nodes(self) -> Nodes:
        """Whose stores are to have it: the own one, and the next ones on which the topology runs."""
        view = self._worker.moves.participant.view
        return nodes_of(node_of(self._worker.id), view.living, self._copies)

    def _save_many(self, nodes: Nodes, lot: list[_Snapshot]) -> None:
        try:
            outcomes = self._stores.save_many([s.state for s in lot], nodes)
        except Exception as e:
            outcomes = [e] * len(lot)
        for snapshot, wrong in zip(lot, outcomes, strict=True):
            if wrong is not None:
                self._failed(snapshot.task, snapshot.ticket, wrong)
        self._stored(nodes, [s for s, wrong in zip(lot, outcomes, strict=True) if wrong is None])

    def _save(self, nodes: Nodes, snapshot: _Snapshot) -> None:
        self._commit(
            snapshot.task, snapshot.ticket, nodes, functools.partial(self._write, nodes, snapshot.state)
        )

    def _write(self, nodes: Nodes, state: SmallState) -> int:
        write = self._stores.begin(state.key, state.epoch, state.writer, nodes, state.size)
        try:
            return write.commit([write.put(piece) for piece in state.pieces], state.meta)
        except BaseException:
            with suppress(Exception):  # stores give up what belongs to no checkpoint
                write.abort()
            raise
        finally:
            write.close()

    def _stored(self, nodes: Nodes, snapshots: list[_Snapshot]) -> None:
        for ticket in sorted({s.ticket for s in snapshots}):
            of = [s for s in snapshots if s.ticket == ticket]
            self._are_stored(nodes, ticket, tuple(s.task for s in of), sum(s.state.size for s in of))

    def _are_stored(self, nodes: Nodes, ticket: int, tasks: tuple[int, ...], size: int) -> None:
        with self._lock:
            taken = self._of(ticket)
            if taken is not None:
                stored = merged((*taken.stored, Stored(nodes, tasks)))
                self._taken = replace(taken, stored=stored, size=taken.size + size)
        self._said()

    def _failed(self, task: int, ticket: int, error: BaseException) -> None:
        if isinstance(error, Superseded):
            return  # it comes late
        log.warning("task %d has no snapshot for checkpoint %d", task, number_of(ticket), exc_info=error)
        self.fail(task, ticket, why(error))

    def fail(self, task: int, ticket: int, reason: str) -> None:
        """There will be no such checkpoint. From any thread."""
        with self._lock:
            taken = self._of(ticket)
            if taken is not None:
                self._taken = replace(taken, failed=taken.failed or f"task {task}: {reason}")
        self._said()

    def _of(self, ticket: int) -> Taken | None:
        """What was said of that one so far; None: there is a newer one. With the lock."""
        taken = self._taken
        if taken is None or taken.ticket < ticket:
            return Taken(ticket)
        return taken if taken.ticket == ticket else None


def nodes_of(own: NodeId, living: Mapping[WorkerId, Incarnation], copies: int) -> Nodes:
    """The nodes whose stores keep what is taken on one: itself, and those that follow it among those on which the topology runs."""
    others = sorted({node_of(w) for w in living} - {own})
    after = [n for n in others if n > own] + [n for n in others if n < own]
    return (own, *after[: copies - 1])


def begin_with(worker: Worker, task: Task, stored: StoredState) -> None:
    """Have a task that is about to begin be what it was at a checkpoint.

    Raises:
        ExecutionError: That cannot be read.
    """
    engine, _, own = decode_engine(stored.pieces, worker.streams)
    task.marks.checkpoint = engine.checkpoint
    if engine.finished:
        task.marks.finished = True
        worker.history.finish((task.id,))
        return
    task.begins_with = functools.partial(_put_in, worker, task, engine, stored, own)


def _put_in(worker: Worker, task: Task, engine: EngineState, stored: StoredState, own: int) -> None:
    if task.spec.stateful:
        Arrival(task.component).put(stored.meta, stored.named[own:], stored.pieces[own:])
    task.go_back(engine)
    task.component.checkpoint_complete(number_of(engine.checkpoint))
    if begins_anew(task):
        worker.on_task_event(
            task,
            "spout-begins-anew",
            f"Spout {str(task.spec.id)!r} has no state: it begins with what `prepare` makes, while all others go back to a checkpoint. "
            "One that is to know how far it was has to be a StatefulSpout.",
            Severity.WARNING,
            {},
        )
