r"""Frequent pattern detection: which items occur together often, lately (Elastic Storm 2016, section VI, figure 3 and table I).

    elastic run examples/frequent_patterns.py --input a.txt --output patterns.tsv
    elastic submit examples/frequent_patterns.py --input baskets.txt --rate 1000 --phase 60 --workers 2 --output patterns.tsv

    input -> generator -> detector -> reporter

A line of the input is a transaction; its items are the first --items different words of it. `input` emits transactions at random times:
the gaps between them are exponentially distributed, with a mean rate that goes through five phases of --phase seconds each, in the
proportions 120, 350, 900, 250, 120. --rate is that of the first phase, in transactions per second; 120 is the paper's. The lines are read
again from the beginning when there are too few. `generator` makes the patterns of a transaction: all sets of up to --length of its items.
`detector` counts how often each pattern occurred in a sliding window of --window seconds, which moves on by one of its --panes at a time.
A pattern is frequent while it occurred more than --more-than times in the window.

--output has a line for each time that a pattern was frequent: its items, sorted and with spaces between; the first and the last pane at
whose end it was; the most occurrences in a window; its occurrences in the panes from the first to the last. --latency appends a line to a
file for each pane: numbers by name as JSON, as they come.

All times of the result are those of the transactions' own clock, and the same --seed gives the same times. So the result depends neither
on the load nor on the number of executors nor on moves, and can be computed otherwise:

    python examples/frequent_patterns_reference.py --input a.txt --compare patterns.tsv

With --ask the detector asks a service about each occurrence (`pattern_service.py`), and waits for the answer: then executors are what
limits it, not CPUs. With --compute it computes for so many seconds of CPU time about each: then cores are.

--flat-out does not wait for the times, and is done as soon as it can be. --loop goes through the phases again and again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from options import Options, options
from pattern_service import Service

from elastic import (
    Fields,
    KeyedState,
    StatefulBolt,
    StatefulSpout,
    TextSink,
    TextSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
)
from elastic.errors import ConfigError

PROPORTIONS = (120.0, 350.0, 900.0, 250.0, 120.0)
"""Of the mean rates in the five phases (section VI.A)."""

GENERATORS = 2
"""Tasks."""

BOUNDS = tuple(0.001 * 2 ** (n / 4) for n in range(72))
"""Latencies are counted by these bounds, in seconds: from a millisecond to four minutes, each a fifth longer than the one before."""


class Schedule:
    """The mean rate at each time of the transactions' clock.

    Args:
        rate: Transactions per second in the first phase.
        phase: Seconds.
        loop: Begin again after the last phase, for ever.
    """

    def __init__(self, rate: float, phase: float, loop: bool) -> None:
        self.rates = [rate * p / PROPORTIONS[0] for p in PROPORTIONS]
        self.phase = phase
        self.end = float("inf") if loop else len(PROPORTIONS) * phase

    def rate(self, at: float) -> float:
        """Transactions per second at a time; 0 after the end."""
        return self.rates[int(at / self.phase) % len(self.rates)] if 0 <= at < self.end else 0.0


class Input(StatefulSpout):
    """Emits transactions when their time has come, and says of each pane of time that it is over.

    Its state is how far it is in the input, in time and in chance: what it emits is the same wherever it goes on.

    Args:
        lines: The input, without end.
        pane: Seconds.
        flat_out: Do not wait.
        listeners: How many tasks get to know the end of a pane.
    """

    outputs = {"default": Fields(line=str, pane=int, due=float), "over": Fields(pane=int, due=float)}

    def __init__(
        self, lines: TextSpout, schedule: Schedule, pane: float, seed: int, flat_out: bool, listeners: int
    ) -> None:
        self.lines, self.schedule, self.length, self.flat_out = lines, schedule, pane, flat_out
        self.listeners = listeners
        self.chance = random.Random(seed)
        self.began = 0.0  # seconds since 1970; 0.0: not yet
        self.pane = 0
        self.next = self.chance.expovariate(schedule.rate(0.0))  # when the next transaction is due
        self._read: Iterator[str] | None = None

    def prepare(self, context: TopologyContext) -> None:
        if context.parallelism > 1:
            raise ConfigError(f"{context.component!r} has several tasks: each would emit everything.")
        self.lines.context = context
        self.lines.prepare(context)
        if not self.flat_out:
            ends = self.listeners / self.length  # each gets to know the end of each pane
            context.gauge("offered", lambda: self._rate() + ends if self._rate() else 0.0)
            context.gauge("late", lambda: max(0.0, self._clock() - self._event()) if self.began else 0.0)

    def _clock(self) -> float:
        """Now, by the transactions' clock, which goes on whatever happens to the topology."""
        return time.time() - self.began if self.began else 0.0

    def _rate(self) -> float:
        """Transactions per second that are due now."""
        return self.schedule.rate(self._clock())

    def _event(self) -> float:
        """When something is due next: a transaction, or the end of the pane."""
        return min(self.next, (self.pane + 1) * self.length)

    def next_tuple(self) -> float | None:
        self.began = self.began or time.time()
        end = (self.pane + 1) * self.length
        at = min(self.next, end)
        due = self.began + at
        now = time.time()
        if self.flat_out:
            due = now
        elif due > now:
            return due - now
        if self.next < end:
            if self._read is None:
                self._read = iter(self.lines.tuples())
            self.emit(next(self._read), self.pane, due)
            self.next += self.chance.expovariate(self.schedule.rate(self.next))
            if self.next >= self.schedule.end:
                self.next = float("inf")
        else:
            self.emit_to("over", self.pane, due)
            self.pane += 1
            if self.pane * self.length >= self.schedule.end:
                self.exhausted()
        return None

    def get_state(self) -> object:
        return {
            "read": self.lines.get_state(),
            "began": self.began,
            "pane": self.pane,
            "next": self.next,
            "chance": self.chance.getstate(),
        }

    def set_state(self, state: Any) -> None:
        self.lines.set_state(state["read"])
        self.began, self.pane, self.next = state["began"], state["pane"], state["next"]
        self.chance.setstate(state["chance"])
        self._read = None


