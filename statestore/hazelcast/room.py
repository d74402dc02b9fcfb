"""How full the cluster is: what all stores have committed, what this one is writing, what all have reserved.

Hazelcast has no limit that refuses: too much kills the members. So every store counts, and reservations stand in one entry of
the cluster, changed by exchange, so that two stores don't give away the same room.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from statestore.base import Capacity
from statestore.budget import Budget
from statestore.errors import Full, Unavailable
from statestore.hazelcast import heads
from statestore.hazelcast.grid import Grid

_ENTRY = "\0reserved"
_ATTEMPTS = 200
_LOOKS = 5
"""Times at most that it is looked again because a write has ended meanwhile."""


class _Reserved(msgspec.Struct, array_like=True):
    """Nonce; "store|epoch" -> (bytes, until when: seconds of the wall clock)."""

    nonce: str
    each: dict[str, tuple[int, float]]


class Room:
    """Room of one store in the cluster.

    Args:
        grid: The cluster.
        limit: Bytes for all stores together, given how many members there are.
        name: Of this store, among those of the cluster.
        open_size: Bytes that are put and not committed through this store.
        later: Has something done that nobody waits for.
    """

    def __init__(
        self,
        grid: Grid,
        limit: Callable[[int], int],
        name: str,
        open_size: Callable[[], int],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._grid = grid
        self._name = name
        self._open_size = open_size
        self._later = later
        self._limit = limit
        self._budget = Budget(limit(grid.members()), f"the Hazelcast cluster {grid.name}")
        self._lock = threading.Lock()
        self._epochs: set[int] = set()
        self._settled = 0  # how many writes have ended

    def take(self, key: str, epoch: int, size: int) -> None:
        """See `Budget.take`; looks anew at what others hold before it refuses."""
        try:
            self._budget.take(key, epoch, size)
        except Full:
            self.refresh()
            self._budget.take(key, epoch, size)

    def give(self, size: int) -> None:
        """Bytes that were taken, and not used."""
        self._budget.give(size)

    def settle(self, key: str, epoch: int, held: int, committed: int) -> None:
        """A write has ended. The cluster is told a little later of what was reserved for it, and counts it twice until then.

        Args:
            key: Of the write.
            epoch: Of the write.
            held: Bytes that were taken for it.
            committed: By how many bytes what is committed has grown.
        """
        self._budget.give(held - committed)
        self._budget.release(epoch, [key])
        with self._lock:
            self._settled += 1
            ended = self._ended([epoch])
        if ended:
            self._later(self._tell)

    def refresh(self) -> None:
        """Count what is committed, and what others have reserved; and the members, which may have become more."""
        self._budget.limit = self._limit(self._grid.members())
        mine = f"{self._name}|"
        for _ in range(_LOOKS):
            with self._lock:
                settled = self._settled
            put = self._open_size()
            committed = 0
            for key, raw in self._grid.entries():
                head = heads.decode(key, raw).record.head
                committed += head.size if head is not None else 0
            elsewhere = sum(
                size for who, (size, _) in self._reservations()[1].each.items() if not who.startswith(mine)
            )
            # What is committed between both looks is in neither, or in both.
            self._budget.rebase(committed + max(put, self._open_size()), elsewhere)
            with self._lock:
                if settled == self._settled:
                    break
        with self._lock:
            ended = self._ended(self._epochs)
        if ended:  # and the cluster was not told, or the time of their reservations is over
            self._later(self._tell)

    def later_refresh(self) -> None:
        """What is counted may not be so: it is looked at, by somebody who has the time."""
        self._later(self.refresh)

    def capacity(self) -> Capacity:
        """As of the last refresh."""
        return self._budget.capacity()

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float) -> None:
        """See `StateStore.reserve`."""
        for _ in range(_ATTEMPTS):
            raw, now = self._reservations()
            self.refresh()
            self._budget.reserve(epoch, sizes, seconds)
            with self._lock:
                self._epochs.add(epoch)
            now.each[f"{self._name}|{epoch}"] = (self._budget.reserved(epoch), time.time() + seconds)
            if self._exchange(raw, now):
                return
            self._budget.release(epoch, sizes)  # somebody else has reserved meanwhile
        raise Unavailable("too many reserve room at once")

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        """See `StateStore.release`. The cluster is told when nothing is left of an epoch."""
        self._budget.release(epoch, keys)
        self._tell()

    def _ended(self, epochs: Iterable[int]) -> set[int]:
        """Those of which the cluster knows, and for which nothing is reserved any more. With the lock."""
        return {e for e in epochs if e in self._epochs and not self._budget.reserved(e)}

    def _tell(self) -> None:
        """The cluster, of epochs that have ended. What it cannot be told now it is told with the next ones, or at the next look."""
        with self._lock:
            ended = self._ended(self._epochs)
            self._epochs -= ended  # whoever reserves for one of them from now on puts it back
        try:
            for _ in range(_ATTEMPTS):
                raw, now = self._reservations()
                # Looked at again: what was reserved meanwhile may be in what was read. What is reserved from now on lets the exchange fail.
                ended = {e for e in ended if not self._budget.reserved(e)}
                told = [now.each.pop(f"{self._name}|{e}", None) for e in ended]
                if raw is None or not any(told) or self._exchange(raw, now):
                    ended = set()
                    return
        finally:
            with self._lock:
                self._epochs |= ended

    def _reservations(self) -> tuple[bytes | None, _Reserved]:
        raw = self._grid.read(_ENTRY, anew=True)
        if raw is None:
            return None, _Reserved("", {})
        found = msgspec.msgpack.decode(raw, type=_Reserved)
        now = time.time()
        found.each = {who: value for who, value in found.each.items() if value[1] > now}
        return raw, found

    def _exchange(self, old: bytes | None, new: _Reserved) -> bool:
        new.nonce = secrets.token_hex(8)
        return self._grid.exchange(_ENTRY, old, msgspec.msgpack.encode(new))
