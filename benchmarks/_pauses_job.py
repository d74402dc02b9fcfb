"""The topology of `pauses`: numbered work at a steady rate through tasks that hold state, and a sink that notes when each tuple came.

Tuples carry the time at which they were *due*: when the spout itself is held up, that counts as well. The monotonic clock is the same
in all processes of a machine.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elastic import Bolt, Fields, KeyedState, StatefulBolt, StatefulSpout, Topology, TopologyBuilder

BURST = 512
"""Tuples that the spout emits at a time at most."""
TICK = 0.001
"""Seconds between two looks at what is due: one that never rests would measure itself."""
STRIDE = 1_000_003
"""A prime: steps of it reach all keys, in an order that has nothing to do with theirs."""
OTHERS = 8
"""Each so many tuples, one goes to the task that never moves."""
PAGE = 1 << 15
"""Notes that lie together. One array of all is copied again and again as it grows: 20 ms in which nobody else gets the interpreter."""
GRACE = 60.0
"""Seconds that the sink has to write its notes: a gigabyte after a long run, beside other work."""
FIRST = 1 << 40
"""What is counted begins here, so that a count takes 9 bytes wherever it is written down: 20 with its key."""


def key_of(number: int) -> str:
    """A key's name."""
    return f"k{number:09d}"


class Keys(StatefulSpout):
    """Keys in turn, at a steady rate; where it is moves along.

    Args:
        keys: How many there are.
        groups: How many groups they are in; a group's keys are in one task.
        rate: Tuples per second; 0: as many as possible.
    """

    outputs = {  # noqa: RUF012
        "default": Fields(group=int, key=str, stamp=int),
        "others": Fields(key=str, stamp=int),
    }

    def __init__(self, keys: int, groups: int, rate: float) -> None:
        self.keys, self.groups, self.rate = keys, groups, rate
        self.number = self.began = 0

    def prepare(self, context: Any) -> None:
        self.names = [key_of(n) for n in range(self.keys)]
        self.behind = context.gauge("behind")

    def get_state(self) -> object:
        return self.number, self.began

    def set_state(self, state: Any) -> None:
        self.number, self.began = state

    def next_tuple(self) -> float | None:
        now = time.monotonic_ns()
        if not self.began:
            self.began = now
        if self.rate:
            due = int((now - self.began) * self.rate / 1e9) - self.number
            self.behind.set(max(0, due) / self.rate)
            if due <= 0:
                return TICK
            due = min(due, BURST)
            step = 1e9 / self.rate
        else:
            due, step = BURST, 0.0
        names, keys, groups, began = self.names, self.keys, self.groups, self.began
        rows, others = [], []
        for n in range(self.number, self.number + due):
            stamp = began + int(n * step) if step else now
            if n % OTHERS:
                key = (n - n // OTHERS) * STRIDE % keys
                rows.append((key % groups, names[key], stamp))
            else:
                others.append((names[n % keys], stamp))
        self.number += due
        self.emit_all(rows)
        self.emit_all(others, stream="others")
        return None


class Hold(StatefulBolt):
    """Holds an entry for each key, and changes it whenever the key comes.

    Args:
        size: Bytes of each entry's value; 0: a count.
    """

    outputs = Fields(task=int, stamp=int)
    entries = KeyedState[str, Any]()

    def __init__(self, keys: int, groups: int, size: int) -> None:
        self.keys, self.groups, self.size = keys, groups, size

    def prepare(self, context: Any) -> None:
        self.task = context.task
        self.filled = context.counter("entries")
        self.values = [os.urandom(self.size) for _ in range(64)] if self.size else []

    def execute(self, tup: Any) -> None:
        key, entries = tup.key, self.entries
        value = entries.get(key)
        if value is None:
            self._fill(tup.group)
        elif self.values:
            entries[key] = self.values[tup.stamp & 63]
        else:
            entries[key] = value + 1
        self.emit(self.task, tup.stamp)

    def _fill(self, group: int) -> None:
        new = range(group, self.keys, self.groups)
        for n in new:
            self.entries[key_of(n)] = os.urandom(self.size) if self.size else FIRST
        self.filled.inc(len(new))


class Stays(Bolt):
    """What is never moved."""

    outputs = Fields(task=int, stamp=int)

    def prepare(self, context: Any) -> None:
        self.task = context.task

    def execute(self, tup: Any) -> None:
        self.emit(self.task, tup.stamp)


class Sink(Bolt):
    """Notes of each tuple the task, when it was due and when it came; writes that down when it ends."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: Any) -> None:
        self.pages: list[tuple[array[int], array[int], array[int]]] = []
        self._turn_over()
        context.gauge("late", self._late)

    def _turn_over(self) -> None:
        self.tasks, self.stamps, self.came = page = array("q"), array("q"), array("q")
        self.pages.append(page)

    def _late(self) -> float:
        """Seconds from when the newest tuple was due until it came."""
        for _, stamps, came in self.pages[-1:-3:-1]:
            if newest := len(came):
                return (came[newest - 1] - stamps[newest - 1]) / 1e9
        return 0.0

    def execute(self, tup: Any) -> None:
        came = self.came
        self.tasks.append(tup.task)
        self.stamps.append(tup.stamp)
        came.append(time.monotonic_ns())
        if len(came) == PAGE:
            self._turn_over()

    def cleanup(self) -> None:
        if self.pages[0][0]:
            path = Path(self.directory) / f"{uuid.uuid4().hex}.part"
            with path.open("wb") as file:
                for column in zip(*self.pages, strict=True):
                    for part in column:
                        part.tofile(file)
            path.rename(path.with_suffix(".notes"))


def parser() -> argparse.ArgumentParser:
    """What the topology can be told."""
    made = argparse.ArgumentParser(prog="pauses")
    made.add_argument("--name", default="pauses")
    made.add_argument("--directory", required=True)
    for name, usual in (
        ("keys", 50_000),
        ("groups", 64),
        ("tasks", 1),
        ("executors", 1),
        ("size", 0),
        ("workers", 2),
        ("keep-core", 2),
    ):
        made.add_argument(f"--{name}", type=int, default=usual)
    made.add_argument("--rate", type=float, default=0.0)
    return made


def topology(args: Sequence[str]) -> Topology:
    """The topology."""
    o = parser().parse_args(args)
    b = TopologyBuilder(o.name, workers=o.workers, stop_grace=GRACE, keep_core=o.keep_core)
    b.spout("keys", Keys(o.keys, o.groups, o.rate))
    b.bolt("hold", Hold(o.keys, o.groups, o.size), tasks=o.tasks, executors=o.executors).fields(
        "keys", "group"
    )
    b.bolt("stays", Stays()).all_to_one("keys", stream="others")
    b.bolt("sink", Sink(o.directory)).all_to_one("hold").all_to_one("stays")
    return b.build()
