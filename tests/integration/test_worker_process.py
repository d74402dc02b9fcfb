"""Real worker processes under a supervisor: their pipes, their logs, and their end, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor_harness import FAKE_WORKER, NODE, T, W, World, bundle, ended, supervisor, until

from elastic.cluster.zookeeper_server import EmbeddedZooKeeper
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import EnvironmentProblem
from elastic.model import codec
from elastic.model.events import Event
from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.model.load import WorkerReport
from elastic.model.records import Progress, TopologyStatus
from elastic.nodestore.lmdb_store import LmdbWriter, open_writer
from elastic.reporting.memory import MemoryReporter
from elastic.supervisor import logs
from elastic.supervisor.ports import WorkerExit, WorkerLaunch
from elastic.supervisor.supervisor import Supervisor
from elastic.supervisor.worker_process import ProcessLauncher
from elastic.transport.addresses import unix_path

ROOT = Path(__file__).parents[2]


class Bench:
    """A supervisor with real processes and a real store, over coordination in memory or a real session."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = MemoryZooKeeper()
        self.session = self.server.connect(session_timeout=2.0)
        self.world = World(self.server.connect())
        self.world.want_node()
        self.reporter = MemoryReporter()
        self.store: LmdbWriter = open_writer(directory / "store")
        self.supervisor: Supervisor | None = None

    def start(self, behaviour: str = "", **options: float) -> Supervisor:
        launcher = fake_launcher(self.directory, options.get("worker_cycle", 0.0))
        self.supervisor = supervisor(
            self.session, self.store, self.reporter, launcher, self.directory, **options
        )
        self.supervisor.start()
        self.sha = self.reporter.add_bundle(bundle(behaviour))
        self.world.submit(self.sha)
        self.world.assign((1, 2), (3, 4))
        return self.supervisor

    def pid(self, count: int = 1) -> int:
        return int(self.reporter.wait_for("fake-allocation", count).details["pid"])

    def log(self) -> str:
        return (self.directory / "workers" / "t" / "0" / "worker.log").read_text()

    def close(self) -> None:
        if self.supervisor:
            self.supervisor.close()
        self.server.close()
        self.store.close()


