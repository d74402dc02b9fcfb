"""States in the stores of two nodes, as workers and Nimbus use them: real processes, killed where it hurts."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elastic.cluster.node_stores import Gone, NodeStores, StoredState
from elastic.cluster.state_write import commit_many
from elastic.cluster.store_ends import FarWay, NoRoom
from elastic.cluster.store_service import StoreService
from elastic.errors import ElasticError, Superseded, Unavailable
from elastic.model.ids import NodeId, TopologyName
from statestore.address import StoreAddress
from statestore.base import Piece, State, Ticket
from statestore.client import GrpcStore
from statestore.errors import Full
from statestore.near_client import NearStore

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
T = TopologyName("t")
MIB = 1 << 20
LIMIT = 64 * MIB
_tasks = itertools.count(1, 4)


class Node:
    """A node's store process."""

    def __init__(self, directory: Path, name: str, *, unix: bool) -> None:
        arguments = ["--backend", "embedded", "--directory", str(directory / name), "--limit", str(LIMIT)]
        socket = directory / f"{name}.sock" if unix else None
        self.service = StoreService(arguments, log=directory / f"{name}.log", unix=socket)
        self.start()

    def start(self) -> None:
        self.address = self.service.start(60.0)

    def kill(self) -> None:
        pid = self.service.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.service.wait()

    def direct(self) -> GrpcStore:
        return GrpcStore(StoreAddress.parse(self.address).tcp)


class Pair:
    def __init__(self, directory: Path, unix: bool) -> None:
        self.nodes = {name: Node(directory, name, unix=unix) for name in (A, B)}
        self.addresses: dict[NodeId, str | None] = {name: node.address for name, node in self.nodes.items()}
        self.stores = self.connect()

    def connect(self, own: NodeId | None = A, patience: float = 20.0) -> NodeStores:
        return NodeStores(own, self.addresses.get, patience=patience)

    def close(self) -> None:
        self.stores.close()
        for node in self.nodes.values():
            node.service.terminate()
        for node in self.nodes.values():
            node.service.kill()


