"""How many worker processes a topology should have: as many as its computing fills, and no more than help."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from loads import busy, measured, spec, subject, view

from elastic.elasticity import processes
from elastic.elasticity.base import Room, Sizing
from elastic.elasticity.processes import ManagerConfig, fullest, workers_for
from elastic.model.ids import ComponentId

BOLT = ComponentId("bolt")


def workers(
    executors: int,
    each: float,
    now: int,
    room: Room | None = None,
    others: float = 0.02,
    wanted: Mapping[ComponentId, int] | None = None,
) -> tuple[int, int]:
    """For a bolt whose executors use so many cores each, beside a source."""
    t = spec("t", source=1, bolt=executors)
    loads = measured(t, view(t, {"source": [busy(others)], "bolt": [busy(each)] * executors}))
    cores = {BOLT: executors * each}
    total = others + executors * each
    return workers_for(
        subject(t, now), Sizing(wanted or {}, cores), loads, total, room or Room(), ManagerConfig()
    )


def test_no_process_gets_executors_that_have_more_to_do_than_its_share() -> None:
    """Three executors of 0.36 cores: two of them in one process would be used to 0.72, and whoever comes there waits for the lock."""
    assert workers(3, 0.36, 1) == (3, 3)
    assert workers(3, 0.23, 1) == (2, 2), "0.71 in all are too much for one, and two are enough"
    assert workers(3, 0.2, 1) == (1, 1), "0.62 are only just too much"


def test_a_process_for_what_hardly_computes_is_no_relief() -> None:
    """One executor that does nearly all cannot be divided."""
    assert fullest([(0.67, 1), (0.02, 2)], 1) == pytest.approx(0.71)
    assert fullest([(0.67, 1), (0.02, 2)], 2) == pytest.approx(0.67)
    assert fullest([(0.3, 4)], 3) == pytest.approx(0.6)
    assert workers(1, 0.67, 1) == (1, 1)
    assert workers(2, 0.34, 1) == (2, 2), "these can be parted"


def test_a_planted_fault_without_that_a_process_would_be_started_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "WORTH", -1.0)
    assert workers(1, 0.67, 1) == (2, 2)


def test_there_are_not_more_processes_than_cores() -> None:
    assert workers(4, 0.4, 1, Room(2.0, 0.2)) == (4, 2), (
        "more would wait for the cores; nodes may be asked for"
    )
    assert workers(4, 0.4, 1, Room(8.0, 0.2)) == (4, 4)
    assert workers(4, 0.4, 3, Room(2.0, 0.2)) == (4, 3), "what is there stays"


def test_processes_go_with_the_executors_that_go_and_by_themselves_only_when_half_is_enough() -> None:
    """0.4 cores in two processes: one could have them, and would be near to the bound at which a second one is asked for."""
    assert workers(2, 0.2, 2) == (2, 2)
    assert workers(2, 0.2, 2, wanted={BOLT: 1}) == (1, 1)
    assert workers(2, 0.1, 2) == (1, 1)
