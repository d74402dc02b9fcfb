"""Threads that wait for each other's turns go first beside those that compute for long: a move's encoding, putting in and freeing."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt, TopologyBuilder, timeslice
from elastic.migration.record import Outcome
from tests.unit.worker.harness import Endless, numbers
from tests.unit.worker.moving_harness import Moving, Nimbus

USUAL = timeslice.length()


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    """As in a worker's process: the thread that starts all others has a short slice."""
    timeslice.shorten()
    try:
        if timeslice.length() == USUAL:
            pytest.skip("this system's kernel has no slices of threads' own")
        yield
    finally:
        timeslice.usual()


def test_a_thread_has_what_the_one_had_that_started_it() -> None:
    found: list[int] = []

    def look() -> None:
        found.append(timeslice.length())
        timeslice.usual()
        found.append(timeslice.length())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [timeslice.SHORT, USUAL]
    assert timeslice.length() == timeslice.length(threading.get_native_id()) == timeslice.SHORT


def test_where_the_system_knows_nothing_of_it_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeslice, "_CALLS", {})
    timeslice.usual()
    assert timeslice.length() == 0
    monkeypatch.undo()
    assert timeslice.length() == timeslice.SHORT


class Large(StatefulBolt):
    lists = KeyedState[int, list[int]](list)

    def prepare(self, context: Any) -> None:
        self.lists.update((n, [n] * 4) for n in range(20_000))

    def execute(self, tup: Any) -> None:
        self.lists[1].append(tup.number)


def _slices(name: str, before: Collection[threading.Thread]) -> set[int]:
    """Of this process's living threads of that name, but for those that were there before."""
    threads = [t for t in threading.enumerate() if t.name.startswith(name) and t not in before]
    return {timeslice.length(t.native_id) for t in threads if t.native_id} - {0}


@pytest.mark.parametrize("fault", [False, True])
def test_what_computes_for_a_move_has_the_usual_slice(fault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault:
        monkeypatch.setattr(timeslice, "usual", lambda: None)
    b = TopologyBuilder(f"slices-{next(numbers)}")
    b.spout("numbers", Endless())
    b.bolt("large", Large()).shuffle("numbers")
    topology = b.build()
    (task,) = topology.spec.tasks_of("large")
    before = threading.enumerate()
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        nimbus = Nimbus(cluster, {task: 1}, 1.0)

        def moved() -> bool:
            nimbus.look()
            return all(t.outcome is Outcome.COMMITTED for t in nimbus.notifier.record.tasks)

        cluster.wait(moved)
        assert _slices("executor-", before) == {timeslice.SHORT}
        assert _slices("states-copied", before) == {timeslice.SHORT if fault else USUAL}
        assert _slices("states-ahead", before) == {timeslice.SHORT if fault else USUAL}
    monkeypatch.undo()
