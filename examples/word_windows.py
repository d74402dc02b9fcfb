r"""Word windows: how often each word stands in each minute of a text that is read at a line a second.

    elastic run examples/word_windows.py --input a.txt --output windows.tsv
    elastic submit examples/word_windows.py --window 60 --slide 10 --rate 100 --workers 2 --executors 2

The time of a word is the number of its line, from 0: time in the events, not on the clock. Several tasks split lines, each at its own
pace; a window closes when all of them have come to its end, so the result is the same however many there are and wherever they go.
The output has a line for each word in each window of --window seconds: its beginning, the word, how often; sorted. With windows that
do not overlap the same by standard tools, for a text with plain spaces:

    tr -d '\r' < a.txt | LC_ALL=C awk '
        { for (i = 1; i <= NF; i++) n[int((NR - 1) / 60) * 60 "\t" $i]++ }
        END { for (key in n) print key "\t" n[key] }' | LC_ALL=C sort
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from options import Options, options
from rolling_sort import NumberedLines

from elastic import (
    Bolt,
    Fields,
    Sliding,
    TextSink,
    Topology,
    TopologyBuilder,
    Tumbling,
    Window,
    WindowedBolt,
)


class Split(Bolt):
    """A line to its words, each with the time of the line."""

    outputs = Fields(at=int, word=str)

    def execute(self, tup: Any) -> None:
        self.emit_all((tup.number, word) for word in tup.message.split())


class Count(WindowedBolt):
    """Counts the words of each window."""

    outputs = Fields(start=int, word=str, count=int)

    def begin(self) -> int:
        return 0

    def add(self, held: int, tup: Any) -> int:
        return held + 1

    def close(self, window: Window, key: str, held: int) -> None:
        self.emit(int(window.start), key, held)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", type=int, default=60, help="seconds of a window (default: 60)")
    parser.add_argument("--slide", type=int, help="seconds from one to the next (default: as --window)")


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("word-windows", __doc__, args, _more)
    size, slide = o.extra.window, o.extra.slide or o.extra.window
    windows = Tumbling(size) if slide == size else Sliding(size, slide)
    # The text has an end, so whoever is behind is waited for, however long it has been silent.
    count = Count(windows, by="word", time="at", idle=math.inf)
    b = TopologyBuilder(o.name, workers=o.workers)
    b.spout("lines", NumberedLines(o.input, loop=o.loop), rate=o.rate)
    b.bolt("split", Split(), tasks=4, executors=o.executors).shuffle("lines")
    b.bolt("count", count, tasks=8, executors=o.executors).fields("split", "word")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("count")
    return b.build()
