"""A user's Spark application: one streaming query into a pipe, one out of another; as a process of its own, so that it can be killed.

    python dataframes_driver.py DIRECTORY

Begins with the JSON lines in `source`, ends with those in `result`, and begins again where an earlier one was. "ready" on standard output
says that both queries run; it goes on until its standard input ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from elastic.cluster.java import java_environment


def main(directory: Path) -> None:
    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    from pyspark.sql import SparkSession

    from elastic.spark import register

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.python.authenticate.socketTimeout", "60s")  # where the machine is slow
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    register(spark)
    came = spark.readStream.schema("user string, n long, amount double").option("maxFilesPerTrigger", 1)
    into = (
        came.json(str(directory / "source"))
        .repartition(3, "user")
        .writeStream.format("elastic")
        .option("checkpointLocation", str(directory / "checkpoint-in"))
        .start(str(directory / "in"))
    )
    out = (
        spark.readStream.format("elastic")
        .load(str(directory / "out"))
        .writeStream.format("json")
        .option("checkpointLocation", str(directory / "checkpoint-out"))
        .start(str(directory / "result"))
    )
    print("ready", flush=True)
    sys.stdin.read()
    for query in (into, out):
        if (error := query.exception()) is not None:
            raise error
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
