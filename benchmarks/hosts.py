"""What it costs to have a node: started, added, drained, cancelled, and started again by Spark when it was lost.

The node is a process that says when it is up and does nothing else: what a supervisor needs to start comes on top. A node
is up when it says so, and gone when its host has said so.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.harness import Goal, Session, Skip
from elastic.cluster.java import java_environment
from elastic.errors import EnvironmentProblem
from elastic.hosts.base import Host, NodeCommand, NodeHandle
from elastic.hosts.process import ProcessHost
from elastic.hosts.spark import SparkHost
from elastic.model.ids import NodeId

NAME = "hosts"
SUMMARY = "a node as a process and as a Spark job: start, add, drain, cancel, lost and started again"

LIMIT = 300.0
NODE = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if "stubborn" in sys.argv else signal.SIG_DFL)
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1])
    s.sendall(f"{os.getpid()} {os.getppid()}".encode())
while True:
    signal.pause()
"""


def run(session: Session) -> None:
    """Measure, a host of its own in each round, since starting it is one of the figures."""
    values: dict[str, list[float]] = defaultdict(list)
    masters = {"process": "", "local": "local"}
    if not session.quick:
        masters["local-cluster"] = "local-cluster[3,1,512]"
    for number in range(session.runs):
        for kind, master in masters.items():
            if not session.wants(kind):
                continue
            try:
                round_of(kind, master, values)
            except Skip as reason:
                session.skipped[kind] = str(reason)
            session.progress(f"  round {number + 1}/{session.runs}  {kind}")
    goals = {}
    for kind in masters:
        goals[f"{kind}: add a node", ""] = Goal(0.8, at_least=False)
        goals[f"{kind}: drain a node", ""] = Goal(0.2, at_least=False)
    goals["local: start Spark and a node", ""] = Goal(12.0, at_least=False)
    session.report(values, unit="s", goals=goals)


def round_of(kind: str, master: str, values: dict[str, list[float]]) -> None:
    """One host from its start to its end; adds a value to each of its figures."""
    with tempfile.TemporaryDirectory(prefix="elastic-hosts-") as folder:
        place = Place(Path(folder), values)
        began = time.perf_counter()
        try:
            host: Host = SparkHost(master, java_environment=java_environment()) if master else ProcessHost()
            first = place.start(host, f"{kind}: start {'Spark and ' if master else ''}a node", began)
        except EnvironmentProblem as error:
            raise Skip(error.message) from error
        try:
            place.stop(first, "", 20.0)  # the first one warms up the JVM: its end is not what every end costs
            place.start(host, f"{kind}: add a node")
            handle = place.start(host, "")
            place.stop(handle, f"{kind}: drain a node", 20.0)
            handle = place.start(host, "", option="stubborn")
            place.stop(handle, f"{kind}: make a node end", 0.0)
            if master:
                place.start(host, "")
                began = time.perf_counter()
                os.kill(place.above, signal.SIGKILL)
                place.up(f"{kind}: a lost node is up again", began)
        finally:
            began = time.perf_counter()
            host.close()
            place.note(f"{kind}: end the host and its nodes", began)
            place.listener.close()


class Place:
    """Where nodes say that they are up, and figures are noted."""

    def __init__(self, folder: Path, values: dict[str, list[float]]) -> None:
        self.path = str(folder / "up")
        self.values = values
        self.count = 0
        self.above = 0
        self.exits: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.listener.settimeout(LIMIT)

    def start(self, host: Host, figure: str, began: float | None = None, *, option: str = "") -> NodeHandle:
        """Start a node and wait until it is up."""
        self.count += 1
        arguments = ("-c", NODE, self.path, *([option] if option else []))
        began = time.perf_counter() if began is None else began
        handle = host.start(
            NodeCommand(NodeId(f"n{self.count}"), arguments), lambda node, why: self.exits.put(why)
        )
        self.up(figure, began)
        return handle

    def up(self, figure: str, began: float) -> None:
        connection, _ = self.listener.accept()
        self.note(figure, began)
        with connection, connection.makefile() as stream:
            self.above = int(stream.read().split()[1])

    def stop(self, handle: NodeHandle, figure: str, grace: float) -> None:
        """Stop a node and wait until its host has said that it has ended."""
        began = time.perf_counter()
        handle.stop(grace)
        self.exits.get(timeout=LIMIT)
        self.note(figure, began)

    def note(self, figure: str, began: float) -> None:
        if figure:
            self.values[figure].append(time.perf_counter() - began)
