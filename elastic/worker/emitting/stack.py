"""Whether there is enough of the stack left to hand something on."""

from __future__ import annotations

import sys

DEEP, FRAMES = 200, 200
"""Where more than so many calls are within each other, it is looked whether so many more can be before something is handed on: user code
that recurses may have come to the end of the stack. An error in the middle would lose what others have emitted."""
STEPS = FRAMES // 3
"""So many calls by way of C are tried, too: from Python 3.12 on those have a limit of their own, which can come first (1500 in 3.12.1,
whatever `sys.setrecursionlimit` says), and each takes up to three of it."""


def need_stack() -> None:
    """See `FRAMES`. Raises RecursionError where there is none."""
    try:
        sys._getframe(DEEP)
    except ValueError:  # mostly
        return
    _descend(FRAMES)
    _descend_through_c(STEPS)


def _descend(calls: int) -> None:
    if calls:
        _descend(calls - 1)


def _descend_through_c(calls: int) -> None:
    if calls:
        any(map(_descend_through_c, (calls - 1,)))
