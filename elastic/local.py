"""Local mode: a topology in this process, without any service (Storm-MC 2015, section 4.2)."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from elastic.api.builder import Topology, TopologyBuilder
from elastic.api.settings import setting
from elastic.errors import AlreadyExists, DeadlineExceeded, ElasticError, ExecutionError, NotFound, Refused
from elastic.model.assignment import ExecutorId
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, worker_id
from elastic.model.load import WorkerReport
from elastic.model.records import Allocation, TopologyStatus
from elastic.model.split import split_tasks
from elastic.model.words import counted
from elastic.worker.executing.components import LocalComponents
from elastic.worker.report import Measurer
from elastic.worker.watchdog import Watchdog
from elastic.worker.worker import Worker

log = logging.getLogger("elastic.local")
_numbers = itertools.count(1)


class LocalRun:
    """A topology that runs in this process.

    Attributes:
        name: The topology's name.
        events: What has happened so far (the newest 1,000).
    """

    def __init__(self, topology: Topology, on_event: Callable[[Event], None] | None = None) -> None:
        self.name = topology.name
        self.spec = topology.spec
        self.events: list[Event] = []
        self._on_event = on_event
        self._changed = threading.Condition()
        self._wanted = threading.Lock()  # over changes of what follows, each with its allocation
        self._stopped = False
        self._ending = threading.Lock()  # over the end of its threads, for which whoever comes second waits
        self._ended = False
        self._left: ExecutionError | None = None
        self._failure: tuple[str, str] | None = None
        self._status = TopologyStatus.ACTIVE
        self._drain = 0
        self._epoch = 0
        self._started = time.monotonic()
        self._executors = {c.id: c.executors for c in topology.spec.components}
        self.worker = Worker(
            topology.spec,
            worker_id(topology.spec.name, NodeId("local"), 0),
            Incarnation(f"{topology.name}@local/0#{next(_numbers)}"),
            LocalComponents(topology),
            self,
        )
        self._measurer = Measurer(self.worker)
        self._watchdog = Watchdog(self.worker, setting("watchdog", topology.spec.config))
        self._watchdog.start()  # first: user code is called where tasks are made
        try:
            self.worker.apply(self._allocation())
        except BaseException:
            self._watchdog.close()
            self.worker.close(1.0)
            raise

    # ------------------------------------------------------------------ what users call

    def wait(self, timeout: float | None = None) -> LocalRun:
        """Wait until all spouts are exhausted and everything they emitted has been worked off.

        Args:
            timeout: Seconds, or None for as long as it takes.

        Returns:
            This run.

        Raises:
            ExecutionError: A task gave up; the user's traceback is in the message. Or it was stopped.
            DeadlineExceeded: It did not end in that time. The topology goes on running.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self.finished:
                self._check()
                if self._stopped:
                    raise ExecutionError(f"Topology {self.name!r} was stopped before it had finished.")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineExceeded(f"Topology {self.name!r} was still running after {timeout:g} s.")
                # A bounded wait, so that Ctrl-C is noticed on every platform.
                self._changed.wait(1.0 if left is None else min(left, 1.0))
            self._check()
        return self

    @property
    def finished(self) -> bool:
        """Whether all tasks have worked off all they will ever get."""
        return len(self.worker.history.finished()) == self.spec.task_count

    @property
    def failed(self) -> bool:
        """Whether a task gave up."""
        return self._failure is not None

    @property
    def stopped(self) -> bool:
        """Whether it was stopped."""
        return self._stopped

    @property
    def failed_tuples(self) -> int:
        """How many tuples' execution has raised."""
        return sum(t.failures.count for t in self.worker.tasks.values())

    def deactivate(self, timeout: float = 10.0) -> bool:
        """Stop asking spouts, and wait until what they emitted has been worked off.

        Args:
            timeout: Seconds to wait.

        Returns:
            Whether everything has been worked off; otherwise it still goes on.

        Raises:
            ExecutionError: A task gave up. Or it was stopped.
        """
        with self._wanted:
            self._status, self._drain = TopologyStatus.INACTIVE, self._drain + 1
            allocation = self._allocation()
        self.worker.apply(allocation)
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.worker.drained() < allocation.drain and not self.finished:
                self._check()
                if self._stopped:  # nothing more is worked off
                    raise ExecutionError(
                        f"Topology {self.name!r} was stopped before everything had been worked off."
                    )
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def activate(self) -> None:
        """Ask spouts again."""
        with self._wanted:
            self._status = TopologyStatus.ACTIVE
            allocation = self._allocation()
        self.worker.apply(allocation)

    def rebalance(self, **executors: int) -> None:
        """Regroup the tasks of components among another number of threads, while they run: `rebalance(count=4)`.

        Returns when the change is under way; it takes effect between two slices of work (N-Storm 2019, section III.C).

        Args:
            executors: How many executors each component is to have, by its name.

        Raises:
            NotFound: There is no such component.
            Refused: It cannot have that number.
        """
        for name, number in executors.items():
            if name not in self._executors:
                raise NotFound(f"Topology {self.name!r} has no component {name!r}.")
            tasks = self.spec.component(ComponentId(name)).tasks
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= tasks:
                raise Refused(
                    f"Component {name!r} has {counted(tasks, 'task')}: it can have 1 to {counted(tasks, 'executor')}, not {number!r}."
                )
        with self._wanted:
            self._executors.update({ComponentId(n): e for n, e in executors.items()})
            allocation = self._allocation()
        self.worker.apply(allocation)

    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Measure now.

        Returns:
            By component: `executed`, `emitted`, `failed`, `queued` (tuples), and what the component registered, summed over
            its tasks.
        """
        summed: dict[str, dict[str, float]] = {}
        for load in self.report().tasks:
            into = summed.setdefault(load.component, {})
            own = {
                "executed": load.executed,
                "emitted": load.emitted,
                "failed": load.failed,
                "queued": load.queued,
                **load.custom,
            }
            for name, value in own.items():
                into[name] = into.get(name, 0) + value
        return summed

    def report(self) -> WorkerReport:
        """All measurements, as a worker in a cluster reports them."""
        return self._measurer.report()

    def stop(self) -> None:
        """Stop at once; safe to call twice.

        Raises:
            ExecutionError: A call into user code did not return within `stop_grace` seconds; its stack is in the message.
        """
        if self._stopped:
            return
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._end()
        if self._left is not None:
            raise self._left

    def _end(self) -> None:
        with self._ending:
            if self._ended:
                return
            self._ended = True
            self._watchdog.close()
            if not self.worker.close(setting("stop_grace", self.spec.config)):
                self._left = ExecutionError(
                    f"Topology {self.name!r} was stopped, but a call into user code does not return:\n{self._watchdog.stacks()}",
                    remedy="The thread is left behind; it ends with this process.",
                )

    # ------------------------------------------------------------------ WorkerListener

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        del self.events[:-1000]
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:  # what is told must not stop what it is told of
                log.exception("on_event of topology %r raised at %s", self.name, event.kind)

    def on_progress(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def on_failure(self, reason: str, trace: str) -> None:
        with self._changed:
            first, self._failure = self._failure is None, self._failure or (reason, trace)
            self._changed.notify_all()
        if first:  # as in a cluster, nothing of it goes on. Not here: it is one of its threads that tells
            threading.Thread(target=self._end, name=f"{self.name}-end", daemon=True).start()

    def on_startable(self) -> None:
        """Whatever an allocation asks for is started with it here."""

    def on_fatal(self, reason: str) -> None:
        self.on_failure(reason, "")

    def _check(self) -> None:
        if self._failure is not None:
            reason, trace = self._failure
            raise ExecutionError(
                f"{trace}\nTopology {self.name!r} failed: {reason}"
                if trace
                else f"Topology {self.name!r} failed: {reason}"
            )

    def _allocation(self) -> Allocation:
        """What is wanted now, as the next epoch. The worker leaves out what comes to it after a later one, which has all of it."""
        self._epoch += 1
        executors: list[ExecutorId] = []
        for c in self.spec.components:
            executors += split_tasks(c.id, self.spec.tasks_of(c.id), self._executors[c.id])
        return Allocation(
            topology=self.spec.name,
            worker=self.worker.id,
            epoch=Epoch(self._epoch),
            version=self._epoch,
            status=self._status,
            drain=self._drain,
            executors=tuple((e.component, e.first, e.last) for e in executors),
            places=((TaskId(1), TaskId(self.spec.task_count), self.worker.id),),
        )


class LocalCluster:
    """Runs topologies in this process; for tests, and for one machine. A context manager: it stops what still runs.

    Example:
        with LocalCluster() as cluster:
            cluster.submit(topology).wait(timeout=30)
    """

    def __init__(self) -> None:
        self._runs: dict[str, LocalRun] = {}
        # Over looking whether a name is free, and taking it. User code that is copied there may submit others.
        self._submitting = threading.RLock()

    def submit(
        self, topology: Topology | TopologyBuilder, on_event: Callable[[Event], None] | None = None
    ) -> LocalRun:
        """Start a topology. Those that have finished are closed; what they have measured can be asked for all the same.

        Args:
            topology: What `TopologyBuilder.build()` made; or the builder, which is built.
            on_event: Told what happens, on any thread; must not block.

        Returns:
            The run.

        Raises:
            AlreadyExists: One with that name is running here.
            ConfigError: Its setting `elastic` names what no cluster would know either.
        """
        if isinstance(topology, TopologyBuilder):
            topology = topology.build()
        if topology.spec.config.get("elastic"):
            from elastic.nimbus.balancing.elastic_lines import check_setting  # only for who chooses a policy

            check_setting(topology.spec)
        with self._submitting:
            running = self._runs.get(topology.name)
            if running is not None and not (running.finished or running.failed or running.stopped):
                raise AlreadyExists(
                    f"A topology named {topology.name!r} is running in this LocalCluster.",
                    remedy="Stop it, or use topology.renamed(...).",
                )
            # Those of other names that have ended, too: each has threads, and nothing more to do with them.
            for name in [n for n, r in self._runs.items() if r is running or r.finished or r.stopped]:
                self._runs.pop(name).stop()
            run = self._runs[topology.name] = LocalRun(topology, on_event)
            return run

    def close(self) -> None:
        """Stop everything. Safe to call twice."""
        with self._submitting:
            runs, self._runs = list(self._runs.values()), {}
        first: ElasticError | None = None
        for run in runs:
            try:
                run.stop()
            except ElasticError as e:  # the others are stopped all the same
                first = first or e
        if first is not None:
            raise first

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ElasticError as e:
            if error is None:
                raise
            error.add_note(str(e))  # what was under way already says why this ends


def run(
    topology: Topology | TopologyBuilder,
    *,
    timeout: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> LocalRun:
    """Run a topology to its end in this process, without any service.

    Args:
        topology: What `TopologyBuilder.build()` made; or the builder, which is built.
        timeout: Seconds until it is stopped, or None.
        on_event: Told what happens, on any thread; must not block.

    Returns:
        The run, which has ended.

    Raises:
        ExecutionError: A task gave up.
        DeadlineExceeded: It did not end in time.
    """
    with LocalCluster() as cluster:
        return cluster.submit(topology, on_event).wait(timeout)
