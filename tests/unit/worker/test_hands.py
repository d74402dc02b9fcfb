"""Tasks change hands between two slices of work, in whatever order claims come and executors get to them: nothing runs here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.worker.executing.guests import Home
from elastic.worker.executing.hands import Hands


class Task:
    id = 1
    closed = False
    executor = holder = wanted_by = None
    handed_over = 0.0

    def __init__(self, happened: list[str], *, finished: bool = False) -> None:
        self.happened, self.marks = happened, SimpleNamespace(finished=finished)

    def give_to(self, executor: Any) -> None:
        assert executor.tasks.get(self.id) is self, "it is called before it is there"
        self.executor = executor
        self.happened.append(f"{executor.name} gets it")

    def close(self) -> None:
        self.closed = True
        self.happened.append("it is closed")


class Executor:
    """What is called on its thread is done when it is told to get to it."""

    def __init__(self, name: str, happened: list[str]) -> None:
        self.name, self.happened, self.closed = name, happened, False
        self.tasks: dict[int, Any] = {}
        self.coming: set[int] = set()
        self.calls: list[Callable[[], None]] = []
        self.looks = 0
        self.abreast = SimpleNamespace(joined=lambda task: None)
        self.while_it_empties: Callable[[], None] = lambda: None

    def call(self, what: Callable[[], None]) -> None:
        self.calls.append(what)

    def on_task(self, task: Any, what: Callable[[], None]) -> None:
        assert task.id == 1
        self.calls.append(what)

    def work(self) -> None:
        calls, self.calls = self.calls, []
        for each in calls:
            each()

    def look(self) -> None:
        self.looks += 1

    def begin(self, task: Any) -> None:
        assert self.tasks[task.id] is task and task.id not in self.coming
        self.seat(task)

    def seat(self, task: Any) -> None:
        task.executor = self
        self.happened.append(f"{self.name} has it")

    def prepare(self, task: Any) -> None:
        self.happened.append(f"{self.name} prepares it")

    def empty(self, task: Any) -> None:
        assert task.executor is self
        self.happened.append(f"{self.name} hands on")
        self.while_it_empties()

    def forget(self, task: Any) -> None:
        self.happened.append(f"{self.name} forgets it")

    def watched(self, what: Callable[[], None]) -> None:
        self.happened.append(f"{self.name} calls")
        what()


class Place:
    """A task that the first of three executors has."""

    def __init__(self) -> None:
        self.hands: Any = Hands()
        self.happened: list[str] = []
        self.a, self.b, self.c = (Executor(n, self.happened) for n in "abc")
        self.task = Task(self.happened)
        self.hands.adopt(self.a, [self.task])
        assert not self.hands.may_end(self.a), "a task is coming"
        self.a.work()
        self.happened.clear()

    def take(self, executor: Executor) -> None:
        self.hands.take(executor, self.task)

    def check(self, holder: Executor) -> None:
        """It has the task, and nobody else has or expects it."""
        assert self.task.holder is self.task.wanted_by is self.task.executor is holder
        for each in (self.a, self.b, self.c):
            assert each.tasks == ({1: self.task} if each is holder else {}) and not each.coming
            assert self.hands.may_end(each) is (each is not holder)


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_it_has_emitted_is_handed_on_before_another_gets_it(place: Place) -> None:
    place.take(place.b)
    assert not place.hands.may_end(place.b), "it is coming"
    assert place.a.tasks and not place.happened, "in the middle of a slice nothing changes hands"
    place.a.work()
    assert place.happened == ["a hands on", "b gets it"] and place.task.handed_over
    place.check(place.b)


def test_the_last_claim_wins_also_while_it_is_handed_on(place: Place) -> None:
    place.take(place.b)
    place.a.while_it_empties = lambda: place.take(place.c)
    place.a.work()
    assert place.happened == ["a hands on", "c gets it"] and place.b.looks == 1, "it may end"
    place.check(place.c)
    place.a.work()  # what the second claim has asked for has happened
    place.c.work()
    place.check(place.c)


def test_who_wants_it_back_keeps_it(place: Place) -> None:
    place.take(place.b)
    place.a.while_it_empties = lambda: place.take(place.a)
    place.a.work()
    place.a.work()
    assert place.happened == ["a hands on"] and place.b.looks == 1
    assert place.task.holder is place.a and place.hands.may_end(place.b)


def test_a_call_goes_after_a_task_that_has_gone_on(place: Place) -> None:
    place.take(place.b)
    late = place.a.calls.pop()
    place.take(place.b)
    place.a.work()
    place.take(place.c)
    place.b.calls.clear()
    late()
    place.b.work()
    place.check(place.c)


@pytest.mark.parametrize("when", ["before", "while it is handed on"])
def test_a_task_that_is_closed_goes_nowhere(place: Place, when: str) -> None:
    place.take(place.b)
    if when == "before":
        place.task.close()
    else:
        place.a.while_it_empties = place.task.close
    place.a.work()
    assert place.a.tasks and not place.b.tasks
    assert place.happened == (["it is closed"] if when == "before" else ["a hands on", "it is closed"])


def test_who_ends_is_given_nothing_and_cleans_up_what_it_has(place: Place) -> None:
    place.take(place.b)
    assert place.hands.close(place.b) == []
    place.a.work()
    assert place.hands.close(place.a) == [place.task] and place.task.holder is place.a
    assert place.hands.may_end(place.b)


@pytest.mark.parametrize("finished", [False, True])
def test_a_guest_is_prepared_by_one_and_run_by_another(place: Place, finished: bool) -> None:
    """One that has finished is only here to say so."""
    guest = Task(place.happened, finished=finished)
    place.hands.prepare_guest(guest, Home(place.b, place.c))  # type: ignore[arg-type]
    assert place.happened == ["b has it", *([] if finished else ["b prepares it"]), "c gets it"]
    assert guest.holder is guest.wanted_by is place.c and place.c.tasks == {1: guest} and not place.b.tasks


def test_a_guest_that_cannot_be_prepared_stays_where_that_was_tried(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(task: Any) -> None:
        raise ValueError("no library")

    guest = Task(place.happened)
    monkeypatch.setattr(place.b, "prepare", raises)
    with pytest.raises(ValueError, match="no library"):
        place.hands.prepare_guest(guest, Home(place.b, place.c))  # type: ignore[arg-type]
    assert guest.holder is place.b and place.b.tasks == {1: guest} and not place.c.tasks


def test_what_is_dropped_is_closed_by_who_has_it_and_is_waited_for_by_nobody(place: Place) -> None:
    place.take(place.b)
    place.a.work()
    place.take(place.c)
    place.happened.clear()
    place.hands.drop(place.a, place.task, lambda: place.happened.append("done"))
    place.a.work()
    assert place.happened == ["b forgets it", "b calls", "it is closed", "done"]
    assert not (place.a.tasks or place.b.tasks) and not place.c.coming and place.c.looks == 1
    place.b.work()
    assert not place.c.tasks


def test_to_drop_what_has_been_here_does_not_drop_what_came_after_it(place: Place) -> None:
    before = place.task
    place.a.tasks.clear()
    after = Task(place.happened)
    place.hands.adopt(place.a, [after])
    place.a.work()
    place.hands.drop(place.a, before, lambda: None)
    place.a.work()
    assert before.closed and not after.closed and place.a.tasks == {1: after}
