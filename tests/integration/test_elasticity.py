"""Elasticity on a real cluster of two nodes: load goes up and down, and executors, placements and nodes follow by themselves, while each
task checks what comes: every number of a key, once, in order.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from cli_harness import Cluster, wait_until

from elastic.cluster.directory import read_cluster
from elastic.control.client import Client
from elastic.model.events import Event
from elastic.model.ids import node_of
from elastic.model.views import TopologyDetail

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(400),
]

JOB = '''
import pathlib
import time

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder


class Numbers(StatefulSpout):
    """Numbers at the rate that a file says; where it is moves along."""

    outputs = Fields(key=int, n=int)

    def __init__(self, directory):
        self.directory, self.n, self.due = directory, 0, 0.0

    def next_tuple(self):
        now = time.monotonic()
        if now < self.due:
            return
        self.due = max(self.due, now - 0.5) + 1 / float((self.directory / "rate").read_text())
        self.emit(self.n % 64, self.n // 64)
        self.n += 1

    def get_state(self):
        return self.n

    def set_state(self, n):
        self.n = n


class Work(StatefulBolt):
    """Every number of a key, once and in order: else the tuple fails. Each takes a while, of a core or of waiting."""

    counts = KeyedState(int)

    def __init__(self, computes):
        self.computes = computes

    def execute(self, tup):
        expected = self.counts[tup.key]
        if tup.n != expected:
            raise AssertionError(f"key {tup.key}: {tup.n} instead of {expected}")
        self.counts[tup.key] = expected + 1
        if not self.computes:
            time.sleep(0.01)
            return
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass


def topology(args):
    name, directory, workers, policy = args
    settings = {"elastic": policy} if policy else {}
    b = TopologyBuilder(name, workers=int(workers), report_interval=0.25, **settings)
    b.spout("numbers", Numbers(pathlib.Path(directory)))
    work = b.bolt("work", Work(name == "computing"), tasks=8, executors=int(workers), max_executors=4, queue_rows=64)
    work.fields("numbers", "key")
    return b.build()
'''
QUICK = "--period 1 --sample 0.5 --memory 0"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("work"))
    (made.work / "job.py").write_text(JOB)
    # The sessions are long: what computes takes the processor from everybody here, and that is not what is looked at.
    up = made("up", "--nodes", "2", "--slots", "3", "--cores", "4", "--session-timeout", "20s")
    try:
        assert up.code == 0, up.err
        yield made
    finally:
        made("down", "--purge")


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(read_cluster(cluster.home, "default").nimbus, timeout=30, patience=30) as found:
        yield found
        for topology in found.list():
            found.kill(topology.name, wait=0)
        found.set_elasticity(policy="off", scheduler="off", nodes="off")


def load(cluster: Cluster, rate: float) -> None:
    """Tuples per second from now on."""
    new = cluster.work / "rate.new"
    new.write_text(str(rate))
    new.replace(cluster.work / "rate")


def submit(cluster: Cluster, name: str, workers: int, policy: str) -> None:
    done = cluster("submit", "job.py", name, str(cluster.work), str(workers), policy)
    assert done.code == 0, done.err


def until(client: Client, topology: str, true: Callable[[Event], bool], since: int = 0) -> tuple[int, Event]:
    """The first event for which it is true, with its number; the test's timeout bounds it."""
    for number, event in client.events(topology=topology, since=since, follow=True):
        if true(event):
            return number, event
    raise AssertionError("the events ended")


def sized(detail: TopologyDetail) -> int:
    return next(c.executors for c in detail.components if c.id == "work")


def follows(cluster: Cluster, client: Client, name: str, rate: float) -> TopologyDetail:
    """Load goes up, and down again, and executors follow; returns what was to be seen at the top."""
    load(cluster, rate)
    at, out = until(client, name, lambda e: e.kind == "scale-out")
    assert out.component == "work"
    assert float(out.details["value"]) > float(out.details["threshold"]) == 0.7
    assert int(out.details["before"]) < int(out.details["after"])
    at, _ = until(client, name, lambda e: e.kind == "topology-resized" and "-> 4 after" in e.message, at)
    top = client.describe(name)
    assert sized(top) == 4 and top.policy.startswith("thresholds")
    kinds = [e.kind for e in top.decided]
    assert "scale-out" in kinds and "topology-resized" in kinds
    load(cluster, 1)
    at, back = until(client, name, lambda e: e.kind == "scale-in", at)
    assert float(back.details["value"]) < float(back.details["threshold"]) == 0.2
    at, _ = until(client, name, lambda e: e.kind == "topology-resized" and "-> 1 after" in e.message, at)
    # Plan and assignment change together, and are read one after the other: the event may come before the other is read.
    wait_until("one executor to be shown", lambda: sized(client.describe(name)) == 1)
    detail = client.describe(name)
    assert detail.errors == ()
    assert "scaled" in [e.kind for e in detail.decided]
    return top


