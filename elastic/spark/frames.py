"""Spark's side: the data source `elastic`, whose path is a pipe.

    register(spark)
    orders.writeStream.format("elastic").option("checkpointLocation", "/data/checkpoint").start("/data/orders")
    totals = spark.readStream.format("elastic").load("/data/totals")

The classes here travel to Spark's executors, which need this package, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from elastic.errors import ConfigError, DeadlineExceeded
from elastic.spark import segments
from elastic.spark.log import Ended, Log, Part
from elastic.spark.pipe import Pipe, spelt, wait_for_room

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_MOST = 1 << 30
_PATIENCE = 600.0


def register(spark: SparkSession) -> None:
    """Let a session know the format `elastic`.

    Args:
        spark: A classic session or one of Spark Connect. Its executors need this package.
    """
    spark.dataSource.register(ElasticSource)


def finish(pipe: str) -> None:
    """Say that nothing more will be written: a `DataFrameSpout` ends when it has emitted all. For pipes that a streaming query filled; stop
    that first.

    Args:
        pipe: The directory or its URI.

    Raises:
        ConfigError: It has been said.
    """
    _commit(Log(Pipe(pipe)), [], last=True)


class ElasticSource(DataSource):
    """The format `elastic`. Its path is the pipe.

    Options when a topology reads (`write`, `writeStream`):

    - `last`: `true` says that nothing comes after this DataFrame;
    - `max_bytes`: a task waits before it writes while more than this is handed over and not read (1 GiB; 0: it never waits);
    - `patience`: seconds for which it does, then it fails (600);
    - `checkpointLocation`, for a stream: names the query, so that a batch that Spark commits again is not handed over twice.

    Options when a topology writes (`readStream`):

    - `keep`: `true` leaves segments that the query has done with, for other queries.
    """

    @classmethod
    def name(cls) -> str:
        return "elastic"

    def _pipe(self) -> Pipe:
        if not (path := self.options.get("path")):
            raise ConfigError(
                "The format elastic needs the directory of a pipe.",
                remedy='load("/data/totals"), save("/data/orders")',
            )
        return Pipe(path)

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        pipe = self._pipe()
        if (found := pipe.schema()) is None:
            raise ConfigError(
                f"Nothing is known of the columns of the pipe {pipe.where}: no topology with a DataFrameSink for it has begun.",
                remedy="Submit the topology first, or give the columns: .schema('user string, total double').",
            )
        return from_arrow_schema(found)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._pipe().where)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self._pipe().where, _said(self.options.get("keep")))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Writer(
            self._target(schema, overwrite), _Limits.of(self.options), _said(self.options.get("last"))
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        query = self.options.get("checkpointLocation")
        if not query:
            raise ConfigError(
                "A streaming query that writes to a pipe needs a checkpointLocation: by it a batch that comes again is known.",
                remedy='.option("checkpointLocation", "/data/checkpoint")',
            )
        return _StreamWriter(self._target(schema, overwrite), _Limits.of(self.options), query)

    def _target(self, schema: StructType, overwrite: bool) -> str:
        pipe = self._pipe()
        if overwrite:
            raise ConfigError(
                f"What is written to the pipe {pipe.where} is added to it.", remedy='.mode("append")'
            )
        wanted = pipe.schema()
        if wanted is not None and (lacking := [n for n in wanted.names if n not in schema.names]):
            raise ConfigError(
                f"The topology that reads the pipe {pipe.where} wants the columns {spelt(wanted)}; there is no {lacking[0]!r} "
                f"among {', '.join(schema.names)}."
            )
        return pipe.where


def _said(option: str | None) -> bool:
    if option is not None and option.lower() not in ("true", "false"):
        raise ConfigError(f"{option!r} is neither true nor false.")
    return option is not None and option.lower() == "true"


# --- into a topology


@dataclass(frozen=True)
class _Limits:
    """How much may wait, and for how long whoever writes waits for that."""

    bytes: int
    seconds: float

    @classmethod
    def of(cls, options: Any) -> _Limits:
        try:
            return cls(int(options.get("max_bytes", _MOST)), float(options.get("patience", _PATIENCE)))
        except ValueError as e:
            raise ConfigError(f"max_bytes and patience are numbers: {e}.") from None


@dataclass
class _Written(WriterCommitMessage):
    """What one task of Spark has written; None: its partition was empty."""

    part: Part | None


def _write(where: str, limits: _Limits, batches: Iterator[pa.RecordBatch]) -> _Written:
    """One partition, in a task of Spark."""
    from pyspark import TaskContext

    if (first := next(batches, None)) is None:
        return _Written(None)
    context, log = TaskContext.get(), Log(Pipe(where))
    _wait(log, limits)
    wanted = log.pipe.schema()
    schema = first.schema if wanted is None else wanted
    rows = chain([first], batches)
    fitting = rows if wanted is None else (_cast(b, wanted, where) for b in rows)
    return _Written(log.write(context.partitionId() if context is not None else 0, schema, fitting))


def _cast(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """A record batch with the columns that the topology wants."""
    import pyarrow as pa

    columns = []
    for field in schema:
        if (at := batch.schema.get_field_index(field.name)) < 0:
            raise ConfigError(
                f"The topology that reads the pipe {where} wants a column {field.name!r}; there is none, or more than one, "
                f"among {', '.join(batch.schema.names)}.",
                remedy="Rename or add it before the DataFrame is written.",
            )
        column = batch.column(at)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as e:
            raise ConfigError(
                f"The topology that reads the pipe {where} wants the column {field.name!r} as {field.type}, not {column.type}: {e}",
                remedy="Cast it before the DataFrame is written.",
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _wait(log: Log, limits: _Limits) -> None:
    """Until less waits than may."""
    if not limits.bytes:
        return
    if (waiting := wait_for_room(log.waiting, limits.bytes, limits.seconds)) > limits.bytes:
        raise DeadlineExceeded(
            f"{waiting:,} bytes wait in the pipe {log.pipe.where}, and {limits.bytes:,} may: no topology has read enough of them for "
            f"{limits.seconds:g} s.",
            remedy="Look whether the topology runs (elastic describe), or give max_bytes or patience.",
        )


def _commit(
    log: Log, messages: Sequence[Any], query: str = "", batch: int = -1, *, last: bool = False
) -> None:
    parts = sorted(
        (m.part for m in messages if m is not None and m.part is not None), key=lambda p: p.partition
    )
    try:
        log.commit(parts, query, batch, last=last)
    except Ended:
        log.discard(parts)
        raise ConfigError(
            f"Nothing can be written to the pipe {log.pipe.where} any more: it was said that what was written before is the last.",
            remedy="Use another directory.",
        ) from None
    log.sweep()


def _abort(where: str, messages: Sequence[Any]) -> None:
    Log(Pipe(where)).discard(m.part for m in messages if m is not None and m.part is not None)


class _Writer(DataSourceArrowWriter):
    def __init__(self, where: str, limits: _Limits, last: bool) -> None:
        self.where, self.limits, self.last = where, limits, last

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark declares it
        return _write(self.where, self.limits, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(Log(Pipe(self.where)), messages, last=self.last)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self.where, messages)


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, where: str, limits: _Limits, query: str) -> None:
        self.where, self.limits, self.query = where, limits, query

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark declares it
        return _write(self.where, self.limits, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(Log(Pipe(self.where)), messages, self.query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _abort(self.where, messages)


# --- out of a topology


@dataclass
class _Segments(InputPartition):
    """Segments of one task of a sink: from `first`, before `last`."""

    folder: str
    first: int
    last: int


def _read(where: str, partition: Any) -> Iterator[pa.RecordBatch]:
    pipe = Pipe(where)
    for number in range(partition.first, partition.last):
        try:
            yield from segments.read(pipe, partition.folder, number)
        except FileNotFoundError:
            raise ConfigError(
                f"Segment {number} of {partition.folder} in the pipe {where} has been removed: another query has read it.",
                remedy="Let one query read a pipe, or all of them with the option keep.",
            ) from None


class _Reader(DataSourceReader):
    def __init__(self, where: str) -> None:
        self.where = where

    def partitions(self) -> Sequence[InputPartition]:
        pipe = Pipe(self.where)
        found = segments.between(segments.begins(pipe), segments.ends(pipe))
        return [_Segments(*f) for f in found] or [_Segments("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.where, partition)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, where: str, keep: bool) -> None:
        self.where, self.keep = where, keep

    def initialOffset(self) -> dict[str, int]:
        return segments.begins(Pipe(self.where))

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return segments.ends(Pipe(self.where))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Segments(*f) for f in segments.between(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.where, partition)

    def commit(self, end: dict[str, int]) -> None:
        if not self.keep:
            segments.remove(Pipe(self.where), end)
