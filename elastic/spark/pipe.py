"""The directory at which Spark and a topology meet: files that appear whole, are never changed, and go when both sides are done with them.

Nothing of a pipe is in memory only, so either side may stop, fail or begin again while the other goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from elastic.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

SCHEMA = "schema.arrow"
"""The columns, as the topology's side declares them."""
_PART = ".part"
_DIGITS = 20
_LOOK = 0.05


class Pipe:
    """A directory, by its path or by what pyarrow can open: `hdfs://`, `s3://`, `gs://`, `file://`.

    Args:
        where: A relative path is one of the process that makes this.

    Raises:
        ConfigError: pyarrow cannot open such a place, or it is a file.
    """

    def __init__(self, where: str) -> None:
        from pyarrow import ArrowException, fs

        self.where = where
        try:
            if "://" in where:
                self._fs, self._root = fs.FileSystem.from_uri(where)
            else:
                self._fs, self._root = fs.LocalFileSystem(), place(where)
            self._local = isinstance(self._fs, fs.LocalFileSystem)
            kind = self._fs.get_file_info(self._root).type
        except (ArrowException, OSError, ValueError) as e:
            raise ConfigError(f"The pipe {where} cannot be opened: {e}.") from e
        if kind is fs.FileType.File:
            raise ConfigError(f"The pipe {where} is a file: it has to be a directory.")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        from pyarrow import fs

        return bool(self._fs.get_file_info(self._path(name)).type is fs.FileType.File)

    def files(self, folder: str) -> dict[str, int]:
        """What is in a folder: size in bytes by name, in the order of the names; nothing if there is no such folder."""
        return {n: size for n, size in self._all_files(folder).items() if not n.endswith(_PART)}

    def unfinished(self, folder: str) -> list[str]:
        """The names of files that are being written, or that nobody has finished."""
        return [n for n in self._all_files(folder) if n.endswith(_PART)]

    def _all_files(self, folder: str) -> dict[str, int]:
        from pyarrow import fs

        return {i.base_name: i.size or 0 for i in self._infos(folder) if i.type is fs.FileType.File}

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder, in order."""
        from pyarrow import fs

        return [i.base_name for i in self._infos(folder) if i.type is fs.FileType.Directory]

    def _infos(self, folder: str) -> list[fs.FileInfo]:
        from pyarrow import fs

        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        try:
            found = self._fs.get_file_info(selector)
        except FileNotFoundError:  # it was made just then
            found = self._fs.get_file_info(selector)
        return sorted(found, key=lambda i: i.base_name)

    def read(self, name: str) -> bytes | None:
        """A whole file; None if there is none."""
        try:
            with self._fs.open_input_stream(self._path(name)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Let a file appear with that content, in place of one that may be there."""
        with self.writing(name) as file:
            file.write(content)

    def create(self, name: str, content: bytes) -> bool:
        """Let a file appear with that content, unless there is one.

        Returns:
            False: there is one. Of several who try at the same moment one succeeds where the place is a path; other file systems have no
            such step, and there the last one does.
        """
        if not self._local:
            if self.has(name):
                return False
            self.write(name, content)
            return True
        part = f"{name}.{uuid.uuid4().hex}{_PART}"
        self.write(part, content)
        try:
            os.link(self._path(part), self._path(name))
        except FileExistsError:
            return False
        finally:
            self.delete(part)
        return True

    def writing(self, name: str) -> Writing:
        """A file to be written: it appears at the end of the `with` block, and does not if that raises."""
        return Writing(self._fs, self._path(name))

    def open(self, name: str) -> pa.NativeFile:
        """A file to be read.

        Raises:
            FileNotFoundError: There is none.
        """
        return self._fs.open_input_file(self._path(name))

    def delete(self, name: str) -> None:
        """Let a file go, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    # --- the columns

    def schema(self) -> pa.Schema | None:
        """What the topology's side has declared; None as long as it has not."""
        import pyarrow as pa

        found = self.read(SCHEMA)
        return None if found is None else pa.ipc.read_schema(pa.py_buffer(found))

    def declare(self, schema: pa.Schema) -> None:
        """Declare the columns. All tasks of a component do, and so do those of the next topology.

        Raises:
            ConfigError: Others were declared before.
        """
        before = self.schema()
        if before is None:
            self.write(SCHEMA, schema.serialize().to_pybytes())
        elif not before.equals(schema):
            raise ConfigError(
                f"The pipe {self.where} has the columns {spelt(before)}, not {spelt(schema)}.",
                remedy="Use another directory, or remove this one when nothing in it is needed.",
            )


class Writing:
    """See `Pipe.writing`."""

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self._fs, self._path = files, path
        self._part = f"{path}.{uuid.uuid4().hex}{_PART}"

    def __enter__(self) -> pa.NativeFile:
        self._fs.create_dir(self._path.rpartition("/")[0], recursive=True)
        self._file = self._fs.open_output_stream(self._part)
        return self._file

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._file.close()
            if kind is None:
                self._fs.move(self._part, self._path)
                return
        except BaseException:
            self._drop()
            raise
        self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self._fs.delete_file(self._part)


def place(where: str | Path) -> str:
    """A path from the root, whatever directory other processes are in; a URI as it is."""
    return str(where) if "://" in str(where) else str(Path(where).expanduser().absolute())


def wait_for_room(waiting: Callable[[], int], most: int, seconds: float) -> int:
    """Wait until so much may be added, but not for long.

    Args:
        waiting: Bytes that nobody has read yet.
        most: So many may wait.

    Returns:
        Those that wait now.
    """
    until = time.monotonic() + seconds
    while (now := waiting()) > most and time.monotonic() < until:
        time.sleep(_LOOK)  # no file system that is meant here tells when a file goes
    return now


def numbered(number: int, end: str) -> str:
    """The name of a file with a number: names sort as numbers do."""
    return f"{number:0{_DIGITS}}{end}"


def number_of(name: str) -> int:
    """The number in such a name."""
    return int(name[:_DIGITS])


def spelt(schema: pa.Schema) -> str:
    """Columns for people."""
    return ", ".join(f"{f.name} {f.type}" for f in schema)
