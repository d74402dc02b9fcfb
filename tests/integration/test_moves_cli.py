"""Moves by the command line on a real cluster of two nodes: tasks with state go from process to process while a stream of numbers
flows that each task checks: every number of a key, once, in order.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from cli_harness import LIMIT, Cluster, wait_until
from hazelcast_here import hazelcast_java

from elastic.testing import BoltTester

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(400),
]

NUMBERS = '''
from elastic import Fields, StatefulSpout


class Numbers(StatefulSpout):
    """Numbers for ever, of each of KEYS keys in turn; where it is moves along."""

    outputs = Fields(key=int, n=int)

    def __init__(self):
        self.n = 0

    def next_tuple(self):
        self.emit(self.n % KEYS, self.n // KEYS)
        self.n += 1

    def get_state(self):
        return self.n

    def set_state(self, n):
        self.n = n
'''
"""The beginning of a job, which says how many KEYS."""
BOLTS = '''
import pathlib
import time

from elastic import KeyedState, StatefulBolt, TopologyBuilder

KEYS = 40


class Count(StatefulBolt):
    """Every number of a key, once and in order: else the tuple fails."""

    counts = KeyedState(int)

    def __init__(self, directory):
        self.directory = directory

    def prepare(self, context):
        while (self.directory / "hold").exists():
            time.sleep(0.02)
        if (self.directory / "refuse").exists():
            raise OSError("there is no room for it here")

    def execute(self, tup):
        expected = self.counts[tup.key]
        if tup.n != expected:
            raise AssertionError(f"key {tup.key}: {tup.n} instead of {expected}")
        self.counts[tup.key] = expected + 1


def topology(args):
    b = TopologyBuilder("counted", workers=2)
    b.spout("numbers", Numbers(), rate=500)
    b.bolt("count", Count(pathlib.Path(args[0])), tasks=4, executors=2).fields("numbers", "key")
    return b.build()
'''
JOB = NUMBERS + BOLTS
TASKS = {2, 3, 4, 5}
STEPS = ["prepared", "paused", "stopped", "saved", "restored", "begun", "resumed"]


@pytest.fixture(scope="module", params=["embedded", pytest.param("hazelcast", marks=pytest.mark.slow)])
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "hazelcast":
        hazelcast_java()
    made = Cluster(tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("work"))
    (made.work / "job.py").write_text(JOB)
    up = made("up", "--nodes", "2", "--slots", "2", "--nimbus", "2", "--store", request.param)
    try:
        assert up.code == 0, up.err
        submitted = made("submit", "job.py", str(made.work))
        assert submitted.code == 0, submitted.err
        flows(made)
        yield made
    finally:
        made("down", "--purge")


@pytest.fixture(autouse=True)
def nothing_wrong(cluster: Cluster) -> Iterator[None]:
    """After each test the stream flows, and no task has met a number that it did not expect."""
    yield
    for name in ("hold", "refuse"):
        (cluster.work / name).unlink(missing_ok=True)
    flows(cluster)
    assert [e for e in cluster.data("errors", "counted") if e["kind"] != "task-move-failed"] == []


def counters(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = {c["id"]: c for c in cluster.described("counted")["components"]}
    return found


def flows(cluster: Cluster) -> None:
    """Until every executor of `count` works on tuples."""

    def flowing() -> bool:
        executors = cluster.described("counted")["executor_list"]
        return all(e["executed_rate"] > 0 for e in executors if e["component"] == "count")

    wait_until("every executor works", flowing)


def places(cluster: Cluster, name: str = "counted") -> dict[int, str]:
    """Each task's worker."""
    executors = cluster.described(name)["executor_list"]
    return {t: e["worker"] for e in executors for t in range(e["first_task"], e["last_task"] + 1)}


def other(where: str) -> str:
    """The node that a worker is not on; or the other one of two."""
    return "node-2" if "node-1" in where else "node-1"


