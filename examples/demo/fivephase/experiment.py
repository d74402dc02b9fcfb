"""The experiment: the same load twice on one cluster, with executors that stay as they are and with elasticity."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import EnvironmentProblem
from elastic.nimbus.balancing.elastic_lines import read_policy

from ..stage import Story
from . import figure
from .recording import PROPORTIONS, Recording
from .report import goals, table
from .run import EXAMPLES, Plan, run
from .view import View

POLICIES = {
    "waiting": "ds2 --period 1 --confirm-in 2",
    "computing": "ds2 --period 2 --sample 0.5 --confirm-in 2",
}
"""It finds the right numbers in one decision, and phases last seconds here, not a quarter of an hour as in the paper: so it looks every
second, or two where executors need a process that has to be started; and twice before there are fewer, which may take its time.
`thresholds`, the paper's, needs several decisions for the third phase."""
DELAY = 0.008
COMPUTE = 0.001
MEASURE = 0.25
"""Seconds between two measurements: some of them in a period of the policy."""


@dataclass(frozen=True)
class Shape:
    """A kind of load.

    Attributes:
        options: Of `frequent_patterns.py`.
        each: Seconds that a pattern takes.
        highest: How many detectors the third phase would keep busy all the time.
        workers: To begin with, and all the time without elasticity.
    """

    options: tuple[str, ...]
    each: float
    highest: float
    workers: int


PANES = ("--panes", "4")
"""Of a window. At the end of each everybody is told of it: so many tuples beside the patterns, whatever the load."""
SHAPES = {
    # Five detectors, as in the paper's table I, are enough for all phases but the third. Of twenty, the busiest has half more to do than
    # the mean, because some words are in every other line. Each step up is more than what was right before it can do, whichever lines it
    # meets: with 6.5 the three that are right for the first phase could be at 0.7 of what they can do in the second.
    "waiting": Shape(("--items", "4", "--length", "3", *PANES), DELAY, 7.5, 2),
    # Five threads of one process do three quarters of that: they wait for each other's lock. Two cores are half full with it.
    "computing": Shape(("--items", "5", "--length", "3", *PANES, "--compute", str(COMPUTE)), COMPUTE, 1.0, 1),
}
LINES = 2000
"""Of the input at least, by which is known how many patterns a transaction has."""


@dataclass(frozen=True)
class Settings:
    """What is done.

    Attributes:
        input: A text or transaction file, or a folder.
        phase: Seconds of each phase.
        policy: As `elastic policy set` takes it; "": as suits the load.
        figure: Where the figure goes.
        load: "waiting" or "computing".
        rate: Transactions per second in the first phase; 0.0: as suits the load.
        record: Where everything that was seen goes, as JSON; "": nowhere.
    """

    input: str
    phase: float
    policy: str
    figure: str
    load: str = "waiting"
    rate: float = 0.0
    record: str = ""


@contextlib.contextmanager
def service() -> Iterator[str]:
    """The service that detectors ask, as long as the body lasts; gives its address."""
    program = [sys.executable, str(EXAMPLES / "pattern_service.py"), "--delay", str(DELAY)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise EnvironmentProblem("The service that detectors ask could not be started.")
            yield address
        finally:
            process.stdin.close()  # it ends with its input


def rate(source: str, shape: Shape, phase: float) -> float:
    """Transactions per second of the first phase, so that the third has as much to do as the load says.

    Args:
        phase: Seconds.
    """
    words = dict(zip(shape.options[::2], shape.options[1::2], strict=True))
    items, length = int(words["--items"]), int(words["--length"])
    reference: Any = import_module("examples.frequent_patterns_reference")  # an example is a file by itself
    first, last, found = 0, LINES, 1.0
    for _ in range(3):  # which lines are read in the third phase depends on the rate
        read = islice(reference.lines(Path(source)), first, last)
        counts = [len(reference.patterns(line, items, length)) for line in read]
        each = shape.each * max(1.0, sum(counts) / len(counts))
        found = shape.highest / each * PROPORTIONS[0] / PROPORTIONS[2]
        first = int(found * phase * sum(PROPORTIONS[:2]) / PROPORTIONS[0])
        last = first + max(1, int(found * phase * PROPORTIONS[2] / PROPORTIONS[0]))
    return round(found, 1)


class FivePhase:
    """See the module.

    Args:
        home: A directory of its own, for everything.
    """

    def __init__(self, settings: Settings, home: Path, story: Story) -> None:
        self.settings, self.home, self.story = settings, home, story
        self.rate = settings.rate
        self.policy = settings.policy or POLICIES[settings.load]
        line = read_policy(self.policy)
        self.period = line.manager.period if line is not None else 0.0

    def prepare(self) -> None:
        """Find out whether the input can be read, and how much of it makes the load, before a cluster is started."""
        s = self.settings
        load(str(EXAMPLES / "frequent_patterns.py"), ["--input", s.input])
        self.rate = self.rate or rate(s.input, SHAPES[s.load], s.phase)
        rates = ", ".join(f"{self.rate * p / PROPORTIONS[0]:,.0f}" for p in PROPORTIONS)
        self.story.say(
            f"Load: {s.load}. Phases of {s.phase:g} s with {rates} transactions/s on average, from {s.input}."
        )

    def run(self, client: Client) -> bool:
        """Everything, on a cluster; returns whether both results are equal to the reference's."""
        with service() if self.settings.load == "waiting" else contextlib.nullcontext("") as address:
            plan = self._plan(address)
            fixed = self._run(client, plan, "fixed", "Not elastic", "off")
            elastic = self._run(client, plan, "elastic", "Elastic", self.policy)
            client.set_elasticity(policy="off")
        self._tell((fixed, elastic))
        return fixed.equal and elastic.equal

    def _plan(self, address: str) -> Plan:
        s = self.settings
        shape = SHAPES[s.load]
        given = ("--input", s.input, "--rate", str(self.rate), "--phase", str(s.phase), *shape.options[:6])
        more = ("--executors", "5", "--workers", str(shape.workers), "--measure", str(MEASURE))
        ask = ("--ask", address) if address else ()
        return Plan(given, (*more, *shape.options[6:], *ask), s.phase)

    def _run(self, client: Client, plan: Plan, name: str, title: str, policy: str) -> Recording:
        self.story.say()
        self.story.say(f"{title}: {'the executors stay as they are' if policy == 'off' else policy}.")
        return run(client, plan, name, title, policy, self.home, View(self.story))

    def _tell(self, runs: Sequence[Recording]) -> None:
        say = self.story.say
        for recording in runs:
            say()
            for line in table(recording, self.rate):
                say(line)
        say()
        for line in figure.text(runs):
            say(line)
        say()
        for line in goals(runs[0], runs[1], self.period):
            say(line)
        path = Path(self.settings.figure)
        path.write_text(figure.svg(runs, self.rate), encoding="utf-8")
        say(f"The figure: {path.resolve()}")
        if self.settings.record:
            told = json.dumps([r.told() for r in runs])
            Path(self.settings.record).write_text(told, encoding="utf-8")
