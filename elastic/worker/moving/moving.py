"""The tasks of one worker as a move sees them: stopped, taken away, prepared, installed, begun.

What touches a task happens on its executor's thread, between two tuples. The participant is told by `Moves.feed`, which no thread calls
that holds the worker's lock.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from elastic.errors import ExecutionError, Unavailable
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.model.events import Severity
from elastic.model.ids import TaskId
from elastic.worker.content import Arrival, pending
from elastic.worker.content.engine import EngineState
from elastic.worker.emitting.destination import ExecutorStopped, TaskReleased
from elastic.worker.moving import move_errors
from elastic.worker.moving.going import begins_anew
from elastic.worker.moving.stores import SMALL
from elastic.worker.shown import why

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.executing.task import Task
    from elastic.worker.moving.saving import Saving
    from elastic.worker.worker import Worker

log = logging.getLogger("elastic.worker")
TOGETHER = 0.005
"""Seconds that a task which is in waits for others that are being put in."""


class Payload(NamedTuple):
    """What `Fetched` carries besides the links."""

    engine: EngineState
    meta: bytes
    names: Sequence[Hashable]
    pieces: Sequence[bytes]
    arrival: Arrival | None


class Side(NamedTuple):
    """One attempt to have a task run here."""

    task: int
    epoch: int
    attempt: int


@dataclass
class _Lot:
    """States that are being put in by one executor, one after the other.

    Attributes:
        left: How many are still to be put in.
        done: Those that were, and nobody was told of yet.
        since: When the first of these was, monotonic; 0: there is none.
    """

    left: int = 0
    done: list[Side] = field(default_factory=list)
    since: float = 0.0


class MovingTasks:
    """The port `elastic.migration.ports.Tasks` of a worker.

    Args:
        saving: Where states go to and come from; it has to be done with a task before that goes on.
    """

    def __init__(self, worker: Worker, saving: Saving) -> None:
        self._worker = worker
        self._saving = saving
        self._sides: dict[int, Side] = {}
        self._prepared: dict[Side, Future[Task]] = {}
        self._lock = threading.Lock()
        self._lots: dict[Executor, _Lot] = {}
        self._retiring = False

    # ------------------------------------------------------------------ old side

    def note_pause(self, action: ac.NotePause) -> None:
        """See the port."""
        self.step(self._worker.tasks[action.task], action.epoch, "paused")

    def stop(self, action: ac.StopTask) -> None:
        """See the port."""
        worker, epoch = self._worker, action.epoch
        task = worker.tasks[action.task]
        executor = task.executor
        if executor is None:
            raise ExecutionError(f"task {task.id} has not begun here")
        self._saving.pausing(task)

        def stopped() -> None:
            self.step(task, epoch, "stopped")
            worker.moves.feed(ev.Stopped(task.id, epoch))

        executor.stop_task(task, stopped)

    def go_on(self, action: ac.ContinueTask) -> None:
        """See the port."""
        task = self._worker.tasks[action.task]
        self._saving.let_go(task, then=task.go_on)

    def release(self, action: ac.ReleaseTask) -> None:
        """See the port."""
        task = self._worker.tasks[action.task]
        self._saving.let_go(task)
        self._worker.release(task)

    # ------------------------------------------------------------------ new side

    def prepare(self, action: ac.PrepareTask) -> None:
        """See the port."""
        worker = self._worker
        self._forget(action.task)
        side = self._sides[action.task] = Side(action.task, action.epoch, action.attempt)
        component = worker.spec.component_of(TaskId(action.task))
        here: Future[Task] = Future()
        self._prepared[side] = here
        home = worker.executors.guest(component.id, action.epoch)
        worker.will_start(action.task)
        ready = self._saving.fetching.get_ready()

        def prepared(_: object) -> None:
            worker.moves.feed(ev.Prepared(*side))

        def prepare() -> None:
            if self._sides.get(side.task) != side:
                return
            task = worker.make(action.task, component.id)
            task.stopped = task.scheduled = True
            with worker.moves.exclusive():
                if self._sides.get(side.task) != side:
                    return
                worker.arriving[task.id] = task
                self._dial(task)
            try:
                worker.executors.hands.prepare_guest(task, home)
            finally:
                gone = worker.arriving.get(task.id) is not task
                if gone:  # discarded meanwhile, maybe before its executor had it: nobody else would take it away from there
                    worker.discard(task)
            if gone:
                return
            self.step(task, side.epoch, "prepared")
            with suppress(InvalidStateError):  # it has just been discarded
                here.set_result(task)
            ready.add_done_callback(prepared)

        home.prepares.call(self._guarded(side, "prepare()", prepare))

    def _dial(self, task: Task) -> None:
        """Who emits to it is told when it has begun, and it sends at once: no link is to be made only then."""
        moves = self._worker.moves
        wiring, view = moves.participant.wiring, moves.participant.view
        for other in {*wiring.emitters_of(task.id), *wiring.targets_of(task.id)}:
            where = view.stands(other).owner
            if where != moves.me:
                moves.link(where)

    def install(self, action: ac.Install) -> None:
        """See the port."""
        worker, side = self._worker, Side(action.task, action.epoch, action.attempt)
        payload: Payload = action.payload
        task = worker.arriving[action.task]
        executor = task.executor
        assert executor is not None
        size = sum(map(len, payload.pieces))
        with self._lock:
            lot = self._lots.setdefault(executor, _Lot())
            lot.left += 1

        def put_in() -> None:
            if worker.arriving.get(task.id) is not task:
                return
            if task.spec.stateful:
                arrival = payload.arrival or Arrival(task.component)
                # Also the little that is left of a large state: with three executors beside it it takes four times as long.
                with worker.haste if size > SMALL or payload.arrival is not None else nullcontext():
                    arrival.put(payload.meta, payload.names, payload.pieces)
                worker.sizes.note(task, size)
            task.restore(payload.engine)
            lot.done.append(side)

        guarded = self._guarded(side, "putting the state in", put_in)

        def then() -> None:
            try:
                guarded()
            finally:
                self._installed(executor, lot, at_once=size > SMALL)

        executor.urge(then)

    def _installed(self, executor: Executor, lot: _Lot, *, at_once: bool) -> None:
        """Small states that are put in one after the other are told of together: each by itself would wait for whoever is at the moves."""
        now = time.monotonic()
        with self._lock:
            lot.left -= 1
            lot.since = lot.since or now
            if not lot.left:
                self._lots.pop(executor, None)
            elif not at_once and now - lot.since < TOGETHER:
                return
            lot.since = 0.0
            done, lot.done = lot.done, []
        worker = self._worker
        with worker.moves.together():
            for side in done:
                worker.moves.feed(ev.Installed(*side))

    def begin(self, action: ac.BeginTask) -> None:
        """See the port."""
        worker = self._worker
        task = worker.arriving.pop(action.task)
        self._forget(action.task)
        self.step(task, action.epoch, "restored")
        worker.begin(task)
        worker.moves.hand_in(task.id)
        executor = task.executor
        if executor is not None and task.spec.stateful and pending(task.component):
            executor.call(functools.partial(executor.unread.add, task))
        self.step(task, action.epoch, "begun")
        if begins_anew(task):
            # Most likely it has nothing to know, as one that reads from a service. If it has, what it emits may come twice.
            worker.on_task_event(
                task,
                "spout-begins-anew",
                f"Spout {str(task.spec.id)!r} has no state: at its new place it begins with what `prepare` makes. "
                "One that is to know how far it was has to be a StatefulSpout.",
                Severity.WARNING,
                {"epoch": action.epoch},
            )

    def discard(self, action: ac.DiscardTask) -> None:
        """See the port."""
        self._forget(action.task)
        task = self._worker.arriving.pop(action.task, None)
        if task is not None:
            self._worker.discard(task)
        self._worker.will_not_start(action.task)
        # No allocation need come after a move that has failed. Once for all tasks that come no more by one step of the moves.
        if not self._retiring:
            self._retiring = True
            self._worker.moves.feed(self.retire)

    def retire(self) -> None:
        """Have executors end that nothing comes to with a move any more. With the lock of the moves."""
        self._retiring = False
        coming = self._worker.moves.participant.new.values()
        # Not those of later moves as well: one that waits for a store, or for a long `prepare`, would have each of them leave two threads.
        self._worker.executors.retire({role.epoch for role in coming})

    def prepared(self, side: Side) -> Future[Task]:
        """Done when a task is prepared, and held by the executor that it is to run on. Ends with `Unavailable` if it does not come after
        all. From any thread.

        Raises:
            Unavailable: It does not come any more.
        """
        found = self._prepared.get(side)
        if found is None:
            raise _comes_no_more(side.task)
        return found

    def comes(self, task: int, epoch: int) -> bool:
        """Whether it is about to come here with that move."""
        side = self._sides.get(task)
        return side is not None and side.epoch == epoch

    def check(self, side: Side) -> None:
        """See that a task that was prepared is still to come.

        Raises:
            Unavailable: It is not.
        """
        if self._sides.get(side.task) != side or side.task not in self._worker.arriving:
            raise _comes_no_more(side.task)

    # ------------------------------------------------------------------ parts

    def _forget(self, task: int) -> None:
        """It is here, or does not come."""
        side = self._sides.pop(task, None)
        if side is not None:
            here = self._prepared.pop(side, None)
            if here is not None:
                with suppress(InvalidStateError):  # it was prepared
                    here.set_exception(_comes_no_more(task))
            self._saving.fetching.forget_ahead(side)

    def _guarded(self, side: Side, what: str, call: Callable[[], None]) -> Callable[[], None]:
        """User code that raises costs the attempt, with its reason, and nothing else."""
        worker = self._worker

        def guarded() -> None:
            try:
                call()
            except TaskReleased:
                log.info("task %d does not come here any more, and has emitted since", side.task)
            except ExecutorStopped:
                raise
            except BaseException as e:
                reason = why(e)
                log.warning("task %d cannot come here: %s raised %s", side.task, what, reason, exc_info=True)
                worker.moves.feed(ev.NewFailed(*side, f"{what} of task {side.task} failed: {reason}"))
                move_errors.tell(worker, *side[:2], e, side.attempt)

        return guarded

    def step(self, task: Task, epoch: int, step: str, **more: float) -> None:
        """Tell how far a task has come (`docs/events.md`, "move-step")."""
        details: dict[str, str | int | float] = {"epoch": epoch, "step": step, "at": time.time(), **more}
        self._worker.on_task_event(task, "move-step", f"Task {task.id} is {step}.", Severity.INFO, details)


def _comes_no_more(task: int) -> Unavailable:
    return Unavailable(f"task {task} does not come here any more")
