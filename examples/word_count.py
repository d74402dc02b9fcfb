"""Word count: the words of a text, each with how often it stands there.

    elastic run examples/word_count.py --input a.txt --output counts.tsv
    elastic submit examples/word_count.py --input a.txt --output counts.tsv --workers 2

A word is what `str.split()` gives. The output has a line for each word: the word, a tab, its count; sorted by the word's code points.
The same by standard tools, for a text with plain spaces:

    tr -s '[:space:]' '\\n' < a.txt | grep . | LC_ALL=C sort | uniq -c
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from options import Options, options

from elastic import Bolt, Fields, KeyedState, StatefulBolt, TextSink, Topology, TopologyBuilder


class Split(Bolt):
    """A line to its words."""

    outputs = Fields(word=str)

    def execute(self, tup: Any) -> None:
        self.emit_all(tup.line.split())


class Count(StatefulBolt):
    """Counts words; says the counts when all input is worked off."""

    outputs = Fields(word=str, count=int)
    counts = KeyedState[str, int](int)

    def execute(self, tup: Any) -> None:
        self.counts[tup.word] += 1

    def finish(self) -> None:
        for word, count in self.counts.items():
            self.emit(word, count)


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("word-count", __doc__, args)
    b = TopologyBuilder(o.name, workers=o.workers)
    b.spout("lines", o.lines(), rate=o.rate)
    b.bolt("split", Split(), tasks=8, executors=o.executors).shuffle("lines")
    b.bolt("count", Count(), tasks=16, executors=o.executors).fields("split", "word")
    if o.output:
        b.bolt("out", TextSink(o.output)).all_to_one("count")
    return b.build()
