"""What was asked for and could not be done: who is told of it, when it is tried again, and how it is taken back."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from coordination_harness import PATIENCE
from move_harness import A, B, Moving, phases
from nimbus_harness import FakeLauncher, spec

from elastic.errors import DeadlineExceeded, Refused
from elastic.migration.record import Phase
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, TaskId, WorkerId, node_of
from elastic.model.views import PLANNED, MoveView
from elastic.nimbus.balancing import subjects
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.observing.facts import TopologyFacts
from elastic.nimbus.observing.plans import Ask, Plan
from elastic.nimbus.requests import move_requests

GIVEN_UP = "task 7 stays in worker wc@a/0: class not found; it is tried again when somebody asks for it"


def tasks_in(assignment: Assignment, worker: WorkerId) -> set[int]:
    return {int(t) for t, w in assignment.place_of().items() if w == worker}


def begun(nimbus: Nimbus) -> list[MoveView]:
    """Its moves, without what is only planned."""
    return [m for m in nimbus.moves() if m.state != PLANNED]


def failed(moving: Moving, nodes: dict[str, int] | None = None) -> Nimbus:
    """A topology of which task 7 could not be moved to node b."""
    nimbus = moving.started(nodes or {"a": 1, "b": 1})
    moving.actors.fails["prepared", 7] = "class not found"
    with pytest.raises(Refused, match="1 task cannot be moved: task 7: class not found") as info:
        nimbus.move("wc", "7", "b", wait=PATIENCE)
    assert "other requests leave what failed where it is" in info.value.remedy
    assert len(moving.moves(nimbus, 3)) == 3
    return nimbus


def carried_out(moving: Moving, nimbus: Nimbus) -> None:
    """Nothing waits but what was given up. A worker that tasks have left may be behind when the request is answered."""

    def waits() -> tuple[str, ...]:
        return nimbus.describe("wc").waits

    moving.cluster.until(nimbus, lambda: waits() == (GIVEN_UP,), waits)


def test_a_request_does_not_try_again_what_failed_for_another_one(moving: Moving) -> None:
    nimbus = failed(moving)
    after = nimbus.move("wc", "6,8-9", "b", wait=PATIENCE)
    assert tasks_in(after, B) == {6, 8, 9}
    newest, *before = moving.moves(nimbus, 4)
    assert [t.task for t in newest.tasks] == [6, 8, 9] and newest.why == "move 6,8-9 to b"
    assert {m.why for m in before} == {"move 7 to b"} and len(before) == 3
    carried_out(moving, nimbus)
    nimbus.scale("wc", "split", 3, wait=PATIENCE)
    carried_out(moving, nimbus)
    told = moving.cluster.kinds(nimbus).count("topology-rebalanced")
    nimbus.scale("wc", "split", 3, wait=PATIENCE)
    assert moving.cluster.kinds(nimbus).count("topology-rebalanced") == told, "nothing changes"
    assert [m.why for m in begun(nimbus) if 7 in {t.task for t in m.tasks}] == ["move 7 to b"] * 3
    assert moving.cluster.kinds(nimbus).count("move-given-up") == 1


def test_a_request_that_fails_names_its_own_tasks_alone(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = failed(moving)
    moving.actors.fails["prepared", 9] = "no module"
    with pytest.raises(Refused, match=r"1 task cannot be moved: task 9: no module\n"):
        nimbus.move("wc", "8-9", "b", wait=PATIENCE)
    assert tasks_in(nimbus.describe("wc").assignment, B) == {8}
    assert not [m for m in begun(nimbus) if m.why == "move 8-9 to b" and 7 in {t.task for t in m.tasks}]


@pytest.mark.parametrize("how", ["named", "component", "rebalance"])
def test_what_failed_is_tried_again_when_a_request_asks_for_it(moving_in_memory: Moving, how: str) -> None:
    moving = moving_in_memory
    nimbus = failed(moving)
    moving.actors.fails.clear()
    if how == "named":
        nimbus.move("wc", "7", "b", wait=PATIENCE)
    elif how == "component":
        nimbus.scale("wc", "count", 4, wait=PATIENCE)
    else:
        nimbus.rebalance("wc", workers=2, wait=PATIENCE)
    after = moving.quiet(nimbus)
    assert 7 in tasks_in(after, B) or how == "rebalance"
    assert len(moving.moves(nimbus, 4)) == 4


@pytest.mark.parametrize("where", ["a", "a/0"])
def test_what_failed_is_taken_back_by_moving_it_to_where_it_is(moving_in_memory: Moving, where: str) -> None:
    """On a node with two workers of the topology, too: it stays in the one in which it is."""
    moving = moving_in_memory
    nimbus = failed(moving, {"a": 2, "b": 1})
    nimbus.move("wc", "1", "a/1", wait=PATIENCE)  # the worker there that has fewer tasks
    after = nimbus.move("wc", "7", where, wait=PATIENCE)
    assert 7 in tasks_in(after, A)
    assert moving.quiet(nimbus) and len(begun(nimbus)) == 4 and not nimbus.describe("wc").waits


def test_what_failed_is_taken_back_by_an_abort(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = failed(moving)
    assert nimbus.abort_move("wc") == ()
    moving.quiet(nimbus)
    moving.actors.fails.clear()
    assert nimbus.move("wc", "6", "b", wait=PATIENCE).place_of()[6] == B  # type: ignore[index]
    assert tasks_in(moving.quiet(nimbus), B) == {6}


def test_a_drain_tries_again_what_is_on_its_node_and_under_its_own_name(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.nimbus()
    FakeLauncher(moving.cluster)
    nimbus.add_nodes(3, slots=2, wait=PATIENCE)
    before = moving.cluster.started(nimbus, spec(workers=3)).place_of()
    counts = {n: before[n] for n in (6, 7, 8, 9)}  # type: ignore[index]
    one = 7
    other = next(n for n, w in counts.items() if w != counts[one])
    third = next(n for n in ("node-1", "node-2", "node-3") if f"@{n}/" not in counts[one] + counts[other])
    for task in (one, other):
        moving.actors.fails["prepared", task] = "class not found"
    with pytest.raises(Refused, match="2 tasks cannot be moved"):
        nimbus.move("wc", f"{one},{other}", third, wait=PATIENCE)
    del moving.actors.fails["prepared", one]
    tried = len(begun(nimbus))
    node = str(counts[one]).partition("@")[2].partition("/")[0]
    nimbus.drain_node(node, wait=PATIENCE)
    drained = moving.moves(nimbus, tried + 1)[: len(begun(nimbus)) - tried]
    moved = {t.task for m in drained for t in m.tasks}
    assert one in moved and other not in moved
    assert {m.why for m in drained} == {f"node {node} is being drained"}


def test_nobody_waits_for_a_worker_of_what_failed_for_another_request(moving_in_memory: Moving) -> None:
    """It never started: neither does another request wait for it, nor do policies."""
    moving = moving_in_memory
    nimbus = moving.nimbus(move_start=0.2)
    for name in ("a", "b", "c"):
        moving.cluster.node(name, 1)
    moving.cluster.nodes["b"].down.add(B)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 3)
    moving.cluster.started(nimbus, spec(workers=1))
    with pytest.raises(Refused, match="task 7: worker wc@b/0, where it was to go, did not start"):
        nimbus.move("wc", "7", "b", wait=PATIENCE)
    after = nimbus.move("wc", "6", "c", wait=PATIENCE)
    assert tasks_in(after, WorkerId("wc@c/0")) == {6}
    nimbus.move("wc", "6", "c", wait=PATIENCE)
    t, reign = moving.facts(nimbus), nimbus._reign
    assert reign is not None and B in t.behind(Epoch(after.epoch)) and t.idle == {B}
    assert subjects.settled(t, reign.facts(), reign.rules)


def test_a_drain_is_tried_anew_when_its_target_has_left(moving_in_memory: Moving) -> None:
    """Nobody has to ask again: it goes elsewhere now."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    (source,) = nimbus.describe("wc").assignment.workers
    moving.actors.fails["prepared", 7] = "no space left on device"
    nimbus.drain_node(node_of(source), wait=0)
    moving.cluster.event(nimbus, "move-given-up")
    moving.actors.fails.clear()
    plan = moving.facts(nimbus).plan
    assert plan is not None
    target = node_of(plan.assignment.place_of()[TaskId(7)])
    moving.cluster.nodes[target].leave()
    third = ({"a", "b", "c"} - {node_of(source), target}).pop()
    after = moving.quiet(nimbus)
    assert set(after.workers) == {WorkerId(f"wc@{third}/0")}
    assert not moving.facts(nimbus).plan and len(tasks_in(after, WorkerId(f"wc@{third}/0"))) == len(
        after.place_of()
    )


