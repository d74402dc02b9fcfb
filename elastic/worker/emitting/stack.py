"""Whether there is enough of the stack left to hand something on."""

from __future__ import annotations

import sys

DEEP, FRAMES = 200, 200
"""Where more than so many calls are within each other, it is looked whether so many more can be before something is handed on: user code
that recurses may have come to the end of the stack. An error in the middle would lose what others have emitted."""


def need_stack() -> None:
    """See `FRAMES`. Raises RecursionError where there is none."""
    try:
        sys._getframe(DEEP)
    except ValueError:  # mostly
        return
    _descend(FRAMES)


def _descend(calls: int) -> None:
    if calls:
        _descend(calls - 1)