def test_the_topology_would_notice(tmp_path: Path) -> None:
    """What the other tests stand on: a number too many, too few or out of order, and state that is gone, are errors."""
    namespace: dict[str, Any] = {"__name__": "job"}
    exec(compile(JOB, "job.py", "exec"), namespace)
    tester = BoltTester(namespace["Count"](tmp_path))
    tester.execute(key=1, n=0)
    tester.execute(key=1, n=1)
    for wrong in (1, 3, 0):
        with pytest.raises(Exception, match="instead of 2"):
            tester.execute(key=1, n=wrong)


def test_an_executor_moves_with_its_state(cluster: Cluster) -> None:
    before = places(cluster)
    source, target = before[2], other(before[2])
    moved = cluster("move", "counted", "count[2-3]", "--to", target)
    assert moved.code == 0, moved.err
    lines = [line.split() for line in moved.out.splitlines()]
    assert [(x[0], x[2], x[4]) for x in lines[1:]] == [("2", source, "moved"), ("3", source, "moved")]
    assert "2 tasks moved; longest pause" in moved.err
    after = places(cluster)
    assert {after[2], after[3]} == {lines[1][3]} and f"@{target}/" in after[2]
    assert {t: w for t, w in after.items() if t not in (2, 3)} == {
        t: w for t, w in before.items() if t not in (2, 3)
    }

    again = cluster("-o", "json", "move", "counted", "2", "3", "--to", target)
    assert again.data["moves"] == [] and "nothing had to move" in again.err

    (newest, *_) = cluster.data("moves", "counted")
    assert newest["state"] == "ended" and newest["moved"] == 2 and newest["why"].startswith("move count[2-3]")
    assert newest["size"] > 0 and newest["pause"] > 0
    for task in newest["tasks"]:
        assert list(task["times"]) == STEPS and task["phase"] == "committed" and task["pause"] > 0
    shown = cluster("moves", "counted", str(newest["epoch"])).out
    assert "Steps, relative to the pause" in shown and "+0.0 ms" in shown
    back = cluster.data("move", "counted", "2,3", "--to", source)
    assert [m["moved"] for m in back["moves"]] == [2] and places(cluster) == before
    totals = cluster.described("counted")["moved"]
    assert totals["moves"] >= 2 and totals["committed"] >= 4 and totals["pauses"]["+Inf"] >= 4


def test_the_pause_of_a_spout_is_told_by_those_that_get_its_tuples(cluster: Cluster) -> None:
    source = places(cluster)[1]
    moved = cluster("-o", "json", "move", "counted", "numbers", "--to", other(source))
    assert moved.code == 0, moved.err
    (move,) = moved.data["moves"]
    (task,) = move["tasks"]
    assert task["gap"] > 0 and move["gap"] == task["gap"] and task["pause"] == 0
    assert list(task["times"]) == [*STEPS[:-1], "received"]
    assert "at receivers" in moved.err
    totals = cluster.described("counted")["moved"]
    assert totals["gaps"]["+Inf"] >= 1 and totals["gap_max"] >= task["gap"]
    (ended, *_) = [
        e
        for e in cluster.data("events")
        if e["kind"] == "move-ended" and e["details"]["epoch"] == move["epoch"]
    ]
    assert ended["details"]["gap_ms"] > 0
    assert cluster("move", "counted", "numbers", "--to", source).code == 0


