"""An executor: one thread that runs a range of a component's tasks.

It waits on one queue, `ready`, in which stand tasks that have something to do (each at most once) and calls that concern the
executor itself. Between two slices of work it flushes what has waited long enough, fires timers, and gives way to other threads.
"""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from elastic.machine import ThreadMeter
from elastic.model.assignment import ExecutorId
from elastic.transport.base import Link
from elastic.worker.emitting.destination import Destination, ExecutorStopped, TaskReleased
from elastic.worker.emitting.flushing import Flushing
from elastic.worker.executing.abreast import Abreast
from elastic.worker.executing.bolts import SLICE
from elastic.worker.executing.brake import TURN, Brake
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste
from elastic.worker.executing.task import Task
from elastic.worker.executing.unread import Unread
from elastic.worker.shown import described, user_traceback

log = logging.getLogger("elastic.worker")
YIELD_EVERY = 0.005
YIELD_FOR = 1e-4
"""A thread that makes many short calls that release the interpreter lock can starve all others for seconds. A real sleep
every 5 ms costs 1 to 3 % and bounds what a control thread waits (docs/decisions/data-path.md, "Slices and a real sleep")."""
WITHIN = 8
"""So many tasks may be handing on within each other, as each waits for room: of hundreds that are to stand still at the same moment each
would begin within the one before, until there is no more stack. Others come when the innermost has."""
SHORTER = 4
"""Part of a slice after which an executor rests while something is urgent."""


