"""A cluster of real processes: up, kept up through every kill, down, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from families import command_of, family, left_of

from elastic.cluster.directory import FILE, is_log, stored
from elastic.cluster.launcher import ClusterInfo, UpOptions, read_cluster, start_background, stop
from elastic.cluster.node_stores import NodeStores
from elastic.cluster.store_ways import store_address
from elastic.cluster.zookeeper_server import EmbeddedZooKeeper
from elastic.coordination import election, paths
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect
from elastic.errors import AlreadyExists, ConfigError, EnvironmentProblem, NotFound, Refused, Unavailable
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.ids import Epoch, Incarnation, NodeId, TopologyName, WorkerId
from elastic.model.records import WantedNode, WorkerInfo
from elastic.transport.addresses import boot_id

PATIENCE = 60.0
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="looks into /proc, and relies on PR_SET_PDEATHSIG"
)


def quiet(_text: str) -> None:
    pass


def left(directory: Path) -> list[str]:
    """Files that are not logs."""
    return [str(p) for p in directory.rglob("*") if p.is_file() and not is_log(p.name)]


class Eye:
    """A session of the test's own with a cluster's coordination."""

    def __init__(self, info: ClusterInfo) -> None:
        self.info = info
        self.session: ZooKeeperCoordination = connect(info.zookeeper, session_timeout=30.0)

    def node(self, name: str) -> NodeInfo | None:
        value = self.session.get(paths.node(NodeId(name)))
        return None if value is None else decode(value.data, NodeInfo)

    def wait_node(self, name: str, condition: Callable[[NodeInfo | None], bool]) -> NodeInfo | None:
        found: list[NodeInfo | None] = []
        done = threading.Event()

        def look(value: object) -> None:
            now = self.node(name)
            if condition(now) and not done.is_set():
                found.append(now)
                done.set()

        watch = self.session.watch_value(paths.node(NodeId(name)), look)
        assert done.wait(PATIENCE), f"{name} is {self.node(name)}"
        watch.cancel()
        return found[0]

    def wait_candidates(self, condition: Callable[[tuple[str, ...]], bool]) -> None:
        done = threading.Event()
        watch = self.session.watch_children(
            paths.CANDIDATES, lambda names: done.set() if condition(names) else None
        )
        assert done.wait(PATIENCE)
        watch.cancel()

    def child(self, words: str) -> psutil.Process:
        """The launcher's child with those words in its command line."""
        launcher = psutil.Process(self.info.pid)
        (found,) = [p for p in launcher.children() if words in command_of(p)]
        return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterInfo]:
    told: list[str] = []
    info = start_background(UpOptions(cluster="c", home=str(home), session_timeout=20.0), told.append)
    assert any("node-1 is there" in t for t in told) and any("Nimbus leads" in t for t in told)
    yield info
    processes = family(info.pid)
    stop(home, "c", purge=False)
    assert not left_of(processes, PATIENCE)
    assert left(Path(info.directory)) == []
    with pytest.raises(NotFound, match="elastic up"):
        read_cluster(home, "c")
    with pytest.raises(NotFound):
        stop(home, "c")


@pytest.fixture(scope="module")
def eye(cluster: ClusterInfo) -> Iterator[Eye]:
    made = Eye(cluster)
    yield made
    made.session.close()


def test_it_says_what_runs(cluster: ClusterInfo, home: Path, eye: Eye) -> None:
    found = read_cluster(home, "c")
    assert found == cluster and found.ready
    assert eye.session.children(paths.NODES) == ("node-1", "node-2")
    assert election.leader(eye.session, paths.CANDIDATES) == cluster.nimbus[0].encode()
    for name in ("node-1", "node-2"):
        info = eye.node(name)
        assert info is not None and (info.slots, info.kind) == (2, "process") and info.generation >= 1
    nameless = [p for p in family(cluster.pid) if not command_of(p)]
    assert not psutil.wait_procs(nameless, timeout=PATIENCE)[1], "whoever has ended is asked for its end"


def test_a_second_one_of_that_name_is_refused_and_harms_nobody(cluster: ClusterInfo, home: Path) -> None:
    with pytest.raises(AlreadyExists, match=f"process {cluster.pid}"):
        start_background(UpOptions(cluster="c", home=str(home)), quiet)
    assert read_cluster(home, "c") == cluster


