"""What is on a task's path from pause to resume: how many writes and notifications, and who waits for whom."""

from __future__ import annotations

import pytest

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.mover_new import MoverNew
from elastic.migration.record import Phase
from elastic.migration.table import EmitterState, NewState, OldState
from elastic.model.ids import NodeId, WorkerId
from protocol_tests.pauses import (
    resumes_at_once,
    takes_turns_without_nimbus,
    two_writes_and_two_notifications,
)
from protocol_tests.situations import A, B, C, D, calm, flow, line, move, phase, until, worker


@pytest.mark.parametrize("hints", [True, False])
def test_two_writes_and_two_notifications_lie_between_pause_and_resume(hints: bool) -> None:
    two_writes_and_two_notifications(hints=hints)


@pytest.mark.parametrize("to", [B, D], ids=["same worker", "another"])
def test_a_task_that_is_restored_does_not_wait_for_the_others_of_its_batch(to: WorkerId) -> None:
    resumes_at_once(to)


def test_nobody_waits_for_the_first_of_them_when_the_word_has_come() -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    old_side = worker(world, A)
    until(
        world, lambda: 2 in old_side.participant.old and old_side.participant.old[2].state is OldState.SAVING
    )
    world.coordination.suspend(old_side.session)
    before = world.coordination.writes
    until(world, lambda: old_side.participant.old[2].state is OldState.MARKING)
    # Should the other word have got lost.
    world.network.send(old_side, worker(world, B).me, ev.SaveHeard(2, 1))
    link = worker(world, C).participant.emitters[1, 2]
    until(world, lambda: link.where == worker(world, B).me and link.state is EmitterState.FLOWING)
    (node,) = world.coordination.moves.values()
    assert not node.marks[old_side.me].marks.saved and world.coordination.writes - before == 1
    assert phase(world, 2) is Phase.RESTORED
    world.finish()
    assert world.coordination.places[2] == B and not world.truth.lost()


def test_a_word_that_comes_too_early_costs_nothing() -> None:
    world = calm(shape=line(hints=False))
    flow(world)
    move(world, {2: B})
    new_side = worker(world, B)
    until(
        world, lambda: 2 in new_side.participant.new and new_side.participant.new[2].state is NewState.READY
    )
    for _ in range(2):
        world.network.send(worker(world, A), new_side.me, ev.SaveHeard(2, 1))
    until(world, lambda: new_side.participant.new[2].state is NewState.FETCHING)
    until(world, lambda: world.coordination.places[2] == B)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


@pytest.mark.parametrize("seen_before", [True, False])
def test_what_cannot_be_had_when_it_is_saved_is_not_looked_for_again_and_again(seen_before: bool) -> None:
    """A word that came too early excuses the first look alone, whether it fails before it is read that the task is saved or after."""
    new, failed = MoverNew(2, 1, 1), ev.NewFailed(2, 1, 1, "no store has it", gone=True)
    saved = ev.SavedSeen(2, 1, 1, (NodeId("n0"),), 9)
    for event in (ev.PrepareNew(2, 1, 1), ev.Prepared(2, 1, 1), ev.SaveHeard(2, 1)):
        new.handle(event)
    again = [x for event in ((saved, failed) if seen_before else (failed, saved)) for x in new.handle(event)]
    assert again == [ac.Fetch(2, 1, 1, (NodeId("n0"),), 9)]
    assert new.handle(failed) == (ac.Mark(1, 2, "failed", 1, reason="no store has it", gone=True),)


def test_nimbus_is_not_on_that_path() -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PAUSED)
    assert world.nimbus is not None
    world.nimbus.die()
    link = worker(world, C).participant.emitters[1, 2]
    until(world, lambda: link.where == worker(world, B).me and link.state is EmitterState.FLOWING)
    assert phase(world, 2) is Phase.RESTORED
    world.finish()
    assert not world.truth.lost()


def test_nor_is_it_on_that_of_the_batches_that_follow() -> None:
    takes_turns_without_nimbus()


def test_marks_of_many_tasks_are_few_writes() -> None:
    tasks = 200
    world = calm(shape=line((1, tasks), {1: C, **dict.fromkeys(range(2, tasks + 2), A)}))
    before = world.coordination.writes
    move(world, dict.fromkeys(range(2, tasks + 2), B))
    world.finish()
    assert {world.coordination.places[t] for t in range(2, tasks + 2)} == {B}
    assert world.coordination.writes - before < tasks / 2


def test_no_more_than_the_share_is_paused_at_once() -> None:
    world = calm(shape=line((1, 8), {1: C, **dict.fromkeys(range(2, 10), A)}))
    flow(world, 60)
    move(world, dict.fromkeys(range(2, 10), B), share=0.25)
    most = 0
    while world.coordination.moves and world.clock.step():
        most = max(most, sum(phase(world, t) in (Phase.PAUSED, Phase.SAVED) for t in range(2, 10)))
    assert most == 2
    world.finish()