def fake_launcher(directory: Path, cycle: float = 0.0, zookeeper: str = "none") -> ProcessLauncher:
    return ProcessLauncher(
        zookeeper=zookeeper,
        store=directory / "store",
        run_dir=directory / "run",
        cycle=cycle,
        program=(str(FAKE_WORKER),),
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_worker_reads_its_allocation_and_is_told_of_changes(bench: Bench) -> None:
    started = bench.start()
    first = bench.reporter.wait_for("fake-allocation")
    assert first.component == "bolt:1-2,bolt:3-4"
    assert (first.node, first.worker, first.topology) == (NODE, W, "t")
    bench.world.assign((1, 4))
    second = bench.reporter.wait_for("fake-allocation", 2)
    assert second.component == "bolt:1-4"
    # No process is started again (N-Storm 2019, section III.B).
    assert second.details["pid"] == first.details["pid"]
    assert bench.reporter.wait(lambda: len(bench.reporter.reports) >= 2)
    assert {(n, r.incarnation) for n, r in bench.reporter.reports} == {(NODE, f"{W}#1")}
    assert 'fake_worker.py", line' in started.request_stacks(W).result(30)
    bench.world.coordination.delete(paths.wanted(NODE))
    assert started.wait(30) == 0
    assert ended(int(first.details["pid"]))
    assert f"I am {W}#1" in bench.log()
    assert 'fake_worker.py", line' not in bench.log()  # what was asked for is told to whoever asked


def test_a_killed_worker_is_started_again_as_another_life(bench: Bench) -> None:
    bench.start()
    first = bench.pid()
    os.kill(first, signal.SIGKILL)
    assert bench.pid(2) != first
    lost = bench.reporter.wait_for("worker-lost")
    assert lost.details["signal"] == "SIGKILL"
    assert f"I am {W}#1" in str(lost.details["tail"])
    bench.reporter.wait_for("worker-restarted")
    # That a life has begun is told by the supervisor, and what it says comes by its pipe: in whichever order.
    order = [k for k in bench.reporter.kinds() if k != "node-started"]
    before, after = order[: order.index("worker-lost")], order[order.index("worker-lost") + 1 :]
    assert sorted(before) == ["fake-allocation", "worker-started"]
    assert sorted(after) == ["fake-allocation", "worker-restarted"]
    os.kill(bench.pid(2), signal.SIGKILL)
    tail = str(bench.reporter.wait_for("worker-lost", 2).details["tail"])
    assert f"I am {W}#2" in tail and f"I am {W}#1" not in tail


def test_an_unloadable_bundle_is_told_with_its_traceback(bench: Bench) -> None:
    bench.start("unloadable")
    failed = bench.reporter.wait_for("bundle-failed")
    assert "raise ModuleNotFoundError" in str(failed.details["traceback"])
    path = paths.worker_progress(T, W)
    until(bench.world.coordination, path, lambda v: bool(v and codec.decode(v, Progress).failed))
    assert "No module named 'their_module'" in failed.message


def test_what_is_no_message_is_a_warning_and_what_follows_still_arrives(bench: Bench) -> None:
    bench.start("babble")
    assert "nope" in bench.reporter.wait_for("report-malformed").message
    bench.pid()


def test_a_worker_that_is_deaf_is_killed_after_its_grace(bench: Bench) -> None:
    bench.start("deaf", grace=0.1)
    pid = bench.pid()
    bench.world.set_state(TopologyStatus.KILLED, bench.sha)
    assert bench.reporter.wait_for("worker-stopped").details["signal"] == "SIGKILL"
    assert ended(pid)


def test_a_worker_with_a_cycle_looks_for_itself(bench: Bench) -> None:
    bench.start(cycle=0.05, worker_cycle=0.05)
    bench.pid()
    bench.world.assign((1, 1))
    assert bench.reporter.wait(lambda: any(e.component == "bolt:1-1" for e in bench.reporter.events))


def test_a_lost_session_ends_real_workers_too(bench: Bench) -> None:
    started = bench.start("deaf")
    pid = bench.pid()
    bench.server.expire(bench.session)
    assert started.wait(30) == 4
    assert ended(pid, 0)


_PROGRAM = """
import sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_worker_process import Bench
bench = Bench(Path(sys.argv[1]))
bench.start(sys.argv[3])
print(bench.pid(), flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("behaviour", ["", "deaf"])
def test_workers_die_with_their_supervisor_and_the_next_one_goes_on(tmp_path: Path, behaviour: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), str(Path(__file__).parent), behaviour],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with program:
        try:
            assert program.stdout is not None
            pid = int(program.stdout.readline())
        finally:
            program.kill()
    assert ended(pid)
    bench = Bench(tmp_path)
    try:
        bench.start()
        bench.pid()
        assert bench.reporter.wait_for("worker-started").details["incarnation"] == f"{W}#2"
    finally:
        bench.close()


class Listener:
    def __init__(self) -> None:
        self.exits: list[WorkerExit] = []
        self.got: list[object] = []
        self.ended = threading.Event()

    def on_event(self, incarnation: Incarnation, event: Event) -> None:
        self.got.append(event.kind)

    def on_report(self, incarnation: Incarnation, report: WorkerReport) -> None:
        self.got.append(report.epoch)

    def on_stacks(self, incarnation: Incarnation, text: str) -> None:
        self.got.append(text)

    def on_malformed(self, incarnation: Incarnation, what: str) -> None:
        self.got.append(what)

    def on_exit(self, incarnation: Incarnation, exit: WorkerExit) -> None:
        self.exits.append(exit)
        self.ended.set()


def _launch(directory: Path, program: str, listener: Listener) -> tuple[ProcessLauncher, int]:
    file = directory / "program.py"
    file.write_text(program)
    launcher = ProcessLauncher(
        zookeeper="none", store=directory / "store", run_dir=directory / "run", program=(str(file),)
    )
    running = launcher.start(
        WorkerLaunch(T, W, Incarnation(f"{W}#1"), directory, directory / "worker" / "worker.log"), listener
    )
    return launcher, running.pid


def test_all_that_was_written_before_the_end_arrives_before_it(tmp_path: Path) -> None:
    listener = Listener()
    program = """
import os, sys
from elastic.supervisor.messages import encode
from elastic.model.load import WorkerReport
fd = int(sys.argv[sys.argv.index("--report-fd") + 1])
for i in range(500):
    os.write(fd, encode(WorkerReport("t", "w", "w#1", 0.0, i)))
os.abort()
"""
    launcher, _ = _launch(tmp_path, program, listener)
    assert listener.ended.wait(30)
    launcher.close()
    assert listener.got == list(range(500))
    assert [str(e) for e in listener.exits] == ["SIGABRT"]


def test_what_a_worker_leaves_in_its_process_group_ends_with_it(tmp_path: Path) -> None:
    listener = Listener()
    program = """
import subprocess, sys
print(subprocess.Popen(["sleep", "1000"]).pid, flush=True)
sys.exit(5)
"""
    launcher, _ = _launch(tmp_path, program, listener)
    assert listener.ended.wait(30)
    launcher.close()
    left = int(listener.exits[0].tail.splitlines()[-1])
    assert listener.exits[0].code == 5
    assert ended(left)


def test_a_launcher_that_closes_kills_what_runs(tmp_path: Path) -> None:
    listener = Listener()
    launcher, pid = _launch(tmp_path, "import threading; threading.Event().wait()", listener)
    launcher.close()
    launcher.close()
    assert ended(pid, 0)
    assert [e.code for e in listener.exits] == [-signal.SIGKILL]


def test_only_the_very_life_counts_as_a_stray(tmp_path: Path) -> None:
    listener = Listener()
    launcher, pid = _launch(tmp_path, "import threading; threading.Event().wait()", listener)
    assert launcher.end_stray(pid, Incarnation(f"{W}#2"), 10.0)  # the number is somebody else's now
    assert not listener.ended.is_set()
    assert launcher.end_stray(pid, Incarnation(f"{W}#1"), 10.0)
    assert listener.ended.wait(30)
    assert launcher.end_stray(pid, Incarnation(f"{W}#1"), 10.0)
    launcher.close()


def test_a_worker_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    launcher = fake_launcher(tmp_path)
    (tmp_path / "worker").write_text("a file where a directory must be")
    launch = WorkerLaunch(T, W, Incarnation(f"{W}#1"), tmp_path, tmp_path / "worker" / "worker.log")
    with pytest.raises(EnvironmentProblem, match=W):
        launcher.start(launch, Listener())
    launcher.close()


def test_logs_of_topologies_that_have_ended_are_as_many_as_are_kept(bench: Bench) -> None:
    for number in range(logs.KEPT + 1):
        log = logs.file_of(bench.directory, TopologyName(f"old-{number}"), WorkerId(f"old-{number}@{NODE}/0"))
        log.parent.mkdir(parents=True)
        log.write_text("I was")
        os.utime(log, (number + 1, number + 1))
    bench.start()
    bench.reporter.wait_for("worker-started")
    left = sorted(int(path.name[4:]) for path in (bench.directory / "workers").glob("old-*"))
    assert left == list(range(2, logs.KEPT + 1))


def test_logs_are_bounded_and_their_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100 + b"\nlast\n")
        assert not logs.trim(path, 1000)
        assert logs.trim(path, 50)
        assert logs.tail(path.with_name("worker.log.1")).endswith("last")
        writer.write(b"next\n")
        assert path.read_bytes() == b"next\n"
        assert logs.tail(path, since=106) == "next"  # cut since then
        writer.write(b"x" * 10_000 + b"\n" + b"y\n" * 100)
    assert logs.tail(path).splitlines() == ["y"] * logs.TAIL_LINES
    assert logs.tail(tmp_path / "nothing") == ""


# -- with a real ZooKeeper, and the real main


def _main(address: str, directory: Path, generation: int = 1, *more: str) -> subprocess.Popen[bytes]:
    arguments = ["--node", NODE, "--generation", str(generation), "--slots", "2", "--zookeeper", address]
    arguments += [
        "--directory",
        str(directory),
        "--session-timeout",
        "20",  # longer than a busy machine keeps a process waiting, and nobody here waits for the end of one
        "--worker-program",
        str(FAKE_WORKER),
        "--log-level",
        "debug",
        *more,
    ]
    directory.mkdir(parents=True, exist_ok=True)
    log = (directory / f"supervisor-{generation}.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "elastic.cluster.supervisor_main", *arguments], cwd=ROOT, stderr=log
        )


def _put_bundle(directory: Path, behaviour: str = "") -> str:
    """Where an earlier supervisor would have left it: no Nimbus is needed then."""
    import hashlib

    content = bundle(behaviour)
    sha256 = hashlib.sha256(content).hexdigest()
    (directory / "bundles").mkdir(parents=True, exist_ok=True)
    (directory / "bundles" / f"{sha256}.zip").write_bytes(content)
    return sha256


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """Short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="elastic-") as made:
        yield Path(made)