def test_what_is_on_its_way_is_shown_left_and_aborted(cluster: Cluster) -> None:
    before = places(cluster)
    target = other(before[4])
    (cluster.work / "hold").touch()
    moving = cluster.start("move", "counted", "4", "--to", target)
    try:
        assert moving.stderr is not None
        said = moving.stderr.readline()
        while "of counted: " not in said:
            assert said, "the command ended"
            said = moving.stderr.readline()
        assert "moving 1 task of counted: preparing 4" in said or "prepared 4" in said
        moving.send_signal(signal.SIGINT)
        _, err = moving.communicate(timeout=LIMIT)
    finally:
        moving.kill()
        moving.wait()
    assert moving.returncode == 130 and "the move goes on; " in err and "Traceback" not in err
    described = cluster.described("counted")
    (one,) = described["moves"]
    assert one["state"] == "running" and [t["task"] for t in one["tasks"]] == [4]
    assert any(s.startswith(f"move {one['epoch']}: task 4 waits for") for s in described["waits"])
    listed = cluster("moves", "counted", "--limit", "1")
    assert "running" in listed.out and "task 4 waits for" in listed.err
    assert "Waits" in cluster("moves", "counted", str(one["epoch"])).out
    late = cluster("move", "counted", "4", "--to", target, "--wait", "1")
    assert late.code == 8 and "elastic" in late.err

    unknown = cluster("move", "counted", "--abort", "999")
    assert unknown.code == 4 and str(one["epoch"]) in unknown.err
    aborted = cluster("move", "counted", "--abort", "--why", "not now")
    assert aborted.code == 0, aborted.err
    assert "stayed" in aborted.out and "not now" in aborted.out
    assert places(cluster) == before
    assert cluster("move", "counted", "--abort").code == 6, "nothing is left to abort"


def test_a_task_that_cannot_be_prepared_stays_and_says_why(cluster: Cluster) -> None:
    before = places(cluster)
    (cluster.work / "refuse").touch()
    refused = cluster("move", "counted", "5", "--to", other(before[5]))
    assert refused.code == 6 and "there is no room for it here" in refused.err, refused.err
    assert "elastic" in refused.err and "moves counted" in refused.err
    newest = cluster.data("moves", "counted")[0]
    assert newest["rolled_back"] == 1 and "there is no room" in newest["tasks"][0]["reason"]
    assert places(cluster) == before
    told = [e for e in cluster.data("errors", "counted") if e["kind"] == "task-move-failed"]
    assert {e["task"] for e in told} == {5} and "job.py" in told[0]["details"]["traceback"]
    (cluster.work / "refuse").unlink()
    assert cluster.data("move", "counted", "5", "--to", before[5])["moves"] == []


def test_what_does_not_exist_is_said(cluster: Cluster) -> None:
    for words, code, says in (
        (("move", "nobody", "1", "--to", "node-1"), 4, "nobody"),
        (("move", "counted", "77", "--to", "node-1"), 4, "it has tasks 1 to 5"),
        (("move", "counted", "counts", "--to", "node-1"), 4, "count"),
        (("move", "counted", "2", "--to", "node-9"), 4, "node-1, node-2"),
        (("move", "counted", "2", "--to", "counted@node-1/7"), 4, "it has 0 to 1"),
        (("moves", "nobody"), 4, "nobody"),
        (("moves", "counted", "999"), 4, "999"),
        (("scale", "counted", "count=9"), 6, "cannot have 9 executors"),
        (("move", "counted", "2"), 2, "--to"),
    ):
        done = cluster(*words)
        assert done.code == code and says in done.err, (words, done)
        assert "Traceback" not in done.err and done.out == ""


def test_watching_scaling_and_spreading(cluster: Cluster) -> None:
    watching = cluster.start("-o", "json", "moves", "counted", "--watch")
    try:
        scaled = cluster.data("scale", "counted", "count=4")
        assert scaled["executors"] == 5 and not scaled["unassigned"]
        spread = cluster.data("rebalance", "counted", "--workers", "4")
        assert spread["workers"] == 4 and sum(m["moved"] for m in spread["moves"]) >= 2
        epochs = {m["epoch"] for m in spread["moves"]}
        ended: set[int] = set()
        assert watching.stdout is not None
        while not epochs <= ended:
            line = watching.stdout.readline()
            assert line, "the stream of moves ended"
            seen = json.loads(line)
            ended |= {seen["epoch"]} if seen["state"] == "ended" else set()
    finally:
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130, err
    assert len(set(places(cluster).values())) == 4
    gathered = cluster.data("rebalance", "counted", "--workers", "2")
    assert gathered["workers"] == 2 and sum(m["moved"] for m in gathered["moves"]) >= 2


