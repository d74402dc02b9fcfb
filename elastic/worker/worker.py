"""A worker: the tasks, executors and links of one process, changed in place while they run.

`apply` is the thread-level update (TLU) of N-Storm 2019, section III.C: the difference between the executors that run and those that
the allocation names is made true, and the ways to all tasks are refreshed; executors that are in both do not notice.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from elastic.api.context import TopologyContext
from elastic.api.settings import setting
from elastic.errors import ElasticError, ExecutionError
from elastic.model.assignment import ExecutorId
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, Epoch, Incarnation, TaskId, WorkerId, worker_of
from elastic.model.records import Allocation, TopologyStatus
from elastic.model.topology import TopologySpec
from elastic.transport.base import Transport
from elastic.worker import wire
from elastic.worker.batch import Batch, Mark, Streams
from elastic.worker.components import ComponentSource
from elastic.worker.executor import Executor
from elastic.worker.failures import DETAIL, MESSAGE, described, plain, user_traceback
from elastic.worker.leaving import Leaving
from elastic.worker.outputs import Outputs, Subscription
from elastic.worker.task import Task
from elastic.worker.ways import Ways


class WorkerListener(Protocol):
    """What a worker tells whoever runs it. Called on any of its threads; must not block."""

    def on_event(self, event: Event) -> None: ...

    def on_progress(self) -> None:
        """`finished`, `drained`, `started` or `epoch` of the worker have changed."""

    def on_failure(self, reason: str, trace: str) -> None:
        """A task gave up: the topology fails."""


class Worker:
    """One worker of a topology.

    Args:
        transport: The links to the other workers; None when there are none.
    """

    def __init__(
        self,
        spec: TopologySpec,
        id: WorkerId,
        incarnation: Incarnation,
        components: ComponentSource,
        listener: WorkerListener,
        transport: Transport | None = None,
    ) -> None:
        self.spec = spec
        self.id = id
        self.incarnation = incarnation
        self.epoch = Epoch(0)
        self.failure = ""
        self.tasks: dict[int, Task] = {}
        self.executors: dict[ExecutorId, Executor] = {}
        self._components = components
        self._listener = listener
        self._transport = transport
        self._streams = Streams(spec)
        self._lock = threading.RLock()
        self._hands = threading.Lock()
        self.ways = Ways(id, self.tasks, transport)
        self._early: dict[int, list[Batch | Mark]] = {}
        self._leaving = Leaving(self)
        self._births = itertools.count(1)
        self._finished: set[int] = set()
        self._started: set[int] = set()
        self._lost_state: set[int] = set()
        self._ended = threading.Condition(self._lock)
        self._ending: set[Executor] = set()
        self._status = TopologyStatus.ACTIVE
        self._closed = False
        if transport is not None:
            transport.start(self)

    # ------------------------------------------------------------------ allocation

    def apply(self, allocation: Allocation) -> None:
        """Make an allocation true. Returns when all changes are under way; they take effect between two slices of work.

        Raises:
            ElasticError: A component cannot be made.
        """
        with self._lock:
            if self._closed or allocation.epoch < self.epoch:
                return
            self._finished |= set(allocation.finished)
            wanted = {ExecutorId(ComponentId(c), TaskId(a), TaskId(b)) for c, a, b in allocation.executors}
            self._update_executors(wanted, allocation)
            self._refresh_connections(allocation)
            self._set_status(allocation)
            changed = allocation.epoch != self.epoch
            self.epoch = allocation.epoch
        if changed:
            self._listener.on_progress()

    def _update_executors(self, wanted: set[ExecutorId], allocation: Allocation) -> None:
        new = wanted - self.executors.keys()
        kill = self.executors.keys() - wanted
        here = {t: e for e in wanted for t in e.tasks()}
        new_tasks: dict[ExecutorId, list[Task]] = {}
        for id in sorted(new):
            for number in id.tasks():
                if number not in self.tasks:
                    made = self._made(number, id)
                    self.tasks[number] = made
                    new_tasks.setdefault(id, []).append(made)
        born = [t for tasks in new_tasks.values() for t in tasks]
        for one in born:
            self.ways.to(one.id).to_local(one)
        for one in born:
            one.outputs.refresh()  # before its first tuple: who is here is known now
        for id in sorted(new):
            self._start_executor(id)
        for id in sorted(wanted):
            for number in id.tasks():
                if self._leaving.keep(
                    self.tasks[number]
                ):  # it went elsewhere, and comes back before it was closed
                    self.executors[id].take(self.tasks[number])
        for id, tasks in new_tasks.items():
            self._started |= {t.id for t in tasks if t.spec.stateful}
            self.executors[id].adopt(tasks)
        for old in sorted(kill):
            executor = self.executors[old]
            gone = []
            for number in old.tasks():
                task = self.tasks.get(number)
                if task is None:
                    continue
                target = here.get(TaskId(number))
                if target is not None:
                    self.executors[target].take(task)
                else:
                    gone.append(task)
            del self.executors[old]
            if gone:
                self._leaving.add(executor, gone, setting("kill_delay", self.spec.config))
            else:
                self._ending.add(executor)
                executor.retire()
        for id in wanted - new:
            # An executor whose range stays may still get tasks that another one had.
            for number in id.tasks():
                if self.tasks[number].wanted_by is not self.executors[id]:
                    self.executors[id].take(self.tasks[number])

    def _start_executor(self, id: ExecutorId) -> None:
        config = self._config(id.component)
        executor = Executor(id, setting("linger", config), self._on_executor_ended, self._hands)
        self.executors[id] = executor
        executor.start()

    def _stop_executor(self, executor: Executor, *, abandon: bool = False) -> None:
        if not executor.ended:
            self._ending.add(executor)
        executor.stop(abandon=abandon)

    def _on_executor_ended(self, executor: Executor) -> None:
        with self._ended:
            executor.ended = True
            self._ending.discard(executor)
            self._ended.notify_all()

    def _config(self, component: ComponentId) -> dict[str, Any]:
        return {**self.spec.config, **self.spec.component(component).config}

    def _made(self, number: int, executor: ExecutorId) -> Task:
        try:
            return self._make_task(number, executor)
        except ElasticError:
            raise
        except Exception as e:
            raise ExecutionError(
                f"Task {number} of {str(executor.component)!r} cannot be made: {described(e)}\n{user_traceback(e)}"
            ) from e

    def _make_task(self, number: int, executor: ExecutorId) -> Task:
        spec = self.spec.component(executor.component)
        config = self._config(spec.id)
        context = TopologyContext(self.spec, spec.id, number, self.id, config)
        hooks = list(self._components.hooks(spec.id))
        subscriptions: dict[Any, list[Subscription]] = {
            self._streams.named(spec.id, s.id): [] for s in spec.outputs
        }
        for consumer, i in self.spec.consumers(spec.id):
            n = consumer.inputs.index(i)
            subscriptions[self._streams.named(spec.id, i.stream)].append(
                Subscription(
                    consumer, n, i, self.spec.tasks_of(consumer.id), self._components.grouping(consumer.id, n)
                )
            )
        on_emit: Callable[[str, int], None] | None = None
        if hooks:

            def on_emit(stream: str, count: int) -> None:
                for hook in hooks:
                    try:
                        hook.on_emit(context, stream, count)
                    except Exception as e:
                        task.failures.hook_failed("on_emit", e)

        outputs = Outputs(
            number,
            spec,
            self._streams,
            subscriptions,
            self.ways.to,
            setting("batch_rows", config),
            on_emit,
            self._births,
        )
        sources = frozenset(t for i in spec.inputs for t in self.spec.tasks_of(i.source))
        destination = self.ways.to(number)
        task = Task(
            number,
            spec,
            self._components.component(spec.id),
            context,
            outputs,
            sources,
            hooks,
            self,
            destination.signal,
            config,
        )
        outputs.on_unsendable = task.failures.unsendable
        if number in self._lost_state:
            context.gauge("state_lost").set(1.0)
        if number in self._finished:
            task.finished = True
        for item in self._early.pop(number, ()):
            task.force(item)
        return task

    # ------------------------------------------------------------------ ways

    def _refresh_connections(self, allocation: Allocation) -> None:
        changed = self.ways.refresh(allocation)
        for worker in changed.renewed:
            self.event(
                "peer-renewed",
                f"Worker {worker} is a new process; what it had not received is counted as lost.",
                worker=worker,
            )
        for task in self.tasks.values():
            task.outputs.refresh()
            if changed.targets and (task.finished or task.drained):
                self._on_task_thread(task, functools.partial(task.say_again, changed.targets))

    def _on_task_thread(self, task: Task, what: Callable[[], None]) -> None:
        executor = task.executor
        if executor is not None:
            executor.call(what)

    def _set_status(self, allocation: Allocation) -> None:
        self._status = allocation.status
        active = allocation.status == TopologyStatus.ACTIVE
        for task in self.tasks.values():
            if task.spout is not None and not self._leaving.has(task):
                task.spout.set_active(active, allocation.drain)

    # ------------------------------------------------------------------ Receiver (transport threads)

    def on_frame(self, source: Incarnation, target: int, payload: memoryview) -> None:
        try:
            item = wire.decode(payload, self._streams, source)
        except Exception as e:
            self.event(
                "frame-unreadable",
                f"A frame from {source} for task {target} could not be read: {e}",
                Severity.ERROR,
                task=target,
            )
            self._consumed(source, target, len(payload))
            return
        task = self.tasks.get(target)
        if task is None:
            with self._lock:
                task = self.tasks.get(target)
                if task is None:
                    # The sender knew of the new placement first. Its window bounds what can come.
                    self._early.setdefault(target, []).append(item)
                    return
        task.force(item)

    def on_room(self, peer: Incarnation, target: int) -> None:
        self.ways.signal(target)

    def on_lost(self, peer: Incarnation, frames: int, size: int) -> None:
        if frames:
            self.event(
                "frames-lost", f"{frames} frames ({size:,} bytes) for worker {worker_of(peer)}: not confirmed before its process ended.",
                Severity.WARNING, worker=worker_of(peer), details={"frames": frames, "bytes": size},
            )  # fmt: skip

    def _consumed(self, source: Incarnation | str, target: int, size: int) -> None:
        if self._transport is not None and source:
            self._transport.consumed(Incarnation(source), target, size)

    # ------------------------------------------------------------------ TaskListener (executor threads)

    def on_consumed(self, batch: Batch | Mark, task: Task) -> None:
        if batch.origin:
            self._consumed(batch.origin, task.id, batch.size)

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

    def remove_task(self, task: Task) -> None:
        """A task that went elsewhere has been closed."""
        with self._lock:
            if self.tasks.get(task.id) is task:
                del self.tasks[task.id]

    def close(self, grace: float) -> bool:
        """Stop all executors and close the transport.

        Args:
            grace: Seconds that executors have to end in an orderly way.

        Returns:
            Whether all have ended; False: a call into user code does not return.
        """
        with self._ended:
            self._closed = True
            for executor in {*self.executors.values(), *self._leaving.executors(), *self._ending}:
                self._stop_executor(executor, abandon=True)
            self.executors.clear()
            self.ways.signal_all()
            deadline = time.monotonic() + grace
            while self._ending and (left := deadline - time.monotonic()) > 0:
                self._ended.wait(left)
            done = not self._ending
        self._leaving.close()
        if self._transport is not None:
            self._transport.close()
        return done
