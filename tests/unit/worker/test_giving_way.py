"""Who copies a state or puts one in lets others go first after each small part of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from elastic import KeyedState, StatefulBolt, timeslice
from elastic.worker import putting_in
from elastic.worker.content import Copier
from elastic.worker.content import copier as copier_module
from elastic.worker.content.keyed import WHOLE
from elastic.worker.putting_in import PuttingIn


class Bolt(StatefulBolt):
    state = KeyedState[int, int]()


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
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(20_000))
    copier = Copier(bolt)
    copier.read_at_once(copier.size())
    numbers: list[int] = []
    number = copier._number

    def counted() -> int:
        numbers.append(number())
        return numbers[-1]

    for keyed in copier._keyed:
        keyed._number = counted
    given = Given(monkeypatch, lambda: len(numbers), told=told)
    made = copier.ahead(1.0)
    assert (len(made) >= 20_000 / WHOLE) == told, "for how long others went first does not count"
    assert set(given.seen) >= set(range(2, len(made))), (
        "there was a piece more each time, no two of them came at once"
    )


@pytest.mark.parametrize("told", [True, False])
def test_putting_in_gives_way_after_each_part(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    done: list[int] = []
    given = Given(monkeypatch, lambda: len(done), told=told)

    def steps() -> Iterator[None]:
        for n in range(5):
            done.append(n)
            yield

    calls: list[Callable[[], None]] = []
    going_in = PuttingIn(SimpleNamespace(call=calls.append), lambda: None, steps())  # type: ignore[arg-type]
    going_in.begin(urgent=False)
    calls.pop()()
    assert going_in.done.done() == told
    assert given.seen == ([1, 2, 3, 4, 5] if told else [1])
