"""The state stores of all nodes, as a worker reaches them: found through coordination, and connected to when the first move needs them.

What that takes is imported when the worker starts: beside executors that compute, a thread that imports gets so few turns that the first
move would wait for it ten times as long as it takes. gRPC does not come along; only a store on another machine needs it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import cast

from elastic.cluster import state_write
from elastic.cluster.node_stores import NodeStores
from elastic.cluster.store_ways import store_address
from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.errors import ElasticError
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.ids import NodeId
from elastic.worker.moving.stores import Ahead, Commit, SmallState, StateWrite, StoredState
from statestore.base import State, Ticket


class WorkerStores:
    """The port `elastic.worker.moving.saving.StateStores`.

    Args:
        own: The node of this worker.
    """

    def __init__(self, coordination: Coordination, own: NodeId) -> None:
        self._coordination = coordination
        self._own = own
        self._lock = threading.Lock()
        self._stores: NodeStores | None = None
        self._watches: dict[NodeId, Watch] = {}
        self._known: dict[
            NodeId, str
        ] = {}  # what the watches have said, for as long as nothing else was heard
        self._closed = False

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite:
        """See the port."""
        return self._reached().begin(key, epoch, writer, nodes, size)

    def fetch(
        self,
        key: str,
        epoch: int,
        nodes: Sequence[NodeId],
        ahead: Ahead | None = None,
        most: int | None = None,
    ) -> StoredState:
        """See the port."""
        return self._reached().fetch(key, epoch, nodes, ahead, most)

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        """See the port."""
        self._reached().reserve(epoch, sizes, nodes)

    def commit_many(self, commits: Sequence[Commit]) -> Sequence[int | None]:
        """See the port."""
        return state_write.commit_many(cast("Sequence[state_write.Commit]", commits))

    def save_many(self, states: Sequence[SmallState], nodes: Sequence[NodeId]) -> Sequence[Exception | None]:
        """See the port."""
        made = [State(Ticket(s.key, s.epoch, s.writer), s.pieces, s.meta) for s in states]
        return self._reached().save_many(made, nodes)

    def fetch_many(
        self, wanted: Sequence[tuple[str, int]], nodes: Sequence[NodeId]
    ) -> Sequence[StoredState | Exception]:
        """See the port."""
        return self._reached().fetch_many(wanted, nodes)

    def get_ready(self) -> None:
        """See the port."""
        # The question is in vain; what it takes to ask it is there from then on.
        with contextlib.suppress(ElasticError):
            self._reached().fetch("nothing/0", 1, [self._own])

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        with self._lock:
            self._closed = True
            watches, self._watches = list(self._watches.values()), {}
            stores, self._stores = self._stores, None
        for watch in watches:
            watch.cancel()
        if stores is not None:
            stores.close()

    def _reached(self) -> NodeStores:
        with self._lock:
            if self._stores is None:
                self._stores = NodeStores(self._own, self._address_of)
                if self._closed:
                    self._stores.close()
            return self._stores

    def _address_of(self, node: NodeId) -> str | None:
        with self._lock:
            known = self._known.get(node)
            watched = node in self._watches or self._closed
        if known is not None:
            return known  # not asked for again: it is wanted in the pause of every task
        if not watched:
            heard, said = functools.partial(self._heard, node), functools.partial(self._said, node)
            watch = self._coordination.watch_value(paths.node(node), said, early=heard)
            with self._lock:
                kept = not self._closed and self._watches.setdefault(node, watch) is watch
            if not kept:  # another thread was quicker
                watch.cancel()
        # A node that is wanted and not there is being started again, with the states that it has: it is not gone.
        return store_address(self._coordination, node)

    def _heard(self, node: NodeId) -> None:
        with self._lock:
            self._known.pop(node, None)

    def _said(self, node: NodeId, value: Versioned | None) -> None:
        address = codec.decode(value.data, NodeInfo).store if value is not None else ""
        with self._lock:
            if value is not None:
                self._known[node] = address
            stores = self._stores
        if stores is not None:
            stores.node_said(node, address)
