"""What every state store promises, for the one in memory, the embedded one, the same behind gRPC, and Hazelcast."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from statestore_harness import LIMIT, Embedded, Grpc, Memory, Service

from statestore.base import MAX_KEY, MAX_PIECE, BackEnd, Fetched, Head, Piece, State, StateStore, Ticket
from statestore.bulk import manifest
from statestore.client import GrpcStore
from statestore.errors import (
    Conflict,
    Damaged,
    Full,
    Incomplete,
    Invalid,
    NotFound,
    StateStoreError,
    Superseded,
)
from statestore.writing import Write, read_bytes

KINDS = ["memory", "embedded", "grpc", "hazelcast"]
_NUMBERS = iter(range(1, 1 << 30))
_MIB = 1 << 20


@pytest.fixture(scope="module")
def grpc_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Grpc(tmp_path_factory.mktemp("grpc"))
    yield service
    service.close()


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    if request.param in ("grpc", "hazelcast"):
        yield request.getfixturevalue(f"{request.param}_service")
        return
    service: Service = {"memory": Memory, "embedded": Embedded}[request.param](tmp_path)
    yield service
    service.close()


@pytest.fixture
def store(service: Service) -> StateStore:
    return service.store()


@pytest.fixture
def key() -> str:
    """A key that no other test of this run uses: some stores are shared."""
    return f"t{next(_NUMBERS)}/count/3"


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def put(store: StateStore, key: str, epoch: int, data: bytes, meta: bytes = b"") -> Head:
    with Write(store, key, epoch) as write:
        return write.commit(write.put_bytes(data), meta)


@pytest.mark.parametrize("size", [0, 1, 4097, _MIB, 48 * _MIB])
def test_what_was_put_comes_back(store: StateStore, key: str, size: int) -> None:
    data = noise(size)
    assert store.head(key) is None
    head = put(store, key, 1, data, b"meta")
    assert store.head(key) == head
    assert (head.epoch, head.sequence, head.size, head.meta) == (1, 1, size, b"meta")
    assert read_bytes(store, head) == data
    assert store.delete(key, 1)
    assert store.head(key) is None


def test_pieces_come_in_the_order_of_the_manifest(store: StateStore, key: str) -> None:
    with Write(store, key, 1) as write:
        a, b, c = (write.put(x) for x in (b"a", b"b" * MAX_PIECE, b""))
        head = write.commit([c, b, a, b])
    assert list(store.get(head)) == [b"", b"b" * MAX_PIECE, b"a", b"b" * MAX_PIECE]
    assert list(store.get(head, [2, 0])) == [b"a", b""]


def test_keys_of_every_kind_stay_apart(store: StateStore, key: str) -> None:
    names = [f"{key}{end}" for end in ("", "%", "_", "/", "/1", "/10", "|1", "ä", "'", "\n")]
    for number, name in enumerate(names, 1):
        put(store, name, 1, str(number).encode())
    assert [e.key for e in store.list(key)] == sorted(names)
    for number, name in enumerate(names, 1):
        head = store.head(name)
        assert head is not None and read_bytes(store, head) == str(number).encode()
    assert store.delete(f"{key}%", 1)
    assert [e.key for e in store.list(key)] == sorted(set(names) - {f"{key}%"})


def test_nothing_is_visible_before_the_commit(store: StateStore, key: str) -> None:
    old = put(store, key, 1, b"old")
    write = Write(store, key, 2)
    piece = write.put(b"new")
    write.flush()
    assert store.head(key) == old
    assert read_bytes(store, old) == b"old"
    write.commit([piece])
    head = store.head(key)
    assert head is not None and read_bytes(store, head) == b"new"
    with pytest.raises(NotFound):
        read_bytes(store, old)


def test_what_did_not_change_is_not_sent_again(store: StateStore, key: str) -> None:
    """Copied ahead; then a commit that names what changed; then another on top of it, in the next epoch too."""
    write = Write(store, key, 1)
    base = [write.put(f"bin {n}".encode()) for n in range(10)]
    write.flush()
    base[3] = write.put(b"bin 3, changed")
    first = write.commit(base)
    base[5] = write.put(b"bin 5, changed")
    second = write.commit(base)
    assert (first.sequence, second.sequence) == (1, 2)
    after = Write(store, key, 2)
    assert after.before == second
    base[7] = after.put(b"bin 7, changed")
    third = after.commit(base)
    changed = [3, 5, 7]
    expected = [f"bin {n}{', changed' if n in changed else ''}".encode() for n in range(10)]
    assert list(store.get(third)) == expected
    assert {p.epoch for p in third.pieces} == {1, 2}


def test_dropped_pieces_give_their_room_back(store: StateStore, key: str) -> None:
    before = store.capacity().used
    write = Write(store, key, 1)
    pieces = [write.put(noise(100_000, n)) for n in range(10)]
    write.flush()
    assert store.capacity().used - before >= 1_000_000
    write.commit(pieces[:2])
    assert 200_000 <= store.capacity().used - before < 300_000
    store.delete(key, 1)
    assert store.capacity().used == before


def test_a_superseded_writer_is_refused(store: StateStore, key: str) -> None:
    put(store, key, 1, b"first")
    old = Write(store, key, 2)
    piece = old.put(b"late")
    old.flush()
    new = Write(store, key, 3)
    with pytest.raises(Superseded, match="epoch 3"):
        old.put(b"later")
        old.flush()
    with pytest.raises(Superseded, match=r"epoch 3|epoch 2"):
        store.commit(old.ticket, 1, [piece])
    old.abort()  # has nothing to give up, and does no harm
    with pytest.raises(Superseded):
        Write(store, key, 2)
    new.put(b"second")
    head = new.commit()
    assert read_bytes(store, head) == b"second"
    with pytest.raises(Superseded):
        store.delete(key, 2)
    assert store.head(key) == head


def test_a_writer_may_have_a_name_as_long_as_a_key(store: StateStore, key: str) -> None:
    """It names a topology, of which the name alone may have a hundred characters, its worker and that one's life."""
    write = Write(store, key, 4, "w" * MAX_KEY)
    write.put(b"x")
    assert read_bytes(store, write.commit()) == b"x"
    with pytest.raises(Invalid, match=f"a name of 1 to {MAX_KEY} characters"):
        Write(store, key, 5, "w" * (MAX_KEY + 1))


