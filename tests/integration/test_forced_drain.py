"""A node is drained by force with a task on it whose state cannot be saved: it begins elsewhere, empty, when it has ended here."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from cli_harness import Cluster, wait_until, with_job

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(200),
]

JOB = '''
import os
import pathlib
import time

from elastic import Fields, Spout, StatefulBolt, TopologyBuilder


class Numbers(Spout):
    outputs = Fields(n=int)

    def prepare(self, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit(self.n)


class Count(StatefulBolt):
    """Writes down when it executes; its state cannot be had."""

    def __init__(self, directory):
        self.directory = directory

    def prepare(self, context):
        super().prepare(context)
        self.count = 0
        self.file = (self.directory / f"{os.getpid()}.run").open("w", buffering=1)

    def get_state(self):
        raise OSError("it is not to be had")

    def set_state(self, state):
        pass

    def execute(self, tup):
        self.file.write(f"{time.monotonic_ns()}\\n")


def topology(args):
    b = TopologyBuilder("kept", workers=1)
    b.spout("numbers", Numbers(), rate=200)
    b.bolt("count", Count(pathlib.Path(args[0]))).shuffle("numbers")
    return b.build()
'''


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with with_job(tmp_path_factory, JOB, "--nodes", "2", "--slots", "1") as made:
        yield made


def test_it_begins_elsewhere_when_it_has_ended_here(cluster: Cluster) -> None:
    def runs() -> dict[str, list[int]]:
        """When it executed, by process."""
        times = {
            f.stem: [int(t) for t in f.read_text().splitlines()[:-1]] for f in cluster.work.glob("*.run")
        }
        return {pid: found for pid, found in times.items() if found}

    wait_until("it runs", lambda: len(runs()) == 1)
    (first,) = runs()
    (worker,) = cluster.described("kept")["worker_list"]
    drained = cluster("nodes", "drain", worker["node"], "--force", "--wait", "90s")
    assert drained.code == 0, drained.err
    wait_until("it runs elsewhere", lambda: len(runs()) == 2)
    found = runs()
    before = max(found.pop(first))
    (after,) = found.values()
    assert before < min(after), "two ran at once"
    (lost,) = (e for e in cluster.data("events") if e["kind"] == "state-lost")
    assert lost["component"] == "count" and lost["details"]["before"].startswith(f"kept@{worker['node']}/")
