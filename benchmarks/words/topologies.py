"""The same as topologies of elastic: per tuple, and on record batches.

Every task says that it is ready by a file, and the spouts wait for the file that says go: start-up is not measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, Topology, TopologyBuilder, TopologyContext

if TYPE_CHECKING:
    import pyarrow as pa

PATIENCE = 60.0


def note(directory: str, context: TopologyContext, kind: str, what: dict[str, Any]) -> None:
    """Leave what a task has to say in a file; complete or not at all."""
    path = Path(directory) / f"{context.component}-{context.index}.{kind}"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(what))
    partial.replace(path)


def ready(directory: str, context: TopologyContext) -> None:
    """Say that a task is ready."""
    note(directory, context, "ready", {})


def go(directory: str, context: TopologyContext) -> None:
    """Wait until all tasks are ready, and say when that was."""
    give_up = time.monotonic() + PATIENCE
    while not (Path(directory) / "go").exists():
        if time.monotonic() > give_up:
            raise TimeoutError(f"Nobody said go within {PATIENCE:g} s.")
        time.sleep(0.02)
    note(directory, context, "started", {"started": time.monotonic()})


class Lines(Spout):
    """The lines of the text, from memory; each task has its share."""

    outputs = Fields(line=str)

    def __init__(self, input: str | None, copies: int, directory: str) -> None:
        self.input, self.copies, self.directory = input, copies, directory
        self.text: list[str] = []

    def prepare(self, context: TopologyContext) -> None:
        from benchmarks.words.text import lines

        self.text = lines(self.input)[context.index :: context.parallelism]
        ready(self.directory, context)

    def tuples(self) -> Iterator[str]:
        go(self.directory, self.context)
        for _ in range(self.copies):
            yield from self.text


class Split(Bolt):
    outputs = Fields(word=str)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: TopologyContext) -> None:
        ready(self.directory, context)

    def execute(self, tup: Any) -> None:
        self.emit_all(tup.line.split())


class Count(StatefulBolt):
    counts: KeyedState[str, int] = KeyedState(int)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: TopologyContext) -> None:
        ready(self.directory, context)

    def execute(self, tup: Any) -> None:
        self.counts[tup.word] += 1

    def finish(self) -> None:
        note(self.directory, self.context, "ended", {"ended": time.monotonic(), "counts": dict(self.counts)})


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
        ready(self.directory, context)

    def next_batch(self) -> None:
        if self.at == 0:
            go(self.directory, self.context)
        if self.at == self.left:
            self.exhausted()
            return
        self.emit_batch(self.batches[self.at % len(self.batches)])
        self.at += 1


class SplitBatches(Bolt):
    outputs = Fields(word=str)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: TopologyContext) -> None:
        from benchmarks.words import kernels  # noqa: F401 - loads Arrow before the time is taken

        ready(self.directory, context)

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
        ready(self.directory, context)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        self.counts.add(batch.column(0))

    def finish(self) -> None:
        note(
            self.directory, self.context, "ended", {"ended": time.monotonic(), "counts": self.counts.result()}
        )

    def get_state(self) -> object:
        return self.counts

    def set_state(self, state: Any) -> None:
        self.counts = state


def build(
    batches: bool, input: str | None, copies: int, processes: int, hashed: bool, directory: str
) -> Topology:
    """The topology.

    Args:
        batches: On the batch API.
        input: The text file, or None.
        copies: How often the text is gone through.
        processes: Workers.
        hashed: With as many tasks of each component as workers, words going to the counter that their hash says;
            otherwise one task of each.
        directory: Where its tasks write when they started, and what they counted.
    """
    b = TopologyBuilder("words", workers=processes)
    tasks = processes if hashed else 1
    spout: Spout = LineBatches(input, copies, directory) if batches else Lines(input, copies, directory)
    b.spout("lines", spout, tasks=tasks, executors=tasks)
    split: Bolt = SplitBatches(directory) if batches else Split(directory)
    b.bolt("split", split, tasks=tasks, executors=tasks).local_or_shuffle("lines")
    count: Bolt = CountBatches(directory) if batches else Count(directory)
    b.bolt("count", count, tasks=tasks, executors=tasks).fields("split", "word")
    return b.build()


def topology(args: list[str]) -> Topology:
    """For `elastic submit`: the arguments of `build`, as JSON."""
    return build(**json.loads(args[0]))


def wait_ready(directory: str, made: Topology, failed: Callable[[], str]) -> None:
    """Wait until all tasks are ready.

    Args:
        failed: Says why it will never be so, or "".

    Raises:
        RuntimeError: It failed, or took longer than a minute.
    """
    place, wanted, give_up = Path(directory), made.spec.task_count, time.monotonic() + PATIENCE
    while (there := len(list(place.glob("*.ready")))) < wanted:
        if reason := failed():
            raise RuntimeError(reason)
        if time.monotonic() > give_up:
            raise RuntimeError(f"Only {there} of {wanted} tasks were ready within {PATIENCE:g} s.")
        time.sleep(0.01)


def say_go(directory: str) -> None:
    """Let the spouts begin."""
    (Path(directory) / "go").touch()


def collected(directory: str) -> tuple[dict[str, int], float]:
    """What the tasks wrote: all counts, and the seconds from the first start to the last end."""
    counts: dict[str, int] = {}
    ended = []
    for path in sorted(Path(directory).glob("*.ended")):
        what = json.loads(path.read_text())
        counts.update(what["counts"])
        ended.append(what["ended"])
    started = [json.loads(path.read_text())["started"] for path in Path(directory).glob("*.started")]
    return counts, max(ended) - min(started)
