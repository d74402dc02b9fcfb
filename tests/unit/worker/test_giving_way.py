"""Who copies a state or puts one in lets others go first after each small part of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from itertools import pairwise
from types import SimpleNamespace

import pytest

from elastic import KeyedState, StatefulBolt, timeslice
from elastic.worker.content import Arrival, Copier, Step, wholes
from elastic.worker.content import copier as copier_module
from elastic.worker.content.arrival import PUT
from elastic.worker.moving import putting_in
from elastic.worker.moving.putting_in import PuttingIn


class Bolt(StatefulBolt):
    state = KeyedState[int, int]()


def copied(entries: int) -> tuple[Bolt, Copier]:
    """One with so many entries, about to be copied ahead."""
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(entries))
    copier = Copier(bolt)
    copier.read_at_once(copier.size())
    return bolt, copier


_GIVES_WAY = """
import os, sys, threading, time
from elastic import timeslice

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # as a worker does while tasks move
gate, there, turns = threading.Lock(), threading.Event(), []

def other():
    there.set()
    gate.acquire()
    turns.append(1)

gate.acquire()
thread = threading.Thread(target=other, daemon=True)
thread.start()
there.wait()
time.sleep(0.1)
sys.setswitchinterval(60.0)  # who asks for the interpreter does not get it
gate.release()
until = time.monotonic() + 1.0
while not turns and time.monotonic() < until:
    if "fault" not in sys.argv:
        timeslice.give_way()
print(len(turns), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("fault", [False, True])
def test_who_gives_way_lets_go_of_the_interpreter(fault: bool) -> None:
    command = [sys.executable, "-c", _GIVES_WAY, *["fault"] * fault]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(found.stdout) == (not fault)


class Given:
    """Counts how often somebody gave way, and what there was each time. Others go first for a thousand seconds then.

    Args:
        look: What there is.
        told: Whether who gives way is told for how long others went first.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, look: Callable[[], int], *, told: bool = True
    ) -> None:
        self.seen: list[int] = []
        self._now, self._look, self._told = 0.0, look, told
        monkeypatch.setattr(timeslice, "give_way", self._give_way)
        for module in (putting_in, copier_module):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self._now))

    def _give_way(self) -> float:
        self.seen.append(self._look())
        self._now += 1000.0
        return 1000.0 if self._told else 0.0


@pytest.mark.parametrize("told", [True, False])
def test_copying_gives_way_after_each_piece(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    _, copier = copied(wholes.MANY)
    numbers: list[int] = []
    number = copier._number

    def counted() -> int:
        numbers.append(number())
        return numbers[-1]

    for each in copier._keyed:
        each._number = each._pieces._number = counted
    given = Given(monkeypatch, lambda: len(numbers), told=told)
    made = copier.ahead(1.0)
    assert (len(made) >= wholes.MANY / wholes.WHOLE) == told, "for how long others went first does not count"
    assert set(given.seen) >= set(range(2, len(made))), (
        "there was a piece more each time, no two of them came at once"
    )


@pytest.mark.parametrize("told", [True, False])
def test_putting_in_gives_way_after_each_part(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    done: list[int] = []
    given = Given(monkeypatch, lambda: len(done), told=told)

    def steps() -> Generator[Step, None, None]:
        for n in range(5):
            done.append(n)
            yield Step(others_first=True, memory=None)

    calls: list[Callable[[], None]] = []
    going_in = PuttingIn(SimpleNamespace(call=calls.append), lambda: None, steps(), calls.append)  # type: ignore[arg-type]
    going_in.begin(urgent=False)
    calls.pop()()
    assert going_in.done.done() == told
    assert given.seen == ([1, 2, 3, 4, 5] if told else [1])


def test_what_is_soon_done_with_gives_way_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many such tasks may move at once."""
    (bolt, copier), moved = copied(wholes.MANY - 1), Bolt()
    given = Given(monkeypatch, lambda: 0)
    made = dict(copier.ahead(1.0))
    content, arrival = copier.so_far(), Arrival(moved)
    for step in arrival.ahead(content.meta, content.order, [made[n] for n in content.order]):
        assert not step.others_first
    assert given.seen == [] and dict(moved.state) == dict(bolt.state)


def test_one_that_takes_long_is_put_in_by_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    (bolt, copier), moved = copied(wholes.MANY), Bolt()
    made = dict(copier.ahead(time.monotonic() + 60.0))
    content, arrival, there = copier.so_far(), Arrival(moved), [0]
    for step in arrival.ahead(content.meta, content.order, [made[n] for n in content.order]):
        assert step.others_first
        there.append(len(moved.state))
    assert max(b - a for a, b in pairwise(there)) <= PUT
    assert dict(moved.state) == dict(bolt.state)
