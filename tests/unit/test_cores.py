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
from elastic.cluster.cores import ALONE, ALWAYS, NEVER, how
from elastic.model.topology import TopologySpec

needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
PROGRAM = """
import os, sys, threading
from elastic.cluster.cores import Core
ready, end = threading.Event(), threading.Event()
found = []
def other():
    ready.set()
    end.wait()
    found.append(os.sched_getaffinity(0))
thread = threading.Thread(target=other)
thread.start()
ready.wait()
one = Core(sys.argv[1])
core = one.keep()
end.set()
thread.join()
assert core is None or found == [{core}] == [os.sched_getaffinity(0)], (core, found)
print(core, flush=True)
sys.stdin.read()
"""
BACK = """
import ctypes, os, subprocess, sys, threading
from elastic.cluster.cores import Core
def of_a_library():
    before = set(os.listdir("/proc/self/task"))
    library = ctypes.CDLL(None)
    library.pthread_create(ctypes.byref(ctypes.c_ulong()), None, library.pause, None)
    (one,) = set(os.listdir("/proc/self/task")) - before
    return int(one)
before = os.sched_getaffinity(0)
own = {min(before)}
running, end = threading.Barrier(3), threading.Event()
found = {}
def other(name, cores, first=True):
    if cores:
        os.sched_setaffinity(0, cores)
    if first:
        running.wait()
    end.wait()
    found[name] = os.sched_getaffinity(0)
threads = [threading.Thread(target=other, args=a) for a in (("usual", None), ("its own", own))]
for thread in threads:
    thread.start()
running.wait()
one = Core(sys.argv[1])
core = one.keep()
assert core is not None and core == one.keep()
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
meanwhile = threading.Thread(target=other, args=("meanwhile", None, False))
meanwhile.start()
threads.append(meanwhile)
native = of_a_library()
assert os.sched_getaffinity(child.pid) == os.sched_getaffinity(native) == os.sched_getaffinity(0) != before
one.tidy()
assert os.sched_getaffinity(child.pid) == os.sched_getaffinity(native) == before, "at once, not when the core is left"
assert os.sched_getaffinity(0) == {core} == os.sched_getaffinity(meanwhile.native_id)
second = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
one.leave()
one.leave()
assert os.sched_getaffinity(0) == before
one.tidy()
end.set()
for thread in threads:
    thread.join()
assert os.sched_getaffinity(0) == before == os.sched_getaffinity(second.pid)
child.communicate(b"\\n")
second.communicate(b"\\n")
assert found == {"usual": before, "its own": own, "meanwhile": before}, found
third = Core(sys.argv[1])
assert third.keep() is not None
print("ok")
"""


@contextlib.contextmanager
def worker(name: str) -> Iterator[str]:
    """A process that keeps to a core; which one."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name],
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
        first = running.enter_context(worker(name_of(tmp_path)))
        others = {running.enter_context(worker(name_of(tmp_path))) for _ in range(len(available) - 1)}
        assert {first} | others == available
        with worker(name_of(tmp_path)) as further:
            assert further == "None", "there is none left"
    with worker(name_of(tmp_path)) as again:
        assert again in available


@needs_cores
def test_a_name_that_cannot_be_had_is_no_trouble(tmp_path: Path) -> None:
    with worker(name_of(tmp_path) * 9) as one:
        assert one == "None"


def name_of(directory: Path) -> str:
    """Of no other test's."""
    return f"{os.getpid()}-{directory.name}"[-90:]


@needs_cores
def test_all_that_kept_to_a_core_runs_anywhere_again(tmp_path: Path) -> None:
    """Threads, and programs that they have started; not a thread that has cores of its own."""
    done = subprocess.run(
        [sys.executable, "-c", BACK, name_of(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "ok\n", done.stderr


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
    assert how(spec_of(Rows(), keep_core=1), "127.0.0.1") == ALWAYS
    assert how(spec_of(Batches(), keep_core=1), "127.0.0.1") == NEVER == how(spec_of(Batches()), "127.0.0.1")
    assert how(spec_of(Rows()), "127.0.0.1") == ALONE
    assert how(spec_of(Rows(), keep_core=0), "127.0.0.1") == NEVER
    assert how(spec_of(Rows(), keep_core=1), "10.0.0.5") == NEVER, "who knows what else runs there"
