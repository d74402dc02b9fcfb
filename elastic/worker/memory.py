"""How a worker process keeps the memory that it has had.

The C library gives large blocks back to the system as soon as they are free, and gets new ones page by page when they are first written to.
When a dictionary of 700,000 entries grows, that is 5,000 pages in one call, in which no other thread gets the interpreter: 17 to 25 ms,
8 without them. So a worker keeps what is free up to a bound, and has the pages that a state will need made while others can run.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping

LARGEST = 32 << 20
"""Bytes: the C library does not keep larger blocks, whatever it is told."""
KEPT = 96 << 20
"""Bytes that are kept at most, where they are at the end of the heap."""
_STEP = 256 << 10
_REST = 1e-4
"""Bytes that are made at a time, and seconds in between: the threads of a worker may have to share a core."""
_HEAD = 64
"""Bytes of its own that the C library adds to a block, at most."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h

_kept = False


def keep(environment: Mapping[str, str] = os.environ) -> bool:
    """From now on keep memory. To be called before there are threads; leaves alone what somebody has set up otherwise.

    One heap serves all threads: what one of them has had is of use to another.

    Returns:
        Whether it is so; not every C library has that.
    """
    global _kept
    if any(n.startswith("MALLOC_") for n in environment) or "malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, LARGEST), (_TRIM_THRESHOLD, KEPT))
    _kept = all(bool(mallopt(what, value)) for what, value in wanted)
    return _kept


def make_ready(size: int) -> None:
    """Have the memory made for a block of so many bytes that is about to be allocated. Others run meanwhile. Nothing happens in a process
    that does not keep memory, or where the block is so large that it would not be kept.
    """
    if not _kept or size >= LARGEST - _HEAD:
        return
    libc = ctypes.CDLL(None)  # calls into it release the interpreter
    malloc, memset, free = libc.malloc, libc.memset, libc.free
    malloc.argtypes, malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    free.argtypes = (ctypes.c_void_p,)
    block = malloc(size)
    for at in range(0, size if block else 0, _STEP):
        memset(block + at, 0, min(_STEP, size - at))
        time.sleep(_REST)
    free(block)