# --- several at once


def test_what_is_asked_back_while_it_is_on_its_way_comes_back(
    moving: Moving, background: ThreadPoolExecutor
) -> None:
    """It is written where it shall be until its move has its outcome."""
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    nimbus.move("wc", "count", "a", wait=0)
    assert moving.facts(nimbus).plan is not None
    back = background.submit(nimbus.move, "wc", "count", "a", wait=PATIENCE)
    moving.actors.let()
    assert not tasks_in(back.result(PATIENCE), B)
    assert not tasks_in(moving.quiet(nimbus), B)


def test_what_is_asked_back_comes_back_although_all_else_has_come_before(
    moving_in_memory: Moving, background: ThreadPoolExecutor
) -> None:
    """The plan looks true when the other move ends."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold_of("restored", 6)
    nimbus.move("wc", "6", "b", wait=0)
    moving.phase(nimbus, Phase.SAVED)
    moving.actors.hold_of("saved", 7)
    nimbus.move("wc", "7", "c", wait=0)
    moving.until(nimbus, lambda t: t.moving == {6, 7})
    back = background.submit(nimbus.move, "wc", "6", "a", wait=PATIENCE)
    moving.until(nimbus, lambda t: t.plan is not None and t.plan.why == "move 6 to a")
    moving.actors.let("saved")
    moving.until(nimbus, lambda t: t.moving == {6})
    moving.actors.let()
    assert 6 in tasks_in(back.result(PATIENCE), A)
    assert tasks_in(moving.quiet(nimbus), WorkerId("wc@c/0")) == {7}


def test_each_of_two_requests_waits_for_its_own_tasks(moving: Moving, background: ThreadPoolExecutor) -> None:
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold_of("restored", 6)
    moving.actors.hold_of("saved", 8)
    first = background.submit(nimbus.move, "wc", "6-7", "b", wait=PATIENCE)
    moving.phase(nimbus, Phase.SAVED)
    second = background.submit(nimbus.move, "wc", "8-9", "c", wait=PATIENCE)
    moving.until(nimbus, lambda t: {8, 9} & t.moving != set())
    moving.actors.let("restored")
    assert tasks_in(first.result(PATIENCE), B) == {6, 7}
    assert not second.done()
    with pytest.raises(DeadlineExceeded) as info:
        nimbus.move("wc", "8", "c", wait=0.1)
    assert "task 8" in info.value.message and "task 6" not in info.value.message
    moving.actors.let()
    assert tasks_in(second.result(PATIENCE), WorkerId("wc@c/0")) == {8, 9}


def test_the_later_of_two_requests_does_not_wait_for_the_earlier_ones_tasks(
    moving_in_memory: Moving, background: ThreadPoolExecutor
) -> None:
    """Nor does it fail for them."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold_of("restored", 6)
    first = background.submit(nimbus.move, "wc", "6", "b", wait=PATIENCE)
    moving.phase(nimbus, Phase.SAVED)
    after = nimbus.move("wc", "8-9", "c", wait=PATIENCE)
    assert tasks_in(after, WorkerId("wc@c/0")) == {8, 9} and not first.done()
    moving.actors.fails["restored", 6] = "class not found"
    moving.actors.let()
    moving.cluster.event(nimbus, "task-move-forward")
    assert nimbus.move("wc", "8", "c", wait=PATIENCE)
    moving.actors.fails.clear()
    assert tasks_in(first.result(PATIENCE), B) == {6}


