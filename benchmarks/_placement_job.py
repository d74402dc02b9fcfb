"""The chains of `placement`: Throughput Test and Word Count, after T-Storm (2014), section V, with as many executors as tasks.

How fast the spouts go stands in a file, so that it can be changed while they run. Tuples carry the time at which they were due.
"""

from __future__ import annotations

import argparse
import random
import string
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._pauses_job import BURST, Sink
from benchmarks.words.text import lines
from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, Topology, TopologyBuilder, TopologyContext

PARTS = {"throughput test": (2, 6, 6), "word count": (2, 5, 5, 5)}
"""Executors of each component: Throughput Test's 5, 15, 15 in about the same proportion, Word Count's as they are."""
SAMPLE = 8
"""One of so many tuples is noted."""
SIZE = 10_000
"""Bytes of a string of Throughput Test."""
LOOK = 0.1
"""Seconds between two looks at the file with the rate."""
STOP = -1.0
"""Instead of a rate: emit nothing."""


class Paced(Spout):
    """Emits what `make` gives, with the time at which it was due, at the rate in a file: tuples/s of all tasks, 0: flat out."""

    def __init__(self, directory: str) -> None:
        self.file = Path(directory) / "rate"

    def prepare(self, context: TopologyContext) -> None:
        self.share = 1 / context.parallelism
        self.number, self.looked, self.rate, self.due = context.index, 0.0, STOP, 0.0

    def next_tuple(self) -> float | None:
        now = time.monotonic()
        if now - self.looked > LOOK:
            self.looked, rate = now, float(self.file.read_text())
            if rate != self.rate:
                self.rate, self.due = rate, now
        if self.rate < 0:
            return LOOK
        if self.rate == 0:
            stamp = int(now * 1e9)
            for _ in range(BURST // 8):
                self.once(stamp)
            return None
        step = 1 / (self.rate * self.share)
        if self.due > now:
            return min(self.due - now, LOOK)
        for _ in range(BURST):
            if self.due > now:
                break
            self.once(int(self.due * 1e9))
            self.due += step
        return None

    def once(self, stamp: int) -> None:
        """Emit one."""
        raise NotImplementedError


class Strings(Paced):
    """Random strings of a fixed size."""

    outputs = Fields(text=str, stamp=int)

    def prepare(self, context: TopologyContext) -> None:
        super().prepare(context)
        draw = random.Random(context.index)
        self.texts = ["".join(draw.choices(string.ascii_letters, k=SIZE)) for _ in range(16)]

    def once(self, stamp: int) -> None:
        self.number += 1
        self.emit(self.texts[self.number & 15], stamp)


class Lines(Paced):
    """The lines of a text, again and again."""

    outputs = Fields(line=str, stamp=int)

    def __init__(self, directory: str, input: str | None) -> None:
        super().__init__(directory)
        self.input = input

    def prepare(self, context: TopologyContext) -> None:
        super().prepare(context)
        self.text = [line for line in lines(self.input) if line.strip()]

    def once(self, stamp: int) -> None:
        self.number += 1
        self.emit(self.text[self.number % len(self.text)], stamp)


class Identity(Bolt):
    """Hands on what it gets."""

    outputs = Fields(text=str, stamp=int)

    def execute(self, tup: Any) -> None:
        self.emit(tup.text, tup.stamp)


class Split(Bolt):
    """The words of a line."""

    outputs = Fields(word=str, stamp=int)

    def execute(self, tup: Any) -> None:
        stamp = tup.stamp
        self.emit_all([(word, stamp) for word in tup.line.split()])


class Count(StatefulBolt):
    """How often a word came, each time that it comes; the counts move along."""

    outputs = Fields(word=str, count=int, stamp=int)
    counts = KeyedState[str, int](int)

    def execute(self, tup: Any) -> None:
        word = tup.word
        count = self.counts[word] = self.counts[word] + 1
        self.emit(word, count, tup.stamp)


class Results(Sink):
    """Counts what comes, and notes a sample of it."""

    def prepare(self, context: TopologyContext) -> None:
        super().prepare(context)
        self.count, self.task = 0, context.task

    def execute(self, tup: Any) -> None:
        self.count += 1
        if self.count % SAMPLE == 0:
            self.tasks.append(self.task)
            self.stamps.append(tup.stamp)
            self.came.append(time.monotonic_ns())


def topology(args: Sequence[str]) -> Topology:
    """The topology, with one worker on each node to begin with."""
    parser = argparse.ArgumentParser(prog="placement")
    parser.add_argument("--name", default="placement")
    parser.add_argument("--chain", choices=tuple(PARTS), default="word count")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--input")
    parser.add_argument("--workers", type=int, default=4)
    o = parser.parse_args(args)
    b = TopologyBuilder(o.name, workers=o.workers, report_interval=0.25, elastic="off")
    first, *rest = PARTS[o.chain]
    if o.chain == "throughput test":
        b.spout("strings", Strings(o.directory), tasks=first, executors=first)
        b.bolt("identity", Identity(), tasks=rest[0], executors=rest[0]).shuffle("strings")
        b.bolt("counter", Results(o.directory), tasks=rest[1], executors=rest[1]).shuffle("identity")
    else:
        b.spout("reader", Lines(o.directory, o.input), tasks=first, executors=first)
        b.bolt("split", Split(), tasks=rest[0], executors=rest[0]).shuffle("reader")
        b.bolt("count", Count(), tasks=rest[1], executors=rest[1]).fields("split", "word")
        b.bolt("results", Results(o.directory), tasks=rest[2], executors=rest[2]).shuffle("count")
    return b.build()
