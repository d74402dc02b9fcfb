r"""Throughput test: strings through a bolt that does nothing, into one that counts them (T-Storm 2014, section V).

    elastic run examples/throughput_test.py --count 20000 --output passed.tsv
    elastic submit examples/throughput_test.py --loop --rate 1000 --workers 2
    elastic run examples/throughput_test.py --input a.txt --output passed.tsv

The spout emits random strings of 10 KB, or the lines of --input. The output has two lines: `bytes`, a tab, how many bytes the
strings had (in UTF-8, line ends not counted); `tuples`, a tab, how many there were. The same by standard tools:

    LC_ALL=C awk '{ sub(/\r+$/, ""); bytes += length } END { print "bytes\t" bytes; print "tuples\t" NR }' a.txt
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from typing import Any

from options import Options, options

from elastic import (
    Bolt,
    Fields,
    KeyedState,
    Spout,
    StatefulBolt,
    TextSink,
    Topology,
    TopologyBuilder,
)

KB = 1000


class RandomStrings(Spout):
    """Random strings of hexadecimal digits.

    Args:
        count: How many; None for ever.
        size: Characters of each.
        seed: The same seed gives the same strings.
    """

    outputs = Fields(text=str)

    def __init__(self, count: int | None, size: int, seed: int) -> None:
        self.count, self.size, self.seed = count, size, seed

    def tuples(self) -> Iterator[str]:
        made = random.Random(self.seed)
        emitted = 0
        while self.count is None or emitted < self.count:
            yield made.randbytes((self.size + 1) // 2).hex()[: self.size]
            emitted += 1


class Identity(Bolt):
    """Emits what it gets."""

    outputs = Fields(text=str)

    def execute(self, tup: Any) -> None:
        self.emit(tup[0])


class Counter(StatefulBolt):
    """Counts; emits how many strings have come after each of them, and the sums at the end."""

    outputs = {"default": Fields(passed=int), "sums": Fields(what=str, number=int)}
    sums = KeyedState[str, int](int)

    def execute(self, tup: Any) -> None:
        text = tup.text
        self.sums["bytes"] += len(text) if text.isascii() else len(text.encode("utf-8"))
        self.sums["tuples"] += 1
        self.emit(self.sums["tuples"])

    def finish(self) -> None:
        for what in ("bytes", "tuples"):
            self.emit_to("sums", what, self.sums[what])


class Sum(StatefulBolt):
    """Adds up what the counter's tasks have counted."""

    outputs = Fields(what=str, number=int)
    sums = KeyedState[str, int](int)

    def execute(self, tup: Any) -> None:
        self.sums[tup.what] += tup.number

    def finish(self) -> None:
        for what, number in self.sums.items():
            self.emit(what, number)


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("throughput-test", __doc__, args, _more, generated="random strings")
    b = TopologyBuilder(o.name, workers=o.workers)
    made = RandomStrings(None if o.loop else o.extra.count, o.extra.size, o.extra.seed)
    b.spout("strings", o.lines() if o.input else made, rate=o.rate)
    b.bolt("identity", Identity(), tasks=8, executors=o.executors).shuffle("strings")
    b.bolt("counter", Counter(), tasks=8, executors=o.executors).shuffle("identity")
    b.bolt("sum", Sum()).all_to_one("counter", stream="sums")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("sum")
    return b.build()


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=20_000, help="strings to make (default: 20000)")
    parser.add_argument("--size", type=int, default=10 * KB, help="bytes of each (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other strings (default: 0)")
