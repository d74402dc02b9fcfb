"""What a topology has written, in order: of each task of a sink a folder of files with numbers, from 0 and without gaps.

Whoever reads them goes by numbers alone. The newest one of a folder is never removed: a task that begins anew goes on behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from elastic.spark.pipe import Pipe, number_of, numbered

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = "segments"
_END = ".arrow"


def folder(index: int) -> str:
    """The folder of a task.

    Args:
        index: Its place among those of its component.
    """
    return f"{index:05}"


def name(folder: str, number: int) -> str:
    """The file of a segment."""
    return f"{ROOT}/{folder}/{numbered(number, _END)}"


def numbers(pipe: Pipe, folder: str) -> list[int]:
    """Of the segments that are there, ascending."""
    return [number_of(n) for n in pipe.files(f"{ROOT}/{folder}") if n.endswith(_END)]


def end(pipe: Pipe, folder: str) -> int:
    """The number behind the newest segment; 0: there is none."""
    found = numbers(pipe, folder)
    return found[-1] + 1 if found else 0


def size(pipe: Pipe, folder: str) -> int:
    """Bytes of all segments that are there."""
    return sum(pipe.files(f"{ROOT}/{folder}").values())


def tidy(pipe: Pipe, folder: str) -> None:
    """Remove what a task that was killed has not finished."""
    for part in pipe.unfinished(f"{ROOT}/{folder}"):
        pipe.delete(f"{ROOT}/{folder}/{part}")


def begins(pipe: Pipe) -> dict[str, int]:
    """By folder, the first segment that is there."""
    found = ((f, numbers(pipe, f)) for f in pipe.folders(ROOT))
    return {f: n[0] for f, n in found if n}


def ends(pipe: Pipe) -> dict[str, int]:
    """By folder, the number behind its newest segment."""
    return {f: end(pipe, f) for f in pipe.folders(ROOT)}


def between(start: Mapping[str, int], stop: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """The segments that came from one look to a later one: folder, first, and the one behind the last."""
    for f, last in sorted(stop.items()):
        if (first := start.get(f, 0)) < last:
            yield f, first, last


def remove(pipe: Pipe, stop: Mapping[str, int]) -> None:
    """Remove the segments before those, but the newest of each."""
    for f, last in stop.items():
        for number in numbers(pipe, f)[:-1]:
            if number < last:
                pipe.delete(name(f, number))


def read(pipe: Pipe, folder: str, number: int) -> Iterator[pa.RecordBatch]:
    """The rows of a segment.

    Raises:
        FileNotFoundError: It has been removed.
    """
    import pyarrow as pa

    with pipe.open(name(folder, number)) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def encoded(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Record batches as bytes: as one, if there are many small ones."""
    import pyarrow as pa

    table = pa.Table.from_batches(batches, schema).combine_chunks()
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, schema) as writer:
        writer.write_table(table)
    return target.getvalue().to_pybytes()


def decoded(content: bytes) -> list[pa.RecordBatch]:
    """The inverse of `encoded`."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        return list(reader)
