"""A real Spark standalone cluster, and a Connect server, out of PySpark's own distribution, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from elastic import procs
from elastic.cluster.java import java_environment
from elastic.hosts.child import python_path

HOME = Path(pyspark.__file__).parent
_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_OPENED_SUN = ("nio.ch", "nio.cs", "security.action", "util.calendar")


@dataclass
class Jvm:
    """A server's process, whose output is read to its end; `wait_for` finds a line in it."""

    process: subprocess.Popen[bytes]
    lines: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line.decode(errors="replace").rstrip())
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str, count: int = 1, seconds: float = 60.0) -> re.Match[str]:
        """The match of the `count`-th line with that pattern."""
        expression = re.compile(pattern)

        def matches() -> list[re.Match[str]]:
            return [m for line in self.lines if (m := expression.search(line))]

        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(matches()) >= count, seconds)
            if len(matches()) < count:
                raise AssertionError(f"no {pattern!r} in:\n" + "\n".join(self.lines[-40:]))
            return matches()[count - 1]


@contextmanager
def jvm(
    main: str, *arguments: str, properties: Mapping[str, str] | None = None, memory: str = "256m"
) -> Iterator[Jvm]:
    """Run a class of Spark's jars as a process that ends with the block."""
    java = java_environment()
    env = {
        **os.environ,
        **java,
        "SPARK_HOME": str(HOME),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": python_path(os.environ.get("PYTHONPATH", "")),
    }
    command = [
        f"{java['JAVA_HOME']}/bin/java",
        f"-Xmx{memory}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ]
    command += [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in _OPENED]
    command += [f"--add-opens=java.base/sun.{p}=ALL-UNNAMED" for p in _OPENED_SUN]
    command += ["-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true"]
    command += [f"-D{k}={v}" for k, v in (properties or {}).items()]
    command += ["-cp", f"{HOME / 'jars'}/*", main, *arguments]
    process = procs.spawn(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    server = Jvm(process)
    reader = threading.Thread(target=server.read, daemon=True)
    reader.start()
    try:
        yield server
    finally:
        procs.end(process, 10.0)
        reader.join(10.0)


@dataclass
class Standalone:
    """A running cluster.

    Attributes:
        url: `spark://127.0.0.1:port`.
        workers: Each worker's process.
    """

    url: str
    master: Jvm
    workers: list[Jvm]


@contextmanager
def standalone(scratch: Path, workers: int = 2, cores: int = 1) -> Iterator[Standalone]:
    """A master and its workers, all registered."""
    package = "org.apache.spark.deploy"
    listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(jvm(f"{package}.master.Master", *listen))
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        running = [
            stack.enter_context(
                jvm(
                    f"{package}.worker.Worker",
                    *("--cores", str(cores), "--memory", "1g", "--work-dir", str(scratch / f"worker{i}")),
                    *listen,
                    url,
                )
            )
            for i in range(workers)
        ]
        for worker in running:
            worker.wait_for("Successfully registered with master")
        yield Standalone(url, master, running)


@contextmanager
def connect_server(master: str = "local[4,4]") -> Iterator[str]:
    """A Spark Connect server; gives its `sc://127.0.0.1:port`."""
    properties = {
        "spark.master": master,
        "spark.app.name": "connect",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.catalogImplementation": "in-memory",
    }
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with jvm(main, properties=properties, memory="512m") as server:
        port = server.wait_for(r"Spark Connect server started at: \S*?:(\d+)\s*$")[1]
        yield f"sc://127.0.0.1:{port}"
