"""Workers keep to different cores, the others to none; a core is free again when its worker has ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic import Fields, Spout, TopologyBuilder
from elastic.cluster.cores import may_keep
from elastic.model.topology import TopologySpec

needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
PROGRAM = """
import os, sys, threading
from pathlib import Path
from elastic.cluster.cores import keep_to_one
ready, end = threading.Event(), threading.Event()
found = []
def other():
    ready.set()
    end.wait()
    found.append(os.sched_getaffinity(0))
thread = threading.Thread(target=other)
thread.start()
ready.wait()
core = keep_to_one(Path(sys.argv[1]))
end.set()
thread.join()
assert core is None or found == [{core}] == [os.sched_getaffinity(0)], (core, found)
print(core, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def worker(directory: Path) -> Iterator[str]:
    """A process that keeps to a core; which one."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@needs_cores
def test_each_core_is_kept_by_one_worker_at_a_time(tmp_path: Path) -> None:
    available = {str(core) for core in os.sched_getaffinity(0)}
    if len(available) > 8:
        pytest.skip("that would be many processes")
    with contextlib.ExitStack() as running:
        first = running.enter_context(worker(tmp_path))
        others = {running.enter_context(worker(tmp_path)) for _ in range(len(available) - 1)}
        assert {first} | others == available
        with worker(tmp_path) as further:
            assert further == "None", "there is none left"
    with worker(tmp_path) as again:
        assert again in available


@needs_cores
def test_a_directory_that_cannot_be_had_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with worker(tmp_path / "file") as one:
        assert one == "None"


class Rows(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        self.exhausted()


class Batches(Spout):
    outputs = Fields(n=int)

    def next_batch(self) -> None:
        self.exhausted()


def spec_of(spout: Spout, **settings: int) -> TopologySpec:
    b = TopologyBuilder("t", **settings)
    b.spout("s", spout)
    return b.build().spec


def test_who_computes_on_several_cores_keeps_to_none() -> None:
    assert may_keep(spec_of(Rows(), keep_core=1), "127.0.0.1")
    assert not may_keep(spec_of(Batches(), keep_core=1), "127.0.0.1")
    assert not may_keep(spec_of(Rows()), "127.0.0.1")
    assert not may_keep(spec_of(Rows(), keep_core=1), "10.0.0.5"), "who knows what else runs there"
