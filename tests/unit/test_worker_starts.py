"""A task begins in a worker only when that is written down: with a life greater than any that it had, and what it has lost is said.

A move of its tasks is rolled back at the worst moment: its worker has ended, and the next life of it is just about to start others.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Fields, KeyedState, Spout, StatefulBolt, TopologyBuilder
from elastic.cluster import worker_main, worker_moves
from elastic.cluster.keeping import Keeping
from elastic.cluster.worker_main import WorkerProcess
from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import NotFound
from elastic.migration.record import Marks, MoveRecord, Outcome, TaskMove, encode_marks
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Allocation, Held, Progress, TopologyStatus, WorkerInfo
from elastic.worker.executing.components import LocalComponents

LIMIT = 30.0
T = TopologyName("t")
HERE, ELSEWHERE = WorkerId("t@n/0"), WorkerId("t@m/0")
FIRST, SECOND, THERE = Incarnation(f"{HERE}#1"), Incarnation(f"{HERE}#2"), Incarnation(f"{ELSEWHERE}#1")
EPOCH = Epoch(1)
TASKS = (2, 3, 4, 5)
"""Of the bolt: all in this worker. The spout's task runs in the other one."""


class Numbers(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> float:
        return 5.0


class Count(StatefulBolt):
    counts: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        pass


class Beginning:
    """A worker process, the second life, whose main thread is the test's; the first one has ended, with all its tasks.

    Attributes:
        moving: Tasks of a move from the first life, which Nimbus has not rolled back yet.
        lives: With which life a task was started.
    """

    def __init__(self, moving: tuple[int, ...]) -> None:
        b = TopologyBuilder("t")
        b.spout("numbers", Numbers())
        b.bolt("count", Count(), tasks=len(TASKS)).fields("numbers", "n")
        topology = b.build()
        self.zookeeper = MemoryZooKeeper()
        self.nimbus = self.zookeeper.connect()
        moves = [TaskMove(TaskId(t), "count", FIRST, THERE, NodeId("n"), NodeId("m")) for t in moving]
        self.record = MoveRecord(T, EPOCH, "a test", tuple(moves))
        self._write_down()
        self.pipe = os.pipe()
        executors = tuple(("count", t, t) for t in TASKS)
        places = ((1, 1, ELSEWHERE), (TASKS[0], TASKS[-1], HERE))
        given = Allocation(T, HERE, EPOCH, 1, TopologyStatus.ACTIVE, 0, executors, places=places)
        store: Any = SimpleNamespace(latest=lambda key: SimpleNamespace(version=1, data=codec.encode(given)))
        self.process: Any = WorkerProcess(
            spec=topology.spec,
            id=HERE,
            incarnation=SECOND,
            coordination=self.zookeeper.connect(),
            store=store,
            transport=None,  # type: ignore[arg-type]
            components=LocalComponents(topology),  # type: ignore[arg-type]
            report_fd=self.pipe[1],
            cycle=0,
            keeping=Keeping(None),
        )
        self.said: list[Any] = []
        self.process.on_event = self.said.append
        self.lives: dict[int, int] = {}
        started = self.process.worker.moves.started

        def note(task: Any, life: int) -> None:
            self.lives[task.id] = life
            started(task, life)

        self.process.worker.moves.started = note
        self._seen = threading.Event()
        see = self.process._views._on_view

        def seen(view: View, peers: Any) -> None:
            see(view, peers)
            if any(t.outcome for move in view.moves for t in move.record.tasks):
                self._seen.set()

        self.process._views._on_view = seen
        self.process._progress.inherit()
        self.process._marks.start()
        self.process._views.start()

    def _write_down(self) -> None:
        put = self.nimbus.put
        slots = {HERE: WorkerSlot(NodeId("n"), 0), ELSEWHERE: WorkerSlot(NodeId("m"), 0)}
        executors = [(ExecutorId(ComponentId("count"), TaskId(t), TaskId(t)), HERE) for t in TASKS]
        executors.append((ExecutorId(ComponentId("numbers"), TaskId(1), TaskId(1)), ELSEWHERE))
        put(paths.assignment(T), codec.encode(Assignment(T, EPOCH, slots, tuple(executors))))
        held = (Held(FIRST, 5, TASKS),)
        put(paths.worker_progress(T, HERE), codec.encode(Progress(FIRST, EPOCH, held=held)))
        put(paths.moves(T), b"1")
        put(paths.move(T, EPOCH), codec.encode(self.record))
        for side in (FIRST, THERE):
            put(paths.move_marks(T, EPOCH, side), encode_marks(Marks(side)))
        for worker, life in ((ELSEWHERE, THERE), (HERE, SECOND)):
            info = WorkerInfo(worker, life, "127.0.0.1:1", "", "b", 0, Epoch(0))
            self.nimbus.create(paths.worker(T, worker), codec.encode(info), ephemeral=True)

    def roll_back(self) -> None:
        """As Nimbus does once it sees that the source has ended. Returns when the thread that reads views has handed that on."""
        back = (
            replace(t, outcome=Outcome.ROLLED_BACK, reason="its process has ended") for t in self.record.tasks
        )
        record = codec.encode(replace(self.record, tasks=tuple(back)))
        self.nimbus.transaction([Set(paths.move(T, EPOCH), record, 0)])
        assert self._seen.wait(LIMIT)

    def go_on(self) -> None:
        """What the main thread does with what it was told, without waiting for more."""
        while True:
            try:
                notice = self.process._notices.get_nowait()
            except queue.Empty:
                return
            if notice == "again":
                self.process._apply(self.process._allocation)

    def state_lost(self) -> list[str]:
        return [e.details["tasks"] for e in self.said if e.kind == "state-lost"]

    def close(self) -> None:
        self.process._watch.cancel()
        self.process._views.close()
        self.process.worker.close(LIMIT)
        self.process._marks.close()
        self.process._switching.close()
        self.process._stores.close()
        self.zookeeper.close()
        for end in self.pipe:
            os.close(end)


@pytest.fixture
def beginning(tmp_path: Path) -> Iterator[Callable[[tuple[int, ...]], Beginning]]:
    made: list[Beginning] = []

    def make(moving: tuple[int, ...]) -> Beginning:
        made.append(Beginning(moving))
        return made[0]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("moving", [(4, 5), TASKS], ids=["others are started", "nothing else is started"])
def test_rolled_back_between_what_is_to_start_and_the_start(
    beginning: Any, monkeypatch: pytest.MonkeyPatch, moving: tuple[int, ...]
) -> None:
    world = beginning(moving)
    apply = world.process.worker.apply

    def late(*arguments: Any) -> None:
        monkeypatch.undo()
        world.roll_back()
        apply(*arguments)

    monkeypatch.setattr(world.process.worker, "apply", late)
    world.process._follow()
    assert set(moving).isdisjoint(world.lives), "nobody has written down that they begin"
    world.go_on()
    assert sorted(world.lives) == list(TASKS)
    assert all(life > 0 for life in world.lives.values())
    assert len({world.lives[t] for t in moving}) == 1
    others = {world.lives[t] for t in TASKS if t not in moving}
    assert all(life < world.lives[moving[0]] for life in others)
    assert ", ".join(world.state_lost()) == "2, 3, 4, 5"


def test_rolled_back_while_it_is_written_down(beginning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = beginning((4, 5))
    begin = world.process._progress.begin

    def late(*arguments: Any, **more: Any) -> None:
        monkeypatch.undo()
        begin(*arguments, **more)
        world.roll_back()

    monkeypatch.setattr(world.process._progress, "begin", late)
    world.process._follow()
    assert world.state_lost() == ["2, 3"] and sorted(world.lives) == [2, 3]
    world.go_on()
    assert sorted(world.lives) == list(TASKS)
    assert world.state_lost() == ["2, 3", "4, 5"]


class Running:
    """The main thread of a worker process, of which only what it does with allocations is real."""

    def __init__(self, world: Beginning, monkeypatch: pytest.MonkeyPatch) -> None:
        self.process = world.process
        self.entry: Any = None
        process = world.process
        for name in ("_install_signals", "_listen", "_register"):
            monkeypatch.setattr(process, name, lambda: None)
        monkeypatch.setattr(process._voice, "start", lambda: None)
        monkeypatch.setattr(process._watchdog, "start", lambda: None)
        monkeypatch.setattr(process._progress, "inherit", lambda: None)
        for part in (process._marks, process._views):
            monkeypatch.setattr(part, "start", lambda: None)
        self.looked = threading.Event()

        def latest(key: str) -> Any:
            found = self.entry
            self.looked.set()
            return found

        monkeypatch.setattr(process, "_store", SimpleNamespace(latest=latest))
        self.thread = threading.Thread(target=process.run)
        self.thread.start()
        assert self.looked.wait(LIMIT)  # there was nothing yet

    def end(self) -> None:
        self.process._notices.put("eof")
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()


def started(world: Beginning) -> None:
    end = time.monotonic() + LIMIT
    while sorted(world.lives) != list(TASKS):
        assert time.monotonic() < end, world.lives
        time.sleep(0.01)


def test_an_allocation_is_carried_out_although_all_changes_faster_than_it_is_read(
    beginning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper was never away: nothing says that it may be tried again."""
    monkeypatch.setattr(worker_main, "_AGAIN", 0.05)
    world = beginning((2,))
    world.nimbus.delete(paths.move(T, EPOCH), recursive=True)
    given = world.process._store.latest(None)
    running = Running(world, monkeypatch)
    look, numbers = world.process._views._mirror.look, iter(range(worker_moves._TRIES))

    def one_more_registers(*arguments: Any) -> Any:
        if threading.current_thread() is running.thread and (n := next(numbers, None)) is not None:
            other = WorkerId(f"t@x{n}/0")
            info = WorkerInfo(other, Incarnation(f"{other}#1"), "127.0.0.1:1", "", "b", 0, Epoch(0))
            world.nimbus.create(paths.worker(T, other), codec.encode(info), ephemeral=True)
        return look(*arguments)

    monkeypatch.setattr(world.process._views._mirror, "look", one_more_registers)
    running.entry = given
    world.process._notices.put("told")
    started(world)
    assert next(numbers, None) is None
    running.end()


def test_a_worker_with_a_cycle_of_its_own_looks_however_much_is_said_meanwhile(
    beginning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = beginning((2,))
    world.nimbus.delete(paths.move(T, EPOCH), recursive=True)
    given = world.process._store.latest(None)
    world.process._cycle = 0.2
    running = Running(world, monkeypatch)
    over = threading.Event()

    def say() -> None:
        while not over.wait(0.05):
            world.process._notices.put("told")

    saying = threading.Thread(target=say)
    saying.start()
    running.entry = given
    try:
        started(world)
    finally:
        over.set()
        saying.join(LIMIT)
        running.end()


def _registered(zookeeper: MemoryZooKeeper) -> None:
    """A worker that has read the spec of its topology says that it is there."""
    me: Any = SimpleNamespace(
        _transport=SimpleNamespace(address=SimpleNamespace(tcp="127.0.0.1:1", unix="", boot="b")),
        _topology=T,
        _coordination=zookeeper.connect(),
        id=HERE,
        incarnation=FIRST,
        worker=SimpleNamespace(assigned=SimpleNamespace(epoch=EPOCH), generation=0),
    )
    WorkerProcess._register(me)


def test_who_comes_too_late_makes_nothing_of_a_removed_topology_again() -> None:
    """It was killed while its worker began: nobody would take away what that one makes, and the name could not be used any more."""
    zookeeper = MemoryZooKeeper()
    nimbus = zookeeper.connect()
    nimbus.put(paths.TOPOLOGIES, b"")
    with pytest.raises(NotFound):
        _registered(zookeeper)
    assert nimbus.children(paths.TOPOLOGIES) == ()
    nimbus.put(paths.workers(T), b"")
    _registered(zookeeper)
    assert nimbus.children(paths.workers(T)) == (paths.leaf(HERE),)
    zookeeper.close()
