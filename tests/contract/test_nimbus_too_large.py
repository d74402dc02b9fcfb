"""What is more than coordination takes at once: it is refused, said, and nothing else waits for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from move_harness import Moving, on
from nimbus_harness import spec

from elastic.coordination import _checks
from elastic.coordination.base import Operation
from elastic.errors import Refused
from elastic.migration.record import BRIEF, Phase
from elastic.nimbus.deciding import dividing
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.reign import Reign

PLANTED = "9,000,000 bytes are too many"


def refuse(monkeypatch: pytest.MonkeyPatch, path: str) -> Callable[[], None]:
    """Have transactions refused that write such a path, until what is returned is called."""
    commit, refused = Reign.commit, [path]

    def commits(self: Reign, operations: Sequence[Operation]) -> None:
        writes = [o.path for o in operations if hasattr(o, "data")]
        if any(re.fullmatch(p, w) for p in refused for w in writes):
            raise Refused(PLANTED)
        commit(self, operations)

    monkeypatch.setattr(Reign, "commit", commits)
    return refused.clear


def said(nimbus: Nimbus) -> list[str]:
    return [e.message for _, e in nimbus.events.since(0) if e.kind == "change-refused"]


def test_a_move_that_cannot_be_written_keeps_nobody_else_waiting(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = moving_in_memory.started({"a": 3, "b": 3})
    allow = refuse(monkeypatch, "/topologies/wc/moves/[0-9]+")
    with pytest.raises(Refused, match=f"a move of 4 tasks cannot be written: {PLANTED}"):
        nimbus.move("wc", "count", "b", wait=20)
    assert len(said(nimbus)) == 1 and PLANTED in said(nimbus)[0]
    moving_in_memory.cluster.started(nimbus, spec("other", workers=1))
    nimbus.move("other", "split", "b", wait=20)
    with pytest.raises(Refused, match=PLANTED):
        nimbus.move("wc", "count", "b", wait=20)
    allow()
    assert on(nimbus.move("wc", "count", "b", wait=20), "count") == {"b"}
    nimbus.kill("wc", wait=0)
    moving_in_memory.cluster.event(nimbus, "topology-removed")


def test_a_topology_that_cannot_be_placed_keeps_nobody_else_waiting(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = moving_in_memory.cluster
    nimbus = moving_in_memory.started({"a": 3, "b": 3}, workers=2)
    cluster.started(nimbus, spec("other", workers=2))
    allow = refuse(monkeypatch, "/topologies/wc/assignment")
    cluster.nodes["a"].leave()
    cluster.until(
        nimbus, lambda: {s.node for s in nimbus.describe("other").assignment.workers.values()} == {"b"}
    )
    cluster.event(nimbus, "change-refused")
    assert said(nimbus) == [f"topology wc: where its tasks run cannot be written: {PLANTED}"]
    nimbus.kill("other", wait=0)
    cluster.event(nimbus, "topology-removed")
    allow()
    cluster.node("c", 3)  # something has changed: it is tried again
    cluster.until(
        nimbus, lambda: "a" not in {s.node for s in nimbus.describe("wc").assignment.workers.values()}
    )
    assert len(said(nimbus)) == 1


def test_tasks_go_back_although_there_is_no_room_for_all_reasons(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = moving_in_memory.started({"a": 3, "b": 3}, tasks=24)
    tasks = nimbus.describe("wc").spec.tasks_of("count")  # type: ignore[arg-type]
    monkeypatch.setattr(_checks, "MAX_BYTES", 60_000)
    for task in tasks:
        moving_in_memory.actors.fails["prepared", int(task)] = f"OperationalError: {'x' * 2000}"
    with pytest.raises(Refused, match="24 tasks cannot be moved"):
        nimbus.move("wc", "count", "b", wait=20)
    views = moving_in_memory.moves(nimbus, 3)
    assert {t.phase for v in views for t in v.tasks} == {"rolled back"}
    plan = moving_in_memory.facts(nimbus).plan
    assert plan is not None and BRIEF in {f.reason for f in plan.failures}


def small(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Coordination takes no more bytes than that."""
    monkeypatch.setattr(_checks, "MAX_BYTES", most)
    monkeypatch.setattr(dividing, "MAX_BYTES", most)


def test_a_move_that_there_is_no_room_for_is_several_after_one_another(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = moving_in_memory.started({"a": 3, "b": 3}, tasks=60)
    small(monkeypatch, 12_000)
    assert on(nimbus.move("wc", "count", "b", wait=20), "count") == {"b"}
    assert said(nimbus) == []
    moving_in_memory.quiet(nimbus)
    views = sorted(moving_in_memory.moves(nimbus), key=lambda v: v.epoch)
    tasks = [t.task for v in views for t in v.tasks]
    assert len(views) > 2 and tasks == sorted(tasks) and len(set(tasks)) == 60
    began = [e.details for _, e in nimbus.events.since(0) if e.kind == "move-began"]
    left = 60
    for one in began:
        left -= int(one["tasks"])
        assert one["later"] == left
    assert left == 0


def test_the_next_part_waits_for_the_one_before(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = moving_in_memory.started({"a": 3, "b": 3}, tasks=60)
    small(monkeypatch, 12_000)
    moving_in_memory.actors.hold("saved")
    nimbus.move("wc", "count", "b", wait=0)
    moving_in_memory.phase(nimbus, Phase.PAUSED)
    (first,) = moving_in_memory.facts(nimbus).moves.values()
    assert first.record.later
    assert "waits for the end of move 1, which goes before its own" in str(nimbus.describe("wc").waits)
    nimbus.abort_move("wc", why="enough")  # also what has not begun
    moving_in_memory.actors.let()
    moving_in_memory.moves(nimbus)
    assert moving_in_memory.facts(nimbus).latest == 1


def test_what_has_become_of_a_part_can_be_written_whatever_it_is(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = moving_in_memory.started({"a": 3, "b": 3}, tasks=120, executors=120)
    small(monkeypatch, 60_000)
    for task in nimbus.describe("wc").spec.tasks_of("count"):  # type: ignore[arg-type]
        moving_in_memory.actors.fails["prepared", int(task)] = f"OperationalError: {'x' * 2000}"
    with pytest.raises(Refused, match="120 tasks cannot be moved"):
        nimbus.move("wc", "count", "b", wait=60)
    assert said(nimbus) == []
