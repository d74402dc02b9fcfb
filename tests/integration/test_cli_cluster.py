"""The command line on a real cluster: from `up` to `down`, each command as its own process, as a user has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cli_harness import LIMIT, Cluster, environment, wait_until
from families import family, left_of

ROOT = Path(__file__).parents[2]
WORD_COUNT = str(ROOT / "examples" / "word_count.py")
WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"]
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]

JOB = '''
import os
import time

from elastic import Bolt, Fields, Spout, TopologyBuilder


class Numbers(Spout):
    """Numbers, 200 a second, for ever or up to one; stateless on purpose."""

    outputs = Fields(n=int)

    def __init__(self, most):
        self.n, self.most = 0, most

    def next_tuple(self):
        if self.n == self.most > 0:
            self.exhausted()
            return
        self.n += 1
        self.emit(self.n)


class Pass(Bolt):
    outputs = Fields(n=int)

    def execute(self, tup):
        if tup.n == 1:
            print("first of", os.getpid(), flush=True)
        self.emit(tup.n)


class Check(Bolt):
    def __init__(self, limit):
        self.limit = limit

    def execute(self, tup):
        if tup.n > self.limit:
            raise ValueError(f"{tup.n} is too many")


def topology(args):
    """topology([workers, limit, most])"""
    b = TopologyBuilder("numbers", workers=int(args[0]), max_errors=3)
    b.spout("numbers", Numbers(int(args[2]) if len(args) > 2 else 0), rate=200)
    b.bolt("pass", Pass(), tasks=4, executors=2).shuffle("numbers")
    b.bolt("check", Check(int(args[1])), tasks=2).shuffle("pass")
    return b.build()
'''


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("work"))
    up = made("up", "--nodes", "2", "--slots", "3", "--nimbus", "2")
    try:
        assert up.code == 0, up.err
        assert up.out == "" and "is up" in up.err and "submit" in up.err
        yield made
    finally:
        made("down", "--purge")


@pytest.fixture(scope="module")
def text(cluster: Cluster) -> Path:
    path = cluster.work / "text.txt"
    path.write_text("".join(" ".join(WORDS[i % 5 :]) + "\n" for i in range(4000)))
    return path


@pytest.fixture
def job(cluster: Cluster) -> Iterator[str]:
    path = cluster.work / "numbers_job.py"
    path.write_text(JOB)
    yield str(path)
    cluster("kill", "numbers", "--wait", "0")


def counted(path: Path) -> str:
    counts = Counter(path.read_text().split())
    return "".join(f"{word}\t{count}\n" for word, count in sorted(counts.items()))


def test_what_is_submitted_gives_what_is_run_and_what_a_plain_count_gives(
    cluster: Cluster, text: Path
) -> None:
    run = cluster("run", WORD_COUNT, "--input", "text.txt", "--output", "run.tsv")
    assert run.code == 0, run.err
    words = ["--input", "text.txt", "--output", "submit.tsv", "--workers", "2"]
    submitted = cluster("submit", "--wait", WORD_COUNT, *words)
    assert submitted.code == 0, submitted.err
    assert submitted.out == "word-count\n" and "has finished" in submitted.err
    expected = counted(text)
    assert (cluster.work / "run.tsv").read_text() == expected
    assert (cluster.work / "submit.tsv").read_text() == expected, "relative paths mean the client's directory"
    listed = {t["name"]: t for t in cluster.data("list")}
    assert listed["word-count"]["status"] == "finished"


def test_the_life_of_a_topology(cluster: Cluster, job: str) -> None:
    assert cluster("submit", job, "2", "1000000").out == "numbers\n"
    again = cluster("submit", job, "2", "1000000")
    assert again.code == 5, again.err

    def flows() -> bool:
        return all(c["executed"] or c["emitted"] for c in cluster.described("numbers")["components"])

    wait_until("every component works", flows)
    placed = cluster.data("get", "numbers")
    assert placed["status"] == "active" and len(placed["placement"]) == 2 and not placed["waiting"]
    wait_until("somebody says so", lambda: "first of" in cluster("logs", "numbers", "pass").out)

    changed = cluster.data("rebalance", "numbers", "--executors", "pass=4", "--wait", "60")
    assert changed["epoch"] > placed["epoch"]
    executors = [e["id"] for e in cluster.described("numbers")["executor_list"] if e["component"] == "pass"]
    assert len(executors) == 4
    assert cluster("rebalance", "numbers", "--executors", "pass=5").code == 6, "more than tasks"
    assert cluster("rebalance", "numbers", "--executors", "nobody=1").code == 4

    stopped = cluster("deactivate", "numbers", "--wait", "60")
    assert stopped.code == 0 and "worked off" in stopped.err
    assert cluster.data("get", "numbers")["status"] == "inactive"
    assert cluster("activate", "numbers").code == 0
    stacks = cluster("stacks", "numbers").out
    assert "Thread MainThread" in stacks and "executor-" in stacks
    assert "Thread MainThread" not in cluster("logs", "numbers").out  # these are two things
    assert "numbers  active" in cluster("top", "--once").out
    kinds = [e["kind"] for e in cluster.data("events", "numbers")]
    for kind in ("topology-submitted", "worker-started", "topology-rebalanced", "topology-deactivated"):
        assert kind in kinds

    killed = cluster("kill", "numbers", "--wait", "10")
    assert killed.code == 0, killed.err
    assert "numbers" not in [t["name"] for t in cluster.data("list")]
    assert cluster("describe", "numbers").code == 4


def test_a_topology_that_fails_is_10_with_the_users_traceback(cluster: Cluster, job: str) -> None:
    failed = cluster("submit", "--wait", job, "1", "20")
    assert failed.code == 10, failed.err
    assert "is too many" in failed.err and "numbers_job.py" in failed.err
    assert "elastic/worker" not in failed.err, "only the user's frames"
    shown = cluster("errors", "numbers")
    assert shown.out.index("numbers_job.py") < shown.out.index("error:")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_topology_that_finishes_with_failed_tuples_is_10_and_its_figures_stay(
    cluster: Cluster, job: str, workers: int
) -> None:
    """What is known of it from then on are the last reports of its workers."""
    done = cluster("submit", "--wait", job, str(workers), "20", "22")
    assert done.code == 10, done.err
    assert "numbers has finished" in done.err and "2 tuples failed" in done.err
    found = {
        c["id"]: (c["executed"], c["emitted"], c["failed"])
        for c in cluster.described("numbers")["components"]
    }
    assert found["pass"] == (22, 22, 0) and found["check"] == (20, 0, 2)


def test_a_spout_without_state_that_has_moved_says_that_it_begins_anew(cluster: Cluster, job: str) -> None:
    assert cluster("submit", job, "1", "1000000").code == 0

    def place() -> str:
        found = {e["component"]: e["node"] for e in cluster.described("numbers")["executor_list"]}
        return str(found.get("numbers", ""))

    def emits() -> bool:
        found = {c["id"]: c["emitted"] for c in cluster.described("numbers")["components"]}
        return bool(found["numbers"])

    wait_until("it emits: what nobody has begun with is placed elsewhere without a move", emits)
    there = "node-2" if place() == "node-1" else "node-1"
    moved = cluster("move", "numbers", "numbers", "--to", there)
    assert moved.code == 0 and place() == there, moved.err
    says = "Spout 'numbers' has no state: at its new place it begins with what `prepare` makes"
    wait_until("it is said", lambda: says in cluster("events", "numbers").out)


def test_ctrl_c_while_waiting_leaves_the_topology_running(cluster: Cluster, job: str) -> None:
    waiting = cluster.start("submit", "--wait", job, "1", "1000000")
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "numbers\n"
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=LIMIT)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 130
    assert "numbers keeps running" in err and "Traceback" not in err
    assert cluster.data("get", "numbers")["status"] == "active"


def test_a_killed_worker_is_seen_as_it_comes_back(cluster: Cluster, job: str) -> None:
    watching = cluster.start("-o", "json", "events", "numbers", "--watch")
    try:
        assert cluster("submit", job, "1", "1000000").code == 0
        wait_until(
            "it has a worker", lambda: any(w["alive"] for w in cluster.described("numbers")["worker_list"])
        )
        pid = next(w["pid"] for w in cluster.described("numbers")["worker_list"] if w["alive"])
        os.kill(pid, signal.SIGKILL)
        assert watching.stdout is not None
        kinds: list[str] = []
        while "worker-restarted" not in kinds:
            line = watching.stdout.readline()
            assert line, "the stream of events ended"
            kinds.append(json.loads(line)["kind"])
        assert "worker-lost" in kinds
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130

    def back() -> bool:
        workers = cluster.described("numbers")["worker_list"]
        return any(w["alive"] and w["pid"] != pid for w in workers)

    wait_until("another process works there", back)
    assert "numbers" in cluster("errors", "numbers").out


def test_nodes_come_and_go(cluster: Cluster) -> None:
    before = {n["node"] for n in cluster.data("nodes", "list")}
    added = cluster("nodes", "add", "1", "--slots", "1")
    assert added.code == 0, added.err
    name = added.out.strip()
    now = {n["node"]: n for n in cluster.data("nodes", "list")}
    assert name not in before and now[name]["status"] == "alive" and now[name]["slots"] == 1
    drained = cluster("nodes", "drain", name)
    assert drained.code == 0, drained.err
    assert {n["node"] for n in cluster.data("nodes", "list")} == before
    assert cluster("nodes", "drain", name).code == 4


def test_waiting_outlives_the_leading_nimbus(cluster: Cluster, text: Path) -> None:
    words = ["--input", "text.txt", "--output", "takeover.tsv", "--rate", "400", "--name", "takeover"]
    waiting = cluster.start("submit", "--wait", WORD_COUNT, *words)
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "takeover\n"
        cluster.leading_nimbus().kill()
        _, err = waiting.communicate(timeout=LIMIT)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 0, err
    assert (cluster.work / "takeover.tsv").read_text() == counted(text)


def test_a_second_cluster_of_that_name_is_refused(cluster: Cluster) -> None:
    again = cluster("up")
    assert again.code == 5 and "elastic" in again.err, again.err
    assert cluster("list").code == 0, "the first one is as before"


def test_the_doctor_sees_it(cluster: Cluster) -> None:
    found = {c["check"]: c for c in json.loads(cluster("-o", "json", "doctor").out)}
    assert found["cluster default"]["status"] == "ok" and "runs" in found["cluster default"]["message"]


def test_down_leaves_only_logs(cluster: Cluster) -> None:
    """The last test of this module: nothing of the cluster is left after it."""
    processes = family(cluster.launcher().pid)
    down = cluster("down")
    assert down.code == 0, down.err
    assert not left_of(processes, LIMIT)
    left = [p.name for p in (cluster.home / "default").rglob("*") if p.is_file()]
    assert left and all(name.endswith(".log") or ".log." in name for name in left)
    assert cluster("list").code == 7
    again = cluster("down", "--purge")
    assert again.code == 0 and "was not running" in again.err
    assert not (cluster.home / "default").exists()


def test_up_without_java_is_11_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**environment(), "ELASTIC_JAVA": "none"}
    command = [sys.executable, "-m", "elastic.control.cli", "--home", str(tmp_path), "up"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=env)
    assert done.returncode == 11 and "Java" in done.stderr
    assert not (tmp_path / "default" / "cluster.json").exists()


def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastic.control.cli", "--home", str(tmp_path), "up"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "ZooKeeper" in first
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "has been ended" in err
    assert not left_of(below, LIMIT)
    assert not (tmp_path / "default" / "cluster.json").exists()
