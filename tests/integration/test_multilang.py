"""Tasks whose work is done by processes in another language move between workers while the stream runs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import copy

import pytest

from elastic.api.bundle import build_bundle
from elastic.cluster.directory import read_cluster
from elastic.cluster.launcher import UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import NotFound

CLIENT = Path(__file__).parents[1] / "unit" / "multilang" / "children" / "client.py"
LIMIT = 90.0
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

TOPOLOGY = """
from pathlib import Path
from elastic import Bolt, Fields, ShellBatchBolt, ShellBolt, StatefulSpout, TextSink, TopologyBuilder

HERE = Path({here!r})
KEYS = 8

class Numbers(StatefulSpout):
    outputs = Fields(key=int, number=int)
    number = 0

    def next_tuple(self):
        if self.number % 100 == 0 and (HERE / "stop").exists():
            self.exhausted()
            return
        self.emit(self.number % KEYS, self.number)
        self.number += 1

    def get_state(self):
        return self.number

    def set_state(self, number):
        self.number = number

class Arrived(Bolt):
    outputs = Fields(order=str, key=int, number=int, first=int, second=int)
    count = 0

    def execute(self, tup):
        self.emit(f"{{self.count:09}}", *tup.values)
        self.count += 1

def topology():
    b = TopologyBuilder("foreign", workers=2)
    b.spout("numbers", Numbers(), rate=500)
    relay = ShellBolt(["python3", "relay.py"], Fields(key=int, number=int, pid=int), files=HERE / "scripts")
    b.bolt("relay", relay, tasks=2, executors=2).fields("numbers", "key")
    gather = ShellBatchBolt(
        ["python3", "gather.py"], Fields(key=int, number=int, first=int, second=int), files=HERE / "scripts"
    )
    # Ticks come at the end alone.
    b.bolt("gather", gather, tasks=2, executors=2, tick_interval=1e6).fields("relay", "key")
    b.bolt("arrived", Arrived()).all_to_one("gather")
    b.bolt("out", TextSink(HERE / "out.tsv")).all_to_one("arrived")
    return b.build()
"""
RELAY = """
import os
from client import begin, command, emit, say

begin()
while True:
    tup = command()
    say(command="ack", id=tup["id"])  # what follows belongs to it all the same
    emit(*tup["tuple"], os.getpid())
"""
GATHER = """
import os
from client import begin, command, emit, say

begin()
kept = []
while True:
    tup = command()
    tick = tup["stream"] == "__tick"
    kept += [] if tick else [tup]
    if tick or len(kept) == 7:
        for one in kept:
            emit(*one["tuple"], os.getpid())
            say(command="ack", id=one["id"])
        kept.clear()
    if tick:
        say(command="ack", id=tup["id"])
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "up"
    start_background(UpOptions(home=str(home), nodes=2, slots=1), lambda _: None)
    yield home
    with suppress(NotFound):  # the test has
        stop(home, "default", purge=True)


def test_nothing_is_lost_doubled_or_reordered_when_processes_move(tmp_path: Path, cluster: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    copy(CLIENT, scripts)
    (scripts / "relay.py").write_text(RELAY)
    (scripts / "gather.py").write_text(GATHER)
    file = tmp_path / "foreign.py"
    file.write_text(TOPOLOGY.format(here=str(tmp_path)))
    loaded = load(str(file), [])
    bundle = build_bundle(loaded.topology, loaded.entry, tmp_path / "bundle.zip")
    with Client(read_cluster(cluster, "default").nimbus) as client:
        client.submit(loaded.topology.spec, bundle.path, requires=bundle.requires)
        events = (e for _, e in client.events(topology="foreign", follow=True))
        for _ in range(2):
            assert any(e.kind == "worker-started" for e in events)
        client.rebalance("foreign", workers=2, wait=LIMIT)  # until all have begun
        workers = sorted({e.worker for e in client.describe("foreign").executors})
        assert len(workers) == 2
        for turn in range(3):
            for component in ("relay", "gather", "numbers"):
                client.move("foreign", component, workers[turn % 2], wait=LIMIT)
        moves = client.describe("foreign").moved
        assert moves.committed >= 8 and not moves.rolled_back and not moves.lost
        (tmp_path / "stop").touch()
        assert any(e.kind == "topology-finished" for e in events)
        assert client.errors("foreign") == ()
    pids: set[str] = set()
    arrived: defaultdict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "out.tsv").read_text().splitlines():
        _, key, number, *both = line.split("\t")
        arrived[key].append(int(number))
        pids.update(both)
    total = sum(map(len, arrived.values()))
    assert total >= 100
    for key, numbers in arrived.items():
        assert numbers == list(range(int(key), total, 8))
    assert len(pids) >= 12, "each move of a task began another process"
    stop(cluster, "default", purge=True)
    assert not [p for p in pids if Path("/proc", p).exists()]
