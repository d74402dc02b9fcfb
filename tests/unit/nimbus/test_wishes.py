"""What a request waits for, by the facts alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_nimbus_placing import RULES, World

from elastic.errors import Refused
from elastic.model.ids import Epoch, TaskId, WorkerId
from elastic.model.records import Progress
from elastic.nimbus.moves.aborts import Aborts
from elastic.nimbus.observing.facts import slot_of
from elastic.nimbus.observing.plans import Plan, relocated
from elastic.nimbus.requests import wishes
from elastic.nimbus.requests.wishes import Placed, Wish

ELSEWHERE = WorkerId("t@n3/1")


def given_up(places: dict[TaskId, WorkerId]) -> tuple[str, ...]:
    """What is missing of a rebalance that wants its tasks there, when one of them is wanted elsewhere and was given up."""
    world = World.make()
    a = world.t.assignment
    assert a is not None
    desired = relocated(a, [TaskId(1)], ELSEWHERE, slot_of(ELSEWHERE), world.t.executors_wanted())
    plan = Plan(desired, "move", 1.0, requested=True)
    for _ in range(RULES.tries):
        plan = plan.with_failure(1, 1.0, "class not found")
    done = {w: Progress(i.incarnation, Epoch(a.epoch)) for w, i in world.t.workers.items()}
    world.t = replace(world.t, plan=plan, progress=done)
    reign: Any = SimpleNamespace(aborted=Aborts(), rules=RULES, move_log=SimpleNamespace(waits=lambda *_: []))
    placed = Placed(a, True, Wish(frozenset(places)), places, 0)
    return wishes._missing(reign, world.facts(), world.t, placed)


def test_a_request_fails_for_what_is_given_up_where_it_wants_it() -> None:
    with pytest.raises(Refused, match="1 task cannot be moved: task 1: class not found"):
        given_up({TaskId(1): ELSEWHERE})


def test_a_request_does_not_fail_for_where_somebody_else_wants_a_task() -> None:
    """Nor does it wait for it."""
    world = World.make()
    assert world.t.assignment is not None
    assert given_up(dict(world.t.assignment.place_of())) == ()
