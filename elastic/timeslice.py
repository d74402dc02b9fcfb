"""How soon a thread that wakes up gets a processor that another one is computing on.

Threads of a worker wait for each other's turn at the interpreter, and while tasks move they keep to one core. Whoever waits for the
interpreter asks for it after a fraction of a millisecond, but to ask it needs that core, which the kernel gives it when the time slice of
the one that computes is over: up to 4 ms later, as the kernel looks only at its ticks. A thread with a *shorter* slice than the one that
computes goes first as soon as it wakes up, and gets no more of the processor than it would have had (docs/decisions/data-path.md, "Who
goes first where processors are short").

Linux from 6.12 on; elsewhere nothing changes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable

SHORT = 100_000
"""Nanoseconds: the least that the kernel takes."""

_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""The numbers of `sched_setattr` and `sched_getattr`: few C libraries have functions for them."""


class _Attributes(ctypes.Structure):
    """`struct sched_attr`, as `sched_setattr(2)` describes it."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),  # with the usual policy: the slice
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def shorten() -> None:
    """Have the calling thread, and those that it starts from now on, go first when they wake up beside one with the usual slice."""
    _set(SHORT)


def usual() -> None:
    """Give the calling thread the kernel's own slice: it computes for long, and others need not wait for that."""
    _set(0)


def give_way() -> float:
    """Let go of the interpreter, and of the core, for whoever is ready to run; go on at once if nobody is. From within long work that is
    done in short parts: then others need not ask for the interpreter, which takes a core as well.

    Returns:
        The seconds for which others went first: not to be counted as time spent on that work, or it would come to nothing where much
        else is to be done.
    """
    began = time.monotonic()
    _sched_yield()
    return time.monotonic() - began


def length(thread: int = 0) -> int:
    """A thread's slice in nanoseconds; 0: the system tells none.

    Args:
        thread: Its number in the system (`threading.Thread.native_id`), of whichever process; 0: the calling thread.
    """
    attributes = _Attributes()
    return int(attributes.runtime) if _read(attributes, thread) else 0


def _set(nanoseconds: int) -> None:
    attributes = _Attributes()
    # A thread to which somebody has given a policy of its own keeps it as it is.
    if not _read(attributes) or attributes.policy != os.SCHED_OTHER:
        return
    attributes.size, attributes.flags, attributes.runtime = ctypes.sizeof(attributes), 0, nanoseconds
    call, (number, _) = _call(), _CALLS[platform.machine()]
    call(ctypes.c_long(number), ctypes.c_long(0), ctypes.byref(attributes), ctypes.c_long(0))


def _read(into: _Attributes, thread: int = 0) -> bool:
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        return False
    number, size = _CALLS[platform.machine()][1], ctypes.sizeof(into)
    answer = _call()(
        ctypes.c_long(number),
        ctypes.c_long(thread),
        ctypes.byref(into),
        ctypes.c_long(size),
        ctypes.c_long(0),
    )
    return answer == 0


def _call() -> Callable[..., int]:
    return ctypes.CDLL(None).syscall


def _let_go() -> int:
    time.sleep(0)
    return 0


# Through `ctypes`: before Python 3.12 `os.sched_yield` keeps the interpreter.
_sched_yield: Callable[[], int] = getattr(ctypes.CDLL(None), "sched_yield", _let_go)
