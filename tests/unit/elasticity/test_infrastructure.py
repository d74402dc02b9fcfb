"""Nodes: asked for when executors do not fit, returned when they are not needed, within limits and at a pace."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from loads import busy, spec, view

from elastic.elasticity.infrastructure import (
    Infrastructure,
    Node,
    Past,
    Steps,
    Wants,
    check,
    decide,
    measured,
    room_of,
)
from elastic.errors import ConfigError
from elastic.model.ids import NodeId

ON = Infrastructure(enabled=True, patience=10.0, cooldown_in=20.0, cooldown_out=5.0, maximum=6)


def nodes(number: int, **values: object) -> list[Node]:
    usual = {"used": 1, "executors": 4, "cores": 4.0, "cpu": 1.0, **values}
    return [Node(NodeId(f"n{i}"), 4, **usual) for i in range(number)]  # type: ignore[arg-type]


def run(
    of: list[Node], wants: Wants, params: Infrastructure = ON, past: Past | None = None, now: float = 100.0
) -> Steps:
    return decide(of, wants, params, past or Past(), now)[0]


def test_cores_workers_and_waiting_executors_each_ask_for_nodes() -> None:
    assert run(nodes(1), Wants(cores=3.2)).add == 0
    by_cores = run(nodes(1), Wants(cores=7.0))
    assert by_cores.add == 2
    assert by_cores.reasons[0].message.startswith(
        "7.00 cores are wanted, and a node has 4, of which 80% are to be used: 1 -> 3"
    )
    assert run(nodes(1), Wants(cores=1.0, workers=5)).add == 1
    assert run(nodes(1, used=4), Wants(cores=1.0, workers=4, waiting=2)).add == 1
    assert run([], Wants(workers=1)).add == 1


def test_nodes_that_share_a_machine_do_not_run_away() -> None:
    """Each one more takes a part of the others' cores: by those ever more would be needed."""
    wants, count = Wants(cores=1.86), 1
    for _ in range(20):
        each = 2.0 / count
        count += run(nodes(count, cores=each, cpu=each, sharing=count), wants, replace(ON, maximum=40)).add
    assert count == 2
    assert run(nodes(2, cores=1.0, sharing=2, used=4), Wants(cores=9.0, workers=9)).add == 1, "by slots"
    assert run(nodes(2, cores=1.0, sharing=1), Wants(cores=9.0)).add == 4, "with cores of their own"


def test_nodes_that_share_a_machine_are_not_kept_for_cores_that_none_adds() -> None:
    shared = nodes(4, cores=1.0, sharing=4)
    (first, *_) = returned(shared, Wants(cores=2.9, workers=4))
    assert first[1].reasons[0].details["needed"] == 1
    assert not returned(shared, Wants(cores=3.1, workers=4)), "a margin of 25 % of the machine must stay free"
    assert not returned(nodes(4, cores=1.0, sharing=1), Wants(cores=2.9, workers=4)), "cores of their own"
    # Of two machines it is a node that shares its own which goes.
    two = [*nodes(2, cores=2.0, sharing=2), replace(nodes(3)[2], used=0, executors=0)]
    ((_, steps), *_) = returned(two, Wants(cores=5.0, workers=3))
    assert steps.drain == ("n0",)


def test_limit_step_and_cooldown_hold() -> None:
    assert run(nodes(1), Wants(cores=99.0)).add == 4
    assert run(nodes(5), Wants(cores=99.0)).add == 1
    full, past = decide(nodes(6), Wants(cores=99.0), ON, Past(), 0.0)
    assert (full.add, full.reasons[0].kind, full.reasons[0].warning) == (0, "node-limit", True)
    assert decide(nodes(6), Wants(cores=99.0), ON, past, 5.0)[0].reasons == (), "said once"
    _, past = decide(nodes(1), Wants(cores=7.0), ON, Past(), 0.0)
    assert run(nodes(1), Wants(cores=7.0), past=past, now=4.0).add == 0
    assert run(nodes(1), Wants(cores=7.0), past=past, now=5.0).add == 2


