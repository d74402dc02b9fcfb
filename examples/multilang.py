r"""Word count whose lines are split by a process in another language, over Storm's multilang protocol.

    elastic run examples/multilang.py --input a.txt --output counts.tsv
    elastic run examples/multilang.py --language node
    elastic submit examples/multilang.py --loop --workers 2 --executors 2

The scripts are in `examples/resources`, and go along to wherever the tasks run. That in Python needs `python3` there,
that in JavaScript needs Node.js on each node. The same by standard tools:

    tr -s '[:space:]' '\n' < a.txt | grep . | LC_ALL=C sort | uniq -c | awk '{ print $2 "\t" $1 }' | LC_ALL=C sort
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from options import Options, options

from elastic import CountBy, Fields, ShellBolt, TextSink, Topology, TopologyBuilder

COMMANDS = {"python": ["python3", "split.py"], "node": ["node", "split.js"]}
RESOURCES = Path(__file__).parent / "resources"


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", choices=sorted(COMMANDS), default="python", help="what splits lines (default: python)"
    )


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("multilang", __doc__, args, _more)
    b = TopologyBuilder(o.name, workers=o.workers)
    b.spout("lines", o.lines(), rate=o.rate)
    split = ShellBolt(COMMANDS[o.extra.language], Fields(word=str), files=RESOURCES)
    b.bolt("split", split, tasks=2, executors=min(o.executors, 2)).shuffle("lines")
    b.bolt("count", CountBy("word"), tasks=8, executors=o.executors).fields("split", "word")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("count")
    return b.build()
