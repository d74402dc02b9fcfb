"""A real worker keeps to a core while it computes, what it starts does not, and it goes on to none when it has nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from cli_harness import LIMIT, Cluster, wait_until, with_job

pytestmark = [
    pytest.mark.skipif(
        not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
    ),
    pytest.mark.timeout(300),
]
JOB = '''
import os
import pathlib
import subprocess
import time

from elastic import Fields, Spout, TopologyBuilder


class Computes(Spout):
    """Half of the time, until it is told to rest. Starts a program once it keeps to a core."""

    outputs = Fields(n=int)

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.child = None

    def prepare(self, context):
        (self.directory / "worker").write_text(str(os.getpid()))

    def next_tuple(self):
        if (self.directory / "rest").exists():
            return 0.1
        until = time.monotonic() + 0.004
        while time.monotonic() < until:
            pass
        if self.child is None and len(os.sched_getaffinity(0)) == 1:
            self.child = subprocess.Popen(["sleep", "1000"])
            made = self.directory / "child.part"
            made.write_text(str(self.child.pid))
            made.rename(self.directory / "child")
        return 0.004

    def cleanup(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait()


def topology(args):
    b = TopologyBuilder("computes")
    b.spout("computes", Computes(args[0]))
    return b.build()
'''


WAITS = """
import sys, time
from elastic.cluster.cores import Core
core, end = Core(), time.monotonic() + float(sys.argv[1])
while core.keep() is None and time.monotonic() < end:
    time.sleep(0.2)
print(core.kept)
"""


def some_are_free() -> bool:
    """Whether there is a core that no other worker of this user keeps to, or soon is: clusters that run beside this have workers, too."""
    words = [sys.executable, "-c", WAITS, str(LIMIT)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout != "None\n"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not some_are_free():
        pytest.skip("other workers keep to all cores")
    with with_job(tmp_path_factory, JOB, "--nodes", "1", "--slots", "1") as made:
        yield made


def test_a_worker_keeps_to_a_core_as_long_as_it_computes(cluster: Cluster) -> None:
    all_of = sorted(os.sched_getaffinity(0))

    def cores(who: str) -> list[int]:
        path = cluster.work / who
        return sorted(psutil.Process(int(path.read_text())).cpu_affinity() or []) if path.exists() else []

    wait_until("it keeps to a core", lambda: len(cores("worker")) == 1)
    wait_until("what it has started runs anywhere", lambda: cores("child") == all_of)
    (cluster.work / "rest").touch()
    wait_until("it runs anywhere when it has nothing to do", lambda: cores("worker") == all_of)
