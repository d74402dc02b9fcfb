"""Hundreds of tasks of one executor that are to stand still at the same moment, while there is no room for what they emit."""

from __future__ import annotations

import collections
import threading
from typing import Any

import pytest

from elastic import Bolt, Fields, StatefulSpout, TopologyBuilder
from elastic.migration.record import Outcome
from elastic.worker.executing import executor
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.task import Task
from tests.unit.worker.moving_harness import Moving

MANY, EACH, DEEP = 200, 20, 8
LIMIT = 60.0


class Numbers(StatefulSpout):
    outputs = Fields(source=int, n=int)

    def prepare(self, context: Any) -> None:
        self.task, self.n = context.task, 0

    def get_state(self) -> int:
        return self.n

    def set_state(self, state: Any) -> None:
        self.n = state

    def next_tuple(self) -> float | None:
        if self.n >= EACH:
            return 1000.0
        self.emit(self.task, self.n)
        self.n += 1
        return None


class Sink(Bolt):
    """Executes nothing until it may."""

    may = threading.Event()
    seen: list[tuple[int, int]] = []  # noqa: RUF012

    def execute(self, tup: Any) -> None:
        Sink.may.wait(LIMIT)
        Sink.seen.append((tup.source, tup.n))


def moved(monkeypatch: pytest.MonkeyPatch, limit: float = LIMIT) -> list[str]:
    """Move them all at once, while they wait for room. Returns what failed."""
    Sink.may, Sink.seen = threading.Event(), []
    real = Executor.hand_on

    def hands_on(self: Executor, task: Task, what: Any) -> None:
        if len(self._handing) + 1 == DEEP:
            Sink.may.set()
        real(self, task, what)

    monkeypatch.setattr(Executor, "hand_on", hands_on)
    b = TopologyBuilder("many", linger=10.0)
    b.spout("numbers", Numbers(), tasks=MANY, executors=1)
    b.bolt("sink", Sink(), queue_rows=4).shuffle("numbers")
    cluster = Moving(b.build(), 2, lambda component, index: 0)
    try:
        tasks = [t for t in cluster.processes[0].worker.tasks.values() if t.spout is not None]
        cluster.wait(
            lambda: (
                sum(t.outputs.pending() for t in tasks) > MANY // 2 and tasks[0].executor.blocked_since > 0
            )
        )  # type: ignore[union-attr]
        # But for the one that waits: it would not get ready before it goes on.
        moving = [t.id for t in tasks if t is not tasks[0].executor.emitting]  # type: ignore[union-attr]
        result = cluster.move(dict.fromkeys(moving, 1), share=1.0, limit=limit)
        if not cluster.failures:
            assert {t.outcome for t in result.tasks} == {Outcome.COMMITTED}
            cluster.wait(lambda: len(Sink.seen) >= MANY * EACH)
        return list(map(str, cluster.failures))
    finally:
        Sink.may.set()
        cluster.close()


def test_those_that_wait_for_room_do_so_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not moved(monkeypatch)
    by_source = collections.defaultdict(list)
    for source, n in Sink.seen:
        by_source[source].append(n)
    assert len(by_source) == MANY and all(numbers == list(range(EACH)) for numbers in by_source.values())


def test_that_each_does_so_within_the_one_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(executor, "WITHIN", 1_000_000)
    try:
        failures = moved(monkeypatch, limit=8.0)
    except AssertionError as error:
        failures = [str(error)]
    assert failures
