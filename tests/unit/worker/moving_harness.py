"""Several workers of one topology in this process that take part in moves: real workers, participants and notifier, over the in-memory
network, coordination and stores. Only what reads and writes coordination for them is not a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from elastic import Topology
from elastic.cluster.worker_marks import MarksWriter
from elastic.cluster.worker_moves import ViewReader
from elastic.coordination import paths
from elastic.coordination.base import Create, Delete, Operation, Set
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Conflict, ElasticError, NotFound
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.decide import SETTLE
from elastic.migration.driver import notifier_driver
from elastic.migration.notifier import Notifier
from elastic.migration.plan import Change, Seat, plan_move
from elastic.migration.record import Marks, MoveRecord, encode_marks
from elastic.migration.table import NotifierState
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.events import Event
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, WorkerId, node_of, worker_id
from elastic.model.records import Allocation, TopologyStatus, WorkerInfo
from elastic.model.split import split_tasks
from elastic.transport.base import TransportOptions
from elastic.transport.memory import MemoryNetwork
from elastic.worker import standing
from elastic.worker.executing.components import LocalComponents
from elastic.worker.moving.stores import SmallState
from elastic.worker.outside import Outside
from elastic.worker.worker import Worker

LIMIT = 60.0


class Stores:
    """The state stores of all nodes. Counts what lies in them."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], tuple[bytes, dict[Any, bytes]]] = {}
        self.full = False
        self.lots: list[int] = []  # how many small states came together
        self.commits: list[int] = []  # how many others did
        self.ahead: list[int] = []  # how many pieces each look before the pause has brought
        self.ahead_fails = False
        self.replaced = 0  # looks before the pause that come too late for what they have found
        self.brought: list[int] = []  # pieces that each fetch in a pause has brought
        self.written: list[tuple[str, int]] = []
        self.given_up: list[tuple[str, int]] = []
        self.closed: list[tuple[str, int]] = []
        self.on_reserve: Callable[[], None] = lambda: None
        self.on_commit: Callable[[], None] = lambda: None
        self.on_abort: Callable[[], None] = lambda: None

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> _Write:
        if self.full:
            raise ElasticError(f"the stores have no room for {size} bytes")
        return _Write(self, (key, epoch))

    def get_ready(self) -> None: ...

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        self.on_reserve()
        if self.full:
            raise ElasticError(f"the stores have no room for {sum(sizes.values())} bytes")

    def save_many(self, states: Sequence[SmallState], nodes: Sequence[NodeId]) -> list[Exception | None]:
        self.states.update({(s.key, s.epoch): (s.meta, dict(enumerate(s.pieces))) for s in states})
        self.lots.append(len(states))
        return [None] * len(states)

    def commit_many(self, commits: Sequence[Any]) -> list[int | None]:
        """All but the first, which is to go by itself."""
        done: list[int | None] = []
        for write, numbers, meta in commits:
            try:
                done.append(write.commit(numbers, meta) if done else None)
            except Exception:  # noqa: BLE001 - as the real ones
                done.append(None)
        self.commits.append(len(commits))
        return done

    def fetch_many(self, wanted: Sequence[tuple[str, int]], nodes: Sequence[NodeId]) -> list[Any]:
        found: list[Any] = []
        for key, epoch in wanted:
            try:
                found.append(self.fetch(key, epoch, nodes))
            except NotFound as e:
                found.append(e)
        return found

    def fetch(
        self, key: str, epoch: int, nodes: Sequence[NodeId], ahead: Any = None, most: int | None = 0
    ) -> Any:
        """Who looks says how much may come; who fetches in a pause does not."""
        look = most != 0
        if (key, epoch) not in self.states:
            raise NotFound(f"no store has {key}")
        meta, pieces = self.states[key, epoch]
        here = {n: data for n, data in (ahead or {}).items() if n in pieces}
        found, size = {}, 0
        for n, data in {**pieces, **here}.items():
            new = 0 if n in here else len(data)
            if most and size and new and size + new > most:
                break
            found[n], size = data, size + new
        came = sum(n not in here for n in found)
        if not look:
            self.brought.append(came)
        elif self.ahead_fails:
            raise ElasticError("the store does not answer")
        elif self.replaced:
            self.replaced -= 1
            raise NotFound(f"no store has that version of {key} any more")
        else:
            self.ahead.append(came)
        come = {"meta": meta, "named": list(found), "pieces": list(found.values())}
        more = sum(len(data) for n, data in pieces.items() if n not in found)
        return type("Stored", (), {**come, "more": more})


