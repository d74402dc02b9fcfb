"""Nodes as child processes of the launcher."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from elastic.errors import EnvironmentProblem, Refused
from elastic.hosts.base import NodeCommand
from elastic.hosts.child import Child, exit_sentence, python_path
from elastic.machine import limit_reached
from elastic.model.ids import NodeId

log = logging.getLogger(__name__)


class ProcessNode:
    """A node that is a child process. Made by `ProcessHost.start`."""

    def __init__(self, node: NodeId, child: Child, on_exit: Callable[[NodeId, str], None]) -> None:
        self._node = node
        self._child = child
        self._on_exit = on_exit
        self._asked = False
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait, name=f"elastic-node-{node}", daemon=True)
        self._waiter.start()

    @property
    def node(self) -> NodeId:
        return self._node

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._child.pid

    def alive(self) -> bool:
        return not self._ended.is_set()

    def ask(self) -> None:
        """Send SIGTERM, and don't wait."""
        self._asked = True
        self._child.signal(signal.SIGTERM)

    def stop(self, grace: float) -> None:
        """SIGTERM, `grace` seconds, then SIGKILL for its whole process group; its workers die with it.

        Returns when it has ended. Safe to call twice.
        """
        self.ask()
        if not self._ended.wait(max(grace, 0.0)):
            self._child.signal(signal.SIGKILL, group=True)
            self._ended.wait()

    def _wait(self) -> None:
        code = -1
        try:
            code = self._child.wait()
        finally:
            self._ended.set()
        try:
            self._on_exit(self._node, "" if self._asked else exit_sentence(code))
        except Exception:
            log.exception("node %s has ended, and the one who was told of it failed", self._node)


class ProcessHost:
    """Starts each node as a child of this process, in its own session; none outlives this process.

    Args:
        grace: Seconds that `close` gives the nodes to end in order.
    """

    def __init__(self, *, grace: float = 5.0) -> None:
        self._grace = grace
        self._lock = threading.Lock()
        self._nodes: list[ProcessNode] = []
        self._closed = False

    @property
    def kind(self) -> str:
        return "process"

    def start(self, command: NodeCommand, on_exit: Callable[[NodeId, str], None]) -> ProcessNode:
        """Start a node as a child process, by this process's own interpreter.

        Args:
            command: What to run.
            on_exit: Called once, from a thread of its own, when the process has ended: with its exit code or
                signal in a sentence, or with "" when `stop` had been called.

        Raises:
            EnvironmentProblem: The process cannot be started.
            Refused: The host has been closed.
        """
        env = {**os.environ, **command.environment}
        env["PYTHONPATH"] = python_path(env.get("PYTHONPATH", ""))
        with self._lock:
            if self._closed:
                raise Refused(f"node {command.node}: its host has been closed")
            try:
                child = Child((sys.executable, *command.arguments), env, command.log)
            except OSError as error:
                raise EnvironmentProblem(
                    f"node {command.node} cannot be started as a process: {error}",
                    remedy=limit_reached(error, starting=True)
                    or f"see whether {sys.executable} runs and {command.log or 'its log'} can be written",
                ) from error
            handle = ProcessNode(command.node, child, on_exit)
            self._nodes = [n for n in self._nodes if n.alive()] + [handle]
            return handle

    def close(self) -> None:
        """Stop all nodes, all at once. Safe to call twice."""
        with self._lock:
            self._closed = True
            nodes = self._nodes
        for node in nodes:
            node.ask()
        deadline = time.monotonic() + self._grace
        for node in nodes:
            node.stop(deadline - time.monotonic())
