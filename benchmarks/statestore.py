"""States into the store and out of it: embedded, behind gRPC, and in a Hazelcast cluster of two members.

Every state is put in pieces of the size that the store likes, committed, read back whole and compared with its checksums. The
embedded store runs in this process; the service runs in one of its own, as on a node. "both" puts to two services at once, as
a move to another node does.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import Session, Skip, Wrong
from elastic import procs
from elastic.cluster.java import find_java
from elastic.errors import EnvironmentProblem
from statestore.base import Head, StateStore
from statestore.client import GrpcStore
from statestore.embedded import EmbeddedStore
from statestore.errors import Missing
from statestore.hazelcast.member import HazelcastMember, MemberOptions, make_class_archive
from statestore.hazelcast.options import HazelcastOptions
from statestore.hazelcast.store import HazelcastStore
from statestore.process import StoreProcess
from statestore.writing import Write, read_bytes

NAME = "statestore"
SUMMARY = "states put and fetched, 1 to 64 MB: embedded, gRPC, Hazelcast without and with a backup"

SIZES = (1, 16, 64)
_MIB = 1 << 20
_LIMIT = 300 * _MIB
_HEAP = 1 << 30


def run(session: Session) -> None:
    """Measure all stores, side by side within each size."""
    sizes = SIZES[:2] if session.quick else SIZES
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="statestore-") as directory:
        makers: dict[str, Callable[[], Puts]] = {
            "embedded": lambda: _one(stack.enter_context(_embedded(root / "embedded"))),
            "gRPC": lambda: _one(stack.enter_context(_service(root / "one", _EMBEDDED))),
            "gRPC, both": lambda: _both(
                stack.enter_context(_service(root / "two", _EMBEDDED)),
                stack.enter_context(_service(root / "three", _EMBEDDED)),
            ),
            "Hazelcast, no backup": lambda: _one(stack.enter_context(_hazelcast(root / "hz0", 0))),
            "Hazelcast, 1 backup": lambda: _one(stack.enter_context(_hazelcast(root / "hz1", 1))),
            "gRPC to Hazelcast, 1 backup": lambda: _one(stack.enter_context(_behind(root / "hz2", 1))),
        }
        root = Path(directory)
        made: dict[str, Puts] = {}
        for size in sizes:
            for way in ("put", "get"):
                contenders = {
                    f"{name}, {way} {size} MB": _contender(name, makers[name], made, size, way)
                    for name in makers
                }
                values = session.interleave(contenders, unit="MB/s")
                session.report(values, unit="MB/s")


Puts = Callable[[str, int, bytes], tuple[float, StateStore, Head]]
_epochs = itertools.count(1)
_EMBEDDED = ("--backend", "embedded", "--limit", str(_LIMIT))


def _contender(
    name: str, make: Callable[[], Puts], made: dict[str, Puts], size: int, way: str
) -> Callable[[], float]:
    def measure() -> float:
        if name not in made:
            try:
                made[name] = make()
            except (Missing, EnvironmentProblem) as error:
                raise Skip(error.message) from error
            made[name]("warm", next(_epochs), bytes(_MIB))
        data = random.Random(size).randbytes(size * _MIB)
        epoch = next(_epochs)
        seconds, store, head = made[name]("state", epoch, data)
        if way == "get":
            started = time.perf_counter()
            got = read_bytes(store, head)
            seconds = time.perf_counter() - started
            if got != data:
                raise Wrong("what came back is something else")
        store.delete("state", epoch)
        return size * _MIB / 1e6 / seconds

    return measure


def _put(store: StateStore, key: str, epoch: int, data: bytes) -> Head:
    with Write(store, key, epoch) as write:
        write.put_bytes(data)
        return write.commit()


def _one(store: StateStore) -> Puts:
    def put(key: str, epoch: int, data: bytes) -> tuple[float, StateStore, Head]:
        started = time.perf_counter()
        head = _put(store, key, epoch, data)
        return time.perf_counter() - started, store, head

    return put


def _both(first: StateStore, second: StateStore) -> Puts:
    pool = ThreadPoolExecutor(1)

    def put(key: str, epoch: int, data: bytes) -> tuple[float, StateStore, Head]:
        started = time.perf_counter()
        other = pool.submit(_put, second, key, epoch, data)
        _put(first, key, epoch, data)
        head = other.result()
        seconds = time.perf_counter() - started
        first.delete(key, epoch)
        return seconds, second, head

    return put


@contextmanager
def _embedded(directory: Path) -> Iterator[StateStore]:
    store = EmbeddedStore(directory, _LIMIT)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def _service(directory: Path, arguments: tuple[str, ...]) -> Iterator[StateStore]:
    given = [*arguments, "--directory", str(directory)]
    with StoreProcess(given, directory.with_suffix(".log"), spawn=procs.spawn) as process:
        store = GrpcStore(process.address)
        try:
            store.capacity()
            yield store
        finally:
            store.close()


@contextmanager
def _members(directory: Path, backups: int) -> Iterator[tuple[str, ...]]:
    java = find_java()
    make_class_archive(java, directory / "archive", spawn=procs.spawn)
    options = MemberOptions(directory.name, backups=backups, heap=_HEAP)
    with HazelcastMember(options, directory / "a", java=java, spawn=procs.spawn) as first:
        second = HazelcastMember(options, directory / "b", java=java, spawn=procs.spawn)
        try:
            second.start([first.address])
            yield first.address, second.address
        finally:
            second.stop()


@contextmanager
def _hazelcast(directory: Path, backups: int) -> Iterator[StateStore]:
    with _members(directory, backups) as members:
        store = HazelcastStore(
            HazelcastOptions(members, directory.name, members[0], backups=backups, limit=_LIMIT)
        )
        try:
            yield store
        finally:
            store.close()


@contextmanager
def _behind(directory: Path, backups: int) -> Iterator[StateStore]:
    with _members(directory, backups) as members:
        arguments = ("--backend", "hazelcast", "--cluster", directory.name, "--local", members[0])
        given = (*arguments, "--members", ",".join(members), "--limit", str(_LIMIT))
        with _service(directory / "service", given) as store:
            yield store
