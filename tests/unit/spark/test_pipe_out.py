"""From a topology to Spark: each row once and in the order of its task, whatever Spark reads again and wherever tasks move."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from hypothesis.stateful import run_state_machine_as_test as run
from pipe_parts import FOUND, QUICK, SCHEMA, Written, pairs

from elastic import Fields, TopologyBuilder
from elastic.errors import ConfigError, ExecutionError
from elastic.spark import DataFrameSink, DataFrameSpout, segments
from elastic.spark.pipe import Pipe


class Fetching(RuleBasedStateMachine):
    """Tasks of a sink that move; a query that reads, reads again, and commits."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.pipe = Pipe(self.directory.name)
        self.given: list[list[tuple[int, int]]] = []
        self.got: list[tuple[int, int]] = []
        self.start: dict[str, int] = {}

    @initialize(tasks=st.integers(1, 3))
    def begin(self, tasks: int) -> None:
        self.tasks = [Written(self.directory.name, i, tasks, rows=4) for i in range(tasks)]
        self.given = [[] for _ in self.tasks]
        self.start = segments.begins(self.pipe)

    def teardown(self) -> None:
        try:
            for task in self.tasks:
                task.sink.finish()
            self.query(again=False, commit=True)
            for index, given in enumerate(self.given):
                assert [p for p in self.got if p[0] == index] == given, "lost, doubled or reordered"
            assert all(len(segments.numbers(self.pipe, f)) == 1 for f in self.start)
        finally:
            self.directory.cleanup()

    @rule(index=st.integers(0, 2), count=st.integers(1, 6))
    def give(self, index: int, count: int) -> None:
        index %= len(self.tasks)
        given = self.given[index]
        found = [(index, len(given) + i) for i in range(count)]
        given += found
        self.tasks[index].give(*found)

    @rule(index=st.integers(0, 2))
    def tick(self, index: int) -> None:
        self.tasks[index % len(self.tasks)].sink.tick()

    @rule(index=st.integers(0, 2))
    def move(self, index: int) -> None:
        self.tasks[index % len(self.tasks)].move()

    @rule(index=st.integers(0, 2))
    def end_and_begin_anew(self, index: int) -> None:
        """Another topology goes on with the pipe."""
        task = self.tasks[index % len(self.tasks)]
        task.sink.finish()
        task.crash()

    @rule(again=st.booleans(), commit=st.booleans())
    def query(self, again: bool, commit: bool) -> None:
        stop = segments.ends(self.pipe)
        found = self.read(self.start, stop)
        if again:  # it died before it knew that it had
            assert self.read(self.start, stop) == found
        self.got += found
        if commit:
            segments.remove(self.pipe, stop)
        self.start = stop

    def read(self, start: dict[str, int], stop: dict[str, int]) -> list[tuple[int, int]]:
        return [
            pair
            for folder, first, last in segments.between(start, stop)
            for number in range(first, last)
            for pair in pairs(list(segments.read(self.pipe, folder, number)))
        ]


def test_each_row_once_and_in_order() -> None:
    run(Fetching, settings=QUICK)


def nothing_pending_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        DataFrameSink, "get_state", lambda self: {"number": self.number, "pending": b"", "sealed": []}
    )


def no_number_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    true = DataFrameSink.get_state
    monkeypatch.setattr(DataFrameSink, "get_state", lambda self: {**true(self), "number": 0})  # type: ignore[dict-item]


def the_newest_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(pipe: Pipe, stop: dict[str, int]) -> None:
        for folder, last in stop.items():
            for number in segments.numbers(pipe, folder):
                if number < last:
                    pipe.delete(segments.name(folder, number))

    monkeypatch.setattr(segments, "remove", remove)


def what_is_not_read_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = segments.remove
    monkeypatch.setattr(
        segments, "remove", lambda pipe, stop: true(pipe, {f: n + 9 for f, n in stop.items()})
    )
    monkeypatch.setattr(segments, "ends", lambda pipe: {f: max(0, n - 2) for f, n in ends(pipe).items()})


ends = segments.ends


@pytest.mark.parametrize(
    "plant",
    [
        nothing_pending_in_the_state,
        no_number_in_the_state,
        the_newest_is_removed,
        what_is_not_read_is_removed,
    ],
)
def test_a_planted_fault_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, FileNotFoundError)):
        run(Fetching, settings=FOUND)


# --- what a machine does not say


