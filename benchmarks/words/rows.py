"""The hand-written row loop: lists of tuples over bounded queues between threads; the ceiling of a per-tuple API.

Every tuple is made, handed on and looked at by itself, as an operator on tuples must do it; nothing else is done: no
positions, no metrics, no marks but the end. With two processes the first has the source and the splitter, the second the
counter; or, hashed, each has a source (of half the text), a splitter and a counter, and every word goes to the
counter that its hash says.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from queue import Queue

import mmh3
import msgspec

from benchmarks.words.pipes import in_two_processes, receive, send
from benchmarks.words.text import arguments, lines, say

BATCH = 1024
QUEUED = 8
Row = tuple[str]
Rows = list[Row] | None
Work = Callable[[], dict[str, int]]


def source(text: list[str], copies: int, out: Queue[Rows]) -> None:
    """Rows of one line each, from a text in memory."""
    rows: list[Row] = []
    for _ in range(copies):
        for line in text:
            rows.append((line,))
            if len(rows) >= BATCH:
                out.put(rows)
                rows = []
    out.put(rows)
    out.put(None)


def batches(queue: Queue[Rows]) -> Iterator[list[Row]]:
    """What comes out of a queue until its end."""
    return iter(queue.get, None)


def split(inbox: Queue[Rows], out: Queue[Rows]) -> None:
    """Rows of one word each."""
    words: list[Row] = []
    for rows in batches(inbox):
        for (line,) in rows:
            words += [(word,) for word in line.split()]
            if len(words) >= BATCH:
                out.put(words)
                words = []
    out.put(words)
    out.put(None)


def count(inbox: Queue[Rows], ends: int) -> dict[str, int]:
    """Counts of words, from as many senders as there are ends to wait for."""
    counts: defaultdict[str, int] = defaultdict(int)
    for _ in range(ends):
        for rows in batches(inbox):
            for (word,) in rows:
                counts[word] += 1
    return counts


def start(*functions: Callable[[], object]) -> None:
    """Run each in a thread of its own, which ends by itself when its input does."""
    for function in functions:
        threading.Thread(target=function, daemon=True).start()


def one_process(text: list[str], copies: int) -> tuple[dict[str, int], float]:
    """Source, splitter and counter in three threads."""
    raw: Queue[Rows] = Queue(QUEUED)
    words: Queue[Rows] = Queue(QUEUED)
    started = time.monotonic()
    start(lambda: source(text, copies, raw), lambda: split(raw, words))
    counts = count(words, 1)
    return counts, time.monotonic() - started


class Routes(dict[str, Callable[[Row], None]]):
    """Word -> the `append` of the list for its counter; the hash of each word is computed once."""

    def __init__(self, outputs: list[list[Row]]) -> None:
        self.outputs = outputs

    def __missing__(self, word: str) -> Callable[[Row], None]:
        append = self[word] = self.outputs[mmh3.hash(word, signed=False) % len(self.outputs)].append
        return append


def split_to_two(me: int, inbox: Queue[Rows], near: Queue[Rows], far: socket.socket) -> None:
    """Rows of one word each, to this process's counter and to the other's."""
    encode = msgspec.msgpack.Encoder().encode
    outputs: list[list[Row]] = [[], []]
    mine, others = outputs[me], outputs[1 - me]
    routes = Routes(outputs)
    for rows in batches(inbox):
        for (line,) in rows:
            for word in line.split():
                routes[word]((word,))
        # A batch of lines is several of words.
        near.put(mine[:])
        mine.clear()
        send(far, encode([word for (word,) in others]))
        others.clear()
    near.put(None)
    send(far, b"")


def from_afar(pipe: socket.socket, out: Queue[Rows]) -> None:
    """The rows that the other process's splitter sends to this process's counter."""
    decode = msgspec.msgpack.Decoder(list[str]).decode
    for payload in receive(pipe):
        out.put([(word,) for word in decode(payload)])
    out.put(None)


def split_to_far(inbox: Queue[Rows], far: socket.socket) -> None:
    """Rows of one word each, to the other process."""
    encode = msgspec.msgpack.Encoder().encode
    words: list[Row] = []
    for rows in batches(inbox):
        for (line,) in rows:
            words += [(word,) for word in line.split()]
            if len(words) >= BATCH:
                send(far, encode([word for (word,) in words]))
                words = []
    send(far, encode([word for (word,) in words]))
    send(far, b"")


def two_processes(text: list[str], copies: int) -> tuple[dict[str, int], float] | None:
    """Source and splitter in one process, the counter in the other."""

    def half(me: int, pipe: socket.socket) -> Work:
        queue: Queue[Rows] = Queue(QUEUED)

        def emit() -> dict[str, int]:
            start(lambda: source(text, copies, queue))
            split_to_far(queue, pipe)
            return {}

        def collect() -> dict[str, int]:
            start(lambda: from_afar(pipe, queue))
            return count(queue, 1)

        return collect if me else emit

    return in_two_processes(half)


def two_hashed(text: list[str], copies: int) -> tuple[dict[str, int], float] | None:
    """Source, splitter and counter in each of two processes."""

    def half(me: int, pipe: socket.socket) -> Work:
        share = text[me::2]
        raw: Queue[Rows] = Queue(QUEUED)
        words: Queue[Rows] = Queue(QUEUED)

        def work() -> dict[str, int]:
            start(
                lambda: from_afar(pipe, words),
                lambda: source(share, copies, raw),
                lambda: split_to_two(me, raw, words, pipe),
            )
            return count(words, 2)

        return work

    return in_two_processes(half)


def main() -> None:
    """The contender as a program."""
    options = arguments(__doc__).parse_args()
    text = lines(options.input)
    gc.disable()  # nothing here makes cycles, and many young tuples make the collector look often
    contend = one_process if options.processes == 1 else two_hashed if options.hashed else two_processes
    if result := contend(text, options.copies):
        say(*result)


if __name__ == "__main__":
    main()
