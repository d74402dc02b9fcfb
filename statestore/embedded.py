"""The embedded store: in memory, with files behind it. Needs nothing installed; the default on one machine.

What it confirmed survives the death of its process by any signal; with `sync`, what it committed also survives that of the
machine. Each key and epoch has a file of its own (see `records`): to remove a version is to remove its file, so nothing has to be
compacted but the file of a key that commits many versions under one epoch, and the file of fences; both are rewritten
when more than half of them is dead, at a cost bounded by what lives in them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from statestore import files
from statestore.base import Head, Piece, Ticket
from statestore.decisions import Record
from statestore.errors import Missing, StateStoreError
from statestore.fences import Fences
from statestore.journal import Held
from statestore.memory import MemoryStore
from statestore.pack import Packs
from statestore.parcel import Content, Placed, Slice, link
from statestore.records import (
    BEGIN,
    COMMIT,
    FILE,
    HEADER,
    PIECE,
    Fence,
    encode_file,
    encode_head,
    record,
    scan,
)
from statestore.recovery import settle, take_over

SLACK = 4 << 20
"""Dead bytes that a file may have before anybody minds."""

SMALL = 64 << 10
"""Bytes that a write may have in packs; then it gets a file of its own."""

_OPEN = 128
_SUFFIX = ".state"
_NEW = ".new"
_HANDED = ".pieces"
"""A file that a writer handed over."""


class EmbeddedStore(MemoryStore):
    """A state store in this process, and in a directory.

    Args:
        directory: Its own; made when missing. Only one store at a time may use it.
        limit: Bytes that it may hold, in memory and again on disk.
        sync: Whether a commit waits for the disk: then it survives the machine, not only the process.
        wait: Seconds to wait for a process that is just leaving the directory.

    Raises:
        Missing: The directory cannot be used, or another process uses it.
    """

    def __init__(
        self, directory: Path, limit: int = 1 << 30, *, sync: bool = False, wait: float = 10.0
    ) -> None:
        super().__init__(
            limit,
            name=f"the state store in {directory}",
            journal=FileJournal(directory, sync=sync, wait=wait),
        )


class FileJournal:
    """The files behind a store; see `statestore.journal.Journal`."""

    def __init__(
        self,
        directory: Path,
        *,
        sync: bool = False,
        wait: float = 10.0,
        slack: int = SLACK,
        small: int | None = None,
    ) -> None:
        self._directory = directory
        self._small = SMALL if small is None else small
        self._packs = Packs(directory, sync=sync)
        self._sync = sync
        self._slack = slack
        self._lock = threading.Lock()  # guards the two dictionaries
        self._files: dict[tuple[str, int], int] = {}
        self._lengths: dict[tuple[str, int], int] = {}
        self._handed: dict[tuple[str, int], dict[str, list[tuple[Piece, int]]]] = {}
        self._damaged: set[tuple[str, int]] = set()
        # Of files that are handed over, each once: a reader may still look for one that is gone.
        self._numbers = itertools.count(1)
        self._closed = False
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._guard = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Missing(f"the state store cannot use {directory}: {error.strerror}") from error
        try:
            self._claim(wait)
            self._fences = Fences(directory, sync=sync)
        except BaseException:
            os.close(self._guard)
            raise

    def load(self) -> dict[str, Held]:
        fences = self._fences.load()
        keys: dict[str, Held] = {key: Held(Record(fence.ended, "", None)) for key, fence in fences.items()}
        # A number may have been given twice, and the later piece counts: a write that has a file of its own was in packs before.
        for owner, found in self._packs.load().items():
            partly = self._path(*owner).exists()
            if found.owner is None or not take_over(
                found, keys, fences, self._directory, self._handed, partly=partly
            ):
                self._packs.drop(owner)
        for path in sorted(self._directory.iterdir()):
            if path.suffix == _NEW:
                path.unlink()
            elif path.suffix == _SUFFIX:
                self._load(path, keys, fences)
        named = {name for those in self._handed.values() for name in those}
        last = 0
        for path in self._directory.glob(f"*{_HANDED}"):
            last = max(last, int(path.stem.rpartition("-")[2]))
            if path.name not in named:
                path.unlink()  # killed between the link and its record, or between the records and the link
        self._numbers = itertools.count(last + 1)
        epochs: dict[str, set[int]] = {}
        for key, epoch in (*self._lengths, *self._packs.owners()):
            epochs.setdefault(key, set()).add(epoch)
        for key, held in keys.items():
            self.drop(key, settle(held, epochs.get(key, set())))
        return keys

    def begun(self, ticket: Ticket) -> None:
        body = msgspec.msgpack.encode([ticket.key, ticket.epoch, ticket.writer])
        if self._small:
            self._packs.drop((ticket.key, ticket.epoch))  # left by a begin that failed
            self._packs.append((ticket.key, ticket.epoch), BEGIN, body)
        else:
            self._append(ticket.key, ticket.epoch, record(BEGIN, body), new=True)

    def put(self, ticket: Ticket, piece: Piece, data: bytes) -> None:
        self._record(ticket, PIECE, data, number=piece.number, crc=piece.crc)

    def adopted(self, ticket: Ticket, file: int, pieces: Placed) -> list[Slice] | None:
        path = self._path(ticket.key, ticket.epoch)
        path = path.with_name(f"{path.stem}-{next(self._numbers)}{_HANDED}")
        path.unlink(missing_ok=True)
        if self._sync:
            files.flush(file, path)
        if not link(file, path, self._guard):
            return None
        try:
            if self._sync:
                files.flush_directory(self._directory)  # a pack's commit waits for no name but its own
            self._record(ticket, FILE, encode_file(path.name, pieces))
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._handed.setdefault((ticket.key, ticket.epoch), {})[path.name] = list(pieces)
        return [Slice(path, offset, piece.size) for piece, offset in pieces]

    def committed(self, head: Head, kept: dict[tuple[int, int], tuple[Piece, Content]]) -> None:
        manifest = encode_head(head)
        if (head.key, head.epoch) in self._damaged:  # what is appended stands behind what nobody can read
            self._rewrite(head, _own(head, kept), record(COMMIT, manifest))
            self._damaged.discard((head.key, head.epoch))
        else:
            self._record(Ticket(head.key, head.epoch, head.writer), COMMIT, manifest, sync=self._sync)
        # It is committed now, whatever becomes of what is not wanted any more: that goes when the store starts again.
        with contextlib.suppress(OSError, StateStoreError):
            self._tidy(head, kept, manifest)

    def _tidy(self, head: Head, kept: dict[tuple[int, int], tuple[Piece, Content]], manifest: bytes) -> None:
        """Remove what a commit has left without a use."""
        self._drop_handed(head.key, head.epoch, keep={i for i in kept if i[0] == head.epoch})
        own = _own(head, kept)
        if (head.key, head.epoch) not in self._lengths:
            return
        live = sum(piece.size + HEADER for piece, _ in own) + HEADER + len(manifest)
        if self._lengths[head.key, head.epoch] - live > max(self._slack, live):
            self._rewrite(head, own, record(COMMIT, manifest))

    def ended(self, key: str, epoch: int, *, deleted: bool) -> None:
        self._fences.ended(key, epoch, deleted=deleted)

    def drop(self, key: str, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            with self._lock:
                file = self._files.pop((key, epoch), None)
                own = self._lengths.pop((key, epoch), None) is not None
            self._damaged.discard((key, epoch))
            if file is not None:
                os.close(file)
            if own or not self._small:
                self._path(key, epoch).unlink(missing_ok=True)
            self._packs.drop((key, epoch))
            self._drop_handed(key, epoch, keep=set())

    def _drop_handed(self, key: str, epoch: int, *, keep: set[tuple[int, int]]) -> None:
        """Remove those files that were handed over of which nothing is kept."""
        those = self._handed.get((key, epoch), {})
        for name, pieces in list(those.items()):
            if not any((p.epoch, p.number) in keep for p, _ in pieces):
                del those[name]
                (self._directory / name).unlink(missing_ok=True)
        if not those:
            self._handed.pop((key, epoch), None)

    def let_go(self, key: str) -> None:
        # Without its fence, what a pack still says of it would be there again when the store starts.
        if not self._packs.has(key):
            self._fences.let_go(key)

    def forget(self, keys: Collection[str]) -> None:
        self._fences.forget(keys)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for file in (*self._files.values(), self._guard):
                os.close(file)
            self._files.clear()
            self._fences.close()
            self._packs.close()

    def _claim(self, wait: float) -> None:
        """One process at a time. The lock goes with its holder, which nothing announces: it is asked for."""
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(self._guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise Missing(f"{self._directory} cannot be locked: {error.strerror}") from error
            if time.monotonic() > deadline:
                raise Missing(
                    f"another process uses the state store in {self._directory}",
                    remedy="End it, or give another directory.",
                )
            time.sleep(0.02)

    # -- writing

    def _record(
        self,
        ticket: Ticket,
        kind: bytes,
        payload: bytes,
        *,
        number: int = 0,
        crc: int | None = None,
        sync: bool = False,
    ) -> None:
        """Write a record of a write: into the common files while it is small, then into its own."""
        owner = (ticket.key, ticket.epoch)
        if owner not in self._lengths:
            if self._packs.size(owner) + len(payload) <= self._small:
                self._packs.append(owner, kind, payload, number=number, crc=crc or 0, sync=sync)
                return
            begun = msgspec.msgpack.encode([ticket.key, ticket.epoch, ticket.writer])
            self._append(*owner, record(BEGIN, begun), new=True)
        if sync and self._packs.size(owner):
            self._packs.sync()
        self._append(*owner, record(kind, payload, number=number, crc=crc), sync=sync)

    def _append(
        self, key: str, epoch: int, parts: Sequence[bytes], *, new: bool = False, sync: bool = False
    ) -> None:
        path = self._path(key, epoch)
        with self._lock:
            file = self._files.get((key, epoch))
        mine = file is None
        if file is None:
            if new:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()  # left by a begin that failed
            file = files.open_file(path)
        length = self._lengths.get((key, epoch), 0)
        try:
            files.write(file, parts, path)
            if sync:
                files.flush(file, path)
                files.flush_directory(self._directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(file, length)  # what is half written must not stand before more
            if mine:
                os.close(file)
            if new:
                with contextlib.suppress(OSError):
                    path.unlink()  # the next attempt begins it again
            raise
        with self._lock:
            self._lengths[key, epoch] = length + sum(map(len, parts))
            if not mine:
                return
            if len(self._files) < _OPEN and not self._closed:
                self._files[key, epoch] = file
            else:
                os.close(file)

    def _rewrite(self, head: Head, own: Sequence[tuple[Piece, bytes]], commit: Sequence[bytes]) -> None:
        """Write a file anew with only what lives."""
        path = self._path(head.key, head.epoch)
        made = path.with_suffix(_NEW)
        parts = record(BEGIN, msgspec.msgpack.encode([head.key, head.epoch, head.writer]))
        # Files first: what is not kept in them may have a number that a piece has now.
        for name, pieces in self._handed.get((head.key, head.epoch), {}).items():
            parts += record(FILE, encode_file(name, pieces))
        for piece, data in own:
            parts += record(PIECE, data, number=piece.number, crc=piece.crc)
        parts += commit
        with contextlib.suppress(FileNotFoundError):
            made.unlink()
        file = files.open_file(made)
        try:
            files.write(file, parts, made)
            if self._sync:
                files.flush(file, made)
            made.replace(path)
        except BaseException:  # the old file says the same
            with contextlib.suppress(OSError):
                made.unlink()
            raise
        finally:
            os.close(file)
        with self._lock:
            old = self._files.pop((head.key, head.epoch), None)
            self._lengths[head.key, head.epoch] = sum(map(len, parts))
        if old is not None:
            os.close(old)
        if self._sync:
            files.flush_directory(self._directory)
        self._packs.drop((head.key, head.epoch))  # what the old file, should it be back, refers to

    def _path(self, key: str, epoch: int) -> Path:
        name = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=12).hexdigest()
        return self._directory / f"{name}-{epoch}{_SUFFIX}"

    # -- reading

    def _load(self, path: Path, keys: dict[str, Held], fences: Mapping[str, Fence]) -> None:
        """Take a file over into what is known of its key."""
        data = path.read_bytes()
        found = scan(data)
        if found.owner is None:
            if found.damage:
                raise Missing(f"{path}: {found.damage}", remedy="Remove it to go on without that state.")
            path.unlink()  # killed before it had begun
            return
        key, epoch, _ = found.owner
        if not take_over(found, keys, fences, self._directory, self._handed):
            path.unlink()
            return
        if found.damage:
            self._damaged.add((key, epoch))
        elif found.length < len(data):
            os.truncate(path, found.length)
        self._lengths[key, epoch] = found.length


def _own(head: Head, kept: Mapping[tuple[int, int], tuple[Piece, Content]]) -> list[tuple[Piece, bytes]]:
    """Of what a version consists of, what its own epoch has put and lies in no file that was handed over."""
    return [
        (piece, data)
        for (epoch, _), (piece, data) in kept.items()
        if epoch == head.epoch and isinstance(data, bytes)
    ]
