"""The demonstration, in two acts on one cluster: state moves while it is used, and the system sizes itself.

    python -m examples.demo [--host spark|process] [--store embedded|hazelcast] [--act 1|2|both] [--seconds 30] [--phase 8] [--keep]

It starts a cluster of two nodes in a directory of its own.

*The first act* submits `examples/word_count.py` with three workers, and reads a text at a steady rate. While it runs:

- the executors of `split` and `count` are regrouped within their processes; the pauses are those that the tasks themselves have measured;
- one worker is killed with SIGKILL. What is under way in a killed process is lost: nothing acknowledges tuples yet. So the demonstration
  kills where nothing can be: first the spout is told to rest, and a mark that follows the last tuple through every task says when all of
  them have been worked off; then the worker dies that holds tasks without state only. It is started again, and the spout goes on;
- an executor of `count` moves to another node, with what it has counted so far;
- a node is added, and the one that has just got the executor is drained: all that runs there moves on, and the node ends.

Of each task that moves it says how long the tuples for it were held. At the end the counts are compared with those of a plain loop over
the same text.

*The second act* is the experiment of Elastic Storm (2016): frequent patterns are detected in a load of five phases, once with a fixed
number of executors, once with elasticity. It ends with a figure of executors and latency over time, side by side, and compares the
patterns with those of a reference in one thread. `python -m examples.demo.fivephase` is the same alone, with more options.

The exit code is 0 only if everything is equal. Whatever was started is ended, after Ctrl-C as well (exit code 130).
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import sys
from collections.abc import Sequence
from pathlib import Path

from elastic.cluster.launcher import UpOptions
from elastic.control.client import Client

from .counting import Counting
from .fivephase.experiment import FivePhase, Settings
from .stage import Story, perform, up

NODES, SLOTS = 2, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration; returns the exit code."""
    options, story = _options(argv), Story()
    return perform("demo", lambda home: _acts(options, home, story), story, keep=options.keep)


def _acts(o: argparse.Namespace, home: Path, story: Story) -> bool:
    """All of it; returns whether everything was equal."""
    first = Counting(o.input, o.seconds, o.rate, home, story) if o.act != "2" else None
    second = FivePhase(Settings(o.input, o.phase, "", o.figure), home, story) if o.act != "1" else None
    # What cannot be read is an error before anything is started.
    if first is not None:
        first.prepare()
    if second is not None:
        second.prepare()
    info = up(UpOptions(home=str(home), host=o.host, nodes=NODES, slots=SLOTS, store=o.store), story)
    equal = True
    if first is not None:
        story.say(
            "\nThe first act: words are counted, while tasks move, a worker dies and nodes come and go."
        )
        equal = first.run(info)
    if second is not None:
        story.say(
            "\nThe second act: five phases of load, with a fixed number of executors and with elasticity."
        )
        with Client(info.nimbus) as client:
            equal = second.run(client) and equal
    return equal


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--host", choices=("spark", "process"), default="spark", help="what provides the nodes"
    )
    parser.add_argument(
        "--store",
        choices=("embedded", "hazelcast"),
        default="embedded",
        help="where states are kept in moves",
    )
    parser.add_argument("--act", choices=("1", "2", "both"), default="both", help="(default: both)")
    usual = pydoc_data.topics.__file__
    parser.add_argument("--input", default=usual, help=f"a text file or a folder (default: {usual})")
    first = parser.add_argument_group("first act")
    first.add_argument("--seconds", type=_positive, default=30.0, help="how long it reads (default: 30)")
    first.add_argument("--rate", type=_positive, default=2000.0, help="lines per second (default: 2000)")
    second = parser.add_argument_group("second act")
    second.add_argument("--phase", type=_positive, default=8.0, help="seconds of each phase (default: 8)")
    second.add_argument(
        "--figure", default="fivephase.svg", help="where the figure goes (default: fivephase.svg)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    return parser.parse_args(argv)


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
