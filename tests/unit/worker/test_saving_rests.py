"""Several large states that stand still at the same time: what is left of them is confirmed together, or by itself where it has to be."""

from __future__ import annotations

import pytest

from elastic import TopologyBuilder
from elastic.errors import Unavailable
from elastic.migration.record import Outcome
from elastic.model.ids import ComponentId
from elastic.worker.moving import stopping
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves_ahead import COUNT, Large, Numbers, _found

TASKS = 4
ENTRIES = 1000


class Many(Large):
    """Each task notes its own sum."""

    def finish(self) -> None:
        _found[f"{self.name}-{id(self)}"] = sum(map(int, self.texts.values()))


def moved(
    name: str, monkeypatch: pytest.MonkeyPatch, *, refuses: bool = False
) -> tuple[list[int], set[Outcome]]:
    """How many were committed together in each lot, and what became of the tasks."""
    monkeypatch.setattr(stopping, "GATHER", 30.0)
    b = TopologyBuilder(name)
    b.spout("numbers", Numbers(), rate=2000.0)
    b.bolt("large", Many(name, ENTRIES), tasks=TASKS).shuffle("numbers")
    topology = b.build()
    tasks = topology.spec.tasks_of(ComponentId("large"))
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        if refuses:

            def fails(commits: object) -> list[int | None]:
                raise Unavailable("no store answers")

            monkeypatch.setattr(cluster.stores, "commit_many", fails)
        record = cluster.move(dict.fromkeys(tasks, 1))
        cluster.wait_finished()
        lots = list(cluster.stores.commits)
    sums = [value for key, value in _found.items() if key.startswith(f"{name}-")]
    assert sum(sums) == TASKS * sum(range(ENTRIES)) + COUNT, "nothing is lost, nor counted twice"
    return lots, {task.outcome for task in record.tasks}


def test_they_are_confirmed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert moved("rests", monkeypatch) == ([TASKS], {Outcome.COMMITTED})


def test_that_each_goes_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr("elastic.worker.moving.saving.PART", 0)
    assert moved("rests-alone", monkeypatch)[0] != [TASKS]


def test_stores_that_fail_cost_the_move_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    assert moved("rests-fail", monkeypatch, refuses=True) == ([], {Outcome.ROLLED_BACK})
