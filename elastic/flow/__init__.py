"""A functional way to say what a topology is: streams, and what is done with each of their elements.

    from elastic.flow import Flow

    flow = Flow("word-count")
    words = flow.source("lines", TextSpout("a.txt")).flat_map(str.split, name="words")
    words.key_by(str.lower).count(name="count", final=True).sink(TextSink("counts.tsv"), fields=("word", "count"))

What comes of it is an ordinary topology: its components are bolts of `elastic.api`, and nothing below this package knows of flows.
"""

from __future__ import annotations

from elastic.flow.flow import Flow
from elastic.flow.joins import Joined
from elastic.flow.keyed import Pair
from elastic.flow.sources import Items
from elastic.flow.stream import KeyedStream, Stream, WindowedStream
from elastic.flow.windows import WindowResult

__all__ = ["Flow", "Items", "Joined", "KeyedStream", "Pair", "Stream", "WindowResult", "WindowedStream"]