class Generator(StatefulBolt):
    """A transaction to its patterns.

    What it counts is nothing that the result needs. But with state it moves by the protocol, in which the end of a pane never overtakes
    what it ends; without, a task works for a while in two places.
    """

    outputs = {"default": Fields(pattern=str, pane=int, due=float), "over": Fields(pane=int, due=float)}
    made = KeyedState[str, int](int)

    def __init__(self, items: int, length: int) -> None:
        self.items, self.length = items, length

    def execute(self, tup: Any) -> None:
        assert self.context.source is not None
        if self.context.source.stream == "over":
            self.emit_to("over", tup.pane, tup.due)
            return
        items = sorted(list(dict.fromkeys(tup.line.split()))[: self.items])
        pane, due = tup.pane, tup.due
        patterns = [
            (" ".join(chosen), pane, due)
            for size in range(1, min(self.length, len(items)) + 1)
            for chosen in combinations(items, size)
        ]
        self.made["transactions"] += 1
        self.made["patterns"] += len(patterns)
        self.emit_all(patterns)


class Detector(StatefulBolt):
    """Counts patterns in a sliding window. A pane counts when all generators have said that it is over.

    Args:
        panes: How many make a window.
        more_than: Above this a pattern is frequent.
        ask: The address of a service that is asked about each occurrence, or "".
        compute: Seconds of CPU time that each occurrence takes.
    """

    outputs = {
        "default": Fields(pattern=str, first=int, last=int, most=int, total=int),
        "over": Fields(pane=int, due=float, frequent=int, latencies=list[int]),
    }
    panes = KeyedState[int, dict[str, int]](dict)  # pane -> pattern -> occurrences in it
    window = KeyedState[str, int](int)  # pattern -> occurrences in the panes of the window that are over
    frequent = KeyedState[
        str, tuple[int, int, int]
    ]()  # pattern -> since which pane, the most in a window, all since then
    over = KeyedState[int, int](int)  # pane -> how many generators have said that it is over
    reached = KeyedState[str, int](int)  # "pane": the newest that is over
    latencies = KeyedState[int, int](int)  # number of the bound -> occurrences since the last pane

    def __init__(self, panes: int, more_than: int, ask: str = "", compute: float = 0.0) -> None:
        self.size, self.more_than, self.ask, self.compute = panes, more_than, ask, compute
        self.service: Service | None = None

    def prepare(self, context: TopologyContext) -> None:
        self.generators = len(context.tasks_of("generator"))
        self.service = Service(self.ask) if self.ask else None
        self.patterns_now, self.frequent_now = context.gauge("patterns"), context.gauge("frequent")

    def execute(self, tup: Any) -> None:
        assert self.context.source is not None
        if self.context.source.stream == "over":
            self.over[tup.pane] += 1
            if self.over[tup.pane] == self.generators:
                del self.over[tup.pane]
                self._slide(tup.pane, tup.due)
            return
        if self.compute:
            end = time.thread_time() + self.compute  # its own: what others compute meanwhile does not count
            while time.thread_time() < end:
                pass
        if self.service is None or self.service.watched(tup.pattern):
            counts = self.panes[tup.pane]
            counts[tup.pattern] = counts.get(tup.pattern, 0) + 1
        self.latencies[bisect_left(BOUNDS, time.time() - tup.due)] += 1

    def _slide(self, pane: int, due: float) -> None:
        """A pane comes into the window, and the oldest leaves it."""
        window, frequent = self.window, self.frequent
        came = self.panes.get(pane) or {}
        left = self.panes.pop(pane - self.size, None) or {}
        for pattern, count in came.items():
            window[pattern] += count
        for pattern, count in left.items():
            rest = window[pattern] - count
            if rest:
                window[pattern] = rest
            else:
                del window[pattern]
        for pattern in came.keys() | left.keys():
            count = window.get(pattern, 0)
            known = frequent.get(pattern)
            if count > self.more_than:
                first, most, total = known or (pane, 0, 0)
                frequent[pattern] = first, max(most, count), total + came.get(pattern, 0)
            elif known:
                del frequent[pattern]
                self.emit(pattern, known[0], pane - 1, *known[1:])
        latencies = [0] * (len(BOUNDS) + 1)
        for bound, count in self.latencies.items():
            latencies[bound] = count
        self.latencies.clear()
        self.emit_to("over", pane, due, len(frequent), latencies)
        self.reached["pane"] = pane
        self.patterns_now.set(len(window))
        self.frequent_now.set(len(frequent))

    def finish(self) -> None:
        for pattern, (first, *counts) in self.frequent.items():
            self.emit(pattern, first, self.reached["pane"], *counts)

    def cleanup(self) -> None:
        if self.service is not None:
            self.service.close()


