"""An executor that is named no more ends when the last task that it waits for does not come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste

LIMIT = 30.0


class Task:
    """What hands and executors know of one."""

    id = 1
    prepared, closed, stopped = True, False, False
    executor = holder = wanted_by = None
    handed_over = queued = 0

    def __init__(self) -> None:
        self.deferred: list[Any] = []
        self.marks = SimpleNamespace(finished=False, checkpoint=0, look_for_checkpoint=lambda: None)
        self.guard = threading.RLock()
        self.outputs = SimpleNamespace(flush=lambda: None, give_to=lambda _: None, outs=())

    def give_to(self, executor: Any) -> None:
        self.executor = executor

    def close(self) -> None:
        self.closed = True


class Place:
    """Two executors and a third; the first has the task, and waits for room in the midst of another's tuple."""

    def __init__(self) -> None:
        self.hands, self._haste = Hands(), Haste()
        self.task: Any = Task()
        self.busy, within = threading.Event(), threading.Event()
        self.has, self.claims, self.other = (self._executor(n) for n in range(3))
        self.hands.adopt(self.has, [self.task])

        def blocked() -> None:
            within.set()
            while not self.busy.wait(0.01):
                self.has.attend()

        self.has.call(blocked)
        assert within.wait(LIMIT)

    def _executor(self, number: int) -> Executor:
        id = ExecutorId(ComponentId("c"), TaskId(number), TaskId(number))
        made = Executor(id, 0.001, lambda _: None, self.hands, self._haste)
        made.start()
        return made

    def end(self) -> None:
        self.busy.set()
        for executor in (self.has, self.claims, self.other):
            executor.stop(abandon=True)
            executor.thread.join(LIMIT)


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.end()


@pytest.mark.parametrize(
    "goes",
    [
        lambda place: place.hands.drop(place.has, place.task, lambda: None),
        lambda place: place.hands.take(place.other, place.task),
        lambda place: place.hands.take(place.has, place.task),
    ],
    ids=["it is closed", "another is to have it", "it stays"],
)
def test_it_ends(place: Place, goes: Callable[[Place], None]) -> None:
    place.hands.take(place.claims, place.task)
    place.claims.retire()
    seen = threading.Event()
    place.claims.call(seen.set)
    assert seen.wait(LIMIT) and place.claims.thread.is_alive(), "a task is coming"
    goes(place)
    place.claims.thread.join(LIMIT)
    assert not place.claims.thread.is_alive()
