"""How much a store may hold: what is used, what is reserved for writes that are to come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from statestore.base import OVERHEAD, Capacity
from statestore.errors import Full

_REMEDY = "Give the store more room (its limit), or store less at once."


class Budget:
    """Bytes of one store. Any thread may call.

    Args:
        limit: Bytes that it may hold.
        name: For messages.
        clock: Seconds, growing.
    """

    def __init__(self, limit: int, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._used = 0
        self._elsewhere = 0
        self._reserved: dict[tuple[str, int], tuple[int, float]] = {}
        self._held_here = 0
        self._soonest = float("inf")
        """No reservation ends before."""

    def take(self, key: str, epoch: int, size: int, *, forced: bool = False) -> None:
        """Count bytes as used: out of the reservation of that write, then out of what is free.

        Args:
            key: Of the write.
            epoch: Of the write.
            size: Bytes.
            forced: They are there already, whether there is room or not.

        Raises:
            Full: There is no room.
        """
        with self._lock:
            have, until = self._reserved.get((key, epoch), (0, 0.0))
            beyond = size - min(have, size)
            free = self._free()
            if beyond > free and not forced:
                raise Full(
                    f"{self._name} has no room for {size} bytes of {key}: {free} of {self.limit} are free",
                    remedy=_REMEDY,
                    needed=size,
                    free=free,
                    limit=self.limit,
                )
            if have:
                self._keep((key, epoch), have - min(have, size), until)
            self._used += size

    def give(self, size: int) -> None:
        """Bytes that are not used any more."""
        with self._lock:
            self._used -= size

    def rebase(self, used: int, elsewhere: int) -> None:
        """Set what is used, where others use the same room, and what they have reserved."""
        with self._lock:
            self._used = used
            self._elsewhere = elsewhere

    def reserved(self, epoch: int) -> int:
        """Bytes that are still reserved for an epoch."""
        with self._lock:
            self._expire()
            return sum(size for (_, of), (size, _) in self._reserved.items() if of == epoch)

    def reserve(self, epoch: int, sizes: Mapping[str, int], seconds: float) -> None:
        """See `StateStore.reserve`. A second one for the same write takes the place of the first."""
        # Pieces cost a little more than their bytes; how many there will be is not known yet.
        wanted = {key: size + size // 64 + 2 * OVERHEAD for key, size in sizes.items()}
        with self._lock:
            held = sum(self._reserved.get((key, epoch), (0, 0.0))[0] for key in wanted)
            needed = sum(wanted.values())
            free = self._free() + held
            if needed > free:
                largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
                shown = ", ".join(f"{key} {size}" for key, size in largest[:5])
                raise Full(
                    f"{self._name} has no room for {needed} bytes of epoch {epoch} ({len(sizes)} states: {shown}"
                    f"{', ...' if len(sizes) > 5 else ''}): {free} of {self.limit} are free",
                    remedy=_REMEDY,
                    needed=needed,
                    free=free,
                    limit=self.limit,
                )
            until = self._clock() + seconds
            for key, size in wanted.items():
                self._keep((key, epoch), size, until)

    def release(self, epoch: int, keys: Iterable[str]) -> None:
        """See `StateStore.release`."""
        with self._lock:
            for key in keys:
                self._drop((key, epoch))

    def capacity(self) -> Capacity:
        """How full it is."""
        with self._lock:
            self._expire()
            return Capacity(self._used, self._held(), self.limit)

    def _free(self) -> int:
        self._expire()
        return max(0, self.limit - self._used - self._held())

    def _held(self) -> int:
        return self._elsewhere + self._held_here

    def _keep(self, owner: tuple[str, int], size: int, until: float) -> None:
        self._drop(owner)
        self._reserved[owner] = (size, until)
        self._held_here += size
        self._soonest = min(self._soonest, until)

    def _drop(self, owner: tuple[str, int]) -> None:
        size, _ = self._reserved.pop(owner, (0, 0.0))
        self._held_here -= size

    def _expire(self) -> None:
        now = self._clock()
        if now < self._soonest:
            return
        for owner in [owner for owner, (_, until) in self._reserved.items() if until <= now]:
            self._drop(owner)
        self._soonest = min((until for _, until in self._reserved.values()), default=float("inf"))
