"""The experiment of Elastic Storm (2016), section VI: five phases of load, once with a fixed number of executors, once with elasticity.

    python -m examples.demo.fivephase [--phase 12] [--load waiting|computing] [--policy "ds2 --period 2"]

It starts a cluster of two nodes in a directory of its own, and runs `examples/frequent_patterns.py` on it twice, with the same input at
the same times: five phases in the proportions 120, 350, 900, 250, 120. The first time the executors are those of the paper's table I and
stay; the second time the policy changes them.

There are two kinds of load. *Waiting*: the detector asks a local service about each pattern, which takes 8 ms; more executors help on any
machine. *Computing*: each pattern takes a millisecond of CPU time; only more processes help, up to the cores. The rate is such that the
third phase would keep 6.5 detectors busy all the time, or one when they compute; --rate sets that of the first phase instead.

At the end: a table of the settled second half of each phase, a figure (executors and latency over time, side by side) in --figure, and
whether the patterns of both are those of a reference in one thread. The exit code is 0 only if they are. Whatever was started is ended,
after Ctrl-C as well (exit code 130).
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import sys
from collections.abc import Sequence
from pathlib import Path

from elastic.cluster.launcher import UpOptions
from elastic.control.client import Client

from ..stage import Story, perform, up
from .experiment import POLICIES, FivePhase, Settings

NODES, SLOTS = 2, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment; returns the exit code."""
    o, story = _options(argv), Story()

    def body(home: Path) -> bool:
        settings = Settings(o.input, o.phase, o.policy, o.figure, o.load, o.rate or 0.0, o.record)
        experiment = FivePhase(settings, home, story)
        experiment.prepare()
        info = up(UpOptions(home=str(home), host=o.host, nodes=NODES, slots=SLOTS, cores=o.cores), story)
        with Client(info.nimbus) as client:
            return experiment.run(client)

    return perform("fivephase", body, story)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo.fivephase",
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
    usual = ", ".join(f"{policy} when {load}" for load, policy in POLICIES.items())
    parser.add_argument("--policy", default="", help=f"as for `elastic policy set` (default: {usual})")
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
    parser.add_argument("--record", default="", help="write everything that was seen to this file, as JSON")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