class _Write:
    def __init__(self, stores: Stores, key: tuple[str, int]) -> None:
        self.stores, self.key, self.pieces = stores, key, []  # type: ignore[var-annotated]

    def put(self, data: bytes) -> int:
        self.pieces.append(bytes(data))
        return len(self.pieces) - 1

    def named(self, numbers: Sequence[int]) -> list[tuple[int, int, int, int]]:
        return [(1, n, len(self.pieces[n]), 0) for n in numbers]

    def commit(self, numbers: Sequence[int], meta: bytes = b"") -> int:
        self.stores.on_commit()
        self.stores.written.append(self.key)
        self.stores.states[self.key] = (
            meta,
            dict(zip(self.named(numbers), (self.pieces[n] for n in numbers), strict=True)),
        )
        return sum(len(self.pieces[n]) for n in numbers)

    def abort(self) -> None:
        self.stores.on_abort()
        self.stores.given_up.append(self.key)

    def close(self) -> None:
        self.stores.closed.append(self.key)


def _nothing_before(marks: Marks) -> None:
    """Before marks nothing is written: they may be written at once."""


class Process:
    """What surrounds a worker."""

    def __init__(self, world: Moving, n: int, life: int) -> None:
        self.world = world
        self.id = world.id(n)
        self.me = Incarnation(f"{self.id}#{life}")
        self.session = world.server.connect()
        self.transport = world.network.transport(
            self.me, options=TransportOptions(window_rows=world.window_rows)
        )
        name = world.spec.name
        self.marks = MarksWriter(
            self.session,
            name,
            self.me,
            lambda marks: world.before_marks(marks),
            self._feed,
            lambda path, value: self.views.wrote(path, value),
            lambda marks: world.before_marks is _nothing_before,
        )
        outside = Outside(self.marks, world.stores, world.next_life)
        self.worker = Worker(
            world.spec,
            self.id,
            self.me,
            LocalComponents(world.topology),
            self,
            self.transport,
            outside,
            world.generation,
        )
        a = self.transport.address
        info = WorkerInfo(self.id, self.me, a.tcp, a.unix, a.boot, 0, Epoch(0), world.generation)
        self.session.create(paths.worker(name, self.id), codec.encode(info), ephemeral=True)
        self.views = ViewReader(self.session, name, self.worker.see, self.me, generation=world.generation)
        self.marks.start()
        self.views.start()

    def _feed(self, event: ev.MarksRead) -> None:
        self.worker.moves.feed(event)

    def apply(self, allocation: Allocation) -> None:
        self.views.read()
        self.worker.apply(allocation, None, self.world.states)

    def close(self) -> None:
        self.views.close()
        assert self.worker.close(5)
        self.marks.close()
        self.session.close()

    def on_event(self, event: Event) -> None:
        self.world.events.append(event)

    def on_progress(self) -> None:
        with self.world.changed:
            self.world.changed.notify_all()

    def on_failure(self, reason: str, trace: str) -> None:
        self.world.failures.append(f"{reason}\n{trace}")
        self.on_progress()

    def on_startable(self) -> None: ...

    def on_fatal(self, reason: str) -> None:
        self.on_failure(f"fatal: {reason}", "")


