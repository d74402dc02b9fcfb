"""What moves have left in a node's store goes, and what a move still needs stays."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator

import pytest

from elastic.cluster.store_sweep import Sweeper, sweep
from elastic.coordination import paths
from elastic.coordination.base import Create, Delete, Set
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import Unavailable
from elastic.migration.record import MoveRecord, TaskMove, state_key
from elastic.model import codec
from elastic.model.checkpoints import Checkpoints, snapshot_key
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName
from elastic.model.topology import ComponentSpec, TopologySpec
from statestore.base import Collected
from statestore.memory import MemoryStore
from statestore.service import StoreServer
from statestore.writing import Write

T = TopologyName("t")


class Bench:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.coordination = self.zookeeper.connect()
        self.store = MemoryStore()
        self.coordination.create(paths.TOPOLOGIES)

    def newest(self, epoch: int, topology: TopologyName = T) -> None:
        self.coordination.put(paths.moves(topology), str(epoch).encode())

    def record(self, epoch: int, *tasks: int) -> None:
        moves = tuple(
            TaskMove(TaskId(t), "c", Incarnation("a#1"), Incarnation("b#1"), NodeId("a"), NodeId("b"))
            for t in tasks
        )
        self.coordination.create(
            paths.move(T, Epoch(epoch)), codec.encode(MoveRecord(T, Epoch(epoch), "move", moves))
        )

    def save(self, task: int, epoch: int, topology: TopologyName = T, *, committed: bool = True) -> Write:
        write = Write(self.store, state_key(topology, task), epoch)
        write.put(b"state")
        if committed:
            write.commit()
        return write

    def held(self) -> dict[str, int]:
        return {entry.key: entry.committed for entry in self.store.list()}


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.zookeeper.close()


def test_what_open_moves_need_stays(bench: Bench) -> None:
    bench.newest(8)
    bench.record(6, 1, 10)
    bench.record(8, 2)
    bench.save(1, 6)
    bench.save(10, 6, committed=False)
    bench.save(2, 8)
    bench.save(3, 7)  # the move has ended
    bench.save(4, 5, committed=False)
    bench.save(5, 9)  # a move that began after coordination was read
    assert sweep(bench.coordination, bench.store).keys == 2
    assert bench.held() == {"t/1": 6, "t/10": 0, "t/2": 8, "t/5": 9}


def test_a_topology_that_is_gone_leaves_nothing_and_its_name_may_be_used_again(bench: Bench) -> None:
    bench.save(1, 6)
    late = bench.save(2, 7, committed=False)
    bench.newest(3, TopologyName("tt"))
    bench.record(6)
    bench.coordination.delete(paths.topology(T), recursive=True)
    sweep(bench.coordination, bench.store)
    assert bench.held() == {}
    with pytest.raises(Exception, match="given up"):
        late.commit()
    bench.save(1, 8)
    assert bench.held() == {"t/1": 8}


def test_nothing_goes_when_coordination_cannot_be_read(bench: Bench) -> None:
    bench.newest(6)
    bench.save(1, 5)
    bench.coordination.close()
    with pytest.raises(Unavailable):
        sweep(bench.coordination, bench.store)
    assert bench.held() == {"t/1": 5}


@contextlib.contextmanager
def sweeping(bench: Bench) -> Iterator[queue.Queue[Collected]]:
    """The store serves, and is swept; what each time has removed."""
    done: queue.Queue[Collected] = queue.Queue()
    server = StoreServer(bench.store)
    server.start()
    sweeper = Sweeper(bench.coordination, done.put)
    try:
        sweeper.start()
        sweeper.serving(server.address)
        yield done
    finally:
        sweeper.close()
        server.close()


@contextlib.contextmanager
def told_late(bench: Bench) -> Iterator[None]:
    """Who watches is told nothing as long as this goes on."""
    held, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        go_on.wait(30)

    watch = bench.coordination.watch_children(paths.TOPOLOGIES, hold)
    try:
        assert held.wait(30)
        yield
    finally:
        go_on.set()
        watch.cancel()


def wait_until_held(bench: Bench, done: queue.Queue[Collected], held: dict[str, int]) -> None:
    """Wait until the store holds this and no more; `queue.Empty` when no sweep comes any more."""
    while bench.held() != held:
        done.get(timeout=30)


def test_it_sweeps_when_the_store_serves_and_when_a_topology_goes(bench: Bench) -> None:
    bench.newest(6)
    bench.record(6, 1)
    bench.save(1, 6)
    bench.save(2, 5)
    with sweeping(bench) as done:
        assert done.get(timeout=30).keys == 1
        assert bench.held() == {"t/1": 6}
        bench.coordination.delete(paths.topology(T), recursive=True)
        wait_until_held(bench, done, {})


def test_it_sweeps_when_a_move_has_ended(bench: Bench) -> None:
    """Nimbus may not have reached the store, which went on serving."""
    bench.newest(0)
    with sweeping(bench) as done:
        assert done.get(timeout=30).keys == 0
        for epoch in (5, 6, 7):  # one after the other, and one that begins while another ends
            bench.newest(epoch)
            bench.record(epoch, epoch)
            bench.save(epoch, epoch)
            if epoch == 6:
                continue
            kept = {f"t/{e}": e for e in (6,) if epoch == 7}
            bench.coordination.delete(paths.move(T, Epoch(epoch)))
            wait_until_held(bench, done, kept)


def test_it_sweeps_when_a_move_has_come_and_gone_unseen(bench: Bench) -> None:
    bench.newest(0)
    with sweeping(bench) as done:
        assert done.get(timeout=30).keys == 0
        path = paths.move(T, Epoch(1))
        bench.save(1, 1)
        bench.coordination.transaction([Set(paths.moves(T), b"1"), Create(path), Delete(path)])
        wait_until_held(bench, done, {})
        # And when others are there by the time it is told.
        bench.save(2, 2)
        bench.record(3, 3)
        bench.save(3, 3)
        bench.newest(3)
        wait_until_held(bench, done, {"t/3": 3})


def test_it_sweeps_when_a_move_has_gone_unseen_that_began_after_one_that_stays(bench: Bench) -> None:
    bench.newest(0)
    with sweeping(bench) as done:
        assert done.get(timeout=30).keys == 0
        for first in (1, 3):  # at its first look, and at one after that
            with told_late(bench):
                bench.newest(first + 1)
                for epoch in (first, first + 1):
                    bench.record(epoch, epoch)
                    bench.save(epoch, epoch)
                bench.coordination.delete(paths.move(T, Epoch(first + 1)))
            wait_until_held(bench, done, {f"t/{e}": e for e in range(1, first + 1, 2)})


def test_it_sweeps_what_ended_before_it_was_told_of_any_topology(bench: Bench) -> None:
    bench.newest(1)
    with contextlib.ExitStack() as later:
        later.enter_context(told_late(bench))
        with sweeping(bench) as done:
            assert done.get(timeout=30).keys == 0
            bench.record(1, 1)
            bench.save(1, 1)
            bench.coordination.delete(paths.move(T, Epoch(1)))
            later.close()
            wait_until_held(bench, done, {})


def test_it_does_not_sweep_for_each_of_many_moves(bench: Bench) -> None:
    """Processes have enough to do while they go on, and hardly ever is there anything left."""
    bench.newest(0)
    with sweeping(bench) as done:
        for epoch in range(1, 101):
            bench.newest(epoch)
            bench.record(epoch, 1)
            bench.save(1, epoch)
            bench.coordination.delete(paths.move(T, Epoch(epoch)))
        times = 0
        while bench.held():
            done.get(timeout=30)
            times += 1
        assert times < 50  # of 200 changes


def test_snapshots_of_the_newest_checkpoint_stay_and_those_of_others_go(bench: Bench) -> None:
    spec = TopologySpec(T, (ComponentSpec(ComponentId("c"), "spout", 2, 1),))
    bench.coordination.put(paths.spec(T), codec.encode(spec))
    c = Checkpoints("1f").begun(1.0).through()
    first = c.newest
    c = c.completed((), 0, 2.0).begun(3.0).through()
    second = c.newest
    for id, ticket in (("1f", first), ("1f", second), ("00", first)):
        for task in (1, 2):
            write = Write(bench.store, snapshot_key(T, id, ticket, task), ticket)
            write.put(b"state")
            write.commit()
    bench.coordination.put(paths.checkpoint(T), codec.encode(c))
    sweep(bench.coordination, bench.store)
    both = {snapshot_key(T, "1f", ticket, task): ticket for ticket in (first, second) for task in (1, 2)}
    assert bench.held() == both, (
        "the one that is being taken, too; nothing of an earlier topology of that name"
    )
    bench.coordination.put(paths.checkpoint(T), codec.encode(c.given_up("no", 4.0)))
    sweep(bench.coordination, bench.store)
    assert set(bench.held().values()) == {first}
    bench.coordination.delete(paths.checkpoint(T))
    sweep(bench.coordination, bench.store)
    assert not bench.held(), "the topology is gone"
