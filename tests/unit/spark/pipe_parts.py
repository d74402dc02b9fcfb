"""The topology's side of pipes without a topology: spouts and sinks wired to lists, and Spark's side without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
from hypothesis import Phase, settings

from elastic import Bolt, Fields, TopologyBuilder, TopologyContext
from elastic.spark import DataFrameSink, DataFrameSpout
from elastic.spark.log import Log, Part
from elastic.spark.pipe import Pipe

QUICK = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None)
FOUND = settings(QUICK, phases=[Phase.generate], report_multiple_bugs=False, print_blob=False)
"""For faults that are there: the first example that shows one is enough."""
FIELDS = Fields(key=int, n=int)
SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])


class Nothing(Bolt):
    def execute(self, tup: Any) -> None: ...


def rows(*pairs: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"key": k, "n": n} for k, n in pairs], SCHEMA)


def pairs(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(r["key"], r["n"]) for b in batches for r in b.to_pylist()]


def part(log: Log, partition: int, *found: tuple[int, int]) -> Part:
    """What a task of Spark writes, in record batches of two rows."""
    return log.write(partition, SCHEMA, [rows(*found[i : i + 2]) for i in range(0, len(found), 2)])


def context(component: str, index: int, tasks: int) -> TopologyContext:
    b = TopologyBuilder("t")
    b.spout("in", DataFrameSpout("/nowhere", FIELDS), tasks=tasks)
    b.bolt("out", Nothing(), tasks=tasks).shuffle("in")
    spec = b.build().spec
    task = next(c for c in spec.components if c.id == component)
    return TopologyContext(spec, component, spec.tasks_of(task.id)[index], "w", {})


class Reading:
    """A task of a spout."""

    def __init__(self, pipe: str, index: int = 0, tasks: int = 1) -> None:
        self.pipe, self.index, self.tasks = pipe, index, tasks
        self.emitted: list[pa.RecordBatch] = []
        self.spout = self._made()

    def _made(self) -> DataFrameSpout:
        spout = DataFrameSpout(self.pipe, FIELDS)
        spout.context = context("in", self.index, self.tasks)
        spout.__dict__["emit_batch"] = self.emitted.append
        spout.prepare(spout.context)
        return spout

    @property
    def ended(self) -> bool:
        return bool(self.spout.__dict__.get("_exhausted"))

    def step(self) -> bool:
        """One call. Returns whether there may be more at once."""
        return self.spout.next_batch() == 0.0 and not self.ended

    def move(self) -> None:
        """To another process: a new spout, with the state of this one."""
        state = pickle.loads(pickle.dumps(self.spout.get_state()))
        self.spout = self._made()
        self.spout.set_state(state)

    def crash(self) -> None:
        """A new spout that knows nothing."""
        self.spout = self._made()

    def all(self) -> list[tuple[int, int]]:
        """What it has emitted when there is nothing more for now."""
        while self.step():
            pass
        return pairs(self.emitted)


class Written:
    """A task of a sink."""

    def __init__(self, pipe: str, index: int = 0, tasks: int = 1, **given: Any) -> None:
        self.pipe, self.index, self.tasks, self.given = pipe, index, tasks, given
        self.sink = self._made()

    def _made(self) -> DataFrameSink:
        sink = DataFrameSink(self.pipe, FIELDS, **self.given)
        sink.context = context("out", self.index, self.tasks)
        sink.prepare(sink.context)
        return sink

    def give(self, *found: tuple[int, int]) -> None:
        self.sink.execute_batch(rows(*found))

    def move(self) -> None:
        state = pickle.loads(pickle.dumps(self.sink.get_state()))
        self.sink = self._made()
        self.sink.set_state(state)

    def crash(self) -> None:
        self.sink = self._made()


def log_of(pipe: str) -> Log:
    return Log(Pipe(pipe))
