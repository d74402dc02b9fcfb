"""DataFrames in and out: rows per second through each half of a pipe, beside Spark's own files on the same disk."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Session, Skip, Wrong
from elastic import Fields, LocalCluster, TopologyBuilder
from elastic.cluster.java import java_environment
from elastic.errors import EnvironmentProblem
from elastic.spark import DataFrameSink, DataFrameSpout, register

NAME = "dataframes"
SUMMARY = "DataFrames into a topology and out of one: rows per second, beside Parquet"

FIELDS = Fields(user=str, amount=float)
LIMIT = 300.0
PARTS = 4


@contextmanager
def spark_here() -> Iterator[Any]:
    """A session on two threads of this machine."""
    try:
        os.environ.update(java_environment())
    except EnvironmentProblem as e:
        raise Skip(e.message) from e
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


class Halves:
    """What is done in one round, each in turn and with a directory of its own.

    Args:
        rows: Of the DataFrame.
    """

    def __init__(self, spark: Any, place: Path, rows: int) -> None:
        self.spark, self.place, self.rows, self.made = spark, place, rows, 0
        self.frame = spark.range(0, rows, 1, PARTS).selectExpr(
            "concat('user-', id % 1000) as user", "cast(id as double) as amount"
        )
        self.frame.write.parquet(str(place / "parquet"))
        self.written = ""

    def _place(self) -> str:
        self.made += 1
        return str(self.place / str(self.made))

    def _timed(self, what: Callable[[], Any]) -> float:
        began = time.perf_counter()
        what()
        return self.rows / (time.perf_counter() - began)

    def parquet(self) -> float:
        """Spark writes a Parquet file for each partition."""
        return self._timed(lambda: self.frame.write.parquet(self._place()))

    def hand_over(self) -> float:
        """Spark writes to a pipe."""
        self.written = self._place()
        write = self.frame.write.format("elastic").mode("append").option("last", "true")
        return self._timed(lambda: write.save(self.written))

    def through(self) -> float:
        """A topology in this process reads what waits in a pipe, and writes it to another: a task for each partition."""
        self.hand_over()
        self.result = self._place()
        b = TopologyBuilder("through")
        b.spout("in", DataFrameSpout(self.written, FIELDS), tasks=PARTS)
        b.bolt("out", DataFrameSink(self.result, FIELDS), tasks=PARTS).local_or_shuffle("in")
        with LocalCluster() as cluster:
            began = time.perf_counter()
            run = cluster.submit(b.build()).wait(LIMIT)
            took = time.perf_counter() - began
        if (rows := run.metrics()["out"]["rows_written"]) != self.rows:
            raise Wrong(f"{rows:,.0f} of {self.rows:,} rows came through")
        return self.rows / took

    def read_parquet(self) -> float:
        """Spark reads Parquet."""
        return self._timed(lambda: self._sum(self.spark.read.parquet(str(self.place / "parquet"))))

    def read(self) -> float:
        """Spark reads what a topology has written."""
        self.through()
        return self._timed(lambda: self._sum(self.spark.read.format("elastic").load(self.result)))

    def _sum(self, frame: Any) -> None:
        (row,) = frame.selectExpr("sum(amount)", "count(user)").collect()
        if tuple(row) != (self.rows * (self.rows - 1) / 2, self.rows):
            raise Wrong(f"{row[1]:,} rows with the sum {row[0]:,.0f}")


def run(session: Session) -> None:
    """Measure and report."""
    rows = 200_000 if session.quick else 2_000_000
    with tempfile.TemporaryDirectory() as place, spark_here() as spark:
        halves = Halves(spark, Path(place), rows)
        session.progress(f"{rows:,} rows of a text and a number, in {PARTS} partitions")
        values = session.interleave(
            {
                "Spark writes Parquet": halves.parquet,
                "Spark hands over": halves.hand_over,
                "a topology reads and writes": halves.through,
                "Spark reads Parquet": halves.read_parquet,
                "Spark reads what came": halves.read,
            },
            unit="rows/s",
        )
    session.report(
        values,
        unit="rows/s",
        compare={"Spark hands over": "Spark writes Parquet", "Spark reads what came": "Spark reads Parquet"},
    )
