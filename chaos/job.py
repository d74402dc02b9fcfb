"""The topology that is hurt: numbered tuples per key, from spouts through a bolt with state by key to sinks that note down every arrival.

It is shipped as one file, so it imports nothing of `chaos`. What it notes is described in `chaos/check.py`.

The bolt in the middle has a large state: half a megabyte for each of the first keys of each spout's task, so that most of its tasks are
copied ahead of the pause when they move. Every eighth tuple of a key takes one piece of it out and puts another one in. What was taken
out follows from the key and its count alone: a sum of it goes along with the tuple, and who checks compares it.

How fast it is, and how slow some of it now and then, says a file, `pace`, that may change while it runs: `RATE SLOW`, tuples per second
of all spouts together, and the share of the time in which a task of the others takes no more than `CRAWL` tuples per second. In a flood
(`SLOW` is above 0) half of what a spout emits is for one of its keys, now this one and now that: where its task, or the sink behind it,
is slow, windows and queues are full within a second, and whoever sends there has to wait.

At the points where a move calls into it (`prepare`, `get_state`, `set_state`) each task says so on a Unix socket, if anybody listens
there, and waits for the answer: that is how a process is killed exactly there.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import mmap
import os
import random
import socket
import struct
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder

HOLD = 20.0
"""Seconds that a task waits at most for its answer."""
TICK = 0.002
"""Seconds until a spout looks again what is due."""
BURST = 128
"""Tuples that a spout emits at a time at most."""
LATE = 0.1
"""Seconds that a spout is behind at most: what it could not emit in more than that is not made good, or it would never be slow again."""
LOOK = 0.25
"""Seconds between two looks at what is wanted."""
PHASE = 2.0
"""Seconds that a task stays slow, or not."""
CRAWL = 3200.0
"""Tuples per second of a task that is slow."""
NAP = 0.01
"""Seconds that it sleeps at a time."""
QUEUE = 512
"""Tuples that wait for the tasks of an executor. A link has eight times as many under way, or held back: what a flood brings within a
second."""

HEAVY = 16
"""Keys of each spout's task that weigh something: the first ones."""
PIECES = 128
PIECE = 4096
"""Pieces of such a key, and the bytes of one."""
EACH = 8
"""Of a key's tuples that one which exchanges a piece."""
NUMBERED = 16
"""Of the exchanges of a key that one which also looks how many pieces the task has: that reads all of its state."""

HEADER = struct.Struct("=4sIIIqq")
ARRIVAL = struct.Struct("=qIIIIq")
SEGMENT = 1 << 20
"""Bytes of a file of a sink's record."""
AHEAD = 64
"""Files that one life of a sink's task is ahead of who checks them at most."""
PATIENCE = 60.0
"""Seconds that it waits for that."""


