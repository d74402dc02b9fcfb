r"""Words of a flow: how often each word stands in each minute of a text that is read at a line a second, and its share of that minute.

    elastic run examples/flow_words.py --input a.txt --output words.tsv
    elastic submit examples/flow_words.py --rate 100 --workers 2 --executors 2

The time of a word is the number of its line, from 0, as in word_windows.py; here all is written down as streams. The words are counted
twice, each by itself and all together, and a join puts both counts of a minute together. The output has a line for each word in each
window of --window seconds: its beginning, the word, how often, and how many in a thousand of the window's words that is; sorted. The
same by standard tools, for a text with plain spaces:

    tr -d '\r' < a.txt | LC_ALL=C awk '
        { for (i = 1; i <= NF; i++) { at = int((NR - 1) / 60) * 60; n[at "\t" $i]++; all[at]++ } }
        END { for (key in n) { split(key, of, "\t"); print key "\t" n[key] "\t" int(1000 * n[key] / all[of[1]]) } }' | LC_ALL=C sort
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from options import Options, options
from rolling_sort import NumberedLines

from elastic import Flow, TextSink, Tumbling
from elastic.flow import Joined, Stream, WindowResult


class Word(NamedTuple):
    """A word, with the number of its line."""

    at: int
    text: str


Count = WindowResult[Any, int]


def words_of(line: Any) -> list[Word]:
    """A line to its words."""
    return [Word(line.number, text) for text in line.message.split()]


def beginning(count: Count) -> float:
    """When the window of a count begins."""
    return count.window.start


def row(both: Joined[float, Count, Count]) -> tuple[int, str, int, int]:
    """A line of the output, of the counts of a word and of all."""
    one, every = both.left, both.right
    return int(both.key), one.key, one.value, 1000 * one.value // every.value


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--window", type=int, default=60, help="seconds of a window (default: 60)")


def topology(args: Sequence[str] = ()) -> Flow:
    """The topology; `args` are the words after the file on the command line."""
    o: Options = options("flow-words", __doc__, args, _more)
    windows = Tumbling(o.extra.window)
    flow = Flow(o.name, workers=o.workers)
    lines = flow.source("lines", NumberedLines(o.input, loop=o.loop), rate=o.rate)
    words = lines.flat_map(words_of, name="words", tasks=4, executors=o.executors)
    # The text has an end, so whoever is behind is waited for, however long it has been silent.
    by_word = words.key_by("text").window(windows, time="at", idle=math.inf)
    by_window = words.key_by(lambda word: None).window(windows, time="at", idle=math.inf)
    counts: Stream[WindowResult[str, int]] = by_word.count(name="count", tasks=8, executors=o.executors)
    totals = by_window.count(name="total", tasks=1)
    shares = counts.key_by(beginning).join(
        totals.key_by(beginning),
        within=0,
        time=beginning,
        idle=math.inf,
        name="join",
        executors=o.executors,
    )
    rows: Stream[tuple[int, str, int, int]] = shares.map(row)
    if o.output:
        rows.sink(TextSink(o.output), fields=("start", "word", "count", "permille"), name="out")
    return flow
