"""Small records of many writes in common files: to make a file costs more than to write a small state.

A pack is an append-only file of records (`statestore.records`), each of which wraps a record of one write: `S`, [kind, key, epoch, number,
CRC-32, payload]. When a pack has grown, another one is begun; a pack of which nothing is wanted any more is removed. Nothing is
compacted: what one write may have in packs is bounded by whoever uses them.

Opens like other files: what is torn is cut off, and what is damaged before something whole is told.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

from statestore import files
from statestore.errors import Missing
from statestore.records import Contents, scan_wrapped, take, wrap

SUFFIX = ".pack"
_FULL = 4 << 20

Owner = tuple[str, int]
"""Key and epoch."""


class Packs:
    """The packs of a store. Any thread may call.

    Args:
        directory: Theirs.
        sync: Whether what is appended may have to be on the disk: then all packs but the last one always are.
    """

    def __init__(self, directory: Path, *, sync: bool = False) -> None:
        self._directory = directory
        self._sync = sync
        self._lock = threading.Lock()
        self._wanted: dict[int, set[Owner]] = {}
        self._sizes: dict[Owner, int] = {}
        self._places: dict[Owner, set[int]] = {}
        self._file = -1
        self._number = 0
        self._length = 0
        self._keys: dict[int, set[str]] = {}  # of which a pack says anything, wanted or not

    def load(self) -> dict[Owner, Contents]:
        """What earlier processes left.

        Raises:
            Missing: It is damaged, so that what was confirmed may be missing.
        """
        found: dict[Owner, Contents] = {}
        for path in sorted(self._directory.glob(f"*{SUFFIX}"), key=lambda p: int(p.stem)):
            number = int(path.stem)
            data = path.read_bytes()
            records, length, damage = scan_wrapped(data)
            if damage:
                raise Missing(
                    f"{path}: {damage}",
                    remedy="Remove it to go on without the small states of that time, or the directory without any.",
                )
            if length < len(data):
                os.truncate(path, length)
            self._number = max(self._number, number)
            if self._sync:
                files.flush_all(path)
            self._wanted[number] = set()
            self._keys[number] = {key for _, key, *_ in records}
            for kind, key, epoch, inner, crc, payload in records:
                contents = found.setdefault((key, epoch), Contents())
                if take(contents, kind, inner, payload, crc):
                    contents.length += len(payload)
                    self._note((key, epoch), number, len(payload))
        for number in [n for n, owners in self._wanted.items() if not owners]:
            self._remove(number)
        return found

    def append(
        self, owner: Owner, kind: bytes, payload: bytes, *, number: int = 0, crc: int = 0, sync: bool = False
    ) -> None:
        """Write a record of one write. Nothing of it stays when it raises.

        Args:
            sync: Wait until it, and all that was appended before, is on the disk.
        """
        parts = wrap(kind, *owner, payload, number=number, crc=crc)
        size = sum(map(len, parts))
        with self._lock:
            if self._file < 0 or self._length + size > _FULL:
                self._begin()
            path = self._path(self._number)
            try:
                files.write(self._file, parts, path)
                if sync:
                    files.flush(self._file, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._length)
                raise
            self._length += size
            self._keys[self._number].add(owner[0])
            self._note(owner, self._number, len(payload))

    def sync(self) -> None:
        """Wait until what was appended is on the disk. A pack that was full is there already. Raises: Missing."""
        with self._lock:
            if self._file >= 0:
                files.flush(self._file, self._path(self._number))

    def has(self, key: str) -> bool:
        """Whether a pack that is there says anything of it, wanted or not."""
        with self._lock:
            return any(key in keys for keys in self._keys.values())

    def size(self, owner: Owner) -> int:
        """Bytes that a write has here."""
        return self._sizes.get(owner, 0)

    def owners(self) -> list[Owner]:
        """Writes that have something here."""
        with self._lock:
            return list(self._places)

    def drop(self, owner: Owner) -> None:
        """Nothing of that write is wanted any more."""
        with self._lock:
            self._sizes.pop(owner, None)
            for number in self._places.pop(owner, ()):
                owners = self._wanted[number]
                owners.discard(owner)
                if not owners and (number != self._number or self._file < 0):
                    self._remove(number)
            if self._file >= 0 and not self._wanted[self._number] and self._length:
                with contextlib.suppress(OSError):  # then it is used as it is
                    os.ftruncate(self._file, 0)
                    self._length = 0
                    self._keys[self._number].clear()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _begin(self) -> None:
        """Another pack."""
        number = self._number + 1
        if self._sync and self._file >= 0:
            files.flush(self._file, self._path(self._number))
        file = files.open_file(self._path(number))
        if self._sync:
            try:
                files.flush_directory(self._directory)
            except BaseException:
                os.close(file)
                raise
        before, self._file = self._file, file
        if before >= 0:
            os.close(before)
            if not self._wanted[self._number]:
                self._remove(self._number)
        self._number, self._length = number, 0
        self._wanted[number], self._keys[number] = set(), set()

    def _note(self, owner: Owner, number: int, size: int) -> None:
        self._wanted[number].add(owner)
        self._places.setdefault(owner, set()).add(number)
        self._sizes[owner] = self._sizes.get(owner, 0) + size

    def _remove(self, number: int) -> None:
        del self._wanted[number], self._keys[number]
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:08d}{SUFFIX}"
