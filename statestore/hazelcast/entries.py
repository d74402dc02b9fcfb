"""The entries of keys, one small one each, and the manifests that they name."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from statestore.base import Head
from statestore.errors import Damaged, Unavailable
from statestore.hazelcast import heads
from statestore.hazelcast.grid import Grid, Placed
from statestore.hazelcast.heads import Stored, manifest_key
from statestore.records import decode_head

_MANIFESTS = 64
_ATTEMPTS = 200


class Entries:
    """Reads them, and exchanges them by decisions about what was read.

    Args:
        grid: The cluster.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._lock = threading.Lock()
        self._manifests: OrderedDict[Placed, Head] = OrderedDict()

    def read(self, key: str, *, anew: bool = False) -> Stored | None:
        """The entry of a key; None when there is none.

        Args:
            anew: What was lost counts as not there: for whoever writes, and takes nothing from it.

        Raises:
            Lost: There may have been one.
        """
        raw = self._grid.read(key, anew=anew)
        return None if raw is None else heads.decode(key, raw)

    def update(
        self,
        key: str,
        decide: Callable[[Stored | None], Any],
        read: Stored | None = None,
        *,
        anew: bool = False,
    ) -> tuple[Stored | None, Any]:
        """Change the entry of a key by a decision about what was read; both are returned, the same when nothing changed.

        Args:
            decide: What the entry is to be; what it is given when it is to stay.
            read: What was read just now.
            anew: See `read`.
        """
        for _ in range(_ATTEMPTS):
            old = read if read is not None else self.read(key, anew=anew)
            read = None  # only just now
            new = decide(old)
            if new is old:
                return old, new
            raw = new.encode()
            if self._grid.exchange(key, old.raw if old is not None else None, raw):
                return old, replace(new, raw=raw)
        raise Unavailable(f"{key}: too many change it at once")

    def whole(self, stored: Stored) -> Head | None:
        """The committed version with its pieces and meta.

        Raises:
            Damaged: Its manifest is lost, or is not what was written.
        """
        head = stored.record.head
        if head is None:
            return None
        at = manifest_key(stored.places[head.epoch], stored.manifest)
        with self._lock:
            known = self._manifests.get(at)
        if known is not None:
            return known
        raw = self._grid.wait(self._grid.get_piece(at))
        if raw is None:
            now = self.read(head.key)
            if now is None or now.manifest != stored.manifest:
                return self.whole(now) if now is not None else None  # it was replaced meanwhile
            raise Damaged(f"{head.key}: the manifest of its committed version is lost: too few backups")
        found = decode_head(bytes(raw))
        if found.digest != head.digest:
            raise Damaged(f"{head.key}: the manifest of its committed version is damaged")
        self.remember(at, found)
        return found

    def remember(self, at: Placed, head: Head) -> None:
        """What lies there, so that it need not be asked for: it never changes."""
        with self._lock:
            self._manifests[at] = head
            while len(self._manifests) > _MANIFESTS:
                self._manifests.popitem(last=False)
