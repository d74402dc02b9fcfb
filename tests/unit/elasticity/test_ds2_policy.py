"""DS2: the right number in one step, on cases that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loads import ROOM, busy, spec, subject

from elastic.elasticity.base import Bounds, Room, Sizing
from elastic.elasticity.ds2 import Ds2, demands, size
from elastic.elasticity.kinds import ComponentLoad, Kind
from elastic.elasticity.registry import find, parameters_of
from elastic.errors import ConfigError
from elastic.model.ids import ComponentId

SOURCE, BOLT, OTHER = (ComponentId(c) for c in ("source", "bolt", "other"))


AIMED = Ds2(target=0.6, scale_in=0.35)


def load(component: ComponentId, tuples: float, service: float, **more: object) -> ComponentLoad:
    values = {
        "kind": Kind.COMPUTING,
        "purity": 1.0,
        "held": False,
        "use": {},
        "cpu": tuples * service,
        "tuples": tuples,
        "emitted": tuples,
        "newest": tuples,
        "offered": 0.0,
        "queued": 0.0,
        "service": service,
        "compute": service,
        "samples": 9,
        **more,
    }
    return ComponentLoad(component, {None: busy(0.5)}, **values)  # type: ignore[dict-item, arg-type]


def wanted(
    loads: list[ComponentLoad], room: Room = ROOM, params: Ds2 | None = None, **executors: int
) -> Sizing:
    topology = spec(**executors)
    return size({x.id: x for x in loads}, subject(topology), room, params or AIMED)


def test_demand_goes_through_the_topology_by_what_is_made_of_a_tuple() -> None:
    """100/s offered, twice as many from each in the bolt: 100 and 200, whatever got through."""
    loads = [
        load(SOURCE, 40, 0, offered=100.0, makes={BOLT: 1.0}),
        load(BOLT, 35, 0.01, makes={OTHER: 2.0}),
        load(OTHER, 20, 0.01),
    ]
    topology = spec(source=1, bolt=1, other=1)
    assert demands({x.id: x for x in loads}, topology, 4.0) == pytest.approx(
        {SOURCE: 100, BOLT: 100, OTHER: 200}
    )


def test_every_component_gets_its_number_in_one_step() -> None:
    """32 tasks, 0.6 aimed at: the bolt needs 100 x 0.048 = 4.8 executors' time, so 4 tasks each; the other 1.8, so 10 each."""
    loads = [
        load(SOURCE, 40, 0, offered=100.0, makes={BOLT: 1.0}),
        load(BOLT, 20, 0.048, makes={OTHER: 2.0}),
        load(OTHER, 40, 0.009),
    ]
    found = wanted(loads, source=1, bolt=1, other=1)
    assert found.executors == {BOLT: 8, OTHER: 4}
    assert found.cores[BOLT] == pytest.approx(4.8)
    assert "its 1 executor would be 4.80 utilised" in found.reasons[0].message


def test_what_the_bottleneck_holds_back_counts_in_full() -> None:
    """Behind a bottleneck little arrives: what is measured there says 0.02 of four executors, what will come 0.5."""
    loads = [load(SOURCE, 10, 0, offered=100.0), load(BOLT, 10, 0.1), load(OTHER, 10, 0.02)]
    assert wanted(loads, source=1, bolt=1, other=4).executors == {BOLT: 32}


def test_a_spout_that_is_held_up_offers_more_than_it_emits_but_not_without_bound() -> None:
    def offered(blocked: float) -> float:
        spout = load(SOURCE, 10, 0)
        held = {None: busy(0.1, blocked=blocked)}
        spout = ComponentLoad(**{f: getattr(spout, f) for f in spout.__slots__ if f != "loads"}, loads=held)
        return demands({SOURCE: spout}, spec(source=1), 4.0)[SOURCE]

    assert offered(0.5) == pytest.approx(20)
    assert offered(0.99) == pytest.approx(40)


def test_what_waits_is_to_be_worked_off_as_well() -> None:
    """100/s, and 250 that wait: in 5 s that is 50/s more. Those behind get what is made of these, too."""
    loads = [
        load(SOURCE, 100, 0, makes={BOLT: 1.0}),
        load(BOLT, 100, 0.01, queued=250.0, makes={OTHER: 2.0}),
        load(OTHER, 200, 0.01),
    ]
    topology = spec(source=1, bolt=2, other=4)
    by = {x.id: x for x in loads}
    assert demands(by, topology, 4.0, 5.0) == pytest.approx({SOURCE: 100, BOLT: 150, OTHER: 300})
    assert wanted(loads, source=1, bolt=2, other=4).executors == {}, "0.75 is not too much"
    more = [loads[0], load(BOLT, 100, 0.01, queued=300.0, makes={OTHER: 2.0}), loads[2]]
    found = wanted(more, source=1, bolt=2, other=4)
    assert found.executors[BOLT] == 3
    assert (
        "bolt is to take 160.0 tuples/s, 60.0 of them to work off 300 that wait, of 10"
        in found.reasons[0].message
    )
    careless = Ds2(target=0.6, scale_in=0.35, drain=0.0)
    assert wanted(more, params=careless, source=1, bolt=2, other=4).executors == {}, "a planted fault"


