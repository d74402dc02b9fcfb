"""The options that all examples share."""

from __future__ import annotations

import argparse
import pydoc_data.topics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from elastic import TextSpout

DEFAULT_INPUT = pydoc_data.topics.__file__
"""A text that every Python installation has: the topics of its built-in help."""


@dataclass(frozen=True)
class Options:
    """What was chosen.

    Attributes:
        input: A file or folder; "" for none, where the example makes its own.
        rate: Lines per second, or None for as fast as it goes.
        output: The file for the result, or "" for none.
        extra: Options of the example itself.
    """

    name: str
    input: str
    loop: bool
    rate: float | None
    output: str
    workers: int
    executors: int
    extra: argparse.Namespace = field(default_factory=argparse.Namespace)

    def lines(self) -> TextSpout:
        """A spout of the input's lines."""
        return TextSpout(self.input, loop=self.loop)


def options(
    name: str,
    about: str | None,
    args: Sequence[str],
    more: Callable[[argparse.ArgumentParser], object] | None = None,
    *,
    generated: str = "",
    rate: str = "lines per second (default: as fast as it goes)",
) -> Options:
    """Parse the words after the example's file on the command line.

    Args:
        name: The topology's name unless another one is chosen.
        about: Shown by --help.
        more: Adds options of the example itself.
        generated: What the example makes by itself when it gets no input; "" for one that then reads a text.
        rate: What --rate means.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = generated or "the text of Python's help topics"
    parser.add_argument(
        "--input",
        default="" if generated else DEFAULT_INPUT,
        help=f"a text or log file, or a folder of them (default: {usual})",
    )
    parser.add_argument("--output", default="", help="write the result to this file: sorted, tab-separated")
    parser.add_argument("--rate", type=float, help=rate)
    once = parser.add_mutually_exclusive_group()
    once.add_argument("--loop", action="store_true", help="begin again at the end of the input, for ever")
    once.add_argument("--once", action="store_true", help="end with the input (this is the default)")
    parser.add_argument("--name", default=name, help=f"the topology's name (default: {name})")
    parser.add_argument("--workers", type=int, default=1, help="worker processes on a cluster (default: 1)")
    parser.add_argument("--executors", type=int, default=1, help="threads for each bolt (default: 1)")
    if more is not None:
        more(parser)
    o = parser.parse_args(list(args))
    return Options(o.name, o.input, o.loop, o.rate, o.output, o.workers, o.executors, o)
