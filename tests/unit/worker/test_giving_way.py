"""Who copies a state or puts one in lets others go first after each small part of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from elastic import KeyedState, StatefulBolt, timeslice
from elastic.worker import putting_in
from elastic.worker.content import Copier
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


class _Given:
    """Counts how often somebody gave way, and what there was each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, look: Callable[[], int]) -> None:
        self.seen: list[int] = []
        monkeypatch.setattr(timeslice, "give_way", lambda: self.seen.append(look()))


def test_copying_gives_way_after_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
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
    given = _Given(monkeypatch, lambda: len(numbers))
    made = copier.ahead(time.monotonic() + 60.0)
    assert len(made) >= 20_000 / WHOLE
    assert set(given.seen) >= set(range(2, len(made))), (
        "there was a piece more each time, and none came without"
    )


def test_putting_in_gives_way_after_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    given = _Given(monkeypatch, lambda: len(done))

    def steps() -> Iterator[None]:
        for n in range(5):
            done.append(n)
            yield

    home = SimpleNamespace(call=lambda what: what())
    monkeypatch.setattr(putting_in, "SLICE", 60.0)
    going_in = PuttingIn(home, lambda: None, steps())  # type: ignore[arg-type]
    going_in.begin(urgent=False)
    assert going_in.done.done() and given.seen == [1, 2, 3, 4, 5]
