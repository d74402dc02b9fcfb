"""The hand-written Arrow loop: record batches over bounded queues between threads; the ceiling of a batch API.

With two processes the first has the source and the splitter, the second the counter; or, hashed, each has a source (of
half the text), a splitter and a counter, and every word goes to the counter that its hash says: the Murmur3 of the
Iceberg bucket transform, computed on whole columns.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform

from benchmarks.words.kernels import ColumnCounts, split_column
from benchmarks.words.pipes import in_two_processes, receive, send
from benchmarks.words.rows import start
from benchmarks.words.text import arguments, lines, say

BATCH = 8192
QUEUED = 8
LINES = pa.schema([("line", pa.string())])
WORDS = pa.schema([("word", pa.string())])
Batches = Queue[Any]


def columns(text: list[str]) -> list[Any]:
    """The text as record batches in memory."""
    if not text:
        return []
    table = pa.table({"line": pa.array(text, pa.string())})
    return table.combine_chunks().to_batches(max_chunksize=BATCH)


def source(batches: list[Any], copies: int, out: Batches) -> None:
    """Record batches of lines."""
    for _ in range(copies):
        for batch in batches:
            out.put(batch)
    out.put(None)


def received(queue: Batches) -> Iterator[Any]:
    """What comes out of a queue until its end."""
    return iter(queue.get, None)


def split(inbox: Batches, out: Batches) -> None:
    """Record batches of words."""
    for batch in received(inbox):
        out.put(pa.record_batch([split_column(batch.column(0))], schema=WORDS))
    out.put(None)


def count(inbox: Batches, ends: int) -> dict[str, int]:
    """Counts of words, from as many senders as there are ends to wait for."""
    counts = ColumnCounts()
    for _ in range(ends):
        for batch in received(inbox):
            counts.add(batch.column(0))
    return counts.result()


def one_process(text: list[str], copies: int) -> tuple[dict[str, int], float]:
    """Source, splitter and counter in three threads."""
    raw, words = Batches(QUEUED), Batches(QUEUED)
    batches = columns(text)
    started = time.monotonic()
    start(lambda: source(batches, copies, raw), lambda: split(raw, words))
    counts = count(words, 1)
    return counts, time.monotonic() - started


def split_to_two(me: int, inbox: Batches, near: Batches, far: socket.socket) -> None:
    """Record batches of words, to this process's counter and to the other's."""
    for batch in received(inbox):
        words = split_column(batch.column(0))
        mine: Any = pc.equal(transform.bucket(words, 2), pa.scalar(me, pa.int32()))
        near.put(pa.record_batch([words.filter(mine)], schema=WORDS))
        send(far, memoryview(pa.record_batch([words.filter(pc.invert(mine))], schema=WORDS).serialize()))
    near.put(None)
    send(far, b"")


def from_afar(pipe: socket.socket, out: Batches) -> None:
    """The batches that the other process's splitter sends to this process's counter."""
    for payload in receive(pipe):
        out.put(pa.ipc.read_record_batch(pa.py_buffer(payload), WORDS))
    out.put(None)


def split_to_far(inbox: Batches, far: socket.socket) -> None:
    """Record batches of words, to the other process."""
    for batch in received(inbox):
        words = pa.record_batch([split_column(batch.column(0))], schema=WORDS)
        send(far, memoryview(words.serialize()))
    send(far, b"")


def two_processes(text: list[str], copies: int) -> tuple[dict[str, int], float] | None:
    """Source and splitter in one process, the counter in the other."""

    def half(me: int, pipe: socket.socket) -> Callable[[], dict[str, int]]:
        batches = [] if me else columns(text)
        queue = Batches(QUEUED)

        def emit() -> dict[str, int]:
            start(lambda: source(batches, copies, queue))
            split_to_far(queue, pipe)
            return {}

        def collect() -> dict[str, int]:
            start(lambda: from_afar(pipe, queue))
            return count(queue, 1)

        return collect if me else emit

    return in_two_processes(half)


def two_hashed(text: list[str], copies: int) -> tuple[dict[str, int], float] | None:
    """Source, splitter and counter in each of two processes."""

    def half(me: int, pipe: socket.socket) -> Callable[[], dict[str, int]]:
        batches = columns(text[me::2])
        raw, words = Batches(QUEUED), Batches(QUEUED)

        def work() -> dict[str, int]:
            start(
                lambda: from_afar(pipe, words),
                lambda: source(batches, copies, raw),
                lambda: split_to_two(me, raw, words, pipe),
            )
            return count(words, 2)

        return work

    return in_two_processes(half)


def main() -> None:
    """The contender as a program."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = arguments(__doc__).parse_args()
    text = lines(options.input)
    contend = one_process if options.processes == 1 else two_hashed if options.hashed else two_processes
    if result := contend(text, options.copies):
        say(*result)


if __name__ == "__main__":
    main()
