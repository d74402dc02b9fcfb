"""A task: a component's copy, its queue, its outputs, and how far the marks of its sources have come.

    WAITING -> (prepare) -> RUNNING -> (End from all sources, or exhausted) -> (finish, own End) -> FINISHED
    any of these -> (cleanup) -> CLOSED

A task belongs to one executor at a time; only that executor's thread runs it. It changes hands between two slices of work
(`Hands.take`): the object, its queue and its outputs stay what they are, so nothing is copied and nothing is lost.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elastic.api.components import Bolt, Component, Spout, TaskHook, overrides
from elastic.api.context import TopologyContext
from elastic.api.settings import setting
from elastic.errors import ExecutionError
from elastic.model.events import Severity
from elastic.model.topology import ComponentSpec
from elastic.worker.content.engine import EngineState, SpoutState, metrics_of, put_metrics
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.bolts import BoltDriver
from elastic.worker.executing.failures import Failures
from elastic.worker.executing.marks import MarkDriver
from elastic.worker.executing.pace import Pace
from elastic.worker.executing.part import weakly
from elastic.worker.executing.spouts import SpoutDriver
from elastic.worker.executing.task_queue import TaskQueue
from elastic.worker.executing.wiring import TaskListener, Unheard, wire_up
from elastic.worker.tuples.batch import Batch

if TYPE_CHECKING:
    from elastic.worker.executing.brake import Brake
    from elastic.worker.executing.executor import Executor

VECTOR_ROWS = 32
"""A task that takes record batches may have this many times more rows waiting: they are bytes in columns, not objects."""


class Task(TaskQueue):
    """One task in this worker.

    Args:
        sources: All tasks of all components that it subscribes to; empty for a spout.
        room: Called when `offer` or `has_room` said no before and there is room again; without any lock.
    """

    def __init__(
        self,
        id: int,
        spec: ComponentSpec,
        component: Component,
        context: TopologyContext,
        outputs: Outputs,
        sources: frozenset[int],
        hooks: Sequence[TaskHook],
        listener: TaskListener,
        room: Callable[[], None],
        config: Mapping[str, Any],
    ) -> None:
        self.id = id
        self.spec = spec
        self.component = component
        self.context = context
        self.outputs = outputs
        capacity: int = setting("queue_rows", config)
        if spec.vector:
            capacity *= VECTOR_ROWS
        super().__init__(capacity, max(1, capacity * spec.executors // spec.tasks), room)
        # Who is responsible for it, and who is to be next: under the lock of `Hands`.
        self.holder: Executor | None = None
        self.wanted_by: Executor | None = None
        self.held = False  # scheduled, but its executor waits with its turn
        self.brake: Brake | None = None  # of a move that copies its state
        self.pace = Pace()
        self.executed = 0
        self.prepared = False
        self.closed = False
        # Puts in what a checkpoint has of it, after `prepare`.
        self.begins_with: Callable[[], None] | None = None
        self.stopping: Callable[[], None] | None = None  # called when it does, on the executor's thread
        self.deferred: deque[Callable[[], None]] = deque()  # to be called between two of its tuples, there
        self.handed_over = 0.0  # when its last executor let go of it, for the pause that a regrouping costs
        self.marks = MarkDriver(self, sources, listener)
        self._hooks = tuple(hooks)
        self._listener = listener
        self._tick_interval: float | None = setting("tick_interval", config)
        self._tick_at = 0.0  # monotonic time of the next tick
        self.spout = SpoutDriver(self, component, config) if isinstance(component, Spout) else None
        on_error = [h for h in self._hooks if overrides(h, "on_error", TaskHook)]
        self.failures = Failures(self, on_error, setting("max_errors", config), listener)
        on_execute = [h for h in self._hooks if overrides(h, "on_execute", TaskHook)]
        self.bolt = BoltDriver(self, component, on_execute) if isinstance(component, Bolt) else None
        driver = self.spout or self.bolt
        assert driver is not None
        self._work = driver.run
        context.on_warning = weakly(self._warn)
        wire_up(component, context, outputs.calls, spec)

    # ------------------------------------------------------------------ from any thread

    def _schedule(self, executor: Executor) -> None:
        self.scheduled = True
        executor.ready.put(self)

    def wake(self) -> None:
        """Have the task run soon although nothing came for it."""
        with self._lock:
            if (self.held or not self.scheduled) and self.executor is not None:
                self.held, self.scheduled = False, True
                self.executor.ready.put(self)

    def call(self, what: Callable[[], None]) -> None:
        """Have something done between two of its tuples, on its executor's thread.

        Raises:
            ExecutionError: Nobody runs it.
        """
        executor = self.executor
        if executor is None:
            raise ExecutionError(f"task {self.id} has not begun here")
        executor.on_task(self, what)

    def between_slices(self, what: Callable[[], None]) -> None:
        """Have something done between two slices of work, on the thread of whoever runs it by then. Nothing is, while nobody does."""
        executor = self.executor

        def do() -> None:
            if self.executor is executor:
                what()
            else:  # it changed hands meanwhile
                self.between_slices(what)

        if executor is not None:
            executor.call(do)

    def give_to(self, executor: Executor | None) -> None:
        """Make `executor` the one that runs this task. Called by the present one between two slices, or when there is none."""
        with self._lock:
            self.executor = executor
            self.outputs.give_to(executor)
            # In a former executor's ready queue it may still stand; that one passes it on.
            if executor is not None and (self.held or not self.scheduled):
                self.held, self.scheduled = False, True
                executor.ready.put(self)

    @property
    def slowed(self) -> bool:
        """Whether it executes less than it could, as it is about to move."""
        brake = self.brake  # once: the move may be over in between
        return brake is not None and brake.on

    @property
    def hooks(self) -> tuple[TaskHook, ...]:
        """Its task hooks."""
        return self._hooks

    # ------------------------------------------------------------------ from the executor's thread only

    def prepare(self) -> None:
        """Prepare the component. Raises what user code raises."""
        for hook in self._hooks:
            hook.prepare(self.context)
        self.component.prepare(self.context)
        self.prepared = True
        if self._tick_interval is not None:
            self._tick_at = time.monotonic() + self._tick_interval
            self._arm()
        if self.begins_with is not None:
            begins_with, self.begins_with = self.begins_with, None
            begins_with()

    def _arm(self) -> None:
        if self._tick_at and self.executor is not None:
            self.executor.wake_later(self._tick_at, self)

    def run(self, until: float) -> bool:
        """Work for a slice of time.

        Args:
            until: The monotonic time of the slice's end.

        Returns:
            Whether there is something left to do.
        """
        if self.stopped:
            return False
        if self.closed or self.failures.broken:
            self.discard()
            return False
        if self.handed_over:
            self._taken_over()
        if (
            self._tick_at
            and time.monotonic() >= self._tick_at
            and self._tick_interval
            and not self.marks.finished
        ):
            self._tick_at = max(self._tick_at, time.monotonic() - self._tick_interval) + self._tick_interval
            self._arm()
            # A bolt may be in the middle of a batch.
            source, self.context.source = self.context.source, None
            self.failures.guarded(self.component.tick)
            self.context.source = source
        return self._work(until)

    def stand_still(self, told: Callable[[], None]) -> None:
        """Stop between two tuples, which is now: what was emitted has been handed on. Nothing, if that is not wanted any more. On the
        executor's thread.

        Args:
            told: What was asked for. If another stop is wanted by now, what was emitted is to be handed on before that one, too.
        """
        with self._lock:  # whoever lets it go on comes before this or after it, never in between
            if self.stopping is not told:
                return
            self.stopping = None
            if self.closed:
                return
            self.stopped = self.scheduled = True
            self.held = False
        if self.executor is not None and self.executor.abreast.ticket:
            self.executor.call(self.executor.abreast.look)
        told()

    def hold(self) -> None:
        """It waits with its next turn until somebody wakes it. By its executor, which has just taken it from those that are ready."""
        with self._lock:
            self.held = True

    def go_on(self) -> None:
        """End of standing still. From any thread."""
        with self._lock:
            self.stopping = None
            if self.stopped:
                self.stopped = False
                self.scheduled = True
                if self.executor is not None:
                    self.marks.say_unsaid()
                    self.marks.look_for_checkpoint()
                    self.executor.abreast.joined(self)
                    self.executor.ready.put(self)

    def _taken_over(self) -> None:
        """First slice in another executor: what that one must know of is said to it."""
        pause, self.handed_over = time.monotonic() - self.handed_over, 0.0
        self._arm()
        if self.spout is not None:
            self.spout.taken_over()
        self._listener.on_task_event(
            self,
            "task-regrouped",
            f"Task {self.id} changed its executor.",
            Severity.INFO,
            {"pause_ms": round(pause * 1e3, 3)},
        )

    def done(self, batch: Batch) -> None:
        """That has been worked off."""
        self.context.source = None
        self.worked_off(batch.count)
        if batch.origin:
            self._listener.on_consumed(batch, self)

    def export(self) -> EngineState:
        """What the engine knows of it. While it stands still; from any thread."""
        with self._lock:
            queue = list(self._queue)
            rest = self.bolt.rest() if self.bolt is not None else None
            if rest is not None:
                queue.insert(0, rest)
        counters, gauges = metrics_of(self.context)
        tick = max(0.0, self._tick_at - time.monotonic()) if self._tick_at else None
        spout = None
        if self.spout is not None:
            spout = SpoutState("_exhausted" in self.component.__dict__, self.spout.drain)
        return EngineState(
            self.executed,
            self.outputs.emitted,
            self.failures.count,
            self.marks.finished,
            self.marks.drained,
            self.marks.heard.open,
            tick,
            spout,
            counters,
            gauges,
            tuple(queue),
            self.marks.checkpoint,
            self.marks.heard.checkpoints,
        )

    def snapshot(self) -> EngineState:
        """What a checkpoint has of it besides its state: nothing of what is under way. On its executor's thread, between two tuples."""
        counters, gauges = metrics_of(self.context)
        tick = max(0.0, self._tick_at - time.monotonic()) if self._tick_at else None
        exhausted = SpoutState("_exhausted" in self.component.__dict__) if self.spout is not None else None
        return EngineState(
            self.executed,
            self.outputs.emitted,
            self.failures.count,
            self.marks.finished,
            tick_left=tick,
            spout=exhausted,
            counters=counters,
            gauges=gauges,
            checkpoint=self.marks.checkpoint,
        )

    def go_back(self, state: EngineState) -> None:
        """Be what it was at a checkpoint. Before it runs, after `prepare`, on its executor's thread: its sources begin anew as well."""
        state = dataclasses.replace(state, drained=self.marks.drained, marks=self.marks.heard.open)
        self.restore(state)

    def restore(self, state: EngineState) -> None:
        """Take over what another copy of this task has exported. Before it runs, after `prepare`, on its executor's thread."""
        self.executed, self.outputs.emitted = state.executed, state.emitted
        self.failures.restored(state.failed, rows=self.spec.vector)
        self.marks.finished, self.marks.drained = state.finished, state.drained
        self.marks.heard.open = state.marks
        self.marks.checkpoint = state.checkpoint
        self.marks.heard.checkpoints = state.checkpoints
        self.marks.restored()
        if state.tick_left is not None and self._tick_interval is not None:
            self._tick_at = time.monotonic() + state.tick_left
            self._arm()
        if state.spout is not None and self.spout is not None:
            if state.spout.exhausted:
                self.component.__dict__["_exhausted"] = True
            self.spout.restore(state.spout.drain)
        put_metrics(self.context, state.counters, state.gauges)
        self.bring(state.queue)

    def leave(self) -> None:
        """It runs elsewhere from now on: what still comes, and what is still emitted, is not its business any more. From any thread."""
        with self._lock:
            self.receivers = {}
        self.outputs.release()

    def close(self) -> None:
        """Clean up. What is still in the queue is given up."""
        if self.closed:
            return
        self.closed = True
        if self.prepared:
            unheard = Unheard(self.component)
            for what in (self.component.cleanup, *(h.cleanup for h in self._hooks)):
                self.failures.told_of_cleanup(what)
            complaint = unheard.complaint(str(self.spec.id), self.id)
            if complaint is not None:
                self._listener.on_task_event(self, "cleanup-emitted", complaint, Severity.WARNING, {})
        self.discard()

    def discard(self) -> None:
        """Empty the queue of a task that executes nothing any more, so that its emitters are not held up."""
        current = self.bolt.give_up() if self.bolt is not None else None
        items = self.emptied()
        if current is not None:
            items.append(current)
        for item in items:
            self._listener.on_consumed(item, self)
        self._room()

    def _warn(self, kind: str, message: str, details: Mapping[str, str | int | float]) -> None:
        self._listener.on_task_event(self, kind, message, Severity.WARNING, details)