def test_two_writers_of_one_epoch_are_one_too_many(store: StateStore, key: str) -> None:
    Write(store, key, 4, "a").put(b"x")
    with pytest.raises(Superseded, match="another writer"):
        Write(store, key, 4, "b")
    again = Write(store, key, 4, "a")
    again.put(b"y")
    assert read_bytes(store, again.commit()) == b"y"


def test_of_many_that_take_over_at_once_the_highest_epoch_wins(service: Service, key: str) -> None:
    stores = [service.store() for _ in range(2)]
    epochs = list(range(1, 17))
    random.Random(7).shuffle(epochs)
    gate = threading.Barrier(4)

    def take(index: int) -> list[Head]:
        store, made = stores[index % 2], []
        gate.wait(30)
        for epoch in epochs[index::4]:
            try:
                made.append(put(store, key, epoch, f"by {epoch}".encode()))
            except Superseded:
                continue
        return made

    with ThreadPoolExecutor(4) as pool:
        done = [head for heads in pool.map(take, range(4)) for head in heads]
    head = stores[0].head(key)
    assert head is not None and head.epoch == 16 and read_bytes(stores[1], head) == b"by 16"
    assert head in done


def test_of_two_with_the_same_epoch_one_wins(service: Service, key: str) -> None:
    stores = [service.store() for _ in range(2)]
    gate = threading.Barrier(4)

    def take(index: int, epoch: int) -> bool:
        gate.wait(30)
        try:
            put(stores[index % 2], key, epoch, b"x")
        except Superseded:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for epoch in range(1, 11):
            assert sum(pool.map(take, range(4), [epoch] * 4)) == 1