class Moving:
    """See the module. `place`: (component, index of the task) -> number of the worker; below 0: none. `server`: gives sessions with
    coordination, instead of the one in memory: Nimbus's first, then one for each worker. `states`: what tasks begin with."""

    def __init__(
        self,
        topology: Topology,
        workers: int,
        place: Callable[[str, int], int],
        window_rows: int = 0,
        server: Any = None,
        generation: int = 0,
        states: Mapping[int, Any] = MappingProxyType({}),
    ) -> None:
        self.generation, self.states = generation, states
        self.window_rows = window_rows
        self.topology, self.spec = topology, topology.spec
        self.network = MemoryNetwork()
        self.server = server or MemoryZooKeeper()
        self.stores = Stores()
        self.session = self.server.connect()
        self.before_marks: Callable[[Marks], None] = _nothing_before
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.changed = threading.Condition()
        self.epoch = 0
        self.status, self.drain = TopologyStatus.ACTIVE, 0
        self.place = {
            t: place(c.id, i) for c in self.spec.components for i, t in enumerate(self.spec.tasks_of(c.id))
        }
        self.session.create(paths.moves(self.spec.name), b"0")
        self._write_assignment()
        self.processes = [Process(self, n, 1) for n in range(workers)]
        self.apply()

    def id(self, n: int) -> WorkerId:
        return worker_id(self.spec.name, NodeId(f"n{n}"), 0)

    def next_life(self) -> int:
        return self.session.put("/lives", b"")

    def _assignment(self) -> Assignment:
        executors: list[tuple[ExecutorId, WorkerId]] = []
        for c in self.spec.components:
            runs: list[tuple[int, range]] = []
            for task in (t for t in self.spec.tasks_of(c.id) if self.place[t] >= 0):
                if runs and runs[-1][0] == self.place[task] and runs[-1][1].stop == task:
                    runs[-1] = (runs[-1][0], range(runs[-1][1].start, task + 1))
                else:
                    runs.append((self.place[task], range(task, task + 1)))
            for n, tasks in runs:
                executors += [(e, self.id(n)) for e in split_tasks(c.id, tasks, min(len(tasks), c.executors))]
        slots = {w: WorkerSlot(node_of(w), 0) for _, w in executors}
        return Assignment(self.spec.name, Epoch(self.epoch), slots, tuple(executors))

    def _write_assignment(self) -> None:
        self.epoch += 1
        self.session.put(paths.assignment(self.spec.name), codec.encode(self._assignment()))

    def apply(self) -> None:
        """What the supervisors tell their workers."""
        assignment = self._assignment()
        for p in self.processes:
            p.apply(self.allocation(p, assignment))

    def allocation(self, p: Process, assignment: Assignment) -> Allocation:
        """The part of one worker."""
        return Allocation(
            self.spec.name,
            p.id,
            assignment.epoch,
            self.epoch,
            self.status,
            self.drain,
            executors=tuple((e.component, e.first, e.last) for e in assignment.executors_of(p.id)),
            places=tuple((e.first, e.last, w) for e, w in assignment.executors),
        )

    # ------------------------------------------------------------------ moves

    def move(self, to: dict[int, int], *, share: float = 1.0, limit: float = LIMIT) -> MoveRecord:
        """Move tasks to workers, to the end of the move; returns its record."""
        return Nimbus(self, to, share).run(limit)

    def wait(self, what: Callable[[], bool], timeout: float = LIMIT) -> None:
        deadline = time.monotonic() + timeout
        # Not asked under the lock: it may read a view, while whoever reads one says under it that something has changed.
        while not what():
            assert not self.failures, self.failures
            left = deadline - time.monotonic()
            assert left > 0, f"still waiting after {timeout} s: {self.describe()}"
            with self.changed:
                self.changed.wait(min(left, 0.05))

    def describe(self) -> str:
        return (
            "\n".join(
                f"{p.id} {t.id} {t.spec.id} executed={t.executed} queued={t.queued} finished={t.marks.finished} stopped={t.stopped}"
                for p in self.processes
                for t in p.worker.tasks.values()
            )
            + "\n".join(["", *self.owed(), ""])
            + "\n".join(f"{e.kind}: {e.message}" for e in self.events[-30:] if e.kind != "move-step")
        )

    def task(self, number: int) -> Any:
        return next(p.worker.tasks[number] for p in self.processes if number in p.worker.tasks)

    @property
    def finished(self) -> bool:
        return {t for p in self.processes for t in p.worker.history.finished()} == set(
            range(1, self.spec.task_count + 1)
        )

    def owed(self) -> list[str]:
        """What was sent to a task of another process, and not said to have been taken: for ever, the way to it is narrower."""
        found = []
        by = {p.me: p for p in self.processes}
        for process in self.processes:
            for peer, link in list(process.transport.links.items()):
                if peer not in by:
                    continue  # that process is gone
                source = by[peer].transport._sources.get(process.me)  # None: the connection is being made
                taken = source.inbound._targets if source is not None else {}
                for target, window in list(link._outbound._windows.items()):
                    there = taken.get(target)
                    size, rows = (there.total, there.rows) if there is not None else (0, 0)
                    if (size, rows) != (window.sent, window.rows_sent):
                        found.append(
                            f"{process.me} to {peer}, task {target}: {window.sent - size} bytes, {window.rows_sent - rows} rows"
                        )
        return found

    def wait_finished(self, timeout: float = LIMIT) -> None:
        self.wait(lambda: self.finished, timeout)
        assert not self.failures, self.failures
        self.wait(lambda: not self.owed(), min(timeout, 10.0))

    def close(self) -> None:
        for p in self.processes:
            p.close()
        self.server.close()
        self.network.close()

    def __enter__(self) -> Moving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Nimbus:
    """Runs one move."""

    def __init__(self, world: Moving, to: dict[int, int], share: float) -> None:
        self.world, self.name = world, world.spec.name
        self.session = world.session
        latest = int((self.session.get(paths.moves(self.name)) or _none()).data)
        changes = [Change(TaskId(t), world.id(world.place[t]), world.id(n)) for t, n in sorted(to.items())]
        seats = {p.id: Seat(p.me, node_of(p.id)) for p in world.processes}
        self.record = plan_move(world.spec, Epoch(latest + 1), "a test", changes, seats, share=share)
        self.path = paths.move(self.name, self.record.epoch)
        self.session.transaction(
            [
                Set(paths.moves(self.name), str(self.record.epoch).encode()),
                Create(self.path, codec.encode(self.record)),
                *(
                    Create(paths.move_marks(self.name, self.record.epoch, i), encode_marks(Marks(i)))
                    for i in self.record.participants
                ),
            ]
        )
        self.notifier = Notifier.from_record(self.record, 0)
        self.driver = notifier_driver(
            self.notifier, records=self, cleaning=self, timers=self, voice=self, on_fatal=self._fatal
        )

    def abort(self, why: str) -> None:
        """As an operator does: it is in the record first."""
        record = replace(self.notifier.record, abort=why)
        version = self.session.set(self.path, codec.encode(record), version=self.notifier.version)
        self.driver.feed(ev.AbortAsked(record, version))

    def look(self) -> None:
        """Read the marks, and decide."""
        hosts = tuple(ev.Host(p.id, p.me, node_of(p.id)) for p in self.world.processes)
        self.driver.feed(ev.Observed(self._marks(), hosts))

    def run(self, limit: float) -> MoveRecord:
        told = threading.Event()
        watches = [
            self.session.watch_value(paths.move_marks(self.name, self.record.epoch, i), lambda _: told.set())
            for i in self.record.participants
        ]
        deadline = time.monotonic() + limit
        while self.notifier.state is not NotifierState.ENDED:
            self.look()
            if self.notifier.state is NotifierState.ENDED:
                break
            assert not self.world.failures, self.world.failures
            assert time.monotonic() < deadline, (
                f"{self.notifier.record} {self._marks()} {[standing.told(p.worker) for p in self.world.processes]} "
                f"{self.world.describe()}"
            )
            told.wait(0.05)
            told.clear()
        for watch in watches:
            watch.cancel()
        return self.notifier.record

    def _marks(self) -> Any:
        from elastic.migration.record import Marked, decode_marks

        found = {}
        # Of all that there are, as Nimbus reads them: also of who takes part no more.
        for i in map(paths.life, self.session.children(self.path) or ()):
            value = self.session.get(paths.move_marks(self.name, self.record.epoch, i))
            if value is not None:
                found[i] = Marked(decode_marks(value.data), value.version)
        return found

    def commit(self, action: ac.Commit) -> None:
        operations: list[Operation] = [Set(self.path, codec.encode(action.record), action.version)]
        for c in action.marks:
            at = paths.move_marks(self.name, self.record.epoch, c.incarnation)
            data = encode_marks(c.marks)
            operations.append(Create(at, data) if c.version < 0 else Set(at, data, c.version))
        world = self.world
        for task, worker in action.places:
            world.place[task] = next(n for n, p in enumerate(world.processes) if p.id == worker)
        if action.places:
            world.epoch += 1
            operations.append(Set(paths.assignment(self.name), codec.encode(world._assignment())))
        try:
            self.session.transaction(operations)
        except Conflict:
            found = self.session.get(self.path)
            assert found is not None
            self.driver.feed(ev.RecordConflict(codec.decode(found.data, MoveRecord), found.version))
            return
        self.driver.feed(ev.RecordWritten(action.version + 1))
        if action.places:
            world.apply()

    def remove(self, action: ac.RemoveRecord) -> None:
        names = self.session.children(self.path) or ()
        self.session.transaction(
            [*(Delete(f"{self.path}/{n}") for n in names), Delete(self.path, action.version)]
        )
        self.driver.feed(ev.RecordRemoved())

    def clean(self, action: ac.CleanStores) -> None:
        states = self.world.stores.states
        for key in [k for k in states if k[1] == action.epoch]:
            del states[key]
        self.driver.feed(ev.StoresCleaned())

    def start(self, action: ac.StartTimer) -> None:
        if action.kind == SETTLE:
            self.driver.feed(ev.TimerFired(action.kind, action.number))

    def say(self, action: ac.Say) -> None:
        self.world.events.append(Event(time.time(), action.kind, action.message))

    def _fatal(self, action: Any, error: ElasticError) -> None:
        raise error


def _none() -> Any:
    raise AssertionError("no moves node")