def test_the_reason_is_the_minimum_where_nothing_else_asks_for_a_node() -> None:
    """Planted fault: 0.04 cores that are wanted are no reason for a second node."""
    steps, _ = decide(nodes(1), Wants(cores=0.04, workers=1), replace(ON, minimum=2), Past(), 100.0)
    assert steps.add == 1 and steps.reasons[0].message.startswith(
        "2 nodes are the fewest there are to be: 1 -> 2"
    )
    steps, _ = decide(nodes(1), Wants(cores=9.0, workers=1), replace(ON, minimum=2), Past(), 100.0)
    assert steps.reasons[0].message.startswith("9.00 cores are wanted")


def test_a_node_on_its_way_is_not_asked_for_twice_unless_it_is_overdue() -> None:
    coming = [*nodes(1), Node(NodeId("new"), 4, cores=4.0, alive=False, since=100.0)]
    assert run(coming, Wants(cores=6.0), now=110.0).add == 0
    late = run(coming, Wants(cores=6.0), now=221.0)
    assert late.add == 1 and late.drain == ("new",), "what has not come is given up: it does not pile up"
    assert [r.kind for r in late.reasons] == ["node-overdue", "node-request"] and late.reasons[0].warning
    unneeded = run(coming, Wants(cores=1.0), now=221.0)
    assert unneeded.add == 0 and unneeded.drain == ("new",)


def test_a_host_that_provides_nothing_is_asked_for_no_more_than_the_maximum_at_once() -> None:
    """Ten minutes: whoever is asked for and does not come is given up before another one is."""
    past, there, number = Past(), nodes(1), 0
    for now in range(600):
        steps, past = decide(there, Wants(cores=99.0), ON, past, float(now))
        there = [n for n in there if n.id not in steps.drain]
        for _ in range(steps.add):
            number += 1
            there.append(Node(NodeId(f"new{number}"), 4, alive=False, since=float(now)))
        assert len(there) <= ON.maximum
    assert number > ON.maximum, "it is tried again"


def returned(of: list[Node], wants: Wants, params: Infrastructure = ON) -> list[tuple[float, Steps]]:
    """Over a minute, a run a second; nothing is really returned."""
    past, found = Past(), []
    for now in range(60):
        steps, past = decide(of, wants, params, past, float(now))
        if steps.drain:
            found.append((float(now), steps))
    return found


def test_an_idle_node_is_drained_after_a_while_one_at_a_time_the_emptiest_first() -> None:
    three = nodes(3)
    three[1] = replace(three[1], used=0, executors=0)
    found = returned(three, Wants(cores=2.0, workers=2))
    assert [(at, s.drain) for at, s in found] == [(10.0, ("n1",)), (30.0, ("n1",)), (50.0, ("n1",))]
    assert (
        "has not been needed for 10 s: 2.00 cores and 2 workers need 1 of 3 nodes; it is empty and goes"
        in (found[0][1].reasons[0].message)
    )


def test_one_with_work_goes_only_if_the_others_have_room_with_a_margin() -> None:
    assert returned(nodes(2), Wants(cores=2.9, workers=2))
    assert not returned(nodes(2), Wants(cores=3.1, workers=2)), "a margin of 25 % must stay free"
    assert not returned(nodes(2, used=3), Wants(cores=1.0, workers=6)), "the slots are needed"
    assert not returned(nodes(2), Wants(cores=1.0), replace(ON, consolidate=False))


def test_nothing_is_returned_while_topologies_change_nodes_come_or_another_is_drained() -> None:
    low = Wants(cores=1.0, workers=1)
    assert returned(nodes(2), low)
    assert not returned(nodes(2), replace(low, moving=True))
    assert not returned([*nodes(2), Node(NodeId("new"), 4, alive=False, since=0.0)], low)
    assert not returned([*nodes(2), replace(nodes(1)[0], id=NodeId("x"), draining=True)], low)
    assert not returned(nodes(2, fixed=True), low)
    assert not returned(nodes(2), low, replace(ON, minimum=2))


