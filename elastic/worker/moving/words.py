"""What the two sides of a move say to each other, and the new one to the emitters, from process to process. Nothing but speed depends on
it: what gets lost is found in coordination, or in the stores.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from elastic.migration.view import View
from elastic.model.ids import Incarnation
from elastic.transport.base import Link
from elastic.worker.tuples import wire

log = logging.getLogger("elastic.worker")


class Words:
    """Any thread may call.

    Args:
        view: What coordination said last.
        link: The way to another worker process.
    """

    def __init__(
        self, me: Incarnation, view: Callable[[], View], link: Callable[[Incarnation], Link | None]
    ) -> None:
        self._me, self._view, self._link = me, view, link

    def stored(self, task: int, epoch: int) -> None:
        """Have the new side of a moving task look into the stores, which have more of it (`Fetching.told`). Should that get lost, it looks
        when coordination says that it is time to.
        """
        where = self._to(self._view(), task, epoch)
        if where is not None:
            tell(self._link(where), task, wire.stored(task, epoch))

    def along(self, task: int, epoch: int, body: bytes) -> None:
        """Send the new side of a task that stands still what is left of its state (`along`), if there is room on the way.
        Before the stores have it: it has been read by the time that they do.

        Args:
            body: b"": nothing; it is fetched.
        """
        try:
            where = self._to(self._view(), task, epoch) if body else None
            way = self._link(where) if where is not None else None
            if way is not None and way.offer(task, wire.along(task, epoch, body)):
                way.flush()
        except Exception:  # nobody's save fails for that
            log.exception("task %d is fetched as a whole", task)

    def saved(self, states: Iterable[tuple[int, int, int]]) -> None:
        """Say that the stores have confirmed all of some tasks that stand still.

        Args:
            states: Task, move and size in bytes of each.
        """
        view = self._view()
        told: dict[tuple[Incarnation, int], list[tuple[int, int]]] = {}
        for task, epoch, size in states:
            where = self._to(view, task, epoch)
            if where is not None:
                told.setdefault((where, epoch), []).append((task, size))
        for (where, epoch), some in told.items():
            for part in _parts(some):
                tell(self._link(where), part[0][0], wire.saved(part, epoch))

    def restored(self, where: Incarnation, epoch: int, tasks: Sequence[tuple[int, int]]) -> None:
        """Say to that worker life, which emits to some tasks, that they have begun here. Should that get lost, it reads so.

        Args:
            tasks: Each with its attempt.
        """
        for part in _parts(tasks):
            tell(self._link(where), part[0][0], wire.restored(part, epoch))

    def behind(self, task: int, epoch: int, took: float) -> None:
        """Say to the old side of a moving task that what changes of its state meanwhile takes so long to put in here, in seconds."""
        part = self._view().part(task, epoch)
        if part is not None and part.source != self._me:
            tell(self._link(part.source), task, wire.behind(task, epoch, int(took * 1e3)))

    def _to(self, view: View, task: int, epoch: int) -> Incarnation | None:
        part = view.part(task, epoch)
        return part.target if part is not None and part.target != self._me else None


def _parts(tasks: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    return (tasks[n : n + wire.TOLD_MOST] for n in range(0, len(tasks), wire.TOLD_MOST))


def tell(way: Link | None, target: int, frame: tuple[Any, ...]) -> None:
    """Say something that waits for no room; nobody hears it when there is no way."""
    if way is not None and way.offer(target, frame, urgent=True):
        way.flush()
