"""A large state that is copied for a checkpoint while its task goes on: little is left to be read when the checkpoint comes through.

Slice by slice, on the task's executor; each follows when the pieces of the one before are in the stores.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from elastic.errors import Unavailable
from elastic.worker.content import Copier
from elastic.worker.executing.bolts import SLICE
from elastic.worker.moving.stores import StateWrite

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task


class CopiedAhead:
    """Of one task, for one checkpoint. What is not said otherwise is called on the task's executor, between two tuples.

    Args:
        begin: Begins its write in the stores.
        submit: Has something done on a thread that may wait for stores.
        ready: Called when all is copied that can be, or it came to nothing.
    """

    def __init__(
        self,
        task: Task,
        ticket: int,
        size: int,
        begin: Callable[[], StateWrite],
        submit: Callable[[Callable[[], None]], None],
        ready: Callable[[], None],
    ) -> None:
        self.task, self.ticket = task, ticket
        self._begin, self._submit, self._ready = begin, submit, ready
        self._copier = Copier(task.component)
        self._copier.read_at_once(size)
        self._write: StateWrite | None = None
        self._numbers: dict[int, int] = {}
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._putting = threading.Lock()
        self._over = False
        self._submit(self._open)

    def _open(self) -> None:
        """On a thread that may wait."""
        try:
            self._write = self._begin()
        except Exception:  # whoever takes the snapshot is told the same, and says it
            self.task.between_slices(self.give_up)
            return
        self.task.between_slices(self._slice)

    def _slice(self) -> None:
        if self._over:
            return
        try:
            made = self._copier.ahead(time.monotonic() + SLICE)
        except BaseException:  # of user code: it is read as a whole, and then it is said what is wrong
            self.give_up()
            return
        self._waiting += made
        if self._copier.done:
            self._submit(self._put)
            self._ready()
        else:
            self._submit(self._put_and_go_on)

    def _put(self) -> None:
        """On a thread that may wait."""
        write = self._write
        assert write is not None
        with self._putting:
            while self._waiting:
                number, data = self._waiting.popleft()
                self._numbers[number] = write.put(data)

    def _put_and_go_on(self) -> None:
        try:
            self._put()
        except Exception:
            self.task.between_slices(self.give_up)
        else:
            self.task.between_slices(self._slice)

    def give_up(self) -> None:
        """Forget the copy. Safe to call twice."""
        if self._over:
            return
        self._over = True
        self._copier.cancel()
        with suppress(Unavailable):  # the worker is about to end
            self._submit(self._close)
        self._ready()

    def _close(self) -> None:
        if self._write is not None:
            with suppress(Exception):  # stores give up what belongs to no checkpoint
                self._write.abort()
            self._write.close()

    def rest(self) -> Callable[[Sequence[bytes]], int] | None:
        """The checkpoint has come through: read what is left.

        Returns:
            What has that written behind other pieces, and all of it confirmed, on a thread that may wait; it returns the bytes of all.
            None: the copy was given up.

        Raises:
            ExecutionError: The state cannot be pickled.
        """
        if self._over or self._write is None:
            self.give_up()
            return None
        self._over = True
        try:
            content = self._copier.rest()
        finally:
            self._copier.cancel()
        write = self._write

        def commit(before: Sequence[bytes]) -> int:
            try:
                first = [write.put(piece) for piece in before]
                self._put()
                for number, data in content.pieces:
                    self._numbers[number] = write.put(data)
                return write.commit([*first, *(self._numbers[n] for n in content.order)], content.meta)
            except BaseException:
                with suppress(Exception):
                    write.abort()
                raise
            finally:
                write.close()

        return commit