def test_waiting_gets_threads_and_gives_them_back(cluster: Cluster, client: Client) -> None:
    load(cluster, 300)
    submit(cluster, "waiting", 1, f"thresholds {QUICK}")
    top = follows(cluster, client, "waiting", 300)
    assert len({w for _, w in top.assignment.executors}) == 1, "threads of one process are enough"
    described = cluster("describe", "waiting")
    assert "Decided by load" in described.out and "busy (the highest at" in described.out


def test_computing_gets_processes_and_its_tasks_move_with_their_state(
    cluster: Cluster, client: Client
) -> None:
    load(cluster, 200)
    # Whatever else this machine does, an executor gets some CPU; a process shall have little of it.
    submit(cluster, "computing", 1, f"thresholds {QUICK} --process-share 0.05 --max-workers 4")
    top = follows(cluster, client, "computing", 200)
    assert len({w for _, w in top.assignment.executors}) > 1, "threads of one process would gain nothing"
    moves = client.moves("computing")
    assert sum(t.phase == "committed" for m in moves for t in m.tasks) > 0
    resized = [e for e in top.decided if e.kind == "topology-resized"]
    assert sum(int(e.details["tasks"]) for e in resized) > 0


def test_a_policy_of_the_cluster_can_be_tried_and_outlives_nimbus(cluster: Cluster, client: Client) -> None:
    load(cluster, 300)
    submit(cluster, "tried", 1, "")
    assert client.describe("tried").policy == ""
    wrong = cluster("policy", "set", "thresholds", "--scale-in", "0.6")
    assert wrong.code == 2 and "doubled at once" in wrong.err
    unknown = cluster("policy", "set", "threshold")
    assert unknown.code == 2 and "did you mean 'thresholds'" in unknown.err
    set_ = cluster("policy", "set", "ds2", *QUICK.split(), "--dry-run")
    assert set_.code == 0 and "ds2 --dry-run" in set_.out, set_.err
    at, would = until(client, "tried", lambda e: e.kind == "scale-out")
    assert would.message.startswith("dry run: ") and would.details["dry_run"] == 1
    before = client.info().leader
    cluster.leading_nimbus().kill()
    assert client.info().leader, (
        "who has been answered once waits longer for the next one than a new command does"
    )
    shown = cluster.data("policy")
    assert shown["topologies"] == [{"name": "tried", "policy": shown["policy"]}]
    assert shown["policy"].startswith("ds2") and "--dry-run" in shown["policy"]
    assert before
    told = client.describe("tried").decided
    assert [e for e in told if e.time == would.time and e.message == would.message], (
        "it goes on with what was decided"
    )
    assert sized(client.describe("tried")) == 1, "it was only tried"
    adjusted = cluster("policy", "set", "--dry-run", "no", "--alpha", "0.25")
    assert adjusted.code == 0 and "ds2" in adjusted.out and "--alpha 0.25" in adjusted.out, adjusted.err
    assert "--dry-run" not in adjusted.out
    until(client, "tried", lambda e: e.kind == "topology-resized", at)
    assert sized(client.describe("tried")) > 1
    assert cluster("policy", "off").out.startswith("Policy  off")
    assert client.describe("tried").policy == ""


def test_the_scheduler_is_changed_while_a_topology_runs(cluster: Cluster, client: Client) -> None:
    load(cluster, 50)
    submit(cluster, "placed", 2, "off")
    before = client.describe("placed")
    assert len({node_of(w) for _, w in before.assignment.executors}) == 2
    assert cluster("scheduler", "set", "tstorm", "--gama", "2").code == 2
    chosen = cluster("scheduler", "set", "tstorm", "--gamma", "6", "--worker-cores", "0", "--every", "1s")
    assert chosen.code == 0 and "tstorm --gamma 6 --worker-cores 0" in chosen.out, chosen.err
    _, why = until(client, "", lambda e: e.kind == "rescheduled")
    assert float(why.details["before"]) > float(why.details["after"]) == 0
    _, ended = until(client, "placed", lambda e: e.kind == "move-ended")
    assert "tstorm" in str(ended.details["why"])
    after = client.describe("placed")
    assert len({node_of(w) for _, w in after.assignment.executors}) == 1, "what exchanges tuples is together"
    assert after.errors == ()
    assert cluster("scheduler", "off").out.startswith("Scheduler  off")


