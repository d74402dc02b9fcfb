"""Makes a grid of all that there is in a state, in steps between which its task runs: the keys by the piece that they belong to, then
one piece after the other.

A piece has the entries as they are when it is made: of what has changed until then nothing else has to be copied.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain, filterfalse, repeat
from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.worker.content.bins import BITS, places
from elastic.worker.content.entries import Present, entries_of
from elastic.worker.content.grid import GridWriter
from elastic.worker.content.wholes import Wholes

STEP = 512
"""Keys that are looked at in one step: a fraction of a millisecond."""
_RUN = 32 << 10
"""Bytes that are encoded in one step, about."""


class Gridding:
    """See the module.

    Args:
        bits: Binary logarithm of the number of buckets; `split`: of that of pieces.
        look: Looks at the entries that are copied.
        copied: Told of keys whose entries have just been taken.

    Attributes:
        loose: Keys that are in no piece of a grid.
    """

    def __init__(
        self,
        state: StateMap[Any, Any],
        bits: int,
        split: int,
        look: Wholes,
        copied: Callable[[list[Any]], None],
    ) -> None:
        self._state, self._look, self._copied = state, look, copied
        self._bits, self._split = bits, split
        self.loose: list[Any] = []
        self._parts: list[list[Any]] = []  # keys that are yet to be copied, by piece; taken from its end
        self._where: list[list[int]] = []  # their places

    def sort(self, present: Present) -> Iterator[None]:
        """Divide all keys that there are by the piece that they belong to."""
        shift = BITS - self._split
        parts: list[list[Any]] = [[] for _ in range(1 << self._split)]
        where: list[list[int]] = [[] for _ in parts]
        while keys := list(present.take(STEP)):
            self._look.kinds.note(keys)
            for key, there in zip(keys, places(keys), strict=True):
                if there is None:
                    self.loose.append(key)
                else:
                    parts[there >> shift].append(key)
                    where[there >> shift].append(there)
            yield None
        self._parts, self._where = parts[::-1], where[::-1]

    def pieces(self) -> Iterator[bytes | None]:
        """The pieces in order, b"" where there is nothing to put into one; None after other steps."""
        while self._parts:
            data = yield from self._piece(self._parts[-1], self._where.pop())
            self._parts.pop()
            yield data

    def missing(self) -> Iterator[Any]:
        """Keys that are in no piece yet, with those that are in none at all."""
        return chain(self.loose, chain.from_iterable(self._parts))

    def _piece(self, keys: list[Any], where: list[int]) -> Generator[None, None, bytes]:
        local = self._bits - self._split
        shift, mask = BITS - self._bits, (1 << local) - 1
        groups: list[list[Any]] = [[] for _ in range(1 << local)]
        for begin in range(0, len(keys), STEP):
            end = begin + STEP
            for key, there in zip(keys[begin:end], where[begin:end], strict=True):
                groups[there >> shift & mask].append(key)
            yield None
        entries = max(1.0, min(2.0 * STEP, _RUN / self._look.weight))  # of a run
        run = min(local, max(0, int(entries * (1 << local) / max(1, len(keys)))).bit_length())
        writer = GridWriter(run)
        for begin in range(0, len(groups), 1 << run):
            some_groups = groups[begin : begin + (1 << run)]
            try:
                writer.add(some_groups, *self._entries(some_groups))
            except Exception as e:
                those = dict(entries_of(self._state, chain.from_iterable(some_groups)))
                raise self._look.blame(those, e) from e
            yield None
        return writer.piece()

    def _entries(self, groups: list[list[Any]]) -> tuple[list[Any], list[Any], bool]:
        """(Keys, values, whether msgpack gives them back) of the entries of groups, from which absent keys are removed. So are those that
        are there again: they are copied with what has changed, and may be equal keys of another type."""
        state = self._state
        if gone := tracking.removed(state):
            groups[:] = [list(filterfalse(gone.__contains__, group)) for group in groups]
        keys = list(chain.from_iterable(groups))
        values = list(map(dict.__getitem__, repeat(state), keys))
        self._copied(keys)
        return keys, values, self._look.look(keys, values)
