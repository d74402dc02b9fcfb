"""A launcher for tests, in a process of its own: one JVM, and one that can be killed.

Commands are JSON lists on standard input, a line each; every command is answered by a line of standard output, and a
node's end says itself there as well:

    ["open", {arguments of SparkHost}]   ["start", node, [arguments], log]   ["stop", node, grace]   ["close"]
    ["session"]: start a session of its own, as a notebook would         ["count"]: run a job in that one
    ["jvm"]: the process id of the JVM      ["stopped"]: Spark stops its context, as it does when its application was killed
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from elastic.cluster.java import java_environment
from elastic.errors import ElasticError
from elastic.hosts.base import NodeCommand
from elastic.hosts.spark import SparkHost
from elastic.model.ids import NodeId

lock = threading.Lock()


def say(*what: Any) -> None:
    with lock:
        print(json.dumps(what), flush=True)


class Driver:
    def __init__(self) -> None:
        self.host: SparkHost | None = None
        self.handles: dict[str, Any] = {}
        self.spark: Any = None

    def open(self, arguments: dict[str, Any]) -> None:
        self.host = SparkHost(**arguments, java_environment=java_environment())
        self.host.open()

    def start(self, node: str, arguments: list[str], log: str) -> None:
        assert self.host is not None
        command = NodeCommand(NodeId(node), tuple(arguments), {}, log)
        self.handles[node] = self.host.start(command, lambda name, why: say("exit", name, why))

    def stop(self, node: str, grace: float) -> None:
        self.handles[node].stop(grace)

    def close(self) -> None:
        assert self.host is not None
        self.host.close()

    def session(self) -> None:
        from pyspark.sql import SparkSession

        self.spark = (
            SparkSession.builder.master("local[3,4]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
            .getOrCreate()
        )

    def count(self) -> int:
        return len(self.spark.range(5).collect())

    def jvm(self) -> int:
        from pyspark import SparkContext

        return int(SparkContext._gateway.proc.pid)

    def stopped(self) -> None:
        from pyspark import SparkContext

        SparkContext._active_spark_context._jsc.sc().stop()


def main() -> None:
    driver = Driver()
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            say("done", getattr(driver, name)(*arguments))
        except ElasticError as error:
            say("error", type(error).__name__, str(error))


if __name__ == "__main__":
    main()