def test_schedules_are_decided_by_processes_of_their_own_and_by_nimbus_without_them(
    cluster: Cluster, client: Client
) -> None:
    """One generator, two, the first killed, the leader killed, the last one killed: somebody always decides."""
    load(cluster, 50)
    at = max(n for n, _ in client.events())
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(running(cluster, "scheduler", "serve")) for _ in range(2))
        for number in (1, 2):
            at, came = until(client, "", lambda e: e.kind == "generator-joined", at)
            assert int(came.details["place"]) == number
        names = client.elasticity().generators
        first, second = sorted((first, second), key=lambda p: not names[0].endswith(f":{p.pid}"))
        submit(cluster, "apart", 2, "off")
        assert cluster("scheduler", "set", *together(1)).code == 0
        at, _ = until(client, "", lambda e: e.kind == "rescheduled", at)
        at, ended = until(client, "apart", lambda e: e.kind == "move-ended", at)
        assert f"tstorm by {names[0]}: " in str(ended.details["why"])
        first.kill()
        at, left = until(client, "", lambda e: e.kind == "generator-left", at)
        assert left.details["name"] == names[0] and left.details["left"] == 1
        spread(client, "apart")
        at, ended = until(
            client, "apart", lambda e: e.kind == "move-ended" and "tstorm" in str(e.details["why"]), at
        )
        assert f"tstorm by {names[1]}: " in str(ended.details["why"])
        cluster.leading_nimbus().kill()
        at, came = until(client, "", lambda e: e.kind == "generator-joined", at)
        assert came.details["name"] == names[1], "it has found the new leader"
        spread(client, "apart")
        at, ended = until(
            client, "apart", lambda e: e.kind == "move-ended" and "tstorm" in str(e.details["why"]), at
        )
        assert f"tstorm by {names[1]}: " in str(ended.details["why"])
        second.kill()
        at, left = until(client, "", lambda e: e.kind == "generator-left", at)
        assert left.details["left"] == 0 and client.elasticity().generators == ()
        spread(client, "apart")
        at, ended = until(
            client, "apart", lambda e: e.kind == "move-ended" and "tstorm" in str(e.details["why"]), at
        )
        assert str(ended.details["why"]).startswith("tstorm: "), "Nimbus decides itself"
    assert client.describe("apart").errors == ()


def together(every: int) -> list[str]:
    """A scheduler that puts what exchanges tuples on one node."""
    return f"tstorm --gamma 6 --worker-cores 0 --every {every}s".split()


def spread(client: Client, name: str) -> None:
    """Put the tasks on two nodes again."""
    other = next(
        n.id
        for n in client.nodes()
        if n.id not in {node_of(w) for _, w in client.describe(name).assignment.executors}
    )
    client.move(name, "numbers", str(other), wait=60.0)


@contextlib.contextmanager
def running(cluster: Cluster, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until this ends."""
    process = cluster.start(*words)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_nodes_come_and_go(cluster: Cluster, client: Client) -> None:
    load(cluster, 20)
    quick = "--maximum 3 --minimum 2 --patience 1 --cooldown-in 1 --cooldown-out 1"
    assert cluster("nodes", "auto", "set", *quick.split()).code == 0
    submit(cluster, "wide", 7, "off")
    at, asked = until(client, "", lambda e: e.kind == "node-request")
    assert asked.details["workers"] == 7 and "7 workers are wanted" in asked.message
    at, joined = until(client, "", lambda e: e.kind == "node-joined", at)
    assert {n.id for n in client.nodes() if n.alive} >= {joined.node}
    client.kill("wide", wait=0)
    at, _ = until(client, "", lambda e: e.kind == "node-return", at)
    at, _ = until(client, "", lambda e: e.kind == "node-drained", at)
    until(client, "", lambda e: e.kind in ("node-left", "node-lost"), at)
