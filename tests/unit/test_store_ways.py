"""The ways to stores when something fails on them once."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.cluster.grid_service import GridService
from elastic.cluster.node_stores import NodeStores
from elastic.cluster.store_ends import NoRoom
from elastic.cluster.store_service import DIRECTORY, StoreService
from elastic.cluster.worker_progress import ProgressWriter
from elastic.cluster.worker_stores import WorkerStores
from elastic.errors import NotConnected
from elastic.model import codec
from elastic.model.ids import Incarnation, NodeId, TopologyName, WorkerId
from elastic.model.records import Progress
from statestore.address import StoreAddress, boot_id
from statestore.base import Head, Piece, State, Ticket
from statestore.checksum import crc32
from statestore.client import GrpcStore
from statestore.embedded import EmbeddedStore
from statestore.errors import Full, Invalid, Missing, StateStoreError
from statestore.memory import MemoryStore
from statestore.near_server import NearServer
from statestore.server import EXIT_LOST
from statestore.service import StoreServer

A = NodeId("a")


def test_a_commit_that_is_tried_again_after_a_full_disk_has_all_of_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "s")
    near = NearServer(store, tmp_path / "near", str(tmp_path / "s"))
    near.start()
    address = str(StoreAddress("127.0.0.1:1", str(tmp_path / "near"), boot_id()))
    stores = NodeStores(A, {A: address}.get, patience=10.0)
    write, writev = stores.begin("t/1", 1, "w", [A], 4 << 20), os.writev
    pieces = [os.urandom(300_000) for _ in range(3)]
    numbers = [write.put(piece) for piece in pieces]
    short = iter([1000, None])  # bytes that there is room for; then none

    def full(file: int, parts: Any) -> int:
        if (room := next(short, 0)) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return writev(file, [bytes(parts[0])[:room]] if room else parts)

    with monkeypatch.context() as planted:
        planted.setattr(os, "writev", full)
        with pytest.raises(NoRoom, match=r"node a cannot save t/1: .* in .*/s: No space left"):
            write.commit(numbers)
    assert write.commit(numbers) == sum(map(len, pieces))
    assert list(stores.fetch("t/1", 1, [A]).pieces) == pieces
    write.close()
    stores.close()
    near.close()
    store.close()


@pytest.fixture
def served() -> Iterator[tuple[MemoryStore, GrpcStore]]:
    store = MemoryStore(2 << 20)
    server = StoreServer(store)
    server.start()
    client = GrpcStore(server.address, patience=20.0)
    yield store, client
    client.close()
    server.close()


def test_a_writer_that_was_refused_may_begin_again(served: tuple[MemoryStore, GrpcStore]) -> None:
    store, client = served
    store.reserve(9, {"other": 1 << 20})
    ticket, data = Ticket("k", 1, "w"), bytes(1500 << 10)
    client.begin(ticket)
    with pytest.raises(Full):
        client.put(ticket, Piece(1, 1, len(data), crc32(data)), data)
        client.flush(ticket)
    store.release(9, ["other"])
    number = client.begin(ticket).next_number
    client.put(ticket, Piece(1, number, len(data), crc32(data)), data)
    client.flush(ticket)


def test_one_state_that_cannot_be_costs_the_others_nothing(served: tuple[MemoryStore, GrpcStore]) -> None:
    _, client = served
    states = [State(Ticket(f"k{i}", 1, "w"), (bytes(300_000),)) for i in range(3)]
    states.insert(2, State(Ticket("", 1, "w"), (b"x",)))
    assert [type(found) for found in client.save(states)] == [Head, Head, Invalid, Head]


def test_two_threads_that_need_a_node_at_once_leave_no_watch_behind() -> None:
    made: list[Any] = []
    both = threading.Barrier(2)

    class Watch:
        cancelled = False

        def cancel(self) -> None:
            self.cancelled = True

    def watch_value(*_: Any, **__: Any) -> Watch:
        watch = Watch()
        made.append(watch)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(10)
        return watch

    coordination: Any = SimpleNamespace(watch_value=watch_value, get=lambda path: None)
    stores = WorkerStores(coordination, A)
    threads = [threading.Thread(target=stores._address_of, args=(NodeId("b"),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    stores.close()
    assert len(made) == 2 and all(watch.cancelled for watch in made)


def test_the_exit_code_of_an_earlier_store_says_nothing_of_one_that_could_not_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would make the node forget its cluster, with all states in it."""
    known = tmp_path / DIRECTORY / "incarnation"
    known.parent.mkdir(parents=True)
    known.write_text("abc")

    class Process:
        def __init__(self, how: str) -> None:
            self.how, self.process, self.arguments = how, None, ()  # type: str, Any, Any

        def launch(self) -> None:
            if self.how == "cannot be started":
                raise Missing("the state store cannot be started: Too many open files")
            self.process = SimpleNamespace(returncode=EXIT_LOST)

        def wait_ready(self, timeout: float) -> str:
            if self.how == "serves":
                return "127.0.0.1:1"
            raise Missing("it ended")

        def stop(self, grace: float = 5.0) -> None: ...

    turns = iter(["lost", "serves", "cannot be started", "cannot be started"])
    monkeypatch.setattr(StoreService, "_make", lambda self, listen: Process(next(turns)))
    killed: list[bool] = []

    class Member:
        address = "a:1"
        process = SimpleNamespace(poll=lambda: None)
        size = 2

        def kill(self) -> None:
            killed.append(True)
            self.process = SimpleNamespace(poll=lambda: -9)

        def prepare(self) -> None: ...

        def launch(self, others: Any) -> None:
            self.process = SimpleNamespace(poll=lambda: None)

        def wait_ready(self, timeout: float) -> None: ...

    members: Any = SimpleNamespace(
        turn=lambda t: ("b:1",), leave=lambda: None, ready=lambda: ("b:1",), tell_ready=lambda a: None
    )
    member: Any = Member()
    service = GridService(
        StoreService([], log=tmp_path / "log"), [], "c", tmp_path, member=member, members=members
    )
    with pytest.raises(StateStoreError):
        service.start(1.0)
    assert service.start(1.0) and killed == [True]
    service._store._process = service._store._make("")
    for _ in range(2):
        with pytest.raises(StateStoreError):
            service.start(1.0)
        service._store._process = Process("cannot be started")  # type: ignore[assignment]
    assert killed == [True] and known.read_text() == "abc"


