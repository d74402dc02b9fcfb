"""What a simulated worker starts without a state: it reads what is to start, writes that down, reads once more, and starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic.migration.view import View

if TYPE_CHECKING:
    from protocol_tests.worker import Worker


def begin_now(startable: set[int], written: set[int]) -> set[int]:
    """Which tasks begin: of those that may by what was read, the ones of which it was written down before that."""
    return startable & written


class Starting:
    """Of one life of a worker. What is written down takes time, and what is to start may be another when it is done."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._life = 0  # of what was written down last: the place of that write among all
        self._busy = False

    def follow(self, view: View) -> None:
        """Look soon, and once for all of them, at what belongs to the worker and is not there."""
        w = self._worker
        if not self._busy and any(at == w.id and not self._is_here(t) for t, at in view.places.items()):
            self._busy = True
            w.clock.after(2, self.write_down)

    def write_down(self) -> None:
        """The first half. A write only if there is something to start."""
        w = self._worker
        view = w.read_anew()
        if view is None:
            self._busy = False
            return
        written = self._startable(view)
        if written:
            self._life = w.world.coordination.zxid
        w.clock.after(2, self.start, written)

    def start(self, written: set[int]) -> None:
        """The second half."""
        w = self._worker
        view, self._busy = w.read_anew(), False
        if view is None:
            return
        for task in sorted(begin_now(self._startable(view), written)):
            w.start(task, self._life)
        if self._startable(view):
            w.world.meet("startable meanwhile")
            self.follow(view)

    def _startable(self, view: View) -> set[int]:
        w = self._worker
        mine = (t for t, at in view.places.items() if at == w.id and not self._is_here(t))
        return {t for t in mine if view.may_start(t, w.me)}

    def _is_here(self, task: int) -> bool:
        return task in self._worker.tasks or task in self._worker.participant.new
