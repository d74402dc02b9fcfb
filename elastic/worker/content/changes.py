"""What has changed of a large state while it is copied: in tables that do not grow.

A table that grows is filled anew in one call, in which no other thread gets the interpreter: 3 ms at 174,762 entries, 12 at 349,525 and 25
at 699,050; to let go of one takes longer the more there are in it, too. So each is made for a certain number, its memory before that, and
another one follows when it is almost full.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice, repeat
from typing import Any

from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.worker import memory

TABLE = 349_000
"""Changes for which there is room in a table at most: 8 MB where all keys are strings, else 10. In smaller ones, of which there are more,
to look for what has been copied takes longer."""
LEAST = 20_000
"""A table for fewer grows in a fraction of a millisecond, and need not be made for them."""
FULL = 0.75
"""Part of it that is filled when the next one follows: what changes until somebody looks again needs room as well."""
TABLES = 2
"""The memory of so many is made before they are needed."""
MOST = 2
"""In all tables are so many times as many changes as there are entries, at most; then the last one grows. A key that changes all the time
may be in each of them."""
_NOTED = 2048

Table = dict[Any, Any]


def room_for(count: int) -> int:
    """How many changes of a state a table is made for: two thirds of its entries, within bounds; 0: none is made, it may grow.

    Args:
        count: Entries of the state.
    """
    room = min(count * 2 // 3, TABLE)
    return room if room >= LEAST and memory.makes_tables() else 0


def make_memory(state: StateMap[Any, Any]) -> None:
    """Have the memory of its tables made, while others run."""
    count = dict.__len__(state)
    if room := room_for(count):
        slots = memory.slots_for(count)
        size = memory.table_size(sys.getsizeof(state), slots, memory.slots_for(1 + room))
        memory.make_ready(size, TABLES)


class Changes:
    """Of one state of which changes are remembered. Called between two tuples of its task; its length also by other threads.

    Args:
        large: Whether its tables are not to grow.
    """

    def __init__(self, state: StateMap[Any, Any], *, large: bool) -> None:
        self._state = state
        self._large = large
        self._older: deque[Table] = deque()
        self._room = self._dropped = 0
        self._make_room(TABLE)

    def __len__(self) -> int:
        return sum(map(len, tuple(self._older))) + len(self._state._changed)

    def turn_over(self) -> None:
        """To be called again and again: another table follows if this one is almost full."""
        if not self._room:
            return
        # What was dropped keeps its place in a table.
        full = len(self._state._changed) + self._dropped >= FULL * self._room
        if full and len(self) < MOST * dict.__len__(self._state):
            self._older.append(tracking.take_changes(self._state))
            self._make_room(TABLE)

    def drop(self, keys: Collection[Any]) -> None:
        """These were copied as they are: of changes until now nothing else has to be."""
        for table in self._older:
            deque(map(table.pop, keys, repeat(None)), maxlen=0)
        if changed := self._state._changed:
            before = len(changed)
            deque(map(changed.pop, keys, repeat(None)), maxlen=0)
            self._dropped += before - len(changed)

    def take(self, note: Callable[[Collection[Any]], None] = lambda keys: None) -> Iterator[tuple[Any, Any]]:
        """All that has changed until now, with its values; what changes from now on is remembered anew. A key may come again, with a value
        that is newer each time.

        Args:
            note: Told of all keys before they come, if some were removed: who collects them sees the first of those that are equal.
        """
        count = len(self)
        tables = self._older
        tables.append(tracking.take_changes(self._state))
        self._older = deque()
        self._make_room(count)
        return chain.from_iterable(_one_by_one(tables, note if tracking.removed(self._state) else None))

    def _make_room(self, count: int) -> None:
        """For what is remembered anew.

        Args:
            count: So many changes are expected until they are taken.
        """
        self._dropped = 0
        room = room_for(dict.__len__(self._state)) if self._large else 0
        self._room = min(room, LEAST) if count < LEAST else room
        if room and count >= LEAST:
            # A table is only made for what has an entry: one that has not changed will be copied once more.
            changed, key = self._state._changed, next(dict.__iter__(self._state))
            changed[key] = dict.__getitem__(self._state, key)
            if not memory.make_table(changed, room):
                self._room = 0


def _one_by_one(
    tables: deque[Table], note: Callable[[Collection[Any]], None] | None
) -> Iterator[Iterable[tuple[Any, Any]]]:
    """What is in each; it is let go of before the next one is begun with."""
    while tables:
        if note is not None:
            keys = iter(tables[0])
            while some := list(islice(keys, _NOTED)):
                note(some)
        yield tables.popleft().items()