class Executor:
    """One executor of a worker.

    Attributes:
        id: Which tasks it is to run; changes when they are regrouped.
        ready: Tasks with something to do, and calls.
        tasks: Those that it holds; changed by `Hands`.
        coming: Those that it is to get; also by `Hands`.
        cpu: Processor time of its thread.
        blocked_since: Since when it waits for room (monotonic seconds), 0 while it doesn't.
        busy_since: When the present call into user code began (monotonic seconds), 0 while there is none; the watchdog looks at it.
        turn: See the port.
    """

    def __init__(
        self,
        id: ExecutorId,
        linger: float,
        on_ended: Callable[[Executor], None],
        hands: Hands,
        haste: Haste,
    ) -> None:
        self.id = id
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.tasks: dict[int, Task] = {}
        self._hands = hands
        self._haste = haste
        self.coming: set[int] = set()
        self._retiring = self._over = False
        self.ended = False  # under the worker's lock
        self.closed = False  # for tasks; under the lock of `hands`
        self.turn = threading.RLock()
        self.busy_since = 0.0
        self.current: Task | None = None
        self._handing: list[Task] = []
        self.idle = self._idle_since = 0.0
        self.blocked = self.blocked_since = 0.0
        self.blocked_on = 0
        self._blocked_at: Destination | None = None
        self._blocked_outer: list[Destination | None] = []
        self._urgent: collections.deque[Callable[[], None]] = collections.deque()
        self._on_ended = on_ended
        self._stopping = False
        self._abandon = False
        self._links: set[Link] = set()
        self._flushing = Flushing(self, linger, self.hand_on)
        self._timers: list[tuple[float, int, Task]] = []
        self.unread = Unread(self)
        self.abreast = Abreast(self)
        self._order = itertools.count()
        self.thread = threading.Thread(target=self._run, name=f"executor-{id}", daemon=True)
        self.cpu = ThreadMeter(self.thread)

    # ------------------------------------------------------------------ from any thread

    def start(self) -> None:
        """Begin to run."""
        self.thread.start()

    def call(self, what: Callable[[], None]) -> None:
        """Have `what` called on the executor's thread, between two slices; on this one, if that has ended without a task left."""
        self.ready.put(what)
        self._after_the_end()

    def urge(self, what: Callable[[], None]) -> None:
        """The same for what a move needs: before tasks that are ready, and also while the executor waits for room in the middle of a
        task's tuple.

        `what` must not run user code of that task, `current`.
        """
        self._urgent.append(what)
        self.ready.put(self._do_urgent)
        self._after_the_end()
        at = self._blocked_at
        if at is not None:
            at.signal()

    def _after_the_end(self) -> None:
        """Who asks may have seen a task here that was handed over meanwhile: what was asked goes after it."""
        if self._over and self._retiring:
            self._pass_on()

    def retire(self) -> None:
        """End as soon as no task is here and none is coming."""
        self._retiring = True
        self.look()

    def look(self) -> None:
        """Something may have become so that it ends by."""
        self.ready.put(_nothing)

    def on_task(self, task: Task, what: Callable[[], None]) -> None:
        """Have something done between two tuples of a task, on its executor's thread: also while that is blocked in another task."""
        self.urge(functools.partial(self._between_tuples, task, what))

    def _between_tuples(self, task: Task, what: Callable[[], None]) -> None:
        if task.executor is not self:  # it changed hands meanwhile
            if task.executor is not None:
                task.executor.on_task(task, what)
        elif self._is_within(task):
            task.deferred.append(what)
        elif len(self._handing) >= WITHIN:
            self._handing[-1].deferred.append(functools.partial(self._between_tuples, task, what))
        else:
            what()

    def hand_on(self, task: Task, what: Callable[[], None]) -> None:
        """Hand on what a task has emitted outside of a tuple. On the thread.

        That may have to wait for room, with a part of a batch sent and a part not. What a move asks of the task meanwhile is done
        afterwards: a task that stood still here would have said how far its links are, and then have sent the rest.
        """
        self._handing.append(task)
        try:
            what()
        except TaskReleased:
            pass  # what is left of it is for nobody; what is deferred closes it
        finally:
            self._handing.pop()
        self._do_deferred(task)

    def watched(self, what: Callable[[], None]) -> None:
        """Call user code between two tuples, so that the watchdog sees it: a task hook as something is handed on, say. On the thread."""
        at, called = self.blocked_on, self.busy_since
        if called and not at:
            what()
            return
        # Also while it waits for room in another task: then it waits for what is called. First since when: see `end_blocked`.
        self.busy_since, self.blocked_on = time.monotonic(), 0
        try:
            what()
        finally:
            self.blocked_on = at
            self.busy_since = time.monotonic() if called else 0.0

    def _is_within(self, task: Task) -> bool:
        """Whether a tuple of the task, or handing on what it has emitted, is under way."""
        return self.current is task or task in self._handing

    def _do_deferred(self, task: Task) -> None:
        while task.deferred and not self._is_within(task):
            task.deferred.popleft()()

    def stop_task(self, task: Task, told: Callable[[], None]) -> None:
        """Have a task stand still between two tuples.

        Args:
            told: Called when it does, on its executor's thread.
        """
        task.stopping = told  # its present slice ends early
        self.on_task(task, functools.partial(_stand_still, task, told))

    def stop(self, *, abandon: bool = False) -> None:
        """End when the present slice is over; tasks are cleaned up. To abandon is also to give up what waits for room to be sent."""
        self._abandon = self._abandon or abandon
        self._stopping = True
        self.look()

    def flush_beside(self, before: float) -> None:
        """Hand on what needs no waiting, if the present call into user code began before that time (monotonic seconds).

        What is executed then goes on emitting: it appends to buffers, and waits for its turn where one is full. Nothing, while it hands on
        something itself, or waits for room. An error that nobody expects is its own.
        """
        if not 0.0 < self.busy_since < before or not self.turn.acquire(blocking=False):
            return
        try:
            task = self.current
            # Still in that call: it has to have its turn to get out of it.
            if task is not None and 0.0 < self.busy_since < before:
                self._flushing.flush_beside(task)
        except Exception as e:
            self.ready.put(functools.partial(_raise, e))
        finally:
            self.turn.release()

    def queued(self) -> int:
        """Tuples that wait for its tasks, about."""
        return sum(t.queued for t in list(self.tasks.values()))

    def shares(self) -> tuple[float, float]:
        """Seconds spent idle and blocked so far, the present wait included."""
        blocked_since = self.blocked_since
        now = time.monotonic()
        blocked = self.blocked + (now - blocked_since if blocked_since else 0.0)
        idle_since = self._idle_since
        return self.idle + (now - idle_since if idle_since else 0.0), blocked

    @property
    def rests(self) -> bool:
        """Whether it waits for something to do."""
        return self._idle_since != 0.0

    @property
    def emitting(self) -> Task | None:
        """The task of whose output something is being handed on, or that is within a tuple; None: neither."""
        return next(reversed(self._handing), self.current)  # in one look: its thread goes on meanwhile

    # ------------------------------------------------------------------ Emitter

    def written(self, link: Link) -> None:
        self._links.add(link)

    def flush_links(self) -> None:
        if self._links:
            for link in self._links:
                link.flush()
            self._links.clear()

    def begin_blocked(self, at: Destination) -> None:
        # Within a wait there may be another: what is attended to meanwhile hands on what another task has emitted.
        self._blocked_outer.append(self._blocked_at)
        if self._blocked_at is None:
            self.blocked_since = time.monotonic()
        self.blocked_on, self._blocked_at = at.task, at

    def end_blocked(self) -> None:
        outer = self._blocked_outer.pop()
        if outer is not None:
            self.blocked_on, self._blocked_at = outer.task, outer
            return
        now = time.monotonic()
        self.blocked += now - self.blocked_since
        if self.busy_since:  # first: who sees that it waits no more must not see for how long it has
            self.busy_since = now
        self.blocked_since = 0.0
        self.blocked_on, self._blocked_at = 0, None

    def attend(self) -> None:
        while self._urgent:
            self._do_urgent()
        if self._abandon:
            raise ExecutorStopped

    def _do_urgent(self) -> None:
        try:
            what = self._urgent.popleft()
        except IndexError:  # done while it waited for room
            return
        what()

    # ------------------------------------------------------------------ on the thread, for `Hands`

    def begin(self, task: Task) -> None:
        """Run a task that nobody has run yet."""
        self.seat(task)
        # A task that had finished in an earlier process is only here to say so: its component does nothing any more.
        if not task.prepared and not task.marks.finished:
            try:
                self.prepare(task)
            except TaskReleased:
                self._do_deferred(task)
                return
            except ExecutorStopped:
                raise
            except BaseException as e:
                task.failures.give_up(
                    f"prepare() of {str(task.spec.id)!r} (task {task.id}) raised {described(e)}",
                    user_traceback(e),
                )
        task.give_to(self)
        task.marks.look_for_checkpoint()
        if task.marks.finished:
            # It was finished in an earlier process. Whoever consumes it may be new as well, and waits for its End.
            task.marks.say_again(tuple(task.outputs.outs))

    def seat(self, task: Task) -> None:
        """What is done with a task from now on is done here, although it does not run yet."""
        with task.guard:
            task.executor = self
            task.outputs.give_to(self)

    def prepare(self, task: Task) -> None:
        """Prepare it: as the present call into user code."""
        self.current, self.busy_since = task, time.monotonic()
        try:
            task.prepare()
        finally:
            self._returned()

    def _returned(self) -> None:
        """From the present call into user code."""
        with self.turn:
            self.current, self.busy_since = None, 0.0

    def empty(self, task: Task) -> None:
        """Hand on and write what it has emitted: another executor is to run it."""
        self._flushing.forget(task)
        if self.abreast.ticket:
            self.call(self.abreast.look)
        self.hand_on(task, task.outputs.flush)
        self.flush_links()

    def forget(self, task: Task) -> None:
        """There is nothing to be done for it any more."""
        self._flushing.forget(task)
        if self.abreast.ticket:
            self.call(self.abreast.look)
        self.unread.tasks.pop(task.id, None)
        # Its timers, too: it would be kept until then, for a day if a spout has said so.
        self._timers = [timer for timer in self._timers if timer[2] is not task]
        heapq.heapify(self._timers)

    # ------------------------------------------------------------------ on the thread

    def wake_later(self, at: float, task: Task) -> None:
        """Wake the task at that monotonic time, if it is still ours then. On the executor's thread only."""
        heapq.heappush(self._timers, (at, next(self._order), task))

    def _run(self) -> None:
        self.cpu.begin()
        try:
            self._told(self._loop)
            self._over = True  # first: what comes from here on is passed on by whoever brings it
            self._pass_on()
            for task in self._hands.close(self):
                self.current, self.busy_since = task, time.monotonic()
                if not self._abandon and not task.closed:
                    self._told(task.outputs.flush)
                task.close()
            self._returned()
            self.flush_links()
        finally:
            self._on_ended(self)

    def _told(self, what: Callable[[], None]) -> None:
        """Do it; an error that nobody expects fails the topology: its thread and all its tasks end, which else nobody would hear of."""
        try:
            what()
        except BaseException as e:
            if isinstance(e, ExecutorStopped) and (self._over or self._abandon):
                return
            log.exception("executor %s cannot go on", self.id)
            tasks = [t for t in self.tasks.values() if not t.closed]
            for task in tasks[:1]:
                task.failures.give_up(
                    f"Executor {self.id} was ended, with {len(tasks)} tasks, by {described(e)}",
                    user_traceback(e),
                )

    def _pass_on(self) -> None:
        """At the end: what stands in the queue and belongs to somebody else goes there; calls are still carried out."""
        while True:
            try:
                item = self.ready.get_nowait()
            except queue.Empty:
                return
            if item.__class__ is not Task:
                self._told(item)
            elif item.executor is not None and item.executor is not self:
                item.executor.ready.put(item)

    def _loop(self) -> None:
        ready, clock, unread, flushing = self.ready, time.monotonic, self.unread.tasks, self._flushing
        rested = clock()
        while not self._stopping:
            while self._urgent:
                self._do_urgent()
            try:
                item = ready.get_nowait()
            except queue.Empty:
                if flushing.tasks and clock() >= flushing.at:
                    flushing.flush()
                self.flush_links()
                if unread:
                    self.unread.read_on()
                    time.sleep(0)  # others first
                    continue
                item = None  # the last task may go elsewhere meanwhile, and would be kept
                self._idle_since = began = clock()
                timeout = max(0.0, self._timers[0][0] - began) if self._timers else None
                if flushing.tasks:
                    left = max(0.0, flushing.at - began)
                    timeout = left if timeout is None else min(left, timeout)
                try:
                    item = ready.get(timeout=timeout)  # it has looked before: elastic/queues.py
                except queue.Empty:
                    item = _nothing
                self._idle_since = 0.0
                rested = clock()
                self.idle += rested - began
            if item.__class__ is Task:
                if self._haste.on:
                    self._haste.rest()
                self._run_task(item)
            else:
                item()
            if unread:
                self.unread.read_on()  # also when there is much to do: what is read ahead costs a tenth of what is looked for key by key
            now = clock()
            if self._timers:
                self._wake(now)
            if flushing.tasks and now >= flushing.due:
                flushing.flush()
            elif self._links:
                self.flush_links()
            if self._retiring and self._hands.may_end(self):
                return
            if now - rested > YIELD_EVERY:
                time.sleep(YIELD_FOR)
                rested = clock()

    def _wake(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            task = heapq.heappop(self._timers)[2]
            if task.executor is self:
                task.wake()

    def _run_task(self, task: Task) -> None:
        if task.executor is not self:
            # It changed hands while it stood in this queue.
            if task.executor is not None:
                task.executor.ready.put(task)
            return
        if self.abreast.ticket and self.abreast.waits(task):
            return
        began, brake = time.monotonic(), task.brake
        if brake is not None and (at := brake.next_turn()) > began and not task.stopped:
            task.hold()
            self.wake_later(at, task)
            return
        if task.pace.is_due(began):
            task.pace.note(began, task.executed)
        executed = task.executed
        self.current, self.busy_since = task, began
        try:
            again = task.run(began + self._slice_of(brake))
        except TaskReleased:
            again = False
        except ExecutorStopped:
            raise
        except BaseException as e:
            task.failures.give_up(
                f"Task {task.id} of {str(task.spec.id)!r} was ended by {described(e)}", user_traceback(e)
            )
            again = True  # to empty its queue
        finally:
            with self.turn:  # as `_returned`, in a call less for each turn of a task
                self.current, self.busy_since = None, 0.0
        if brake is not None:
            brake.had(began, task.executed - executed)
        if task.deferred:
            self._do_deferred(task)
        outputs = task.outputs
        flushing = self._flushing
        if began >= flushing.starving_at and not task.stopped and outputs.starving():
            flushing.flush_starving(task)
        if task.stopped:
            return
        if outputs.pending():
            flushing.note(task, began)
        if again:
            self.ready.put(task)

    def _slice_of(self, brake: Brake | None) -> float:
        """Seconds after which the task's turn is over."""
        if brake is not None and brake.on:
            return TURN
        return SLICE / SHORTER if self._haste.on else SLICE


def _stand_still(task: Task, told: Callable[[], None]) -> None:
    """On the thread of whoever runs the task by now: it may be another than the one that was asked to stop it."""
    executor = task.executor
    if executor is not None and task.stopping is told:
        executor.hand_on(task, task.outputs.flush_all)
        if left := task.outputs.waiting():
            task.context.warn(
                "hook-answers-itself",
                f"a hook that is told of what is emitted emits for each time that it is: {left} tuples are left where the task stood still",
            )
    task.stand_still(told)


def _raise(error: Exception) -> None:
    raise error


def _nothing() -> None:
    """Wakes the loop."""
