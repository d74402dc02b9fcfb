"""What Nimbus tells of plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from elastic.model.ids import TaskId, TopologyName
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.plans import Plan, nothing
from elastic.nimbus.stories import _NAMED, given_up

TRIES = Rules().tries


def told(**failed: str) -> Any:
    """Of tasks that fail for the last time, each for its reason."""
    before = after = Plan(nothing(TopologyName("t")), "", 0.0)
    for task, reason in failed.items():
        for _ in range(TRIES):
            after = after.with_failure(TaskId(int(task[1:])), 1.0, reason, TRIES)
    facts: Any = SimpleNamespace(name="t")
    (event,) = given_up(facts, before, after, Rules(), 0.0)
    return event


def test_each_reason_is_named_with_a_task_that_it_is_of() -> None:
    said = told(t3="no room", t4="no such file", t5="no room")
    assert (
        said.message == "topology t: 3 tasks (3, 4, 5) will not be moved again by themselves: "
        "task 3: no room; task 4: no such file"
    )
    assert said.details["reason"] == "task 3: no room; task 4: no such file"


def test_one_reason_is_that_of_all() -> None:
    assert told(t3="no room", t4="no room").message.endswith("by themselves: no room")
    assert told(t3="no room").message == "topology t: 1 task (3) will not be moved again by itself: no room"


def test_many_reasons_are_counted() -> None:
    said = told(**{f"t{n}": f"reason {n}" for n in range(1, _NAMED + 4)}).message
    assert f"task {_NAMED}: reason {_NAMED}; and 3 more reasons" in said
