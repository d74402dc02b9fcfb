"""A task stops for a move, and goes on, on two threads: the move asks for one and the other while the executor carries the former out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elastic.worker.executing import hands
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.task import Task
from tests.unit.worker.harness import InProcess, lasting, over, sources

PATIENCE = 20.0


@pytest.fixture
def cluster() -> Iterator[InProcess]:
    with lasting("still") as made:
        yield made


def aside(what: Callable[[], object]) -> None:
    """Have another thread do it, to the end."""
    other = threading.Thread(target=what)
    other.start()
    other.join()


class Armed:
    """A task's lock; when the executor's thread is about to take it for the first time since `armed`, somebody else was there before."""

    def __init__(self, lock: threading.RLock, thread: threading.Thread, before: Callable[[], object]) -> None:
        self._lock, self._thread, self._before = lock, thread, before
        self.armed = False

    def __enter__(self) -> None:
        if self.armed and threading.current_thread() is self._thread:
            self.armed = False
            aside(self._before)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_task_that_is_to_go_on_while_it_is_about_to_stop_goes_on(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = sources(cluster)
    lock: Any = Armed(task._lock, task.executor.thread, task.go_on)
    stand_still, done = Task.stand_still, threading.Event()

    def watched(self: Task, *told: Any) -> None:
        lock.armed = self is task
        stand_still(self, *told)
        done.set()

    monkeypatch.setattr(Task, "stand_still", watched)
    task._lock = lock
    task.executor.stop_task(task, lambda: None)
    assert done.wait(PATIENCE)
    assert not task.stopped, "nobody would have it go on a second time"
    over.set()
    cluster.wait_finished()


def test_what_was_emitted_is_handed_on_before_the_stop_that_counts(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop was taken back before the executor came to it, and the next move asks for another one just then."""
    task, _ = sources(cluster)
    left: list[int] = []
    begun, go, stopped = threading.Event(), threading.Event(), threading.Event()
    stand_still = Task.stand_still

    def told() -> None:
        left.append(task.outputs.waiting())
        stopped.set()

    def asked_again(self: Task, *which: Any) -> None:
        monkeypatch.undo()
        aside(lambda: task.executor.stop_task(task, told))
        stand_still(self, *which)

    def hold() -> None:
        begun.set()
        assert go.wait(PATIENCE)
        task.component.emit(1)

    monkeypatch.setattr(Task, "stand_still", asked_again)
    task.executor.call(hold)
    assert begun.wait(PATIENCE)
    task.executor.stop_task(task, lambda: None)
    task.go_on()
    go.set()
    assert stopped.wait(PATIENCE)
    task.go_on()
    assert left == [0], "what it has emitted is in no state and on no link"


def test_a_stop_is_carried_out_by_whoever_runs_the_task_by_then(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the tasks gets another executor between the moment at which it is asked to stop and that at which it does. What each hands on
    is its own thread's business: the other's task would be stopped with a part of a batch sent, and a part not."""
    _, task = sources(cluster)
    before = task.executor
    handing: list[tuple[Any, ...]] = []
    stopped, give, flush = threading.Event(), hands._give, task.outputs.flush

    def asked_just_before(given: Task, holder: Executor, to: Executor) -> None:
        if given is task:
            aside(lambda: before.stop_task(task, stopped.set))
        give(given, holder, to)

    def handed_on() -> None:
        if task.executor is not before:
            handing.append((threading.current_thread(), list(before._handing), list(task.executor._handing)))
        flush()

    monkeypatch.setattr(hands, "_give", asked_just_before)
    monkeypatch.setattr(task.outputs, "flush", handed_on)
    cluster.apply(source=2)
    assert stopped.wait(PATIENCE)
    assert task.executor is not before
    task.go_on()
    assert handing == [(task.executor.thread, [], [task])]


def test_a_task_that_is_closed_is_forgotten_by_whoever_runs_it_by_then(
    cluster: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an executor has still to do for its tasks is its own thread's, too."""
    _, task = sources(cluster)
    before, forget = task.executor, Executor.forget
    forgotten: list[tuple[Any, Any]] = []
    closed, give = threading.Event(), hands._give

    def forgets(self: Executor, which: Task) -> None:
        forgotten.append((self.thread, threading.current_thread()))
        forget(self, which)

    def released_just_before(given: Task, holder: Executor, to: Executor) -> None:
        if given is task:
            aside(lambda: before.urge(lambda: drop(before, task, closed.set)))
        give(given, holder, to)

    drop = cluster.workers[0].executors.hands.drop
    monkeypatch.setattr(Executor, "forget", forgets)
    monkeypatch.setattr(hands, "_give", released_just_before)
    cluster.apply(source=2)
    assert closed.wait(PATIENCE)
    ((of, by),) = forgotten
    assert of is by is not before.thread