def store_process(node: NodeInfo) -> psutil.Process:
    (found,) = [p for p in psutil.Process(node.pid).children() if "statestore.server" in command_of(p)]
    return found


def test_states_outlive_the_processes_of_nodes_and_of_their_stores(eye: Eye) -> None:
    names = [NodeId("node-1"), NodeId("node-2")]
    nodes = [eye.wait_node(name, lambda now: now is not None and bool(now.store)) for name in names]
    stores = NodeStores(names[0], lambda node: store_address(eye.session, node), patience=PATIENCE)
    watches = [eye.session.watch_value(paths.node(n), lambda _: stores.nodes_changed()) for n in names]
    key = "kept-by-the-test/1"
    eye.session.put(paths.moves(TopologyName("kept-by-the-test")), b"6")  # else it is collected
    try:
        write = stores.begin(key, 7, "w#1", names, 400_000)
        write.commit([write.put(b"large" * 80_000), write.put(b"small")], b"meta")
        for node in nodes:
            assert node is not None
            store_process(node).kill()
        assert [stores.fetch(key, 7, [name]).meta for name in names] == [b"meta"] * 2
        before = eye.node("node-2")
        assert before is not None
        store = store_process(before)
        psutil.Process(before.pid).kill()
        assert not left_of([store], PATIENCE)
        after = eye.wait_node(
            "node-2", lambda now: now is not None and now.generation > before.generation and bool(now.store)
        )
        assert after is not None
        found = stores.fetch(key, 7, [names[1]])
        assert [len(piece) for piece in found.pieces] == [400_000, 5]
        assert store_address(eye.session, NodeId("nobody")) is None
    finally:
        eye.session.delete(paths.topology(TopologyName("kept-by-the-test")), recursive=True)
        for watch in watches:
            watch.cancel()
        stores.close()


def test_a_killed_node_is_forgotten_at_once_and_started_again(eye: Eye) -> None:
    before = eye.node("node-1")
    assert before is not None
    # A worker of it, which the kernel has not come to yet; its session is the test's.
    topology, worker = TopologyName("left-by-the-test"), WorkerId("left-by-the-test@node-1/0")
    life = Incarnation(f"{worker}#1")
    orphan = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", life])
    info = WorkerInfo(worker, life, "", "", boot_id(), orphan.pid, Epoch(1))
    path = paths.worker(topology, worker)
    gone = threading.Event()
    try:
        eye.session.create(path, encode(info), ephemeral=True)
        eye.session.watch_value(path, lambda value: gone.set() if value is None else None)
        psutil.Process(before.pid).kill()
        # Their sessions would last 20 s and more: that they are gone is not noticed by a time-out.
        after = eye.wait_node("node-1", lambda now: now is not None and now.generation > before.generation)
        assert after is not None and after.generation == before.generation + 1
        assert gone.wait(PATIENCE)
        assert orphan.wait(0) == -signal.SIGKILL, "its tasks are free only when it has ended"
    finally:
        orphan.kill()
        orphan.wait()
        eye.session.delete(paths.topology(topology), recursive=True)


def test_a_killed_nimbus_is_started_again_and_leads(eye: Eye) -> None:
    (candidate,) = eye.session.children(paths.CANDIDATES) or ()
    eye.child("nimbus_main").kill()
    eye.wait_candidates(lambda names: bool(names) and candidate not in names)
    assert election.leader(eye.session, paths.CANDIDATES) == eye.info.nimbus[0].encode()


def test_a_killed_zookeeper_is_started_again_with_what_it_knew(eye: Eye) -> None:
    with_store = [
        eye.wait_node(n, lambda now: now is not None and bool(now.store)) for n in ("node-1", "node-2")
    ]
    before = [eye.node(n) for n in ("node-1", "node-2")]
    assert before == with_store
    eye.session.put("/wanted-by-the-test", b"x")
    server = eye.child("ZooKeeperServerMain")
    server.kill()
    assert not left_of([server], PATIENCE)
    # The next request waits for the connection: the session outlives the server.
    assert eye.session.get("/wanted-by-the-test") is not None
    assert [eye.node(n) for n in ("node-1", "node-2")] == before
    eye.session.delete("/wanted-by-the-test")


