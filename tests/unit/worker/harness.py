"""Several workers of one topology in this process, over the in-memory network, without any service."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from elastic import Bolt, Fields, Spout, StatefulBolt, Topology, TopologyBuilder
from elastic.model.assignment import ExecutorId
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, WorkerId, worker_id
from elastic.model.records import Allocation, TopologyStatus, WorkerInfo
from elastic.model.split import split_tasks
from elastic.transport.memory import MemoryNetwork
from elastic.worker.executing.components import LocalComponents
from elastic.worker.executing.executor import Executor
from elastic.worker.worker import Worker


class InProcess:
    """`workers` workers; tasks are dealt to them by `place` (component, index of the task) -> number of the worker."""

    def __init__(self, topology: Topology, workers: int, place: Any = None) -> None:
        self.topology = topology
        self.spec = topology.spec
        self.network = MemoryNetwork()
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.changed = threading.Condition()
        self.epoch = 0
        self.status = TopologyStatus.ACTIVE
        self.drain = 0
        self.workers: list[Worker] = []
        self.lives = [0] * workers
        self.executors = {c.id: c.executors for c in self.spec.components}
        self.place: dict[int, int] = {}
        self.done: set[int] = set()  # what coordination would remember of processes that have died
        place = place or (lambda component, index: index % workers)
        for c in self.spec.components:
            for index, task in enumerate(self.spec.tasks_of(c.id)):
                self.place[task] = place(c.id, index)
        for n in range(workers):
            self.workers.append(self._make(n))
        self.apply()

    def _make(self, n: int) -> Worker:
        self.lives[n] += 1
        incarnation = Incarnation(f"{self.id(n)}#{self.lives[n]}")
        transport = self.network.transport(incarnation)
        return Worker(self.spec, self.id(n), incarnation, LocalComponents(self.topology), self, transport)

    def id(self, n: int) -> WorkerId:
        return worker_id(self.spec.name, NodeId(f"n{n}"), 0)

    def apply(self, **executors: int) -> None:
        """Tell every worker where everything is, with another number of executors per worker for some components."""
        self.executors.update(executors)  # type: ignore[arg-type]
        self.epoch += 1
        self.done |= {t for x in self.workers for t in x.history.finished()}
        placed: list[tuple[ExecutorId, int]] = []
        for c in self.spec.components:
            runs: list[tuple[int, range]] = []
            for task in self.spec.tasks_of(c.id):
                if runs and runs[-1][0] == self.place[task] and runs[-1][1].stop == task:
                    runs[-1] = (runs[-1][0], range(runs[-1][1].start, task + 1))
                else:
                    runs.append((self.place[task], range(task, task + 1)))
            for n, tasks in runs:
                placed += [(e, n) for e in split_tasks(c.id, tasks, min(len(tasks), self.executors[c.id]))]
        peers = []
        for w in self.workers:
            assert w._transport is not None
            a = w._transport.address
            peers.append(WorkerInfo(w.id, w.incarnation, a.tcp, a.unix, a.boot, 0, Epoch(self.epoch)))
        for n, w in enumerate(self.workers):
            w.history.finish(self.done)  # as a process reads it before it starts anything
            w.apply(
                Allocation(
                    self.spec.name,
                    w.id,
                    Epoch(self.epoch),
                    self.epoch,
                    self.status,
                    self.drain,
                    executors=tuple((e.component, e.first, e.last) for e, m in placed if m == n),
                    places=tuple((TaskId(e.first), TaskId(e.last), self.id(m)) for e, m in placed),
                    peers=tuple(peers),
                )
            )

    def crash(self, n: int) -> None:
        """Worker `n` dies without a word; its successor starts at the same place."""
        old = self.workers[n]
        self.done |= set(old.history.finished())
        assert old._transport is not None
        for e in old.executors.named.values():
            e.stop(abandon=True)
        old.ways.signal_all()
        old._transport.close()
        self.workers[n] = self._make(n)
        self.apply()

    def deactivate(self) -> None:
        self.status, self.drain = TopologyStatus.INACTIVE, self.drain + 1
        self.apply()

    def activate(self) -> None:
        self.status = TopologyStatus.ACTIVE
        self.apply()

    @property
    def finished(self) -> bool:
        return {t for w in self.workers for t in w.history.finished()} == set(
            range(1, self.spec.task_count + 1)
        )

    def wait(self, what: Any, timeout: float = 30) -> None:
        """Until `what()`; it is looked at whenever a worker says that it got on."""
        deadline = time.monotonic() + timeout
        with self.changed:
            while not what():
                assert not self.failures, self.failures
                left = deadline - time.monotonic()
                assert left > 0, f"still waiting after {timeout} s: {self.describe()}"
                self.changed.wait(min(left, 0.5))

    def describe(self) -> str:
        return "\n".join(
            f"{w.id} {t.id} {t.spec.id} executed={t.executed} queued={t.queued} finished={t.marks.finished} drained={t.marks.drained}"
            for w in self.workers
            for t in w.tasks.values()
        ) + "\n".join(f"{e.kind}: {e.message}" for e in self.events)

    def wait_finished(self, timeout: float = 30) -> None:
        self.wait(lambda: self.finished, timeout)
        assert not self.failures, self.failures

    def close(self) -> None:
        for w in self.workers:
            assert w.close(5)
        self.network.close()

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def on_progress(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def on_failure(self, reason: str, trace: str) -> None:
        with self.changed:
            self.failures.append(reason)
            self.changed.notify_all()

    def on_startable(self) -> None:
        raise AssertionError("an allocation starts everything at once here")

    def on_fatal(self, reason: str) -> None:
        self.on_failure(reason, "")


class Numbers(Spout):
    """Emits (task, number) for the numbers from 0 on, `count` of them."""

    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, count: int, keys: int = 7) -> None:
        self.count = count
        self.keys = keys

    def tuples(self) -> Any:
        sent = [0] * self.keys
        for n in range(self.count):
            key = n * 31 % self.keys
            yield self.context.task, key, sent[key]
            sent[key] += 1


class Ascending(Spout):
    """Emits 1, 2, 3 and so on, for ever."""

    outputs = Fields(number=int)

    def __init__(self) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        self.next += 1
        self.emit(self.next)


class Lasting(Spout):
    """Emits only what the test emits with it, and comes to its end when `over` is set."""

    outputs = Fields(n=int)

    def next_tuple(self) -> float | None:
        if over.is_set():
            self.exhausted()
            return None
        return 0.001


@contextlib.contextmanager
def lasting(name: str) -> Iterator[InProcess]:
    """Two tasks of `Lasting` with one executor, which has begun with them, and who takes what they emit."""
    over.clear()
    b = TopologyBuilder(name)
    b.spout("source", Lasting(), tasks=2, executors=1)
    b.bolt("sink", Sink()).shuffle("source")
    with InProcess(b.build(), 1) as made:
        for executor in made.workers[0].executors.named.values():
            passes(executor)
        yield made


def passes(executor: Executor, patience: float = 20.0) -> None:
    """Wait until it has done what it is at, and what was asked of it before."""
    begun = threading.Event()
    executor.call(begun.set)
    assert begun.wait(patience)


def sources(cluster: InProcess) -> tuple[Any, Any]:
    """Both tasks of the spout of `lasting`, with their one executor."""
    one, two = (cluster.workers[0].tasks[t] for t in cluster.spec.tasks_of(ComponentId("source")))
    assert one.executor is two.executor is not None
    return one, two


class Endless(Spout):
    """Emits 1 a thousand times a second, for as long as it is there."""

    outputs = Fields(number=int)

    def next_tuple(self) -> float:
        self.emit(1)
        return 0.001


class Sink(Bolt):
    """Takes all."""

    def execute(self, tup: Any) -> None:
        pass


records: dict[str, list[tuple[int, ...]]] = {}
numbers = itertools.count(1)
"""For names under which they are noted: here, because a test module that others import from is there twice."""
over = threading.Event()
"""For `Lasting`; who uses it clears it first."""


class Check(StatefulBolt):
    """Notes what arrives, per (source, key), and at once what is out of order."""

    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: dict[tuple[int, int], int] = {}
        self.wrong: list[str] = []

    def get_state(self) -> object:
        return self.last

    def set_state(self, state: Any) -> None:
        self.last = state

    def execute(self, tup: Any) -> None:
        key = (tup.source, tup.key)
        expected = self.last.get(key, -1) + 1
        if tup.number != expected:
            self.wrong.append(f"{key}: {tup.number} instead of {expected}")
        self.last[key] = tup.number
        self.emit(tup.source, tup.key, tup.number)

    def finish(self) -> None:
        records.setdefault(self.name, []).extend((s, k, n) for (s, k), n in self.last.items())
        records.setdefault(self.name + ".wrong", []).extend(self.wrong)  # type: ignore[arg-type]


def expected(tasks: range, count: int, keys: int = 7) -> set[tuple[int, ...]]:
    """What `Check` should have recorded: the last number of each key of each source."""
    made: dict[tuple[int, int], int] = {}
    for task in tasks:
        for n in range(count):
            key = (task, n * 31 % keys)
            made[key] = made.get(key, -1) + 1
    return {(s, k, n) for (s, k), n in made.items()}


def metrics(run: Mapping[str, Mapping[str, float]], component: str, name: str) -> float:
    return run[component][name]
