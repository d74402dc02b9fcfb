"""What waits for a task: in order from each source, and nobody's tuples stand behind all of somebody else's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.worker.emitting.crossing import FULL, TAKEN
from elastic.worker.executing.task import Task
from elastic.worker.executing.task_queue import FEW, OVER, low
from elastic.worker.executing.turns import Turns
from elastic.worker.tuples.batch import Mark, MarkKind


def item(source: int, number: int, count: int = 1) -> Any:
    """What has a source is enough for the queue."""
    return SimpleNamespace(source=source, number=number, count=count, weight=count, origin="")


def taken(turns: Turns) -> list[tuple[int, int]]:
    found = []
    while turns:
        one: Any = turns.next()
        found.append((one.source, one.number))
    assert not list(turns)
    return found


def of(found: list[tuple[int, int]], source: int) -> list[int]:
    return [number for s, number in found if s == source]


@given(
    st.lists(st.one_of(st.integers(0, 4), st.none()), max_size=60), st.lists(st.integers(0, 4), max_size=10)
)
def test_each_source_comes_in_its_order(steps: list[int | None], earlier: list[int]) -> None:
    """`None` takes one; what was there before all that is put before it in the end."""
    turns, sent, found = Turns(), [0] * 5, []  # type: ignore[var-annotated]
    for step in steps:
        if step is not None:
            turns.append(item(step, sent[step]))
            sent[step] += 1
        elif turns:
            one: Any = turns.next()
            found.append((one.source, one.number))
    assert all((source in turns) == (len(of(found, source)) < sent[source]) for source in range(5))
    left = [(one.source, one.number) for one in turns]  # type: ignore[union-attr]
    turns.put_before([item(source, -len(earlier) + n) for n, source in enumerate(earlier)])
    rest = taken(turns)
    for source in range(5):
        assert of(found, source) + of(left, source) == list(range(sent[source]))
        before = [n - len(earlier) for n, s in enumerate(earlier) if s == source]
        assert of(rest, source) == before + of(left, source)


def burst() -> list[int]:
    turns = Turns()
    for number in range(100):
        turns.append(item(1, number))
    turns.append(item(2, 0))
    turns.append(item(2, 1))
    found = taken(turns)
    return [at for at, (source, _) in enumerate(found) if source == 2]


def test_a_burst_of_one_source_does_not_stand_before_another() -> None:
    assert burst() == [1, 3]


def test_a_single_queue_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(
        Turns, "append", lambda self, item: (self._turns.append(item.source), one.append(item))
    )
    monkeypatch.setattr(Turns, "next", lambda self: (self._turns.popleft(), one.popleft())[1])
    one: deque[Any] = deque()
    with pytest.raises(AssertionError):
        test_a_burst_of_one_source_does_not_stand_before_another()


# ---------------------------------------------------------------------- room


class _Task(Task):
    """Nobody runs it, and every item is the next of its link."""

    def __init__(self, capacity: int) -> None:
        self.rooms = 0
        self._lock = threading.RLock()
        self._queue, self._rows, self._brought = Turns(), 0, 0
        self._apart: dict[int, int] = {}
        self._refused, self._kept_out = False, set()
        self._capacity = self._share = capacity
        self._room = self._count_room
        self.scheduled, self.stopped = True, False
        self.receivers = {s: SimpleNamespace(takes=lambda *_: True) for s in range(FEW + 3)}  # type: ignore[dict-item,misc]
        self.executor = SimpleNamespace(queued=lambda: self._rows)  # type: ignore[assignment]
        self._listener = SimpleNamespace(on_consumed=lambda *_: None)  # type: ignore[assignment]
        self.context = SimpleNamespace(source=None)  # type: ignore[assignment]

    def _count_room(self) -> None:
        self.rooms += 1

    def executes(self) -> Any:
        """The next item."""
        one: Any = self._queue.next()
        self.done(one)
        return one


def test_who_has_nothing_waiting_is_not_kept_out_by_others() -> None:
    task = _Task(100)
    assert task.offer(item(1, 0, 60), 0, 1) == TAKEN
    assert task.offer(item(1, 1, 60), 0, 61) == FULL, "it has something waiting, and there is no room"
    for source in range(2, FEW + 1):
        assert task.offer(item(source, 0, 60), 0, 1) == TAKEN
    assert task.offer(item(FEW + 1, 0, 60), 0, 1) == FULL, (
        f"{OVER} times the bound is the end of it, where it is not for few"
    )
    assert task.queued <= FEW * 100
    for _ in range(FEW - 2):
        task.executes()
    assert task.rooms == 1
    assert task.offer(item(FEW + 1, 0, 60), 0, 1) == TAKEN


def beside_a_window() -> int:
    """How much was worked off of what came from another process when somebody of this one was let in who emits a little."""
    task = _Task(100)
    for number in range(40):
        assert task.take_in(item(1, number, 50), 0, 1), "it has a window, which is larger than the queue"
    before = task.queued
    while task.offer(item(2, 0, 10), 0, 1) == FULL:
        task.executes()
    assert task.offer(item(3, 0, 101), 0, 1) == FULL, "more than may wait for the task anyway"
    return before - task.queued + 10


def test_who_has_nothing_waiting_is_not_kept_out_by_a_window_of_another_process() -> None:
    """It stood still until that was worked off, and so did all others to whom it emits; 0.35 s, while a sink took what had been held up."""
    assert beside_a_window() == 0


def test_who_is_kept_out_by_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: only the executor's bound counts."""
    monkeypatch.setattr("elastic.worker.executing.task_queue.FEW", 0)
    assert beside_a_window() > 1000


