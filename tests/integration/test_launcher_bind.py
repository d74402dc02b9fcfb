"""A cluster on an address of its own: everything listens there, nothing elsewhere, and tuples go over it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_harness import environment
from families import family, listens

from elastic.cluster.directory import ClusterInfo
from elastic.cluster.launcher import UpOptions, start_background, stop
from elastic.control.client import Client
from elastic.errors import EnvironmentProblem

BIND = "127.0.0.2"
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address"),
    pytest.mark.timeout(240),
]


def listening(pid: int) -> dict[str, set[str]]:
    """Address -> the processes that listen on it with TCP, of a process and all below it."""
    found: dict[str, set[str]] = {}
    for process in family(pid):
        for ip, _ in listens(process):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile, as some of Spark's do
                found.setdefault(ip, set()).add(" ".join(process.cmdline()))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Too long a path for Unix sockets: workers of one machine use TCP then, as those of several do.
    home = tmp_path_factory.mktemp("home") / ("long" * 25)
    home.mkdir()
    return home


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterInfo]:
    options = UpOptions(cluster="c", home=str(home), bind=BIND, nodes=2, slots=1, nimbus=2)
    info = start_background(options, lambda _: None)
    try:
        yield info
    finally:
        stop(home, "c", purge=True)


def submit(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "elastic.control.cli", "--home", str(home), "--cluster", "c", "submit"]
    return subprocess.run([*argv, *words], capture_output=True, text=True, timeout=120, env=environment())


def test_the_look_finds_what_listens_elsewhere() -> None:
    """A planted fault: the same look at this process sees a socket on another address."""
    with socket.create_server(("127.0.0.3", 0)):
        assert "127.0.0.3" in listening(os.getpid())
    assert "127.0.0.3" not in listening(os.getpid())


def test_everything_listens_there_and_nowhere_else(cluster: ClusterInfo) -> None:
    found = listening(cluster.pid)
    assert set(found) == {BIND}
    for part in ("ZooKeeperServerMain", "nimbus_main", "supervisor_main"):
        assert any(part in command for command in found[BIND]), part
    assert cluster.zookeeper.startswith(f"{BIND}:")
    assert all(address.startswith(f"{BIND}:") for address in cluster.nimbus)
    with Client(cluster.nimbus[0]) as client:
        nodes = client.nodes()
        assert len(nodes) == 2 and {n.host for n in nodes} == {BIND}
        assert all(n.address.startswith(f"{BIND}:") for n in nodes)
        assert client.info().leader in cluster.nimbus


JOB = '''
from elastic import Bolt, Fields, Spout, TopologyBuilder


class Words(Spout):
    """Every word of a file; then it goes on without any, so that its workers stay to be looked at."""

    outputs = Fields(word=str)

    def __init__(self, path):
        self.path = path

    def prepare(self, context):
        self.words = iter(open(self.path).read().split())

    def next_tuple(self):
        word = next(self.words, None)
        if word is not None:
            self.emit(word)


class Pass(Bolt):
    def execute(self, tup):
        pass


def topology(args):
    b = TopologyBuilder("stays", workers=2)
    b.spout("words", Words(args[0]))
    b.bolt("pass", Pass(), tasks=4, executors=4).shuffle("words")
    return b.build()
'''


def test_two_workers_count_over_it(cluster: ClusterInfo, home: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "counts.tsv"
    text.write_text("to be or not to be that is the question\n" * 2000)
    words = ["--input", str(text), "--output", str(output), "--workers", "2"]
    done = submit(home, "--wait", str(ROOT / "examples" / "word_count.py"), *words)
    assert done.returncode == 0, done.stderr
    expected = Counter(text.read_text().split())
    assert output.read_text() == "".join(f"{word}\t{count}\n" for word, count in sorted(expected.items()))


def test_workers_register_that_address_and_listen_on_no_other(
    cluster: ClusterInfo, home: Path, tmp_path: Path
) -> None:
    job, text = tmp_path / "job.py", tmp_path / "text.txt"
    job.write_text(JOB)
    text.write_text("to be or not to be\n" * 1000)
    done = submit(home, str(job), str(text))
    assert done.returncode == 0, done.stderr
    with Client(cluster.nimbus[0]) as client:
        deadline = time.monotonic() + 60.0

        def passed() -> bool:
            now = client.describe("stays")
            assert str(now.summary.status) == "active", now
            counts = {str(c.id): c.executed for c in now.components}
            return counts.get("pass") == 6000

        while not passed():  # reports come once a second: there is nothing to wait on
            assert time.monotonic() < deadline, client.describe("stays")
            time.sleep(0.3)
        workers = client.describe("stays").workers
        assert len(workers) == 2 and all(w.address.startswith(f"{BIND}:") for w in workers)
    for worker in workers:
        assert set(listening(worker.pid)) == {BIND}, worker
    between = [
        c.raddr.ip
        for w in workers
        for c in psutil.Process(w.pid).net_connections("tcp")
        if c.status == psutil.CONN_ESTABLISHED
        and c.raddr.port in {int(v.address.rpartition(":")[2]) for v in workers}
    ]
    assert between and set(between) == {BIND}, "tuples went over TCP"
    assert set(listening(cluster.pid)) == {BIND}


def test_an_address_of_another_machine_is_refused_and_leaves_nothing(home: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"192\.0\.2\.1: it is not an address of this machine"):
        start_background(UpOptions(cluster="other", home=str(home), bind="192.0.2.1"), lambda _: None)
    assert not (home / "other" / "cluster.json").exists()
