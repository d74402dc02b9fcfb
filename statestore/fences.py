"""The file of fences: for each key, up to which epoch writers are refused, and up to which everything was deleted.

A file of records (`statestore.records`) that is appended to. It is written anew when more than half of it is dead, and when fences are
forgotten. What is torn at its end is cut off; what is damaged before that is told.

Beside it lies a file that only takes room: where the disk is full, that is given to the fence of what is deleted, which gives back far
more.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from statestore import files
from statestore.errors import Full, Missing, StateStoreError, Unavailable
from statestore.records import ABORTED, DELETED, NO_FENCE, Fence, record, scan

_NAME = "fences"
_SLACK = 1024
_ROOM = 64 << 10


class Fences:
    """The fences of a store. Any thread may call.

    Args:
        directory: Where the file is.
        sync: Whether each change waits for the disk.
    """

    def __init__(self, directory: Path, *, sync: bool = False) -> None:
        self._directory = directory
        self._path = directory / _NAME
        self._made = directory / f"{_NAME}.new"
        self._sync = sync
        self._lock = threading.Lock()
        self._fences: dict[str, Fence] = {}
        self._records = 0
        self._live = 0
        self._length = 0
        self._let_go: set[str] = set()
        self._closed = False
        self._file = files.open_file(self._path)
        self._room = directory / f"{_NAME}.room"
        self._has_room = self._keep_room()

    def load(self) -> Mapping[str, Fence]:
        """What earlier processes left, by keys.

        Raises:
            Missing: It is damaged.
        """
        found = scan(self._path.read_bytes())
        if found.damage:
            raise Missing(
                f"{self._path}: {found.damage}",
                remedy="Which states are gone cannot be told any more: remove the directory to begin without any.",
            )
        os.ftruncate(self._file, found.length)
        for key, epoch, deleted in found.fences:
            self._put(key, epoch, deleted)
        self._records, self._length = len(found.fences), found.length
        return self._fences

    def ended(self, key: str, epoch: int, *, deleted: bool) -> None:
        """See `statestore.journal.Journal`. Nothing of it stays when it raises."""
        parts = _part(key, epoch, deleted)
        with self._lock:
            self._check()
            try:
                self._append(parts)
            except Full:
                if not self._has_room:
                    raise
                self._room.unlink(missing_ok=True)
                self._has_room = False
                self._append(parts)
            else:
                self._has_room = self._has_room or self._keep_room()
            self._length += sum(map(len, parts))
            self._put(key, epoch, deleted)
            self._let_go.discard(key)
            self._records += 1
            if self._records > 2 * self._live + _SLACK:
                with contextlib.suppress(OSError, StateStoreError):  # the old file says the same
                    self._rewrite(self._fences)

    def let_go(self, key: str) -> None:
        """Its fence is too old to be kept: `forget` removes it, unless it has a newer one by then."""
        with self._lock:
            self._let_go.add(key)

    def forget(self, keys: Collection[str]) -> None:
        """Remove those fences that have been let go, and those that could not be removed before. All stay when it raises."""
        with self._lock:
            if self._let_go.isdisjoint(keys):
                return
            self._check()
            left = {key: fence for key, fence in self._fences.items() if key not in self._let_go}
            self._rewrite(left)
            self._fences, self._live = left, self._records
            self._let_go.clear()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._closed = True
            os.close(self._file)

    def _check(self) -> None:
        if self._closed:
            raise Unavailable("the state store is closed")

    def _append(self, parts: list[bytes]) -> None:
        try:
            files.write(self._file, parts, self._path)
            if self._sync:
                files.flush(self._file, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._length)  # what is half written must not stand before more
            raise

    def _keep_room(self) -> bool:
        """Take room for when the disk is full. Returns whether there is some."""
        if not hasattr(os, "posix_fallocate"):
            return False
        try:
            file = os.open(self._room, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(file, 0, _ROOM)
            finally:
                os.close(file)
        except OSError:  # it is full already, or too many files are open
            with contextlib.suppress(OSError):
                self._room.unlink(missing_ok=True)
            return False
        return True

    def _put(self, key: str, epoch: int, deleted: bool) -> None:
        before = self._fences.pop(key, NO_FENCE)  # the oldest stand first
        fence = self._fences[key] = before.joined(epoch, deleted=deleted)
        self._live += _records(fence) - _records(before)

    def _rewrite(self, fences: Mapping[str, Fence]) -> None:
        parts = [part for key, fence in fences.items() for part in _parts(key, fence)]
        data = b"".join(parts)
        self._made.unlink(missing_ok=True)
        file = files.open_file(self._made)
        try:
            files.write(file, [data], self._made)
            if self._sync:
                files.flush(file, self._made)
            self._made.replace(self._path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                self._made.unlink()
            raise
        os.close(self._file)
        self._file, self._records, self._length = file, len(parts) // 2, len(data)
        if self._sync:
            files.flush_directory(self._directory)


def _records(fence: Fence) -> int:
    """How many it takes to say it."""
    return (fence.deleted > 0) + (fence.ended > fence.deleted)


def _parts(key: str, fence: Fence) -> list[bytes]:
    parts = _part(key, fence.deleted, True) if fence.deleted else []
    return parts + _part(key, fence.ended, False) if fence.ended > fence.deleted else parts


def _part(key: str, epoch: int, deleted: bool) -> list[bytes]:
    return record(DELETED if deleted else ABORTED, msgspec.msgpack.encode([key, epoch]))
