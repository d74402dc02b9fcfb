"""Has a task go slower while its state is copied ahead, so that who copies it, and the process that it moves to, can catch up.

A state may change faster than it can be copied, or put in where it goes: these processes have a stream to work off as well. What is left
then is copied, and put in, within the pause, and may be all of it. So whoever puts it in says how long that takes (`Words.behind`), and the
old side gives the task less of the stream for as long: what has changed becomes less with each look.

The task executes as many tuples in a second as it did before, or a part of that: a stream that has fallen behind is quicker than ever
else. It has its turns as always, but short ones, and waits after each of them. Its executor does other things meanwhile: it runs its other
tasks, and copies. Whoever emits to the task, and to others, stands still only for as long as that.
"""

from __future__ import annotations

import time

TURN = 0.001
"""Seconds that a turn of the task takes, about."""
PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.125)
"""Of as many tuples as before: at first, and after each time that this was in vain."""
MUCH = 0.1
"""Seconds: what takes the other side longer than that makes the task slower than before at once."""
IN_VAIN = 0.7
"""What takes that side more than such a part of what it took the last time was in vain."""
STINT = 0.032
"""Seconds that it waits at a time, at most."""
LEAST = 0.25
"""Seconds for which it goes slower after a word, at least: the pause follows soon on that everything is in, mostly."""
LONGEST = 1.0
"""The same at most: others may have been said, and have got lost."""
LARGE = 32 << 20
"""Bytes of a state from which on its task goes slower: of a smaller one little enough is left, and keys that stay would pay for it."""
IN_ALL = 6.0
"""Seconds that it waits in a move because it is slower than before, at most: the move may wait for its turn for long."""


class Brake:
    """Of one task and one move. `next_turn` and `had` are called on the task's executor, the rest from any thread.

    Attributes:
        size: Bytes of the state, about; 0: not known yet.
        lasts: The state is small, and copying it takes long all the same.
        rate: Tuples per second that the task has executed before; 0: not known.
    """

    def __init__(self) -> None:
        self.size = 0
        self.lasts = False
        self.rate = 0.0
        self._until = 0.0
        self._left = IN_ALL
        self._released = False
        self._next = 0.0
        self._level = 0
        self._took = 0.0

    def press(self, took: float = 0.0) -> None:
        """The task is to go slower for a while.

        Args:
            took: What changes takes the other side that long, in seconds; 0: it is the copying that does not keep up.
        """
        self._until = time.monotonic() + min(LONGEST, max(LEAST, 2 * took))
        if took:
            if (took > MUCH and not self._level) or took > IN_VAIN * self._took > 0:
                self.harder()
            self._took = took

    def harder(self) -> None:
        """What changes has not become less by half: slower still."""
        self._level = min(self._level + 1, len(PARTS) - 1)

    def release(self) -> None:
        """The task is to stand still, or does not move: it goes as fast as it can from now on."""
        self._released = True

    @property
    def large(self) -> bool:
        """Whether the state is such that the stream may fall behind a little for its sake."""
        return self.lasts or self.size >= LARGE

    @property
    def on(self) -> bool:
        """Whether the task is to go slower."""
        return self.large and self._left > 0 and not self._released and time.monotonic() < self._until

    def next_turn(self) -> float:
        """The monotonic time of the task's next turn; 0: now."""
        return self._next if self._next and self.on else 0.0

    def had(self, began: float, executed: int) -> None:
        """The task has had a turn, which began at that monotonic time, and has executed so many tuples."""
        self._next = 0.0
        if not executed or not self.on:
            return
        now, level = time.monotonic(), self._level
        rate = (self.rate or executed / max(now - began, TURN)) * PARTS[level]
        wait = min(STINT, began + executed / rate - now, self._left)
        if wait > 0:
            self._next = now + wait
            if level:
                self._left -= wait
