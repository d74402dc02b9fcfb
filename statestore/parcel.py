"""Pieces in a file that processes of one machine hand to each other instead of the bytes.

A writer appends pieces to a file without a name, and passes its descriptor. A store that keeps files links it into its
directory: what two stores on one machine hold is then written once. Whoever cannot link it copies out of it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statestore.base import Piece
from statestore.errors import NO_SPACE, Damaged, Full, Missing, NotFound

_BUFFER = 1 << 20
_VECTOR = 512


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece's place in a file."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Its bytes, not compared with anything.

        Raises:
            NotFound: The file has just been removed.
            Damaged: It is too short.
        """
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotFound(f"{self.path} is not there any more") from error
        except OSError as error:
            raise Missing(f"the state store cannot read {self.path}: {error.strerror}") from error
        try:
            return read_at(file, self.offset, self.size)
        finally:
            os.close(file)


Content = bytes | Slice
"""A piece in memory, or where it is."""


def content_bytes(content: Content) -> bytes:
    """The bytes of a piece; see `Slice.read`."""
    return content if isinstance(content, bytes) else content.read()


def read_at(file: int, offset: int, size: int) -> bytes:
    """Bytes out of the middle of a file. Raises: Damaged: it ends before."""
    data = os.pread(file, size, offset)
    while len(data) < size:  # one read gives at most 2 GB
        more = os.pread(file, size - len(data), offset + len(data))
        if not more:
            raise Damaged(f"a file that was handed over ends {size - len(data)} bytes too early")
        data += more
    return data


class Parcel:
    """The file of one writer; it goes when nobody has it open or has linked it.

    Args:
        directory: Where stores can link it from; "" for anywhere.
    """

    def __init__(self, directory: str = "") -> None:
        self.file, self._directory = _unnamed(directory)
        self.size = 0
        self._buffer: list[bytes] = []
        self._buffered = 0

    def append(self, data: bytes) -> int:
        """Add a piece. Returns where it begins.

        Raises:
            Full, Missing: It cannot be written.
        """
        offset = self.size
        self.size += len(data)
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered >= _BUFFER:
            self.flush()
        return offset

    def flush(self) -> None:
        """Write what is still in memory. Raises: Full, Missing."""
        views = [memoryview(data) for data in self._buffer if data]
        self._buffer, self._buffered = [], 0
        try:
            while views:
                done = os.writev(self.file, views[:_VECTOR])
                while views and done >= len(views[0]):
                    done -= len(views.pop(0))
                if done:
                    views[0] = views[0][done:]
        except OSError as error:
            # What has its place and is not there yet comes first when it is tried again.
            self._buffer = [bytes(view) for view in views]
            self._buffered = sum(map(len, self._buffer))
            text = f"a state cannot be written to a file in {self._directory}: {error.strerror}"
            if error.errno in NO_SPACE:
                raise Full(text, remedy="Make room on that disk.", needed=self._buffered) from error
            raise Missing(text) from error

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        file, self.file = self.file, -1
        if file >= 0:
            os.close(file)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was never made
            self.close()


def _unnamed(directory: str) -> tuple[int, str]:
    """The file, and where it lies."""
    flag = getattr(os, "O_TMPFILE", 0)
    if flag and directory:
        with contextlib.suppress(OSError):  # a file system that has no such files
            return os.open(directory, flag | os.O_RDWR | os.O_CLOEXEC, 0o600), directory
    try:
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno()), tempfile.gettempdir()
    except OSError as error:
        raise Missing(f"no file can be made for a state: {error.strerror}") from error


def link(file: int, path: Path, other: int) -> bool:
    """Give a file without a name one.

    Args:
        file: Its descriptor.
        path: The name.
        other: Any descriptor: only with one does Python have the system follow the link that /proc has for the file.

    Returns:
        Whether it has it now; not so where the file lies on another file system, or the system cannot.
    """
    try:
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=other, follow_symlinks=True)
    except (OSError, NotImplementedError):
        return False
    return True


Placed = Sequence[tuple[Piece, int]]
"""Pieces, and where each begins in a file."""