def tell(place: str, point: str, component: str, task: int) -> None:
    """Say on the socket that this process is at that point, and wait until it may go on."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(HOLD)
        s.connect(str(Path(place, "steps")))
        s.sendall(f"{point} {component} {task} {os.getpid()}\n".encode())
        s.recv(1)


class Pace:
    """What the file says, read now and then."""

    def __init__(self, place: str, rate: float) -> None:
        self._path = Path(place, "pace")
        self._due = 0.0
        self.rate, self.slow = rate, 0.0

    def look(self, now: float) -> bool:
        """Read it if it is time to; whether it was."""
        if now < self._due:
            return False
        self._due = now + LOOK
        with contextlib.suppress(OSError, ValueError):
            rate, slow = self._path.read_text().split()
            self.rate, self.slow = float(rate), float(slow)
        return True


class Crawl:
    """Makes a task slow for a while, now and then: whoever sends to it has to wait."""

    def __init__(self, place: str, task: int) -> None:
        self._task = task
        self._pace = Pace(place, 0.0)
        self._phase = -1
        self._slow = False
        self._left = int(CRAWL * NAP)

    def step(self) -> None:
        """A tuple is about to be executed."""
        self._left -= 1
        if self._left:
            return
        self._left = int(CRAWL * NAP)
        now = time.monotonic()
        looked = self._pace.look(now)
        phase = int(now / PHASE)
        if looked or phase != self._phase:
            self._phase = phase
            self._slow = random.Random(f"{self._task}/{phase}").random() < self._pace.slow
        if self._slow:
            time.sleep(NAP)  # this is what it is for: to be slow


class Numbers(StatefulSpout):
    """0, 1, 2, ... for each of its keys. A life that starts without state has keys of its own, so that it cannot be taken for another."""

    outputs = Fields(key=int, n=int)

    def __init__(self, place: str, keys: int, rate: float, tasks: int) -> None:
        self.place = place
        self.keys = keys
        self.rate = rate
        self.tasks = tasks
        self.life = 0
        self.next = [0] * keys
        self.turn = 0

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        self.pace = Pace(self.place, self.rate)
        self.since, self.sent = time.monotonic(), 0
        self.names: list[int] = []
        tell(self.place, "prepare", "numbers", self.task)

    def next_tuple(self) -> float | None:
        now = time.monotonic()
        if not self.names:
            self.life = self.life or time.time_ns() // 1_000_000 % (1 << 40)
            self.names = [self.task << 52 | self.life << 12 | k for k in range(self.keys)]
        before = self.pace.rate
        if self.pace.look(now):
            if Path(self.place, "stop").exists():
                self.end()
                return None
            if self.pace.rate != before:
                self.since, self.sent = now, 0
        rate = self.pace.rate / self.tasks
        due = int((now - self.since) * rate) - self.sent
        if due <= 0:
            return TICK
        if due > rate * LATE + 1:
            self.since, self.sent, due = now - LATE, 0, int(rate * LATE) or 1
        count = min(due, BURST)
        self.emit_all(self._some(count, now))
        self.sent += count
        return None

    def _some(self, count: int, now: float) -> list[tuple[int, int]]:
        """The next tuples: each key in its turn, half of them for one of the keys in a flood."""
        next_, names, keys = self.next, self.names, self.keys
        hot = random.Random(f"{self.task}/{int(now / PHASE)}").randrange(keys) if self.pace.slow else -1
        some = []
        for i in range(count):
            if hot >= 0 and i % 2:
                k = hot
            else:
                k = self.turn = (self.turn + 1) % keys
            some.append((names[k], next_[k]))
            next_[k] += 1
        return some

    def end(self) -> None:
        """Write down how many of each key there were, and be exhausted."""
        lines = (f"E {name} {self.next[k]}\n" for k, name in enumerate(self.names))
        path = Path(self.place, f"ends-{self.task}-{self.life:x}.txt")
        path.with_suffix(".part").write_text("".join(lines))
        path.with_suffix(".part").rename(path)
        self.exhausted()

    def get_state(self) -> object:
        tell(self.place, "get_state", "numbers", self.task)
        return self.life, list(self.next)

    def set_state(self, state: Any) -> None:
        tell(self.place, "set_state", "numbers", self.task)
        self.life, self.next = state[0], list(state[1])


def piece(key: int, turn: int) -> bytes:
    """What a key has got at its `turn`th exchange; below 0: at its beginning."""
    return hashlib.shake_128(struct.pack("=qq", key, turn)).digest(PIECE)


class Count(StatefulBolt):
    """Counts each key, and passes on with each tuple what it had counted before, and now and then a sum of what it had kept for it."""

    outputs = Fields(key=int, n=int, task=int, count=int, held=int)
    counts: KeyedState[int, int] = KeyedState(int)
    pieces: KeyedState[tuple[int, int], bytes] = KeyedState()

    def __init__(self, place: str) -> None:
        self.place = place

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        self.crawl = Crawl(self.place, self.task).step
        tell(self.place, "prepare", "count", self.task)

    def execute(self, tup: Any) -> None:
        self.crawl()
        count = self.counts[tup.key]
        self.counts[tup.key] = count + 1
        held = self._exchange(tup.key, count) if not count % EACH and tup.key & 4095 < HEAVY else 0
        self.emit(tup.key, tup.n, self.task, count, held)

    def _exchange(self, key: int, count: int) -> int:
        """The oldest piece of a key for a new one; a sum of the old one. A number of pieces that cannot be makes it another sum."""
        if not count:
            self._begin(key)
        turn = count // EACH
        old = self.pieces.pop((key, turn - PIECES), b"")
        self.pieces[key, turn] = piece(key, turn)
        return zlib.crc32(old, 0 if turn % NUMBERED else len(self.pieces) % PIECES)

    def _begin(self, key: int) -> None:
        """The pieces of a new key. Those of an earlier life of its spout's task go: nothing comes for them any more."""
        for other in [k for k in self.counts if k >> 52 == key >> 52 and k >> 12 < key >> 12]:
            turn = -(-self.counts.pop(other) // EACH)
            for t in range(turn - PIECES, turn):
                self.pieces.pop((other, t), None)
        for t in range(-PIECES, 0):
            self.pieces[key, t] = piece(key, t)


class Notes:
    """The record of one life of a sink's task: files of `SEGMENT` bytes, one after the other, written as memory.

    What was put there is in the file whatever becomes of the process, and costs no call of the system. The last file is as long as what is
    in it, once the life is over.
    """

    def __init__(self, place: str, task: int, already: int) -> None:
        self._place = Path(place)
        self._task = task
        self._started = time.monotonic_ns()
        self._name = f"record-{task}-{self._started}-{os.getpid()}"
        self._count = already
        self._segment = 0
        self._file: BinaryIO | None = None
        self._map: mmap.mmap | None = None
        self._at = SEGMENT

    def note(self, key: int, n: int, task: int, count: int, held: int) -> None:
        if self._at + ARRIVAL.size > SEGMENT:
            self._next()
        assert self._map is not None
        # The time is written last: an arrival without it is not there.
        ARRIVAL.pack_into(self._map, self._at, key, n, count, task, held, time.monotonic_ns())
        self._at += ARRIVAL.size
        self._count += 1

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._file is not None:
            self._file.truncate(self._at)
            self._file.close()
            self._file = None

    def _next(self) -> None:
        self._wait()
        self.close()
        self._file = (self._place / f"{self._name}-{self._segment:06}.bin").open("x+b", buffering=0)
        self._file.truncate(SEGMENT)
        self._map = mmap.mmap(self._file.fileno(), SEGMENT)
        HEADER.pack_into(
            self._map, 0, b"SINK", self._task, os.getpid(), self._segment, self._count, self._started
        )
        self._segment += 1
        self._at = HEADER.size

    def _wait(self) -> None:
        """Until whoever checks has not more than so much to do: the record has a bound."""
        deadline = time.monotonic() + PATIENCE
        while len(list(self._place.glob(f"{self._name}-*.bin"))) > AHEAD:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody has checked the record of sink {self._task} for {PATIENCE:g} s")
            time.sleep(0.05)  # the checker knows nothing of this process


class Sink(StatefulBolt):
    """Notes down each arrival before it counts."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.arrived = 0
        self.notes: Notes | None = None

    def prepare(self, context: Any) -> None:
        self.task = int(context.task)
        self.crawl = Crawl(self.place, self.task).step
        tell(self.place, "prepare", "sink", self.task)

    def execute(self, tup: Any) -> None:
        self.crawl()
        if self.notes is None:
            self.notes = Notes(self.place, self.task, self.arrived)
        self.notes.note(tup.key, tup.n, tup.task, tup.count, tup.held)
        self.arrived += 1

    def cleanup(self) -> None:
        if self.notes is not None:
            self.notes.close()

    def get_state(self) -> object:
        tell(self.place, "get_state", "sink", self.task)
        return self.arrived

    def set_state(self, state: Any) -> None:
        tell(self.place, "set_state", "sink", self.task)
        self.arrived = state


def topology(args: list[str]) -> TopologyBuilder:
    parser = argparse.ArgumentParser(prog="chaos/job.py")
    parser.add_argument("--place", required=True, help="the directory of the record")
    parser.add_argument("--name", default="chaos")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--counts", type=int, default=12, help="tasks of the bolt in the middle")
    parser.add_argument("--keys", type=int, default=16, help="keys of each task of the spout")
    parser.add_argument(
        "--rate", type=float, default=1500.0, help="tuples per second, until `pace` says otherwise"
    )
    options = parser.parse_args(args)
    spouts = 3
    b = TopologyBuilder(options.name, workers=options.workers, report_interval=0.5, queue_rows=QUEUE)
    numbers = Numbers(options.place, options.keys, options.rate, spouts)
    b.spout("numbers", numbers, tasks=spouts, executors=spouts)
    b.bolt("count", Count(options.place), tasks=options.counts, executors=4).fields("numbers", "key")
    b.bolt("sink", Sink(options.place), tasks=6, executors=4).fields("count", "key")
    return b
