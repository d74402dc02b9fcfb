"""The same as topologies of elastic: per tuple, and on record batches. Also `elastic submit benchmarks/words/topologies.py -- ...`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, Topology, TopologyBuilder, TopologyContext

if TYPE_CHECKING:
    import pyarrow as pa

LINES_A_BATCH = 8192


def note(directory: str, context: TopologyContext, what: dict[str, Any]) -> None:
    """Leave what a task has to say in a file; complete or not at all."""
    path = Path(directory) / f"{context.component}-{context.index}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(what))
    partial.replace(path)


class Lines(Spout):
    """The lines of the text, from memory; each task has its share."""

    outputs = Fields(line=str)

    def __init__(self, input: str | None, copies: int, directory: str) -> None:
        self.input, self.copies, self.directory = input, copies, directory
        self.text: list[str] = []

    def prepare(self, context: TopologyContext) -> None:
        from benchmarks.words.text import lines

        self.text = lines(self.input)[context.index :: context.parallelism]

    def tuples(self) -> Iterator[str]:
        note(self.directory, self.context, {"started": time.monotonic()})
        for _ in range(self.copies):
            yield from self.text


class Split(Bolt):
    outputs = Fields(word=str)

    def execute(self, tup: Any) -> None:
        for word in tup.line.split():
            self.emit(word)


class Count(StatefulBolt):
    counts: KeyedState[str, int] = KeyedState(int)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any) -> None:
        self.counts[tup.word] += 1

    def finish(self) -> None:
        note(self.directory, self.context, {"ended": time.monotonic(), "counts": dict(self.counts)})


class LineBatches(Spout):
    """The same lines as record batches in memory."""

    outputs = Fields(line=str)

    def __init__(self, input: str | None, copies: int, directory: str) -> None:
        self.input, self.left, self.directory = input, copies, directory
        self.batches: list[pa.RecordBatch] = []
        self.at = 0

    def prepare(self, context: TopologyContext) -> None:
        from benchmarks.words.arrow import columns
        from benchmarks.words.text import lines

        self.batches = columns(lines(self.input)[context.index :: context.parallelism])
        self.left = self.left * len(self.batches)

    def next_batch(self) -> None:
        if self.at == 0:
            note(self.directory, self.context, {"started": time.monotonic()})
        if self.at == self.left:
            self.exhausted()
            return
        self.emit_batch(self.batches[self.at % len(self.batches)])
        self.at += 1


class SplitBatches(Bolt):
    outputs = Fields(word=str)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        from benchmarks.words.kernels import split_column

        self.emit_batch(pa.record_batch([split_column(batch.column(0))], names=["word"]))


class CountBatches(StatefulBolt):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: TopologyContext) -> None:
        from benchmarks.words.kernels import ColumnCounts

        self.counts: Any = ColumnCounts()

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        self.counts.add(batch.column(0))

    def finish(self) -> None:
        note(self.directory, self.context, {"ended": time.monotonic(), "counts": self.counts.result()})

    def get_state(self) -> object:
        return self.counts

    def set_state(self, state: Any) -> None:
        self.counts = state


def build(batches: bool, input: str | None, copies: int, processes: int, directory: str) -> Topology:
    """The topology, with one task of each component for each process.

    Args:
        batches: On the batch API.
        input: The text file, or None.
        copies: How often the text is gone through.
        processes: Workers.
        directory: Where its tasks write when they started, and what they counted.
    """
    b = TopologyBuilder("words", workers=processes)
    if batches:
        b.spout("lines", LineBatches(input, copies, directory), tasks=processes, executors=processes)
        split = b.bolt("split", SplitBatches(), tasks=processes, executors=processes)
        count = b.bolt("count", CountBatches(directory), tasks=processes, executors=processes)
    else:
        b.spout("lines", Lines(input, copies, directory), tasks=processes, executors=processes)
        split = b.bolt("split", Split(), tasks=processes, executors=processes)
        count = b.bolt("count", Count(directory), tasks=processes, executors=processes)
    split.local_or_shuffle("lines")
    count.fields("split", "word")
    return b.build()


def collected(directory: str) -> tuple[dict[str, int], float]:
    """What the tasks wrote: all counts, and the seconds from the first start to the last end."""
    counts: dict[str, int] = {}
    started, ended = [], []
    for path in sorted(Path(directory).glob("*.json")):
        what = json.loads(path.read_text())
        counts.update(what.get("counts", {}))
        started += [what["started"]] if "started" in what else []
        ended += [what["ended"]] if "ended" in what else []
    return counts, max(ended) - min(started)
