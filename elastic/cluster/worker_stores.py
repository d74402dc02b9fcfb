"""The state stores of all nodes, as a worker reaches them: found through coordination, and connected to when the first move needs them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.errors import ElasticError
from elastic.model.ids import NodeId
from elastic.worker.saving import StateWrite, StoredState

if TYPE_CHECKING:
    from elastic.cluster.node_stores import NodeStores


class WorkerStores:
    """The port `elastic.worker.saving.StateStores`.

    Args:
        own: The node of this worker.
    """

    def __init__(self, coordination: Coordination, own: NodeId) -> None:
        self._coordination = coordination
        self._own = own
        self._lock = threading.Lock()
        self._stores: NodeStores | None = None
        self._watches: dict[NodeId, Watch] = {}
        self._closed = False

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite:
        """See the port."""
        return self._reached().begin(key, epoch, writer, nodes, size)

    def fetch(self, key: str, epoch: int, nodes: Sequence[NodeId]) -> StoredState:
        """See the port."""
        return self._reached().fetch(key, epoch, nodes)

    def get_ready(self) -> None:
        """See the port."""
        with contextlib.suppress(
            ElasticError
        ):  # the question is in vain; what it takes to ask it is there from then on
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
        # Here, because it brings gRPC along: a worker that takes part in no move does without.
        from elastic.cluster.node_stores import NodeStores

        with self._lock:
            if self._stores is None:
                self._stores = NodeStores(self._own, self._address_of)
                if self._closed:
                    self._stores.close()
            return self._stores

    def _address_of(self, node: NodeId) -> str | None:
        with self._lock:
            watched = node in self._watches or self._closed
        if not watched:
            watch = self._coordination.watch_value(paths.node(node), self._changed)
            with self._lock:
                self._watches[node] = watch
        from elastic.cluster.node_stores import store_address

        # A node that is wanted and not there is being started again, with the states that it has: it is not gone.
        return store_address(self._coordination, node)

    def _changed(self, _: Versioned | None) -> None:
        with self._lock:
            stores = self._stores
        if stores is not None:
            stores.nodes_changed()
