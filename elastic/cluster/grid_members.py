"""Who of the nodes' Hazelcast members is the first one, and where the others are: agreed on in coordination.

Members that start at the same moment and know nothing of each other would found a cluster each. So each node enters first; the node that
entered before all others founds the cluster, and the others wait until somebody is ready, and join.

    /members/entered/<n>   ephemeral, sequential: the node
    /members/ready/<n>     ephemeral, the same number: the member's address
"""

from __future__ import annotations

import contextlib
import threading
import time

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Watch
from elastic.errors import DeadlineExceeded, ElasticError, Unavailable
from elastic.model.ids import NodeId

ENTERED = f"{paths.MEMBERS}/entered"
READY = f"{paths.MEMBERS}/ready"


class GridMembers:
    """The part of one node in this. `leave` and `close` may come from any thread, the rest from one.

    Args:
        coordination: The node's session: with it goes what is said here.
        node: For people.
    """

    def __init__(self, coordination: Coordination, node: NodeId) -> None:
        self._coordination = coordination
        self._node = node
        self._changed = threading.Condition()
        self._changes = 0
        self._name = ""
        self._told = ""
        self._closed = False
        self._watches: list[Watch] = []

    def turn(self, timeout: float) -> tuple[str, ...]:
        """Enter, and wait for the turn of this node.

        Args:
            timeout: Seconds.

        Returns:
            Addresses of members that are ready; none: this one is the first.

        Raises:
            DeadlineExceeded: Nobody is ready in that time.
            Unavailable: Coordination is out of reach, or this was closed.
        """
        if not self._watches:
            self._watches = [
                self._coordination.watch_children(path, lambda _: self._note()) for path in (ENTERED, READY)
            ]
        self._clear()
        if not self._name:
            made = self._coordination.create_sequential(f"{ENTERED}/", self._node.encode())
            self._name = made.rpartition("/")[2]
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                seen = self._changes
            ready = self.ready()
            first = min(self._coordination.children(ENTERED) or (self._name,))
            if ready or first == self._name:
                return ready
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise DeadlineExceeded(
                        f"no Hazelcast member of another node is ready within {timeout:g} s"
                    )
                self._changed.wait_for(lambda: self._closed or self._changes != seen, left)  # noqa: B023
                if self._closed:
                    raise Unavailable("the state store is being ended")

    def ready(self) -> tuple[str, ...]:
        """Addresses of the members of other nodes that are ready, those that have been so for longest first."""
        found = []
        for name in self._coordination.children(READY) or ():
            value = self._coordination.get(f"{READY}/{name}") if name != self._name else None
            if value is not None:
                found.append(value.data.decode())
        return tuple(found)

    def tell_ready(self, address: str) -> None:
        """The member serves. Said once, however often it is called.

        Raises:
            Unavailable: Coordination is out of reach: it is to be called again.
        """
        if self._told != self._name:
            path = f"{READY}/{self._name}"
            if self._coordination.get(path) is None:  # else the answer to an earlier attempt was lost
                self._coordination.create(path, address.encode(), ephemeral=True)
            self._told = self._name

    def leave(self) -> None:
        """The member is no more."""
        self._name = self._told = ""
        with contextlib.suppress(ElasticError):  # before the next turn, or with the session
            self._clear()

    def _clear(self) -> None:
        """Take back what was said of this node's members that are no more, also by an earlier process: others would join them, or
        wait for them."""
        for name in self._coordination.children(ENTERED) or ():
            if name != self._name:
                value = self._coordination.get(f"{ENTERED}/{name}")
                if value is not None and value.data == self._node.encode():
                    for path in (READY, ENTERED):
                        self._coordination.delete(f"{path}/{name}")

    def close(self) -> None:
        """Whoever waits stops to. Safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for watch in self._watches:
            watch.cancel()

    def _note(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