@pytest.fixture(scope="module", params=["near", "far"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two nodes, reached as on one machine, and as on others."""
    before = set(threading.enumerate())
    with tempfile.TemporaryDirectory(prefix="st-") as directory:
        pair = Pair(Path(directory), request.param == "near")
        yield pair
        pids = [node.service.pid for node in pair.nodes.values()]
        pair.close()
        assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)
    assert not [t for t in set(threading.enumerate()) - before if "store" in t.name or "grpc" in t.name]


@pytest.fixture
def task() -> int:
    return next(_tasks)  # and some after it


def key(task: int) -> str:
    return f"t/{task}"


@pytest.mark.parametrize("size", [0, 1000, 300_000, 5 * MIB])
def test_what_was_saved_to_two_nodes_comes_from_either(pair: Pair, task: int, size: int) -> None:
    data = [os.urandom(min(MIB, size - at)) for at in range(0, size, MIB)]
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], size)
    numbers = [write.put(piece) for piece in data]
    assert write.commit(numbers, b"meta") == size + 4
    for own in (A, B, None):
        stores = pair.connect(own)
        found = stores.fetch(key(task), 5, [A, B])
        assert (found.pieces, found.meta, found.node) == (data, b"meta", own or A)
        stores.close()


def test_what_changed_is_put_again_and_the_rest_is_named(pair: Pair, task: int) -> None:
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 3 * MIB)
    numbers = [write.put(bytes([n]) * 400_000) for n in range(5)]
    numbers[2] = write.put(b"changed")
    write.commit([*numbers, numbers[0]], b"")
    found = pair.stores.fetch(key(task), 5, [B])
    assert [len(piece) for piece in found.pieces] == [400_000, 400_000, 7, 400_000, 400_000, 400_000]
    assert found.pieces[2] == b"changed" and found.pieces[5] == bytes(400_000)


def test_a_writer_that_was_superseded_is_refused_wherever_it_is(pair: Pair, task: int) -> None:
    late = pair.stores.begin(key(task), 5, "old#1", [A, B], 100)
    number = late.put(b"late")
    with pytest.raises(Superseded):
        pair.stores.begin(key(task), 5, "other#1", [A, B], 100)
    newer = pair.stores.begin(key(task), 6, "new#1", [B], 100)
    newer.commit([newer.put(b"new")], b"")
    with pytest.raises(Superseded, match="epoch 6"):
        late.commit([number], b"")
    with pytest.raises(Superseded):
        pair.stores.begin(key(task), 5, "old#1", [A, B], 100)
    assert pair.stores.fetch(key(task), 6, [B]).pieces == [b"new"]
    with pytest.raises(Gone):
        pair.stores.fetch(key(task), 5, [B])


def test_what_was_fetched_ahead_is_not_fetched_again(pair: Pair, task: int) -> None:
    first, second, third = (os.urandom(MIB) for _ in range(3))
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 4 * MIB)
    numbers = [write.put(first), write.put(second)]
    write.commit(numbers)
    target = pair.connect(B)
    begun = target.fetch(key(task), 5, [A, B])
    ahead = dict(zip(begun.named, begun.pieces, strict=True))
    assert sorted(ahead.values()) == sorted([first, second])
    write.commit([numbers[1], write.put(third), numbers[0]], b"meta")
    found = target.fetch(key(task), 5, [A, B], ahead)
    assert found.pieces == [second, third, first] and found.meta == b"meta" and found.node == B
    # Were they read once more, what is wrong here would not be seen.
    wrong = {piece: data[::-1] for piece, data in ahead.items()}
    assert target.fetch(key(task), 5, [A, B], wrong).pieces == [second[::-1], third, first[::-1]]
    with pytest.raises(Gone):
        target.fetch(key(task), 6, [A, B], ahead)
    target.close()


def test_a_large_state_comes_in_parts(pair: Pair, task: int) -> None:
    data = [os.urandom(MIB) for _ in range(5)]
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 5 * MIB)
    write.commit([write.put(piece) for piece in data], b"meta")
    target, here = pair.connect(B), dict[Piece, bytes]()
    came = []
    for _ in range(4):
        found = target.fetch(key(task), 5, [A, B], here, 2 * MIB)
        came.append(len(found.pieces))
        assert found.pieces == data[: came[-1]] and found.meta == b"meta"
        assert found.more == (5 - came[-1]) * MIB
        here.update(zip(found.named, found.pieces, strict=True))
    assert came == [2, 4, 5, 5]
    assert target.fetch(key(task), 5, [A, B], {}, 1).pieces == data[:1], "one at least"
    target.close()


def test_a_state_that_changes_all_the_time_needs_little_more_room_and_leaves_nothing(
    pair: Pair, task: int
) -> None:
    """It is committed again and again, with pieces in the place of others: what is reserved does not stand beside what is there."""
    with closing(pair.nodes[A].direct()) as a, closing(pair.nodes[B].direct()) as b:
        before = [store.capacity() for store in (a, b)]
        for epoch in (5, 6, 7):
            write = pair.stores.begin(key(task), epoch, "w#1", [A, B], 16 * MIB)
            numbers = [write.put(bytes([n]) * MIB) for n in range(16)]
            write.commit(numbers)
            for turn in range(6):
                numbers = numbers[4:] + [write.put(bytes([turn]) * MIB) for _ in range(4)]
                most = [store.capacity() for store in (a, b)]
                for was, now in zip(before, most, strict=True):
                    assert now.used + now.reserved - was.used - was.reserved <= 24 * MIB
                write.commit(numbers)
            assert pair.stores.clean(TopologyName("t"), epoch, [task], [A, B]) == []
            assert [store.capacity() for store in (a, b)] == before


def test_without_room_nothing_is_written_anywhere(pair: Pair, task: int) -> None:
    with closing(pair.nodes[A].direct()) as direct_a, closing(pair.nodes[B].direct()) as direct_b:
        before = direct_a.capacity(), direct_b.capacity()
        other = NodeStores(A, {A: pair.addresses[A], B: pair.addresses[B]}.get)
        direct_b.reserve(99, {"other": (before[1].free - 4 * MIB) * 60 // 64})
        with pytest.raises(Full) as refused:
            other.begin(key(task), 5, "w#1", [A, B], 16 * MIB)
        full = refused.value
        assert full.needed >= 16 * MIB > full.free and full.limit == LIMIT
        assert isinstance(full, ElasticError) and not full.remedy and "\n" not in str(full)
        assert str(full).startswith(
            f"node b cannot keep room for {key(task)}: its state store has no room for 16 MiB more, "
        )
        assert "--store-memory" in str(full)
        again = pickle.loads(pickle.dumps(full))
        assert isinstance(again, NoRoom) and str(again) == str(full) and again.needed == full.needed
        with pytest.raises(Full):
            other.reserve(5, {key(task): 8 * MIB, f"{key(task)}a": 8 * MIB}, [A, B])
        direct_b.release(99, ["other"])
        assert (direct_a.capacity(), direct_b.capacity()) == before
        assert direct_a.head(key(task)) is None and not list(direct_a.list(key(task)))
        other.close()


def test_a_state_is_gone_only_when_everybody_says_so(pair: Pair, task: int) -> None:
    write = pair.stores.begin(key(task), 5, "w#1", [B], 10)
    write.commit([write.put(b"state")], b"")
    assert pair.stores.fetch(key(task), 5, [A, B]).node == B
    with pytest.raises(Gone, match="node c is gone"):
        pair.stores.fetch(key(task), 5, [A, C])
    pair.addresses[C] = ""
    stores = pair.connect(patience=1.0)  # so long also a store that is there may take to answer
    try:
        with pytest.raises(Unavailable, match="node c has no state store"):
            stores.fetch(key(task), 5, [A, C])
        with pytest.raises(Unavailable):
            stores.begin(key(task), 6, "w#1", [A, C], 10)
    finally:
        del pair.addresses[C]
        stores.close()


def test_a_node_s_store_is_waited_for(pair: Pair, task: int) -> None:
    address, pair.addresses[B] = pair.addresses[B], ""

    def appear() -> None:
        pair.addresses[B] = address
        pair.stores.nodes_changed()

    timer = threading.Timer(0.1, appear)
    timer.start()
    pair.stores.begin(key(task), 5, "w#1", [A, B], 10).abort()
    timer.join()


def test_a_state_is_not_waited_for_where_it_is_not_needed(pair: Pair, task: int) -> None:
    """The own node's store is being started again, and another node has it: to wait for the own one would take an hour."""
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 10)
    write.commit([write.put(b"state")])
    address, pair.addresses[A] = pair.addresses[A], ""
    with closing(pair.connect(patience=3600.0)) as stores:
        assert stores.fetch(key(task), 5, [A, B]).node == B
    pair.addresses[A] = address
    assert pair.stores.fetch(key(task), 5, [A, B]).node == A


def test_of_stores_before_one_cluster_one_that_serves_is_enough(pair: Pair, task: int) -> None:
    """To wait for the own one, which is being started again, would take an hour."""
    addresses: dict[NodeId, str | None] = {
        n: str(replace(StoreAddress.parse(node.address), group="g")) for n, node in pair.nodes.items()
    }
    with closing(NodeStores(A, addresses.get, patience=3600.0)) as stores:
        for n in (A, B):  # both are known
            stores.begin(key(task), 5, "w#1", [n], 10).abort()
        addresses[A] = ""
        states = [State(Ticket(key(task), 6, "w#1"), (b"state",), b"")]
        assert stores.save_many(states, [A, B]) == [None]
        assert stores.fetch(key(task), 6, [A, B]).node == B
        moved_within = [State(Ticket(key(task + 1), 6, "w#1"), (b"state",), b"")]
        assert stores.save_many(moved_within, [A]) == [None]
        assert stores.fetch(key(task + 1), 6, [B]).node == B
    with closing(pair.nodes[B].direct()) as store:
        assert store.delete(key(task), 6)


def test_what_has_begun_at_a_store_that_ends_goes_on_at_another_before_the_same_cluster(
    pair: Pair, task: int
) -> None:
    """Calls to it that are under way end by the word that it has ended: to wait until it is back would take an hour."""
    addresses: dict[NodeId, str | None] = {
        n: str(replace(StoreAddress.parse(node.address), group="g")) for n, node in pair.nodes.items()
    }
    near = StoreAddress.parse(pair.nodes[A].address).near
    states = [State(Ticket(key(task + 1), 5, "w#1"), (b"small",), b"")]
    with closing(NodeStores(A, addresses.get, patience=3600.0)) as stores, ThreadPoolExecutor(4) as pool:
        for n in (A, B):  # both are known
            stores.begin(key(task), 4, "w#1", [n], 10).abort()
        write = stores.begin(key(task), 5, "w#1", [A, B], 10)
        number = write.put(b"state")
        pair.nodes[A].kill()
        try:
            commit = pool.submit(write.commit, [number])
            save = pool.submit(stores.save_many, states, [A, B])
            begin = pool.submit(stores.begin, key(task + 2), 5, "w#1", [A, B], 10)
            fetch = pool.submit(stores.fetch_many, [(key(task + 3), 5)], [A])
            addresses[A] = ""
            stores.node_said(A, "")
            assert save.result(60) == [None]
            other = begin.result(60)
            assert other.commit([other.put(b"other")]) == 5
            (nothing,) = fetch.result(60)
            assert isinstance(nothing, Unavailable), "the other one does not know of it; this one may"
            if near:
                assert commit.result(60) == 5
                assert stores.fetch(key(task), 5, [A, B]).pieces == [b"state"]
            else:
                with pytest.raises(Unavailable):  # what was sent ahead went with the store
                    commit.result(60)
            assert stores.fetch(key(task + 2), 5, [A, B]).node == B
        finally:
            pair.nodes[A].start()


def test_a_store_of_its_own_that_ends_is_waited_for(pair: Pair, task: int) -> None:
    """What has begun there lies in its files."""
    write = pair.stores.begin(key(task), 5, "w#1", [A], 10)
    number = write.put(b"state")
    pair.nodes[A].kill()
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(write.commit, [number])
        pair.stores.node_said(A, "")
        pair.nodes[A].start()
        pair.stores.node_said(A, pair.nodes[A].address)
        assert commit.result(60) == 5
    assert pair.stores.fetch(key(task), 5, [A]).pieces == [b"state"]
    with pytest.raises(Gone):
        pair.stores.fetch(key(task), 5, [B])


def test_cleaning_removes_everything_and_refuses_what_comes_late(pair: Pair, task: int) -> None:
    late = pair.stores.begin(key(task), 5, "w#1", [A, B], 10)
    number = late.put(b"late")
    assert pair.stores.clean(T, 5, [task, 999], [A, B, C]) == []
    with pytest.raises(Superseded):
        late.commit([number], b"")
    with pytest.raises(Gone):
        pair.stores.fetch(key(task), 5, [A, B])


def test_what_was_put_and_never_committed_is_let_go_of(pair: Pair, task: int) -> None:
    """By the process that has put it: files, streams and what they have under way."""
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 16 * MIB)
    ways = [pair.stores._ways.to(node) for node in (A, B)]

    def kept() -> list[object]:
        far = [way._store for way in ways if isinstance(way, FarWay)]
        parcel = write._load.parcel
        return [store for store in far if write.ticket in store._uploads] + ([parcel] if parcel else [])

    committed = write.put(os.urandom(MIB))
    write.commit([committed], b"")
    for _ in range(6):
        write.put(os.urandom(MIB))
    assert kept()
    write.close()
    write.close()
    assert not kept()
    assert pair.stores.clean(T, 5, [task], [A, B]) == []