def test_a_move_says_who_has_asked_for_it_also_when_it_was_several(moving_in_memory: Moving) -> None:
    """The tasks of the first wait for their worker when the second comes: all go as one."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.cluster.nodes["b"].down.add(B)
    nimbus.move("wc", "6", "b", wait=0)
    nimbus.move("wc", "8", "b", wait=0)
    nimbus.move("wc", "8", "b", wait=0)
    moving.cluster.nodes["b"].start(B)
    (move,) = moving.moves(nimbus)
    assert [t.task for t in move.tasks] == [6, 8] and move.why == "move 6 to b; move 8 to b"


def test_a_move_does_not_say_of_others_that_they_have_asked_for_it(moving_in_memory: Moving) -> None:
    """Neither of one whose task is there already, nor of an earlier one, whose task waits until it is tried again."""
    moving = moving_in_memory
    nimbus = moving.nimbus(move_retry=600.0)
    for name in ("a", "b", "c"):
        moving.cluster.node(name, 1)
    moving.cluster.until(nimbus, lambda: len(nimbus.nodes()) == 3)
    moving.cluster.started(nimbus, spec(workers=1))
    moving.actors.fails["prepared", 6] = "class not found"
    nimbus.move("wc", "6", "b", wait=0)
    moving.cluster.event(nimbus, "task-move-rolled-back")
    moving.until(nimbus, lambda t: t.plan is not None and bool(t.plan.failures) and not t.moves)
    before = nimbus.describe("wc").assignment
    assert nimbus.move("wc", "7", "a", wait=PATIENCE).place_of() == before.place_of(), "at once"
    assert next(m.why for m in nimbus.moves("wc") if not m.epoch) == "move 6 to b", "what is planned"
    nimbus.move("wc", "7", "c", wait=PATIENCE)
    assert {m.why for m in nimbus.moves("wc") if [t.task for t in m.tasks] == [7]} == {"move 7 to c"}
    assert {m.why for m in nimbus.moves("wc") if [t.task for t in m.tasks] == [6]} == {"move 6 to b"}


def test_a_drain_is_not_said_to_be_what_was_asked_for_before(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    nimbus.move("wc", "9", "c", wait=PATIENCE)
    moving.cluster.nodes["b"].down.add(B)
    nimbus.move("wc", "6", "b", wait=0)
    nimbus.drain_node("c", wait=0)
    moving.cluster.nodes["b"].start(B)
    moving.quiet(nimbus)
    whys = {t.task: m.why for m in nimbus.moves("wc") for t in m.tasks if m.why != "move 9 to c"}
    assert "move 6 to b" in whys[6] and "node c is being drained" in whys[9]
    moved = [m for m in nimbus.moves("wc") if [t.task for t in m.tasks] == [9]]
    assert moved[0].why == "node c is being drained" or whys[6] == whys[9], "alone, or both in one move"


def test_who_is_overtaken_is_told_what_is_wanted_now(
    moving_in_memory: Moving, background: ThreadPoolExecutor
) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold("restored")
    first = background.submit(nimbus.move, "wc", "6-7", "b", wait=PATIENCE)
    moving.phase(nimbus, Phase.SAVED)
    nimbus.move("wc", "7", "c", wait=0)
    with pytest.raises(Refused, match=r"task 7 shall run in wc@c/0 now \(move 7 to c\)") as info:
        first.result(PATIENCE)
    assert "elastic describe wc" in info.value.remedy
    scaled = background.submit(nimbus.scale, "wc", "count", 2, wait=PATIENCE)
    moving.cluster.event(nimbus, "topology-rebalanced")
    nimbus.scale("wc", "count", 3, wait=0)
    with pytest.raises(Refused, match="component 'count' shall have 3 executors now"):
        scaled.result(PATIENCE)
    moving.actors.let()
    after = moving.quiet(nimbus)
    assert len([e for e, _ in after.executors if e.component == "count"]) == 3


def test_what_an_abort_came_too_late_for_stays_where_it_goes(moving_in_memory: Moving) -> None:
    """Whatever else is asked for meanwhile: nobody has asked for it to come back."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "count", "b", wait=0, share=1.0)
    moving.until(nimbus, lambda t: list(phases(t)) == [Phase.SAVED] * 4)
    nimbus.abort_move("wc")
    nimbus.move("wc", "3", "b", wait=0)
    moving.actors.let()
    assert tasks_in(moving.quiet(nimbus), B) == {3, 6, 7, 8, 9}


