"""The experiment: the same load twice on one cluster, with executors that stay as they are and with elasticity."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic import LocalCluster
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import EnvironmentProblem

from ..stage import Story
from . import figure
from .recording import PROPORTIONS, Recording
from .report import table
from .run import EXAMPLES, Plan, run
from .view import View

POLICY = "thresholds --scale-in 0.24 --period 1 --sample 1 --cooldown 0"
"""Phases last seconds, not a quarter of an hour as in the paper: it looks every second, and again as soon as its change is measured.
The lower threshold is as high as the other one allows, because of twenty executors one always happens to be a little busier."""
DELAY = 0.01
WAITING = 8.0
"""Transactions per second in the first phase. With 10 ms for each of its patterns, five detectors are enough for all phases but the third;
in that, twenty are used to a half, and the one with the most frequent patterns to two thirds."""
OVER = 1.25
"""How much of what one process can compute the third phase has."""
SHAPES = {"waiting": ("--items", "5", "--length", "3"), "computing": ("--items", "6", "--length", "3")}


@dataclass(frozen=True)
class Settings:
    """What is done.

    Attributes:
        input: A text or transaction file, or a folder.
        phase: Seconds of each phase.
        policy: As `elastic policy set` takes it.
        figure: Where the figure goes.
        load: "waiting" or "computing".
        rate: Transactions per second in the first phase; 0.0: as suits the load.
    """

    input: str
    phase: float
    policy: str
    figure: str
    load: str = "waiting"
    rate: float = 0.0


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


def capacity(source: str, home: Path, story: Story) -> float:
    """Transactions per second that one process works off here, when it computes."""
    given = [
        "--input",
        source,
        *SHAPES["computing"],
        "--phase",
        "1",
        "--rate",
        "2000",
        "--flat-out",
        "--executors",
        "5",
    ]
    topology = load(
        str(EXAMPLES / "frequent_patterns.py"), [*given, "--output", str(home / "capacity.tsv")]
    ).topology
    began = time.monotonic()
    with LocalCluster() as cluster:
        done = cluster.submit(topology).wait(timeout=300)
        found = done.metrics()["input"]["executed"] / (time.monotonic() - began)
    story.say(f"One process works off {found:,.0f} transactions/s here.")
    return found


class FivePhase:
    """See the module.

    Args:
        home: A directory of its own, for everything.
    """

    def __init__(self, settings: Settings, home: Path, story: Story) -> None:
        self.settings, self.home, self.story = settings, home, story
        self.rate = settings.rate

    def prepare(self) -> None:
        """Find out whether the input can be read, and what this machine can do, before a cluster is started."""
        s = self.settings
        load(str(EXAMPLES / "frequent_patterns.py"), ["--input", s.input])
        if not self.rate:
            self.rate = WAITING
            if s.load == "computing":
                highest = OVER * capacity(s.input, self.home, self.story)
                self.rate = round(highest * PROPORTIONS[0] / max(PROPORTIONS), 1)
        rates = ", ".join(f"{self.rate * p / PROPORTIONS[0]:,.0f}" for p in PROPORTIONS)
        self.story.say(
            f"Load: {s.load}. Phases of {s.phase:g} s with {rates} transactions/s on average, from {s.input}."
        )

    def run(self, client: Client) -> bool:
        """Everything, on a cluster; returns whether both results are equal to the reference's."""
        with service() if self.settings.load == "waiting" else contextlib.nullcontext("") as address:
            plan = self._plan(address)
            fixed = self._run(client, plan, "fixed", "Not elastic", "off")
            elastic = self._run(client, plan, "elastic", "Elastic", self.settings.policy)
            client.set_elasticity(policy="off")
        self._tell((fixed, elastic))
        return fixed.equal and elastic.equal

    def _plan(self, address: str) -> Plan:
        s = self.settings
        shape = SHAPES[s.load]
        given = ("--input", s.input, "--rate", str(self.rate), "--phase", str(s.phase), *shape)
        more = ("--executors", "5", "--workers", "1" if s.load == "computing" else "2")
        return Plan(given, (*more, *(("--ask", address) if address else ())), s.phase)

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
        path = Path(self.settings.figure)
        path.write_text(figure.svg(runs, self.rate), encoding="utf-8")
        say(f"The figure: {path.resolve()}")
