r"""Rolling sort: a bolt keeps the newest messages, and sorts them again and again (Storm-MC 2015, section 5.3.3).

    elastic run examples/rolling_sort.py --input a.txt --output newest.txt
    elastic submit examples/rolling_sort.py --loop --window 10000 --tick 1 --workers 2 --executors 2

Messages are strings of a hundred random digits from 0 to 8, or the lines of --input. Each task of the bolt `sort` keeps the newest
--window of those that it gets, and emits them, sorted, at each --tick. When the input ends, the windows of all tasks are merged: the
output has the newest --window messages of all, sorted by code points, one a line (a tab in one as `\t`). The
same by standard tools:

    tail -n 100 a.txt | tr -d '\r' | LC_ALL=C sort
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from options import Options, options

from elastic import Fields, Spout, StatefulBolt, TextSink, TextSpout, Topology, TopologyBuilder


class RandomMessages(Spout):
    """Numbered strings of random digits from 0 to 8.

    Args:
        count: How many; None for ever.
        seed: The same seed gives the same messages.
    """

    outputs = Fields(number=int, message=str)

    def __init__(self, count: int | None, seed: int) -> None:
        self.count, self.seed = count, seed

    def tuples(self) -> Iterator[tuple[int, str]]:
        made = random.Random(self.seed)
        number = 0
        while self.count is None or number < self.count:
            yield number, "".join(made.choices("012345678", k=100))
            number += 1


class NumberedLines(TextSpout):
    """Lines of text, numbered as they come. For one task: several would give the same numbers."""

    outputs = Fields(number=int, message=str)
    number = 0

    def tuples(self) -> Iterator[Any]:
        for line in super().tuples():
            number, self.number = self.number, self.number + 1
            yield number, line

    def get_state(self) -> object:
        return {"number": self.number, "read": super().get_state()}

    def set_state(self, state: Any) -> None:
        self.number = state["number"]
        super().set_state(state["read"])


class Sort(StatefulBolt):
    """Keeps the newest messages and emits them sorted at each tick; emits the last ones numbered when the input has ended."""

    outputs = {"default": Fields(chunk=list[str]), "last": Fields(number=int, message=str)}

    def __init__(self, window: int) -> None:
        self.window: deque[tuple[int, str]] = deque(maxlen=window)

    def execute(self, tup: Any) -> None:
        self.window.append((tup.number, tup.message))

    def tick(self) -> None:
        self.emit(sorted(message for _, message in self.window))

    def finish(self) -> None:
        self.tick()
        for number, message in self.window:
            self.emit_to("last", number, message)

    def get_state(self) -> object:
        return list(self.window)

    def set_state(self, state: Any) -> None:
        self.window = deque(state, maxlen=self.window.maxlen)


class Merge(StatefulBolt):
    """The newest messages of all tasks' windows."""

    outputs = Fields(message=str)

    def __init__(self, window: int) -> None:
        self.window = window
        self.newest: list[tuple[int, str]] = []

    def execute(self, tup: Any) -> None:
        entry = (tup.number, tup.message)
        if len(self.newest) < self.window:
            heapq.heappush(self.newest, entry)
        else:
            heapq.heappushpop(self.newest, entry)

    def finish(self) -> None:
        for message in sorted(message for _, message in self.newest):
            self.emit(message)

    def get_state(self) -> object:
        return self.newest

    def set_state(self, state: Any) -> None:
        self.newest = state


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("rolling-sort", __doc__, args, _more, generated="random digits")
    window = o.extra.window
    b = TopologyBuilder(o.name, workers=o.workers)
    made: Spout = RandomMessages(None if o.loop else o.extra.count, o.extra.seed)
    b.spout("messages", NumberedLines(o.input, loop=o.loop) if o.input else made, rate=o.rate)
    b.bolt(
        "sort", Sort(window), tasks=o.executors, executors=o.executors, tick_interval=o.extra.tick
    ).shuffle("messages")
    b.bolt("merge", Merge(window)).all_to_one("sort", stream="last")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("merge")
    return b.build()


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", type=_positive, default=100, help="messages to keep (default: 100)")
    parser.add_argument("--tick", type=float, default=10.0, help="seconds between two sorts (default: 10)")
    parser.add_argument("--count", type=int, default=200_000, help="messages to make (default: 200000)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other messages (default: 0)")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {value}")
    return value
