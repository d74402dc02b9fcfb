"""The load of tasks that are divided anew."""

from __future__ import annotations

import pytest

from benchmarks.placements import executor
from elastic.model.ids import TopologyName
from elastic.model.loadview import ExecutorKey, LoadView, SmoothedLoad, by_component, regrouped

T, U = TopologyName("t"), TopologyName("u")


def key(component: str, first: int, last: int, topology: TopologyName = T) -> ExecutorKey:
    return ExecutorKey(topology, executor(component, first, last))


VIEW = LoadView(
    {
        key("a", 1, 4): SmoothedLoad(cpu=0.8, busy=0.9, idle=0.1, state=400.0),
        key("b", 5, 6): SmoothedLoad(cpu=0.2),
        key("x", 1, 2, U): SmoothedLoad(cpu=0.5),
    },
    {(key("a", 1, 4), key("b", 5, 6)): 100.0},
)


def test_a_split_executor_shares_what_was_measured() -> None:
    parts = [executor("a", 1, 3), executor("a", 4, 4), executor("b", 5, 6)]
    new = regrouped(VIEW, T, parts)
    assert new.executors[key("a", 1, 3)].cpu == pytest.approx(0.6)
    assert new.executors[key("a", 4, 4)].state == pytest.approx(100.0)
    assert new.executors[key("b", 5, 6)] == VIEW.executors[key("b", 5, 6)]
    assert new.executors[key("x", 1, 2, U)] is VIEW.executors[key("x", 1, 2, U)]
    assert new.traffic == pytest.approx(
        {(key("a", 1, 3), key("b", 5, 6)): 75.0, (key("a", 4, 4), key("b", 5, 6)): 25.0}
    )
    assert key("a", 1, 4) not in new.executors


def test_and_back() -> None:
    apart = regrouped(VIEW, T, [executor("a", 1, 1), executor("a", 2, 4), executor("b", 5, 6)])
    again = regrouped(apart, T, [executor("a", 1, 4), executor("b", 5, 6)])
    assert again.executors[key("a", 1, 4)].cpu == pytest.approx(0.8)
    assert again.traffic[key("a", 1, 4), key("b", 5, 6)] == pytest.approx(100.0)


def test_what_is_as_measured_is_not_touched() -> None:
    assert regrouped(VIEW, T, [executor("a", 1, 4), executor("b", 5, 6)]) is VIEW
    assert regrouped(VIEW, TopologyName("none"), []) is VIEW


def test_by_component() -> None:
    found = by_component(VIEW, T)
    assert {c: [str(e) for e in es] for c, es in found.items()} == {"a": ["a[1-4]"], "b": ["b[5-6]"]}
    assert str(key("a", 1, 4)) == "t/a[1-4]"
