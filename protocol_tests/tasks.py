"""A simulated task: applies tuples one at a time, emits, is blocked, stops between two tuples. Its content is what a move has to carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from protocol_tests.truth import Fold, Item, fold

if TYPE_CHECKING:
    from protocol_tests.worker import Worker


HOLDS = 2
"""Every other task hands on only after so many tuples more what it has emitted, as a component does whose tuples go in batches."""
PIECE = 3
"""Tuples of a batch at most."""
Items = tuple[Item, ...]


class Piece(NamedTuple):
    """A batch that has come over a link. `way`: the sender's way that it came by, for its room."""

    source: int
    items: Items
    origin: str
    way: int


class Waiting(NamedTuple):
    """A tuple in a task's queue."""

    source: int
    item: Item
    origin: str
    way: int


class Content(NamedTuple):
    """What the framework and the component hold for a task."""

    state: Fold
    queue: tuple[Waiting, ...]
    timer: int
    number: int
    budget: int


class Task:
    """See the module. `serial` grows with every incarnation of any task."""

    def __init__(self, worker: Worker, id: int, serial: int) -> None:
        self.worker = worker
        self.id = id
        self.serial = serial
        self.state: Fold = {}
        self.queue: deque[Waiting] = deque()
        self.pending: deque[tuple[int, Items]] = deque()
        self._held = 0
        self.timer = 0
        self.number = 0
        self.budget = 0
        self.running = False
        self.stopping = 0
        self.stopped = False
        self.closed = False
        self._scheduled = False
        self._is_read = self._given_back = False
        self._after: Callable[[], None] | None = None

    def content(self) -> Content:
        return Content(dict(self.state), tuple(self.queue), self.timer, self.number, self.budget)

    def install(self, content: Content) -> None:
        self.state, self.queue = dict(content.state), deque(content.queue)
        self.timer, self.number, self.budget = content.timer, content.number, content.budget

    def wake(self) -> None:
        if not self._scheduled and self.running and not self.stopped and not self.closed:
            self._scheduled = True
            self.worker.clock.after(0.4, self._step)

    def stop(self, epoch: int) -> None:
        self.stopping = epoch
        if self.stopped:
            self.worker.stopped(self)
        self.wake()

    def go_on(self) -> None:
        """When its state is not being read any more; what was to come after that does not."""
        self._after = None
        if self._is_read:
            self._given_back = True
            return
        self.stopping, self.stopped = 0, False
        self.wake()

    def read(self, then: Callable[[], None]) -> None:
        """Its state is read, which takes its time. Then it goes on, should it have been given back meanwhile."""
        self._is_read = True

        def was_read() -> None:
            self._is_read = False
            if not self._given_back:
                then()
                return
            self._given_back = False
            after = self._after
            self.go_on()
            if after is not None:
                after()

        self.worker.world.stores.read(was_read)

    def when_gone_on(self, what: Callable[[], None]) -> None:
        """Now, or when it goes on if that is still to come."""
        if self._given_back:
            self._after = what
        else:
            what()

    def _step(self) -> None:
        self._scheduled = False
        if not self.worker.alive or self.closed or not self.running or self.stopped:
            return
        if not self._holds():
            while self.pending:
                target, items = self.pending[0]
                if not self.worker.emit(self.id, target, items):
                    return  # blocked: woken when there is room
                self.pending.popleft()
            self._held = 0
        if self.stopping:
            self.stopped = True
            self.worker.stopped(self)
            return
        world = self.worker.world
        if self.queue:
            waiting = self.queue.popleft()
            world.truth.apply(self.id, self.serial, waiting.source, waiting.item)
            fold(self.state, waiting.source, waiting.item)
            self.timer += 1
            self.worker.consumed(self.id, waiting)
            self._emit(waiting.item.root, waiting.item.number, waiting.item.path)
        elif self.budget > 0:
            self.budget -= 1
            self.number += 1
            world.truth.emit_root(self.id, self.number)
            self._emit(self.id, self.number, ())
        if self.queue or self.pending or self.budget:
            self.wake()

    def _holds(self) -> bool:
        """Whether what it has emitted waits for more of it."""
        if self.stopping or not (self.queue or self.budget):
            return False
        return 0 < self._held <= HOLDS and self.id % 2 == 0

    def _emit(self, root: int, number: int, path: tuple[int, ...]) -> None:
        world = self.worker.world
        path = (*path, self.id)
        self._held += 1
        for target in world.shape.route(self.id, root, number):
            item = world.truth.emit(self.id, target, root, number, path)
            last = next((n for n, p in reversed(list(enumerate(self.pending))) if p[0] == target), None)
            if last is not None and len(self.pending[last][1]) < PIECE:
                self.pending[last] = (target, (*self.pending[last][1], item))
            else:
                self.pending.append((target, (item,)))