def test_a_moment_of_need_begins_the_wait_anew() -> None:
    past = Past()
    for now, cores in [(0.0, 1.0), (9.0, 5.0), (10.0, 1.0), (19.0, 1.0)]:
        steps, past = decide(nodes(2), Wants(cores=cores, workers=1), ON, past, now)
        assert not steps.drain, now
    assert decide(nodes(2), Wants(cores=1.0, workers=1), ON, past, 20.0)[0].drain


def test_it_does_not_oscillate_between_asking_and_returning() -> None:
    """Whatever is wanted: right after a return nothing is asked for, and the other way round."""
    for tenths in range(1, 200):
        wants = Wants(cores=tenths / 10, workers=1)
        have, changes, past = nodes(6), [], Past()
        for now in range(0, 600, 5):
            steps, past = decide(have, wants, ON, past, float(now))
            if steps.add:
                changes.append("+")
                have = nodes(len(have) + steps.add)
            if steps.drain:
                changes.append("-")
                have = have[:-1]
        assert "-+" not in "".join(changes), wants
        assert "+-" not in "".join(changes), wants


@pytest.mark.parametrize(
    ("there", "wants"),
    [
        ([(8.0, 2, 1), (2.0, 2, 1), (2.0, 2, 1)], Wants(cores=2.9, workers=3)),
        ([(4.0, 8, 0), (4.0, 1, 1), (4.0, 1, 1)], Wants(cores=1.0, workers=3)),
    ],
    ids=["cores", "slots"],
)
def test_it_does_not_oscillate_where_nodes_differ(there: list[tuple[float, int, int]], wants: Wants) -> None:
    """Whoever returns the largest must not ask for another one of its size at once."""
    have = [Node(NodeId(f"n{i}"), slots, used, used, cores=c) for i, (c, slots, used) in enumerate(there)]
    params, past, changes = replace(ON, target=0.5, margin=0.25), Past(), ""
    for now in range(600):
        steps, past = decide(have, wants, params, past, float(now))
        have = [n for n in have if n.id not in steps.drain]
        have += [Node(NodeId(f"new{now}"), there[0][1], cores=there[0][0])] * steps.add
        changes += "+" * steps.add + "-" * len(steps.drain)
    assert "-+" not in changes


def test_that_a_node_is_overdue_is_said_once_also_where_it_is_not_given_up() -> None:
    coming = [*nodes(1), Node(NodeId("new"), 4, cores=4.0, alive=False, since=0.0)]
    said, past = [], Past()
    for now in range(300):
        steps, past = decide(coming, Wants(cores=1.0), replace(ON, dry_run=True), past, float(now))
        said += [r.kind for r in steps.reasons]
    assert said == ["node-overdue"]


def test_an_infinite_cooldown_returns_nothing() -> None:
    assert returned(nodes(2, used=0), Wants(), replace(ON, cooldown_in=math.inf)) == []


def test_dry_run_and_switched_off() -> None:
    assert run(nodes(1), Wants(cores=7.0), replace(ON, dry_run=True)).dry_run
    assert run(nodes(1), Wants(cores=7.0), Infrastructure()) == Steps()
    with pytest.raises(ConfigError, match="--minimum 5 is above --maximum 4"):
        check(Infrastructure(minimum=5))


def test_room_is_what_living_nodes_that_stay_offer() -> None:
    some = [*nodes(2), replace(nodes(1)[0], draining=True), Node(NodeId("new"), 4, alive=False)]
    assert (room_of(some).cores, room_of(some).used, room_of(some).slots) == (8.0, 2.0, 6)
    assert math.isinf(room_of(nodes(1, cores=0.0)).free)
    t = spec(source=1, bolt=1)
    seen = view(t, {"bolt": [busy(0.5, state=99.0)]}, nodes={"n1": (8.0, 3.0)})
    n1 = measured([Node(NodeId("n1"), 4)], seen)[0]
    assert (n1.cores, n1.cpu, n1.state) == (8.0, 3.0, 99.0)
