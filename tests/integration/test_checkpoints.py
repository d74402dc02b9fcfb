"""A topology with checkpoints on a real cluster: workers and a node are killed while its tasks move, and each tuple counts once."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_harness import Cluster, wait_until, with_job

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]

JOB = '''
import json
import os
import pathlib

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder

KEYS = 24


class Numbers(StatefulSpout):
    """Emits the numbers from 0 on, each for all of its keys, until a file is there: then as many as that says, if that is more."""

    outputs = Fields(key=int, number=int)

    def __init__(self, directory):
        self.directory, self.at = directory, 0

    def next_tuple(self):
        end = self.directory / "end"
        if self.at % 50 == 0 and end.exists() and self.at >= int(end.read_text()):
            self.exhausted()
            return None
        self.emit_all([(key, self.at) for key in range(self.context.index, KEYS, self.context.parallelism)])
        self.at += 1
        return 0.002

    def get_state(self):
        return self.at

    def set_state(self, state):
        self.at = state


class Hold(StatefulBolt):
    outputs = Fields(key=int, number=int, count=int)
    seen = KeyedState(int)
    pages = KeyedState(str)

    def execute(self, tup):
        self.seen[tup.key] += 1
        self.pages[tup.key, tup.number % 100] = str(tup.number) * 200  # large enough to be copied ahead
        self.emit(tup.key, tup.number, self.seen[tup.key])


class Sink(StatefulBolt):
    last = KeyedState(lambda: -1)
    wrong = KeyedState(int)

    def __init__(self, directory):
        self.directory = directory

    def execute(self, tup):
        if not tup.number == self.last[tup.key] + 1 == tup.count - 1:
            self.wrong[tup.key] += 1
        self.last[tup.key] = tup.number

    def finish(self):
        path = self.directory / f"{self.context.task}.{os.getpid()}"
        path.write_text(json.dumps([list(self.last.items()), list(self.wrong.items())]))


def topology(args):
    directory = pathlib.Path(args[0])
    b = TopologyBuilder("saved", workers=2, checkpoint_interval=0.5)
    b.spout("numbers", Numbers(directory), tasks=2)
    b.bolt("hold", Hold(), tasks=6, executors=2).fields("numbers", "key")
    b.bolt("sink", Sink(directory), tasks=3, executors=2).fields("hold", "key")
    return b.build()
'''


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_job(tmp_path_factory, JOB, "--nodes", "2", "--slots", "2") as made:
        yield made


def test_what_crashes_costs_nothing_while_tasks_move(cluster: Cluster) -> None:
    work, seed = cluster.work, random.randrange(1 << 20)
    print("seed", seed)
    chosen = random.Random(seed)
    _wait_for_another(cluster)

    _workers(cluster, chosen)[0].kill()  # while it only streams
    _wait_for(cluster, lambda c: c["went_back"] >= 1)
    _wait_for_another(cluster)

    moving = cluster.start("rebalance", "saved", "--executors", "hold=4", "--executors", "sink=1")
    _workers(cluster, chosen)[0].kill()  # while tasks change their places, or are about to
    _wait_for(cluster, lambda c: c["went_back"] >= 2)
    moving.communicate(timeout=90)
    _wait_for_another(cluster)

    back = _checkpoints(cluster)["went_back"]
    places = {w["node"] for w in cluster.described("saved")["worker_list"]}
    node = next(n for n in cluster.data("nodes", "list") if n["node"] in places)
    psutil.Process(node["pid"]).kill()  # with its workers, and its store
    _wait_for(cluster, lambda c: c["went_back"] > back)
    _wait_for_another(cluster)

    (work / "end.new").write_text(str(_emitted(cluster)))
    (work / "end.new").rename(work / "end")
    wait_until("all has come", lambda: cluster.described("saved")["status"] == "finished")
    # What the last life of each sink says: one that finished, and went back, has said it before as well.
    newest: dict[str, Path] = {}
    for path in sorted(work.glob("*.*"), key=lambda p: p.stat().st_mtime):
        if path.name.partition(".")[0].isdigit():
            newest[path.name.partition(".")[0]] = path
    said = [json.loads(p.read_text()) for p in newest.values()]
    last = {key: n for lasts, _ in said for key, n in lasts}
    assert sorted(last) == list(range(24))
    assert {len({last[k] for k in last if k % 2 == spout}) for spout in (0, 1)} == {1}, (
        "as much of each key of a spout"
    )
    assert not [wrong for _, wrong in said if wrong]


def _emitted(cluster: Cluster) -> int:
    """So many numbers, and some more: the end is still to come."""
    (numbers,) = [c for c in cluster.described("saved")["components"] if c["id"] == "numbers"]
    return int(numbers["executed"]) + 500


def _workers(cluster: Cluster, chosen: random.Random) -> list[psutil.Process]:
    """The processes that run tasks, in any order."""
    found = [w for w in cluster.described("saved")["worker_list"] if w["pid"] and w["executors"]]
    chosen.shuffle(found)
    return [psutil.Process(w["pid"]) for w in found]


def _checkpoints(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.described("saved")["checkpoints"]
    return found


def _wait_for(cluster: Cluster, what: Any) -> None:
    wait_until("it goes on", lambda: what(_checkpoints(cluster)))


def _wait_for_another(cluster: Cluster) -> None:
    """Until one that begins from now on is complete."""
    before = _checkpoints(cluster)["number"]
    _wait_for(cluster, lambda c: c["number"] > before + 1)
