"""DataFrames in and out: Spark hands orders to a topology, which keeps the total of each user, and reads the totals.

The topology, in one shell (it ends with the orders; `elastic submit` runs it on a cluster):

    elastic run examples/dataframes.py --pipes /tmp/pipes

Spark, in another one, with the Python that elastic is installed in. It writes, reads, and compares the totals with what it computes itself:

    python examples/dataframes.py --pipes /tmp/pipes --orders 100000
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elastic import Fields, KeyedState, StatefulBolt, Topology, TopologyBuilder
from elastic.spark import DataFrameSink, DataFrameSpout

USERS = 100
LIMIT = 300.0
"""Seconds that Spark waits for the totals."""


class Total(StatefulBolt):
    """The total of each user, with the number of the order."""

    outputs = Fields(user=str, number=int, total=float)
    orders = KeyedState[str, int](int)
    totals = KeyedState[str, float](float)

    def execute(self, tup: Any) -> None:
        self.orders[tup.user] += 1
        self.totals[tup.user] += tup.amount
        self.emit(tup.user, self.orders[tup.user], self.totals[tup.user])


def _parsed(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "dataframes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipes", type=Path, required=True, help="a folder that both sides reach")
    parser.add_argument(
        "--orders", type=int, default=100_000, help="that Spark makes up (default: %(default)s)"
    )
    parser.add_argument("--name", default="orders", help="the topology's name (default: %(default)s)")
    return parser.parse_args(args)


def topology(args: Sequence[str] = ()) -> Topology:
    """The topology; `args` are the words after the file on the command line."""
    o = _parsed(args)
    b = TopologyBuilder(o.name)
    orders = DataFrameSpout(o.pipes / "orders", Fields(user=str, amount=float))
    b.spout("orders", orders, tasks=4)
    b.bolt("total", Total(), tasks=8, executors=2).fields("orders", "user")
    totals = DataFrameSink(o.pipes / "totals", Fields(user=str, number=int, total=float))
    b.bolt("totals", totals, tasks=2).fields("total", "user")
    return b.build()


def main() -> int:
    """Spark's side."""
    o = _parsed(None)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from elastic.spark import register

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    orders = spark.range(o.orders).select(
        f.concat(f.lit("user-"), f.col("id") % USERS).alias("user"),
        (f.col("id") % 7).cast("double").alias("amount"),
    )
    # By user: what Spark has partitioned by a key keeps its order. `last`: the topology ends with these.
    into = orders.repartition(4, "user").write.format("elastic").mode("append")
    into.option("last", "true").save(str(o.pipes / "orders"))
    print(f"Spark has handed over {o.orders:,} orders.", flush=True)

    totals = (
        spark.readStream.format("elastic")
        .schema("user string, number bigint, total double")
        .load(str(o.pipes / "totals"))
    )
    query = totals.writeStream.format("memory").queryName("totals").start()
    until = time.monotonic() + LIMIT
    while spark.table("totals").count() < o.orders:
        if time.monotonic() > until:
            print(
                f"Only {spark.table('totals').count():,} totals have come: does the topology run?",
                file=sys.stderr,
            )
            return 1
        query.processAllAvailable()
    query.stop()

    found = (
        spark.table("totals")
        .groupBy("user")
        .agg(f.max("number").alias("orders"), f.max("total").alias("total"))
    )
    wanted = orders.groupBy("user").agg(f.count("*").alias("orders"), f.sum("amount").alias("total"))
    differences = found.exceptAll(wanted).count() + wanted.exceptAll(found).count()
    print(f"{'Equal' if not differences else 'NOT EQUAL'}: the totals of {found.count()} users.")
    spark.stop()
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
