"""What a worker needs of the nodes' state stores."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from elastic.migration.plan import AHEAD
from elastic.model.ids import NodeId

SMALL = AHEAD
"""Bytes of a state up to which it goes together with others: nothing of it is copied ahead."""

GROWN = 1 << 20
"""Bytes of a state that was small when its room was asked for, and goes by itself after all."""
LOT = 128
"""Small states that are worked off together, at most: the first of them does not wait for too many."""

Nodes = tuple[NodeId, ...]
"""Those whose stores are meant."""
Name = tuple[int, int, int, int]
"""What tells a piece of a large state from all others."""


class StateWrite(Protocol):
    """One task's state on its way to some nodes' stores: `elastic.cluster.node_stores.StateWrite`."""

    def put(self, data: bytes) -> int: ...
    def named(self, numbers: Sequence[int]) -> Sequence[Name]:
        """What tells each of these pieces from all others: `StoredState.named`, once they are committed."""

    def commit(self, numbers: Sequence[int], meta: bytes = b"") -> int: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


Commit = tuple[StateWrite, Sequence[int], bytes]
"""A write, and the arguments of its `commit`."""


class StoredState(Protocol):
    """A state as it was committed."""

    @property
    def meta(self) -> bytes: ...
    @property
    def named(self) -> Sequence[Hashable]:
        """What tells each piece from all others of that state."""

    @property
    def pieces(self) -> Sequence[bytes]: ...
    @property
    def more(self) -> int:
        """Bytes of those that are not among these, where these are only the first pieces."""


@dataclass(frozen=True, slots=True)
class SmallState:
    """A state that is saved together with others.

    Attributes:
        key: See `state_key`.
        writer: The old side's incarnation.
    """

    key: str
    epoch: int
    writer: str
    pieces: tuple[bytes, ...]
    meta: bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.pieces)) + len(self.meta)


Ahead = Mapping[Any, bytes]
"""Pieces that are here already, by name: what stands for each of them in the answer."""


class StateStores(Protocol):
    """The nodes' state stores: `elastic.cluster.node_stores.NodeStores`. `NotFound` from `fetch`: no store has it, for certain."""

    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite: ...
    def fetch(
        self,
        key: str,
        epoch: int,
        nodes: Sequence[NodeId],
        ahead: Ahead | None = None,
        most: int | None = None,
    ) -> StoredState:
        """What is committed now: while it is still being written, a part of it.

        Args:
            ahead: What is here already.
            most: About so many bytes of the others at a time, where it makes a difference; what comes first in the state first.
        """

    def get_ready(self) -> None:
        """A task is about to come: what has to be loaded and connected for `fetch` is not left to its pause."""

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        """Keep room for small states (bytes by key) in all of these nodes' stores, or raise."""

    def commit_many(self, commits: Sequence[Commit]) -> Sequence[int | None]:
        """`commit` of several writes at once. For each in order: what it returns; None: it is to be done by itself."""

    def save_many(self, states: Sequence[SmallState], nodes: Sequence[NodeId]) -> Sequence[Exception | None]:
        """For each state in order: None when every node has confirmed it, else why not."""

    def fetch_many(
        self, wanted: Sequence[tuple[str, int]], nodes: Sequence[NodeId]
    ) -> Sequence[StoredState | Exception]:
        """For each (key, epoch) in order: the state, or what `fetch` would raise."""
