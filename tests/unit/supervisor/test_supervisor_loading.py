"""Whether a worker that cannot load its code is started again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastic.model.ids import Incarnation, TopologyName, WorkerId
from elastic.supervisor.decide import Life, Phase
from elastic.supervisor.loading import Loading

A, B = WorkerId("t@n1/0"), WorkerId("t@n1/1")
FAILED = Life(B, TopologyName("t"), "t-1", "bundle", Incarnation(f"{B}#1"), 990.0)
OTHER = replace(FAILED, worker=A, incarnation=Incarnation(f"{A}#1"), since=100.0)


def test_what_another_worker_runs_has_been_loaded() -> None:
    """To give up at once would fail the topology, with the states of that one."""
    loading = Loading(3)
    assert [loading.hopeless(FAILED, [OTHER, FAILED], 940.0) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    "other",
    [
        replace(OTHER, since=950.0),
        replace(OTHER, bundle="other"),
        replace(OTHER, phase=Phase.DEAD),
        replace(FAILED, since=100.0),
    ],
    ids=["young", "other code", "dead", "itself"],
)
def test_what_nobody_runs_for_long_enough_may_never_load(other: Life) -> None:
    assert Loading(3).hopeless(FAILED, [other], 940.0)