def test_progress_whose_write_was_not_answered_is_written_again() -> None:
    """Tasks that were to begin here, and went elsewhere after all, must not be listed for ever: a state would be lost with them."""

    class Coordination:
        data, lose, number = b"", False, 0

        def put(self, path: str, data: bytes) -> int:
            self.data, self.number = data, self.number + 1
            if self.lose:
                raise NotConnected("the answer is lost")
            return self.number

        def children(self, path: str) -> tuple[str, ...]:
            return ()

        def look(self, wanted: Any) -> Any:
            return SimpleNamespace(values={})

    none: Any = tuple
    worker: Any = SimpleNamespace(
        tasks={},
        spec=SimpleNamespace(component_of=lambda task: SimpleNamespace(stateful=True, id="c")),
        moves=SimpleNamespace(participant=SimpleNamespace(view=SimpleNamespace(moves=()))),
        history=SimpleNamespace(forsaken=frozenset, started=none, finished=none, finish=lambda found: None),
        assigned=SimpleNamespace(epoch=3),
        drained=lambda: 0,
        generation=0,
        must_not_be_lost=lambda component: component.stateful,
        snapshots=SimpleNamespace(taken=None),
    )
    coordination: Any = Coordination()
    progress = ProgressWriter(
        coordination, TopologyName("t"), WorkerId("t@a/1"), Incarnation("t@a/1#1"), lambda: worker
    )
    progress.write()
    coordination.lose = True
    with pytest.raises(NotConnected):
        progress.begin([5])
    coordination.lose = False
    progress.begun()
    progress.write(all_of_it=True)
    assert codec.decode(coordination.data, Progress).held == ()


@pytest.mark.parametrize("size", [1000, 3_000_000])
def test_a_write_goes_on_by_a_store_of_another_machine_with_all_of_its_pieces(
    tmp_path: Path, size: int
) -> None:
    """Nothing comes along with a commit there."""
    b, cluster = NodeId("b"), MemoryStore(1 << 30)
    near, far = NearServer(cluster, tmp_path / "near"), StoreServer(cluster)
    near.start()
    far.start()
    addresses = {
        A: str(StoreAddress("127.0.0.1:1", str(tmp_path / "near"), boot_id(), "grid")),
        b: str(StoreAddress(far.address, "", "", "grid")),
    }
    stores = NodeStores(A, addresses.get, patience=10.0)
    write, piece = stores.begin("t/1", 1, "w", [A, b], size), os.urandom(size)
    stores._ways.to(b)
    numbers = [write.put(piece)]
    near.close()
    addresses[A] = ""
    stores.node_said(A, "")
    write.commit(numbers, b"note")
    assert list(stores.fetch("t/1", 1, [b]).pieces) == [piece]
    write.close()
    stores.close()
    far.close()
