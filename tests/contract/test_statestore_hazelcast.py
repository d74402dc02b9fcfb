"""What only a real cluster can show: members that die, answers that are lost, where entries lie, who listens where."""

from __future__ import annotations

import os
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from families import listens
from hazelcast.client import HazelcastClient
from hazelcast.errors import HazelcastSerializationError
from hazelcast.future import ImmediateExceptionFuture
from leaks import held, left_since
from statestore_harness import Hazelcast
from test_statestore import noise, put

from statestore import decisions
from statestore.base import Head, Piece, Ticket
from statestore.bulk import manifest
from statestore.client import GrpcStore
from statestore.errors import Conflict, Damaged, Incomplete, Lost, Missing, Superseded, Unavailable
from statestore.hazelcast import heads, jar, whole
from statestore.hazelcast.grid import CANARY, HEADS, INCARNATION, Placed
from statestore.hazelcast.member import MemberOptions
from statestore.hazelcast.store import HazelcastStore
from statestore.process import StoreProcess
from statestore.writing import Write, read_bytes


@pytest.fixture
def cluster(hazelcast_service: Hazelcast) -> Iterator[Hazelcast]:
    """Whatever becomes of a test, no client of it goes on: see `test_a_test_that_is_cut_off_leaves_no_client`."""
    yield hazelcast_service
    hazelcast_service.disconnect()


def test_a_test_that_is_cut_off_leaves_no_client(hazelcast_service: Hazelcast) -> None:
    hazelcast_service.disconnect()
    before = held()
    cut_off = hazelcast_service.open()
    assert set(held().threads) - set(before.threads)
    hazelcast_service.disconnect()
    assert left_since(before) == []
    with pytest.raises(Unavailable):
        cut_off.head("gone")


def test_members_listen_on_loopback_only(cluster: Hazelcast) -> None:
    for member in cluster.members:
        assert member.process is not None
        at = listens(psutil.Process(member.process.pid))
        assert [f"{ip}:{port}" for ip, port in at] == [member.address]


def test_pieces_lie_on_partitions_of_the_local_member(cluster: Hazelcast) -> None:
    for index in range(2):
        store = cluster.open(index)
        put(store, f"local/{index}", 1, noise(1 << 20))
        stored = store._entries.read(f"local/{index}")
        assert stored is not None
        salts = {heads.piece_key(stored.place, n).salt for n in range(1, 9)}
        assert store.grid.local_share(salts) == 1.0
        other = cluster.open(1 - index)
        assert other.grid.local_share(salts) == 0.0
        store.close()
        other.close()


@pytest.mark.parametrize(
    "fault", ["applied, and answered with no", "applied, and the answer lost", "not applied"]
)
def test_an_exchange_whose_answer_is_wrong_or_lost_is_found_out(cluster: Hazelcast, fault: str) -> None:
    """The planted fault: a retry inside the client that meets its own first attempt."""
    store = cluster.open()
    real = store.grid._heads

    class Faulty:
        faults = 3

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def replace_if_same(self, key: str, old: bytearray, new: bytearray) -> Any:
            if self.faults == 0:
                return real.replace_if_same(key, old, new)
            self.faults -= 1
            if fault != "not applied":
                assert real.replace_if_same(key, old, new).result()
            if fault == "applied, and answered with no":
                return real.replace_if_same(key, old, new)
            raise OSError("planted")

    write = Write(store, f"exchange/{fault}", 1)
    faulty = Faulty()
    store.grid._heads = faulty
    for sequence in (1, 2):
        head = write.commit([write.put(b"x")])
        assert head.sequence == sequence
        assert store.head(head.key) == head
    assert faulty.faults < 3
    store.grid._heads = real
    assert store.delete(head.key, 1)
    store.close()


