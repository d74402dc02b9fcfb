"""A worker: the tasks, executors and links of one process, changed in place while they run.

`apply` is the thread-level update (TLU) of N-Storm 2019, section III.C: the difference between the executors that run and those that
the allocation names is made true, and the ways to all tasks are refreshed; executors that are in both do not notice.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Protocol

from elastic.api.settings import setting
from elastic.errors import ElasticError, ExecutionError, Unavailable
from elastic.migration.events import TaskGone
from elastic.migration.view import NOBODY, View
from elastic.model.assignment import ExecutorId
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, Epoch, Incarnation, TaskId, WorkerId, worker_of
from elastic.model.records import Allocation, TopologyStatus, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.transport.base import Transport
from elastic.worker import wire
from elastic.worker.batch import Item, Streams
from elastic.worker.components import ComponentSource
from elastic.worker.executor import Executor
from elastic.worker.failures import DETAIL, MESSAGE, described, plain, user_traceback
from elastic.worker.guests import Guests, Home
from elastic.worker.haste import Haste, few_stand_still
from elastic.worker.leaving import Leaving
from elastic.worker.making import TaskMaker, config_of
from elastic.worker.moves import HELD_QUEUES, Moves
from elastic.worker.moving import MovingTasks
from elastic.worker.outside import NO_MARKS, Outside, view_of
from elastic.worker.saving import Saving
from elastic.worker.state_sizes import StateSizes
from elastic.worker.task import Task
from elastic.worker.ways import Ways


class WorkerListener(Protocol):
    """What a worker tells whoever runs it. Called on any of its threads; must not block."""

    def on_event(self, event: Event) -> None: ...

    def on_progress(self) -> None:
        """`finished`, `drained`, `started` or `epoch` of the worker have changed."""

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

    Attributes:
        arriving: Tasks that are being restored here by a move, and do not run yet.
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
    ) -> None:
        self.spec = spec
        self.id = id
        self.incarnation = incarnation
        self.epoch = Epoch(0)  # of the newest assignment that is carried out
        self.failure = ""
        self.tasks: dict[int, Task] = {}
        self.arriving: dict[int, Task] = {}
        self.executors: dict[ExecutorId, Executor] = {}
        self.streams = Streams(spec)
        self._listener = listener
        self._transport = transport
        self._outside = outside or Outside()
        self._lock = threading.RLock()
        self._hands = threading.Lock()
        self.haste = Haste()
        self.ways = Ways(incarnation, transport)
        self._guests = Guests(self._new_executor)
        # The newest life of each worker: between two lives there may be a view with none of them.
        self._lives: dict[WorkerId, Incarnation] = {}
        self._finished: set[int] = set()
        self._started: set[int] = set()
        self._lost_state: set[int] = set()
        self._taken: set[int] = set()  # here, and nowhere by the allocation: what was read may not say so yet
        self._closing: set[int] = set()
        self._applying = False  # an allocation: also when that has failed
        self._forsaken: set[int] = set()
        self._ended = threading.Condition(self._lock)
        self._ending: set[Executor] = set()
        self._allocation: Allocation | None = None
        self._closed = self._refreshing = False
        self.moves = Moves(
            incarnation,
            spec,
            self.ways,
            tasks=self.tasks,
            consumed=self._give_back,
            on_fatal=self._on_fatal,
            on_resumed=self._on_resumed,
            buffer_rows=HELD_QUEUES * setting("queue_rows", spec.config),
        )
        self.sizes = StateSizes()
        self.leaving = Leaving()
        self.saving = Saving(self, self._outside.stores)
        self.moving = MovingTasks(self, self.saving)
        self._maker = TaskMaker(spec, id, self.streams, components, self.ways, self.moves, self)
        self.moves.join(self.moving, self.saving, self._outside.marks)
        if transport is not None:
            transport.start(self)

    # ------------------------------------------------------------------ what coordination says

    def see(self, view: View, peers: Iterable[WorkerInfo]) -> None:
        """Follow a view of coordination: links go where their targets are, moves get on.

        Args:
            peers: The living workers of the view.
        """
        with self.moves.exclusive():
            if self._closed:
                return
            known = self.moves.participant.view
            before = known.standing
            for worker, life in view.living.items():
                if self._lives.get(worker, life) != life:
                    self._renewed(worker)
            self._lives.update(view.living)
            self.ways.refresh(peers)
            self.moves.see(view)
            self.haste.hold(few_stand_still(view) and self.moves.waited_for)
            now = view.standing
            elsewhere = tuple(t for t, at in now.items() if t in before and before[t].owner != at.owner)
            if elsewhere:
                for task in list(self.tasks.values()):
                    # Also one that is at it: some have heard its End, and it says it again when all have.
                    if task.finishing or task.finished or task.drained:
                        task.between_slices(functools.partial(task.say_again, elsewhere))
            allocation = self._allocation
        if allocation is not None and (
            any(self._has_lost(t, view) for t in self._taken) or self.missing(allocation)
        ):
            self._listener.on_startable()

    def missing(self, allocation: Allocation) -> set[int]:
        """The tasks that an allocation asks for and that this process is to start without a state, as far as it has read."""
        view, mine = self.moves.participant.view, self.incarnation
        wanted = {t for _, first, last in allocation.executors for t in range(first, last + 1)}
        return {
            t
            for t in wanted - self.tasks.keys() - self.arriving.keys()
            if view.number < 0 or view.may_start(t, mine)
        }

    def apply(self, allocation: Allocation) -> None:
        """Make an allocation true. Returns when all changes are under way; they take effect between two slices of work.

        Tasks that are not here are started only if what was read of coordination says that they are to start here without a state;
        the others come with a move.

        Raises:
            ElasticError: A component cannot be made.
        """
        with self.moves.exclusive(), self._lock:
            if self._closed or allocation.epoch < self.epoch:
                return
            if (
                self._outside.marks is NO_MARKS
            ):  # nobody reads coordination: everything there is to know is in here
                view, peers = view_of(allocation, self.moves.participant.view.number + 1, self.incarnation)
                self._allocation = None
                self.see(view, peers)
            self._allocation, self._applying = allocation, True
            self._finished |= set(allocation.finished)
            wanted = {ExecutorId(ComponentId(c), TaskId(a), TaskId(b)) for c, a, b in allocation.executors}
            self._update_executors(wanted, self.missing(allocation))
            for task in self.tasks.values():
                self._set_status(task)
            others = self.tasks.keys() - {t for e in wanted for t in e.tasks()}
            self._taken = {t for t in others if not any(a <= t <= b for a, b, _ in allocation.places)}
            self._applying = False
            changed = self._is_carried_out()
        if changed:
            self._listener.on_progress()

    def _is_carried_out(self) -> bool:
        """Whether the allocation is now, and was not before: nobody here is at work on what it has given to nobody. With the lock."""
        allocation = self._allocation
        if allocation is None or self.epoch == allocation.epoch:
            return False
        # What has stopped at once may say so in the middle of `apply`: others are to be closed yet.
        if self._applying or self._taken or self._closing:
            return False
        self.epoch = allocation.epoch
        return True

    def _update_executors(self, wanted: set[ExecutorId], to_start: set[int]) -> None:
        here: dict[int, ExecutorId] = {t: e for e in wanted for t in e.tasks()}
        started = sorted(to_start & here.keys())
        for number in started:
            self.tasks[number] = self._made(number, here[number].component)
        for number in started:
            task = self.tasks[number]
            if task.spec.stateful:
                self._started.add(number)
                self._forsaken.discard(number)
            self.moves.started(task, self._outside.life())
            self.ways.put_here(task)  # its links end here now
        for number in started:
            self.tasks[number].outputs.refresh()  # before its first tuple: who is here is known now
        for id in sorted(wanted - self.executors.keys()):
            self.executors[id] = self._new_executor(id)
        for id, numbers in groupby(started, lambda t: here[t]):
            self.executors[id].adopt(self.tasks[n] for n in numbers)
        for old in sorted(self.executors.keys() - wanted):
            self._guests.add(self.executors.pop(old))
        for number, task in sorted(self.tasks.items()):
            place = here.get(number)
            if place is not None and task.wanted_by is not self.executors[place]:
                self.executors[place].take(task)
        self._drop_strangers(here)
        for executor in self._guests.idle(
            min((r.epoch for r in self.moves.participant.new.values()), default=0)
        ):
            self._ending.add(executor)
            executor.retire()

    def _renewed(self, worker: WorkerId) -> None:
        self.event(
            "peer-renewed",
            f"Worker {worker} is a new process; what it had not received is counted as lost.",
            worker=worker,
        )

    def _drop_strangers(self, here: Mapping[int, ExecutorId]) -> None:
        """Close tasks that are somebody else's, or nobody's, without having been moved: this process has lost them."""
        view, moving = self.moves.participant.view, set(self.moves.moving())
        for number, task in list(self.tasks.items()):
            if number in here or number in moving or not self._has_lost(number, view):
                continue
            self._closing.add(number)
            self.moves.feed(TaskGone(number))
            self.release(task, functools.partial(self._is_closed, number))
            if view.stands(number).owner == NOBODY and task.spec.stateful:
                self._started.add(number)
                self._forsaken.add(number)

    def _has_lost(self, number: int, view: View) -> bool:
        """Whether a task that is here, and in no move here, is somebody else's by what was read, or nobody's."""
        owner = view.stands(number).owner
        if owner == NOBODY:
            return view.places.get(number) != self.id and view.absent(number)
        return owner != self.incarnation

    def _is_closed(self, number: int) -> None:
        with self._lock:
            self._closing.discard(number)
            changed = self._is_carried_out()
        if changed:
            self._listener.on_progress()

    # ------------------------------------------------------------------ what moves do to tasks

    def make(self, number: int, component: ComponentId) -> Task:
        """A new task, which runs nowhere yet. Raises what user code raises."""
        task = self._maker.make(number, component)
        if number in self._lost_state:
            task.context.gauge("state_lost").set(1.0)
        task.finished = number in self._finished
        return task

    def guest(self, component: ComponentId, epoch: int) -> Home:
        """The executors of tasks that come here with that move, until the assignment says where they are to run.

        Raises:
            Unavailable: The worker is about to end: nobody would stop them.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("the worker is about to end")
            return self._guests.of(component, epoch)

    def will_start(self, task: int) -> None:
        """The task is about to come: should this process die with it, that is known."""
        if self.spec.component_of(TaskId(task)).stateful:
            with self._lock:
                self._started.add(task)
            self._listener.on_progress()

    def will_not_start(self, task: int) -> None:
        """It does not come after all."""
        with self._lock:
            if task not in self.tasks:
                self._started.discard(task)
        self._listener.on_progress()

    def begin(self, task: Task) -> None:
        """A task that has come is ours: it runs from now on. With the lock of the moves."""
        with self._lock:
            self.tasks[task.id] = task
            self._forsaken.discard(task.id)
            if task.finished:
                self._finished.add(task.id)
            self.moves.attach(task)
            self.ways.put_here(task)
            self._refresh_outputs()
            self._set_status(task)
            if task.finished or task.drained:  # what it had to repeat meanwhile, its former place has not
                task.say_again(tuple(task.outputs.outs))
            task.go_on()
            allocation = self._allocation
            for c, first, last in allocation.executors if allocation is not None else ():
                if first <= task.id <= last:
                    found = self.executors.get(ExecutorId(ComponentId(c), TaskId(first), TaskId(last)))
                    if found is not None:
                        found.take(task)
        self._listener.on_progress()

    def release(self, task: Task, then: Callable[[], None] = lambda: None) -> None:
        """A task is somebody else's: it does nothing more here. With the lock of the moves.

        Args:
            then: Called when it has stopped.
        """
        with self._lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]
            self._started.discard(task.id)
        self.ways.take_away(task)
        self.discard(task, then)
        self.moves.left()
        self._refresh_outputs()
        self._listener.on_progress()

    def discard(self, task: Task, then: Callable[[], None] = lambda: None) -> None:
        """Close a task that is not to run here."""
        task.leave()

        def closed() -> None:
            self.leaving.add(task.component)
            then()

        if task.executor is not None:
            task.executor.drop(task, closed)
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

    def _on_resumed(self, task: int, epoch: int, held: float) -> None:
        self.event(
            "move-step",
            f"Tuples for task {task} flow again.",
            component=str(self.spec.component_of(TaskId(task)).id),
            task=task,
            details={"epoch": epoch, "step": "resumed", "at": time.time(), "pause_ms": round(held * 1e3, 3)},
        )

    def _on_fatal(self, error: BaseException) -> None:
        self.event("worker-broken", f"The worker cannot go on: {error}", Severity.ERROR)
        self._listener.on_fatal(str(error))

    def _new_executor(self, id: ExecutorId) -> Executor:
        config = config_of(self.spec, id.component)
        linger = setting("linger", config)
        executor = Executor(id, linger, self._on_executor_ended, self._hands, self.haste)
        executor.start()
        return executor

    def _stop_executor(self, executor: Executor, *, abandon: bool = False) -> None:
        if not executor.ended:
            self._ending.add(executor)
        executor.stop(abandon=abandon)

    def _on_executor_ended(self, executor: Executor) -> None:
        with self._ended:
            executor.ended = True
            self._ending.discard(executor)
            self._ended.notify_all()

    def _made(self, number: int, component: ComponentId) -> Task:
        try:
            return self.make(number, component)
        except ElasticError:
            raise
        except Exception as e:
            raise ExecutionError(
                f"Task {number} of {str(component)!r} cannot be made: {described(e)}\n{user_traceback(e)}"
            ) from e

    # ------------------------------------------------------------------ ways

    def _set_status(self, task: Task) -> None:
        allocation = self._allocation
        if task.spout is not None and allocation is not None:
            task.spout.set_active(allocation.status == TopologyStatus.ACTIVE, allocation.drain)

    # ------------------------------------------------------------------ Receiver (transport threads)

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        try:
            item, life, first = wire.decode(payload, self.streams, source)
        except Exception as e:
            self.event(
                "frame-unreadable",
                f"A frame from {source} for task {target} could not be read: {described(e)}",
                Severity.ERROR,
                task=target,
            )
            self._consumed(source, target, len(payload), 0)
            return
        if isinstance(item, wire.Told):
            self._consumed(source, target, len(payload), 0)
            if item.kind >= wire.STORED:
                self.saving.fetching.told(item, payload)
                return
            self.moves.told(target, item, life, first)
            return
        task = self.tasks.get(target)
        if task is None or not task.take_in(item, life, first):
            self.moves.arrived(target, life, first, item)
            self.moves.work()

    def on_room(self, peer: Incarnation, target: int) -> None:
        self.ways.signal(target)
        self.moves.room(target)

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        if frames:
            self.event(
                "frames-lost", f"{frames} frames ({size:,} bytes) for worker {worker_of(peer)}: not confirmed before its process ended.",
                Severity.WARNING, worker=worker_of(peer), details={"frames": frames, "bytes": size},
            )  # fmt: skip

    def _consumed(self, source: Incarnation | str, target: int, size: int, rows: int) -> None:
        if self._transport is not None and source:
            self._transport.consumed(Incarnation(source), target, size, rows)

    def _give_back(self, item: Item, target: int) -> None:
        if item.origin:
            self._consumed(item.origin, target, item.size, item.credit)

    # ------------------------------------------------------------------ TaskListener (executor threads)

    def on_consumed(self, batch: Item, task: Task) -> None:
        self._give_back(batch, task.id)

    def on_finished(self, task: Task) -> None:
        with self._lock:
            self._finished.add(task.id)
        self._listener.on_progress()

    def on_drained(self, task: Task, number: int) -> None:
        self._listener.on_progress()

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

    def finished(self) -> tuple[int, ...]:
        """All tasks that are known to be finished, those of earlier processes included; ascending."""
        with self._lock:
            return tuple(sorted(self._finished))

    def lost_state(self, tasks: Iterable[int]) -> None:
        """These tasks, about to start, had state in an earlier process that nobody has: their metric `state_lost` says so."""
        self._lost_state.update(tasks)

    def forsaken(self) -> frozenset[int]:
        """The stateful tasks that were here, and whose state has gone nowhere. They are among those that were started: whoever starts one
        of them anew has to know."""
        with self._lock:
            return frozenset(self._forsaken)

    def started(self) -> tuple[int, ...]:
        """The stateful tasks that this process has started."""
        with self._lock:
            return tuple(sorted(self._started))

    def drained(self) -> int:
        """The newest drain that has passed all of this worker's tasks; 0 when there are none."""
        with self._lock:
            return (
                min((t.drained for t in self.tasks.values() if not t.finished), default=1 << 30)
                if self.tasks
                else 0
            )

    def ending(self) -> list[Executor]:
        """Executors that were told to stop and have not ended."""
        with self._lock:
            return list(self._ending)

    def close(self, grace: float) -> bool:
        """Stop all executors and close the transport.

        Args:
            grace: Seconds that executors have to end in an orderly way.

        Returns:
            Whether all have ended; False: a call into user code does not return.
        """
        with self._ended:
            self._closed = True
            for executor in {*self.executors.values(), *self._guests.all(), *self._ending}:
                self._stop_executor(executor, abandon=True)
            self.executors.clear()
            self.ways.signal_all()
            deadline = time.monotonic() + grace
            while self._ending and (left := deadline - time.monotonic()) > 0:
                self._ended.wait(left)
            done = not self._ending
        self.saving.close()
        self.leaving.close()
        if self._transport is not None:
            self._transport.close()
        return done
