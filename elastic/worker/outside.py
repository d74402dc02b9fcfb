"""What a worker needs of the world beside its transport; and what it has where there is no such world."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elastic.errors import Unavailable
from elastic.migration import actions as ac
from elastic.migration.ports import OwnMarks
from elastic.migration.view import View
from elastic.model.ids import Incarnation, NodeId
from elastic.model.records import Allocation, WorkerInfo
from elastic.worker.moving.stores import Ahead, Commit, SmallState, StateStores, StateWrite, StoredState

_lives = itertools.count(1)


class _NoMarks:
    def write(self, action: ac.WriteMarks) -> None:
        raise Unavailable("this worker takes no part in moves: it has no coordination")


class _NoStores:
    def begin(self, key: str, epoch: int, writer: str, nodes: Sequence[NodeId], size: int) -> StateWrite:
        raise Unavailable("this worker has no state stores")

    def fetch(
        self,
        key: str,
        epoch: int,
        nodes: Sequence[NodeId],
        ahead: Ahead | None = None,
        most: int | None = None,
    ) -> StoredState:
        raise Unavailable("this worker has no state stores")

    def get_ready(self) -> None: ...

    def reserve(self, epoch: int, sizes: Mapping[str, int], nodes: Sequence[NodeId]) -> None:
        raise Unavailable("this worker has no state stores")

    def commit_many(self, commits: Sequence[Commit]) -> Sequence[int | None]:
        raise Unavailable("this worker has no state stores")

    def save_many(self, states: Sequence[SmallState], nodes: Sequence[NodeId]) -> Sequence[Exception | None]:
        raise Unavailable("this worker has no state stores")

    def fetch_many(
        self, wanted: Sequence[tuple[str, int]], nodes: Sequence[NodeId]
    ) -> Sequence[StoredState | Exception]:
        raise Unavailable("this worker has no state stores")


NO_MARKS = _NoMarks()


@dataclass(frozen=True, slots=True)
class Outside:
    """See the module. By default: one process, or several that are told where everything is by their allocations alone.

    Attributes:
        marks: Where this worker's marks are written. `NO_MARKS`: nobody reads coordination for it.
        stores: The nodes' state stores.
        life: A number for a task that starts without what a move brings: greater than any that the task had anywhere.
    """

    marks: OwnMarks = NO_MARKS
    stores: StateStores = field(default_factory=_NoStores)
    life: Callable[[], int] = _lives.__next__


def view_of(allocation: Allocation, number: int, me: Incarnation) -> tuple[View, tuple[WorkerInfo, ...]]:
    """What an allocation alone says of where everything is: no moves, everybody living that it names."""
    living = {p.worker: p.incarnation for p in allocation.peers}
    living[allocation.worker] = me
    places = {task: worker for first, last, worker in allocation.places for task in range(first, last + 1)}
    return View(number, 0, (), places, living), allocation.peers
