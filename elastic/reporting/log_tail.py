"""Log files as lines: from the end or the beginning, and on as they grow.

The files are looked at, not watched: Python has no portable file notification, and a log file may be created,
replaced or truncated meanwhile. The caller looks a few times a second, and only while somebody follows; a look is a
`stat` per file.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastic.reporting.base import aside_of

LINE_LIMIT = 64 << 10
"""Bytes; longer lines come in pieces."""

_READ = 256 << 10
Line = tuple[str, str]


@dataclass
class _File:
    worker: str
    path: Path
    position: int = 0
    inode: int = 0
    partial: bytes = b""


class LogTail:
    """The log files of some workers, read piece by piece.

    Args:
        files: Lists them, as (worker, path); asked again by `refresh`.
        tail: Begin with so many of the last lines of each file that is there now, and of what was moved aside from it; None: with
            the first line. Files that come later are read from their beginning.
    """

    def __init__(self, files: Callable[[], Sequence[tuple[str, Path]]], *, tail: int | None) -> None:
        self._list = files
        self._files: dict[Path, _File] = {}
        self._aside: deque[_File] = deque()
        self.refresh()
        for file in self._files.values():
            before = _File(file.worker, aside_of(file.path))
            lacks = 1
            if tail is not None:
                file.position, file.inode, lacks = _last_lines(file.path, max(0, tail))
                before.position, before.inode, _ = _last_lines(before.path, lacks)
            if lacks:
                self._aside.append(before)

    def refresh(self) -> None:
        """Notice files that have come, and forget those that are not listed any more."""
        listed = {path: worker for worker, path in self._list()}
        for gone in set(self._files) - set(listed):
            del self._files[gone]
        for path, worker in listed.items():
            if path not in self._files:
                self._files[path] = _File(worker, path)

    def read(self) -> list[Line]:
        """The next (worker, line) pairs, a bounded number; empty when there is nothing new."""
        for file in self._files.values():
            if (unread := _moved_aside(file)) is not None:
                self._aside.append(unread)
        while self._aside:
            before = self._aside[0]
            if texts := _read(before):
                return [(before.worker, text) for text in texts]
            self._aside.popleft()
            if before.partial:
                return [(before.worker, _decode(before.partial))]
        lines: list[Line] = []
        for file in self._files.values():
            lines.extend((file.worker, text) for text in _read(file))
        return lines

    def rest(self) -> list[Line]:
        """What stands at the ends of the files without a line end."""
        return [(f.worker, _decode(f.partial)) for f in self._files.values() if f.partial]


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


def _moved_aside(file: _File) -> _File | None:
    """What has not been read of a log whose content was moved aside since; it is read from its beginning then."""
    aside = aside_of(file.path)
    try:
        facts = file.path.stat()
        if (
            facts.st_ino != file.inode
            or facts.st_size >= file.position
            or aside.stat().st_size < file.position
        ):
            return None
    except FileNotFoundError:
        return None
    unread = _File(file.worker, aside, file.position, partial=file.partial)
    file.position, file.partial = 0, b""
    return unread


def _read(file: _File) -> list[str]:
    try:
        facts = file.path.stat()
        if facts.st_ino != file.inode or facts.st_size < file.position:  # replaced or truncated
            if file.inode or facts.st_size < file.position:
                file.position, file.partial = 0, b""
            file.inode = facts.st_ino
        if facts.st_size == file.position:
            return []
        with file.path.open("rb") as source:
            source.seek(file.position)
            data = source.read(_READ)
    except FileNotFoundError:
        return []
    file.position += len(data)
    *whole, file.partial = (file.partial + data).split(b"\n")
    while len(file.partial) >= LINE_LIMIT:
        whole.append(file.partial[:LINE_LIMIT])
        file.partial = file.partial[LINE_LIMIT:]
    return [
        _decode(line[start : start + LINE_LIMIT])
        for line in whole
        for start in range(0, max(1, len(line)), LINE_LIMIT)
    ]


def _last_lines(path: Path, count: int) -> tuple[int, int, int]:
    """Where the last `count` lines of a file begin, its inode, and how many lines it lacks; (0, 0, count) when there is no such file."""
    try:
        with path.open("rb") as source:
            facts = os.fstat(source.fileno())
            position = facts.st_size
            if count == 0 or position == 0:
                return position, facts.st_ino, count
            source.seek(position - 1)
            wanted = count + (source.read(1) == b"\n")  # the end of the last line doesn't begin another
            while position > 0:
                start = max(0, position - _READ)
                source.seek(start)
                block = source.read(position - start)
                found = block.count(b"\n")
                if found >= wanted:
                    at = len(block)
                    for _ in range(wanted):
                        at = block.rindex(b"\n", 0, at)
                    return start + at + 1, facts.st_ino, 0
                wanted -= found
                position = start
            return 0, facts.st_ino, wanted - 1
    except FileNotFoundError:
        return 0, 0, count
