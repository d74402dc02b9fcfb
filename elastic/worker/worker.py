"""A worker: the tasks, executors and links of one process, changed in place while they run.

`apply` is the thread-level update (TLU) of N-Storm 2019, section III.C: the difference between the executors that run and those that
the allocation names is made true, and the ways to all tasks are refreshed; executors that are in both do not notice.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Protocol

from elastic.api.settings import setting
from elastic.errors import ElasticError, ExecutionError
from elastic.machine import with_limit
from elastic.migration.events import TaskGone
from elastic.migration.view import NOBODY, View
from elastic.model.assignment import ExecutorId
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, Incarnation, TaskId, WorkerId
from elastic.model.records import Allocation, TopologyStatus, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.model.words import plain
from elastic.transport.base import Transport
from elastic.worker.assigned import Assigned
from elastic.worker.emitting.ways import Ways
from elastic.worker.executing.components import ComponentSource
from elastic.worker.executing.executors import Executors
from elastic.worker.executing.haste import Haste, few_stand_still
from elastic.worker.executing.making import TaskMaker
from elastic.worker.executing.task import Task
from elastic.worker.executing.user_calls import UserCalls
from elastic.worker.frames import Frames
from elastic.worker.history import TaskHistory
from elastic.worker.moving.held import Pause
from elastic.worker.moving.leaving import Leaving
from elastic.worker.moving.moves import HELD_QUEUES, Moves
from elastic.worker.moving.moving import MovingTasks
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.state_sizes import StateSizes
from elastic.worker.moving.stores import StoredState
from elastic.worker.outside import NO_MARKS, Outside, view_of
from elastic.worker.shown import DETAIL, MESSAGE, described, user_traceback
from elastic.worker.snapshots import Snapshots, begin_with
from elastic.worker.tuples import vector
from elastic.worker.tuples.batch import Item, Streams


class WorkerListener(Protocol):
    """What a worker tells whoever runs it. Called on any of its threads; must not block."""

    def on_event(self, event: Event) -> None: ...

    def on_progress(self) -> None:
        """What the worker says as `assigned.epoch`, `history` or `drained` has changed."""

    def on_failure(self, reason: str, trace: str) -> None:
        """A task gave up: the topology fails."""

    def on_startable(self) -> None:
        """There are tasks of the allocation that may be started now: apply it again, after what that asks for."""

    def on_fatal(self, reason: str) -> None:
        """This process must not go on: its successor starts without its state, and says so."""


class Worker:
    """One worker of a topology.

    Args:
        transport: The links to the other workers; None when there are none.
        outside: What else there is: coordination and state stores for moves.
        generation: `Checkpoints.generation` that it belongs to; 0: the topology takes no checkpoints.

    Attributes:
        arriving: Tasks that are being restored here by a move, and do not run yet.
        calls: Into user code, where tasks are made and metrics are read; the watchdog looks at them.
    """

    def __init__(
        self,
        spec: TopologySpec,
        id: WorkerId,
        incarnation: Incarnation,
        components: ComponentSource,
        listener: WorkerListener,
        transport: Transport | None = None,
        outside: Outside | None = None,
        generation: int = 0,
    ) -> None:
        if any(c.vector for c in spec.components):
            vector.load()  # before anybody sends to it, or gives it a task
        self.spec = spec
        self.id = id
        self.incarnation = incarnation
        self.generation = generation
        self.failure = ""
        self.tasks: dict[int, Task] = {}
        self.arriving: dict[int, Task] = {}
        self.calls = UserCalls()
        self.streams = Streams(spec)
        self._listener = listener
        self._transport = transport
        self._outside = outside or Outside()
        self._lock = threading.RLock()
        self.haste = Haste()
        self.executors = Executors(spec, self.haste, self._lock)
        self.assigned = Assigned(id, incarnation)
        self.history = TaskHistory(self._lock)
        self.frames = Frames(self, transport)
        self.ways = Ways(incarnation, transport)
        # The newest life of each worker: between two lives there may be a view with none of them.
        self._lives: dict[WorkerId, Incarnation] = {}
        self._closed = self._refreshing = False
        self.moves = Moves(
            incarnation,
            spec,
            self.ways,
            tasks=self.tasks,
            consumed=self.frames.give_back,
            on_fatal=self._on_fatal,
            on_resumed=self._on_resumed,
            on_received=self._on_received,
            buffer_rows=HELD_QUEUES * setting("queue_rows", spec.config),
        )
        self.sizes = StateSizes()
        self.leaving = Leaving()
        self.saving = Saving(self, self._outside.stores)
        self.moving = MovingTasks(self, self.saving)
        self.snapshots = Snapshots(self, self._outside.stores, listener.on_progress)
        self._maker = TaskMaker(spec, id, self.streams, components, self.ways, self.moves, self, self.calls)
        self.moves.join(self.moving, self.saving, self._outside.marks)
        if transport is not None:
            transport.start(self.frames)

    # ------------------------------------------------------------------ what coordination says

    def see(self, view: View, peers: Iterable[WorkerInfo]) -> None:
        """Follow a view of coordination: links go where their targets are, moves get on.

        Args:
            peers: The living workers of the view.
        """
        with self.moves.exclusive():
            if self._closed:
                return
            before = self.moves.participant.view
            for worker, life in view.living.items():
                if self._lives.get(worker, life) != life:
                    self._renewed(worker)
            self._lives.update(view.living)
            self.ways.refresh(peers)
            self.moves.see(view)
            self.haste.hold(few_stand_still(view) and self.moves.waited_for)
            elsewhere = view.elsewhere(before)
            if elsewhere:
                for task in list(self.tasks.values()):
                    # Also one that is at it: some have heard its End, and it says it again when all have.
                    if task.marks.finishing or task.marks.finished or task.marks.drained:
                        task.between_slices(functools.partial(task.marks.say_again, elsewhere))
            allocation = self.assigned.allocation
        if allocation is not None and (self.assigned.may_close(view) or self.missing(allocation)):
            self._listener.on_startable()

    def missing(self, allocation: Allocation) -> set[int]:
        """The tasks that an allocation asks for and that this process is to start without a state, as far as it has read."""
        here = self.tasks.keys() | self.arriving.keys()
        return self.assigned.missing(allocation, self.moves.participant.view, here)

    def apply(
        self,
        allocation: Allocation,
        written: Collection[int] | None = None,
        states: Mapping[int, StoredState] = MappingProxyType({}),
    ) -> None:
        """Make an allocation true. Returns when all changes are under way; they take effect between two slices of work.

        Tasks that are not here are started only if what was read of coordination says that they are to start here without a state;
        the others come with a move.

        Args:
            written: The tasks of which it is written down that they begin here now, with the life that they get; None: nobody writes that.
                Others that are to start by what was read since wait until that is done for them, too (`WorkerListener.on_startable`).
            states: What a checkpoint has of those that begin with that.

        Raises:
            ElasticError: A component cannot be made.
        """
        with self.moves.exclusive(), self._lock:
            if self._closed or allocation.epoch < self.assigned.epoch:
                return
            if self._outside.marks is NO_MARKS:
                # Nobody reads coordination: everything there is to know is in here.
                view, peers = view_of(allocation, self.moves.participant.view.number + 1, self.incarnation)
                self.assigned.allocation = None
                self.see(view, peers)
            self.assigned.begin(allocation)
            missing = self.missing(allocation)
            late = missing.difference(missing if written is None else written)
            self._update_executors(self.assigned.executors(), missing - late, states)
            for task in self.tasks.values():
                self._set_status(task)
            changed = self.assigned.applied(self.tasks)
        if changed:
            self._listener.on_progress()
        if late:
            self._listener.on_startable()

    def _update_executors(
        self, wanted: set[ExecutorId], to_start: set[int], states: Mapping[int, StoredState]
    ) -> None:
        here: dict[int, ExecutorId] = {t: e for e in wanted for t in e.tasks()}
        started = sorted(to_start & here.keys())
        for number in started:
            self.tasks[number] = self._made(number, here[number].component)
            if number in states:
                begin_with(self, self.tasks[number], states[number])
        for number in started:
            task = self.tasks[number]
            if self.must_not_be_lost(task.spec):
                self.history.start(number)
                self.history.begin(number)
            self.moves.started(task, self._outside.life())
            self.ways.put_here(task)  # its links end here now
        for number in started:
            # Before its first tuple: who is here is known now, and whether it is to be asked for any.
            self.tasks[number].outputs.refresh()
            self._set_status(self.tasks[number])
        self.executors.follow(wanted)
        named, hands = self.executors.named, self.executors.hands
        for id, numbers in groupby(started, lambda t: here[t]):
            hands.adopt(named[id], (self.tasks[n] for n in numbers))
        for number, task in sorted(self.tasks.items()):
            place = here.get(number)
            if place is not None and task.wanted_by is not named[place]:
                hands.take(named[place], task)
        self._drop_strangers(here)
        self.moving.retire()

    def must_not_be_lost(self, component: ComponentSpec) -> bool:
        """Whether somebody has to know when a task ends with its process. With checkpoints that is each, for what was under way to it."""
        return component.stateful or self.generation > 0

    def _renewed(self, worker: WorkerId) -> None:
        self.event(
            "peer-renewed",
            f"Worker {worker} is a new process; what the one before had not received, if anything, is counted by frames-lost.",
            worker=worker,
        )

    def _drop_strangers(self, here: Mapping[int, ExecutorId]) -> None:
        """Close tasks that are somebody else's, or nobody's, without having been moved: this process has lost them.

        Not when the topology is over: they end with the process, whose last report is what is known of them from then on.
        """
        allocation = self.assigned.allocation
        if allocation is not None and allocation.status is TopologyStatus.KILLED:
            return
        view, moving = self.moves.participant.view, set(self.moves.moving())
        for number, task in list(self.tasks.items()):
            if number in here or number in moving or not self.assigned.has_lost(number, view):
                continue
            self.assigned.closing(number)
            self.moves.feed(TaskGone(number))
            self.release(task, functools.partial(self._is_closed, number))
            if view.stands(number).owner == NOBODY and self.must_not_be_lost(task.spec):
                self.history.forsake(number)

    def _is_closed(self, number: int) -> None:
        with self._lock:
            changed = self.assigned.closed(number)
        if changed:
            self._listener.on_progress()

    # ------------------------------------------------------------------ what moves do to tasks

    def make(self, number: int, component: ComponentId) -> Task:
        """A new task, which runs nowhere yet. Raises what user code raises."""
        task = self._maker.make(number, component)
        if self.history.has_lost_state(number):
            task.context.gauge("state_lost").set(1.0)
        task.marks.finished = self.history.has_finished(number)
        task.context.checkpoints = self.generation > 0
        return task

    def will_start(self, task: int) -> None:
        """The task is about to come: should this process die with it, that is known."""
        if self.must_not_be_lost(self.spec.component_of(TaskId(task))):
            self.history.start(task)
            self._listener.on_progress()

    def will_not_start(self, task: int) -> None:
        """It does not come after all."""
        with self._lock:
            if task not in self.tasks:
                self.history.leave(task)
        self._listener.on_progress()

    def begin(self, task: Task) -> None:
        """A task that has come is ours: it runs from now on. With the lock of the moves."""
        with self._lock:
            self.tasks[task.id] = task
            self.history.begin(task.id)
            if task.marks.finished:
                self.history.finish((task.id,))
            self.moves.attach(task)
            self.ways.put_here(task)
            self._refresh_outputs()
            self._set_status(task)
            # What it had to repeat meanwhile, its former place has not.
            if task.marks.finished or task.marks.drained:
                task.marks.say_again(tuple(task.outputs.outs))
            task.go_on()
            self.snapshots.tell(task)
            place = self.assigned.executor_of(task.id)
            found = self.executors.named.get(place) if place is not None else None
            if found is not None:
                self.executors.hands.take(found, task)
        self._listener.on_progress()

    def release(self, task: Task, then: Callable[[], None] = lambda: None) -> None:
        """A task is somebody else's: it does nothing more here. With the lock of the moves.

        Args:
            then: Called when it has stopped.
        """
        with self._lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]
            self.history.leave(task.id)
        self.ways.take_away(task)
        self.discard(task, then)
        self.moves.left(task.id)
        self.snapshots.left(task.id)
        self._refresh_outputs()
        self._listener.on_progress()

    def discard(self, task: Task, then: Callable[[], None] = lambda: None) -> None:
        """Close a task that is not to run here."""
        task.leave()

        def closed() -> None:
            self.leaving.add(task.component)
            then()

        if task.executor is not None:
            self.executors.hands.drop(task.executor, task, closed)
        elif task.holder is not None:  # it is about to begin there: after that
            task.holder.call(lambda: self.discard(task, then))
        else:
            then()

    def _refresh_outputs(self) -> None:
        """Once for all tasks that come and go in one step of the moves: with the lock of the moves."""
        if not self._refreshing:
            self._refreshing = True
            self.moves.feed(self._refresh_now)

    def _refresh_now(self) -> None:
        self._refreshing = False
        for task in list(self.tasks.values()):
            task.outputs.refresh()

    def _on_resumed(self, task: int, pause: Pause) -> None:
        said, ms = f"Tuples for task {task} flow again.", round(pause.lasted * 1e3, 3)
        self._tell_step(said, task, pause.epoch, "resumed", at=time.time() - pause.ago, pause_ms=ms)

    def _on_received(self, task: int, epoch: int, gap: float | None) -> None:
        if gap is None:
            self._tell_step(f"Nothing had come from task {task} before it moved.", task, epoch, "unheard")
        else:
            ms = round(gap * 1e3, 3)
            self._tell_step(f"Tuples of task {task} come again.", task, epoch, "received", gap_ms=ms)

    def _tell_step(self, message: str, task: int, epoch: int, step: str, **more: float) -> None:
        """Of a task that may be somebody else's (`MovingTasks.step` tells of those that are here)."""
        self.event(
            "move-step",
            message,
            component=str(self.spec.component_of(TaskId(task)).id),
            task=task,
            details={"epoch": epoch, "step": step, "at": time.time(), **more},
        )

    def _on_fatal(self, error: BaseException) -> None:
        said = with_limit(str(error), error)
        self.event("worker-broken", f"The worker cannot go on: {said}", Severity.ERROR)
        self._listener.on_fatal(said)

    def _made(self, number: int, component: ComponentId) -> Task:
        try:
            return self.make(number, component)
        except ElasticError:
            raise
        except (Exception, SystemExit) as e:
            raise ExecutionError(
                f"Task {number} of {str(component)!r} cannot be made: {described(e)}\n{user_traceback(e)}"
            ) from e

    def _set_status(self, task: Task) -> None:
        allocation = self.assigned.allocation
        if task.spout is not None and allocation is not None:
            task.spout.set_active(allocation.status == TopologyStatus.ACTIVE, allocation.drain)

    # ------------------------------------------------------------------ TaskListener (executor threads)

    def on_consumed(self, batch: Item, task: Task) -> None:
        self.frames.give_back(batch, task.id, soon=task.slowed)

    def on_finished(self, task: Task) -> None:
        self.history.finish((task.id,))
        self._listener.on_progress()

    def on_drained(self, task: Task, number: int) -> None:
        self._listener.on_progress()

    def checkpoint_wanted(self) -> tuple[int, int]:
        return self.snapshots.wanted

    def on_checkpoint(self, task: Task, ticket: int) -> None:
        self.snapshots.take(task, ticket)

    def on_no_checkpoint(self, task: Task, ticket: int, reason: str) -> None:
        self.snapshots.fail(task.id, ticket, reason)

    def on_task_event(
        self,
        task: Task,
        kind: str,
        message: str,
        severity: Severity,
        details: Mapping[str, str | int | float],
    ) -> None:
        self.event(kind, message, severity, component=str(task.spec.id), task=task.id, details=details)

    def on_failure(self, task: Task, reason: str, trace: str) -> None:
        self.event(
            "executor-failed",
            reason,
            Severity.ERROR,
            component=str(task.spec.id),
            task=task.id,
            details={"traceback": trace},
        )
        with self._lock:
            first, self.failure = not self.failure, self.failure or reason
        if first:
            self._listener.on_failure(reason, trace)

    def event(
        self, kind: str, message: str, severity: Severity = Severity.INFO, *, component: str = "", task: int = 0, worker: str = "",
        details: Mapping[str, str | int | float] | None = None,
    ) -> None:  # fmt: skip
        """Say that something happened."""
        self._listener.on_event(
            Event(
                time.time(),
                kind,
                plain(message, MESSAGE),
                severity,
                str(self.spec.name),
                component,
                task,
                worker or self.id,
                details={
                    plain(k, 100): plain(v, DETAIL) if isinstance(v, str) else v
                    for k, v in (details or {}).items()
                },
            )
        )

    # ------------------------------------------------------------------ what others ask

    def drained(self) -> int:
        """The newest drain that has passed all of this worker's tasks; 0 when there are none.

        Without the lock: whoever makes a task has it, and may be stuck in user code, which the thread that reports is to say.
        """
        tasks = list(self.tasks.values())
        left = [t.marks.drained for t in tasks if not t.marks.finished]
        return min(left, default=1 << 30) if tasks else 0

    def close(self, grace: float) -> bool:
        """Stop all executors and close the transport.

        Args:
            grace: Seconds that executors have to end in an orderly way.

        Returns:
            Whether all have ended; False: a call into user code does not return.
        """
        with self._lock:
            self._closed = True
            self.executors.stop()
            self.ways.signal_all()
            done = self.executors.wait(grace)
        self.moves.close()
        self.saving.close()
        self.snapshots.close()
        self.leaving.close()
        if self._transport is not None:
            self._transport.close()
        return done
