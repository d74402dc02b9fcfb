"""Spark's side of pipes, as Spark calls it, without Spark: options, refusals, and what is read again."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pipe_parts import Reading, Written, log_of, pairs, part, rows
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from elastic import Fields
from elastic.errors import ConfigError, DeadlineExceeded
from elastic.spark import finish
from elastic.spark.columns import columns
from elastic.spark.frames import ElasticSource
from elastic.spark.log import DATA

COLUMNS = StructType().add("key", LongType()).add("n", LongType())


def source(path: Path, **options: str) -> Any:
    return ElasticSource({"path": str(path), **options})


def writer(path: Path, **options: str) -> Any:
    return pickle.loads(pickle.dumps(source(path, **options).writer(COLUMNS, False)))


def test_a_dataframe_is_handed_over_when_it_is_committed(tmp_path: Path) -> None:
    task, into = Reading(str(tmp_path)), writer(tmp_path, last="true")
    messages = [into.write(iter([rows((0, 0)), rows((0, 1))])), into.write(iter([]))]
    assert task.all() == []
    into.commit([pickle.loads(pickle.dumps(m)) for m in messages])
    assert task.all() == [(0, 0), (0, 1)]
    assert task.ended


def test_what_is_aborted_leaves_nothing(tmp_path: Path) -> None:
    into = writer(tmp_path)
    into.abort([into.write(iter([rows((0, 0))])), into.write(iter([])), None])
    assert not list((tmp_path / DATA).iterdir())
    assert log_of(str(tmp_path)).newest() is None


def test_a_batch_that_comes_again_is_not_handed_over_twice(tmp_path: Path) -> None:
    task = Reading(str(tmp_path))
    for batch in (0, 0, 1, 0):  # by queries that begin again with the same checkpoint
        into = source(tmp_path, checkpointLocation="/c").streamWriter(COLUMNS, False)
        into.commit([into.write(iter([rows((0, batch))]))], batch)
    other = source(tmp_path, checkpointLocation="/d").streamWriter(COLUMNS, False)
    other.commit([other.write(iter([rows((0, 9))]))], 0)
    assert task.all() == [(0, 0), (0, 1), (0, 9)]
    lost = other.write(iter([rows((0, 9))]))
    other.abort([lost], 1)
    assert not list((tmp_path / DATA).iterdir())


def test_partitions_keep_their_numbers_and_come_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order their tasks have ended."""
    into, messages = writer(tmp_path), []
    for number in (2, 0, 1):
        monkeypatch.setattr(
            "pyspark.TaskContext.get", lambda n=number: SimpleNamespace(partitionId=lambda: n)
        )
        messages.append(into.write(iter([rows((number, 0))])))
    into.commit(messages)
    entry = log_of(str(tmp_path)).newest()
    assert entry is not None and [p.partition for p in entry.parts] == [0, 1, 2]
    assert [Reading(str(tmp_path), i, 3).all() for i in range(3)] == [[(0, 0)], [(1, 0)], [(2, 0)]]


def test_columns_come_as_the_topology_wants_them(tmp_path: Path) -> None:
    task, into = Reading(str(tmp_path)), writer(tmp_path)
    small = pa.schema([("other", pa.string()), ("n", pa.int32()), ("key", pa.int8())])
    into.commit([into.write(iter([pa.RecordBatch.from_pylist([{"other": "x", "n": 2, "key": 1}], small)]))])
    assert task.all() == [(1, 2)]


def test_a_moment_comes_in_utc(tmp_path: Path) -> None:
    log_of(str(tmp_path)).pipe.declare(columns(Fields(at=datetime.datetime)))
    into = source(tmp_path).writer(StructType().add("at", "timestamp"), False)
    noon = pa.array(
        [datetime.datetime(2026, 1, 1, 11, tzinfo=datetime.UTC)], pa.timestamp("us", "Europe/Berlin")
    )
    message = into.write(iter([pa.RecordBatch.from_arrays([noon], ["at"])]))
    with pa.ipc.open_stream((tmp_path / DATA / message.part.name).read_bytes()) as reader:
        assert [r["at"] for b in reader for r in b.to_pylist()] == [datetime.datetime(2026, 1, 1, 11)]


def test_a_value_that_cannot_be_cast_is_said_with_its_column(tmp_path: Path) -> None:
    Reading(str(tmp_path))
    batch = pa.RecordBatch.from_pylist([{"key": "x", "n": 1}])
    with pytest.raises(ConfigError, match="wants the column 'key' as int64, not string"):
        writer(tmp_path).write(iter([batch]))
    assert not (tmp_path / DATA).exists() or not list((tmp_path / DATA).iterdir())