class Reporter(StatefulBolt):
    """Hands on what was found, and measures latency: from a transaction being due to its patterns being counted, and from the end of a pane
    to its result.

    Args:
        path: The file for what is measured, or "": a line of JSON for each pane, with "pane", "due" (its end, seconds since 1970),
            "age" (of its result, seconds), "frequent" (how many patterns), "latencies" (pairs: number of a bound, occurrences).
    """

    outputs = Fields(pattern=str, first=int, last=int, most=int, total=int)
    parts = KeyedState[
        int, tuple[int, int, tuple[int, ...]]
    ]()  # pane -> how many detectors said it is over, and sums

    def __init__(self, path: str) -> None:
        self.path = str(Path(path).expanduser().resolve()) if path else ""

    def prepare(self, context: TopologyContext) -> None:
        self.detectors = len(context.tasks_of("detector"))
        self.found = context.counter("found")
        self.p95 = context.gauge("latency_p95")
        self.age = context.gauge("age")

    def execute(self, tup: Any) -> None:
        assert self.context.source is not None
        if self.context.source.stream != "over":
            self.found.inc()
            self.emit(*tup.values)
            return
        said, frequent, latencies = self.parts.get(tup.pane) or (0, 0, (0,) * len(tup.latencies))
        said, frequent = said + 1, frequent + tup.frequent
        latencies = tuple(a + b for a, b in zip(latencies, tup.latencies, strict=True))
        if said < self.detectors:
            self.parts[tup.pane] = said, frequent, latencies
            return
        self.parts.pop(tup.pane, None)
        now = time.time()
        self.age.set(now - tup.due)
        self.p95.set(quantile(latencies, 0.95))
        if self.path:
            line = {"pane": tup.pane, "due": tup.due, "age": now - tup.due, "frequent": frequent}
            counts = [(bound, count) for bound, count in enumerate(latencies) if count]
            with Path(self.path).open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "latencies": counts}) + "\n")


