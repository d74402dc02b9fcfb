"""Watches the nodes that hosts start in tests, from outside: who they are, and whether they and theirs have ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elastic.hosts.base import NodeCommand
from elastic.model.ids import NodeId

NODE = Path(__file__).with_name("hosts_node.py")
SECONDS = 120.0


@dataclass
class Running:
    """A node's process and its child, as it said itself; handles keep their numbers from meaning anybody else."""

    pid: int
    parent: int
    child: int
    generation: int
    executable: str
    environment: dict[str, str]
    handles: dict[int, int] = field(default_factory=dict)

    def gone(self, seconds: float = SECONDS) -> bool:
        """Whether the process and its child have ended; waits so long for it."""
        return all(select.select([handle], [], [], seconds)[0] for handle in self.handles.values())

    def kill(self, number: int = signal.SIGKILL) -> None:
        signal.pidfd_send_signal(self.handles[self.pid], number)


@dataclass
class Nodes:
    """Where nodes report."""

    listener: socket.socket
    path: str
    folder: Path
    seen: list[Running] = field(default_factory=list)

    def command(self, node: str, *options: str, **environment: str) -> NodeCommand:
        arguments = (str(NODE), self.path, *options)
        return NodeCommand(NodeId(node), arguments, environment, str(self.log(node)))

    def log(self, node: str) -> Path:
        return self.folder / f"{node}.log"

    def next(self) -> Running:
        """The next node that comes up."""
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as stream:
            running = Running(**json.loads(stream.read()))
        for pid in (running.pid, running.child):
            with contextlib.suppress(ProcessLookupError):  # then it has ended
                running.handles[pid] = os.pidfd_open(pid)
        self.seen.append(running)
        return running

    def close(self) -> None:
        self.listener.close()
        for running in self.seen:
            for handle in running.handles.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                os.close(handle)


@contextmanager
def nodes(folder: Path) -> Iterator[Nodes]:
    """A place where nodes report; at the end, whatever of them still runs is killed."""
    assert sys.platform == "linux"
    listener = socket.socket(socket.AF_UNIX)
    path = folder / "nodes"
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(SECONDS)
    result = Nodes(listener, str(path), folder)
    try:
        yield result
    finally:
        result.close()


class Exits:
    """An `on_exit` that can be waited for."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def __call__(self, node: NodeId, reason: str) -> None:
        self.queue.put((node, reason))

    def next(self) -> tuple[str, str]:
        return self.queue.get(timeout=SECONDS)
