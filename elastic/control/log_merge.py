"""The logs of several nodes as one stream: a thread per node fills a bounded queue."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence

from elastic.control.ports import LogStream, NodeAccess
from elastic.errors import ElasticError

_log = logging.getLogger(__name__)
_ROOM = 64
Batch = tuple[str, Sequence[tuple[str, str]]]


class LogMerge:
    """Reads the logs of a topology on the nodes that it is told of.

    Args:
        nodes: How they are reached.
        topology: Whose logs.
        worker: One worker, or "" for all.
        follow: Go on with what is added.
    """

    def __init__(self, nodes: NodeAccess, topology: str, worker: str, *, follow: bool) -> None:
        self._nodes = nodes
        self._what = (topology, worker)
        self._follow = follow
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque()
        self._streams: dict[str, LogStream] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._failed: dict[str, ElasticError] = {}
        self._tails: dict[str, int | None] = {}  # node -> how many of its last lines are still to be told

    @property
    def attached(self) -> frozenset[str]:
        """The nodes that are being read."""
        with self._changed:
            return frozenset(self._streams)

    @property
    def done(self) -> bool:
        """Whether all streams have ended and all that they brought was taken."""
        with self._changed:
            return not self._streams and not self._batches

    def failures(self) -> dict[str, ElasticError]:
        """Nodes whose stream has broken since this was asked last, and why."""
        with self._changed:
            found, self._failed = self._failed, {}
            return found

    def attach(self, node: str, address: str, tail: int | None) -> None:
        """Begin to read that node's logs; its last `tail` lines, or all. Of one that was read before, what comes from now on; as the first
        time if it had told nothing yet."""
        with self._changed:
            tail = self._tails.setdefault(node, tail)
        stream = self._nodes.logs(address, *self._what, follow=self._follow, tail=tail)
        thread = threading.Thread(target=self._pump, args=(node, stream), name=f"logs-{node}", daemon=True)
        with self._changed:
            self._streams[node] = stream
            self._threads = [t for t in self._threads if t.is_alive()]
            self._threads.append(thread)
            thread.start()

    def next(self, timeout: float) -> Batch | None:
        """The next (node, lines); None when nothing came within `timeout` seconds, or all streams have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or not self._streams or self._closed, timeout)
            if not self._batches:
                return None
            batch = self._batches.popleft()
            self._changed.notify_all()
            return batch

    def wake(self) -> None:
        """End: `next` returns at once from now on, and readers stop. May be called from any thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """End all streams; their threads have ended when it returns."""
        self.wake()
        with self._changed:
            streams, threads = list(self._streams.values()), list(self._threads)
        for stream in streams:
            stream.close()
        for thread in threads:
            thread.join(5.0)

    def _pump(self, node: str, stream: LogStream) -> None:
        error: ElasticError | None = None
        try:
            for lines in stream:
                with self._changed:
                    self._changed.wait_for(lambda: len(self._batches) < _ROOM or self._closed)
                    if self._closed:
                        return
                    self._batches.append((node, lines))
                    self._tails[node] = 0
                    self._changed.notify_all()
        except ElasticError as e:
            error = e
        finally:
            stream.close()
            with self._changed:
                if error is not None and not self._closed:
                    _log.info("the logs of node %s ended: %s", node, error)
                    self._failed[node] = error
                del self._streams[node]
                self._changed.notify_all()
