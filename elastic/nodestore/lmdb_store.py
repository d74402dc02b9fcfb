"""The node store on LMDB: memory-mapped, one writer, readers in other processes that never wait.

A key's versions lie side by side, as `key`, a zero byte and eight bytes of version; the newest is found by
one step back from the key's end. A write is one transaction with the pruning that belongs to it,
synchronised to disk before it returns: a writer that is killed leaves all that it confirmed and nothing
half-written.

LMDB itself would let writers of several processes take turns; a supervisor must be the only one, so the
writer also holds a lock on the file `writer.lock`, which the kernel gives back when the process ends,
however it ends.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from elastic.errors import ConfigError, EnvironmentProblem, NotFound, Refused
from elastic.handles import readable
from elastic.nodestore.base import Entry

KEEP = 50
MAP_SIZE = 4 << 20
MAX_MAP_SIZE = 1 << 30
MAX_READERS = 1024
_READER_CHECK = 256
"""Appends after which the slots of readers that were killed are cleared; they would keep old pages from
reuse."""

_VERSION = struct.Struct(">Q")
_LAST = b"\xff" * 8
_LOCK = "writer.lock"

T = TypeVar("T")


class _Environment:
    """The one LMDB environment that a process may have of a directory, shared by its readers and its writer.

    Its map must not be resized while a transaction of this process is open, hence the lock: among the
    threads of this process only; other processes never wait for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.env: Any = None
        self.users = 0
        self.writable = False

    def open(self, map_size: int, *, write: bool) -> None:
        with self.lock:
            if self.env is None or (write and not self.writable):
                if self.env is not None:
                    self.env.close()
                self.env = self._open(map_size, write=write)
                self.writable = write
            self.users += 1

    def close(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.env.close()
                self.env = None

    def read(self, read: Callable[[Any], T]) -> T:
        with self.lock:
            while True:
                try:
                    with self.env.begin() as txn:
                        return read(txn)
                except lmdb.MapResizedError:  # the writer, in another process, has grown it
                    self.env.set_mapsize(0)
                except lmdb.Error as error:
                    raise self._problem(error) from error

    def write(self, write: Callable[[Any], T], limit: int) -> T:
        with self.lock:
            while True:
                try:
                    with self.env.begin(write=True) as txn:
                        return write(txn)
                except lmdb.MapFullError as error:
                    self._grow(limit, error)
                except lmdb.Error as error:
                    raise self._problem(error) from error

    def _grow(self, limit: int, error: Exception) -> None:
        size = self.env.info()["map_size"] * 2
        if size > limit:
            raise EnvironmentProblem(
                f"node store {self.path} has reached its limit of {limit >> 20} MB",
                remedy="remove the directory of a node that is not running, or keep fewer versions",
            ) from error
        try:
            self.env.set_mapsize(size)
        except lmdb.Error as problem:
            # No more memory may be addressed, and the environment is of no use any more.
            self.env.close()
            self.env = self._open(size // 2, write=self.writable)
            raise self._problem(problem) from problem

    def _open(self, map_size: int, *, write: bool) -> Any:
        try:
            return lmdb.open(
                str(self.path),
                map_size=map_size,
                readonly=not write,
                create=write,
                max_readers=MAX_READERS,
                max_spare_txns=2,
            )
        except lmdb.Error as error:
            raise self._problem(error) from error

    def _problem(self, error: Exception) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"node store {self.path}: {error}",
            remedy="see whether the disk is full, the files are damaged, or the file system is a network's",
        )


_environments: dict[Path, _Environment] = {}
_guard = threading.Lock()


def _acquire(path: Path, map_size: int, *, write: bool) -> _Environment:
    with _guard:
        shared = _environments.get(path) or _Environment(path)
        shared.open(map_size, write=write)
        _environments[path] = shared
        return shared


def _release(shared: _Environment) -> None:
    with _guard:
        shared.close()
        if not shared.users:
            _environments.pop(shared.path, None)


class LmdbReader:
    """See `elastic.nodestore.base.NodeStoreReader`. Thread-safe."""

    def __init__(self, shared: _Environment) -> None:
        self._shared = shared
        self._closed = False

    def latest(self, key: str) -> Entry | None:
        prefix = _prefix(key)
        return self._read(lambda txn: next(_newest_first(txn, prefix), None))

    def history(self, key: str, limit: int = 20) -> tuple[Entry, ...]:
        prefix = _prefix(key)
        return self._read(lambda txn: tuple(itertools.islice(_newest_first(txn, prefix), limit)))

    def keys(self) -> tuple[str, ...]:
        return self._read(_keys)

    def close(self) -> None:
        with self._shared.lock:
            closed, self._closed = self._closed, True
        if not closed:
            _release(self._shared)

    def _read(self, read: Callable[[Any], T]) -> T:
        with self._shared.lock:
            self._check()
            return self._shared.read(read)

    def _check(self) -> None:
        if self._closed:
            raise Refused(f"node store {self._shared.path}: this end of it is closed")


class LmdbWriter(LmdbReader):
    """See `elastic.nodestore.base.NodeStore`. Thread-safe."""

    def __init__(self, shared: _Environment, lock: int, keep: int, map_limit: int) -> None:
        super().__init__(shared)
        self._lock = lock
        self._keep = keep
        self._map_limit = map_limit
        self._appends = 0

    def append(self, key: str, data: bytes) -> int:
        prefix = _prefix(key)

        def write(txn: Any) -> int:
            newest = next(_newest_first(txn, prefix), None)
            version = newest.version + 1 if newest else 1
            txn.put(prefix + _VERSION.pack(version), data)
            if version > self._keep:
                _remove(txn, prefix, version - self._keep)
            return version

        with self._shared.lock:
            self._check()
            self._appends += 1
            if self._appends % _READER_CHECK == 0:
                self._shared.env.reader_check()
            return self._shared.write(write, self._map_limit)

    def forget(self, key: str) -> None:
        prefix = _prefix(key)
        with self._shared.lock:
            self._check()
            self._shared.write(lambda txn: _remove(txn, prefix, None), self._map_limit)

    def close(self) -> None:
        with self._shared.lock:
            closed, self._closed = self._closed, True
        if not closed:
            # Without the lock: whoever opens the same directory meanwhile has the guard, and waits for it.
            _release(self._shared)
            os.close(self._lock)


def open_writer(
    directory: str | os.PathLike[str],
    *,
    keep: int = KEEP,
    map_size: int = MAP_SIZE,
    map_limit: int = MAX_MAP_SIZE,
    wait: float = 0.0,
) -> LmdbWriter:
    """The one writer of the store in `directory`; makes both.

    Args:
        keep: How many versions of a key are kept.
        map_size: Bytes to begin with; doubled when full.
        map_limit: Bytes that it never grows beyond.
        wait: Seconds to wait for a writer that is just ending.

    Raises:
        Refused: It is open for writing already, and stays so.
        EnvironmentProblem: The files cannot be made or read.
    """
    path = Path(directory).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _lock(path, time.monotonic() + wait)
    except OSError as error:
        raise EnvironmentProblem(f"node store {path}: {error}") from error
    try:
        shared = _acquire(path, map_size, write=True)
        shared.env.reader_check()
        # A writer that was killed in its commit may have written a version that readers are not pointed at yet; beginning to write
        # looks for it, so that nobody reads an older one after this.
        shared.write(lambda txn: None, map_limit)
    except BaseException:
        os.close(lock)
        raise
    return LmdbWriter(shared, lock, keep, map_limit)


def open_reader(directory: str | os.PathLike[str]) -> LmdbReader:
    """A reader of the store in `directory`; it goes on working when the writer ends and another one comes.

    Raises:
        NotFound: There is no store.
        EnvironmentProblem: The files cannot be read.
    """
    path = Path(directory).absolute()
    if not (path / "data.mdb").exists():
        raise NotFound(
            f"there is no node store in {path}", remedy="the node's supervisor makes it when it starts"
        )
    return LmdbReader(_acquire(path, 0, write=False))


def _lock(path: Path, deadline: float) -> int:
    """The held lock's file descriptor. Waits for the holder to end, by its process handle, until the
    deadline."""
    fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(fd, 20, 0).decode(errors="replace").strip()
                if time.monotonic() >= deadline or not _ended(holder, deadline):
                    raise Refused(
                        f"node store {path} is open for writing in process {holder or '(unknown)'}",
                        remedy="a node has one supervisor: end the other one first",
                    ) from None
            else:
                if not _is_there(fd, path / _LOCK):  # its holder has removed it, with the store
                    path.mkdir(parents=True, exist_ok=True)
                    new = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                    os.close(fd)
                    fd = new
                    continue
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
                return fd
    except BaseException:
        os.close(fd)
        raise


def _is_there(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _ended(holder: str, deadline: float) -> bool:
    """Waits until that process has ended, or the deadline has passed."""
    if not holder.isdecimal() or int(holder) == os.getpid():
        return False
    if not hasattr(os, "pidfd_open"):
        time.sleep(0.02)  # no process handles on this system
        return True
    try:
        process = os.pidfd_open(int(holder))
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        return bool(readable([process], deadline - time.monotonic()))
    finally:
        os.close(process)


def _prefix(key: str) -> bytes:
    encoded = key.encode()
    if not encoded or b"\0" in encoded or len(encoded) > 480:
        raise ConfigError(
            f"node store: {key[:60]!r} cannot be a key: it must have 1 to 480 bytes and no zero byte"
        )
    return encoded + b"\0"


def _keys(txn: Any) -> tuple[str, ...]:
    found = []
    with txn.cursor() as cursor:
        more = cursor.first()
        while more:
            name = cursor.key()[:-9]
            found.append(name.decode())
            more = cursor.set_range(name + b"\x01")  # past all of `name`, zero byte, version
    return tuple(sorted(found))


def _newest_first(txn: Any, prefix: bytes) -> Iterator[Entry]:
    with txn.cursor() as cursor:
        # The first entry beyond this key's last possible one; from there one step back is the newest.
        found = cursor.prev() if cursor.set_range(prefix + _LAST) else cursor.last()
        while found and cursor.key()[:-8] == prefix:
            yield Entry(_VERSION.unpack(cursor.key()[-8:])[0], bytes(cursor.value()))
            found = cursor.prev()


def _remove(txn: Any, prefix: bytes, up_to: int | None) -> None:
    """Remove versions up to and with `up_to` (None: all)."""
    with txn.cursor() as cursor:
        found = cursor.set_range(prefix)
        while found and cursor.key()[:-8] == prefix:
            if up_to is not None and _VERSION.unpack(cursor.key()[-8:])[0] > up_to:
                return
            found = cursor.delete()
