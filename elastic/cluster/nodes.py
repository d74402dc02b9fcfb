"""Keeps the nodes that run the same as the nodes that are wanted.

    WANTED -> STARTING -> RUNNING -> (ended unasked) -> waits a little -> STARTING with a higher generation
                          RUNNING -> (not wanted any more) -> STOPPING -> gone

What is wanted under the name of one that is being stopped is started when that is gone: both would have the same directory.

Everything here runs as jobs of the launcher's loop; what takes long is done by other threads.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from elastic.cluster.loop import Hand, Loop
from elastic.errors import ElasticError
from elastic.hosts.base import Host, NodeCommand, NodeHandle
from elastic.hosts.generation import of_start
from elastic.model.ids import NodeId
from elastic.model.records import WantedNode

log = logging.getLogger(__name__)

_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Before a node is started again, by how often it ended soon after it had started."""
_HEALTHY = 30.0
"""Seconds after which a start counts as a good one."""
_GRACE = 8.0
"""Seconds that a node has to end where nobody can say how many."""
_LATE = 30.0
"""Seconds beyond its grace until a node that is ended has ended."""


class Watcher(Protocol):
    """Who is told about nodes; on the loop."""

    def node_started(self, node: NodeId, generation: int) -> None: ...
    def node_ended(self, node: NodeId, generation: int, host: str, why: str, failures: int) -> None:
        """It has ended, asked or not; the failures are those in a row. The host is the kind that was wanted of it."""

    def node_failed(self, node: NodeId, error: Exception, failures: int) -> None:
        """It could not be started."""


@dataclass(slots=True)
class _Node:
    wanted: WantedNode
    generation: int
    since: float = 0.0
    failures: int = 0
    handle: NodeHandle | None = None
    starting: bool = False
    ended: str | None = None
    """Why it ended, when that was told before its start was."""