@pytest.mark.parametrize("then", ["nobody can tell", "another takes over"])
@pytest.mark.parametrize("before", [0, 1])
def test_a_state_saved_at_once_whose_answer_is_lost_keeps_its_pieces(
    cluster: Hazelcast, then: str, before: int
) -> None:
    """It is committed. The planted fault: whoever saved it does not get to know, or only after the next owner has begun."""
    store, other = cluster.open(), cluster.open(1)
    real, key = store.grid._heads, f"whole/{before}/{then}"
    if before:
        put(other, key, 1, b"old")

    class Faulty:
        lost = False

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def get(self, asked: str) -> Any:
            if self.lost and asked == key and then == "nobody can tell":
                raise OSError("planted")
            return real.get(asked)

        def replace_if_same(self, *arguments: Any) -> Any:
            return self._lose(real.replace_if_same(*arguments).result())

        def put_if_absent(self, *arguments: Any) -> Any:
            return self._lose(real.put_if_absent(*arguments).result() is None)

        def _lose(self, done: bool) -> Any:
            if not self.lost:
                assert done
                self.lost = True
                if then == "another takes over":
                    other.begin(Ticket(key, 3, "next"))
            raise OSError("planted")

    ticket, data = Ticket(key, 2, "w"), [noise(1000), noise(2000)]
    pieces = manifest(ticket, data)
    store.grid._heads = Faulty()
    with pytest.raises(Unavailable if then == "nobody can tell" else Superseded):
        store.save_whole(ticket, pieces, data)
    store.grid._heads = real
    store.close()  # what it was to remove is removed
    head = other.head(key)
    assert head is not None and head.pieces == pieces
    if then == "nobody can tell":
        assert other.save_whole(ticket, pieces, data) == head
    assert list(other.get(head)) == data
    assert other.delete(key, 3)
    other.close()


