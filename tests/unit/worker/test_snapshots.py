"""Checkpoints: what is read of all tasks is of one moment of the stream, whatever moves; what begins with it goes on there."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from elastic import Bolt, Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder
from elastic.errors import ElasticError
from elastic.model.checkpoints import Checkpoints, Taken, snapshot_key
from elastic.model.ids import ComponentId, Incarnation, NodeId, WorkerId
from elastic.worker.content import Arrival
from elastic.worker.content.engine import decode_engine
from elastic.worker.executing.task import Task
from elastic.worker.executing.task_queue import TaskQueue
from elastic.worker.snapshots import nodes_of
from tests.unit.worker.moving_harness import Moving

KEYS = 6
PATIENCE, LATE = 15.0, 2
"""Seconds after which one is given up, and how many may be."""


class Steps(StatefulSpout):
    """Emits (source, key, number), a number of every key at a time; as many of each as `limits` says."""

    outputs = Fields(source=int, key=int, number=int)

    def __init__(self, name: str = "") -> None:
        self.name, self.at = name, 0

    def next_tuple(self) -> None:
        if self.at >= limits[self.name]:
            self.exhausted()
            return
        for key in range(KEYS):
            self.emit(self.context.task, key, self.at)
        self.at += 1

    def get_state(self) -> int:
        return self.at

    def set_state(self, state: int) -> None:
        self.at = state


class Counting(StatefulBolt):
    """Counts per key, with as much besides as is wanted, and says how many there were."""

    counts = KeyedState(int)
    besides = KeyedState(str)
    outputs = Fields(source=int, key=int, number=int, count=int)

    def __init__(self, besides: int = 0) -> None:
        self.more = besides

    def execute(self, tup: Any) -> None:
        self.counts[tup.source, tup.key] += 1
        if self.more:
            self.besides[(tup.source, tup.key, tup.number % self.more)] = str(tup.number) * 100
        self.emit(tup.source, tup.key, tup.number, self.counts[tup.source, tup.key])


class Passing(Bolt):
    outputs = Fields(source=int, key=int, number=int, count=int)

    def execute(self, tup: Any) -> None:
        self.emit(*tup)


class Ledger(StatefulBolt):
    """How far each key is, and what was not the next of its key."""

    last = KeyedState(lambda: -1)
    wrong = KeyedState(int)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup: Any) -> None:
        key = tup.source, tup.key
        if not tup.number == self.last[key] + 1 == tup.count - 1:
            self.wrong[key] += 1
        self.last[key] = tup.number

    def finish(self) -> None:
        results.setdefault(self.name, []).append((dict(self.last), dict(self.wrong)))


limits: dict[str, float] = {}
results: dict[str, list[tuple[dict[Any, int], dict[Any, int]]]] = {}
_runs = iter(range(1 << 30))


def chain(count: float = math.inf, rate: float | None = None, besides: int = 0) -> Any:
    name = f"snapshots{next(_runs)}"
    limits[name] = count
    b = TopologyBuilder(name, queue_rows=64, batch_rows=8)
    b.spout("steps", Steps(name), tasks=3, executors=1, rate=rate)
    b.bolt("count", Counting(besides), tasks=6, executors=2).fields("steps", "source", "key")
    b.bolt("pass", Passing(), tasks=4, executors=1).fields("count", "source", "key")
    b.bolt("ledger", Ledger(name), tasks=4, executors=1).fields("pass", "source", "key")
    return b.build()


class Checkpointed:
    """A topology in several workers of which checkpoints are taken, one after the other."""

    def __init__(self, topology: Any, workers: int, **more: Any) -> None:
        self.world = Moving(topology, workers, lambda c, i: i % workers, generation=1, **more)
        self.record = Checkpoints("id")
        self._see()

    def _see(self) -> None:
        for p in self.world.processes:
            p.worker.snapshots.see(self.record)

    def begin(self) -> None:
        """What is large is copied ahead, then it goes through the streams."""
        self.record = self.record.begun(1.0)
        self._see()
        count = len(self.world.processes)
        self.world.wait(lambda: sum(s.ready for s in self.said()) == count)
        self.record = self.record.through()
        self._see()

    def give_up(self) -> None:
        self.record = self.record.given_up("no more", 2.0)
        self._see()

    def said(self) -> list[Taken]:
        """What workers say of the newest one."""
        said = [p.worker.snapshots.taken for p in self.world.processes]
        return [s for s in said if s is not None and s.ticket == self.record.newest]

    @property
    def failed(self) -> str:
        return next((s.failed for s in self.said() if s.failed), "")

    def _is_whole(self) -> bool:
        return (
            len({t for s in self.said() for one in s.stored for t in one.tasks}) == self.world.spec.task_count
        )

    def end(self) -> dict[int, Any]:
        """Wait until it is complete; returns what the stores have of each task."""
        self.world.wait(lambda: self._is_whole() or bool(self.failed))
        assert not self.failed
        self.record = self.record.completed((), 0, 2.0)
        self._see()
        ticket, name = self.record.newest, self.world.spec.name
        keys = {t: snapshot_key(name, "id", ticket, t) for t in range(1, self.world.spec.task_count + 1)}
        return {t: self.world.stores.fetch(key, ticket, ()) for t, key in keys.items()}

    def take(self) -> dict[int, Any]:
        """One that is complete, after some that are given up: because tasks go where others have passed them, or late, as Nimbus does."""
        for late in range(LATE + 1):
            while True:
                self.begin()
                deadline = time.monotonic() + PATIENCE
                self.world.wait(
                    lambda: self._is_whole() or bool(self.failed) or time.monotonic() > deadline  # noqa: B023
                )
                if not self.failed:
                    break
                assert "another thread" in self.failed
                self.give_up()
            if late == LATE or self._is_whole():
                break
            self.give_up()
        return self.end()

    def close(self) -> None:
        self.world.close()

    def __enter__(self) -> Checkpointed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(world: Moving, task: int, stored: Any, component: Any) -> Any:
    """A component with the state of a snapshot."""
    _, _, own = decode_engine(stored.pieces, world.processes[0].worker.streams)
    Arrival(component).put(stored.meta, stored.named[own:], stored.pieces[own:])
    return component


def differences(world: Moving, states: dict[int, Any]) -> list[str]:
    """What is not of one moment: everything that spouts had emitted, and nothing else, has been counted everywhere."""
    tasks = {c.id: world.spec.tasks_of(c.id) for c in world.spec.components}
    at = {t: read(world, t, states[t], Steps()).at for t in tasks[ComponentId("steps")]}
    counted: Counter[Any] = Counter()
    last: dict[Any, int] = {}
    found = []
    for t in tasks[ComponentId("count")]:
        counted.update(dict(read(world, t, states[t], Counting()).counts))
    for t in tasks[ComponentId("ledger")]:
        ledger = read(world, t, states[t], Ledger(""))
        last.update(ledger.last)
        found += [f"{key} had {n} wrong" for key, n in ledger.wrong.items()]
    for source, emitted in at.items():
        for key in range(KEYS):
            if counted[source, key] != emitted or last.get((source, key), -1) != emitted - 1:
                found.append(
                    f"{source}, {key}: {emitted} emitted, {counted[source, key]} counted, {last.get((source, key))}"
                )
    return found


def check_end(name: str, count: int) -> None:
    """All of it came, each once and in order, also by what was there when it began again."""
    last = {key: n for one, _ in results[name] for key, n in one.items()}
    assert len(last) == 3 * KEYS and set(last.values()) == {count - 1}
    assert not [wrong for _, wrong in results[name] if wrong]


@pytest.mark.parametrize("besides", [0, 4000])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_checkpoint_is_of_one_moment_also_while_tasks_move_and_what_begins_with_it_ends_right(
    seed: int, besides: int
) -> None:
    chosen, topology = random.Random(seed), chain(rate=2000.0, besides=besides)
    name = topology.spec.name
    with Checkpointed(topology, 3) as run:
        moving = threading.Thread(target=_moves, args=(run.world, chosen, 4))
        moving.start()
        try:
            states: dict[int, Any] = {}
            taken = 0
            while moving.is_alive() or taken < 3:
                states = run.take()
                assert differences(run.world, states) == []
                taken += 1
        finally:
            moving.join()
        limits[name] = count = max(read(run.world, t, states[t], Steps()).at for t in (1, 2, 3)) + 200
        assert not besides or [k for k, _ in run.world.stores.written if "@" in k], (
            "large states are copied ahead"
        )
    assert name not in results
    with Checkpointed(topology, 2, states=states) as again:
        again.world.wait_finished()
    check_end(name, count)


def _moves(world: Moving, chosen: random.Random, times: int) -> None:
    for _ in range(times):
        tasks = chosen.sample(range(1, world.spec.task_count + 1), 4)
        to = {t: chosen.choice([n for n in range(3) if n != world.place[t]]) for t in tasks}
        world.move(to)


def test_spouts_that_emit_all_they_can_are_kept_apart_and_nobody_waits_for_ever() -> None:
    topology = chain()
    name = topology.spec.name
    with Checkpointed(topology, 2) as run:
        for _ in range(5):
            run.begin()
            states = run.end()
            assert differences(run.world, states) == []
        limits[name] = 0  # each has emitted as much as it has
        run.world.wait_finished()
        run.begin()  # of tasks that have all finished
        run.end()
    last = [n for one, _ in results[name] for n in one.values()]
    assert len(last) == 3 * KEYS and not [wrong for _, wrong in results[name] if wrong]


def test_what_has_finished_is_finished_when_it_begins_again() -> None:
    topology = chain(10)
    with Checkpointed(topology, 2) as run:
        run.world.wait_finished()
        run.begin()
        states = run.end()
    results.pop(run.world.spec.name)
    with Checkpointed(topology, 2, states=states) as again:
        again.world.wait_finished()
    assert run.world.spec.name not in results, "`finish` is called once"


def test_after_one_that_was_given_up_the_next_is_taken() -> None:
    topology = chain(rate=1000.0)
    name = topology.spec.name
    with Checkpointed(topology, 2) as run:
        save = run.world.stores.save_many

        def refuse(states: Any, nodes: Any) -> list[Exception | None]:
            return [ElasticError("no room")] * len(states)

        run.world.stores.save_many = refuse  # type: ignore[method-assign]
        run.begin()
        said = [p.worker.snapshots for p in run.world.processes]
        run.world.wait(lambda: any(s.taken is not None and "no room" in s.taken.failed for s in said))
        run.give_up()
        run.world.stores.save_many = save  # type: ignore[method-assign]
        run.begin()
        states = run.end()
        assert differences(run.world, states) == []
        limits[name] = count = max(read(run.world, t, states[t], Steps()).at for t in (1, 2, 3)) + 300
        run.world.wait_finished()
    check_end(name, count)


def test_a_task_that_mixes_what_is_before_and_after_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskQueue, "keep_apart", lambda self, source: None)
    found: list[str] = []
    with Checkpointed(chain(), 3) as run:
        for _ in range(20):
            run.begin()
            found += differences(run.world, run.end())
            if found:
                break
    assert found


def test_a_state_that_cannot_be_read_fails_the_checkpoint_and_not_the_task() -> None:
    class Odd(StatefulBolt):
        def execute(self, tup: Any) -> None: ...

        def get_state(self) -> Any:
            raise ValueError("not now")

        def set_state(self, state: Any) -> None: ...

    b = TopologyBuilder(f"snapshots{next(_runs)}")
    b.spout("steps", Steps("five"), tasks=1)
    b.bolt("odd", Odd(), tasks=1).all("steps")
    limits["five"] = 5
    with Moving(b.build(), 1, lambda c, i: 0, generation=1) as world:
        world.wait_finished()
        worker = world.processes[0].worker
        task: Task = worker.tasks[2]
        task.marks.finished = False
        worker.snapshots.see(Checkpoints("id").begun(1.0).through())
        worker.snapshots.take(task, 2)
        taken = worker.snapshots.taken
        assert taken is not None and "not now" in taken.failed and "task 2" in taken.failed


def test_the_nodes_that_keep_a_snapshot_are_the_own_one_and_those_after_it() -> None:
    living = {WorkerId(f"t@n{n}/0"): Incarnation(f"t@n{n}/0#1") for n in (1, 2, 3)}
    assert nodes_of(NodeId("n2"), living, 2) == ("n2", "n3")
    assert nodes_of(NodeId("n3"), living, 2) == ("n3", "n1")
    assert nodes_of(NodeId("n3"), living, 5) == ("n3", "n1", "n2")
    assert nodes_of(NodeId("n3"), {}, 2) == ("n3",)
    assert nodes_of(NodeId("n1"), living, 1) == ("n1",)
