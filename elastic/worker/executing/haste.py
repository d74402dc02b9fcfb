"""What a task that stands still waits for goes before what others have to do anyway.

A worker's threads share one interpreter: beside three busy executors a thread that has ten milliseconds of work is done after forty. While
a state is encoded or put in, and while a few tasks stand still that are waited for here, executors therefore rest between two slices,
which are short then. All is done sooner so, and nobody stands still for longer.
"""

from __future__ import annotations

import threading
import time

from elastic.migration.view import View

LONGEST = 0.0005
"""Seconds that an executor rests at a time, at most: a large state must not keep others from their work for as long as it takes. With 2 ms
keys that stay wait longer by a fifth to a third, and those that move are not sooner there."""
HELD = 0.1
"""Seconds for which executors rest because tasks stand still, at most: a pause lasts a part of that, and one that takes longer waits for
something else."""
FEW = 4
FEW_STILL = 8
"""Batches of a move that are few, and tasks that stand still together and are few. In moves of more batches somebody stands still all the
time: who rests then only falls behind."""


def few_stand_still(view: View) -> bool:
    """Whether tasks stand still, few of them, and not for long in all."""
    if not view.moves or any(m.record.batches > FEW for m in view.moves):
        return False
    return 0 < view.standing_still <= FEW_STILL


class Haste:
    """Of one worker. `with haste:` around what is urgent, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._held_until = 0.0
        self._over = threading.Event()
        self._over.set()
        self.on = False

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            self._changed()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            self._changed()

    def hold(self, wanted: bool) -> None:
        """It is urgent until the next call says otherwise, and for `HELD` at most. From one thread at a time."""
        with self._lock:
            if wanted != bool(self._held_until):
                self._held_until = time.monotonic() + HELD if wanted else 0.0
                self._changed()

    def rest(self) -> None:
        """Wait until nothing is urgent, for `LONGEST` at most. Not from within."""
        if not self._count and time.monotonic() >= self._held_until:
            with self._lock:
                if self._held_until and not self._count:  # not to be asked again until `hold` says so
                    self._rest_no_more()
            return
        self._over.wait(LONGEST)

    def _changed(self) -> None:
        if self._count or self._held_until:
            self.on = True
            self._over.clear()
        else:
            self._rest_no_more()

    def _rest_no_more(self) -> None:
        self.on = False
        self._over.set()
