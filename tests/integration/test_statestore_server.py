"""The state store's process: how it starts, refuses, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest
from families import left_of, listens

from elastic import procs
from statestore.base import State, Ticket
from statestore.client import GrpcStore
from statestore.errors import Full, Invalid, Missing, NotFound, StateStoreError, Unavailable
from statestore.memory import MemoryStore
from statestore.process import StoreProcess, _reason
from statestore.service import StoreServer
from statestore.v1 import statestore_pb2 as pb
from statestore.v1.statestore_pb2_grpc import StateStoreServiceStub
from statestore.writing import Write, read_bytes

ROOT = Path(__file__).resolve().parents[2]


def test_it_serves_ends_on_request_and_keeps_its_address(tmp_path: Path) -> None:
    arguments = ["--backend", "embedded", "--directory", str(tmp_path / "store"), "--limit", "1M"]
    process = StoreProcess(arguments, tmp_path / "log", spawn=procs.spawn)
    address = process.start()
    assert process.process is not None
    at = listens(psutil.Process(process.process.pid))
    assert [f"{ip}:{port}" for ip, port in at] == [address]
    store = GrpcStore(address)
    write = Write(store, "k", 1)
    write.put(b"x")
    head = write.commit()
    assert store.capacity().limit == 1 << 20
    process.stop()
    assert process.process.returncode == 0
    assert process.start() == address
    assert read_bytes(store, head) == b"x"
    store.close()
    process.stop()
    process.stop()


def test_it_listens_on_a_unix_socket_as_well(tmp_path: Path) -> None:
    path = tmp_path / "s"
    backend = MemoryStore()
    for _ in range(2):  # also where one that was killed has left its socket
        path.touch()
        server = StoreServer(backend, unix=path)
        server.start()
        near, far = GrpcStore(f"unix:{path}"), GrpcStore(server.address)
        write = Write(near, "k", 1, "w")
        head = write.commit([write.put(b"x")])
        assert read_bytes(far, head) == b"x"
        near.close()
        far.close()
        server.close()
    backend.close()


def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom statestore.process import StoreProcess\n"
        "p = StoreProcess(['--backend', 'memory'], Path(sys.argv[1]))\np.start()\n"
        "print(p.process.pid, flush=True)\nsys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert parent.stdout is not None and parent.stdin is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait(30)
    assert not left_of([child], 30)
    parent.stdin.close()
    parent.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--backend", "embedded"], 2, "needs --directory"),
        (["--backend", "hazelcast"], 2, "needs --members"),
        (["--backend", "memory", "--limit", "much"], 2, "512M"),
        (["--backend", "memory", "--listen", "0.0.0.0:0"], 1, "no authentication"),
        (["--backend", "embedded", "--directory", "/proc/nothing"], 1, "cannot use /proc/nothing"),
    ],
)
def test_what_it_cannot_do_is_said(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "statestore.server", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_server_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    with StoreProcess(["--backend", "memory"], tmp_path / "a") as first:
        second = StoreProcess(["--backend", "memory"], tmp_path / "b", listen=first.address)
        (tmp_path / "b").write_text("2026-01-01 00:00:00,000 ERROR statestore: an earlier one\n")
        with pytest.raises(
            Missing, match=r"^the state store ended with exit code 1: [^\d].*cannot listen"
        ) as info:
            second.start()
    assert "earlier" not in str(info.value)


def test_the_reason_is_what_the_store_says_and_not_the_libraries_it_uses(tmp_path: Path) -> None:
    log, at = tmp_path / "log", "2026-01-01 00:00:00,000"
    lines = [
        f"{at} WARNING hazelcast.connection: Unable to connect to AddressHolder(host=10.1.2.3, port=5701)",
        f"{at} ERROR statestore: the Hazelcast cluster x at 10.1.2.3:5701 cannot be reached: no cluster",
        "  Do its members run?",
    ]
    log.write_text("\n".join(lines) + "\n")
    assert _reason(log, 0) == (
        "the Hazelcast cluster x at 10.1.2.3:5701 cannot be reached: no cluster\n  Do its members run?"
    )
    log.write_text(lines[0])
    assert _reason(log, 0) == lines[0] and _reason(log, 1 << 20) == lines[0]
    assert _reason(tmp_path / "none", 0) == "no log"


def test_a_store_that_is_not_there_is_said_in_bounded_time() -> None:
    store = GrpcStore("127.0.0.1:9", patience=0.3)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
        store.head("k")
    with pytest.raises(Unavailable):
        Write(store, "k", 1)
    store.close()


def test_addresses_that_are_none_are_refused() -> None:
    for wrong in ("nowhere", "127.0.0.1", "10.1.2.3:0", "example.org:0", "127.0.0.1:99999"):
        with pytest.raises(Invalid):
            StoreServer(MemoryStore(), wrong)


def test_more_transfers_than_it_serves_wait_for_each_other(tmp_path: Path) -> None:
    backend = MemoryStore()
    server = StoreServer(backend)
    server.start()
    store = GrpcStore(server.address)
    writes = [Write(store, f"k{n}", 1) for n in range(60)]

    def finish(write: Write) -> bytes:
        for _ in range(3):
            write.put(write.ticket.key.encode() * 1000)
        return read_bytes(store, write.commit())

    with ThreadPoolExecutor(60) as pool:
        for write, got in zip(writes, pool.map(finish, writes), strict=True):
            assert got == write.ticket.key.encode() * 3000
    assert len(list(store.list("k"))) == 60
    with pytest.raises(NotFound):
        head = store.head("k1")
        assert head is not None
        store.delete("k1", 1)
        read_bytes(store, head)
    store.close()
    server.close()
    backend.close()


def test_transfers_that_do_not_go_on_leave_room_for_short_calls() -> None:
    backend = MemoryStore()
    server = StoreServer(backend)
    server.start()
    store = GrpcStore(server.address)
    over, refused = threading.Event(), threading.Semaphore(0)

    def nothing() -> Iterator[pb.PutRequest]:
        over.wait()
        yield from ()

    with grpc.insecure_channel(server.address) as channel:
        calls = [StateStoreServiceStub(channel).Put(nothing()) for _ in range(60)]
        try:
            for call in calls:
                if not call.add_callback(refused.release):  # it has ended already
                    refused.release()
            for _ in range(20):
                assert refused.acquire(timeout=20), "40 are served, others are told to come again"
            assert store.head("k") is None
            assert not refused.acquire(blocking=False)
        finally:
            over.set()
    store.close()
    server.close()
    backend.close()


def test_of_a_large_state_that_could_not_be_saved_nothing_is_kept() -> None:
    backend = MemoryStore(1 << 20)
    server = StoreServer(backend)
    server.start()
    store = GrpcStore(server.address)
    states = [State(Ticket(f"k{n}", 1, "w"), (bytes(300_000),) * 3) for n in range(4)]
    first, *others = store.save(states)
    assert not isinstance(first, StateStoreError) and all(isinstance(error, Full) for error in others)
    assert not store._uploads
    backend.delete("k0", 1)
    for state in states[1:]:  # there is room again for one after the other
        (head,) = store.save([state])
        assert not isinstance(head, StateStoreError) and read_bytes(store, head) == bytes(900_000)
        store.delete(head.key, 1)
    store.close()
    server.close()
    backend.close()


def test_the_first_line_is_its_address(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "statestore.server", "--backend", "memory", "--parent", str(os.getpid())],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["pid"] == process.pid and said["address"].startswith("127.0.0.1:")
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