def brings(fault: bool) -> list[int]:
    """How much waits for a task that has brought much, while its source emits for long whenever there is room."""
    task = _Task(100)
    task.bring([item(1, number, 50) for number in range(20)])
    if fault:
        task._brought = 0
    waited, number, came = [], 20, 0
    while task.queued:
        task.executes()
        while came < 60_000 and task.offer(item(1, number, 10), 0, 1) == TAKEN:
            number, came = number + 1, came + 10
        waited.append(task.queued)
    assert came == 60_000
    return waited


@pytest.mark.parametrize("fault", [False, True])
def test_what_a_task_has_brought_keeps_nobody_out(fault: bool) -> None:
    """Most of what is worked off may come; a source that always has more to emit is not let have more than ever waiting for long."""
    waited = brings(fault)
    assert (waited[5] > 700) != fault
    assert max(waited) <= 20 * 50 + 100, "there is a bound"
    assert waited[len(waited) // 2] <= 100


@pytest.mark.parametrize("fault", [False, True])
def test_nor_does_what_was_held_for_it_and_had_to_be_put_in(
    monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    if fault:
        monkeypatch.setattr("elastic.worker.executing.task_queue.BROUGHT", 0)
    task = _Task(100)
    for number in range(10):
        task.force(item(1, number, 50))
    assert task.offer(item(1, 10, 10), 0, 1) == FULL
    task.executes()
    assert (task.offer(item(1, 10, 10), 0, 1) == TAKEN) != fault


def test_there_is_a_bound_to_what_may_come_on_top() -> None:
    """Else it would become more with each move of a task that has always more to do."""
    task = _Task(100)
    task.bring([item(1, number, 50) for number in range(200)])
    task.executes()
    assert task.offer(item(1, 100, 10), 0, 1) == FULL


def room_when_its_own_is_done() -> _Task:
    """A source that has been refused hears of room when nothing of it waits any more, though others keep the queue full."""
    task = _Task(100)
    for number in range(2):
        task.force(item(1, number, 90))
    assert task.offer(item(2, 0, 10), 0, 1) == TAKEN
    assert task.offer(item(2, 1, 90), 0, 11) == FULL
    assert task.executes().source == 1
    task.force(item(1, 2, 90))
    assert not task.rooms, "the queue is full, and its own is still there"
    assert task.executes().source == 2
    return task


def test_a_flood_does_not_keep_a_source_from_hearing_of_room() -> None:
    task = room_when_its_own_is_done()
    assert task.rooms == 1
    assert task.queued > task.capacity


def test_room_that_is_told_of_only_when_all_is_worked_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""

    class Never(set[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(())

    real = _Task.__init__

    def made(self: _Task, capacity: int) -> None:
        real(self, capacity)
        self._kept_out = Never()

    monkeypatch.setattr(_Task, "__init__", made)
    with pytest.raises(AssertionError):
        test_a_flood_does_not_keep_a_source_from_hearing_of_room()


def test_whom_the_last_bound_has_kept_out_hears_of_room_below_it() -> None:
    """Nothing of it waits, and there is much of others still."""
    task = _Task(100)
    for source in range(1, FEW + 1):
        task.force(item(source, 0, 24))
        task.force(item(source, 1, 6))
    assert task.offer(item(FEW + 1, 0, 10), 0, 1) == FULL, f"{OVER} times the bound"
    task.executes()
    assert task.rooms == 0
    task.executes()
    assert task.rooms == 1 and task.queued > task.capacity
    assert task.offer(item(FEW + 1, 0, 10), 0, 1) == TAKEN


def test_marks_stand_in_the_order_of_their_source() -> None:
    turns = Turns()
    turns.append(item(1, 0))
    turns.append(item(2, 0))
    turns.append(Mark(MarkKind.END, 1))
    turns.append(item(2, 1))
    kinds = [(one.source, isinstance(one, Mark)) for one in (turns.next(), turns.next(), turns.next())]
    assert kinds == [(1, False), (2, False), (1, True)]


@pytest.mark.parametrize(
    ("share", "free"), [(1, 1), (2, 1), (32, 16), (1024, 512), (4096, 512), (1 << 17, 1 << 14)]
)
def test_room_is_told_of_when_a_part_is_free_or_a_batch_fits(share: int, free: int) -> None:
    assert share - low(share) == free
