"""One key, arrival by arrival: what came, and what did not. Imports nothing of elastic."""

from __future__ import annotations

import hashlib
import struct
import zlib

from chaos.findings import Again, Forgotten, Hole, Key

HEAVY, PIECES, PIECE, EACH = 16, 128, 4096, 8
"""As `chaos/job.py` has them: which keys weigh something, of how many pieces of how many bytes, and which tuples exchange one."""


class Follow:
    """One key, arrival by arrival."""

    __slots__ = ("came", "counted", "holes", "id", "key", "next", "sink", "task")

    def __init__(self, id: int) -> None:
        self.id = id
        self.key = Key(name_of(id))
        self.next = 0  # the number after the greatest that has come
        self.counted = 0
        self.task = self.sink = 0  # that the last came through
        self.holes: list[Hole] = []  # what has not come, in order

    def arrival(self, at: int, n: int, task: int, count: int, held: int, sink: int) -> bool:
        """Whether it is as it should be."""
        key = self.key
        good = True
        if key.arrived:
            if at - key.last > key.gap:
                key.gap = at - key.last
        else:
            key.first = at
        if task != self.task or sink != self.sink:
            self.task, self.sink = task, sink
            if task not in key.tasks:
                key.tasks.append(task)
            if sink not in key.sinks:
                key.sinks.append(sink)
        hole = n - self.next
        if hole:
            good = False
            if hole > 0:
                self.holes.append(Hole(self.next, n - 1, key.last, at))
                self.next = n + 1
            else:
                key.note("reordered" if self._late(n) else "doubled", Again(n, at))
        else:
            self.next = n + 1
        if count != self.counted:
            good = False
            key.note("forgotten", Forgotten(count, self.counted, key.last, at, max(0, hole), task, sink))
        self.counted = count + 1
        # By the count that came along, right or not: all of one state is of one time.
        if held != (0 if count % EACH else held_by(self.id, count)):
            good = False
            key.note("mixed", Again(n, at))
        key.arrived += 1
        key.last = at
        return good

    def _late(self, n: int) -> bool:
        """A number that came after a later one; whether it was missing. What came late is not lost."""
        for i, hole in enumerate(self.holes):
            if hole.first <= n <= hole.last:
                parts = (
                    Hole(hole.first, n - 1, hole.after, hole.before),
                    Hole(n + 1, hole.last, hole.after, hole.before),
                )
                self.holes[i : i + 1] = [p for p in parts if p.first <= p.last]
                return True
        return False

    def now(self) -> Key:
        """What can be said of it by now."""
        key = self.key
        key.lost = list(self.holes)
        if key.emitted > self.next:
            key.lost.append(Hole(self.next, key.emitted - 1, key.last, 0))
        return key

    def strayed(self) -> str:
        """That it came by more than one task of a component, or ""."""
        key = self.key
        if len(key.tasks) < 2 and len(key.sinks) < 2:
            return ""
        return f"{key.key} came by tasks {sorted(key.tasks)} and sinks {sorted(key.sinks)}"

    def invented(self) -> str:
        """That numbers came which its spout has not emitted, or ""."""
        key = self.key
        if not 0 <= key.emitted < self.next:
            return ""
        return f"{key.key}: {key.emitted} to {self.next - 1} came, and its spout emitted {key.emitted}"


def held_by(key: int, count: int) -> int:
    """The sum that has to come along with that count: of the piece which the key has got `PIECES` exchanges before."""
    if key & 4095 >= HEAVY:
        return 0
    seed = struct.pack("=qq", key, count // EACH - PIECES)
    return zlib.crc32(hashlib.shake_128(seed).digest(PIECE))


def name_of(key: int) -> str:
    """A key for people: its spout's task, the life of that, a number."""
    return f"{key >> 52}.{key >> 12 & (1 << 40) - 1:x}.{key & 4095}"
