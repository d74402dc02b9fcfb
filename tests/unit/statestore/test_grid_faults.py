"""A store on a Hazelcast cluster whose maps are dictionaries here: answers that are lost, and what others do in between."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hazelcast.errors import HazelcastError

from elastic.cluster.store_sweep import sweep
from statestore.base import Piece, State, Ticket
from statestore.checksum import crc32
from statestore.errors import Full, Incomplete, Lost, Missing, Superseded, Unavailable
from statestore.hazelcast import connection, grid, member
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.store import HazelcastStore
from statestore.writing import Write, read_bytes

MB = 1 << 20
HEADS, PIECES, RESERVED = "statestore.heads", "statestore.pieces", "\0reserved"


class Future:
    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def add_done_callback(self, told: Callable[[Future], None]) -> None:
        told(self)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


class Map:
    """One of the cluster. Each call is told to `Maps.hook` before, which may say "fail", or "lose" for its answer."""

    def __init__(self, maps: Maps, name: str) -> None:
        self._maps, self._name = maps, name
        self.there: dict[str, bytes] = {}

    def _asked(self, call: str, key: str, do: Callable[[], Any]) -> Future:
        with self._maps.lock:
            what = self._maps.hook(self._name, call, key)
            if what == "fail":
                return Future(None, HazelcastError("planted: not done"))
            return Future(do(), HazelcastError("planted: the answer is lost") if what == "lose" else None)

    def _value(self, key: str) -> bytearray | None:
        return bytearray(self.there[key]) if key in self.there else None

    def get(self, key: Any) -> Future:
        return self._asked("get", str(key), lambda: self._value(str(key)))

    def set(self, key: Any, value: bytes) -> Future:
        return self._asked("set", str(key), lambda: self.there.update({str(key): bytes(value)}))

    def delete(self, key: Any) -> Future:
        return self._asked("delete", str(key), lambda: self.there.pop(str(key), None) and None)

    def put_if_absent(self, key: Any, value: bytes) -> Future:
        def do() -> bytearray | None:
            before = self._value(str(key))
            self.there.setdefault(str(key), bytes(value))
            return before

        return self._asked("exchange", str(key), do)

    def replace_if_same(self, key: Any, old: bytes, new: bytes) -> Future:
        def do() -> bool:
            same = self.there.get(str(key)) == bytes(old)
            if same:
                self.there[str(key)] = bytes(new)
            return same

        return self._asked("exchange", str(key), do)

    def remove_if_same(self, key: Any, old: bytes) -> Future:
        def do() -> bool:
            return self.there.get(str(key)) == bytes(old) and self.there.pop(str(key)) is not None

        return self._asked("exchange", str(key), do)

    def key_set(self) -> Future:
        return self._asked("keys", "", lambda: list(self.there))

    def entry_set(self) -> Future:
        return self._asked("entries", "", lambda: [(k, bytearray(v)) for k, v in self.there.items()])


class Maps:
    """A cluster, and the stores on it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hook: Callable[[str, str, str], str | None] = lambda name, call, key: None
        self.maps: dict[str, Map] = {}
        self.stores: list[HazelcastStore] = []

    def client(self, *_: Any) -> Any:
        def partition(key: Any) -> int:
            text = key.get_partition_key() if hasattr(key, "get_partition_key") else str(key)
            return zlib.crc32(text.encode()) % 7

        return SimpleNamespace(
            get_map=lambda name: self.maps.setdefault(name, Map(self, name)),
            partition_service=SimpleNamespace(
                get_partition_count=lambda: 7,
                get_partition_id=partition,
                get_partition_owner=lambda partition: None,
            ),
            cluster_service=SimpleNamespace(get_members=list),
            lifecycle_service=SimpleNamespace(add_listener=lambda told: None, is_running=lambda: True),
            shutdown=lambda: None,
        )

    def store(self, local: str = "a:1", **options: Any) -> HazelcastStore:
        made = HazelcastStore(HazelcastOptions(members=("x:1",), local=local, limit=10 * MB, **options))
        self.stores.append(made)
        return made

    def begun_anew(self) -> None:
        for each in self.maps.values():
            each.there.clear()