def test_what_was_deleted_does_not_come_back(store: StateStore, key: str) -> None:
    late = Write(store, key, 5)
    piece = late.put(b"x")
    late.flush()
    store.delete(key, 5)
    assert not store.delete(key, 5)
    with pytest.raises(Superseded):
        store.commit(late.ticket, 1, [piece])
    with pytest.raises(Superseded):
        Write(store, key, 5)
    with pytest.raises(Superseded):
        Write(store, key, 4)
    assert store.head(key) is None
    assert list(store.list(key)) == []
    assert read_bytes(store, put(store, key, 6, b"new")) == b"new"


def test_a_write_that_was_given_up_leaves_the_old_version(store: StateStore, key: str) -> None:
    old = put(store, key, 1, b"old")
    with pytest.raises(ZeroDivisionError), Write(store, key, 2) as write:
        write.put(b"half")
        _ = 1 / 0
    assert store.head(key) == old
    with pytest.raises(Superseded):
        Write(store, key, 2)
    assert read_bytes(store, old) == b"old"
    put(store, key, 3, b"new")


def test_a_piece_that_arrives_damaged_is_refused(store: StateStore, key: str) -> None:
    write = Write(store, key, 1)
    with pytest.raises(Damaged):
        store.put(write.ticket, Piece(1, 1, 3, zlib.crc32(b"abc")), b"abd")
        store.flush(write.ticket)


def test_a_commit_of_what_was_never_put_is_refused(store: StateStore, key: str) -> None:
    write = Write(store, key, 1)
    there = write.put(b"there")
    with pytest.raises(Incomplete):
        write.commit([there, Piece(1, 9, 1, 0)])
    assert store.head(key) is None
    with pytest.raises(Incomplete):
        write.commit([Piece(1, there.number, there.size, there.crc ^ 1)])
    assert write.commit([there]).size == 5


def test_repeating_does_nothing(store: StateStore, key: str) -> None:
    write = Write(store, key, 1)
    piece = Piece(1, 1, 1, zlib.crc32(b"x"))
    for _ in range(2):
        store.put(write.ticket, piece, b"x")
        head = store.commit(write.ticket, 1, [piece], b"m")
    assert store.head(key) == head
    with pytest.raises(Conflict):
        store.commit(write.ticket, 1, [piece], b"other")
    with pytest.raises(Conflict):
        store.commit(write.ticket, 3, [piece])


def test_what_cannot_be_is_said(store: StateStore, key: str) -> None:
    for wrong in ("", "a\0b", "x" * 401):
        with pytest.raises(Invalid):
            Write(store, wrong, 1)
    with pytest.raises(Invalid):
        Write(store, key, 0)
    with pytest.raises(Invalid, match="put_bytes"):
        Write(store, key, 1).put(bytes(MAX_PIECE + 1))


