"""Every kill, at any time, on a cluster of real processes: what runs goes on, what is lost is said, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_harness import environment
from families import command_of, family, left_of

from elastic.api.bundle import build_bundle
from elastic.cluster.directory import is_log
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import AlreadyExists, ElasticError, NotFound, NotShippable, Refused, TopologyError
from elastic.model.events import Event
from elastic.model.records import TopologyStatus
from elastic.model.views import TopologyDetail

LIMIT = 60.0
JOB = Path(__file__).with_name("faults_job.py")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(240),
]


def quiet(_: str) -> None:
    pass


@dataclass
class Faults:
    """A cluster, a client of it, and what the tests ask again and again."""

    info: ClusterInfo
    home: Path
    client: Client
    work: Path

    def submit(self, kind: str, name: str, workers: int = 1, **values: Any) -> Path:
        """Submit a topology of `faults_job.py`; the directory that it writes to, and is told to end by a file in."""
        place = self.work / name
        place.mkdir(exist_ok=True)
        job = JOB if kind != "needs" else self.work / "needs_job.py"
        if kind == "needs":
            job.write_text(
                JOB.read_text().replace(
                    "import threading\n", "import threading\n\nimport no_such_module_anywhere\n"
                )
            )
            sys.modules["no_such_module_anywhere"] = sys  # it is installed here
        loaded = load(str(job), [kind, json.dumps({"place": str(place), **values})])
        topology = loaded.topology.renamed(name).with_workers(workers)
        info = build_bundle(topology, loaded.entry, self.work / f"{name}.zip")
        self.client.submit(topology.spec, info.path, requires=info.requires)
        return place

    def describe(self, name: str) -> TopologyDetail:
        return self.client.describe(name)

    def executed(self, name: str, component: str) -> int:
        return next(c.executed for c in self.describe(name).components if c.id == component)

    def until(self, what: str, true: Callable[[], Any]) -> Any:
        """For what no call waits for; bounded. A cluster that is out of reach for a moment is asked again."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                if found := true():
                    return found
            except (ElasticError, psutil.NoSuchProcess) as e:
                found = e
            assert time.monotonic() < deadline, f"never: {what} ({found})"
            time.sleep(0.1)

    def flows(self, name: str, component: str = "sink") -> None:
        """Tuples are executed now. A new life counts anew, and its first report may come only after this has begun to look."""
        seen = [self.until("it runs", lambda: self.executed(name, component) + 1)]

        def goes_on() -> bool:
            seen.append(self.executed(name, component))
            return bool(seen[-1] > min(seen) + 50)

        self.until("it goes on", goes_on)

    def worker_of(self, name: str, component: str) -> int:
        """The process that runs a component's first executor."""

        def look() -> int:
            detail = self.describe(name)
            worker = next(e.worker for e in detail.executors if e.component == component)
            return next(w.pid for w in detail.workers if w.worker == worker and w.alive)

        return int(self.until(f"{component} has a process", look))

    def events(self, name: str = "") -> list[Event]:
        return [e for _, e in self.client.events(topology=name)]

    def wait_event(self, name: str, kind: str, count: int = 1) -> Event:
        """By the stream of events, without asking."""
        found: list[Event] = []
        stream = self.client.events(topology=name, follow=True)
        watch = threading.Timer(LIMIT, stream.close)  # type: ignore[attr-defined]
        watch.start()
        try:
            for _, event in stream:
                if event.kind == kind:
                    found.append(event)
                    if len(found) == count:
                        return event
        finally:
            watch.cancel()
        raise AssertionError(f"no {kind} of {name}")

    def finish(self, name: str, place: Path) -> dict[str, Any]:
        """Let a topology end by itself; what its sink wrote then."""
        (place / "stop").touch()
        self.wait_event(name, "topology-finished")
        found: dict[str, Any] = json.loads((place / "result").read_text())
        return found

    def child(self, words: str) -> psutil.Process:
        (found,) = [p for p in psutil.Process(self.info.pid).children() if words in command_of(p)]
        return found

    def cli(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "elastic.control.cli", "--home", str(self.home), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            cwd=self.work,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    home, work = tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("w")
    # Sessions are longer than a busy machine keeps a process waiting: who was not killed is not to end. One test waits for the end of one.
    info = start_background(UpOptions(home=str(home), nodes=2, slots=6, session_timeout=8.0), quiet)
    launcher = psutil.Process(info.pid)
    try:
        with Client(info.nimbus) as client:
            yield Faults(info, home, client, work)
    finally:
        processes = family(launcher.pid)
        stop(home, "default")
    assert not left_of(processes, LIMIT)
    left = [p for p in (home / "default").rglob("*") if not p.is_dir() and not is_log(p.name)]
    assert left == [], "neither files nor sockets are left"


def exact(result: dict[str, Any]) -> None:
    """Every number from 0 on has arrived once, in order."""
    assert result["wrong"] == [] and result["count"] == result["last"] + 1, result
    assert result["sum"] == result["last"] * (result["last"] + 1) // 2


def test_what_runs_does_not_notice_that_nimbus_and_zookeeper_die(cluster: Faults) -> None:
    place = cluster.submit("exact", "calm", workers=2)
    cluster.flows("calm")
    pids = {w.pid for w in cluster.describe("calm").workers}
    assert len(pids) == 2
    beat = (place / "beat").stat().st_mtime_ns

    nimbus = cluster.child("nimbus_main")
    nimbus.kill()
    psutil.wait_procs([nimbus], timeout=LIMIT)
    cluster.until("it works without Nimbus", lambda: (place / "beat").stat().st_mtime_ns > beat)
    cluster.flows("calm")  # another one answers

    server = cluster.child("ZooKeeperServerMain")
    server.kill()
    psutil.wait_procs([server], timeout=LIMIT)
    beat = (place / "beat").stat().st_mtime_ns
    cluster.until("it works without ZooKeeper", lambda: (place / "beat").stat().st_mtime_ns > beat)
    cluster.until("Nimbus knows it again", lambda: cluster.describe("calm"))
    cluster.flows("calm")

    assert {w.pid for w in cluster.describe("calm").workers} == pids
    exact(cluster.finish("calm", place))
    assert not [e for e in cluster.events("calm") if e.kind in ("worker-lost", "tuples-lost", "state-lost")]


def test_a_wrong_number_would_be_found() -> None:
    """Planted fault: what the check above finds."""
    good = {"wrong": [], "count": 3, "last": 2, "sum": 3}
    exact(good)
    for bad in ({"count": 2}, {"sum": 4}, {"wrong": ["1 instead of 2"]}):
        with pytest.raises(AssertionError):
            exact({**good, **bad})


def test_a_killed_worker_comes_back_and_its_lost_state_is_said(cluster: Faults) -> None:
    place = cluster.submit("exact", "hurt", workers=2)
    other = cluster.submit("exact", "beside")  # several topologies: the other one does not notice
    cluster.flows("hurt")
    pid = cluster.worker_of("hurt", "sink")
    (victim,) = [w.incarnation for w in cluster.describe("hurt").workers if w.pid == pid]
    os.kill(pid, signal.SIGKILL)
    lost = cluster.wait_event("hurt", "worker-lost")
    assert lost.details["signal"] == "SIGKILL"
    state = cluster.wait_event("hurt", "state-lost")
    assert state.component == "sink" and state.severity == "error" and state.details["count"] == 1
    assert state.details["before"] == victim
    cluster.flows("hurt")

    def metric() -> bool:
        found = cluster.describe("hurt").components
        return any(c.id == "sink" and c.custom.get("state_lost") == 1 for c in found)

    cluster.until("the metric says it too", metric)
    assert any(e.kind == "state-lost" for e in cluster.describe("hurt").errors)
    result = cluster.finish("hurt", place)
    assert result["wrong"], "the sink began anew, and so found a gap"
    assert len(result["wrong"]) == 1, result
    exact(cluster.finish("beside", other))


def test_a_killed_supervisor_takes_its_workers_along_and_comes_back(cluster: Faults) -> None:
    place = cluster.submit("exact", "node", workers=2)
    cluster.flows("node")
    victim = cluster.describe("node").workers[0]
    before = next(n for n in cluster.client.nodes() if n.id == victim.node)
    worker = psutil.Process(victim.pid)
    os.kill(before.pid, signal.SIGKILL)
    assert not left_of([worker], LIMIT)
    cluster.until(
        "the node is back",
        lambda: [
            n for n in cluster.client.nodes() if n.id == victim.node and n.generation > before.generation
        ],
    )
    cluster.until("all its workers live", lambda: all(w.alive for w in cluster.describe("node").workers))
    cluster.flows("node")
    cluster.finish("node", place)


def test_a_worker_that_stood_still_until_its_session_was_over_does_not_go_on_and_is_started_again(
    cluster: Faults,
) -> None:
    place = cluster.submit("exact", "frozen", workers=2)
    cluster.flows("frozen")
    process = psutil.Process(cluster.worker_of("frozen", "sink"))
    process.suspend()  # it says nothing any more: its session ends, while the process still is there
    try:
        cluster.until(
            "it is not registered any more",
            lambda: any(not w.alive for w in cluster.describe("frozen").workers),
        )
    finally:
        process.resume()
    lost = cluster.wait_event("frozen", "worker-lost")
    assert lost.details["signal"] == "SIGALRM", lost  # it went on with nothing
    assert "had not ended" in lost.message
    cluster.flows("frozen")
    cluster.finish("frozen", place)


def test_submits_that_are_refused_start_nothing(cluster: Faults) -> None:
    place = cluster.submit("exact", "taken")
    with pytest.raises(AlreadyExists, match="'taken' is running"):
        cluster.submit("exact", "taken")
    with pytest.raises(NotShippable, match="no_such_module_anywhere on node node-1"):
        cluster.submit("needs", "needs")
    with pytest.raises(NotShippable, match="'handle'"):
        cluster.submit("unpicklable", "unpicklable")
    with pytest.raises(TopologyError, match="9 executors for 1"):
        cluster.submit("exact", "wide", executors=9)
    names = [t.name for t in cluster.client.list()]
    assert not {"needs", "unpicklable", "wide"} & set(names)
    exact(cluster.finish("taken", place))


@pytest.mark.parametrize(
    ("kind", "says", "trace"),
    [
        ("raises", "max_errors=2", "in execute"),
        ("prepare", "prepare() of 'sink'", "in prepare"),
        ("leaves", "SystemExit", "in execute"),
        ("grouping", "cannot be made", "in prepare"),
        ("import", "only where it was made", "faults_job"),
    ],
)
def test_what_cannot_go_on_fails_with_its_reason(
    cluster: Faults, kind: str, says: str, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTS_CLIENT", "1")
    cluster.submit(kind, kind)
    event = cluster.wait_event(kind, "topology-failed")
    assert says in event.message

    def listed() -> Any:
        return [t for t in cluster.client.list() if t.name == kind and t.status is TopologyStatus.FAILED]

    (summary,) = cluster.until("the list says it", listed)
    assert says in summary.reason

    def traced() -> bool:
        return any(trace in str(e.details.get("traceback", "")) for e in cluster.client.errors(kind))

    cluster.until("the errors say where", traced)  # they come by another way than the end of the topology
    cluster.until("its workers end", lambda: not [w for w in cluster.describe(kind).workers if w.alive])


def test_rebalances_that_are_refused_change_nothing(cluster: Faults) -> None:
    place = cluster.submit("exact", "still", workers=2)
    cluster.flows("still")
    before = cluster.describe("still").assignment
    with pytest.raises(Refused, match="cannot have 2 executors"):
        cluster.client.rebalance("still", executors={"sink": 2})
    with pytest.raises(NotFound, match="nobody"):
        cluster.client.rebalance("still", executors={"nobody": 1})
    with pytest.raises(Refused, match="cannot run in 3 workers"):
        cluster.client.rebalance("still", workers=3)
    assert cluster.describe("still").assignment == before
    exact(cluster.finish("still", place))


def test_stateless_tasks_go_to_another_worker_and_back_without_losing_a_tuple(cluster: Faults) -> None:
    place = cluster.submit("relay", "moving", workers=1)
    cluster.flows("moving")
    places = {e.worker for e in cluster.describe("moving").executors if e.component == "relay"}
    assert len(places) == 1
    cluster.client.rebalance("moving", executors={"relay": 4}, workers=2, wait=30)
    places = {e.worker for e in cluster.describe("moving").executors if e.component == "relay"}
    assert len(places) == 2, "some of them have moved"
    cluster.flows("moving")
    cluster.client.rebalance("moving", executors={"relay": 2}, workers=1, wait=30)
    cluster.flows("moving")
    result = cluster.finish("moving", place)
    assert result["count"] == result["distinct"] == result["last"] + 1, result
    assert not [e for e in cluster.events("moving") if e.kind in ("tuples-lost", "tuples-doubled")]


def test_a_call_that_never_returns_is_reported_and_does_not_stop_the_end(cluster: Faults) -> None:
    cluster.submit("hangs", "hangs")
    stuck = cluster.wait_event("hangs", "executor-stuck")
    assert stuck.component == "sink" and "in execute" in str(stuck.details["traceback"])
    process = psutil.Process(cluster.worker_of("hangs", "sink"))
    cluster.client.kill("hangs", wait=0)
    assert not left_of([process], LIMIT)
    left = cluster.wait_event("hangs", "executor-abandoned")
    assert "in execute" in str(left.details["traceback"])


def test_a_tuple_of_100_mb_passes_between_two_processes(cluster: Faults) -> None:
    place = cluster.submit("large", "large", workers=2)
    assert len(cluster.describe("large").assignment.workers) == 2
    result = cluster.finish("large", place)
    assert result["sizes"] == [0, 100_000_000, 3] and result["wrong"] == []


def test_kill_lets_what_is_under_way_be_worked_off(cluster: Faults) -> None:
    place = cluster.submit("exact", "drained", workers=2, slow=0.0005, rate=2000)
    cluster.flows("drained")
    cluster.client.kill("drained", wait=LIMIT)
    emitted = int((place / "emitted").read_text())
    assert json.loads((place / "closed").read_text())["count"] == emitted > 0
    with pytest.raises(NotFound):
        cluster.describe("drained")


@pytest.mark.parametrize("words", [("logs", "-f"), ("events", "--watch"), ("top",)])
def test_ctrl_c_at_what_follows_is_130_and_nothing_else(cluster: Faults, words: tuple[str, ...]) -> None:
    place = cluster.work / "followed"
    if not place.exists():
        cluster.submit("exact", "followed")
        cluster.flows("followed")
    following = cluster.cli(words[0], "followed", *words[1:])
    try:
        limit = threading.Timer(LIMIT, following.kill)
        limit.start()
        assert following.stdout is not None and following.stdout.readline()
        limit.cancel()
        following.send_signal(signal.SIGINT)
        _, err = following.communicate(timeout=LIMIT)
    finally:
        following.kill()
        following.wait()
    assert following.returncode == 130 and "Traceback" not in err, err
    assert cluster.describe("followed").summary.status is TopologyStatus.ACTIVE


def test_two_clusters_side_by_side_know_nothing_of_each_other(cluster: Faults) -> None:
    info = start_background(
        UpOptions(cluster="second", home=str(cluster.home), nodes=1, session_timeout=8.0), quiet
    )
    launcher = psutil.Process(info.pid)
    processes = family(launcher.pid)
    try:
        with Client(info.nimbus) as client:
            second = Faults(info, cluster.home, client, cluster.work / "second")
            second.work.mkdir()
            place = second.submit("exact", "followed")
            second.flows("followed")
            cluster.flows("followed")
            assert [t.name for t in client.list()] == ["followed"]
            exact(second.finish("followed", place))
    finally:
        stop(cluster.home, "second")
    assert not left_of(processes, LIMIT)
    exact(cluster.finish("followed", cluster.work / "followed"))


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--port", "TAKEN"), 11, "is taken"),
        (("--zookeeper", "127.0.0.1:1", "--ready-timeout", "1s"), 7, "no ZooKeeper at 127.0.0.1:1"),
    ],
)
def test_a_cluster_that_cannot_be_says_why(
    cluster: Faults, words: tuple[str, ...], code: int, says: str
) -> None:
    port = cluster.info.nimbus[0].rpartition(":")[2]
    up = cluster.cli("--cluster", "bad", "up", *(w.replace("TAKEN", port) for w in words))
    _, err = up.communicate(timeout=LIMIT)
    assert up.returncode == code and says in err, err
    assert not [p for p in (cluster.home / "bad").rglob("*") if p.is_file() and not is_log(p.name)]
