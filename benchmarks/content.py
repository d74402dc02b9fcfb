"""A task's state as bytes: copied ahead, the rest at the pause, put in, read when needed; and what remembering changes costs meanwhile.

Milliseconds of CPU time of the thread that does it (it waits for nothing; what else the machine does then matters less), without stores
and network. What a move's pause pays for is *rest* and *install*.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Goal, Session, Wrong
from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.worker.content import Content, Copier, fill, install

NAME = "content"
SUMMARY = "a task's state in pieces: copying ahead, the rest at the pause, installing, lazy reading, tracking"

SLICE = 0.002
UPDATES = 100_000


class Bolt(StatefulBolt):
    """One keyed state."""

    state: KeyedState[str, Any] = KeyedState(int)


@dataclass(frozen=True)
class Size:
    """So many entries, of which the values are numbers, or bytes of that size."""

    name: str
    entries: int
    value: int = 0
    pause: float | None = None

    def bolt(self) -> tuple[Bolt, list[str]]:
        """A component with that state, and its keys."""
        keys = [f"user-{n:08d}" for n in range(self.entries)]
        random.Random(1).shuffle(keys)
        bolt = Bolt()
        for number, key in enumerate(keys):
            bolt.state[key] = random.Random(number).randbytes(self.value) if self.value else number
        return bolt, keys


# 19 bytes an entry. The pauses of docs/migration.md are for everything; a third of each is meant for this part.
SIZES = (
    Size("1 MB", 50_000, pause=8.0),
    Size("16 MB", 800_000, pause=33.0),
    Size("256 MB", 250_000, 1000, pause=83.0),
)


@dataclass
class Found:
    """What was measured, by name: a value for each round."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """The garbage collector's thresholds as workers have them."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds of CPU time of a call, and what it returned."""
    began = time.thread_time()
    result = what()
    return (time.thread_time() - began) * 1e3, result


def longest_hold(what: Callable[[], Any]) -> tuple[float, Any]:
    """How long `what` worked at most, in ms, without letting another thread run that wanted to; and what it returned.

    The interpreter asks a thread to let go after the switch interval: with a tiny one, what remains is single steps that can't be
    interrupted. Measured by another thread, in CPU time of this one.
    """
    clock = time.pthread_getcpuclockid(threading.get_ident())
    longest = 0.0
    over = threading.Event()

    def watch() -> None:
        nonlocal longest
        last = time.clock_gettime(clock)
        while not over.is_set():
            time.sleep(0)
            now = time.clock_gettime(clock)
            longest, last = max(longest, now - last), now

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = what()
    finally:
        over.set()
        watcher.join()
        sys.setswitchinterval(before)
    return longest * 1e3, result


def copy(
    bolt: Bolt, between: Callable[[], None] | None = None
) -> tuple[Copier, dict[int, bytes], list[float]]:
    """Copy ahead, a slice at a time; with the milliseconds of each slice."""
    copier = Copier(bolt)
    copier.size()
    got: dict[int, bytes] = {}
    slices = []
    while not copier.done:
        took, pieces = timed(lambda: copier.ahead(time.monotonic() + SLICE))
        slices.append(took)
        got.update(pieces)
        if between is not None:
            between()
    return copier, got, slices


def put(content: Content, got: dict[int, bytes]) -> tuple[float, Bolt]:
    """Put it in; returns the milliseconds."""
    got = got | dict(content.pieces)
    pieces = [got[n] for n in content.order]
    new = Bolt()
    return timed(lambda: install(new, content.meta, pieces))[0], new


def measure(size: Size, found: Found) -> None:
    """One round for one size."""
    bolt, keys = size.bolt()
    chance = random.Random(7)

    def change(share: float) -> None:
        for key in chance.sample(keys, int(share * len(keys))):
            value = bolt.state[key]
            bolt.state[key] = value + 1 if isinstance(value, int) else value[::-1]

    new = bolt
    for share in (0.0, 0.01, 0.1):
        copier, got, slices = copy(bolt)
        change(share)
        rest, content = timed(copier.rest)
        took, new = put(content, got)
        if not share:
            found.add(f"{size.name}: ahead, in all", sum(slices))
            found.add(f"{size.name}: ahead, longest slice", max(slices))
        found.add(f"{size.name}: rest, {share:.0%} changed", rest)
        found.add(f"{size.name}: install, {share:.0%} changed", took)
        found.add(f"{size.name}: rest + install, {share:.0%} changed", rest + took)
        copier.cancel()
    some = chance.sample(keys, min(2000, len(keys)))
    took, _ = timed(lambda: [new.state[k] for k in some])
    found.add(f"{size.name}: first access, each", took / len(some))

    def read_all() -> None:
        while fill(new, time.monotonic() + SLICE):
            pass

    hold, (took, _) = longest_hold(lambda: timed(read_all))
    found.add(f"{size.name}: reading everything, in the background", took)
    found.add(f"{size.name}: reading, longest hold of the interpreter", hold)
    if new.state != bolt.state:
        raise Wrong(f"{size.name}: another state came than went")
    hold, _ = longest_hold(lambda: Copier(bolt).rest())
    found.add(f"{size.name}: rest without anything ahead, longest hold", hold)


def updates(bolt: Bolt, keys: list[str]) -> float:
    """Updates a second: `state[key] += 1`."""
    state = bolt.state
    began = time.thread_time()
    for key in keys:
        state[key] += 1
    return len(keys) / (time.thread_time() - began)


def run(session: Session) -> None:
    """Measure and report."""
    found = Found()
    sizes = SIZES[:2] if session.quick else SIZES
    with quiet_collector():
        for number, size in itertools.product(range(session.runs), sizes):
            if session.wants(size.name):
                session.progress(f"  round {number + 1}/{session.runs}  {size.name}")
                measure(size, found)
        for name, values in found.values.items():
            goal = next(
                (s.pause for s in SIZES if name == f"{s.name}: rest + install, 1% changed" and s.pause), None
            )
            session.record(name, values, "ms", goal=Goal(goal, at_least=False) if goal else None)
        if session.wants("updates"):
            speeds = session.interleave(_tracking(), unit="updates/s")
            plain = "updates, plain"
            session.report(speeds, unit="updates/s", compare={n: plain for n in speeds if n != plain})


def _tracking() -> dict[str, Callable[[], float]]:
    bolt, keys = SIZES[0].bolt()
    asked = random.Random(3).choices(keys, k=UPDATES)

    def plain() -> float:
        return updates(bolt, asked)

    def tracked(reads: bool) -> float:
        tracking.track(bolt.state, reads=reads)
        try:
            return updates(bolt, asked)
        finally:
            tracking.untrack(bolt.state)

    def lazy() -> float:
        copier, got, _ = copy(bolt)
        new = put(copier.rest(), got)[1]
        copier.cancel()
        speed = updates(new, asked)
        if len(new.state) != len(bolt.state):
            raise Wrong("another state came than went")
        return speed

    return {
        "updates, plain": plain,
        "updates, while changes are remembered": lambda: tracked(False),
        "updates, while reads are as well (mutable values)": lambda: tracked(True),
        "updates, from the first one after a move": lazy,
    }