def test_kill_9_in_the_middle_of_a_save_costs_nothing(pair: Pair, task: int) -> None:
    write = pair.stores.begin(key(task), 5, "w#1", [A, B], 8 * MIB)
    data = [os.urandom(MIB) for _ in range(8)]
    numbers = [write.put(piece) for piece in data[:5]]
    pair.nodes[B].kill()
    pair.nodes[B].start()
    numbers += [write.put(piece) for piece in data[5:]]
    write.commit(numbers, b"meta")
    pair.nodes[B].kill()
    pair.nodes[A].kill()
    for node in pair.nodes.values():
        node.start()
    for node in (A, B):
        assert pair.stores.fetch(key(task), 5, [node]).pieces == data


def test_a_store_that_stays_away_is_reported(pair: Pair, task: int) -> None:
    stores = pair.connect(patience=2.0)  # so long also a store that is there may take to answer
    try:
        write = stores.begin(key(task), 5, "w#1", [A, B], 10)
        pair.nodes[B].kill()
        with pytest.raises(Unavailable, match="node b"):
            write.commit([write.put(b"state")], b"")
        assert stores.clean(T, 5, [task], [A, B]) == [B]
    finally:
        pair.nodes[B].start()
        stores.close()


def test_many_commits_go_together(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what goes by itself: with a file, or to other machines. Each succeeds or fails for itself, and goes on."""
    near = StoreAddress.parse(pair.nodes[A].address).near
    asked: list[str] = []
    submit = NearStore.submit

    def noted(self: NearStore, body: Any, *rest: Any) -> Any:
        asked.append(body[0])
        return submit(self, body, *rest)

    tasks = [next(_tasks) for _ in range(6)]
    data = [[os.urandom(size), b"", b"x" * n] for n, size in enumerate((10, 1000, 50_000, 2 * MIB, 7, 100))]
    writes = [pair.stores.begin(key(t), 5, "w#1", [A, B], 3 * MIB) for t in tasks]
    numbers = [[write.put(piece) for piece in pieces] for write, pieces in zip(writes, data, strict=True)]
    pair.stores.begin(key(tasks[4]), 6, "newer#1", [B], 10)
    metas = [b"m%d" % t for t in tasks]
    monkeypatch.setattr(NearStore, "submit", noted)
    outcomes = commit_many(list(zip(writes, numbers, metas, strict=True)))
    assert asked == (["commits"] * 2 if near else [])
    # The large one goes by itself, and the one that was refused, to be told why.
    assert [n for n, size in enumerate(outcomes) if size is None] == ([3, 4] if near else list(range(6)))
    with pytest.raises(Superseded, match="epoch 6"):
        writes[4].commit(numbers[4], metas[4])
    for n in (0, 1, 2, 3, 5):
        outcomes[n] = outcomes[n] or writes[n].commit(numbers[n], metas[n])
    for n in (0, 1, 2, 3, 5):
        assert outcomes[n] == sum(map(len, data[n])) + len(metas[n])
        for node in (A, B):
            found = pair.stores.fetch(key(tasks[n]), 5, [node])
            assert (found.pieces, found.meta) == (data[n], metas[n])
    # A next version of some of them, and what was put before is named.
    again = [(writes[n], [numbers[n][0], writes[n].put(b"more")], b"") for n in (0, 3, 5)]
    assert commit_many(again) == [len(data[n][0]) + 4 if near else None for n in (0, 3, 5)]
    if not near:
        writes[3].commit(*again[1][1:])
    assert pair.stores.fetch(key(tasks[3]), 5, [B]).pieces == [data[3][0], b"more"]


def test_many_small_states_go_together(pair: Pair) -> None:
    tasks = [next(_tasks) for _ in range(300)]
    states = [State(Ticket(key(t), 5, "w#1"), (os.urandom(100), b""), b"m%d" % t) for t in tasks]
    pair.stores.begin(key(tasks[7]), 6, "newer#1", [B], 10)
    pair.stores.reserve(5, {s.ticket.key: 100 for s in states}, [A, B])
    with closing(pair.nodes[B].direct()) as direct:
        assert direct.capacity().reserved >= 300 * 100
    outcomes = pair.stores.save_many(states, [A, B])
    assert isinstance(outcomes.pop(7), Superseded) and set(outcomes) == {None}
    found = pair.stores.fetch_many([(key(t), 5) for t in tasks], [B])
    assert isinstance(found.pop(7), Gone)
    for got, state in zip(found, [s for n, s in enumerate(states) if n != 7], strict=True):
        assert isinstance(got, StoredState) and got.pieces == list(state.pieces) and got.meta == state.meta
    assert pair.stores.save_many(states[:3], [A, B]) == [None] * 3  # doing it again is harmless
    unreached = pair.connect(patience=0.2)
    pair.addresses[C] = ""
    assert all(isinstance(e, Unavailable) for e in unreached.save_many(states[:3], [A, C]))
    assert all(isinstance(e, Unavailable) for e in unreached.fetch_many([("t/no", 5), ("t/none", 5)], [A, C]))
    del pair.addresses[C]
    unreached.close()
    assert pair.stores.clean(T, 6, tasks, [A, B]) == []


def test_several_threads_and_a_close_in_the_middle(pair: Pair) -> None:
    stores = pair.connect()
    failed: list[ElasticError] = []

    def work() -> None:
        try:
            while True:
                task = next(_tasks)
                write = stores.begin(key(task), 5, "w#1", [A, B], 300_000)
                write.commit([write.put(os.urandom(150_000)) for _ in range(2)], b"")
                assert len(stores.fetch(key(task), 5, [A]).pieces) == 2
                stores.clean(T, 5, [task], [A, B])
                done.release()
        except ElasticError as error:
            failed.append(error)

    done = threading.Semaphore(0)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert done.acquire(timeout=60)
    stores.close()
    for thread in threads:
        thread.join(60)
    assert len(failed) == 4 and all(isinstance(error, Unavailable) for error in failed), failed