def test_a_drain_does_not_bring_back_what_was_aborted(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    nimbus.move("wc", "9", "c", wait=PATIENCE)
    moving.actors.hold_of("restored", 6)
    moving.actors.hold_of("saved", 8)
    nimbus.move("wc", "6,8", "b", wait=0, share=1.0)
    moving.until(nimbus, lambda t: set(phases(t)) == {Phase.SAVED, Phase.PAUSED})
    nimbus.abort_move("wc")
    nimbus.drain_node("c", wait=0)
    moving.actors.let()
    after = moving.quiet(nimbus)
    assert {6} <= tasks_in(after, B) and 8 in tasks_in(after, A)


def test_a_drain_takes_away_what_an_abort_came_too_late_for(moving_in_memory: Moving) -> None:
    """It is still on its way to that node when the drain is asked for; and what moves then does so because of the drain."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold("restored")
    nimbus.move("wc", "6", "b", wait=0, share=1.0)
    moving.phase(nimbus, Phase.SAVED)
    nimbus.abort_move("wc")
    nimbus.drain_node("b", wait=0)
    moving.actors.let()
    moving.until(nimbus, lambda t: t.plan is None and not t.moves)
    assert not tasks_in(moving.quiet(nimbus), B)
    assert [m.why for m in moving.moves(nimbus, 2)] == [
        "node b is being drained",
        "move 6 to b, share 1",
    ]


def test_a_drain_asks_for_nothing_else_that_was_aborted(moving_in_memory: Moving) -> None:
    """Also when nothing has been decided since."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    nimbus.move("wc", "9", "c", wait=PATIENCE)
    moving.cluster.nodes["b"].down.add(B)
    nimbus.move("wc", "6", "b", wait=0)
    reign = nimbus._reign
    assert reign is not None
    with reign.lock:
        nimbus.abort_move("wc")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reign, "reconcile", lambda: True)
            nimbus.drain_node("c", wait=0)
    moving.cluster.nodes["b"].start(B)
    after = moving.quiet(nimbus)
    assert 6 in tasks_in(after, A) and not tasks_in(after, WorkerId("wc@c/0"))


