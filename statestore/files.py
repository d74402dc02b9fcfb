"""What a store does with files, and what it says when they cannot be used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from statestore.errors import NO_SPACE, Full, Missing

_AT_ONCE = 512


def open_file(path: Path) -> int:
    """A file to append to, made when it is not there. Raises: Missing."""
    try:
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Missing(f"the state store cannot write {path}: {error.strerror}") from error


def write(file: int, parts: Sequence[bytes], path: Path) -> None:
    """Append all parts. Raises: Full, Missing; some of it may stand there then."""
    views = [memoryview(part) for part in parts if part]
    at = 0
    try:
        while at < len(views):
            done = os.writev(file, views[at : at + _AT_ONCE])
            while at < len(views) and done >= len(views[at]):
                done -= len(views[at])
                at += 1
            if done:
                views[at] = views[at][done:]
    except OSError as error:
        needed = sum(map(len, parts))
        text = f"the state store cannot write {needed} bytes to {path}: {error.strerror}"
        if error.errno in NO_SPACE:
            raise Full(text, remedy="Make room on that disk.", needed=needed) from error
        raise Missing(text) from error


def flush(file: int, path: Path) -> None:
    """Wait until what a file holds is on the disk. Raises: Missing."""
    try:
        os.fdatasync(file)
    except OSError as error:
        raise Missing(f"the disk does not confirm what {path} holds: {error.strerror}") from error


def flush_all(path: Path) -> None:
    """The same for what an earlier process has written. Raises: Missing."""
    file = open_file(path)
    try:
        flush(file, path)
    finally:
        os.close(file)


def flush_directory(directory: Path) -> None:
    """Wait until the names of its files are on the disk. Raises: Missing."""
    try:
        file = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise Missing(f"the disk does not confirm what {directory} holds: {error.strerror}") from error
