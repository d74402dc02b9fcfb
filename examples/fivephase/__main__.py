"""The experiment of Elastic Storm (2016), section VI: five phases of load, once with a fixed number of executors, once with elasticity.

    python -m examples.fivephase [--phase 12] [--load waiting|computing] [--policy "thresholds --period 2"] [--input FILE] [--host spark]

It starts a cluster of two nodes in a directory of its own, and runs `examples/frequent_patterns.py` on it twice, with the same input at
the same times: five phases in the proportions 120, 350, 900, 250, 120. The first time the executors are those of the paper's table I and
stay; the second time the policy changes them.

There are two kinds of load. *Waiting*: the detector asks a local service about each pattern, which takes 10 ms; more executors help on any
machine. *Computing*: only more processes help, up to the cores; it is first measured what one process can do here, and the third phase
has a quarter more than that. --rate sets the rate of the first phase instead.

At the end: a table of the settled second half of each phase, a figure (executors and latency over time, side by side) in --figure, and
whether the patterns of both are those of a reference in one thread. The exit code is 0 only if they are. Whatever was started is ended,
after Ctrl-C as well (exit code 130).
"""

from __future__ import annotations

import argparse
import contextlib
import pydoc_data.topics
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from elastic import LocalCluster
from elastic.cluster.launcher import UpOptions, start_background, stop
from elastic.control.cli.loading import load
from elastic.control.client import Client
from elastic.errors import ElasticError, EnvironmentProblem, NotFound

from . import figure
from .recording import PROPORTIONS, Recording
from .report import table
from .run import EXAMPLES, Plan, run
from .view import View

NODES, SLOTS = 2, 2
DELAY = 0.01
WAITING = 15.0
"""Transactions per second in the first phase. With 10 ms for each of its patterns, the third phase needs more than five detectors."""
OVER = 1.25
"""How much of what one process can compute the third phase has."""
SHAPES = {"waiting": ("--items", "5", "--length", "2"), "computing": ("--items", "6", "--length", "3")}


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt once, and not any more when what was started is being ended."""

    def __init__(self) -> None:
        self.caught = False
        self.ending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        first, self.caught = not self.caught, True
        if first and not self.ending:
            raise KeyboardInterrupt


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


def capacity(source: str, home: Path, view: View) -> float:
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
    view.say(f"One process works off {found:,.0f} transactions/s here.")
    return found


class FivePhase:
    """The experiment.

    Args:
        home: A directory of its own, for everything.
    """

    def __init__(self, options: argparse.Namespace, home: Path, view: View) -> None:
        self.options, self.home, self.view = options, home, view
        self.rate = 0.0

    def run(self) -> bool:
        """Everything; returns whether both results are equal to the reference's."""
        o = self.options
        load(
            str(EXAMPLES / "frequent_patterns.py"), ["--input", o.input]
        )  # an input that cannot be read, before anything is started
        with service() if o.load == "waiting" else contextlib.nullcontext("") as address:
            plan = self._plan(address)
            options = UpOptions(home=str(self.home), host=o.host, nodes=NODES, slots=SLOTS, cores=o.cores)
            self.view.say(f"Starting a cluster: ZooKeeper, Nimbus, {NODES} nodes ({o.host}).")
            info = start_background(options, lambda text: None)
            with Client(info.nimbus) as client:
                fixed = self._run(client, plan, "fixed", "Not elastic", "off")
                elastic = self._run(client, plan, "elastic", "Elastic", o.policy)
        self._tell((fixed, elastic))
        return fixed.equal and elastic.equal

    def _plan(self, address: str) -> Plan:
        o = self.options
        if o.rate:
            self.rate = o.rate
        elif o.load == "waiting":
            self.rate = WAITING
        else:
            highest = OVER * capacity(o.input, self.home, self.view)
            self.rate = round(highest * PROPORTIONS[0] / max(PROPORTIONS), 1)
        shape = SHAPES[o.load]
        given = ("--input", o.input, "--rate", str(self.rate), "--phase", str(o.phase), *shape)
        more = ("--executors", "5", "--workers", "1" if o.load == "computing" else "2")
        rates = ", ".join(f"{self.rate * p / PROPORTIONS[0]:,.0f}" for p in PROPORTIONS)
        self.view.say(
            f"Load: {o.load}. Phases of {o.phase:g} s with {rates} transactions/s on average, from {o.input}."
        )
        return Plan(given, (*more, *(("--ask", address) if address else ())), o.phase)

    def _run(self, client: Client, plan: Plan, name: str, title: str, policy: str) -> Recording:
        self.view.say()
        self.view.say(f"{title}: {'the executors stay as they are' if policy == 'off' else policy}.")
        return run(client, plan, name, title, policy, self.home, self.view)

    def _tell(self, runs: Sequence[Recording]) -> None:
        for recording in runs:
            self.view.say()
            for line in table(recording, self.rate):
                self.view.say(line)
        self.view.say()
        for line in figure.text(runs):
            self.view.say(line)
        path = Path(self.options.figure)
        path.write_text(figure.svg(runs, self.rate), encoding="utf-8")
        self.view.say(f"The figure: {path.resolve()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment; returns the exit code."""
    options = _options(argv)
    view, signals = View(), Signals()
    home = Path(tempfile.mkdtemp(prefix="elastic-fivephase-"))
    code = 1
    try:
        code = 0 if FivePhase(options, home, view).run() else 1
    except KeyboardInterrupt:
        view.say("\nInterrupted.")
        code = 130
    except ElasticError as error:
        view.say(f"\nerror: {error}")
        code = error.exit_code
    finally:
        signals.ending = True
        try:
            with contextlib.suppress(NotFound):
                stop(home, "default", purge=True)
            shutil.rmtree(home, ignore_errors=True)
        except ElasticError as error:
            view.say(f"error: {error}\nIts files are in {home}.")
            code = code or 1
    return 130 if signals.caught else code


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.fivephase",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--phase", type=_positive, default=12.0, help="seconds of each phase (default: 12)")
    parser.add_argument(
        "--rate", type=_positive, help="transactions per second in the first phase (default: see above)"
    )
    parser.add_argument(
        "--load", choices=("waiting", "computing"), default="waiting", help="(default: waiting)"
    )
    policy = "thresholds --period 2"
    parser.add_argument("--policy", default=policy, help=f"as for `elastic policy set` (default: {policy})")
    parser.add_argument(
        "--host", choices=("process", "spark"), default="process", help="what provides the nodes"
    )
    usual = pydoc_data.topics.__file__
    parser.add_argument(
        "--input", default=usual, help=f"a text or transaction file, or a folder (default: {usual})"
    )
    parser.add_argument(
        "--cores",
        type=float,
        default=0.0,
        help="as for `elastic up`: CPUs of a node (default: those of the machine)",
    )
    parser.add_argument(
        "--figure", default="fivephase.svg", help="where the figure goes (default: fivephase.svg)"
    )
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