def test_moves_are_listed_also_without_a_connection(moving_in_memory: Moving) -> None:
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1})
    moving.cluster.nodes["b"].down.add(B)
    nimbus.move("wc", "6", "b", wait=0)
    session, reign = moving.cluster.sessions["h:1"], nimbus._lead()
    moving.cluster.service.cut(session)
    # As it is asked for before Nimbus has heard of that: from then on it refuses to answer.
    assert [m.state for m in move_requests.moves(reign, "wc")] == [PLANNED]
    moving.cluster.service.restore(session)


def test_who_waits_for_what_is_aborted_is_told_also_when_something_else_is_asked_for(
    moving_in_memory: Moving, background: ThreadPoolExecutor
) -> None:
    """It goes on waiting for what an abort came too late for."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1}, workers=2)
    before = nimbus.describe("wc").assignment.place_of()
    counts = [n for n in (6, 7, 8, 9) if before[TaskId(n)] == B]
    moving.actors.hold_of("restored", counts[0])
    moving.actors.hold_of("saved", counts[1])
    waiting = background.submit(nimbus.rebalance, "wc", workers=1, wait=PATIENCE, share=1.0)
    moving.until(nimbus, lambda t: {Phase.SAVED, Phase.PAUSED} <= set(phases(t)))
    nimbus.abort_move("wc", why="tea time")
    nimbus.move("wc", "1", node_of(before[TaskId(1)]), wait=0)
    moving.actors.let()
    with pytest.raises(Refused, match="tasks stay where they are: tea time"):
        waiting.result(PATIENCE)


def test_who_is_told_of_an_abort_is_told_what_was_asked_for_since(
    moving_in_memory: Moving, background: ThreadPoolExecutor
) -> None:
    """Its task does not stay where it is: another request has it go elsewhere."""
    moving = moving_in_memory
    nimbus = moving.started({"a": 1, "b": 1, "c": 1})
    moving.actors.hold_of("prepared", 6)
    waiting = background.submit(nimbus.move, "wc", "6", "b", wait=PATIENCE)
    moving.phase(nimbus, Phase.PREPARING)
    reign = nimbus._reign
    assert reign is not None
    with reign.lock:  # whoever waits looks when both have been asked for
        nimbus.abort_move("wc", why="tea time")
        nimbus.move("wc", "6", "c", wait=0)
    with pytest.raises(
        Refused, match="tea time; something else was asked for since: task 6 shall run in wc@c/0 now"
    ):
        waiting.result(PATIENCE)
    moving.actors.let()


def each_request_keeps_its_share(moving: Moving) -> None:
    nimbus = moving.started({"a": 1, "b": 1})
    moving.cluster.nodes["b"].down.add(B)
    nimbus.move("wc", "6-7", "b", wait=0, share=1.0)
    nimbus.move("wc", "3", "b", wait=0, share=0.5)
    nimbus.move("wc", "4-5", "b", wait=0)
    moving.actors.hold("prepared")
    moving.cluster.nodes["b"].start(B)
    batches: dict[int, tuple[int, int]] = {}

    def seen(t: TopologyFacts) -> bool:
        batches.update((x.task, (m.record.epoch, x.batch)) for m in t.moves.values() for x in m.record.tasks)
        return len(batches) == 5

    moving.until(nimbus, seen)
    assert batches[6] == batches[7], "at once"
    assert batches[4][0] == batches[5][0] and batches[4][1] != batches[5][1], "one by one"
    assert len({epoch for epoch, _ in batches.values()}) == 3
    moving.actors.let()
    assert tasks_in(moving.quiet(nimbus), B) == {3, 4, 5, 6, 7}


def test_each_request_keeps_its_share(moving_in_memory: Moving) -> None:
    each_request_keeps_its_share(moving_in_memory)


def test_a_request_that_takes_anothers_share_is_found(
    moving_in_memory: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_before = Plan.asked_before

    def with_the_newest_share(self: Plan, tasks: Collection[TaskId]) -> tuple[Ask, ...]:
        return tuple(replace(ask, share=0.0) for ask in asked_before(self, tasks))

    monkeypatch.setattr(Plan, "asked_before", with_the_newest_share)
    with pytest.raises(AssertionError):
        each_request_keeps_its_share(moving_in_memory)