@pytest.fixture
def maps(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Maps()
    monkeypatch.setattr(grid, "connect", made.client)
    yield made
    for store in made.stores:
        store.close()


def put(store: HazelcastStore, key: str, epoch: int, megabytes: int = 4) -> Ticket:
    ticket = Ticket(key, epoch, "w")
    first = store.begin(ticket).next_number
    for number in range(first, first + megabytes):
        store.put(ticket, Piece(epoch, number, MB, crc32(bytes(MB))), bytes(MB))
    store.flush(ticket)
    return ticket


def settled(store: HazelcastStore) -> HazelcastStore:
    """What nobody waits for has been done."""
    done = threading.Event()
    store._cleaner.later(done.set)
    assert done.wait(30)
    return store


def test_a_commit_that_names_what_was_collected_meanwhile_is_refused(maps: Maps) -> None:
    store = maps.store()
    old = Write(store, "t/1", 5)
    first = old.put(b"old" * 100)
    old.commit([first])
    new = Write(store, "t/1", 6)
    second = new.put(b"new")
    new.flush()
    store.collect("t/", keep={("t/1", 6)}, before=6)
    with pytest.raises(Incomplete):
        new.commit([first, second])


def test_a_key_whose_manifest_is_lost_can_be_written_anew(maps: Maps) -> None:
    store = maps.store()
    write = Write(store, "t/1", 5)
    write.commit([write.put(b"x")], meta=bytes(40_000))  # lies apart, with the pieces
    maps.maps[PIECES].there.clear()
    store = maps.store("b:1")
    with pytest.raises(Lost):
        store.head("t/1")
    anew = Write(store, "t/1", 6)
    assert read_bytes(store, anew.commit([anew.put(b"anew")])) == b"anew"


def test_bytes_of_an_abort_whose_answer_was_lost_are_not_counted(maps: Maps) -> None:
    store = maps.store()
    ticket = put(store, "a", 1)
    faults = ["lose", "fail"]

    def hook(name: str, call: str, key: str) -> str | None:
        if (name, key) == (HEADS, "a") and faults and call == {"lose": "exchange", "fail": "get"}[faults[0]]:
            return faults.pop(0)
        return None

    maps.hook = hook
    with pytest.raises(Unavailable):
        store.abort(ticket)
    store.abort(ticket)
    assert not faults and settled(store).capacity().used == 0
    assert not maps.maps[PIECES].there


def test_bytes_of_what_ended_by_another_store_are_not_counted(maps: Maps) -> None:
    one, other = maps.store("a:1"), maps.store("b:1")
    for epoch in (1, 2, 3):
        put(other, f"k{epoch}", epoch)
        one.delete(f"k{epoch}", epoch)
        other.delete(f"k{epoch}", epoch)  # as whoever cleans does, at every node's store
    assert settled(other).capacity().used == 0
    put(other, "taken over", 1)
    write = Write(one, "taken over", 2)
    write.commit([write.put(b"x")])
    other.collect("", keep={("taken over", 2)}, before=1)
    assert settled(other).capacity().used == 1


def test_what_was_reserved_for_a_write_that_never_began_is_free_when_that_ended_by_another_store(
    maps: Maps,
) -> None:
    """A move that goes back before its state was saved: whoever cleans deletes its key at every node's store."""
    one, other = maps.store("a:1"), maps.store("b:1")
    other.reserve(1, {"k": 6 * MB})
    for store in (one, other):
        store.delete("k", 1)
    assert settled(other).capacity().reserved == settled(one).capacity().reserved == 0
    one.reserve(2, {"k": 6 * MB})


def test_a_commit_between_two_looks_is_counted(maps: Maps) -> None:
    store = maps.store()
    store.capacity()
    write = Write(store, "k", 1)
    numbers = [write.put(bytes(MB)) for _ in range(4)]
    write.flush()
    once = [True]

    def hook(name: str, call: str, key: str) -> None:
        if key == RESERVED and call == "get" and once:
            once.clear()
            write.commit(numbers)

    maps.hook = hook
    assert store.capacity().used >= 4 * MB and not once
    with pytest.raises(Full):
        put(store, "beside", 2, megabytes=7)


def test_a_save_that_was_done_although_its_answer_was_lost_is_counted(maps: Maps) -> None:
    store = maps.store()
    ticket, piece = Ticket("k", 1, "w"), Piece(1, 1, MB, crc32(bytes(MB)))
    faults = ["lose", "fail"]

    def hook(name: str, call: str, key: str) -> str | None:
        if (name, key) == (HEADS, "k") and faults and call == {"lose": "exchange", "fail": "get"}[faults[0]]:
            return faults.pop(0)
        return None

    maps.hook = hook
    with pytest.raises(Unavailable):
        store.save_whole(ticket, (piece,), [bytes(MB)])
    assert not faults and store.save_whole(ticket, (piece,), [bytes(MB)]).sequence == 1
    assert settled(store)._room.capacity().used == MB


def test_what_is_committed_again_at_a_new_process_is_counted_once(maps: Maps) -> None:
    """The one before has died between the exchange and its answer: pieces and commit come again."""

    def commit(store: HazelcastStore) -> None:
        pieces = [Piece(1, n, MB, crc32(bytes(MB))) for n in range(1, 5)]
        for piece in pieces:
            store.put(Ticket("k", 1, "w"), piece, bytes(MB))
        store.commit(Ticket("k", 1, "w"), 1, pieces)

    first = maps.store()
    first.begin(Ticket("k", 1, "w"))
    commit(first)
    second = maps.store()
    commit(second)
    assert settled(second).capacity().used == 4 * MB
    assert [entry.held for entry in second.list()] == [4 * MB]


def test_a_full_disk_does_not_make_a_store_forget_which_cluster_it_saw(
    maps: Maps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = maps.store(directory=tmp_path)
    write = Write(store, "t/1", 1)
    write.commit([write.put(b"x")])

    def full(path: Path, text: str) -> None:
        path.open("w").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as planted:
        planted.setattr(Path, "write_text", full)
        maps.store("b:1", directory=tmp_path)  # it has nothing to write
        with pytest.raises(Missing, match="No space"):
            maps.store("c:1", directory=tmp_path / "another")
    maps.begun_anew()
    with pytest.raises(Lost):
        maps.store("d:1", directory=tmp_path)


def state(key: str, epoch: int, megabytes: int) -> State:
    return State(Ticket(key, epoch, "w"), tuple(bytes(MB) for _ in range(megabytes)), b"")


def test_what_is_saved_as_a_whole_is_not_in_its_own_way(maps: Maps) -> None:
    """What was counted is of long ago, so it is looked anew, and this is not used yet."""
    one, other = maps.store(), maps.store("b:1")
    assert all(not isinstance(r, Exception) for r in other.save([state("t/1", 1, 8)]))
    assert one.capacity().used >= 8 * MB
    other.delete("t/1", 1)
    settled(other)
    (saved,) = one.save([state("t/2", 1, 6)])
    assert not isinstance(saved, Exception)


def test_what_no_key_names_any_more_is_collected_although_there_is_none(maps: Maps) -> None:
    """The process of a store has ended within a write, and the move was cleaned by another one."""
    one, other = maps.store(), maps.store("b:1")
    put(one, "t/1", 1)
    one._cleaner._closed = True  # it ends as by a signal
    other.delete("t/1", 1)
    settled(other)
    assert maps.maps[PIECES].there and not list(other.list())
    coordination: Any = SimpleNamespace(delete=lambda path: None, get=lambda path: None)
    sweep(coordination, other)
    settled(other)
    assert not maps.maps[PIECES].there


def test_a_writer_that_is_superseded_just_now_is_told_so(maps: Maps) -> None:
    """A manifest of its own was replaced between the look at the key and the look at that."""
    one, other, meta = maps.store(), maps.store("b:1"), bytes(40_000)

    def write(store: HazelcastStore, epoch: int, *, commit: bool) -> None:
        ticket = put(store, "t/1", epoch, 1)
        if commit:
            store.commit(ticket, 1, [Piece(epoch, 1, MB, crc32(bytes(MB)))], meta)

    write(other, 1, commit=True)
    write(one, 2, commit=False)
    one._entries._manifests.clear()
    newest, fired = put(other, "t/1", 3, 1), []

    def hook(name: str, call: str, key: str) -> None:
        if name == PIECES and call == "get" and not fired:
            fired.append(key)
            other.commit(newest, 1, [Piece(3, 1, MB, crc32(bytes(MB)))], meta)
            maps.maps[PIECES].there.pop(key, None)  # as it is removed a little later

    maps.hook = hook
    with pytest.raises(Superseded):
        one.flush(Ticket("t/1", 2, "w"))
    assert fired


def test_a_member_whose_log_cannot_be_written_runs_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    says = f"print({member._STARTED!r}.decode(), flush=True); import time; time.sleep(1000)"

    def spawn(argv: Any, **options: Any) -> Any:
        kept = {k: v for k, v in options.items() if k in ("stdout", "stderr")}
        return subprocess.Popen([sys.executable, "-c", says], **kept)

    monkeypatch.setattr(member, "obtain_jar", lambda *_, **__: tmp_path / "none.jar")
    made = member.HazelcastMember(
        member.MemberOptions("c", "127.0.0.1"), tmp_path, java=Path("/usr/bin/java"), spawn=spawn
    )
    made.log.mkdir()
    made.launch()
    try:
        assert made.wait_ready(30.0)
    finally:
        made.kill()
    assert "cannot be written" in caplog.text


def test_whoever_listens_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that hangs, or a service of another kind."""
    monkeypatch.setattr(connection, "_TAKES", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with pytest.raises(Unavailable, match="cannot be reached"):
            connection.connect([f"{host}:{port}"], "c", 0.1)
