"""Moves by the command line of what is large, of several topologies at once, and of what there is no room for: on a real cluster of two
nodes, whose states are compared entry by entry with what they have to be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_harness import LIMIT, Cluster, wait_until
from test_moves_cli import NUMBERS, other, places

from elastic.testing import BoltTester

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]

BOLTS = '''
import os
import pathlib
import time

from elastic import KeyedState, StatefulBolt, TopologyBuilder

KEYS = 1
ENTRIES = 30_011
STEP = 7_919


def text(entry, times):
    """What an entry has to be when it was written so many times: a hundred characters."""
    return f"{entry}/{times}".rjust(100, "*")


class Keep(StatefulBolt):
    """Three megabytes. Every number, once and in order, writes an entry, whose value before that follows from the number alone."""

    texts = KeyedState(str)
    next = KeyedState(int)

    def __init__(self, directory):
        self.directory = directory

    def prepare(self, context):
        while (self.directory / "hold").exists():
            time.sleep(0.02)

    def execute(self, tup):
        n = tup.n
        if n != self.next[0]:
            raise AssertionError(f"{n} instead of {self.next[0]}")
        if n == 0:
            for entry in range(ENTRIES):
                self.texts[entry] = text(entry, 0)
        entry, times = n * STEP % ENTRIES, n // ENTRIES
        if self.texts[entry] != text(entry, times):
            raise AssertionError(f"entry {entry} is {self.texts[entry]!r} after {times} times")
        self.texts[entry] = text(entry, times + 1)
        self.next[0] = n + 1
        wanted = self.directory / f"compare-{self.context.topology}"
        if wanted.exists():
            wanted.rename(self.directory / f"compared-{self.context.topology}")
            self.compare(n + 1)

    def compare(self, count):
        """All of it, after so many numbers."""
        times = [count // ENTRIES] * ENTRIES
        for n in range(count - count % ENTRIES, count):
            times[n * STEP % ENTRIES] += 1
        found = dict(self.texts.items())
        if found != {entry: text(entry, times[entry]) for entry in range(ENTRIES)}:
            raise AssertionError("the state is not what it has to be")
        (self.directory / f"is-so-{self.context.topology}").write_text(f"{os.getpid()} {len(found)}")


class Heap(StatefulBolt):
    """More than a store holds."""

    lumps = KeyedState(bytes)

    def execute(self, tup):
        if tup.n < 80:
            self.lumps[tup.n] = os.urandom(1 << 20)


def topology(args):
    directory, name, rate = pathlib.Path(args[0]), args[1], float(args[2])
    b = TopologyBuilder(name, workers=2)
    b.spout("numbers", Numbers(), rate=rate)
    b.bolt("heap" if name == "heavy" else "keep", Heap() if name == "heavy" else Keep(directory)).shuffle("numbers")
    return b.build()
'''
JOB = NUMBERS + BOLTS
SOURCE, KEEP = 1, 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("work"))
    (made.work / "job.py").write_text(JOB)
    up = made("up", "--nodes", "2", "--slots", "6", "--store-memory", "64M")
    try:
        assert up.code == 0, up.err
        for name in ("large", "second"):
            submit(made, name, "2000")
        yield made
    finally:
        made("down", "--purge")


@pytest.fixture(autouse=True)
def nothing_wrong(cluster: Cluster) -> Iterator[None]:
    """After each test the streams flow, and no task has met what it did not expect."""
    yield
    (cluster.work / "hold").unlink(missing_ok=True)
    for name in ("large", "second"):
        compared(cluster, name)
        assert [c["failed"] for c in cluster.described(name)["components"]] == [0, 0]


def submit(cluster: Cluster, name: str, rate: str) -> None:
    done = cluster("submit", "job.py", str(cluster.work), name, rate)
    assert done.code == 0, done.err


def compared(cluster: Cluster, name: str) -> int:
    """Have the task compare all that it has; the process that has done it."""
    said = cluster.work / f"is-so-{name}"
    said.unlink(missing_ok=True)
    (cluster.work / f"compare-{name}").touch()
    wait_until(f"the state of {name} is compared", lambda: said.exists() and said.read_text().count(" "))
    pid, entries = said.read_text().split()
    assert int(entries) == 30_011
    return int(pid)


def test_the_task_would_notice(tmp_path: Path) -> None:
    """What the other tests stand on: an entry that is not as it has to be, or not there, is an error."""
    namespace: dict[str, Any] = {"__name__": "job"}
    exec(compile(JOB, "job.py", "exec"), namespace)
    for wrong in ("changed", "gone"):
        tester = BoltTester(namespace["Keep"](tmp_path))
        for n in range(5):
            tester.execute(n=n)
        tester.component.compare(5)
        if wrong == "gone":
            del tester.component.texts[3]
        else:
            tester.component.texts[3] = "another"
        with pytest.raises(AssertionError, match="not what it has to be"):
            tester.component.compare(5)


def test_megabytes_move_while_they_change(cluster: Cluster) -> None:
    before, pid = places(cluster, "large")[KEEP], compared(cluster, "large")
    moved = cluster("move", "large", "keep", "--to", other(before))
    assert moved.code == 0 and "1 task moved" in moved.err, moved.err
    assert f"@{other(before)}/" in places(cluster, "large")[KEEP]
    assert compared(cluster, "large") != pid, "another process has it, and all of it"
    newest = cluster.data("moves", "large")[0]
    assert newest["moved"] == 1 and newest["tasks"][0]["size"] >= 2 << 20, newest


def test_two_topologies_move_at_the_same_time(cluster: Cluster) -> None:
    (cluster.work / "hold").touch()
    before = {name: places(cluster, name)[KEEP] for name in ("large", "second")}
    moving = {n: cluster.start("move", n, "keep", "--to", other(w)) for n, w in before.items()}
    try:
        for name in moving:
            wait_until(f"{name} moves", lambda name=name: cluster.described(name)["moves"])
        assert [cluster.described(n)["moves"][0]["state"] for n in moving] == ["running", "running"]
        (cluster.work / "hold").unlink()
        for name, command in moving.items():
            _, err = command.communicate(timeout=LIMIT)
            assert command.returncode == 0 and "1 task moved" in err, (name, err)
    finally:
        for command in moving.values():
            command.kill()
            command.wait()
    for name, worker in before.items():
        assert f"@{other(worker)}/" in places(cluster, name)[KEEP]


def test_a_spout_by_name_then_neighbours_in_one_request(cluster: Cluster) -> None:
    before = places(cluster, "large")
    target = other(before[SOURCE])
    spout = cluster.data("move", "large", "numbers", "--to", target)
    assert [t["task"] for m in spout["moves"] for t in m["tasks"]] == [SOURCE]
    assert f"@{target}/" in places(cluster, "large")[SOURCE]
    gathered = cluster("move", "large", "keep", "--to", target)
    assert gathered.code == 0, gathered.err
    away = other(places(cluster, "large")[KEEP])
    both = cluster.data("move", "large", "numbers", "keep", "--to", away)
    assert {t["task"] for m in both["moves"] for t in m["tasks"] if t["phase"] == "committed"} == {
        SOURCE,
        KEEP,
    }
    assert all(f"@{away}/" in w for w in places(cluster, "large").values())


def test_again_before_the_last_has_settled(cluster: Cluster) -> None:
    home = other(other(places(cluster, "large")[KEEP]))  # where it is now
    (cluster.work / "hold").touch()
    first = cluster.start("move", "large", "keep", "--to", other(home))
    back = None
    try:
        wait_until("it is under way", lambda: cluster.described("large")["moves"])
        back = cluster.start("move", "large", "keep", "--to", home)
        (cluster.work / "hold").unlink()
        ended = [(c.communicate(timeout=LIMIT)[1], c.returncode) for c in (first, back)]
    finally:
        for command in (c for c in (first, back) if c is not None):
            command.kill()
            command.wait()
    # Who asked first hears that somebody has changed that, or that its move was through before.
    assert ended[1][1] == 0 and ended[0][1] in (0, 6), ended
    assert f"@{home}/" in places(cluster, "large")[KEEP]


def test_what_there_is_no_room_for_is_refused_with_the_sizes_before_anything_pauses(cluster: Cluster) -> None:
    """The last of this module: its topology stays until the cluster ends."""

    def executed() -> int:
        (heap,) = [c for c in cluster.described("heavy")["components"] if c["id"] == "heap"]
        return int(heap["executed"])

    submit(cluster, "heavy", "1000")
    wait_until("it has all of its state", lambda: executed() > 80)
    before = places(cluster, "heavy")
    refused = cluster("move", "heavy", "heap", "--to", other(before[KEEP]))
    assert refused.code == 6 and "Traceback" not in refused.err, refused.err
    assert "has no room for" in refused.err and "MiB" in refused.err and "64 MiB" in refused.err, refused.err
    assert places(cluster, "heavy") == before
    moves = cluster.data("moves", "heavy")
    assert moves and all(m["moved"] == 0 and m["rolled_back"] == 1 and m["pause"] == 0 for m in moves)
    assert not [
        s for m in moves for t in m["tasks"] for s in t["times"] if s in ("paused", "stopped", "saved")
    ]
    then = executed()
    wait_until("it goes on", lambda: executed() > then)