def test_nodes_come_and_go_as_they_are_wanted(eye: Eye) -> None:
    eye.session.put(paths.wanted(NodeId("extra")), encode(WantedNode(1)))
    info = eye.wait_node("extra", lambda now: now is not None)
    assert info is not None and info.slots == 1
    supervisor = psutil.Process(info.pid)
    eye.session.delete(paths.wanted(NodeId("extra")))
    eye.wait_node("extra", lambda now: now is None)
    assert not left_of([supervisor], PATIENCE)
    assert eye.node("node-2") is not None


def test_nothing_outlives_a_launcher_that_is_killed(home: Path) -> None:
    info = start_background(UpOptions(cluster="killed", home=str(home), nodes=1), quiet)
    processes = family(info.pid)
    assert len(processes) >= 4  # itself, ZooKeeper, Nimbus, the node
    os.kill(info.pid, signal.SIGKILL)
    assert not left_of(processes, PATIENCE)
    with pytest.raises(NotFound):
        read_cluster(home, "killed")
    assert stored(Path(info.directory)) is not None
    with pytest.raises(NotFound):
        stop(home, "killed")
    assert left(Path(info.directory)) == []


def test_modules_in_the_folder_where_it_is_started_are_none_of_its_business(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue", "msgspec", "lmdb", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not meant for elastic')\n")
    monkeypatch.chdir(tmp_path)
    info = start_background(UpOptions(cluster="poison", home=str(home), nodes=1), quiet)
    try:
        eye = Eye(info)
        assert eye.wait_node("node-1", lambda now: now is not None and bool(now.store)) is not None
        eye.session.close()
    finally:
        stop(home, "poison", purge=True)
    assert not Path(info.directory).exists()


def test_an_external_ensemble_is_used_and_left_as_it_was(
    home: Path, zookeeper_server: EmbeddedZooKeeper, zookeeper_address: str
) -> None:
    options = UpOptions(
        cluster="ext", home=str(home), nodes=1, zookeeper=zookeeper_address, session_timeout=20.0
    )
    other = connect(zookeeper_address)
    try:
        other.put("/foreign", b"kept")
        other.put(paths.topology("old"), b"")  # type: ignore[arg-type]
        other.put(paths.wanted(NodeId("old")), encode(WantedNode(1)))
        info = start_background(options, quiet)
        assert other.children(paths.NODES) == ("node-1",)
        assert other.children(paths.TOPOLOGIES) == ()
        assert other.children(paths.WANTED) == ("node-1",)
        with pytest.raises(Refused, match="another cluster uses ZooKeeper"):
            start_background(
                UpOptions(
                    cluster="thief", home=str(home), zookeeper=zookeeper_address, nodes=0, session_timeout=1.0
                ),
                quiet,
            )
        assert other.children(paths.NODES) == ("node-1",)
        assert not [p for p in family(info.pid) if "ZooKeeperServerMain" in command_of(p)]
        stop(home, "ext", purge=True)
        assert not Path(info.directory).exists()
        assert other.children("/") == ("foreign",)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"cluster": "../x"}, ConfigError, "cannot name a cluster"),
        ({"nodes": -1}, ConfigError, "--nodes"),
        ({"host": "moon"}, ConfigError, "--host"),
        ({"master": "local"}, ConfigError, "--master"),
        ({"zookeeper": "127.0.0.1:1/x", "ready_timeout": 0.5}, Unavailable, "no ZooKeeper at 127.0.0.1:1/x"),
        ({"zookeeper": "nonsense:port"}, ConfigError, "nonsense:port"),
        (
            {"store": "hazelcast:x@127.0.0.1:1,127.0.0.1:2"},
            Unavailable,
            r"no member of the Hazelcast cluster x can be reached: 127\.0\.0\.1:1 \(.*refused\), 127\.0\.0\.1:2 \(",
        ),
    ],
)
def test_what_cannot_be_is_said_and_leaves_nothing(
    home: Path, options: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        start_background(UpOptions(**{"cluster": "bad", "home": str(home), "nodes": 0, **options}), quiet)  # type: ignore[arg-type]
    assert left(home / "bad") == []


def test_a_taken_port_and_a_missing_java_are_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"port {port} is taken"):
            start_background(UpOptions(cluster="bad", home=str(home), port=port), quiet)
    monkeypatch.setenv("ELASTIC_JAVA", "none")
    said: list[str] = []
    with pytest.raises(EnvironmentProblem, match="no Java"):
        start_background(UpOptions(cluster="bad", home=str(home)), said.append)
    assert not [line for line in said if line.startswith("starting")]
    assert left(home / "bad") == []


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="file"):
        start_background(UpOptions(home=str(tmp_path / "file")), quiet)


