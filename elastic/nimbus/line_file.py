"""Lines that outlive a leader on this machine: appended to a file, which is renamed to `<path>.1` when it is full."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)


class LineFile:
    """For one thread at a time.

    Args:
        path: The file; None: nothing is kept.
        limit: Bytes at which it is renamed and a new one begun.
    """

    def __init__(self, path: Path | None, limit: int) -> None:
        self._path, self._limit = path, limit
        self._file: BinaryIO | None = None
        self._size = 0
        self._closed = self._failed = False
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def lines(self) -> Iterator[bytes]:
        """All that there are, oldest first. The last one of a process that was killed may be a half."""
        if self._path is None:
            return
        self._let_go()  # another process may have written since, and renamed it
        for path in (self._path.with_name(self._path.name + ".1"), self._path):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue
            except OSError as error:  # what is not known any more must not keep anybody from leading
                log.warning("cannot read %s: %s", path, error)
                continue
            yield from lines

    def append(self, line: bytes) -> None:
        """Add one, which ends with a line break. A full disk must not stop what the lines are about: it is logged."""
        if self._path is None or self._closed:
            return
        try:
            if self._file is None:
                self._file = self._path.open("a+b", buffering=0)
                self._size = self._path.stat().st_size
                if self._size:
                    self._file.seek(-1, os.SEEK_END)
                    if self._file.read(1) != b"\n":  # half a line, of a process that was killed
                        self._size += self._file.write(b"\n")
            if self._size + len(line) > self._limit and self._size:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file, self._size = self._path.open("ab", buffering=0), 0
            written = self._file.write(line)
            self._size += written
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._failed = False
        except OSError as error:
            log.log(
                logging.DEBUG if self._failed else logging.WARNING,
                "cannot write to %s: %s",
                self._path,
                error,
            )
            self._failed = True  # it is opened again for the next one
            with contextlib.suppress(OSError):
                self._let_go()

    def close(self) -> None:
        """Add nothing more. Safe to call twice."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
