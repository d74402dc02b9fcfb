"""Files that a component takes along to wherever its tasks run: scripts, and what they read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elastic.errors import TopologyError

MOST = 16 << 20
"""Bytes of a component's files together: each task writes them where it runs."""

Given = str | Path | Sequence[str | Path]


class Carried(NamedTuple):
    """One file.

    Attributes:
        name: Its path below the working directory.
        runs: Whether it may be executed.
    """

    name: str
    data: bytes
    runs: bool


def read(given: Given) -> tuple[Carried, ...]:
    """Read files, and all that is in folders, which themselves are left out of the names.

    Raises:
        TopologyError: Something cannot be read, is there twice, or it is too much.
    """
    found: dict[str, Carried] = {}
    size = 0
    for path in map(Path, [given] if isinstance(given, str | Path) else given):
        try:
            for name, file in _files(path):
                if name in found:
                    raise TopologyError(f"Two of the files that a process takes along are called {name!r}.")
                size += file.stat().st_size
                if size > MOST:
                    raise TopologyError(
                        f"The files of a process are more than {MOST >> 20} MiB, with {str(file)!r}.",
                        remedy="Install what is large on the nodes, and name it by its path.",
                    )
                found[name] = Carried(name, file.read_bytes(), os.access(file, os.X_OK))
        except OSError as e:
            raise TopologyError(f"{e.filename or path} cannot be read: {e.strerror or e}") from e
    return tuple(found[name] for name in sorted(found))


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_dir():
        yield path.name, path
        return
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        hidden = any(p.startswith(".") or p == "__pycache__" for p in parts)
        if not hidden and file.is_file():
            yield str(Path(*parts)), file


def write(files: Sequence[Carried], into: Path) -> None:
    """Put them there. Raises OSError."""
    for file in files:
        path = into / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        if file.runs:
            path.chmod(0o755)