def test_between_the_thresholds_latency_differs_by_less_than_three_times() -> None:
    """In an M/M/1 queue a tuple takes service / (1 - utilisation)."""
    default = Ds2()
    assert (1 - default.scale_in) / (1 - default.scale_out) < 3


def test_it_lets_be_what_is_between_its_thresholds_and_ends_what_is_not() -> None:
    for demand, executors in [(70, {}), (76, {BOLT: 2}), (36, {}), (34, {})]:
        found = wanted([load(SOURCE, demand, 0), load(BOLT, demand, 0.01)], source=1, bolt=1)
        assert found.executors == executors, demand
    low = wanted([load(SOURCE, 130, 0), load(BOLT, 130, 0.01)], source=1, bolt=4)
    assert low.executors == {BOLT: 3}


def test_what_has_nothing_to_do_is_scaled_in_although_nobody_knows_what_a_tuple_takes() -> None:
    quiet = load(SOURCE, 0, 0)
    idle = replace(load(BOLT, 0, 0), loads={None: busy(0.0)})  # type: ignore[dict-item]
    assert wanted([quiet, idle], source=1, bolt=4).executors == {BOLT: 1}
    for other in (replace(idle, queued=5.0), replace(idle, loads={None: busy(0.5)})):  # type: ignore[dict-item]
        assert wanted([quiet, other], source=1, bolt=4).executors == {}, "it has something to do"


def test_load_comes_in_tasks_so_numbers_that_gain_nothing_are_not_taken() -> None:
    """Of 32 tasks 17 executors have no fewer in the largest than 16 have."""
    found = wanted([load(SOURCE, 100, 0), load(BOLT, 100, 0.09)], source=1, bolt=4)
    assert found.executors == {BOLT: 16}


def test_planted_fault_demand_over_target_alone_would_leave_one_executor_overloaded() -> None:
    need, target, tasks = 9.9, 0.6, 32
    careless = -(-need // target)
    assert need * -(-tasks // careless) / tasks > target
    assert wanted([load(SOURCE, 110, 0), load(BOLT, 110, 0.09)], source=1, bolt=4).executors == {BOLT: 32}


def test_computing_is_bounded_by_the_cores_and_waiting_is_not() -> None:
    loads = [load(SOURCE, 100, 0), load(BOLT, 100, 0.08, cpu=1.0)]
    found = wanted(loads, Room(4.0, 1.0), source=1, bolt=1)
    assert 1 < found.executors[BOLT] <= 8
    assert found.lacking == pytest.approx(4.0)
    waiting = [load(SOURCE, 100, 0), load(BOLT, 100, 0.08, kind=Kind.WAITING, compute=0.0001, cpu=0.01)]
    assert wanted(waiting, Room(4.0, 1.0), source=1, bolt=1).executors == {BOLT: 16}


def test_bounds_hold_and_a_shortage_is_said() -> None:
    topology = spec(source=1, bolt=2)
    loads = {SOURCE: load(SOURCE, 1000, 0), BOLT: load(BOLT, 1000, 0.01)}
    found = size(loads, subject(topology, bolt=Bounds(1, 2)), ROOM, Ds2())
    assert found.executors == {}
    assert [r.kind for r in found.reasons] == ["at-maximum"]


def test_while_the_load_changes_it_says_so() -> None:
    loads = [load(SOURCE, 300, 0, newest=600.0), load(BOLT, 300, 0.01)]
    assert wanted(loads, source=1, bolt=1).changing
    assert not wanted([load(SOURCE, 300, 0, newest=320.0), load(BOLT, 300, 0.01)], source=1, bolt=1).changing


def test_what_is_behind_something_unmeasured_is_let_be() -> None:
    assert wanted([load(SOURCE, 100, 0), load(OTHER, 1, 9.0)], source=1, bolt=1, other=1).executors == {}


def test_parameters_that_would_undo_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="not ascending"):
        parameters_of(find("ds2"), ["--target", "0.8"])
    with pytest.raises(ConfigError, match="did you mean --target"):
        parameters_of(find("ds2"), ["--tarjet", "0.8"])
