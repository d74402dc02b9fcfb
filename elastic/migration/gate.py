"""The one gate for what comes too late. No handler repeats the check."""

from __future__ import annotations

from collections.abc import Hashable

Stamp = tuple[int, ...]


class Gate:
    """Remembers the newest stamp of each key, and admits nothing older.

    A stamp is an epoch, an epoch with an attempt, or the number of a view: whatever only grows. Keys are few, a task in a role, and
    stay: nobody knows how late something may come.
    """

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: dict[Hashable, Stamp] = {}

    def admits(self, key: Hashable, stamp: Stamp) -> bool:
        """Whether that is not older than anything admitted under the key; remembers it if so."""
        newest = self._newest.get(key)
        if newest is not None and stamp < newest:
            return False
        self._newest[key] = stamp
        return True

    def close(self, key: Hashable, stamp: Stamp) -> None:
        """From now on nothing with that stamp is admitted either."""
        self.admits(key, (*stamp, 1))
