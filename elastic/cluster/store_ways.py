"""Whom to ask when something is to be done at nodes' state stores: connections by address, who is away, who serves in whose place.

Clients are kept for each address, and closed when the address is not a node's any more, or by `close`. Of nodes whose stores stand
before the same cluster (a *group*) one is as good as another: what is stored lies with the cluster.

Which node is *gone* is for `address_of` to say, by None: a state that only nodes hold that are gone is lost. A node that is wanted and
just not there (it is being started again, with its files) is "": `store_address` knows the difference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from elastic.cluster.store_ends import FarWay, NearWay, Way
from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.errors import NotFound, Unavailable
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.ids import NodeId
from statestore.address import StoreAddress

_LOOK = 1.0
"""Seconds until `address_of` is asked again by somebody who was not told of a change."""


def store_address(coordination: Coordination, node: NodeId) -> str | None:
    """Where a node's store answers, for `NodeStores`: "" while it has none, None when the node is not even wanted any more.

    Raises:
        NotConnected, SessionExpired: Nothing is known.
    """
    entry = coordination.get(paths.node(node))
    if entry is not None:
        return codec.decode(entry.data, NodeInfo).store
    return "" if coordination.get(paths.wanted(node)) is not None else None


class StoreWays:
    """See the top of this module. Any thread may call.

    Args:
        own: The node that this process runs on; its store is asked first.
        address_of: `NodeInfo.store` of a node as known now, "" while there is none; None: the node is gone for good.
        patience: Seconds that a call may stand still, and that the store of a node is waited for.
    """

    def __init__(
        self, own: NodeId | None, address_of: Callable[[NodeId], str | None], patience: float
    ) -> None:
        self._own = own
        self._address_of = address_of
        self._patience = patience
        self._changed = threading.Condition()
        self._ways: dict[str, Way] = {}
        self._addresses: dict[NodeId, str] = {}
        self._away: set[NodeId] = set()
        self._changes = 0
        self._closed = False

    def nodes_changed(self) -> None:
        """What `address_of` says has changed: whoever waits for a node's store looks again. May be left out."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def node_said(self, node: NodeId, address: str) -> None:
        """Of one node, what `address_of` says now: see `nodes_changed`. May be left out.

        When a node's store has ended, and another one before the same cluster serves, calls to it that are under way end, and go to
        that one: what they bring lies with the cluster. Others wait for it to be started again, with the files that it has.
        """
        ended: Way | None = None
        with self._changed:
            self._away -= {node}
            if not address:
                self._away.add(node)
                if self._serving_for(node) is not None:
                    ended = self._ways.pop(self._addresses[node], None)
        if ended is not None:
            ended.close()
        self.nodes_changed()

    def to(self, node: NodeId) -> Way:
        """The way to a node's store, which is waited for a little.

        Raises:
            NotFound: The node is gone.
            Unavailable: It has no store.
        """
        until = time.monotonic() + self._patience
        while True:
            with self._changed:
                seen = self._changes
            address = self._address_of(node)  # it may ask coordination: not with the lock
            if address is None:
                raise NotFound(f"node {node} is gone")
            with self._changed:
                if not self._closed and address:
                    return self._way_by(node, address)
                left = until - time.monotonic()
                if self._closed:
                    raise Unavailable("the connections to state stores are closed")
                if left <= 0:
                    raise Unavailable(f"node {node} has no state store that answers")
                self._changed.wait_for(lambda: self._closed or self._changes != seen, min(left, _LOOK))  # noqa: B023

    def to_all(self, nodes: Sequence[NodeId]) -> dict[NodeId, Way]:
        """The ways to several nodes' stores. Of those before the same cluster one is enough, that of the own node if it is among
        them: what is stored lies with its member."""
        ways: dict[NodeId, Way] = {}
        groups: set[str] = set()
        for node in self._needed(sorted(dict.fromkeys(nodes), key=lambda n: n != self._own)):
            way = self.to(node)
            group = self._group(node)
            if not group or group not in groups:
                ways[node] = way
                groups.add(group)
        return ways

    def order(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Whose stores are asked for a state, one after the other."""
        others = [n for n in dict.fromkeys(nodes) if n != self._own]
        if self._own is None:
            return others
        # When its store stands before a cluster it holds what others have stored; one that is being started again is waited for last.
        serves = True
        with contextlib.suppress(Unavailable):  # who asks it is told
            serves = not others or self._address_of(self._own) != ""
        return [self._own, *others] if self._own in nodes and serves else [*others, self._own]

    def shared(self, node: NodeId) -> bool:
        """Whether its store stands before a cluster that others can be asked for as well."""
        address = self._address_of(node)
        return bool(address and StoreAddress.parse(address).group)

    def instead(self, node: NodeId, way: Way) -> tuple[NodeId, Way] | None:
        """Whom to ask in the place of a node's store that has ended; None when it has not, or there is nobody."""
        with self._changed:
            if self._closed or self._ways.get(self._addresses.get(node, "")) is way:
                return None
            other = self._serving_for(node)
            return None if other is None else (other, self._way_by(other, self._addresses[other]))

    def close(self) -> None:
        """Let go of everything; calls that are under way end with `Unavailable`. Safe to call twice."""
        with self._changed:
            self._closed = True
            ways = list(self._ways.values())
            self._ways.clear()
            self._changed.notify_all()
        for way in ways:
            way.close()

    # ------------------------------------------------------------------ with whom

    def _needed(self, nodes: list[NodeId]) -> list[NodeId]:
        """Where a store is being started again: without it when another one of these stands before the same cluster and serves, else
        with one of another node that does, as far as one is known."""
        with self._changed:
            known = {n: self._addresses[n] for n in nodes if n in self._addresses}
        groups = {n: group for n, text in known.items() if (group := StoreAddress.parse(text).group)}
        away = [n for n in groups if self._address_of(n) == ""]
        serving = {groups[n] for n in groups if n not in away}
        needed = []
        for node in nodes:
            if node not in away:
                needed.append(node)
            elif groups[node] not in serving:
                with self._changed:
                    self._away.add(node)
                    other = self._serving_for(node)
                needed.append(other or node)
        return list(dict.fromkeys(needed))

    def _group(self, node: NodeId) -> str:
        """Of a node that there is a way to."""
        return StoreAddress.parse(self._addresses[node]).group

    def _serving_for(self, node: NodeId) -> NodeId | None:
        """Another node whose store stands before the same cluster, and serves as far as is known. With the lock."""
        known = {n: StoreAddress.parse(text).group for n, text in self._addresses.items()}
        group = known.get(node, "")
        return next((n for n, g in sorted(known.items()) if g and g == group and n not in self._away), None)

    def _way_by(self, node: NodeId, text: str) -> Way:
        former = self._addresses.get(node)
        self._addresses[node] = text
        self._away.discard(node)
        if former is not None and former != text and former not in self._addresses.values():
            old = self._ways.pop(former, None)
            if old is not None:
                old.close()
        way = self._ways.get(text)
        if way is None:
            address = StoreAddress.parse(text)
            near = address.near
            way = NearWay(address.unix, self._patience) if near else FarWay(address.tcp, self._patience)
            self._ways[text] = way
        return way
