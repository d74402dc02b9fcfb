"""The tables in which a large state's changes are remembered while it is copied: they do not grow meanwhile.

A table that grows is filled anew in one call, in which no other thread gets the interpreter: 3 ms at 174,762 entries, 12 at 349,525. So it
is made for as many as there will be, and its memory before that.
"""

from __future__ import annotations

import sys
from typing import Any

from elastic.api.state import StateMap
from elastic.worker import memory

MOST_ROOM = 699_000
"""Changes for which there is room at most: 15 MB where all keys are strings, else 21."""
LEAST_ROOM = 20_000
"""A table for fewer grows in a fraction of a millisecond."""
TABLES = 2
"""There is one with what is being copied, and one with what changes meanwhile."""


def room_for(count: int) -> int:
    """How many changes there is room for while everything is copied once.

    Args:
        count: Entries of the state. A stream that reaches all of them as soon as they are copied reaches two thirds at most.
    """
    return min(count * 2 // 3, MOST_ROOM)


def make_room(state: StateMap[Any, Any], room: int) -> None:
    """Give the table of a state's changes room for so many. One entry counts as changed for that, if none has."""
    if room < LEAST_ROOM or not dict.__len__(state):
        return
    changed, key = state._changed, next(dict.__iter__(state))
    changed.setdefault(key, dict.__getitem__(state, key))  # a table is only made for what has an entry
    memory.make_table(changed, min(room, MOST_ROOM))


def make_memory(state: StateMap[Any, Any], room: int) -> None:
    """Have the memory of such tables made before that, while others run."""
    if room >= LEAST_ROOM and memory.makes_tables():
        slots = memory.slots_for(dict.__len__(state))
        size = memory.table_size(sys.getsizeof(state), slots, memory.slots_for(1 + room))
        memory.make_ready(size, TABLES)
