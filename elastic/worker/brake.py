"""Holds a task back while its state is copied ahead, so that who copies it, and the process that it moves to, can catch up.

A state may change faster than it can be copied, or put in where it goes: these processes have a stream to work off as well. What is left
then is copied, and put in, within the pause, and may be all of it. So whoever puts it in says how long that takes (`Words.behind`), and the
old side gives the task less of the stream for as long: what has changed becomes less with each look. The stream falls behind meanwhile, by
less than such a pause would have it fall behind, and its keys are never without a turn for longer than a moment.
"""

from __future__ import annotations

import threading
import time

PART = 6
"""So many times as long as the task had for its stream it is held back."""
STINT = 0.032
"""Seconds that it is held back at a time, at most: twice what copying takes of an executor at a time where a state changes that fast."""
LEAST = 0.25
"""Seconds for which it is held back again and again after a word, at least: the pause follows soon on that everything is in, mostly."""
LONGEST = 1.0
"""The same at most: others may have been said, and have got lost."""
LARGE = 32 << 20
"""Bytes of a state from which on it is held back: of a smaller one little enough is left, and keys that stay would pay for it."""
IN_ALL = 6.0
"""Seconds that it is held back in a move, at most: it may wait for its turn for long."""


class Brake:
    """Of one task and one move. `hold` is called on the task's executor, the rest from any thread.

    Attributes:
        size: Bytes of the state, about; 0: not known yet.
    """

    def __init__(self) -> None:
        self.size = 0
        self._until = 0.0
        self._left = IN_ALL
        self._released = threading.Event()

    def press(self, took: float = 0.0) -> None:
        """It is to be held back for a while.

        Args:
            took: What changes takes the other side that long, in seconds.
        """
        self._until = time.monotonic() + min(LONGEST, max(LEAST, 2 * took))

    def release(self) -> None:
        """The task is to stand still, or does not move: it is not held back any more."""
        self._released.set()

    @property
    def large(self) -> bool:
        """Whether the state is such that the stream may fall behind a little for its sake."""
        return self.size >= LARGE

    @property
    def on(self) -> bool:
        """Whether it is to be held back."""
        return (
            self.large and time.monotonic() < self._until and self._left > 0 and not self._released.is_set()
        )

    def hold(self, had: float) -> None:
        """Hold it back, for a little.

        Args:
            had: Seconds that its executor had for streams since it held back, or copied, last.
        """
        if self.on and had > 0:
            began = time.monotonic()
            self._released.wait(min(STINT, PART * had, self._left))
            self._left -= time.monotonic() - began
