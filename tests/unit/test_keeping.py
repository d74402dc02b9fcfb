"""A worker keeps to a core as long as nothing is lost by it, and while something moves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from elastic.cluster import keeping
from elastic.cluster.keeping import Keeping

COUNT = """
import os, time
from elastic.machine import busy_by_core
core = max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {core})
before, used = busy_by_core(), time.process_time()
assert before.keys() >= {core}
while time.process_time() < used + 0.3:
    pass
assert 0.25 < busy_by_core()[core] - before[core]
print("ok")
"""


class Place:
    """Instead of a core: whether it is kept to."""

    def __init__(self) -> None:
        self.changes: list[bool] = []
        self.others = frozenset({0})

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
    rig.passes(keeping.AGAIN / 2, 0.6)
    assert rig.changes == [True, False]
    rig.passes(keeping.AGAIN / 2, 0.6)
    assert rig.changes == [True, False, True], "they may have gone"
    rig.passes(1.0, 0.6, (0.0, 0.4))
    rig.passes(keeping.AGAIN, 0.6)
    assert rig.changes == [True, False, True, False], "less often each time"
    rig.passes(keeping.AGAIN, 0.6)
    assert rig.changes == [True, False, True, False, True]


def test_a_core_that_is_not_for_this_process_is_none_to_go_to() -> None:
    rig = Rig()
    rig.place.others = frozenset()
    for _ in range(5):
        rig.passes(1.0, 0.6, (0.0, 0.4))
    assert rig.changes == [True]


def test_where_no_core_has_room_nothing_is_won_by_leaving_one() -> None:
    rig = Rig()
    for _ in range(5):
        rig.passes(1.0, 0.6, (0.95, 0.4))
    assert rig.changes == [True]


def test_who_would_use_more_than_one_core_is_let_go() -> None:
    """As long as a core is kept to nobody can use more: it is left now and then to see."""
    rig = Rig()
    for _ in range(20):
        rig.passes(1.0, 0.8)
    assert rig.changes == [True]
    for _ in range(int(keeping.LOOK) - 1):
        rig.passes(1.0, 0.99)
        assert rig.changes == [True]
    rig.passes(1.0, 0.99)
    assert rig.changes == [True, False]
    for _ in range(5):
        rig.passes(1.0, 1.8)
    assert rig.changes == [True, False]
    rig.passes(1.0, 1.0)
    assert rig.changes == [True, False, True]


def test_who_would_not_use_more_is_let_go_less_often_each_time() -> None:
    rig = Rig()
    left = []
    for second in range(300):
        rig.passes(1.0, 0.99)
        if rig.place.kept is None:
            left.append(second)
    between = [b - a for a, b in pairwise(left)]
    assert (
        between == sorted(between)
        and between[0] < 3 * keeping.LOOK
        and between[-1] > 0.9 * keeping.LOOK_LATEST
    )
    rig.passes(1.0, 0.5)
    found = len(rig.changes)
    for _ in range(2 * int(keeping.LOOK)):
        rig.passes(1.0, 0.99)
    assert len(rig.changes) > found, "it has more to do than before"


def test_who_does_not_need_the_whole_core_is_not_asked_for_more() -> None:
    rig = Rig()
    for _ in range(2 * int(keeping.LOOK_LATEST)):
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
    rig.passes(keeping.LONGEST / 2, 0.5, (0.0, 0.5))
    assert rig.changes == [True]
    rig.passes(keeping.LONGEST, 0.5, (0.0, 0.5))
    rig.keeping.moving(True)
    assert rig.changes == [True, False], "nor does it begin anew"
    rig.keeping.moving(False)
    rig.keeping.moving(True)
    assert rig.changes == [True, False, True]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")
def test_the_system_says_what_each_core_has_done() -> None:
    """Of the core that a process computes on it is as much as that process says."""
    found = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=False)
    assert found.stdout == "ok\n", found.stderr
