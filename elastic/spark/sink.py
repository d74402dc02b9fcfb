"""A bolt that makes DataFrames of what it gets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from elastic.api.components import Presets, StatefulBolt
from elastic.errors import ExecutionError
from elastic.spark import segments
from elastic.spark.columns import columns
from elastic.spark.pipe import Pipe, place, wait_for_room

if TYPE_CHECKING:
    import pyarrow as pa

    from elastic.api.context import Counter, TopologyContext
    from elastic.api.fields import Fields

_SLOWED = 0.25
"""Seconds that a full pipe holds up a record batch."""
_MOST = 1 << 30


class DataFrameSink(Presets, StatefulBolt):
    """Writes what it gets to a pipe, for Spark to read as a DataFrame or a streaming DataFrame.

    Each task writes segments: files of up to `rows` rows, and one after each `tick_interval` in which something came (0.5 s, if `bolt(...)`
    does not say otherwise). A segment appears whole, has a number, and is never changed, so Spark reads each row once, also when it reads
    a batch again. The number of the next segment and the rows that are in none yet are the task's state, and move with it. In a topology
    with checkpoints rows are written when a checkpoint that has them is complete: each once, also after a crash, and as much later.

    Args:
        pipe: A directory that the topology's nodes and Spark's executors reach: a path, or a URI that pyarrow opens.
        fields: Which columns of what it gets, with their types.
        rows: Of a segment at most.
        max_bytes: When so much of a task waits to be read by a streaming query (which removes what it has done with), what comes is taken
            slowly, and told as `pipe-full`. 0: no bound.

    Raises:
        ConfigError: A field has a type that no column has.
    """

    presets: ClassVar[Mapping[str, Any]] = {"tick_interval": 0.5}

    def __init__(
        self, pipe: str | Path, fields: Fields, *, rows: int = 100_000, max_bytes: int = _MOST
    ) -> None:
        self.pipe = place(pipe)
        self.fields = fields
        columns(fields)  # said here, and not by a node
        self.most, self.max_bytes = rows, max_bytes
        self.number = -1  # of the next segment; -1: this task has written none
        self.pending: list[pa.RecordBatch] = []
        self.count = 0  # rows of those
        # Checkpoint, number and content of segments that wait for it.
        self.sealed: list[tuple[int, int, bytes]] = []
        self.checkpointed = False  # the state is about to be read for a checkpoint
        self.saved = False  # what is pending is somewhere else, if this task does not go on
        self.unread = 0  # bytes of segments, as known at the last look
        self.files: Pipe | None = None
        self.written: Counter | None = None

    def prepare(self, context: TopologyContext) -> None:
        self.schema = columns(self.fields)
        self.files = Pipe(self.pipe)
        self.files.declare(self.schema)
        self.folder = segments.folder(context.index)
        self.written = context.counter("rows_written")

    def get_state(self) -> object:
        self.saved, self.checkpointed = not self.checkpointed, False
        return {
            "number": self.number,
            "sealed": self.sealed,
            "pending": segments.encoded(self.pending, self.schema) if self.pending else b"",
        }

    def set_state(self, state: Any) -> None:
        self.number, self.sealed = state["number"], list(state["sealed"])
        self.pending = segments.decoded(state["pending"]) if state["pending"] else []
        self.count = sum(b.num_rows for b in self.pending)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        names = self.schema.names
        if lacking := [n for n in names if n not in batch.schema.names]:
            raise ExecutionError(
                f"The pipe {self.pipe} has a column {lacking[0]!r}, and what came has only {', '.join(batch.schema.names)}.",
                remedy="Declare the fields of what the sink is subscribed to.",
            )
        fitting = batch.select(names).cast(self.schema)
        if self.max_bytes and self.unread > self.max_bytes:
            self._slow_down()
        self.saved = False
        self.pending.append(fitting)
        self.count += batch.num_rows
        if self.count >= self.most and not self.context.checkpoints:
            self._write()

    def tick(self) -> None:
        self.saved = False
        if not self.context.checkpoints:
            self._write()

    def finish(self) -> None:
        self._write_all()

    def cleanup(self) -> None:
        if not self.saved:  # the topology was killed
            self._write_all()

    def checkpoint_begins(self, number: int) -> None:
        if self.count:
            self.sealed.append((number, *self._segment()))
            self._next()
        self.checkpointed = True

    def checkpoint_complete(self, number: int) -> None:
        while self.sealed and self.sealed[0][0] <= number:
            # Where a process that has ended since has done it already, with the same number, it is the same once more.
            self._publish(*self.sealed[0][1:])
            del self.sealed[0]

    def _write_all(self) -> None:
        if self.sealed:
            self.checkpoint_complete(self.sealed[-1][0])
        self._write()

    def _write(self) -> None:
        if self.count:
            self._publish(*self._segment())
            self._next()

    def _segment(self) -> tuple[int, bytes]:
        """Number and content of a segment with all that is pending."""
        assert self.files is not None
        if self.number < 0:
            self.number = segments.end(self.files, self.folder)
            segments.tidy(self.files, self.folder)
        return self.number, segments.encoded(self.pending, self.schema)

    def _next(self) -> None:
        """What was pending is in a segment."""
        assert self.written is not None
        self.written.inc(self.count)
        self.number, self.pending, self.count = self.number + 1, [], 0

    def _publish(self, number: int, content: bytes) -> None:
        assert self.files is not None
        self.files.write(segments.name(self.folder, number), content)
        self.unread += len(content)

    def _slow_down(self) -> None:
        """Wait for whoever reads, but not for long: a task that waits does not move."""
        files, folder = self.files, self.folder
        assert files is not None
        self.unread = wait_for_room(lambda: segments.size(files, folder), self.max_bytes, _SLOWED)
        if self.unread <= self.max_bytes:
            return
        self.context.warn(
            "pipe-full",
            f"{self.unread:,} bytes of task {self.context.task} wait in the pipe {self.pipe}: what comes is taken slowly until a streaming "
            "query has read them, or with a larger max_bytes.",
            bytes=self.unread,
        )