def test_a_full_pipe_is_told_and_takes_slowly_until_it_is_read(tmp_path: Path) -> None:
    task = Written(str(tmp_path), rows=1, max_bytes=100)
    told: list[str] = []
    task.sink.context.on_warning = lambda kind, message, _: told.append(f"{kind} {message}")
    task.give((0, 0))
    assert not told
    task.give((0, 1))
    assert told[0].startswith("pipe-full") and "until a streaming query has read them" in told[0]
    task.sink.max_bytes = 1 << 20
    task.sink.unread = 1 << 21  # as it was at the last look; a query has read since
    task.give((0, 2))
    assert len(told) == 1 and task.sink.unread < 1 << 20


def test_what_is_pending_is_written_at_the_end_unless_it_has_moved(tmp_path: Path) -> None:
    task, pipe = Written(str(tmp_path)), Pipe(str(tmp_path))
    task.give((0, 0))
    before = task.sink
    task.move()
    before.cleanup()
    assert segments.ends(pipe) == {}
    task.sink.get_state()  # for a move that comes to nothing
    task.give((0, 1))
    task.sink.cleanup()
    assert pairs(list(segments.read(pipe, "00000", 0))) == [(0, 0), (0, 1)]


def test_what_a_killed_task_has_left_unfinished_goes(tmp_path: Path) -> None:
    task = Written(str(tmp_path))
    left = tmp_path / segments.name(segments.folder(0), 0)
    left.parent.mkdir(parents=True)
    left.with_name(f"{left.name}.1.part").touch()
    task.give((0, 0))
    task.sink.tick()
    assert list(left.parent.iterdir()) == [left]


def test_what_could_not_be_written_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Written(str(tmp_path))
    task.give((0, 0))
    with monkeypatch.context() as broken:
        broken.setattr(Pipe, "write", lambda *_: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            task.sink.tick()
    task.sink.tick()
    assert segments.ends(Pipe(str(tmp_path))) == {"00000": 1}
    assert pairs(list(segments.read(Pipe(str(tmp_path)), "00000", 0))) == [(0, 0)]


def test_a_segment_has_so_many_rows_and_without_a_bound_nobody_waits(tmp_path: Path) -> None:
    task, pipe = Written(str(tmp_path), rows=2, max_bytes=0), Pipe(str(tmp_path))
    task.sink.context.on_warning = lambda kind, *_: pytest.fail(kind)
    task.give((0, 0))
    assert segments.ends(pipe) == {}
    task.give((0, 1))
    assert segments.ends(pipe) == {"00000": 1}
    task.give((0, 2))
    task.move()
    task.give((0, 3))
    assert segments.ends(pipe) == {"00000": 2}, "what has moved counts"


def test_columns_are_what_was_declared_whatever_comes(tmp_path: Path) -> None:
    task = Written(str(tmp_path))
    small = pa.schema([("n", pa.int8()), ("key", pa.int16())])
    task.sink.execute_batch(pa.RecordBatch.from_pylist([{"key": 1, "n": 2}], small))
    task.sink.tick()
    (batch,) = segments.read(Pipe(str(tmp_path)), "00000", 0)
    assert batch.schema == SCHEMA and pairs([batch]) == [(1, 2)]


def test_many_small_batches_are_one_in_a_segment(tmp_path: Path) -> None:
    task = Written(str(tmp_path))
    for n in range(5):
        task.give((0, n))
    task.sink.tick()
    task.sink.tick()  # nothing has come: no segment
    assert segments.ends(Pipe(str(tmp_path))) == {"00000": 1}
    (batch,) = segments.read(Pipe(str(tmp_path)), "00000", 0)
    assert pairs([batch]) == [(0, n) for n in range(5)]


def test_a_column_that_does_not_come_is_named(tmp_path: Path) -> None:
    task = Written(str(tmp_path))
    with pytest.raises(ExecutionError, match="has a column 'n', and what came has only key"):
        task.sink.execute_batch(pa.RecordBatch.from_pylist([{"key": 1}]))


def test_its_ticks_come_by_themselves_unless_others_are_given(tmp_path: Path) -> None:
    fields = Fields(key=int, n=int)
    b = TopologyBuilder("t", tick_interval=7.0)
    b.spout("in", DataFrameSpout(tmp_path / "in", fields))
    b.bolt("usual", DataFrameSink(tmp_path / "a", fields)).shuffle("in")
    b.bolt("given", DataFrameSink(tmp_path / "b", fields), tick_interval=2.0).shuffle("in")
    intervals = {str(c.id): c.config.get("tick_interval") for c in b.build().spec.components}
    assert intervals == {"in": None, "usual": 0.5, "given": 2.0}


def test_fields_without_types_are_refused_where_they_are_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="The columns of a pipe need types"):
        DataFrameSink(tmp_path, Fields("a"))
