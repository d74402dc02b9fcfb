"""The part of a keyed state that is bytes still: read bucket by bucket when a key is asked for, or in runs when there is time."""

from __future__ import annotations

from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.worker.content.bins import BITS, place
from elastic.worker.content.grid import GridPiece

_keep = dict.setdefault
_FEW = 8


def _keep_all(into: StateMap[Any, Any], entries: dict[Any, Any]) -> None:
    """Put in what is not there."""
    if len(entries) <= _FEW:
        for key, value in entries.items():
            _keep(into, key, value)
        return
    for key in entries.keys() & dict.keys(into):
        del entries[key]
    dict.update(into, entries)


class UnreadBins:
    """See the module. What is in the dictionary holds; then what a newer layer says; then an older one.

    Attributes:
        layers: Newest last; pieces of the grid.
        gone: Keys that were removed: the bytes say too much.
        left: Buckets that have not been read.
    """

    def __init__(self, bits: int, split: int, layers: list[list[GridPiece | None]], gone: set[Any]) -> None:
        self.bits = bits
        self.split = split
        self.layers = layers
        self.gone = gone
        self.left = 1 << bits
        self._was_read = bytearray(1 << bits)
        self._next = 0

    def size(self) -> int:
        """Bytes of its pieces."""
        return sum(len(grid.data) for layer in self.layers for grid in layer if grid is not None)

    def read(self, into: StateMap[Any, Any], key: object) -> None:
        there = place(key)
        if there is None:  # it may be equal to one that has a place
            self.read_all(into)
            return
        number = there >> (BITS - self.bits)
        if not self._was_read[number]:
            self._read(into, number, number + 1)

    def read_all(self, into: StateMap[Any, Any]) -> None:
        while self.fill(into, 1 << 10):
            pass

    def forget(self, key: object) -> None:
        # Its bucket was read when the key was looked for. But should the bytes travel on, they say too much.
        self.gone.add(key)

    def forget_all(self, into: StateMap[Any, Any]) -> None:
        tracking.all_read(into)

    def fill(self, into: StateMap[Any, Any], buckets: int) -> bool:
        """Read about so many buckets more; returns whether some are left."""
        end = 1 << self.bits
        while self._next < end:
            first = self._next
            if self._was_read[first]:
                first = self._was_read.find(0, first)
                if first < 0:
                    self._next = end
                    break
            within = 1 << (self.bits - self.split)
            stop = min(first + max(1, buckets), (first // within + 1) * within)
            last = self._was_read.find(1, first, stop)
            self._next = stop if last < 0 else last
            self._read(into, first, self._next)
            break
        if not self.left:
            tracking.all_read(into)
        return tracking.is_lazy(into)

    def _read(self, into: StateMap[Any, Any], first: int, last: int) -> None:
        """Read neighbouring buckets of one piece, none of which was read before."""
        local = self.bits - self.split
        number, begin = first >> local, first & ((1 << local) - 1)
        end = begin + last - first
        gone = self.gone
        for layer in reversed(self.layers):
            grid = layer[number]
            if grid is None:
                continue
            for entries in grid.buckets(begin, end) if last - first > 1 else (grid.bucket(begin),):
                if entries is None:
                    continue
                if gone:
                    entries = {k: v for k, v in entries.items() if k not in gone}
                _keep_all(into, entries)
        self._was_read[first:last] = b"\x01" * (last - first)
        self.left -= last - first
        if not self.left:
            # The dictionary may keep hold of this; the bytes are let go.
            self.bits = self.split = self._next = 0
            self.layers, self._was_read = [], bytearray(b"\x01")
            tracking.all_read(into)
