"""How a store uses a Hazelcast cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LIMIT = 128 << 20
"""Bytes that all stores together may hold, when nothing else is said: for two members with 512 MB and a backup."""
PART = 4
"""What is stored, with its backups, is one of so many parts of a heap at most."""


@dataclass(frozen=True, slots=True)
class HazelcastOptions:
    """How a store uses a cluster.

    Attributes:
        members: `host:port` of some members.
        cluster: Its name.
        local: `host:port` of the member of this node, on whose partitions pieces are put; "" for any.
        backups: Synchronous backups that the members are set to keep of pieces.
        foreign: Whether somebody else runs the members, and set them: they are asked how they keep what is stored. Then
            `backups` is what they must be set to at least.
        limit: Bytes that all stores together may hold in the cluster. Hazelcast itself dies of too much: stay below half of
            all members' heaps, divided by one more than the backups.
        heap: Bytes of each member's heap: then `limit` follows from that and from how many members there are; 0: it is as it is said.
        incarnation: What the cluster is called when it has no name yet, and must be called; "" to make one up.
        directory: Where the store remembers which cluster it saw; None to remember nothing.
    """

    members: tuple[str, ...]
    cluster: str = "statestore"
    local: str = ""
    backups: int = 1
    foreign: bool = False
    limit: int = LIMIT
    heap: int = 0
    incarnation: str = ""
    directory: Path | None = None

    def limit_of(self, members: int) -> int:
        """Bytes for all stores together, with so many members: no more backups are kept than there are other members."""
        if not self.heap:
            return self.limit
        members = max(1, members)
        return self.heap * members // (PART * min(1 + self.backups, members))
