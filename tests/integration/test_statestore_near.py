"""The way to a store of the same machine: messages, descriptors, and what happens when they are wrong or break off."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from statestore import near, near_server
from statestore.base import BackEnd, Fetched, Head, Opened, Piece, State, Ticket, pack
from statestore.bulk import OneByOne
from statestore.embedded import EmbeddedStore
from statestore.errors import Damaged, Invalid, NotFound, StateStoreError, Unavailable
from statestore.memory import MemoryStore
from statestore.near_client import NearStore
from statestore.near_server import NearServer
from statestore.parcel import Parcel
from statestore.writing import Write, read_bytes

T = TypeVar("T")
R = TypeVar("R")

MIB = 1 << 20


class Bench:
    def __init__(self, directory: Path, kind: str) -> None:
        self.path = directory / "s"
        self.directory = str(directory / "store") if kind == "embedded" else ""
        self.store: BackEnd = EmbeddedStore(directory / "store") if kind == "embedded" else MemoryStore()
        self.serve()
        self.client = NearStore(str(self.path), patience=20.0)

    def serve(self) -> None:
        self.server = NearServer(self.store, self.path, self.directory)
        self.server.start()

    def save(self, key: str, data: list[bytes], *, epoch: int = 1) -> None:
        """As a writer of this machine does: the pieces in a file."""
        ticket = (key, epoch, "w")
        number, sequence, directory = self.client.call(["begin", *ticket])
        assert (number, sequence, directory) == (1, 0, self.directory)
        parcel = Parcel(directory)
        placed = [
            (Piece(epoch, n, len(d), zlib.crc32(d)), parcel.append(d)) for n, d in enumerate(data, number)
        ]
        parcel.flush()
        packed = pack([p for p, _ in placed])
        body = ["commit", *ticket, 1, packed, b"meta", b"", packed, [offset for _, offset in placed]]
        self.client.call(body, (), [parcel.file])
        parcel.close()

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.store.close()


@pytest.fixture(params=["memory", "embedded"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(tmp_path, request.param)
    yield bench
    bench.close()
    assert not [t for t in threading.enumerate() if t.name == "statestore-near"]


def test_a_large_state_comes_in_several_messages(bench: Bench) -> None:
    data = [os.urandom(MIB) for _ in range(20)]
    with Write(bench.store, "large", 1) as write:
        write.commit([write.put(d) for d in data])
    bench.save("handed", data)
    results = list(bench.client.fetch([("large", 1), ("none", 1), ("handed", 1), ("handed", 2)]))
    assert not isinstance(results[0], StateStoreError) and list(results[0].pieces) == data
    assert not isinstance(results[2], StateStoreError) and list(results[2].pieces) == data
    assert results[2].head.meta == b"meta" and results[2].head.size == 20 * MIB
    assert isinstance(results[1], NotFound) and isinstance(results[3], NotFound)
    head = bench.store.head("handed")
    assert head == results[2].head and read_bytes(bench.store, head) == b"".join(data)


def test_the_small_rest_of_a_large_state_stays_with_it(bench: Bench) -> None:
    """Where no files are handed over: what comes last of it is as small as states that come together in one message."""
    large = [os.urandom(MIB) for _ in range(near.PAYLOAD // MIB)] + [b"rest"]
    for key, pieces in (("a", [b"1"]), ("b", large), ("c", [b"2"]), ("d", [b"3"])):
        with Write(bench.store, key, 1) as write:
            write.commit([write.put(piece) for piece in pieces])
    found = list(bench.client.fetch([(key, 1) for key in "abcd"]))
    assert [f.pieces if not isinstance(f, StateStoreError) else f for f in found] == [
        (b"1",),
        tuple(large),
        (b"2",),
        (b"3",),
    ]


@contextlib.contextmanager
def descriptors(left: int) -> Iterator[None]:
    """This process may open so many files more."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull) as lowest:  # noqa: PTH123
        limit = lowest.fileno() + left
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def scattered(bench: Bench, files: int, each: int) -> list[tuple[Piece, bytes]]:
    """A version to which many commits have brought a file; what is next to each other in it came with different ones."""
    ticket, pieces = Ticket("k", 1, "w"), list[tuple[Piece, bytes]]()
    assert isinstance(bench.store, MemoryStore)
    bench.store.begin(ticket)
    for _ in range(files):
        parcel, placed = Parcel(bench.directory), []
        for _ in range(each):
            data = os.urandom(1000)
            piece = Piece(1, len(pieces) + 1, len(data), zlib.crc32(data))
            placed.append((piece, parcel.append(data)))
            pieces.append((piece, data))
        parcel.flush()
        bench.store.adopt(ticket, parcel.file, placed)
        parcel.close()
    pieces = [pieces[n * each + m] for m in range(each) for n in range(files)]
    bench.store.commit(ticket, 1, [piece for piece, _ in pieces])
    return pieces