STARTER = """
import signal
import sys
from elastic.cluster.launcher import *
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored, as nohup has
try:
    start_background(UpOptions(cluster=sys.argv[1], home=sys.argv[2]), lambda text: print(text, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whoever_starts_it_may_go_while_it_starts(home: Path, number: signal.Signals) -> None:
    name = f"gone-{number.name}"
    argv = [sys.executable, "-c", STARTER, name, str(home)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert "starting ZooKeeper" in starter.stdout.readline()
        info = stored(home / name)
        processes = family(starter.pid)[1:]
        starter.send_signal(number)
        rest = starter.stdout.read()
    assert ("interrupted" in rest) == (number == signal.SIGINT)
    assert not left_of(processes, PATIENCE)
    assert left(home / name) == []
    assert info is None or not info.alive()


def test_whoever_starts_it_is_told_when_somebody_ends_it_meanwhile(home: Path) -> None:
    def end(text: str) -> None:
        if text.startswith("starting 1 Nimbus"):
            stop(home, "ended")

    with pytest.raises(Refused, match="cluster ended was ended before it was ready"):
        start_background(UpOptions(cluster="ended", home=str(home), nodes=1), end)
    assert left(home / "ended") == []


def test_cluster_json_is_for_people_as_well(cluster: ClusterInfo) -> None:
    told = json.loads((Path(cluster.directory) / FILE).read_text())
    assert told["pid"] == cluster.pid and told["nimbus"] == list(cluster.nimbus)


FOREGROUND = """
import signal
import sys
from elastic.cluster.launcher import *
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored, as nohup has
run_foreground(
    UpOptions(cluster=sys.argv[1], home=sys.argv[2], nodes=1),
    lambda text: None,
    lambda info: print("ready", info.pid, flush=True),
)
print("ended", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_in_the_foreground_it_ends_with_ctrl_c_and_with_its_terminal(
    home: Path, number: signal.Signals
) -> None:
    argv = [sys.executable, "-c", FOREGROUND, "front", str(home)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as front:
        try:
            assert front.stdout is not None
            assert front.stdout.readline() == f"ready {front.pid}\n"
            assert read_cluster(home, "front").pid == front.pid
            processes = family(front.pid)[1:]
            front.send_signal(number)
            said, _ = front.communicate(timeout=PATIENCE)
            assert said == "ended\n"
        finally:
            front.kill()  # nothing, if it has ended
    assert front.returncode == 0
    assert not left_of(processes, PATIENCE)
    assert left(home / "front") == []


def test_when_zookeeper_is_away_for_longer_than_the_sessions_all_begin_anew(home: Path) -> None:
    info = start_background(UpOptions(cluster="away", home=str(home), nodes=1, session_timeout=6.0), quiet)
    try:
        eye = Eye(info)
        before = eye.node("node-1")
        (candidate,) = eye.session.children(paths.CANDIDATES) or ()
        server, nimbus = eye.child("ZooKeeperServerMain"), eye.child("nimbus_main")
        assert before is not None
        supervisor = psutil.Process(before.pid)
        server.suspend()
        # Nobody goes on owning what others may be given next: they end before the server tells them anything.
        assert not left_of([supervisor, nimbus], PATIENCE)
        server.resume()
        after = eye.wait_node("node-1", lambda now: now is not None and now.generation > before.generation)
        assert after is not None
        eye.wait_candidates(lambda names: bool(names) and candidate not in names)
        eye.session.put(paths.wanted(NodeId("more")), encode(WantedNode(1)))  # the launcher is back as well
        eye.wait_node("more", lambda now: now is not None)
        eye.session.close()
    finally:
        stop(home, "away")
