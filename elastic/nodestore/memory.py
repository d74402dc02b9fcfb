"""A node store in memory, for one process: tests, and `LocalCluster`.

Stores with the same directory name are the same store, as with the real one. Nothing is durable.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

from elastic.errors import NotFound, Refused
from elastic.nodestore.base import Entry

KEEP = 50


class _Shared:
    """What a writer and its readers share."""

    def __init__(self, keep: int) -> None:
        self.lock = threading.Lock()
        self.values: dict[str, deque[Entry]] = {}
        self.keep = keep
        self.written = False


_stores: dict[str, _Shared] = {}
_guard = threading.Lock()


def _name(directory: str | os.PathLike[str]) -> str:
    return str(Path(directory).absolute())


class MemoryReader:
    """See `elastic.nodestore.base.NodeStoreReader`."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared

    def latest(self, key: str) -> Entry | None:
        with self._shared.lock:
            entries = self._shared.values.get(key)
            return entries[-1] if entries else None

    def history(self, key: str, limit: int = 20) -> tuple[Entry, ...]:
        with self._shared.lock:
            return tuple(reversed(self._shared.values.get(key, ())))[:limit]

    def keys(self) -> tuple[str, ...]:
        with self._shared.lock:
            return tuple(sorted(self._shared.values))

    def close(self) -> None:
        pass


class MemoryWriter(MemoryReader):
    """See `elastic.nodestore.base.NodeStore`."""

    def __init__(self, shared: _Shared) -> None:
        super().__init__(shared)
        self._open = True

    def append(self, key: str, data: bytes) -> int:
        if not self._open:
            raise Refused(f"node store: closed, {key!r} cannot be written")
        with self._shared.lock:
            entries = self._shared.values.setdefault(key, deque(maxlen=self._shared.keep))
            version = entries[-1].version + 1 if entries else 1
            entries.append(Entry(version, bytes(data)))
            return version

    def forget(self, key: str) -> None:
        if not self._open:
            raise Refused(f"node store: closed, {key!r} cannot be removed")
        with self._shared.lock:
            self._shared.values.pop(key, None)

    def close(self) -> None:
        with _guard:
            if self._open:
                self._open = False
                self._shared.written = False


def open_writer(directory: str | os.PathLike[str], *, keep: int = KEEP) -> MemoryWriter:
    """The one writer of the store of that name; makes the store.

    Args:
        keep: How many versions of a key are kept.

    Raises:
        Refused: It is open for writing already.
    """
    with _guard:
        shared = _stores.setdefault(_name(directory), _Shared(keep))
        if shared.written:
            raise Refused(
                f"node store {_name(directory)} is open for writing elsewhere",
                remedy="a node has one supervisor: end the other one first",
            )
        shared.written = True
        shared.keep = keep
    return MemoryWriter(shared)


def open_reader(directory: str | os.PathLike[str]) -> MemoryReader:
    """A reader of the store of that name.

    Raises:
        NotFound: No such store was made.
    """
    with _guard:
        shared = _stores.get(_name(directory))
    if shared is None:
        raise NotFound(f"there is no node store in {_name(directory)}")
    return MemoryReader(shared)


def drop(directory: str | os.PathLike[str]) -> None:
    """Forget the whole store of that name."""
    with _guard:
        _stores.pop(_name(directory), None)
