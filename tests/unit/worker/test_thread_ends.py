"""An executor's thread does not end, and close its tasks, without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.worker.executing.executor import Executor
from tests.unit.worker.harness import InProcess

PATIENCE = 30.0


class Mute(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise self


class Value:
    """It cannot be sent to another process, and does not say why."""

    def __reduce__(self) -> Any:
        raise Mute


class Ticks(Spout):
    """Slowly, so that its executor hands on what it emits when there is nothing else to do; once what cannot be sent."""

    outputs = Fields("n")

    def __init__(self) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        self.n += 1
        self.emit(Value() if self.n == 20 and self.context.task == 1 else self.n)


class Sink(Bolt):
    """Takes them."""

    def execute(self, tup: Any) -> None: ...


def ticking() -> InProcess:
    b = TopologyBuilder("ticking")
    b.spout("ticks", Ticks(), tasks=2, executors=1, rate=400.0)
    b.bolt("sink", Sink()).shuffle("ticks")
    return InProcess(b.build(), 2, lambda component, i: 0 if component == "ticks" else 1)


def test_a_value_that_cannot_be_sent_and_does_not_say_why_costs_its_tuple() -> None:
    with ticking() as cluster:
        cluster.wait(lambda: any(e.kind == "tuple-failed" for e in cluster.events))
        (failed,) = (e for e in cluster.events if e.kind == "tuple-failed")
        assert "Field 'n'" in failed.message and "Mute: (str raised Mute)" in failed.message
        for task in cluster.workers[0].tasks.values():
            before = task.outputs.emitted
            cluster.wait(lambda task=task, before=before: task.outputs.emitted > before)  # type: ignore[misc]
            assert not task.closed


def _raises() -> None:
    raise Mute


def _hands_on(executor: Executor) -> None:
    task = next(iter(executor.tasks.values()))
    executor.call(lambda: executor.hand_on(task, _raises))


@pytest.mark.parametrize(
    "how",
    [lambda e: e.call(_raises), lambda e: e.urge(_raises), _hands_on],
    ids=["a call", "an urgent call", "handing on"],
)
def test_an_error_that_nobody_expects_fails_the_topology(how: Callable[[Executor], None]) -> None:
    with ticking() as cluster:
        (executor,) = cluster.workers[0].executors.named.values()
        cluster.wait(lambda: len(executor.tasks) == 2)
        how(executor)
        cluster.wait(lambda: bool(cluster.failures))
        assert "was ended, with 2 tasks, by Mute: (str raised Mute)" in cluster.failures[0]
        executor.thread.join(PATIENCE)
        assert executor.ended and all(t.closed for t in executor.tasks.values())
