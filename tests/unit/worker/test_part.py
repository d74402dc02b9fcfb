"""A task that has gone elsewhere is in nobody's memory any more, without the interpreter's collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt, TopologyBuilder
from elastic.worker.executing import bolts, failures, marks, spouts
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.part import Part, weakly
from tests.unit.worker.harness import Endless, numbers
from tests.unit.worker.moving_harness import Moving


class Counts(StatefulBolt):
    counts = KeyedState[int, int](int)

    def execute(self, tup: Any) -> None:
        self.counts[tup.number] += 1


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _is_freed(within: float = 30.0) -> None:
    b = TopologyBuilder(f"part-{next(numbers)}", tick_interval=3600.0)
    b.spout("numbers", Endless())
    b.bolt("counts", Counts(), tasks=2).shuffle("numbers")
    topology = b.build()
    tasks = topology.spec.tasks_of("counts")
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        cluster.wait(lambda: all(cluster.task(t).executed for t in tasks))
        left = [weakref.ref(x) for t in tasks for x in (cluster.task(t), cluster.task(t).component)]
        cluster.move(dict.fromkeys(tasks, 1))
        cluster.wait(lambda: all(x() is None for x in left), within)


def test_a_task_that_has_gone_elsewhere_is_freed(uncollected: None) -> None:
    _is_freed()


@pytest.mark.parametrize("where", [bolts.BoltDriver, marks.MarkDriver, failures.Failures, Executor])
def test_one_that_is_kept_is_found(where: type, uncollected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a part that keeps it, or by the time of its next tick."""
    if where is Executor:
        monkeypatch.setattr(where, "forget", lambda self, task: None)
    else:
        made = where.__init__  # type: ignore[misc]

        def keeps(self: Any, task: Any, *rest: Any) -> None:
            made(self, task, *rest)
            self.kept = task

        monkeypatch.setattr(where, "__init__", keeps)
    with pytest.raises(AssertionError):
        _is_freed(1.0)


def test_what_is_called_weakly_is_called_while_it_is_there() -> None:
    said: list[str] = []

    class Says:
        def say(self, what: str) -> None:
            said.append(what)

    one = Says()
    call = weakly(one.say)
    call("here")
    del one
    call("gone")
    assert said == ["here"]


def test_all_parts_are_such() -> None:
    assert all(
        issubclass(kind, Part)
        for kind in (bolts.BoltDriver, spouts.SpoutDriver, marks.MarkDriver, failures.Failures)
    )