class Nodes:
    """The nodes of one cluster.

    Args:
        loop: Where everything here runs.
        host: The host of a kind; raises `ElasticError` for one that there is not.
        command: What to run as a node, given its name, its generation (the first, where its host makes more) and what is wanted of it.
        watcher: Is told.
        restarts: Whether hosts of a kind start a node again on their own.
        grace: Seconds that a node has to end; asked when one is to, by a thread of its own, or once for all by that of `close`, which
            both wait for the answer before the node is told anything.
    """

    def __init__(
        self,
        loop: Loop,
        host: Callable[[str], Host],
        command: Callable[[NodeId, int, WantedNode], NodeCommand],
        watcher: Watcher,
        restarts: Callable[[str], bool],
        grace: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._host = host
        self._command = command
        self._watcher = watcher
        self._restarts = restarts
        self._grace = grace
        self._nodes: dict[NodeId, _Node] = {}
        self._generations: dict[NodeId, int] = {}
        self._hands: dict[str, Hand] = {}
        self._stopping: dict[threading.Thread, NodeId] = {}
        self._leaving: Counter[NodeId] = Counter()
        """Of each name how many are being stopped, or will be when they have started."""
        self._closed = False

    @property
    def running(self) -> dict[NodeId, int]:
        """The generation of each node that has been started and has not ended."""
        return {n: e.generation for n, e in self._nodes.items() if e.handle is not None}

    @property
    def hands(self) -> tuple[Hand, ...]:
        """The threads that start nodes, one for each kind of host."""
        return tuple(self._hands.values())

    def seen(self, node: NodeId, generation: int) -> None:
        """An earlier life of that node had this generation, at most: those to come have higher ones."""
        self._generations[node] = max(generation, self._generations.get(node, 0))

    def want(self, wanted: Mapping[NodeId, WantedNode]) -> None:
        """Start what is missing, stop what is not wanted."""
        if self._closed:
            return
        # Of one of which another thing is wanted the name was free meanwhile: it is another node.
        for node in [n for n, e in self._nodes.items() if wanted.get(n) != e.wanted]:
            self._stop(node)
        for node, value in wanted.items():
            if node not in self._nodes:
                self._nodes[node] = _Node(value, 0)
                self._start(node)

    def unwanted(self, node: NodeId, generation: int) -> None:
        """That start of a node was not wanted any more when it had ended; others are. One that began since then stays."""
        entry = self._nodes.get(node)
        if entry is not None and entry.generation == generation:
            self._stop(node)

    def close(self) -> None:
        """Stop all, at once, and wait: each node has its grace. Not a job: the loop runs no more."""
        self._closed = True
        grace = self._asked()
        for node in list(self._nodes):
            self._stop(node, grace)
        for thread in list(self._stopping):
            thread.join(grace + _LATE)

    def _start(self, node: NodeId) -> None:
        entry = self._nodes.get(node)
        if entry is None or entry.handle is not None or entry.starting or self._closed or self._leaving[node]:
            return
        entry.starting, entry.ended = True, None
        kind = entry.wanted.host
        ours = of_start(self._generations.get(node, 0), self._restarts(kind))
        entry.generation, self._generations[node] = ours[0], ours[-1]
        hand = self._hands.get(kind)
        if hand is None:
            hand = self._hands[kind] = Hand(self._loop, f"elastic-host-{kind or 'default'}")
        command = self._command(node, entry.generation, entry.wanted)

        def on_exit(_node: NodeId, why: str) -> None:
            self._loop.call(functools.partial(self._ended, node, entry, why))

        hand.do(
            lambda: self._host(kind).start(command, on_exit),
            functools.partial(self._started, node, entry),
            functools.partial(self._failed, node, entry),
        )

    def _started(self, node: NodeId, entry: _Node, handle: NodeHandle) -> None:
        entry.starting = False
        if self._nodes.get(node) is not entry or self._closed:
            self._end(node, handle)
            self._left(node)
            return
        entry.handle, entry.since = handle, time.monotonic()
        self._watcher.node_started(node, entry.generation)
        if entry.ended is not None:
            self._ended(node, entry, entry.ended)

    def _failed(self, node: NodeId, entry: _Node, error: Exception) -> None:
        entry.starting = False
        entry.failures += 1
        if not isinstance(error, ElasticError):
            log.error("node %s cannot be started", node, exc_info=error)
        if self._nodes.get(node) is entry and not self._closed:
            self._watcher.node_failed(node, error, entry.failures)
            self._again(node, entry)
        else:
            self._left(node)

    def _ended(self, node: NodeId, entry: _Node, why: str) -> None:
        if entry.starting:
            entry.ended = why
            return
        entry.handle = None
        if entry.since and time.monotonic() - entry.since > _HEALTHY:
            entry.failures = 0
        entry.failures += 1
        self._watcher.node_ended(node, entry.generation, entry.wanted.host, why, entry.failures)
        self._again(node, entry)

    def _again(self, node: NodeId, entry: _Node) -> None:
        if self._nodes.get(node) is entry and not self._closed:
            pause = _PAUSES[min(entry.failures, len(_PAUSES)) - 1]
            self._loop.call_later(pause, lambda: self._start(node))

    def _stop(self, node: NodeId, grace: float | None = None) -> None:
        entry = self._nodes.pop(node)
        if entry.handle is not None:
            self._end(node, entry.handle, grace)
        elif entry.starting:
            self._leaving[node] += 1

    def _left(self, node: NodeId) -> None:
        self._leaving[node] -= 1
        self._start(node)

    def _asked(self) -> float:
        try:
            return self._grace()
        except Exception:
            log.exception("how long nodes have to end cannot be said")
            return _GRACE  # they are to end all the same

    def _end(self, node: NodeId, handle: NodeHandle, grace: float | None = None) -> None:
        def end() -> None:
            try:
                handle.stop(self._asked() if grace is None else grace)
            except ElasticError as error:
                log.warning("node %s: %s", node, error)
            finally:
                self._loop.call(functools.partial(self._left, node))

        self._leaving[node] += 1
        self._stopping = {t: n for t, n in self._stopping.items() if t.is_alive()}
        thread = threading.Thread(target=end, name=f"elastic-stop-{node}", daemon=True)
        self._stopping[thread] = node
        thread.start()