@pytest.mark.parametrize("files", [40, near.FILES, 300])
def test_a_state_in_more_files_than_a_process_may_open_comes_whole(bench: Bench, files: int) -> None:
    pieces = scattered(bench, files, 5)
    data = [d for _, d in pieces]
    have = dict(pieces[7:20])
    with descriptors(2 * near.FILES + 30):  # at both ends
        (found,) = bench.client.fetch([("k", 1)])
        assert isinstance(found, Fetched) and list(found.pieces) == data
        (found,) = bench.client.fetch([("k", 1)], have)
        assert isinstance(found, Fetched) and list(found.pieces) == data
        here: dict[Piece, bytes] = dict(have)
        looks = 0
        while len(here) < len(pieces):  # a part at a time
            (found,) = bench.client.fetch([("k", 1)], here, 20_000)
            assert isinstance(found, Fetched) and list(found.pieces) == data[: len(found.pieces)]
            here |= dict(zip(found.head.pieces, found.pieces, strict=False))
            looks += 1
    assert looks >= files * 5 * 1000 // 21_000 or not bench.directory


def test_descriptors_for_which_there_is_no_room_are_missed(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, (tmp_path / "file").open("w") as file:
        near.send(ours, ["ok"], files=[file.fileno()])
        with descriptors(0), pytest.raises(OSError, match="Too many open files"):
            near.receive(theirs)


def test_what_is_no_message_ends_the_connection_and_nothing_else(bench: Bench) -> None:
    with pytest.raises(Invalid, match="no call 'nonsense'"):
        bench.client.call(["nonsense"])
    with pytest.raises(StateStoreError, match="begin failed"):
        bench.client.call(["begin", 1])
    with pytest.raises(Invalid, match="no file"):
        bench.client.call(["begin", "k", 1, "w"])
        bench.client.call(["commit", "k", 1, "w", 1, b"", b"", b"", pack([Piece(1, 1, 1, 1)]), [0]])
    for garbage in (
        b"garbage" * 10,
        struct.pack("<IQ", 3, 0) + b"\xc1\xc1\xc1",
        struct.pack("<IQ", 9, 1 << 50),
    ):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(20)
            raw.connect(str(bench.path))
            raw.sendall(garbage)
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(10) == b""
    bench.save("k2", [b"fine"])


def test_damage_on_the_way_is_found(bench: Bench) -> None:
    bench.client.call(["begin", "k", 1, "w"])
    wrong = pack([Piece(1, 1, 4, zlib.crc32(b"good"))])
    with pytest.raises(Damaged):
        bench.client.call(["commit", "k", 1, "w", 1, wrong, b"", wrong, b"", []], [b"evil"])
    with pytest.raises(Damaged, match="bytes came for pieces of"):
        bench.client.call(["commit", "k", 1, "w", 1, wrong, b"", wrong, b"", []], [b"longer"])
    assert bench.store.head("k") is None


def test_a_store_that_is_started_again_is_found_again(bench: Bench) -> None:
    keys = [f"k{n}" for n in range(30)]
    for key in keys:
        bench.save(key, [key.encode() * 30_000])
    answers = bench.client.fetch([(key, 1) for key in keys])
    first = next(answers)
    bench.server.close()
    bench.serve()
    results = [first, *answers]
    assert [r.head.key for r in results if not isinstance(r, StateStoreError)] == keys
    assert [r.pieces[0][:3] for r in results if not isinstance(r, StateStoreError)] == [
        (key.encode() * 2)[:3] for key in keys
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_descriptor_is_left(bench: Bench) -> None:
    bench.save("k", [bytes(300_000), bytes(10)])
    list(bench.client.fetch([("k", 1)]))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        list(bench.client.fetch([("k", 1), ("none", 1)]))
        bench.client.delete([("none", 1)])
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_descriptor_is_left_when_a_client_goes_before_its_answers(bench: Bench) -> None:
    """The message that cannot be sent is a batch of small states; the large one behind it is handed over as a file."""
    with Write(bench.store, "small", 1) as write:
        write.commit([write.put(b"small")])
    bench.save("large", [bytes(300_000)])
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(bench.path))
            deaf.shutdown(socket.SHUT_RD)
            near.send(deaf, ["fetch", [["small", 1], ["large", 1]], b"", None])
            ended = select.poll()
            ended.register(deaf, 0)
            assert ended.poll(20_000)  # the other end has let go
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


class Exhausted:
    """A listening socket that accepts nobody for some time."""

    def __init__(self, real: socket.socket, times: int) -> None:
        self.real, self.left, self.asked = real, times, 0
        self.refused = threading.Event()

    def accept(self) -> Any:
        self.asked += 1
        if self.left:
            self.left -= 1
            self.refused.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return self.real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.parametrize("short_of", ["descriptors", "threads"])
def test_a_server_that_is_short_of_something_says_so_once_and_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, short_of: str
) -> None:
    monkeypatch.setattr(near_server, "_PAUSE", 0.0)
    bench.server.close()
    bench.server = NearServer(bench.store, bench.path, bench.directory)
    if short_of == "descriptors":
        bench.server._listening = Exhausted(bench.server._listening, 5)  # type: ignore[assignment]
    real, left = threading.Thread.start, [5]

    def start(thread: threading.Thread) -> None:
        if thread.name == "statestore-near" and thread is not bench.server._thread and left[0]:
            left[0] -= 1
            raise RuntimeError("can't start new thread")
        real(thread)

    if short_of == "threads":
        monkeypatch.setattr(threading.Thread, "start", start)
    bench.server.start()
    bench.save("k", [b"fine"])
    told = [r for r in caplog.records if "no connection can be accepted" in r.message]
    assert len(told) == 1