def test_the_whole_node_with_zookeeper(
    zookeeper_server: EmbeddedZooKeeper, zookeeper_address: str, tmp_path: Path, run_dir: Path
) -> None:
    from elastic.coordination.zookeeper import connect

    directory = tmp_path / NODE
    session = connect(zookeeper_address)
    world = World(session)
    world.want_node()
    world.submit(_put_bundle(directory))
    world.assign((1, 4))
    entry = paths.worker(T, W)
    socket = unix_path(run_dir, Incarnation(f"{W}#1"))
    assert socket is not None
    socket.touch()  # as a worker leaves it that is killed
    first = _main(zookeeper_address, directory, 1, "--run-dir", str(run_dir))
    second: subprocess.Popen[bytes] | None = None
    try:
        until(session, entry, lambda v: v is not None)
        pid = _registered_pid(world)
        os.kill(pid, signal.SIGKILL)
        until(session, entry, lambda v: bool(v) and f"{W}#2".encode() in (v or b""))
        assert not socket.exists()
        # The supervisor dies: its worker with it. The next generation doesn't wait for sessions to time out.
        orphan = _registered_pid(world)
        first.kill()
        assert ended(orphan)
        assert world.registered() == f"{W}#2"
        second = _main(zookeeper_address, directory, 2)
        until(session, entry, lambda v: bool(v) and f"{W}#1001".encode() in (v or b""))
        # A third generation takes over from one that lives.
        last = _registered_pid(world)
        session.delete(paths.wanted(NODE))
        assert second.wait(30) == 0
        assert ended(last)
        assert session.get(paths.node(NODE)) is None
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
        for file in sorted(directory.rglob("*.log")):
            print(f"== {file}\n{file.read_text()}")  # shown when the test fails
        session.close()


