"""A ZooKeeper server of our own, from the jars that PySpark brings along.

One process, on the loopback interface unless told otherwise. What it confirmed survives the death of its process,
not that of the machine (it does not wait for the disk): nothing else of such a cluster would survive that
either.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from elastic import procs
from elastic.cluster.java import find_java
from elastic.cluster.network import LOOPBACK
from elastic.errors import EnvironmentProblem
from elastic.machine import limit_reached
from elastic.priority import a_little_behind

_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "snappy-java", "metrics-core")
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_OPTIONS = (
    "-Xmx64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.preAllocSize=1024",
    "-Dzookeeper.forceSync=no",
    # One thread that reads, and answers: of a few dozen connections others would only have to be woken for each request.
    "-Dzookeeper.nio.numSelectorThreads=1",
    "-Dzookeeper.nio.numWorkerThreads=0",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Djava.net.preferIPv4Stack=true",
    # Instantiated, and then found to be no such provider, before it listens: so Java's management is set up by then. By itself the
    # server sets that up between listening and serving, and it takes longer than everything else in that time, which counts
    # against sessions (docs/decisions/failures.md, "No session ends while our own server is down").
    "-Dzookeeper.authProvider.1=org.apache.zookeeper.jmx.MBeanRegistry",
)
_SETTINGS = """\
dataDir=data
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
4lw.commands.whitelist=srvr
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=600000
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_PORTS = (20000, 32000)
"""Below the range of which the system gives ports to clients: a client that keeps trying a dead port from
that range can be given the very port as its own, and then is connected with itself."""
_ATTEMPTS = 5
_ROOM = 2 << 20
"""Bytes: with less on the disk the server does not start (it allocates 1 MiB for its log of transactions)."""


class EmbeddedZooKeeper:
    """The server's process. `start` may be called again after it has ended: same port, same data.

    Args:
        directory: For its data, settings and log.
        port: 0 for a free one.
        host: The IPv4 address to listen on. Beyond loopback, whoever reaches it can do anything with what is stored.
        java: The Java program; found by `find_java` when None.
    """

    def __init__(
        self, directory: Path, port: int = 0, *, host: str = LOOPBACK, java: Path | None = None
    ) -> None:
        self.directory = directory
        self.log = directory / "zookeeper.log"
        self._host = host
        self._fixed = port != 0
        self._port = port
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port; known once it was started."""
        return f"{self._host}:{self._port}"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """To wait for its end."""
        return self._process

    def launch(self) -> None:
        """Start the process; it is not ready yet. What else there is to start can start meanwhile.

        Raises:
            EnvironmentProblem: No Java, no jars, no room on the disk, or the port is taken.
        """
        java = self._java or find_java()
        classes = os.pathsep.join(str(p) for p in _jars())
        if self._fixed:
            if not port_is_free(self._port, self._host):
                taken = f"port {self._port} is taken: ZooKeeper cannot listen there"
                raise EnvironmentProblem(taken, remedy="Give another port, or 0.")
        else:
            self._port = free_port(self._host)
            self._fixed = True  # whoever connected once comes back to the same address
        self.directory.mkdir(parents=True, exist_ok=True)
        if full := _full(self.directory):
            # It would listen, and end. As long as it is down sessions go on; while it listens without serving their time runs.
            raise EnvironmentProblem(f"ZooKeeper cannot be started: {full}", remedy="Make room there.")
        settings = self.directory / "zoo.cfg"
        settings.write_text(_SETTINGS.format(host=self._host, port=self._port))
        # It runs in that directory: Java reads neither settings nor arguments as UTF-8, and takes a backslash for something else.
        argv: list[str | Path] = [java, *_OPTIONS, "-cp", classes, _MAIN, settings.name]
        try:
            self._process = procs.spawn(
                a_little_behind(argv),
                log=self.log,
                cwd=self.directory,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # by which it reads the name of that directory
            )
        except OSError as error:
            raise EnvironmentProblem(
                f"ZooKeeper cannot be started with {java}: {error}",
                remedy=limit_reached(error, starting=True),
            ) from error

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until it answers. Its port opens before it serves, and nothing tells when it does: it is
        asked.

        Raises:
            EnvironmentProblem: It ended, or does not answer within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        pause = 0.01
        while not _serves(self._host, self._port):
            process = self._process
            if process is None or process.poll() is not None:
                raise EnvironmentProblem(
                    f"ZooKeeper ended while starting: {tail(self.log)}", remedy=f"Its log: {self.log}"
                )
            if time.monotonic() >= deadline:
                self.kill()
                raise EnvironmentProblem(
                    f"ZooKeeper did not answer within {timeout:g} s", remedy=f"Its log: {self.log}"
                )
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)

    def start(self, timeout: float = 30.0) -> None:
        """Start it and wait until it serves; see `launch` and `wait_ready`."""
        chosen = not self._fixed
        for attempt in range(_ATTEMPTS):
            self.launch()
            try:
                self.wait_ready(timeout)
                return
            except EnvironmentProblem:
                # Somebody may have taken the port between our look and its start.
                if not chosen or attempt + 1 == _ATTEMPTS or port_is_free(self._port, self._host):
                    raise
                self._fixed = False

    def stop(self, grace: float = 5.0) -> None:
        """End it. Safe to call twice."""
        if self._process is not None:
            procs.end(self._process, grace)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port(host: str = LOOPBACK, besides: Collection[int] = ()) -> int:
    """A port of that address on which nobody listens now.

    Args:
        host: The address.
        besides: Ports that are meant for others, who don't listen yet.

    Raises:
        EnvironmentProblem: None was found.
    """
    for _ in range(1000):
        port = random.randrange(*_PORTS)
        if port not in besides and port_is_free(port, host):
            return port
    raise EnvironmentProblem(f"no free port between {_PORTS[0]} and {_PORTS[1]}")


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on that port of that address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True


def tail(log: Path, lines: int = 5) -> str:
    """The end of a log file, for messages; that the disk is full, when it is, as the log will not say so then."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
        full = _full(log.parent)
    except OSError:
        return "no log"
    said = "\n".join(text.rstrip().splitlines()[-lines:]) or "its log is empty"
    return f"{full}\n{said}" if full else said


def _full(directory: Path) -> str:
    """That there is too little room on its disk, if so."""
    free = shutil.disk_usage(directory).free
    return f"no space left on the disk of {directory} ({free >> 10} KiB are free)" if free < _ROOM else ""


def _serves(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            return connection.recv(64).startswith(b"Zookeeper version")
    except OSError:
        return False


def _jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise EnvironmentProblem("pyspark is not installed: ZooKeeper's jars come from it")
    folder = Path(places[0]) / "jars"
    found = []
    for name in _JARS:
        matches = sorted(p for p in folder.glob(f"{name}-*.jar") if p.name[len(name) + 1].isdigit())
        if not matches:
            raise EnvironmentProblem(f"{folder} has no {name}-*.jar: is pyspark installed completely?")
        found.append(matches[-1])
    return found
