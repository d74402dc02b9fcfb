"""A copy that is given up is given up between two tuples, whoever wants it and whatever user code raises; and nobody waits for that."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt, TopologyBuilder
from elastic.api import tracking
from elastic.migration.record import Outcome
from elastic.worker.content import Copier
from elastic.worker.moving.going import Going
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.together import Together
from tests.unit.worker.harness import Endless, numbers
from tests.unit.worker.moving_harness import Moving, Nimbus

ENTRIES = 20_000
WITHIN: dict[str, tuple[threading.Event, threading.Event]] = {}
RAISES: dict[str, BaseException] = {}


class Holds(StatefulBolt):
    """Stays within a tuple when it is told to."""

    lists = KeyedState[int, list[int]](list)

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, context: Any) -> None:
        self.lists.update((n, [n] * 4) for n in range(ENTRIES))

    def execute(self, tup: Any) -> None:
        within, on = WITHIN[self.name]
        if within.is_set():
            return
        if tracking.is_tracking(self.lists):
            within.set()
            assert on.wait(30.0)
        self.lists[1].append(tup.number)


def _rolled_back(nimbus: Nimbus) -> bool:
    nimbus.look()
    return all(t.outcome is Outcome.ROLLED_BACK for t in nimbus.notifier.record.tasks)


@pytest.mark.parametrize("fault", [False, True])
def test_it_is_not_given_up_within_a_tuple(fault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state would become of another class below a call that is under way."""
    if fault:
        monkeypatch.setattr(Saving, "_forget_copy", lambda self, old, copier: copier.cancel())
    name = f"gives-up-{next(numbers)}"
    within, on = WITHIN[name] = threading.Event(), threading.Event()
    told, let_go = threading.Event(), Saving.let_go

    def watched(self: Saving, *arguments: Any, **more: Any) -> None:
        let_go(self, *arguments, **more)
        told.set()

    monkeypatch.setattr(Saving, "let_go", watched)
    b = TopologyBuilder(name)
    b.spout("numbers", Endless())
    b.bolt("holds", Holds(name)).shuffle("numbers")
    topology = b.build()
    (task,) = topology.spec.tasks_of("holds")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        state = cluster.task(task).component.lists
        nimbus = Nimbus(cluster, {task: 1}, 1.0)
        assert within.wait(30.0)
        nimbus.abort("tea time")
        cluster.wait(lambda: _rolled_back(nimbus) and told.is_set())
        tracked = tracking.is_tracking(state)
        on.set()
        cluster.wait(lambda: not tracking.is_tracking(state))
        assert tracked != fault


class Panic(BaseException):
    """As an extension in another language raises it."""


class Counts(StatefulBolt):
    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def execute(self, tup: Any) -> None:
        self.count += 1

    def get_state(self) -> object:
        if self.context.task == 2 and threading.current_thread().name.startswith("states"):
            raise RAISES[self.name]
        return self.count

    def set_state(self, state: Any) -> None:
        self.count = state


@pytest.mark.parametrize("raised", [Panic(), SystemExit(1)])
def test_whatever_a_state_raises_costs_no_other_task(raised: BaseException) -> None:
    name = f"panics-{next(numbers)}"
    RAISES[name] = raised
    b = TopologyBuilder(name)
    b.spout("numbers", Endless())
    b.bolt("counts", Counts(name), tasks=4, executors=1).shuffle("numbers")
    topology = b.build()
    tasks = topology.spec.tasks_of("counts")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        for _ in range(2):
            parts = {t.task: t for t in cluster.move(dict.fromkeys(tasks, 1)).tasks}
            assert parts[2].outcome is Outcome.ROLLED_BACK and type(raised).__name__ in parts[2].reason
            assert {p.outcome for t, p in parts.items() if t != 2} == {Outcome.COMMITTED}
            cluster.wait(lambda: not any(cluster.task(t).stopped for t in tasks))
            cluster.move({t: 0 for t in tasks if t != 2})


def test_a_lot_that_raises_whatever_it_is_does_not_keep_later_ones() -> None:
    done = threading.Event()

    def work(kind: str, lot: list[str]) -> None:
        if lot == ["last"]:
            done.set()
            return
        raise Panic

    def submit(what: Any, kind: str) -> None:
        threading.Thread(target=what, args=(kind,), daemon=True).start()

    together: Together[str, str] = Together(submit, work, 1)
    for n in range(5):
        together.add("kind", f"bad {n}")
    together.add("kind", "last")
    assert done.wait(30.0)


class _Busy:
    """A task that is within a tuple until it is let on."""

    id, brake = 1, None

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def call(self, what: Any) -> None:
        self.asked.append(what)


def test_who_waits_for_a_task_that_is_within_a_tuple_is_let_go_of_when_it_is_over() -> None:
    task: Any = _Busy()
    old = Going(task, 1)
    ended: list[bool] = []

    def ask() -> None:
        try:
            old.on_task(lambda: ended.append(False))
        except CancelledError:
            ended.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    while not task.asked:
        time.sleep(0.001)
    old.end(None, {})
    thread.join(30.0)
    task.asked[0]()
    assert ended == [True]
    with pytest.raises(CancelledError):
        old.on_task(lambda: None)


def test_who_has_other_things_to_do_does_not_wait_for_long() -> None:
    task: Any = _Busy()
    old, done = Going(task, 1), list[bool]()
    with pytest.raises(CancelledError):
        old.on_task(lambda: done.append(True), 0.01)
    task.asked[0]()
    assert not done, "it was given up"


def test_a_copier_that_has_ended_copies_nothing_more() -> None:
    holds = Holds("")
    holds.lists.update((n, [n]) for n in range(ENTRIES))
    copier = Copier(holds)
    copier.read_at_once(0)
    copier.ahead(0.0)
    assert tracking.is_tracking(holds.lists)
    copier.end()
    assert copier.ahead(time.monotonic() + 1.0) == []
    assert not tracking.is_tracking(holds.lists)