def test_it_is_refused_before_it_is_full_and_says_the_sizes(store: StateStore, key: str) -> None:
    limit = store.capacity().limit
    with pytest.raises(Full, match=f"{key}/b {limit}") as refused:
        store.reserve(1, {f"{key}/a": 100, f"{key}/b": limit})
    assert (refused.value.limit, refused.value.needed > limit) == (limit, True)
    assert store.capacity().reserved == 0
    store.reserve(1, {key: limit // 2})
    with pytest.raises(Full):
        store.reserve(2, {f"{key}/c": limit // 2})
    store.reserve(1, {key: limit // 4})  # takes the place of the first
    store.reserve(2, {f"{key}/c": limit // 2})
    store.release(2, [f"{key}/c"])
    with Write(store, key, 1) as write:
        write.put(b"x" * 1000)
        write.flush()
        now = store.capacity()
        assert limit // 4 - 2000 < now.reserved < limit // 3
        write.commit()
    assert store.capacity().reserved == 0


def test_what_was_reserved_is_there_when_all_else_is_taken(store: StateStore, key: str) -> None:
    store.reserve(1, {key: _MIB})
    # As much as is free, with what pieces cost (`Budget.reserve`).
    store.reserve(2, {f"{key}/other": (store.capacity().free - 4096) * 64 // 65})
    try:
        assert store.capacity().free < _MIB
        put(store, key, 1, noise(_MIB))
    finally:
        store.release(2, [f"{key}/other"])


def test_room_that_is_reserved_is_free_again_after_its_time(store: StateStore, key: str) -> None:
    store.reserve(1, {key: 1000}, seconds=0)
    assert store.capacity().reserved == 0


def test_pieces_beyond_the_limit_are_refused_and_nothing_else_suffers(store: StateStore, key: str) -> None:
    kept = put(store, f"{key}/kept", 1, b"kept")
    limit = store.capacity().limit
    store.reserve(1, {f"{key}/other": store.capacity().free - 3 * _MIB})
    try:
        with pytest.raises(Full) as refused, Write(store, key, 1) as write:
            for n in range(8):
                write.put(noise(_MIB, n))
            write.flush()
        assert refused.value.limit == limit
    finally:
        store.release(1, [f"{key}/other"])
    assert store.head(key) is None
    assert read_bytes(store, kept) == b"kept"


def test_what_ended_moves_left_is_collected(store: StateStore, key: str) -> None:
    old = put(store, f"{key}/old", 3, b"o" * 1000)
    kept = put(store, f"{key}/kept", 3, b"k")
    later = put(store, f"{key}/later", 9, b"l")
    half = Write(store, f"{key}/half", 4)
    half.put(b"h" * 1000)
    half.flush()
    both = put(store, f"{key}/both", 2, b"b")
    Write(store, f"{key}/both", 4).put(b"c")
    done = store.collect(key, keep={(kept.key, 3), (both.key, 2)}, before=4)
    assert done.keys == 3 and done.size >= 2000
    assert [(e.key, e.committed) for e in store.list(key)] == [
        (both.key, 2),
        (kept.key, 3),
        (later.key, 9),
    ]
    assert store.head(old.key) is None
    with pytest.raises(Superseded):
        half.put(b"late")
        half.flush()
    assert read_bytes(store, both) == b"b"
    assert store.collect(key, keep={(kept.key, 3), (both.key, 2)}, before=4).keys == 0


def test_many_states_at_once(store: StateStore, key: str) -> None:
    sizes = [0, 1, 1000, 300_000, 5 * _MIB, 10, *[2000] * 30]
    states = []
    for n, size in enumerate(sizes):
        data = noise(size, n)
        pieces = tuple(data[at : at + _MIB] for at in range(0, size, _MIB))
        states.append(State(Ticket(f"{key}/{n}", 3, "w"), pieces, b"meta %d" % n))
    superseded = (2, 4)  # a small one, and one that goes its own way
    for n in superseded:
        Write(store, f"{key}/{n}", 4)
    for _ in range(2):  # again, as after an answer that was lost
        done = list(store.save(states))
        assert [type(d) for d in done] == [Superseded if n in superseded else Head for n in range(len(sizes))]
    wanted = [(f"{key}/{n}", 3) for n in range(len(sizes))] + [(f"{key}/3", 2), (f"{key}/none", 3)]
    got = list(store.fetch(wanted))
    assert len(got) == len(wanted)
    for n, (state, head, fetched) in enumerate(zip(states, done, got, strict=False)):
        if n in superseded:
            assert isinstance(fetched, NotFound)
            continue
        assert isinstance(fetched, Fetched)
        assert fetched.head == head == store.head(f"{key}/{n}")
        assert (fetched.pieces, fetched.head.meta) == (state.pieces, state.meta)
    assert isinstance(got[-2], NotFound) and isinstance(got[-1], NotFound)
    assert store.collect(key, keep=(), before=4).keys == len(sizes)


@pytest.fixture
def back_end(store: StateStore) -> BackEnd:
    if isinstance(store, GrpcStore):
        pytest.skip("what servers need of the store behind them")
    return store  # type: ignore[return-value]


def test_a_version_comes_with_those_of_its_pieces_that_are_wanted(back_end: BackEnd, key: str) -> None:
    with Write(back_end, key, 3) as write:
        pieces = [write.put(noise(1000, n)) for n in range(5)]
        head = write.commit(pieces, b"meta")
    for have in ((), {pieces[0], pieces[3]}, set(pieces)):
        found, data = back_end.open(key, 3, have)
        assert found == head
        assert list(data) == [None if p in have else noise(1000, n) for n, p in enumerate(pieces)]
    for most, count in ((0, 3), (1000, 3), (2500, 4), (None, 5)):
        _, data = back_end.open(key, 3, {pieces[0], pieces[1]}, most)
        assert list(data) == [None, None, *[noise(1000, n) for n in range(2, count)]]
    for other, epoch in ((key, 2), (key, 4), (f"{key}/none", 3)):
        with pytest.raises(NotFound, match="is wanted"):
            back_end.open(other, epoch)
    put(back_end, key, 4, b"next")
    with pytest.raises(NotFound):
        back_end.open(key, 3)
    assert b"".join(d for d in back_end.open(key, 4)[1] if d is not None) == b"next"


def test_a_state_that_is_saved_at_once_obeys_the_same_rules(back_end: BackEnd, key: str) -> None:
    def save(epoch: int, writer: str, *data: bytes) -> Head:
        ticket = Ticket(key, epoch, writer)
        return back_end.save_whole(ticket, manifest(ticket, data), data, b"meta")

    before = back_end.capacity()
    put(back_end, key, 1, noise(500_000))
    head = save(2, "w", b"a", b"", b"ccc")
    assert back_end.head(key) == head and list(back_end.get(head)) == [b"a", b"", b"ccc"]
    assert save(2, "w", b"a", b"", b"ccc") == head
    for epoch, writer in ((1, "w"), (2, "other")):
        with pytest.raises(Superseded):
            save(epoch, writer, b"late")
    with pytest.raises(Conflict):
        save(2, "w", b"b", b"", b"ccc")
    assert back_end.head(key) == head
    # The writer may go on with what it has saved.
    opened = back_end.begin(Ticket(key, 2, "w"))
    assert opened.sequence == head.sequence and opened.next_number > 3
    more = Piece(2, opened.next_number, 1, zlib.crc32(b"d"))
    back_end.put(Ticket(key, 2, "w"), more, b"d")
    later = back_end.commit(Ticket(key, 2, "w"), opened.sequence + 1, [*head.pieces, more])
    assert list(back_end.get(later)) == [b"a", b"", b"ccc", b"d"]
    with pytest.raises(Damaged):
        back_end.save_whole(Ticket(key, 3, "w"), [Piece(3, 1, 1, 0)], [b"x"])
    with pytest.raises(Full):
        back_end.save_whole(
            Ticket(key, 3, "w"),
            manifest(Ticket(key, 3, "w"), [noise(4 * _MIB)] * 40),
            [noise(4 * _MIB)] * 40,
        )
    assert back_end.head(key) == later
    assert back_end.delete(key, 3)
    assert back_end.capacity().used == before.used


def test_a_list_says_what_is_there(store: StateStore, key: str) -> None:
    put(store, f"{key}/a", 2, b"x" * 1000)
    write = Write(store, f"{key}/a", 3)
    write.put(b"y" * 500)
    write.flush()
    (entry,) = store.list(key)
    assert (entry.epoch, entry.committed, entry.sequence, entry.size) == (3, 2, 1, 1000)
    assert entry.held >= 1500


def test_a_crash_loses_nothing_that_was_confirmed(service: Service, key: str) -> None:
    if not service.durable:
        pytest.skip("in memory only: it is for tests")
    store = service.store()
    data = noise(5 * _MIB)
    head = put(store, key, 2, data, b"meta")
    gone = put(store, f"{key}/gone", 2, b"x")
    store.delete(gone.key, 2)
    write = Write(store, f"{key}/open", 2, "writer")
    piece = write.put(b"ahead of the pause")
    write.flush()
    half = Write(store, key, 3)
    half.put(b"never committed")
    half.flush()
    service.crash()
    store = service.store()
    assert store.head(key) == head
    assert read_bytes(store, head) == data
    assert store.head(gone.key) is None
    with pytest.raises(Superseded):
        Write(store, gone.key, 2)
    with pytest.raises(Superseded):
        Write(store, key, 2)
    again = Write(store, f"{key}/open", 2, "writer")
    assert read_bytes(store, again.commit([piece, again.put(b"!")])) == b"ahead of the pause!"
    put(store, key, 4, b"next")


def test_what_was_deleted_stays_gone_whatever_begins_or_ends_after_it(service: Service, key: str) -> None:
    """Over a crash too. Deleted, or collected: alone, below a write that goes on, and below one that was given up."""
    store = service.store()
    beside = put(store, f"{key}/beside", 1, b"in the same files, where a store has common ones")
    for name in ("deleted/given-up", "deleted/open", "collected/given-up", "collected/open"):
        put(store, f"{key}/{name}", 5, b"old")
        if name.startswith("deleted"):
            assert store.delete(f"{key}/{name}", 5)
        write = Write(store, f"{key}/{name}", 7, "writer")
        write.put(b"x")
        write.flush()
        if name.endswith("given-up"):
            write.abort()
    kept = {(f"{key}/collected/open", 7)}
    assert store.collect(f"{key}/collected/", keep=kept, before=7).keys == 2
    for crashed in (False, True):
        if crashed:
            if not service.durable:
                return
            service.crash()
            store = service.store()
        for way in ("deleted", "collected"):
            assert store.head(f"{key}/{way}/given-up") is None
            assert store.head(f"{key}/{way}/open") is None
            with pytest.raises(Superseded):
                Write(store, f"{key}/{way}/given-up", 7, "writer")
        assert [(e.key, e.epoch, e.committed) for e in store.list(key)] == [
            (beside.key, 1, 1),
            (f"{key}/collected/open", 7, 0),
            (f"{key}/deleted/open", 7, 0),
        ]
        assert store.head(beside.key) == beside
    for way in ("deleted", "collected"):
        again = Write(store, f"{key}/{way}/open", 7, "writer")
        assert read_bytes(store, again.commit([again.put(b"new")])) == b"new"


def test_a_writer_goes_on_over_a_crash_of_the_store(service: Service, key: str) -> None:
    """Killed in the middle of a put: nothing is half there, and who was writing does not notice."""
    if not isinstance(service, Grpc):
        pytest.skip("only what lies behind gRPC dies alone")
    store = service.store()
    pieces = [noise(200_000, n) for n in range(100)]
    with Write(store, key, 1) as write:
        for number, data in enumerate(pieces):
            if number in (30, 70):
                service.crash()
            write.put(data)
        service.crash()
        assert store.head(key) is None
        head = write.commit()
    reading = store.get(head)
    got = [next(reading)]
    service.crash()
    assert got + list(reading) == pieces


def test_errors_say_the_key(store: StateStore, key: str) -> None:
    put(store, key, 2, b"")
    with pytest.raises(StateStoreError, match=key):
        Write(store, key, 1)


assert LIMIT > 2 * 48 * _MIB
