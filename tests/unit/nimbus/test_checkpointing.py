"""When a checkpoint begins, when it is complete, and when it is given up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elastic.migration.plan import AHEAD
from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.checkpoints import (
    Checkpoints,
    Complete,
    Stored,
    Taken,
    merged,
    number_of,
    slot_of,
    snapshot_key,
    topology_of,
)
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, TopologyStatus, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nimbus.deciding.checkpointing import AGAIN, COPYING, deadlines, step
from elastic.nimbus.observing.facts import TopologyFacts
from elastic.nimbus.stories import checkpointed, went_back

T = TopologyName("t")
A, B = WorkerId("t@a/0"), WorkerId("t@b/0")
LIFE = {A: Incarnation("t@a/0#1"), B: Incarnation("t@b/0#1")}
NODES = NodeId("a"), NodeId("b")


def facts(
    c: Checkpoints, status: TopologyStatus = TopologyStatus.ACTIVE, **taken: Taken | None
) -> TopologyFacts:
    """Tasks 1 and 2 in worker a, 3 in b; submitted at 100; one checkpoint every 10 s."""
    config: dict[str, Any] = {"checkpoint_interval": 10.0, "checkpoint_timeout": 30.0}
    spec = TopologySpec(T, (ComponentSpec(ComponentId("c"), "spout", 3, 2),), config=config)
    placed = (
        (ExecutorId(ComponentId("c"), TaskId(1), TaskId(2)), A),
        (ExecutorId(ComponentId("c"), TaskId(3), TaskId(3)), B),
    )
    slots = {A: WorkerSlot(NODES[0], 0), B: WorkerSlot(NODES[1], 0)}
    said = {A: taken.get("a"), B: taken.get("b")}
    return TopologyFacts(
        spec,
        TopologyState(status, "t-1", "b", submitted=100.0),
        1,
        Assignment(T, Epoch(1), slots, placed),
        1,
        {w: WorkerInfo(w, life, "", "", "", 1, Epoch(1), c.generation) for w, life in LIFE.items()},
        {w: Progress(life, Epoch(1), generation=c.generation, taken=said[w]) for w, life in LIFE.items()},
        checkpoints=c,
    )


def some(ticket: int, *tasks: int, **more: Any) -> Taken:
    return Taken(ticket, (Stored(NODES, tasks),), 10, **more)


NEW = Checkpoints("id")


def test_the_first_is_due_after_an_interval_and_each_after_one_since_the_last_began() -> None:
    assert step(facts(NEW), 109.9) is None
    first = step(facts(NEW), 110.0)
    assert first == replace(NEW, newest=2, began=110.0, taking=True)
    done = first.completed((), 0, 111.0)
    assert step(facts(done), 119.9) is None
    assert next(iter(deadlines(facts(done)))) == 120.0
    second = step(facts(done), 120.0)
    assert second is not None and number_of(second.newest) == 2


def test_nothing_begins_while_the_topology_is_not_active_or_a_task_does_not_run() -> None:
    assert step(facts(NEW, TopologyStatus.INACTIVE), 200.0) is None
    t = facts(NEW)
    assert t.assignment is not None
    waiting = replace(t.assignment, unassigned=(ExecutorId(ComponentId("c"), TaskId(3), TaskId(3)),))
    assert step(replace(t, assignment=waiting), 200.0) is None
    assert step(replace(t, progress={A: t.progress[A]}), 200.0) is None, "b has not begun"
    older = {**t.workers, B: replace(t.workers[B], generation=0)}
    assert step(replace(t, workers=older), 200.0) is None, "b is of another generation"
    assert step(replace(t, checkpoints=None), 200.0) is None


def test_large_states_are_copied_ahead_first_and_not_waited_for_for_ever() -> None:
    copying = step(facts(NEW), 110.0, {TaskId(1): AHEAD})
    assert copying is not None and copying.copying and not copying.taking
    ticket = copying.newest
    assert step(facts(copying, a=Taken(ticket, ready=True), b=Taken(ticket)), 110.5) is None
    both = step(facts(copying, a=Taken(ticket, ready=True), b=Taken(ticket, ready=True)), 110.5)
    assert both is not None and both.taking and not both.copying
    assert step(facts(copying), 110.0 + COPYING) == both


def test_it_is_complete_when_there_is_a_snapshot_of_every_task_and_says_where() -> None:
    c = NEW.begun(110.0).through()
    ticket = c.newest
    assert step(facts(c, a=some(ticket, 1, 2)), 111.0) is None
    assert step(facts(c, a=some(ticket, 1, 2), b=some(ticket - 2, 3)), 111.0) is None, "that is of another"
    done = step(facts(c, a=some(ticket, 1, 2), b=some(ticket, 3)), 111.0)
    assert done is not None and not done.under_way
    assert done.complete == Complete(ticket, 110.0, 111.0, 20, (Stored(NODES, (1, 2, 3)),))
    event = checkpointed(facts(c), done)
    assert event is not None and "has checkpoint 1: 20 bytes in 1.00 s" in event.message


def test_it_is_given_up_when_a_worker_says_so_or_late_and_taken_again_soon() -> None:
    c = NEW.begun(110.0).through()
    failed = step(facts(c, a=some(c.newest, 1, failed="task 2: no room")), 111.0)
    assert failed is not None and failed.failed == "task 2: no room" and not failed.under_way
    assert step(facts(failed), 111.0 + AGAIN - 0.1) is None and step(facts(failed), 111.0 + AGAIN) is not None
    late = step(facts(c, a=some(c.newest, 1)), 140.0)
    assert late is not None and late.failed == "it was not complete after 30 s: there is nothing of c (2, 3)"
    event = checkpointed(facts(c), late)
    assert event is not None and "after a crash it would go back to its beginning" in event.message


def test_the_newest_complete_one_stays_until_the_next_is_whatever_becomes_of_others() -> None:
    c = NEW
    for turn in range(6):
        c = c.begun(float(turn)).through()
        before = c.complete
        assert before is None or slot_of(before.ticket) != slot_of(c.newest)
        assert before is None or before.ticket < c.newest
        c = c.completed((), 0, turn + 0.5) if turn % 3 else c.given_up("no", turn + 0.5)
    assert c.complete is not None and number_of(c.complete.ticket) == 6


def test_a_topology_that_goes_back_gives_up_what_is_being_taken() -> None:
    c = NEW.begun(1.0).through().completed((), 0, 2.0).begun(3.0)
    back = c.gone_back("a process ended", 4.0)
    assert back.generation == c.generation + 1 and not back.under_way and back.complete == c.complete
    assert (
        "goes back to checkpoint 1, 3.0 s old: a process ended" in went_back(facts(back), back, 4.0).message
    )
    first = NEW.gone_back("a process ended", 4.0)
    assert (
        first.generation == 2 and "goes back to its beginning" in went_back(facts(first), first, 4.0).message
    )


def test_keys_say_whose_they_are() -> None:
    key = snapshot_key(T, "1f", 7, 12)
    assert key == "t@1f.1/12" and topology_of(key.rpartition("/")[0]) == (T, "1f", 1)
    assert topology_of("t") == (T, None, 0)


def test_where_snapshots_lie_is_said_once_for_the_same_nodes() -> None:
    one, two = Stored(NODES, (3, 1)), Stored(NODES[:1], (2,))
    assert merged([one, two, Stored(NODES, (1, 5))]) == (two, Stored(NODES, (1, 3, 5)))
