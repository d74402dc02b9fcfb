"""Tasks of a batch that stop one after the other are saved together."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from elastic.errors import ExecutionError
from elastic.migration.record import Outcome
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.task import Task
from elastic.worker.moving import stopping
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.stopping import Stopping
from elastic.worker.moving.together import Together
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves import chain, check, tasks_of

TASKS = 8


def test_who_saves_waits_for_all_that_are_about_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GATHER", 30.0)
    some, kinds = Stopping(), list[list[int]]()
    some.gather()  # for nobody
    some.add(1)
    some.add(2)
    with ThreadPoolExecutor(2) as pool:
        together: Together[str, int] = Together(
            lambda call, kind: pool.submit(call, kind) and None,
            lambda kind, lot: kinds.append(lot),
            50,
            some.gather,
        )
        together.add("a", 1)
        some.remove(1)
        together.add("a", 2)
        assert not kinds
        some.remove(2)
    assert kinds == [[1, 2]]


def test_nobody_is_waited_for_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, some = list[float | None](), Stopping()
    real, here = threading.Condition.wait, threading.get_ident()

    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        if threading.get_ident() == here:
            waits.append(timeout)
        return real(self, timeout)

    monkeypatch.setattr(threading.Condition, "wait", wait)
    some.add(1)
    some.gather()
    assert waits and all(w is not None and w <= 0.005 for w in waits)


def lots(before: Callable[[int], None], saved: threading.Event) -> list[int]:
    """How many were saved together, when tasks that stop one after the other are moved at once.

    Args:
        before: Called before each of them is handed to be saved, with its number from 1.
        saved: Set when some are.
    """
    topology, name = chain(1000, tasks=TASKS, rate=2000)
    save, numbers = Saving.save, itertools.count(1)

    def saves(self: Saving, action: Any) -> None:
        before(next(numbers))
        save(self, action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Saving, "save", saves)
        with Moving(topology, 2, lambda c, i: 0) as cluster:
            save_many = cluster.stores.save_many

            def saves_many(states: Any, nodes: Any) -> Any:
                saved.set()
                return save_many(states, nodes)

            patch.setattr(cluster.stores, "save_many", saves_many)
            record = cluster.move(dict.fromkeys(tasks_of(topology, "count"), 1))
            assert {t.outcome for t in record.tasks} == {Outcome.COMMITTED}
            cluster.wait_finished()
    check(topology, name, 1000)
    assert sum(cluster.stores.lots) == TASKS
    return cluster.stores.lots


def test_a_batch_is_saved_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GATHER", 30.0)
    assert lots(lambda number: None, threading.Event()) == [TASKS]


def test_that_the_first_one_goes_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopping, "gather", lambda self: None)
    saved = threading.Event()

    def before(number: int) -> None:
        if number > 1:
            assert saved.wait(30.0)

    assert lots(before, saved)[0] == 1


def test_who_stops_late_is_saved_by_itself() -> None:
    """The last of them stops when the others have been saved, and is not waited for."""
    saved = threading.Event()

    def before(number: int) -> None:
        if number == TASKS:
            assert saved.wait(30.0)

    assert lots(before, saved)[-1] == 1


def saved_after_another_went_back(limit: float) -> None:
    """The move of a task that does not stop comes to nothing; then another one is moved, in so many seconds."""
    topology, name = chain(1000, tasks=2, rate=2000)
    first, second = tasks_of(topology, "count")
    stop, stays = Executor.stop_task, {first}

    def stops(self: Executor, task: Task, told: Callable[[], None]) -> None:
        if task.id in stays:
            raise ExecutionError("it does not stop")
        stop(self, task, told)

    with pytest.MonkeyPatch.context() as patch, Moving(topology, 2, lambda c, i: 0) as cluster:
        patch.setattr(Executor, "stop_task", stops)
        patch.setattr(stopping, "GATHER", 30.0)
        (part,) = cluster.move({first: 1}).tasks
        assert part.outcome is Outcome.ROLLED_BACK
        stays.clear()
        (part,) = cluster.move({second: 1}, limit=limit).tasks
        assert part.outcome is Outcome.COMMITTED
        cluster.wait_finished()
    check(topology, name, 1000)


def test_who_goes_back_is_not_waited_for() -> None:
    saved_after_another_went_back(20.0)


def test_that_somebody_waits_for_who_went_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Saving, "let_go", lambda self, task, then=None: then() if then is not None else None)
    with pytest.raises(AssertionError):
        saved_after_another_went_back(2.0)
