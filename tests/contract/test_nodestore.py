"""The node store's contract, for the one in memory and the one on LMDB, and what only the real one can
promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from elastic.errors import ConfigError, ElasticError, EnvironmentProblem, NotFound, Refused
from elastic.nodestore import lmdb_store, memory


@pytest.fixture(params=[memory, lmdb_store], ids=["memory", "lmdb"])
def store(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def test_the_latest_version_wins(store: ModuleType, tmp_path: Path) -> None:
    writer = store.open_writer(tmp_path)
    reader = store.open_reader(tmp_path)
    assert reader.latest("a") is None
    assert [writer.append("a", b"one"), writer.append("a", b"two"), writer.append("b", b"")] == [1, 2, 1]
    assert (reader.latest("a").version, reader.latest("a").data) == (2, b"two")
    assert reader.latest("b").data == b""
    assert [e.version for e in reader.history("a")] == [2, 1]
    assert [e.data for e in reader.history("a", 1)] == [b"two"]
    reader.close()
    reader.close()
    writer.close()
    writer.close()


def test_keys_that_begin_alike_stay_apart(store: ModuleType, tmp_path: Path) -> None:
    writer = store.open_writer(tmp_path)
    names = ["a", "a\x01", "a b", "ab", "ab@node/1", "ab@node/10", "ä", "b"]
    for n in names:
        for i in range(3):
            writer.append(n, f"{n}{i}".encode())
    assert writer.keys() == tuple(sorted(names))
    assert all(writer.latest(n).data == f"{n}2".encode() for n in names)
    writer.forget("a")
    writer.forget("nothing")
    assert writer.keys() == tuple(sorted(names[1:]))
    assert writer.latest("a") is None
    assert len(writer.history("ab")) == 3
    assert writer.append("a", b"again") == 1
    writer.close()


def test_old_versions_are_pruned_to_the_bound(store: ModuleType, tmp_path: Path) -> None:
    writer = store.open_writer(tmp_path, keep=5)
    for i in range(23):
        writer.append("a", str(i).encode())
        writer.append("aa", b"x")
    assert [e.version for e in writer.history("a", 100)] == [23, 22, 21, 20, 19]
    assert writer.latest("a").data == b"22"
    writer.close()


def test_a_second_writer_is_refused_until_the_first_has_closed(store: ModuleType, tmp_path: Path) -> None:
    writer = store.open_writer(tmp_path)
    writer.append("a", b"one")
    with pytest.raises(Refused, match="open for writing"):
        store.open_writer(tmp_path)
    reader = store.open_reader(tmp_path)
    writer.close()
    with pytest.raises(Refused):
        writer.append("a", b"late")
    assert reader.latest("a").data == b"one"
    second = store.open_writer(tmp_path)
    assert second.append("a", b"two") == 2
    assert reader.latest("a").data == b"two"
    reader.close()
    second.close()


def test_a_store_that_nobody_made_cannot_be_read(store: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.open_reader(tmp_path / "nothing")


@pytest.mark.parametrize("key", ["", "a\0b", "x" * 1000])
def test_impossible_keys_are_named(key: str, tmp_path: Path) -> None:
    writer = lmdb_store.open_writer(tmp_path)
    with pytest.raises(ConfigError, match="cannot be a key"):
        writer.append(key, b"")
    writer.close()


def test_the_map_grows_up_to_its_limit_and_readers_elsewhere_follow(tmp_path: Path) -> None:
    writer = lmdb_store.open_writer(tmp_path, map_size=1 << 16, map_limit=1 << 22)
    writer.append("a", b"small")
    with _process(_FOLLOW, tmp_path) as reader:
        _expect(reader, "1 5")
        for i in range(20):
            writer.append(f"k{i}", bytes(50_000))
        writer.append("a", bytes(100_000))
        _tell(reader)
        _expect(reader, "2 100000")
        with pytest.raises(EnvironmentProblem, match="limit of 4 MB"):
            for i in range(100):
                writer.append(f"more{i}", bytes(100_000))
        assert writer.append("a", b"still") == 3
        _tell(reader)
        _expect(reader, "3 5")
    writer.close()


def test_a_reader_survives_the_death_of_a_writer_and_sees_the_next_one(tmp_path: Path) -> None:
    with _process(_WRITE, tmp_path) as first:
        _expect(first, "1")
        with _process(_FOLLOW, tmp_path) as reader:
            assert reader.stdout is not None and reader.stdout.readline()
            with pytest.raises(Refused, match=f"process {first.pid}"):
                lmdb_store.open_writer(tmp_path)
            first.send_signal(signal.SIGKILL)
            writer = lmdb_store.open_writer(tmp_path, wait=30)  # waits for the end of the one that is dying
            before = writer.latest("a")
            assert before is not None
            assert writer.append("a", b"x" * 77) == before.version + 1
            _tell(reader)
            _expect(reader, f"{before.version + 1} 77")
            writer.close()


@pytest.mark.parametrize("confirmed", [1, 40, 120])
def test_a_writer_killed_in_mid_stream_loses_and_tears_nothing(confirmed: int, tmp_path: Path) -> None:
    with _process(_WRITE, tmp_path) as writer:
        assert writer.stdout is not None
        said = 0
        while said < confirmed:
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        # Whole lines only: confirmed after the kill was on its way.
        rest = writer.stdout.read().split(b"\n")[:-1]
        said = int(rest[-1]) if rest else said
        writer.wait(30)
    after = lmdb_store.open_writer(tmp_path, wait=30)
    kept = after.history("a", 1000)
    assert kept[0].version in (said, said + 1)  # the one that was written and could not be confirmed any more
    assert len(kept) == min(kept[0].version, lmdb_store.KEEP)
    for entry in kept:
        assert entry.data == _value(entry.version)
    after.close()


def test_the_check_above_finds_torn_values(tmp_path: Path) -> None:
    writer = lmdb_store.open_writer(tmp_path)
    writer.append("a", _value(1))
    writer.append("a", _value(2)[:-1])
    assert [e.data == _value(e.version) for e in writer.history("a")] == [False, True]
    writer.close()


def test_slots_of_killed_readers_are_given_back(tmp_path: Path) -> None:
    writer = lmdb_store.open_writer(tmp_path)
    writer.append("a", b"x")
    with _process(_FOLLOW, tmp_path) as reader:
        _expect(reader, "1 1")
        reader.send_signal(signal.SIGKILL)
        reader.wait(30)
    writer.close()
    again = lmdb_store.open_writer(tmp_path)
    assert again._shared.env.reader_check() == 0
    again.close()


def test_a_reader_goes_on_when_a_writer_opens_in_its_own_process(tmp_path: Path) -> None:
    lmdb_store.open_writer(tmp_path).close()
    reader = lmdb_store.open_reader(tmp_path)
    assert reader.latest("a") is None
    writer = lmdb_store.open_writer(tmp_path)
    writer.append("a", b"x")
    assert reader.latest("a") is not None
    writer.close()
    assert reader.keys() == ("a",)
    reader.close()
    assert not lmdb_store._environments


def test_who_waits_for_a_writer_that_removes_the_store_gets_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    removes = """
import shutil, sys
from elastic.nodestore.lmdb_store import open_writer
store = open_writer(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
shutil.rmtree(sys.argv[1])
"""
    command = [sys.executable, "-c", removes, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        ended, stdin = lmdb_store._ended, other.stdin

        def wait(holder: str, deadline: float) -> bool:
            stdin.close()
            return ended(holder, deadline)

        monkeypatch.setattr(lmdb_store, "_ended", wait)
        writer = lmdb_store.open_writer(path, wait=30)
        assert writer.append("a", b"one") == 1
        with pytest.raises(Refused):
            lmdb_store.open_writer(path)
        writer.close()


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a store" * 1000)
    with pytest.raises(ElasticError, match=str(tmp_path)):
        lmdb_store.open_writer(tmp_path)


def _value(version: int) -> bytes:
    return str(version).encode() * (1 + version * 37 % 3000)


_WRITE = """
import sys
from elastic.nodestore.lmdb_store import open_writer
store = open_writer(sys.argv[1])
version = 0
while True:
    version += 1
    assert store.append("a", str(version).encode() * (1 + version * 37 % 3000)) == version
    print(version, flush=True)
"""

_FOLLOW = """
import sys
from elastic.nodestore.lmdb_store import open_reader
store = open_reader(sys.argv[1])
while True:
    entry = store.latest("a")
    print(entry.version, len(entry.data), flush=True)
    if not sys.stdin.readline():
        break
"""


def _process(program: str, directory: Path) -> subprocess.Popen[bytes]:
    return _Process(
        [sys.executable, "-c", program, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


class _Process(subprocess.Popen[bytes]):
    def __exit__(self, *args: object) -> None:
        if self.poll() is None:
            self.kill()
        super().__exit__(None, None, None)


def _tell(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def _expect(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().decode().strip() == line


def test_a_writer_is_closed_while_a_reader_of_the_same_directory_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, which shares what is open: each has a lock that the other one wants."""
    writer = lmdb_store.open_writer(tmp_path)
    writer.append("k", b"1")
    closing, opening = threading.Event(), threading.Event()
    release, open_ = lmdb_store._release, lmdb_store._Environment.open

    def releases(shared: lmdb_store._Environment) -> None:
        closing.set()
        opening.wait(30)
        release(shared)

    def opens(shared: lmdb_store._Environment, *args: Any, **options: Any) -> None:
        opening.set()
        closing.wait(30)
        open_(shared, *args, **options)

    readers: list[Any] = []
    threads = [
        threading.Thread(target=writer.close, daemon=True),
        threading.Thread(target=lambda: readers.append(lmdb_store.open_reader(tmp_path)), daemon=True),
    ]
    with monkeypatch.context() as planted:
        planted.setattr(lmdb_store, "_release", releases)
        planted.setattr(lmdb_store._Environment, "open", opens)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    assert readers[0].latest("k").data == b"1"
    readers[0].close()
    lmdb_store.open_writer(tmp_path).close()


def test_memory_that_cannot_be_addressed_is_said_and_what_is_there_stays(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", _SHORT, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout.split() == ["EnvironmentProblem", "True"], said.stderr


_SHORT = """
import resource, sys
from pathlib import Path
from elastic.errors import EnvironmentProblem
from elastic.nodestore.lmdb_store import open_writer
writer = open_writer(Path(sys.argv[1]), map_size=1 << 26)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20),) * 2)
try:
    for n in range(200):
        writer.append(f"k{n}", bytes(1 << 20))
except EnvironmentProblem as e:
    print(type(e).__name__, writer.latest("k0") is not None)
"""