def test_a_server_without_descriptors_waits_and_can_be_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_server, "_PAUSE", 600.0)
    server = NearServer(MemoryStore(), tmp_path / "s")
    listening = Exhausted(server._listening, 1 << 30)
    server._listening = listening  # type: ignore[assignment]
    server.start()
    assert listening.refused.wait(20)
    server.close()
    assert not server._thread.is_alive() and listening.asked == 1


def test_whoever_waits_is_told_when_the_client_is_closed(bench: Bench, tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        client = NearStore(str(tmp_path / "silent"), patience=60.0)
        said: list[StateStoreError] = []

        def ask() -> None:
            try:
                client.call(["release", 1, []])
            except StateStoreError as error:
                said.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        silent.accept()[0].recv(4)
        client.close()
        thread.join(20)
        assert not thread.is_alive() and isinstance(said[0], Unavailable)
        impatient = NearStore(str(tmp_path / "silent"), patience=0.1)
        with pytest.raises(Unavailable, match="does not answer"):
            impatient.call(["release", 1, []])
        impatient.close()


def test_a_client_that_is_closed_while_it_connects_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        client = NearStore(str(tmp_path / "silent"), patience=5.0)
        monkeypatch.setattr(near, "tune", lambda sock: client.close())
        with pytest.raises(Unavailable, match="is closed"):
            client.call(["release", 1, []])


def test_only_its_user_can_reach_it_and_its_path_is_free_afterwards(bench: Bench, tmp_path: Path) -> None:
    assert bench.path.stat().st_mode & 0o777 == 0o600
    bench.server.close()
    assert not bench.path.exists()
    bench.serve()
    with pytest.raises(StateStoreError, match="cannot listen"):
        NearServer(bench.store, tmp_path / ("x" * 150))


class Waiting(MemoryStore):
    """One whose every answer needs another call to be under way: one after the other, nothing would ever be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(2)
        self.together = 2

    def each(self, call: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        with ThreadPoolExecutor(self.together) as pool:
            yield from pool.map(call, items)

    def _meet(self) -> None:
        self.meeting.wait(20.0)

    def begin(self, ticket: Ticket) -> Opened:
        self._meet()
        return super().begin(ticket)

    def head(self, key: str) -> Head | None:
        self._meet()
        return super().head(key)

    def delete(self, key: str, epoch: int) -> bool:
        self._meet()
        return super().delete(key, epoch)


def test_a_store_that_gains_by_it_is_asked_for_several_states_at_a_time(tmp_path: Path) -> None:
    with closing(Waiting()) as store, closing(NearServer(store, tmp_path / "s")) as server:
        server.start()
        with closing(NearStore(str(tmp_path / "s"), patience=20.0)) as client:
            states = [State(Ticket(f"k{n}", 1, "w"), (b"%d" % n,), b"meta") for n in range(6)]
            assert client.end_many(client.begin_save(states)) == [None] * 6
            found = list(client.fetch([(f"k{n}", 1 + (n == 3)) for n in range(6)]))
            assert isinstance(found[3], NotFound)
            assert [f.pieces for f in found if isinstance(f, Fetched)] == [
                (b"%d" % n,) for n in (0, 1, 2, 4, 5)
            ]
            assert client.delete([(f"k{n}", 1) for n in range(6)]) == [None] * 6
            store.together = 1  # the check can fail
            store.meeting.abort()
            assert all(isinstance(o, StateStoreError) for o in _deleted(client))


def _deleted(client: NearStore) -> list[StateStoreError | None]:
    try:
        return client.delete([("k1", 1), ("k2", 1)])
    except StateStoreError as error:
        return [error]


class Cluster(OneByOne):
    """One without files, such as a cluster of which each piece is asked for."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def get(self, head: Head, indexes: Sequence[int] | None = None) -> Iterator[bytes]:
        self.read += range(len(head.pieces)) if indexes is None else indexes
        return self.memory.get(head, indexes)


@pytest.mark.parametrize("size", [100, MIB])
def test_what_the_client_has_is_not_read_again(tmp_path: Path, size: int) -> None:
    store: Any = Cluster()
    with closing(store.memory), closing(NearServer(store, tmp_path / "s")) as server:
        server.start()
        with closing(NearStore(str(tmp_path / "s"), patience=20.0)) as client:
            data = [os.urandom(size) for _ in range(12)]
            with Write(store.memory, "k", 1) as write:
                pieces = [write.put(d) for d in data]
                write.commit(pieces)
            with Write(store.memory, "other", 1) as write:
                write.commit([write.put(b"other")])
            have = {pieces[n]: data[n] for n in (0, 3, 4, 11)}
            (found,) = client.fetch([("k", 1)], have)
            assert isinstance(found, Fetched) and list(found.pieces) == data
            assert store.read == [1, 2, 5, 6, 7, 8, 9, 10]
            (found,) = client.fetch([("k", 1)], dict(zip(pieces, data, strict=True)))
            assert isinstance(found, Fetched) and list(found.pieces) == data and len(store.read) == 8
            # A part at a time: from nothing to all of it.
            store.read, here = [], {}
            for n in range(0, 12, 2):
                (found,) = client.fetch([("k", 1)], here, 2 * size)
                assert isinstance(found, Fetched) and list(found.pieces) == data[: n + 2]
                assert found.head.pieces == tuple(pieces)
                here = dict(zip(pieces, found.pieces, strict=False))
            assert store.read == list(range(12))
            both = list(client.fetch([("k", 1), ("other", 1)], have))
            assert [list(f.pieces) for f in both if isinstance(f, Fetched)] == [data, [b"other"]]