def test_a_column_that_is_missing_is_said_before_anything_is_written(tmp_path: Path) -> None:
    Reading(str(tmp_path))
    with pytest.raises(ConfigError, match="there is no 'n' among key, text"):
        source(tmp_path).writer(StructType().add("key", LongType()).add("text", StringType()), False)


def test_a_column_that_is_there_twice_or_not_at_all_is_not_another_one(tmp_path: Path) -> None:
    into = writer(tmp_path)
    Reading(str(tmp_path))  # the topology begins after the query has
    for names in (["key", "other"], ["key", "n", "n"]):
        batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names)
        with pytest.raises(ConfigError, match="wants a column 'n'; there is none, or more than one"):
            into.write(iter([batch]))


def test_to_overwrite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is added to it"):
        source(tmp_path).writer(COLUMNS, True)


def test_a_stream_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a checkpointLocation"):
        source(tmp_path).streamWriter(COLUMNS, False)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"last": "yes"}, "'yes' is neither true nor false"),
        ({"max_bytes": "much"}, "max_bytes and patience are numbers"),
    ],
)
def test_an_option_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        source(tmp_path, **options).writer(COLUMNS, False)


def test_no_directory_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs the directory of a pipe"):
        ElasticSource({}).writer(COLUMNS, False)


def test_nothing_is_written_behind_the_end(tmp_path: Path) -> None:
    finish(str(tmp_path))
    into = writer(tmp_path)
    with pytest.raises(ConfigError, match="what was written before is the last"):
        into.commit([into.write(iter([rows((0, 0))]))])
    assert not list((tmp_path / DATA).iterdir())
    with pytest.raises(ConfigError, match="is the last"):
        finish(str(tmp_path))


def test_whoever_writes_waits_for_what_is_not_read_and_not_for_ever(tmp_path: Path) -> None:
    log = log_of(str(tmp_path))
    log.commit([part(log, 0, (0, 0))])
    into = writer(tmp_path, max_bytes="10", patience="0.2")
    with pytest.raises(DeadlineExceeded, match=r"bytes wait in the pipe .*, and 10 may"):
        into.write(iter([rows((0, 1))]))
    writer(tmp_path, max_bytes="0").write(iter([rows((0, 1))]))
    Reading(str(tmp_path)).all()
    into.write(iter([rows((0, 1))]))


# --- out of a topology


def read(reader: Any, partitions: Any) -> list[tuple[int, int]]:
    return [
        p for partition in pickle.loads(pickle.dumps(partitions)) for p in pairs(list(reader.read(partition)))
    ]


def test_what_has_come_since_a_batch_was_read_is_kept(tmp_path: Path) -> None:
    task, stream = Written(str(tmp_path), rows=1), source(tmp_path).streamReader(COLUMNS)
    for n in range(2):
        task.give((0, n))
    end = stream.latestOffset({}, None)
    for n in range(2, 5):
        task.give((0, n))
    stream.commit(end)
    later = stream.latestOffset(end, None)
    assert read(stream, stream.partitions(end, later)) == [(0, 2), (0, 3), (0, 4)]


def test_the_columns_are_those_of_the_sink(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no topology with a DataFrameSink for it has begun"):
        source(tmp_path).schema()
    log_of(str(tmp_path)).pipe.declare(pa.schema([("user", pa.string()), ("total", pa.float64())]))
    assert source(tmp_path).schema() == StructType().add("user", StringType()).add("total", DoubleType())


def test_all_that_is_there_is_a_dataframe(tmp_path: Path) -> None:
    reader = source(tmp_path).reader(COLUMNS)
    assert read(reader, reader.partitions()) == []
    for index in range(2):
        task = Written(str(tmp_path), index, 2, rows=1)
        task.give((index, 0))
        task.give((index, 1))
    assert read(reader, reader.partitions()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert read(reader, reader.partitions()) == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("keep", [False, True])
def test_a_stream_reads_on_and_removes_what_it_has_read(tmp_path: Path, keep: bool) -> None:
    task, stream = Written(str(tmp_path), rows=1), source(tmp_path, keep=str(keep)).streamReader(COLUMNS)
    first = stream.initialOffset()
    for n in range(3):
        task.give((0, n))
    second = stream.latestOffset(first, None)
    assert read(stream, stream.partitions(first, second)) == [(0, 0), (0, 1), (0, 2)]
    stream.commit(second)
    task.give((0, 3))
    third = stream.latestOffset(second, None)
    assert read(stream, stream.partitions(second, third)) == [(0, 3)]
    if keep:
        assert read(stream, stream.partitions(first, third)) == [(0, n) for n in range(4)]
    else:
        with pytest.raises(ConfigError, match=r"Segment 0 of 00000 .* has been removed"):
            read(stream, stream.partitions(first, third))
    assert source(tmp_path).streamReader(COLUMNS).initialOffset() == {"00000": 0 if keep else 2}