def test_a_superseded_node_ends_and_an_older_one_does_not_start(
    zookeeper_address: str, tmp_path: Path
) -> None:
    from elastic.coordination.zookeeper import connect

    session = connect(zookeeper_address)
    world = World(session)
    world.want_node()
    old = _main(zookeeper_address, tmp_path / "a" / NODE)
    new: subprocess.Popen[bytes] | None = None
    try:
        until(session, paths.node(NODE), lambda v: v is not None)
        new = _main(zookeeper_address, tmp_path / "b" / NODE, 2)
        assert old.wait(30) == 9
        older = _main(zookeeper_address, tmp_path / "a" / NODE)
        assert older.wait(30) == 9
        new.terminate()
        assert new.wait(30) == 0
    finally:
        for process in (old, new):
            if process is not None:
                process.kill()
                process.wait()
        session.close()


def test_a_node_removes_its_directory_when_it_was_asked_to_end_and_else_leaves_it(
    zookeeper_address: str, tmp_path: Path
) -> None:
    from elastic.coordination.zookeeper import connect

    directory, beside = tmp_path / NODE, tmp_path / "beside"
    beside.mkdir()
    session = connect(zookeeper_address)
    world = World(session)
    world.want_node()
    world.submit(_put_bundle(directory))
    world.assign((1, 4))
    own = ("--remove-directory", "--run-dir", str(directory / "run"), "--host", "auto")
    first = _main(zookeeper_address, directory, 1, *own)
    second: subprocess.Popen[bytes] | None = None
    try:
        until(session, paths.worker(T, W), lambda v: v is not None)
        newer = _main(zookeeper_address, beside, 2)
        assert first.wait(30) == 9 and (directory / "store").is_dir(), "nobody had asked it to"
        newer.kill()
        newer.wait()
        second = _main(zookeeper_address, directory, 3, *own)
        until(session, paths.worker(T, W), lambda v: bool(v) and f"{W}#2001".encode() in (v or b""))
        session.delete(paths.wanted(NODE))
        assert second.wait(30) == 0
        assert [p.name for p in tmp_path.iterdir()] == ["beside"]
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
        session.close()


def test_a_node_beyond_loopback_has_to_be_allowed(zookeeper_address: str, tmp_path: Path) -> None:
    from elastic.coordination.zookeeper import connect

    session = connect(zookeeper_address)
    world = World(session)
    world.want_node()
    node = _main(zookeeper_address, tmp_path / NODE, 1, "--host", "0.0.0.0")
    try:
        assert node.wait(30) == 2
        assert "no authentication" in (tmp_path / NODE / "supervisor-1.log").read_text()
        assert session.get(paths.node(NODE)) is None
    finally:
        node.kill()
        node.wait()
        session.close()


def _registered_pid(world: World) -> int:
    from elastic.model.records import WorkerInfo

    value = world.coordination.get(paths.worker(T, W))
    assert value is not None
    return codec.decode(value.data, WorkerInfo).pid
