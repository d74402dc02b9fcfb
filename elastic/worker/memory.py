"""How a worker process keeps the memory that it has had.

The C library gives large blocks back to the system as soon as they are free, and gets new ones page by page when they are first written to.
When a dictionary of 700,000 entries grows, that is 5,000 pages in one call, in which no other thread gets the interpreter: 17 to 25 ms,
8 without them. So a worker keeps what is free up to a bound, and has the pages that a state will need made while others can run; and the
dictionary of a state of which the size is known gets its table when there is next to nothing in it that would have to be put into the
new one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

LARGEST = 32 << 20
"""Bytes: the C library does not keep larger blocks, unless it is told not to have any of the system by themselves."""
LARGEST_TABLE = 1 << 30
"""Bytes of a table for which it is told so."""
_MOST = (1 << 31) - 1
"""What it is told is a number of 31 bits."""
KEPT = 96 << 20
"""Bytes that are kept at most, where they are at the end of the heap."""
_STEP = 256 << 10
_REST = 1e-4
"""Bytes that are made at a time, and seconds in between: the threads of a worker may have to share a core."""
_HEAD = 64
"""Bytes of its own that the C library adds to a block, at most."""
_SLACK = 1 << 20
"""Bytes that are made in addition: what is free again may lose some to small blocks before the one that it is for comes."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8  # malloc.h
_USUAL_MMAP_MAX = 65536
_POPULATE_WRITE = 23
"""`madvise(2)`, Linux from 5.14 on: half of what it costs to write to each page."""

_SIZED = (3, 11), (3, 14)
"""Versions of CPython whose `dict.update` is known to do what `make_table` relies on: from the one, before the other."""

_kept = False
_lock = threading.Lock()
_larger: dict[TableMemory, int] = {}  # bytes of those that are to be kept


def keep(environment: Mapping[str, str] = os.environ) -> bool:
    """From now on keep memory. To be called before there are threads; leaves alone what somebody has set up otherwise.

    One heap serves all threads: what one of them has had is of use to another.

    Returns:
        Whether it is so; not every C library has that.
    """
    global _kept
    if any(n.startswith("MALLOC_") for n in environment) or "malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        return False
    _kept = _set_up((_ARENA_MAX, 1), (_MMAP_THRESHOLD, LARGEST), (_TRIM_THRESHOLD, KEPT))
    return _kept


def _set_up(*wanted: tuple[int, int]) -> bool:
    """Tell the C library; returns whether it does all of that."""
    mallopt = ctypes.CDLL(None).mallopt
    done = [bool(mallopt(what, value)) for what, value in wanted]
    return all(done)


def make_ready(size: int, blocks: int = 1) -> None:
    """Have the memory made for a block of so many bytes that is about to be allocated. Others run meanwhile. Nothing happens in a process
    that does not keep memory, nor for blocks that are too large to be kept.

    Args:
        blocks: So many are allocated one after the other. As much is made as is kept of one block.
    """
    if _kept and _is_kept(size):
        _make_block(min(blocks * size + _SLACK, LARGEST - _HEAD - 1))


class TableMemory:
    """That of a table that is about to be made. Larger ones than are kept otherwise are kept until `let_go`.

    Args:
        size: Bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._over = False

    def make_ready(self) -> None:
        """Have it made, while others run. From any thread."""
        if _is_kept(self.size + _SLACK):
            make_ready(self.size)
        elif _kept and self.size <= LARGEST_TABLE and makes_tables():
            with _lock:
                if self._over:
                    return
                _larger[self] = self.size + _SLACK
                _keep_larger()
            _make_block(self.size + _SLACK)

    def let_go(self) -> None:
        """The table is there, or there will be none. From any thread, also while it is made."""
        with _lock:
            self._over = True
            if _larger.pop(self, 0):
                _keep_larger()


def _is_kept(size: int) -> bool:
    return size < LARGEST - _HEAD


def _keep_larger() -> None:
    """Have the C library keep what is wanted of larger blocks. Under the lock."""
    _set_up(
        (_MMAP_MAX, 0 if _larger else _USUAL_MMAP_MAX),
        (_TRIM_THRESHOLD, min(KEPT + sum(_larger.values()), _MOST)),
    )


def _make_block(size: int) -> None:
    """Have the memory made for a block of so many bytes."""
    libc = ctypes.CDLL(None)  # calls into it release the interpreter
    malloc, free = libc.malloc, libc.free
    malloc.argtypes, malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    free.argtypes = (ctypes.c_void_p,)
    block = malloc(size)
    for at in range(0, size if block else 0, _STEP):
        if _make(libc, block + at, min(_STEP, size - at)):
            time.sleep(_REST)
    free(block)


def _make(libc: ctypes.CDLL, at: int, size: int) -> bool:
    """Make the pages there, but that in which it ends; returns whether some had not been there."""
    first = at - at % mmap.PAGESIZE
    pages = (at + size - first) // mmap.PAGESIZE
    there = ctypes.create_string_buffer(max(1, pages))
    where, length = ctypes.c_void_p(first), ctypes.c_size_t(pages * mmap.PAGESIZE)
    if libc.mincore(where, length, there) == 0 and all(page & 1 for page in there.raw[:pages]):
        return False
    if libc.madvise(where, length, _POPULATE_WRITE) != 0:
        libc.memset(ctypes.c_void_p(at), 0, ctypes.c_size_t(size))
    return True


def slots_for(count: int) -> int:
    """Slots of the table of a dictionary that has grown to so many entries: it is filled up to two thirds, and then made twice as large."""
    slots = 8
    while 2 * slots < 3 * count:
        slots *= 2
    return slots


def table_size(size: int, slots: int, wanted: int) -> int:
    """Bytes of a table with `wanted` slots, for entries of which one with `slots` takes `size` bytes (`sys.getsizeof`)."""
    return int(wanted * ((size - slots * _width(slots)) / slots + _width(wanted)))


def _width(slots: int) -> int:
    """Bytes of a slot, which says where its entry is."""
    return 1 if slots <= 1 << 8 else 2 if slots <= 1 << 16 else 4


def makes_tables() -> bool:
    """Whether `make_table` can do what it is for in this interpreter."""
    if sys.implementation.name != "cpython" or not (_SIZED[0] <= sys.version_info < _SIZED[1]):
        return False
    # Nor in one without the lock, or one that keeps a list of all objects.
    return "t" not in getattr(sys, "abiflags", "") and not hasattr(sys, "getobjects")


def make_table(entries: dict[Any, Any], count: int) -> bool:
    """Give a dictionary a table for so many entries at once. A new table is filled with all that is there, in one call in which no other
    thread gets the interpreter: with 700,000 entries that takes 12 to 20 ms even where its memory is ready, with 2,000 it takes one.

    Nothing in the language does that. But `dict.update` makes room for as many entries as the other dictionary has, by what that says:
    so one with a single entry, which is there already, says more for the time of the call.

    Returns:
        Whether it has one; else it grows as it always does.
    """
    if not entries or not makes_tables():
        return False
    key = next(dict.__iter__(entries))
    other = {key: dict.__getitem__(entries, key)}
    length = ctypes.c_ssize_t.from_address(id(other) + object.__basicsize__)  # PyDictObject.ma_used
    if length.value != 1:
        return False
    try:
        length.value = count
        dict.update(entries, other)
    finally:
        length.value = 1
    return True
