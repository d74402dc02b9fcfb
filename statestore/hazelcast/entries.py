"""The entries of keys, one small one each, and the manifests that they name."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from statestore.base import Head
from statestore.errors import Damaged, Lost, Unavailable
from statestore.hazelcast import heads
from statestore.hazelcast.grid import Grid
from statestore.hazelcast.heads import Stored, manifest_key
from statestore.records import decode_head

_MANIFESTS = 64
_ATTEMPTS = 200

_Version = tuple[str, int, int, str, str]


class Entries:
    """Reads them, and exchanges them by decisions about what was read.

    Args:
        grid: The cluster.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._lock = threading.Lock()
        self._manifests: OrderedDict[_Version, Head] = OrderedDict()

    def read(self, key: str, *, anew: bool = False, expected: bool = True) -> Stored | None:
        """The entry of a key; None when there is none.

        Args:
            anew: What was lost counts as not there: for whoever writes, and takes nothing from it.
            expected: Whether there is one, most likely: see `Grid.read`.

        Raises:
            Lost: There may have been one.
        """
        raw = self._grid.read(key, anew=anew, expected=expected)
        return None if raw is None else heads.decode(key, raw)

    def update(
        self,
        key: str,
        decide: Callable[[Stored | None], Any],
        read: Stored | None = None,
        *,
        anew: bool = False,
        expected: bool = True,
    ) -> tuple[Stored | None, Any]:
        """Change the entry of a key by a decision about what was read; both are returned, the same when nothing changed.

        Args:
            decide: What the entry is to be; what it is given when it is to stay.
            read: What it was, as far as is known: read again when it is not any more.
            anew: See `read`.
            expected: See `read`.
        """
        for _ in range(_ATTEMPTS):
            old = read if read is not None else self.read(key, anew=anew, expected=expected)
            read = None  # only once
            new = decide(old)
            if new is old:
                return old, new
            raw = new.encode()
            if self._grid.exchange(key, old.raw if old is not None else None, raw):
                return old, replace(new, raw=raw)
        raise Unavailable(f"{key}: too many change it at once")

    def committed(self, key: str) -> tuple[Stored, Head] | None:
        """The entry of a key, with its committed version.

        Raises:
            Damaged: The version's manifest is not what was written.
            Lost: It is gone: members died, and too few had backups.
        """
        stored = self.read(key)
        while stored is not None and stored.record.head is not None:
            found = self._manifest(stored)
            if found is not None:
                return stored, found
            now = self.read(key)
            if now is not None and now.manifest == stored.manifest:
                raise Lost(f"{key}: the manifest of its committed version is lost: too few backups")
            stored = now  # it was replaced meanwhile
        return None

    def whole(self, stored: Stored) -> Head | None:
        """The committed version with its pieces and meta; a later one if it was replaced meanwhile.

        Raises:
            Damaged, Lost: As for `committed`.
        """
        if stored.record.head is None:
            return None
        found = self._manifest(stored)
        if found is not None:
            return found
        later = self.committed(stored.record.head.key)
        return None if later is None else later[1]

    def readable(self, stored: Stored) -> Head | None:
        """The same for whoever writes: None also when it is lost, which keeps nobody from writing anew."""
        try:
            return self.whole(stored)
        except (Damaged, Lost):
            return None

    def _manifest(self, stored: Stored) -> Head | None:
        """The committed version as its manifest says it; None when that is not there (any more)."""
        head = stored.record.head
        assert head is not None
        with self._lock:
            known = self._manifests.get(_version(head))
        if known is not None:
            return known
        raw = stored.inline
        if not raw:
            at = manifest_key(stored.places[head.epoch], stored.manifest)
            there = self._grid.wait(self._grid.get_piece(at))
            if there is None:
                return None
            raw = bytes(there)
        found = decode_head(raw)
        if found.digest != head.digest:
            raise Damaged(f"{head.key}: the manifest of its committed version is damaged")
        self.remember(found)
        return found

    def remember(self, head: Head) -> None:
        """A version, so that its manifest need not be read: it never changes."""
        with self._lock:
            self._manifests[_version(head)] = head
            while len(self._manifests) > _MANIFESTS:
                self._manifests.popitem(last=False)


def _version(head: Head) -> _Version:
    return head.key, head.epoch, head.sequence, head.writer, head.digest