def test_pieces_of_a_state_that_is_just_saved_at_once_are_counted_and_not_collected(
    cluster: Hazelcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there before an entry names them."""
    store, other = cluster.open(), cluster.open(1)
    real, ticket, data = store.grid._heads, Ticket("whole/running", 1, "w"), [noise(100_000)]
    before, seen = store.capacity().used, []

    class Meanwhile:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def put_if_absent(self, *arguments: Any) -> Any:
            other.collect("nothing", keep=(), before=1)
            seen.append(store.capacity().used)
            return real.put_if_absent(*arguments)

    store.grid._heads = Meanwhile()
    head = store.save_whole(ticket, manifest(ticket, data), data)
    store.grid._heads = real
    assert list(other.get(head)) == data
    assert seen[0] >= before + 100_000
    assert store.capacity().used == before + 100_000
    # The planted fault: the process dies before the exchange.
    key = heads.piece_key(heads.new_place(store.grid.local_salts(1, 0), unnamed=True), 1)
    store.grid.wait(store.grid.set_piece(key, b"x"))
    place = heads.place_of(key)
    other.collect("nothing", keep=(), before=1)
    assert place in orphans(other)
    monkeypatch.setattr(whole, "_OVER", 0.0)
    other.collect("nothing", keep=(), before=1)
    assert place not in orphans(other)
    assert store.delete(ticket.key, 1)
    store.close()
    other.close()


def test_a_state_saved_at_once_that_is_refused_leaves_no_pieces(cluster: Hazelcast) -> None:
    store, other = cluster.open(), cluster.open(1)
    write = Write(other, "whole/refused", 2)
    there = orphans(store)
    ticket = Ticket("whole/refused", 1, "w")
    with pytest.raises(Superseded):
        store.save_whole(ticket, manifest(ticket, [b"late"]), [b"late"])
    store.close()  # what it was to remove is removed
    assert orphans(other) <= there
    assert other.delete(write.ticket.key, 2)
    other.close()


@pytest.mark.parametrize("how", ["refused at once", "answered with an error"])
def test_a_piece_that_failed_counts_as_never_put(cluster: Hazelcast, how: str) -> None:
    """The planted fault: the cluster drops one piece. A commit must not name it, and putting it again must store it."""
    store = cluster.open()
    real = store.grid._pieces
    write = Write(store, f"dropped/{how}", 1)
    data = noise(1000)
    piece = Piece(1, 1, len(data), zlib.crc32(data))

    class Faulty:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def set(self, key: str, value: bytearray) -> Any:
            if how == "refused at once":
                raise OSError("planted")
            return ImmediateExceptionFuture(OSError("planted"))

    store.grid._pieces = Faulty()
    with pytest.raises(Unavailable):
        store.put(write.ticket, piece, data)
        store.flush(write.ticket)
    store.grid._pieces = real
    store.flush(write.ticket)
    with pytest.raises(Incomplete):
        store.commit(write.ticket, 1, [piece])
    store.put(write.ticket, piece, data)
    assert read_bytes(store, store.commit(write.ticket, 1, [piece])) == data
    assert store.delete(write.ticket.key, 1)
    store.close()


class Malicious:
    """What runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def test_what_somebody_has_pickled_runs_nowhere(cluster: Hazelcast, tmp_path: Path) -> None:
    """Whoever reaches a member can put it there."""
    store, trace = cluster.open(), tmp_path / "ran"
    anybody = HazelcastClient(
        cluster_members=[m.address for m in cluster.members], cluster_name=cluster.cluster
    )
    theirs = anybody.get_map(HEADS).blocking()
    try:
        theirs.set("pickled", Malicious(trace))
        with pytest.raises(Damaged, match="no store has put there"):
            store.head("pickled")
        with pytest.raises(Damaged, match="pickled"):
            list(store.list())
        with pytest.raises(HazelcastSerializationError):
            store.grid._heads.set("own", b"bytes")
        assert not trace.exists()
        theirs.get("pickled")  # the planted fault: the client as it is
        assert trace.exists()
    finally:
        theirs.delete("pickled")
        anybody.shutdown()
    store.close()


class Counted:
    """A map that counts what is asked of it."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._real, name)

    def took(self) -> dict[str, int]:
        """Since it was asked last."""
        asked, self.asked = self.asked, Counter()
        return dict(asked)


def test_what_is_waited_for_in_a_pause_takes_the_fewest_answers(cluster: Hazelcast) -> None:
    source, target = cluster.open(), cluster.open(1)
    maps = [Counted(store.grid._heads) for store in (source, target)]
    source.grid._heads, target.grid._heads = maps
    try:
        write = Write(source, "pause", 1)
        pieces = [write.put(noise(1000, n)) for n in range(100)]
        write.commit(pieces)
        maps[0].took()
        pieces.append(write.put(b"rest"))
        write.commit(pieces)
        assert maps[0].took() == {"replace_if_same": 1}
        _, data = target.open("pause", 1, set(pieces[:100]))
        assert list(data) == [*[None] * 100, b"rest"]
        assert maps[1].took() == {"get": 1}
        ticket = Ticket("pause/small", 1, "w")
        source.save_whole(ticket, [Piece(1, 1, 1, zlib.crc32(b"x"))], [b"x"])
        # The entry, and what tells that there is none.
        assert maps[0].took() == {"get": 2, "put_if_absent": 1}
        # The planted fault: it does not remember what it has written.
        session = source._writes.known(write.ticket)
        assert session is not None
        session.entry = None
        write.commit(pieces)
        assert maps[0].took() != {"replace_if_same": 1}
    finally:
        source.delete("pause", 1)
        source.delete("pause/small", 1)
        source.close()
        target.close()


def test_a_manifest_that_is_too_large_for_its_entry_lies_apart(cluster: Hazelcast) -> None:
    store, other = cluster.open(), cluster.open(1)
    for number, size in enumerate((10, heads.INLINE)):
        head = put(store, f"apart/{number}", 1, b"x", bytes(size))
        stored = other._entries.read(head.key)
        assert (
            stored is not None
            and bool(stored.manifest) is bool(number)
            and bool(stored.inline) is not bool(number)
        )
        assert other.head(head.key) == head and read_bytes(other, head) == b"x"
        assert store.save_whole(Ticket(head.key, 2, "w"), (), (), bytes(size)).epoch == 2
        assert store.delete(head.key, 2)
    store.close()
    other.close()


def test_a_writer_is_refused_also_by_what_it_does_not_know_of(cluster: Hazelcast) -> None:
    """Somebody else has taken over, or gone on, by another store: what this one remembers of the entry is out of date."""
    store, other = cluster.open(), cluster.open(1)
    mine = Write(store, "remembered", 1, "w")
    mine.commit([mine.put(b"1")])
    there = Write(other, "remembered", 1, "w")
    second = there.commit([there.put(b"2")])
    with pytest.raises(Conflict):
        mine.commit([mine.put(b"3")])
    again = Write(store, "remembered", 1, "w")
    assert again.before == second
    third = again.commit([*second.pieces, again.put(b"3")])
    assert read_bytes(other, third) == b"23" and other.head("remembered") == third
    Write(other, "remembered", 2)
    with pytest.raises(Superseded):
        again.commit([again.put(b"4")])
    assert store.delete("remembered", 2)
    with pytest.raises(Superseded):
        there.commit([there.put(b"5")])
    store.close()
    other.close()


def test_what_a_superseded_writer_has_committed_stays(cluster: Hazelcast) -> None:
    """Until the next owner commits. What it has put beyond that goes."""
    store, other = cluster.open(), cluster.open(1)
    write = Write(store, "superseded", 1)
    head = write.commit([write.put(noise(1000))])
    Write(other, "superseded", 2)
    write.put(noise(2000))
    with pytest.raises(Superseded):
        write.flush()
    store.close()  # what it was to remove is removed
    assert other.head("superseded") == head and read_bytes(other, head) == noise(1000)
    stored = other._entries.read("superseded")
    assert stored is not None
    place = heads.place_id(stored.places[1])
    assert heads.keys_of(stored, head.pieces) == {
        k for k in other.grid.piece_keys() if heads.place_of(k) == place
    }
    assert other.delete("superseded", 2)
    other.close()


def test_a_commit_that_was_refused_does_not_happen_later(cluster: Hazelcast) -> None:
    store, other = cluster.open(), cluster.open(1)
    write = Write(store, "late", 1)
    piece = write.put(b"old")
    write.flush()
    stale = store._entries.read("late")
    assert stale is not None
    put(other, "late", 2, b"new")
    record = decisions.commit(
        stale.record, write.ticket, Head("late", 1, 1, write.ticket.writer, (piece,), b"", 3, "x")
    )
    planted = heads.Stored(record, stale.place, "m", {1: stale.place}).encode()
    assert not store.grid.exchange("late", stale.raw, planted)
    head = other.head("late")
    assert head is not None and read_bytes(store, head) == b"new"
    store.close()
    other.close()


def test_a_number_of_a_dropped_piece_is_not_given_again(
    cluster: Hazelcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed when there is time. The planted fault: only after the same writer has begun again, and has committed what it put."""
    store = cluster.open()
    later: list[Any] = []
    with monkeypatch.context() as planted:
        planted.setattr(store._cleaner, "later", later.append)
        write = Write(store, "numbers", 1, "w")
        kept, _ = write.put(b"kept"), write.put(b"dropped")
        write.commit([kept])
        again = Write(store, "numbers", 1, "w")
        head = again.commit([kept, again.put(b"put after that")])
    assert later
    for job in later:
        job()
    assert list(store.get(head)) == [b"kept", b"put after that"]
    assert store.delete("numbers", 1)
    store.close()


def test_a_member_that_dies_with_one_backup_costs_nothing(cluster: Hazelcast) -> None:
    store = cluster.open()
    before = [put(store, f"death/{n}", 1, noise(300_000, n)) for n in range(10)]
    begun, killed = threading.Event(), threading.Event()
    made: list[Head] = []

    def write() -> None:
        for n in range(10, 40):
            made.append(put(store, f"death/{n}", 1, noise(300_000, n)))
            if n == 15:
                begun.set()
            if n == 25:
                assert killed.wait(60)

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(60)
    cluster.kill_member()
    killed.set()
    writer.join(60)
    assert len(made) == 30
    for n, head in enumerate(before + made):
        assert store.head(head.key) == head
        assert read_bytes(store, head) == noise(300_000, n)
    cluster.restart_member()
    for n, head in enumerate(before + made):
        assert read_bytes(store, head) == noise(300_000, n)
    assert store.collect("death/", keep=(), before=1).keys == 40
    store.close()


def test_a_damaged_piece_is_found(cluster: Hazelcast) -> None:
    store = cluster.open()
    head = put(store, "rot", 1, noise(400_000))
    stored = store._entries.read("rot")
    assert stored is not None
    key = heads.piece_key(stored.place, head.pieces[1].number)
    store.grid.wait(store.grid.set_piece(key, noise(head.pieces[1].size, 2)))
    reading = store.get(head)
    assert next(reading) == noise(400_000)[: head.pieces[0].size]
    with pytest.raises(Damaged, match="rot"):
        next(reading)
    store.close()


def test_pieces_of_writers_that_died_are_collected(cluster: Hazelcast) -> None:
    store = cluster.open()
    write = Write(store, "orphan", 1)
    write.put(noise(100_000))
    write.flush()
    store.close()
    store = cluster.open(1)
    Write(store, "orphan", 2).put(b"x")
    kept = put(store, "kept", 1, b"kept")
    assert orphans(store)
    store.collect("orphan", keep={("orphan", 2)}, before=2)
    assert not orphans(store)
    assert read_bytes(store, kept) == b"kept"
    store.delete("kept", 1)
    store.close()


def test_the_service_over_the_cluster_goes_on_after_its_own_death(cluster: Hazelcast, tmp_path: Path) -> None:
    arguments = ["--backend", "hazelcast", "--cluster", cluster.cluster, "--limit", str(cluster.limit)]
    arguments += ["--members", ",".join(m.address for m in cluster.members)]
    arguments += ["--local", cluster.members[1].address, "--directory", str(tmp_path / "store")]
    pieces = [noise(200_000, n) for n in range(60)]
    with StoreProcess(arguments, tmp_path / "server.log") as process:
        store = GrpcStore(process.address)
        store.reserve(1, {"service": sum(map(len, pieces))})
        with Write(store, "service", 1) as write:
            for number, data in enumerate(pieces):
                if number == 30:
                    process.kill()
                    process.start()
                write.put(data)
            head = write.commit()
        assert list(store.get(head)) == pieces
        with pytest.raises(Superseded):
            Write(store, "service", 1)
        assert store.delete("service", 1)
        store.close()


def test_without_backups_what_is_lost_is_said(tmp_path: Path) -> None:
    cluster = Hazelcast(tmp_path, backups=0)
    memory = tmp_path / "memory"
    try:
        store = cluster.open(0, memory)
        head = put(store, "a", 1, noise(500_000))
        # Asked to end, a member hands over what it has.
        cluster.members[0].stop()
        assert read_bytes(store, head) == noise(500_000)
        before = cluster.members[1].migrations
        cluster.members[0].start([cluster.members[1].address])
        assert cluster.members[1].wait_migrated(before)
        # Dying, it takes it along: that is noticed.
        store.close()
        store = cluster.open(1, memory)
        head = put(store, "b", 1, noise(500_000))
        cluster.members[1].kill()
        with pytest.raises(Lost, match="lost"):  # for good: whoever asks need not try it again
            assert store.head("b") == head
            read_bytes(store, head)
        # All at once: what comes back is another cluster, and an empty one.
        cluster.members[0].kill()
        cluster.members[0].start([])
        with pytest.raises(Lost):
            _patiently(lambda: store.head("a"))
        with pytest.raises(Lost):
            _patiently(lambda: Write(store, "c", 1))
        with pytest.raises(Lost):
            _patiently(lambda: list(store.list()))
        store.close()
        with pytest.raises(Lost, match="remove"):
            cluster.open(0, memory)
        cluster.open(0, tmp_path / "another").close()
    finally:
        cluster.close()


def test_what_one_partition_has_lost_is_said_and_the_rest_goes_on(cluster: Hazelcast, tmp_path: Path) -> None:
    """Planted: the partitions of some keys have lost everything, that of the cluster's identity and of the reservations among them."""
    told: list[str] = []
    store = cluster.open(0, tmp_path, lambda: told.append("replaced"))
    kept = put(store, "partition/kept", 1, b"kept")
    grid, number = store.grid, 0
    while grid.partition(f"partition/{number}") == grid.partition("partition/kept"):
        number += 1
    lost = f"partition/{number}"
    put(store, lost, 1, b"lost")
    canaries = [Placed(f"{CANARY}{p}", grid.salt(p)) for p in map(grid.partition, (lost, INCARNATION))]
    try:
        for key in (lost, INCARNATION, "\0reserved", *canaries):
            grid.wait(grid._heads.delete(key))
        with pytest.raises(Lost, match="partition"):
            store.head(lost)
        # It is the same cluster still: for this store, and for one that begins.
        assert [e.key for e in store.list("partition/")] == ["partition/kept"]
        grid.wait(grid._heads.delete(INCARNATION))
        again = cluster.open(1, tmp_path)
        assert again.grid.incarnation == grid.incarnation
        assert read_bytes(again, kept) == b"kept"
        # What is gone can be written anew, and deleted.
        again.reserve(2, {lost: 10})
        head = put(again, lost, 2, b"new")
        assert store.head(lost) == head and read_bytes(store, head) == b"new"
        assert again.delete(lost, 2)
        again.close()
        # The planted fault: nothing is left, and nobody looks whether that is so.
        for key in (INCARNATION, lost):
            grid.wait(grid._heads.delete(key))
        grid._canaries = Counter  # type: ignore[assignment]
        for ask in (lambda: put(store, lost, 3, b"x"), lambda: list(store.list())):
            with pytest.raises(Lost, match="empty"):
                ask()
        assert told == ["replaced"]
    finally:
        for key, value in [
            (INCARNATION, f"ready:{grid.incarnation}"),
            *((c, grid.incarnation) for c in canaries),
        ]:
            grid.wait(grid._heads.set(key, bytearray(value.encode())))
    assert store.delete("partition/kept", 1)
    store.close()


def orphans(store: HazelcastStore) -> set[str]:
    """Places to which nobody refers, and where something lies."""
    found: set[str] = set()
    for key, raw in store.grid.entries():
        stored = heads.decode(key, raw)
        found |= {heads.place_id(p) for p in (*stored.places.values(), stored.place)}
    return {k.partition("|")[0] for k in store.grid.piece_keys()} - found


def _patiently(ask: Any) -> None:
    """A client that has lost all members may need a moment to come back."""
    for _ in range(5):
        try:
            ask()
            return
        except Unavailable:
            continue


def test_without_maven_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "find_maven", lambda: None)
    assert "no Maven" in jar.problem(tmp_path)
    with pytest.raises(Missing, match=r"apt-get install maven[\s\S]*embedded") as refused:
        jar.obtain_jar(tmp_path)
    assert jar.NAME in str(refused.value)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo '[ERROR] no route to the repository'; exit 1", "no route"),
        ("exit 0", "without hazelcast"),
        (f"for a; do case $a in -DoutputDirectory=*) echo x > ${{a#*=}}/{jar.NAME};; esac; done", "SHA-256"),
    ],
)
def test_a_maven_that_fails_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    monkeypatch.setattr(jar, "find_maven", lambda: maven)
    with pytest.raises(Missing, match=message):
        jar.obtain_jar(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("wrong", [{"cluster": 'a"b'}, {"backups": 7}, {"others": ("x y",)}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Missing):
        MemberOptions(**wrong).validate()


def test_an_entry_survives_its_encoding() -> None:
    ticket = Ticket("k", 7, "w")
    head = Head("k", 3, 2, "v", (), b"", 10, "d")
    stored = heads.Stored(decisions.Record(7, ticket.writer, head), "p.s1,s2", "m2", {3: "q.s1", 2: "r.s2"})
    again = heads.decode("k", stored.encode())
    assert (again.record, again.place, again.manifest, again.places) == (
        stored.record,
        stored.place,
        stored.manifest,
        stored.places,
    )
    assert stored.encode() != stored.encode()
    key = heads.piece_key("p.s1,s2", 5)
    assert (key, key.salt) == ("p|5|s2", "s2")
    assert heads.placed(str(key)).salt == "s2"
    assert heads.keys_of(stored, (Piece(2, 5, 1, 1),)) == {"r|5|s2", "q|m2|s1"}
