"""Ready-made spout and sink for text files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elastic.api.components import StatefulBolt, StatefulSpout
from elastic.api.context import Counter, TopologyContext
from elastic.api.fields import Fields
from elastic.errors import ConfigError


class TextSpout(StatefulSpout):
    """Emits the lines of text files, without their ends, as the field `line`.

    Several tasks share the work: each reads its own stretch of every file, cut at line ends. Bytes that are not UTF-8 are
    replaced, counted in the metric `undecodable_lines`, and told in a warning `input-undecodable`: at the first such line, and at
    the end of the input when there were more.

    The stretches are those of the files as they are when the spout is made, so that all tasks agree on them, wherever and
    whenever each reads. What is added to a file afterwards is read by the last task, up to the end that it finds; a task that
    had come to its end by then does not read it.

    Args:
        paths: A file, a folder (all files in it and below, in order of their names), or a sequence of these.
        loop: Begin again at the end, for ever; a task in whose stretches no line begins ends at once.

    Raises:
        ConfigError: Something of it does not exist, cannot be read, or a folder has no files.
    """

    outputs = Fields(line=str)

    def __init__(self, paths: str | Path | Sequence[str | Path], *, loop: bool = False) -> None:
        given = [paths] if isinstance(paths, str | Path) else list(paths)
        found = [f for p in given for f in _files(Path(p))]
        self.paths = tuple(str(f) for f, _ in found)
        self.sizes = tuple(size for _, size in found)  # in bytes, when this was made
        if not self.paths:
            raise ConfigError("TextSpout was given nothing to read.")
        self.loop = loop
        self.file = 0  # the number of the file that is being read
        self.offset = -1  # the byte in it where the next line begins; -1: at this task's first line
        self.read: Counter | None = None
        self.bad: Counter | None = None

    def prepare(self, context: TopologyContext) -> None:
        self.read = context.counter("bytes_read")
        self.bad = context.counter("undecodable_lines")

    def get_state(self) -> object:
        return {"file": self.file, "offset": self.offset}

    def set_state(self, state: Any) -> None:
        self.file, self.offset = state["file"], state["offset"]

    def tuples(self) -> Iterator[str]:
        assert self.read is not None and self.bad is not None
        while True:
            whole = self.file == 0 and self.offset < 0
            read, before = self.read.value, self.bad.value
            while self.file < len(self.paths):
                yield from self._lines(self.paths[self.file], self.sizes[self.file])
                self.file, self.offset = self.file + 1, -1
            if (count := self.bad.value - before) > 1:
                self._warn(
                    f"{count:,} lines of the input are not UTF-8; the bytes in question were replaced."
                )
            if not self.loop:
                return
            # It would go round for ever, and its thread do nothing else.
            if whole and self.read.value == read:
                return
            self.file = 0

    def _warn(self, message: str) -> None:
        assert self.bad is not None
        self.context.warn("input-undecodable", message, lines=self.bad.value)

    def _lines(self, path: str, size: int) -> Iterator[str]:
        index, parts = self.context.index, self.context.parallelism
        assert self.read is not None and self.bad is not None
        with Path(path).open("rb", buffering=1 << 18) as file:
            start, end = size * index // parts, size * (index + 1) // parts
            if self.offset < 0:
                self.offset = start
                if start > 0:
                    # The line that begins before the stretch belongs to the task before, to its end.
                    file.seek(start - 1)
                    self.offset = start - 1 + len(file.readline())
            file.seek(self.offset)
            for raw in file:
                if self.offset >= end and index < parts - 1:
                    return
                self.offset += len(raw)
                self.read.value += len(raw)
                try:
                    line = raw.decode()
                except UnicodeDecodeError:
                    line = raw.decode("utf-8", "replace")
                    self.bad.value += 1
                    if self.bad.value == 1:
                        self._warn(
                            f"{path}: the line at byte {self.offset - len(raw):,} is not UTF-8; the bytes in question are replaced."
                        )
                yield line.rstrip("\r\n")


def _files(path: Path) -> list[tuple[Path, int]]:
    """The files there, each with its size in bytes."""
    path = Path.cwd() / path.expanduser()  # its links are not followed here: the pipe behind one has no name
    if path.is_dir():
        found = sorted(f for f in path.rglob("*") if f.is_file())
        if not found:
            raise ConfigError(f"There are no files in the folder {path}.")
    elif not path.exists():
        raise ConfigError(
            f"There is no file {path}.", remedy="Give the path of an existing text file or folder."
        )
    elif not path.is_file():  # to open a pipe could wait for ever
        raise ConfigError(
            f"{path} is not a regular file: a pipe or device cannot be divided among tasks, nor read again.",
            remedy="Save what comes from it as a file.",
        )
    else:
        found = [path]
    sized = []
    for file in found:
        try:
            with file.open("rb") as opened:
                sized.append((file.resolve(), os.fstat(opened.fileno()).st_size))
        except OSError as e:
            raise ConfigError(f"Cannot read {file}: {e.strerror}.") from e
    return sized


class TextSink(StatefulBolt):
    """Collects what it gets and writes it to a file when all input is worked off: a line a tuple, values separated by tabs, sorted.

    Lines are sorted by their text (in code point order). Tabs and line ends within values are written as `\\t`, `\\n` and `\\r`;
    everything else, also a backslash, stands as it is, so that the file can be compared with what other tools make. It is UTF-8;
    a surrogate, which UTF-8 does not have, is written as the byte that it stands for (`surrogateescape`) or else as `\\ud800`.
    The file appears complete or not at all. Use one task.

    Args:
        path: The file. Relative to where the topology is built.
        key: With it, only the newest tuple for each value of these fields is kept (positions, from 0).

    Raises:
        ConfigError: In `prepare`: it has several tasks, or the file cannot be written where the task is to run.
    """

    def __init__(self, path: str | Path, *, key: Sequence[int] = ()) -> None:
        self.path = str(Path(path).expanduser().resolve())
        self.key = tuple(key)
        self.rows: list[tuple[Any, ...]] = []
        self.newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def get_state(self) -> object:
        return {"rows": self.rows, "newest": self.newest}

    def set_state(self, state: Any) -> None:
        self.rows, self.newest = state["rows"], state["newest"]

    def prepare(self, context: TopologyContext) -> None:
        if context.parallelism > 1:
            raise ConfigError(
                f"TextSink {context.component!r} has {context.parallelism} tasks, which would overwrite each other's file.",
                remedy="Give it one.",
            )
        # Said before the work is done, and not when it is to be written.
        path = Path(self.path)
        if path.is_dir():
            raise ConfigError(f"TextSink {context.component!r} cannot write {path}: it is a folder.")
        if not path.parent.is_dir():
            raise ConfigError(
                f"TextSink {context.component!r} cannot write {path}: there is no folder {path.parent}.",
                remedy="Make it (on every node that may run the task), or give another path.",
            )
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise ConfigError(
                f"TextSink {context.component!r} cannot write {path}: no right to write into {path.parent}."
            )

    def execute(self, tup: Any) -> None:
        values = tup.values
        if self.key:
            self.newest[tuple(values[k] for k in self.key)] = values
        else:
            self.rows.append(values)

    def finish(self) -> None:
        rows = self.newest.values() if self.key else self.rows
        write_rows(Path(self.path), rows)


def write_rows(path: Path, rows: Any) -> None:
    """Write rows sorted, tab-separated, escaped; atomically."""
    lines = sorted("\t".join(map(_escape, row)) for row in rows)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(_encoded(line) + b"\n" for line in lines)
        # mkstemp makes files that only the owner may read; a result is for whoever the user's umask says.
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _encoded(line: str) -> bytes:
    try:
        return line.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # surrogates that stand for no byte: one of them must not cost all rows
        return b"".join(
            c.encode(errors="surrogateescape" if "\udc80" <= c <= "\udcff" else "backslashreplace")
            for c in line
        )


def _escape(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if "\t" in text or "\n" in text or "\r" in text:
        return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return text
