"""The policy of Elastic Storm (2016), section IV.B, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads import ROOM, TASKS, busy, measured, spec, subject, view

from elastic.elasticity.base import Bounds, Room, Sizing
from elastic.elasticity.kinds import components
from elastic.elasticity.registry import find, parameters_of
from elastic.elasticity.thresholds import Thresholds, check, size
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId
from elastic.model.loadview import SmoothedLoad

BOLT, OTHER = ComponentId("bolt"), ComponentId("other")


def sized(
    of: list[SmoothedLoad], params: Thresholds | None = None, room: Room = ROOM, **bounds: Bounds
) -> Sizing:
    topology = spec(source=1, bolt=len(of), other=1)
    loads = measured(topology, view(topology, {"bolt": of, "other": [busy(0.4)]}))
    return size(loads, subject(topology, **bounds), room, params or Thresholds())


def test_one_executor_is_added_for_each_overloaded_one() -> None:
    found = sized([busy(0.9), busy(0.71), busy(0.7), busy(0.1)])
    assert found.executors == {BOLT: 6}
    [reason] = found.reasons
    assert reason.message.startswith(
        "2 of 4 executors of bolt are above 0.7 busy (the highest at 0.90): 4 -> 6"
    )
    assert reason.details["value"] == 0.9
    assert reason.details["threshold"] == 0.7


def test_they_are_halved_when_all_are_underused_and_one_that_is_not_prevents_it() -> None:
    assert sized([busy(0.19)] * 4).executors == {BOLT: 2}
    assert sized([busy(0.19)] * 5).executors == {BOLT: 3}
    assert sized([busy(0.19)] * 3 + [busy(0.2)]).executors == {}
    assert sized([busy(0.1)]).executors == {}


def test_minimum_and_maximum_hold() -> None:
    assert sized([busy(0.1)] * 8, bolt=Bounds(minimum=6)).executors == {BOLT: 6}
    assert sized([busy(0.9)] * 8, bolt=Bounds(maximum=10)).executors == {BOLT: 10}
    full = sized([busy(0.9)] * TASKS)
    assert full.executors == {}
    assert full.reasons[0].kind == "at-maximum"
    assert full.reasons[0].warning


@given(st.lists(st.floats(0, 1), min_size=1, max_size=TASKS), st.integers(1, TASKS), st.integers(0, TASKS))
def test_never_more_than_double_nor_less_than_half_nor_beyond_the_bounds(
    shares: list[float], least: int, most: int
) -> None:
    now = len(shares)
    found = sized([busy(s) for s in shares], bolt=Bounds(least, most)).executors.get(BOLT, now)
    assert (now + 1) // 2 <= found <= 2 * now
    if found > now:
        assert found <= (most or TASKS)
        assert found - now <= sum(s > 0.7 for s in shares)
    if found < now:
        assert found >= min(least, most or TASKS)
        assert max(shares) < 0.2


def test_the_measure_can_be_the_papers() -> None:
    cpu = Thresholds(measure="cpu")
    assert sized([busy(0.95, 0.6)], cpu).executors == {}
    assert sized([busy(0.95, 0.71)], cpu).executors == {BOLT: 2}
    assert sized([busy(0.95, 0.1)] * 2, cpu).executors == {BOLT: 1}, "a thread that waits uses no CPU"


def test_thresholds_without_a_stability_gap_are_refused_and_the_message_says_what_to_do() -> None:
    check(Thresholds())
    with pytest.raises(ConfigError) as found:
        parameters_of(find("thresholds"), ["--scale-out", "0.6"])
    assert "--scale-out 0.6 is not above 2 x --scale-in 0.2 + --gap 0.2 = 0.6" in str(found.value)
    assert "lower --scale-in below 0.2" in str(found.value)
    with pytest.raises(ConfigError, match="at most 1"):
        parameters_of(find("thresholds"), ["--scale-out", "1.2"])


@given(st.floats(0.0, 1.0), st.floats(0, 1), st.floats(0, 1), st.integers(1, TASKS // 2))
def test_what_was_halved_is_not_doubled_at_once(out: float, back: float, gap: float, half: int) -> None:
    """The stability condition, checked by the policy itself: the same work on half as many is no overload."""
    params = Thresholds(out, back, gap)
    try:
        check(params)
    except ConfigError:
        return
    before = [busy(back * 0.999)] * (2 * half)
    if sized(before, params).executors:
        assert sized([busy(min(1.0, 2 * back * 0.999))] * half, params).executors.get(BOLT, 0) <= half


def test_planted_fault_without_the_condition_it_would_oscillate() -> None:
    careless = Thresholds(scale_out=0.5, scale_in=0.4)
    with pytest.raises(ConfigError):
        check(careless)
    assert sized([busy(0.39)] * 4, careless).executors == {BOLT: 2}
    assert sized([busy(0.78)] * 2, careless).executors == {BOLT: 4}


def test_an_executor_that_is_held_up_is_not_underused() -> None:
    held_up = SmoothedLoad(cpu=0.1, busy=0.1, blocked=0.8, idle=0.1, samples=5)
    assert sized([held_up] * 2).executors == {}


def test_what_comes_after_an_overloaded_component_is_not_halved_now() -> None:
    topology = spec(source=1, bolt=1, other=4)
    loads = measured(topology, view(topology, {"bolt": [busy(0.95)], "other": [busy(0.1)] * 4}))
    found = size(loads, subject(topology), ROOM, Thresholds())
    assert found.executors == {BOLT: 2}
    assert [r.kind for r in found.reasons] == ["scale-out", "held"]
    paper = size(loads, subject(topology), ROOM, Thresholds(hold_starved=False))
    assert paper.executors == {BOLT: 2, OTHER: 2}


def test_computing_gets_no_more_executors_than_cores_and_waiting_does() -> None:
    two = Room(cores=4.0, used=2.4)
    found = sized([busy(0.9)] * 4, room=two)
    assert found.executors == {BOLT: 6}
    assert found.lacking > 1
    none = sized([busy(0.9)] * 4, room=Room(2.0, 1.95))
    assert (none.executors, none.reasons[0].kind) == ({}, "no-cores")
    assert sized([busy(0.9, 0.02)] * 4, room=Room(2.0, 1.95)).executors == {BOLT: 8}


def test_waiting_for_the_lock_is_not_busy() -> None:
    topology = spec(source=1, bolt=1, other=1)
    crowd = view(
        topology,
        {"bolt": [busy(0.95, 0.15)], "other": [busy(1.0, 0.8)]},
        workers={"n1/0": (0.95, ["bolt", "other"])},
    )
    loads = components(crowd, topology, None, {BOLT: 1.0})
    assert size(loads, subject(topology), ROOM, Thresholds()).executors == {OTHER: 2}
