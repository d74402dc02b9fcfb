"""Workers keep to different cores, the others to none; a core is free again when its worker has ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from elastic import Fields, Spout, TopologyBuilder
from elastic.cluster import cores
from elastic.cluster.cores import ALONE, ALWAYS, NEVER, Keeping, how
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

COUNT = """
import os, time
from elastic.cluster.cores import busy
core = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
before, used = busy(), time.process_time()
assert before.keys() >= {core}
while time.process_time() < used + 0.3:
    pass
assert 0.25 < busy()[core] - before[core]
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


class Place:
    """Instead of a core: whether it is kept to."""

    def __init__(self) -> None:
        self.changes: list[bool] = []

    @property
    def kept(self) -> int | None:
        return 1 if self.changes and self.changes[-1] else None

    def keep(self, used: Mapping[int, float] | None = None) -> int:
        self.changes.append(True)
        return 1

    def leave(self) -> None:
        if self.kept is not None:
            self.changes.append(False)

    def tidy(self) -> None:
        pass


class Rig:
    """A `Keeping` with a clock that is set by hand, a process that uses so many cores, and others that use some of the cores 0 and 1."""

    def __init__(self, *, told: bool = True) -> None:
        self.now, self.used, self.busy = 100.0, 0.0, {0: 50.0, 1: 70.0} if told else {}
        self.place = Place()
        self.keeping = Keeping(
            self.place,  # type: ignore[arg-type]
            clock=lambda: self.now,
            used=lambda: self.used,
            busy=lambda: dict(self.busy),
        )

    @property
    def changes(self) -> list[bool]:
        return self.place.changes

    def passes(self, seconds: float, cores: float, others: tuple[float, float] = (0.0, 0.0)) -> None:
        """Time, in which the process uses core 1 when it keeps to it, else both."""
        self.now += seconds
        self.used += seconds * cores
        for core in self.busy:
            mine = cores / 2 if self.place.kept is None else cores * core
            self.busy[core] += seconds * (mine + others[core])
        self.keeping.measure()


def test_a_core_is_kept_to_while_a_worker_computes() -> None:
    rig = Rig()
    rig.passes(1.0, 0.0)
    assert rig.changes == [], "cores are for those that compute"
    for _ in range(5):
        rig.passes(1.0, 0.6, (0.3, 0.2))
    assert rig.changes == [True]
    rig.passes(1.0, 0.01)
    assert rig.changes == [True, False]


def test_a_core_is_left_that_others_want_while_another_one_has_room() -> None:
    rig = Rig()
    rig.passes(1.0, 0.6)
    rig.passes(1.0, 0.6, (0.0, 0.4))
    assert rig.changes == [True, False]
    rig.passes(cores.AGAIN / 2, 0.6)
    assert rig.changes == [True, False]
    rig.passes(cores.AGAIN / 2, 0.6)
    assert rig.changes == [True, False, True], "they may have gone"
    rig.passes(1.0, 0.6, (0.0, 0.4))
    rig.passes(cores.AGAIN, 0.6)
    assert rig.changes == [True, False, True, False], "less often each time"
    rig.passes(cores.AGAIN, 0.6)
    assert rig.changes == [True, False, True, False, True]


def test_where_no_core_has_room_nothing_is_won_by_leaving_one() -> None:
    rig = Rig()
    for _ in range(5):
        rig.passes(1.0, 0.6, (0.95, 0.4))
    assert rig.changes == [True]


def test_who_would_use_more_than_one_core_is_let_go() -> None:
    """As long as a core is kept to nobody can use more: it is left now and then to see."""
    rig = Rig()
    rig.passes(1.0, 0.9)
    for _ in range(int(cores.LOOK) - 1):
        rig.passes(1.0, 0.99)
        assert rig.changes == [True]
    rig.passes(1.0, 0.99)
    assert rig.changes == [True, False]
    for _ in range(5):
        rig.passes(1.0, 1.8)
    assert rig.changes == [True, False]
    rig.passes(1.0, 1.0)
    assert rig.changes == [True, False, True]


def test_who_does_not_need_the_whole_core_is_not_asked_for_more() -> None:
    rig = Rig()
    for _ in range(2 * int(cores.LOOK)):
        rig.passes(1.0, 0.6)
    assert rig.changes == [True]


def test_what_is_counted_over_too_short_a_time_says_nothing() -> None:
    rig = Rig()
    rig.passes(1.0, 0.6)
    for _ in range(20):
        rig.passes(0.05, 0.6 if _ % 4 else 0.0)
    assert rig.changes == [True]


def test_while_something_moves_a_core_is_kept_to_anyway() -> None:
    rig = Rig()
    rig.passes(1.0, 0.01)
    rig.keeping.moving(True)
    rig.keeping.moving(True)
    rig.passes(1.0, 0.5, (0.0, 0.5))
    assert rig.changes == [True]
    rig.keeping.moving(False)
    assert rig.changes == [True], "whether it stays so is looked at"
    rig.passes(1.0, 0.5, (0.0, 0.5))
    assert rig.changes == [True, False]
    rig.keeping.moving(True)
    assert rig.changes == [True, False, True]


def test_where_the_system_does_not_say_what_others_use_it_is_for_moves_alone() -> None:
    rig = Rig(told=False)
    for _ in range(2):
        rig.passes(1.0, 0.9)
        rig.keeping.moving(True)
        rig.keeping.moving(True)
        rig.keeping.moving(False)
    assert rig.changes == [True, False] * 2


def test_who_uses_more_than_one_core_keeps_to_none() -> None:
    rig = Rig()
    rig.passes(1.0, 1.8)
    rig.keeping.moving(True)
    assert rig.changes == []
    rig.keeping.moving(False)
    rig.passes(1.0, 1.0)
    assert rig.changes == [True]


@pytest.mark.parametrize("told", [True, False])
def test_a_move_that_lasts_does_not_keep_a_worker_from_other_cores(told: bool) -> None:
    rig = Rig(told=told)
    rig.keeping.moving(True)
    rig.passes(cores.LONGEST / 2, 0.5, (0.0, 0.5))
    assert rig.changes == [True]
    rig.passes(cores.LONGEST, 0.5, (0.0, 0.5))
    rig.keeping.moving(True)
    assert rig.changes == [True, False], "nor does it begin anew"
    rig.keeping.moving(False)
    rig.keeping.moving(True)
    assert rig.changes == [True, False, True]


@needs_cores
def test_the_system_says_what_each_core_has_done() -> None:
    """Of the core that a process computes on it is as much as that process says."""
    found = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=False)
    assert found.stdout == "ok\n", found.stderr


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
