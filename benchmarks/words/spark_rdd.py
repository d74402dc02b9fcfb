"""The same in PySpark: an RDD of lines, Python lambdas, `reduceByKey`, `local[N]`; a first job warms everything up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from operator import add
from typing import Any

from benchmarks.words.contender import not_here
from benchmarks.words.text import arguments, lines, say


def main() -> None:
    """The contender as a program."""
    options = arguments(__doc__).parse_args()
    if shutil.which("java") is None:
        not_here("there is no java on the PATH")
    from pyspark.sql import SparkSession

    text, copies, cores = lines(options.input), options.copies, options.processes
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.python.worker.reuse", "true")
        .getOrCreate()
    )
    try:
        context = spark.sparkContext
        shared = context.broadcast(text)

        def count(times: int) -> dict[str, int]:
            # Each partition makes its lines in its own Python process: nothing is read, as with the other contenders.
            def share(number: int, _: Iterable[int]) -> Iterator[str]:
                mine = shared.value[number::cores]
                return (line for _ in range(times) for line in mine)

            rdd: Any = context.parallelize(range(cores), cores).mapPartitionsWithIndex(share)
            return dict(rdd.flatMap(str.split).map(lambda word: (word, 1)).reduceByKey(add, cores).collect())

        count(1)
        started = time.monotonic()
        counts = count(copies)
        seconds = time.monotonic() - started
    finally:
        spark.stop()
    say(counts, seconds)


if __name__ == "__main__":
    main()