def quantile(counts: Sequence[int], share: float) -> float:
    """The latency in seconds, rounded up to one of BOUNDS, that `share` of the counted are below; 0.0 when there are none."""
    wanted, seen = share * sum(counts), 0
    for bound, count in zip((*BOUNDS, BOUNDS[-1]), counts, strict=True):
        seen += count
        if count and seen >= wanted:
            return bound
    return 0.0


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options(
        "frequent-patterns",
        __doc__,
        args,
        _more,
        rate="transactions per second in the first phase (default: 120)",
    )
    x = o.extra
    lines = TextSpout(o.input, loop=True)
    if all(Path(p).stat().st_size == 0 for p in lines.paths):
        raise ConfigError(f"{o.input} is empty.", remedy="Give a text that has at least one line.")
    window = x.window or x.phase / 3
    rate = PROPORTIONS[0] if o.rate is None else o.rate
    if not 0.001 <= rate < float("inf"):
        raise ConfigError(f"--rate is {rate:g}.", remedy="Give transactions per second, 0.001 or more.")
    schedule = Schedule(rate, x.phase, o.loop)
    b = TopologyBuilder(o.name, workers=o.workers, report_interval=x.measure)
    b.spout("input", Input(lines, schedule, window / x.panes, x.seed, x.flat_out, GENERATORS))
    b.bolt(
        "generator", Generator(x.items, x.length), tasks=GENERATORS, executors=min(2, o.executors)
    ).shuffle("input").all("input", stream="over")
    b.bolt(
        "detector", Detector(x.panes, x.more_than, x.ask, x.compute), tasks=20, executors=o.executors
    ).fields("generator", "pattern").all("generator", stream="over")
    b.bolt("reporter", Reporter(x.latency)).all_to_one("detector").all_to_one("detector", stream="over")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("reporter")
    return b.build()


def _more(parser: argparse.ArgumentParser) -> None:
    def number(name: str, kind: Any, default: Any, about: str) -> None:
        parser.add_argument(name, type=_positive(kind), default=default, help=f"{about} (default: {default})")

    number("--phase", float, 12.0, "seconds of each of the five phases")
    parser.add_argument(
        "--window", type=_positive(float), help="seconds of the sliding window (default: a third of a phase)"
    )
    number("--panes", int, 8, "into how many parts the window is divided; it slides by one")
    parser.add_argument(
        "--more-than", type=int, default=20, help="occurrences that are not frequent yet (default: 20)"
    )
    number("--items", int, 6, "items of a transaction: its first different words")
    number("--length", int, 3, "items of a pattern at most")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other times (default: 0)")
    parser.add_argument(
        "--flat-out", action="store_true", help="do not wait for the times of the transactions"
    )
    parser.add_argument(
        "--ask", default="", help="HOST:PORT of a service that is asked about each occurrence of a pattern"
    )
    number("--compute", float, 0.0, "seconds of CPU time that each occurrence of a pattern takes")
    number("--measure", float, 1.0, "seconds between two measurements of its load")
    parser.add_argument(
        "--latency", default="", help="append to this file what is measured at the end of each pane"
    )


def _positive(kind: Any) -> Any:
    def parsed(text: str) -> Any:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
        return value

    return parsed