def test_the_page_shows_a_move_as_it_goes_on(cluster: Cluster) -> None:
    """The page of a topology, as a browser gets it, and what Prometheus scrapes; the page ends while somebody looks on."""
    node = other(places(cluster)[3])
    ui = cluster.start("-o", "json", "ui", "--port", "0")
    try:
        assert ui.stdout is not None
        said = json.loads("".join(iter(ui.stdout.readline, "}\n")) + "}")
        with urlopen(f"{said['url']}live?page=/topologies/counted", timeout=LIMIT) as live:
            (move,) = cluster.data("move", "counted", "3", "--to", node)["moves"]
            link, ended = f"/topologies/counted/moves/{move['epoch']}", False
            while not ended:
                line = live.readline()
                assert line, "the page's stream ended"
                shown = json.loads(line.removeprefix(b"data: ")) if line.startswith(b"data: ") else {}
                rows = shown.get("moves", "").split("<tr>")
                ended = any(link in row and "ended" in row and "1 task moved" in row for row in rows)
            with urlopen(said["url"].rstrip("/") + link, timeout=LIMIT) as page:
                steps = page.read().decode()
            assert f"counted@{node}/" in steps and "stands still" in steps
            with urlopen(said["metrics"], timeout=LIMIT) as scraped:
                metrics = dict(line.rsplit(" ", 1) for line in scraped.read().decode().splitlines())
            assert float(metrics['elastic_moves_total{topology="counted"}']) >= 1
            assert metrics['elastic_component_failed_total{component="count",topology="counted"}'] == "0.0"
            ui.send_signal(signal.SIGINT)
            _, err = ui.communicate(timeout=LIMIT)
    finally:
        ui.kill()
        ui.wait()
    assert ui.returncode == 130 and "the cluster goes on" in err, err


def test_a_move_outlives_the_leading_nimbus(cluster: Cluster) -> None:
    """Its record says what is under way, and the command asks the next leader."""
    before = places(cluster)
    node = other(before[2])
    (cluster.work / "hold").touch()
    moving = cluster.start("-o", "json", "move", "counted", "2", "--to", node)
    try:
        wait_until("it is under way", lambda: cluster.described("counted")["moves"])
        cluster.leading_nimbus().kill()
        wait_until("another leads", lambda: cluster("list").code == 0)
        (cluster.work / "hold").unlink()
        out, err = moving.communicate(timeout=LIMIT)
    finally:
        moving.kill()
        moving.wait()
    assert moving.returncode == 0, err
    assert [m["moved"] for m in json.loads(out)["moves"]] == [1]
    assert f"@{node}/" in places(cluster)[2]


def test_draining_a_node_moves_everything_away(cluster: Cluster) -> None:
    """The last of this module: one node is left."""
    before = places(cluster)
    node = "node-2" if any("@node-2/" in w for w in before.values()) else "node-1"
    leaving = {t for t, w in before.items() if f"@{node}/" in w}
    drained = cluster("-o", "json", "nodes", "drain", node)
    assert drained.code == 0, drained.err
    moves = drained.data["moves"]
    assert {t["task"] for m in moves for t in m["tasks"] if t["phase"] == "committed"} == leaving
    assert not [w for w in places(cluster).values() if f"@{node}/" in w]
    (last,) = {n["node"] for n in cluster.data("nodes", "list")}
    stays = cluster("nodes", "drain", last, "--wait", "1")
    says = f"node {last} is being drained, and no other place is free for counted@{last}/"
    assert stays.code == 8 and says in stays.err, stays.err
    assert any(w.startswith(says) for w in cluster.described("counted")["waits"])
    assert says in cluster("moves", "counted").err
    executed = counters(cluster)["count"]["executed"]
    wait_until("it goes on", lambda: counters(cluster)["count"]["executed"] > executed)
    assert counters(cluster)["count"]["failed"] == 0
