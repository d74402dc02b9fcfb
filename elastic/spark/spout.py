"""A spout that emits the rows of DataFrames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic.api.components import StatefulSpout
from elastic.errors import ConfigError, ExecutionError
from elastic.spark.columns import columns
from elastic.spark.log import DATA, Divided, Entry, Log, Part, Taken
from elastic.spark.pipe import Pipe, place

if TYPE_CHECKING:
    import pyarrow as pa

    from elastic.api.context import Counter, TopologyContext
    from elastic.api.fields import Fields

ROWS = 1024
"""Emitted at a time at most: what waits for it should not wait long."""
_AGAIN = 1.0
"""Seconds until a pipe that could not be read is read again."""


class DataFrameSpout(StatefulSpout):
    """Emits what Spark has written to a pipe: the rows of DataFrames, or of a streaming DataFrame, batch by batch.

    Several tasks share the work: partition p of a DataFrame goes to task p modulo their number, in its order. So rows that Spark has
    partitioned by a key (`repartition(4, "user")`) keep their order. A batch is emitted once it is committed, and once: what failed
    attempts of Spark's tasks have written is not read, nor a batch that Spark commits again. How far a task has come is its state, and
    moves with it. It ends after what was written with `option("last", True)`, or `elastic.spark.finish`.

    In a topology with checkpoints what has been read stays in the pipe until one that knows of it is complete, and a crash costs nothing.
    Without, a process that crashes takes along what its tasks have emitted and nobody has worked off; the entry that was being read is read
    again from its beginning (`docs/guide.md`, "What a crash costs").

    Args:
        pipe: A directory that the topology's nodes and Spark's executors reach: a path, or a URI that pyarrow opens.
        fields: Which columns, with their types; others are left out.
        every: Seconds between two looks when there is nothing.

    Raises:
        ConfigError: A field has a type that no column has.
    """

    def __init__(self, pipe: str | Path, fields: Fields, *, every: float = 0.05) -> None:
        self.pipe = place(pipe)
        self.outputs = fields  # type: ignore[misc]  # of this instance, where others have them on the class
        self.every = every
        columns(fields)  # said here, and not by a node
        self.entry = -1  # that is being read; -1: this task has not begun
        self.part = 0  # of those that are for this task
        self.row = 0  # of that part, the next one
        self.unsaid: list[int] = []  # entries that it has read, and that no checkpoint knows of
        self.cuts: dict[int, int] = {}  # the entry that it was at, by checkpoint
        self.saved = False  # what is unsaid is somewhere else, if this task does not go on
        self.checkpointed = False  # the state is about to be read for a checkpoint
        self.log: Log | None = None
        self.reading: Iterator[pa.RecordBatch] | None = None
        self.rows: Counter | None = None

    def prepare(self, context: TopologyContext) -> None:
        self.log = Log(Pipe(self.pipe))
        self.log.pipe.declare(columns(self.outputs))
        self.rows = context.counter("rows_read")

    def get_state(self) -> object:
        self.saved, self.checkpointed = not self.checkpointed, False
        return {
            "entry": self.entry,
            "part": self.part,
            "row": self.row,
            "unsaid": self.unsaid,
            "cuts": self.cuts,
        }

    def set_state(self, state: Any) -> None:
        self.entry, self.part, self.row = state["entry"], state["part"], state["row"]
        self.unsaid, self.cuts = list(state["unsaid"]), dict(state["cuts"])
        self.reading = None

    def checkpoint_begins(self, number: int) -> None:
        self.cuts[number] = self.entry
        self.checkpointed = True

    def checkpoint_complete(self, number: int) -> None:
        cut = self.cuts.get(number)
        if cut is not None:
            self._say([e for e in self.unsaid if e < cut])
            self.cuts = {n: e for n, e in self.cuts.items() if n > number}

    def cleanup(self) -> None:
        if not self.saved:  # the topology has ended
            self._say(self.unsaid)

    def _say(self, entries: list[int]) -> None:
        """Let Spark's side know that these have been read: they are removed."""
        assert self.log is not None
        index, tasks = self.context.index, self.context.parallelism
        for number in list(entries):
            entry = self.log.entry(number)
            if entry is not None:  # else it was said before, by a process that has ended since
                self.log.took(Taken(index, tasks, number), entry.of(index, tasks))
            self.unsaid.remove(number)

    def next_batch(self) -> float | None:
        try:
            return self._next()
        except Divided as e:
            before, now = e.args[1:]
            raise ConfigError(
                f"The pipe {self.pipe} was read by {before} tasks, which have not all come equally far: {now} cannot go on with it.",
                remedy=f"Let {before} tasks read it to its end first (tasks={before}), or use another directory.",
            ) from None
        except OSError as e:
            self.context.warn(
                "pipe-unreadable", f"The pipe {self.pipe} cannot be read, and is tried again: {e}"
            )
            self.reading = None
            return _AGAIN

    def _next(self) -> float | None:
        assert self.log is not None and self.rows is not None
        self.saved = False
        index, tasks = self.context.index, self.context.parallelism
        if self.entry < 0:
            self.entry = self.log.begin(index, tasks)
        if self.reading is None:
            entry = self.log.entry(self.entry)
            if entry is None:
                return self.every
            mine = entry.of(index, tasks)
            if self.part == len(mine):
                return self._took(entry, mine)
            self.reading = self._batches(mine[self.part])
        batch = next(self.reading, None)
        if batch is None:
            self.part, self.row, self.reading = self.part + 1, 0, None
            return 0.0
        self.emit_batch(batch)
        self.row += batch.num_rows
        self.rows.inc(batch.num_rows)
        return 0.0

    def _took(self, entry: Entry, parts: list[Part]) -> float:
        assert self.log is not None
        if self.context.checkpoints:
            self.unsaid.append(entry.number)
        else:
            self.log.took(Taken(self.context.index, self.context.parallelism, entry.number), parts)
        if entry.last:
            self.exhausted()
        self.entry, self.part, self.row = entry.number + 1, 0, 0
        return 0.0

    def _batches(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The rest of a part, in pieces."""
        import pyarrow as pa

        assert self.log is not None
        names, skip = columns(self.outputs).names, self.row
        try:
            file = self.log.pipe.open(f"{DATA}/{part.name}")
        except FileNotFoundError:
            raise ExecutionError(
                f"The pipe {self.pipe} lacks {part.name}, which entry {self.entry} of its log names: somebody has removed it.",
                remedy="Only one topology may read a pipe, and nobody else may remove anything from it.",
            ) from None
        with file, pa.ipc.open_stream(file) as reader:
            if lacking := [n for n in names if n not in reader.schema.names]:
                raise ExecutionError(
                    f"The DataFrame that was written to the pipe {self.pipe} has no column {lacking[0]!r}; "
                    f"it has {', '.join(reader.schema.names)}.",
                    remedy="Rename or add the column before the DataFrame is written, or declare other fields.",
                )
            for batch in reader:
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                chosen = batch.select(names)
                for start in range(skip, batch.num_rows, ROWS):
                    yield chosen.slice(start, ROWS)
                skip = 0
