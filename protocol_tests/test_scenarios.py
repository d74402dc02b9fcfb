"""What a crash costs, step by step; and what the published implementation does wrong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from elastic.api.builder import TopologyBuilder
from elastic.errors import CyclicTopology, ProtocolViolation
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.decide import decide
from elastic.migration.emitter import Emitter
from elastic.migration.mover_new import MoverNew
from elastic.migration.notifier import Notifier
from elastic.migration.receiver import Receiver
from elastic.migration.record import AT_ONCE, Marked, Marks, Outcome, Phase, SavedMark
from elastic.migration.table import EmitterState, OldState
from elastic.migration.waiting import waiting_for
from elastic.model.ids import Incarnation, NodeId
from protocol_tests import returns
from protocol_tests.pauses import only_the_links_to_the_moving_task_hold
from protocol_tests.profiles import PROFILE
from protocol_tests.restarts import node_dies_after_saved
from protocol_tests.scenarios import both_nodes_die_after_saved
from protocol_tests.situations import (
    A,
    B,
    C,
    D,
    calm,
    flow,
    line,
    marks_of,
    move,
    phase,
    record_of,
    until,
    worker,
)
from protocol_tests.user_topology import Numbers, Same, fences_on_links_that_users_declare
from protocol_tests.world import World

AT = Incarnation(f"{A}#1")
TO = Incarnation(f"{B}#1")

# ------------------------------------------------------------------ what a crash costs


def _kill(world: World, who: str) -> None:
    ids = {"old host": A, "new host": B, "neighbours": C}
    if who in ids:
        world._kill_worker(worker(world, ids[who]), notice=2, restart=20)
    elif who == "old node":
        world.do_lose_node(0, 100.0)
    elif who == "nimbus":
        world.do_crash_nimbus(0, 20.0)
    elif who == "stores":
        for node in range(4):
            world.do_store_down(node, 15.0)
    else:
        for session in list(world.coordination.sessions):
            world._suspend("suspend all", session, 30.0)
        if world.nimbus is not None:
            world.nimbus.forget()


def _may_cost(who: str, at: Phase) -> bool:
    """The account of docs/migration.md, "What is decided when something fails"."""
    if who in ("nimbus", "stores", "zookeeper"):
        return False
    if who in ("old host", "old node"):
        return at < Phase.SAVED or at is Phase.ROLLED_BACK
    return at >= Phase.RESTORED or at is Phase.NONE if who == "new host" else True


OWN = {"old host": {2}, "old node": {2}, "new host": {2}, "neighbours": {1, 3}}


@pytest.mark.parametrize(
    "who", ["old host", "old node", "new host", "neighbours", "nimbus", "stores", "zookeeper"]
)
def test_what_a_crash_at_every_step_costs(who: str) -> None:
    steps, met = 0, set()
    while True:
        world = calm()
        flow(world)
        move(world, {2: B})
        world.run(steps)
        over = phase(world, 2) is Phase.NONE
        at, home = phase(world, 2), world.coordination.places[2]
        met.add(at)
        _kill(world, who)
        world.finish()
        free = (
            not _may_cost(who, at)
            or (over and home == B and who != "new host")
            or (over and who == "new host" and home != B)
        )
        # What was on its way to coordination when the process died may have arrived: then it had restored.
        free = free and not world.met["restored after death"]
        if who == "neighbours" or not free:
            assert all({s, t} & OWN[who] for s, t, _ in world.truth.lost())
        else:
            assert not world.truth.lost() and not world.truth.lost_states, f"{who} at step {steps}, {at.name}"
        if over and steps > 3:
            break
        steps += PROFILE.stride
    assert met >= {Phase.PREPARING, Phase.PAUSED, Phase.SAVED, Phase.RESTORED}


def test_both_nodes_go_and_that_is_said() -> None:
    both_nodes_die_after_saved()


def test_the_old_node_may_go_once_the_state_is_saved() -> None:
    node_dies_after_saved()


# ------------------------------------------------------------------ what the published implementation does wrong


def test_a_record_of_a_dead_nimbus_stops_nobody_and_nothing_polls() -> None:
    world = calm()
    move(world, {2: B})
    world.run(5)
    assert world.nimbus is not None
    world.nimbus.die()
    for id in (A, B):
        world._kill_worker(worker(world, id), notice=2, restart=5)
    world.run(300)
    world._start_nimbus()
    until(world, lambda: not world.coordination.moves)
    move(world, {3: D})
    world.finish()
    assert world.coordination.places[3] == D
    assert len(world.clock) == 0, "something goes on although nothing happens"


def test_a_late_fence_of_an_earlier_move_satisfies_no_other() -> None:
    receiver = Receiver(1, 2)
    receiver.handle(ev.Opened(1, 2, 1, 0))
    receiver.handle(ev.FenceArrived(1, 2, 4, 1, 0))
    assert receiver.reached(4) and not receiver.reached(5)
    receiver.handle(ev.FenceArrived(1, 2, 5, 1, 1))
    receiver.handle(ev.FenceArrived(1, 2, 4, 1, 0))
    assert not receiver.reached(5)
    receiver.handle(ev.Arrived(1, 2, 1, 1, 1, "x"))
    assert receiver.reached(5)


def test_a_lost_connection_is_no_answer() -> None:
    world = calm(shape=line(hints=False))
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PAUSED)
    emitter = worker(world, C)
    until(world, lambda: emitter.participant.emitters[1, 2].state is EmitterState.HOLDING)
    world.coordination.suspend(emitter.session)
    until(world, lambda: phase(world, 2) is Phase.NONE)
    assert emitter.participant.emitters[1, 2].state is EmitterState.HOLDING
    world.finish()
    assert not world.truth.lost() and world.coordination.places[2] == B


def test_an_output_buffer_is_bounded_and_blocks() -> None:
    link = Emitter(1, 2, 1, 2)
    assert link.handle(ev.Emitted(1, 2, "a", 1)) == ()
    assert link.handle(ev.Emitted(1, 2, "b", 1)) == (ac.Block(1, 2),)
    with pytest.raises(ProtocolViolation):
        link.handle(ev.Emitted(1, 2, "c", 1))


def test_a_crash_after_the_state_was_read_loses_nothing() -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED and 2 in worker(world, B).participant._arriving)
    world._kill_worker(worker(world, B), notice=2, restart=200)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


def test_when_the_time_is_over_it_goes_back_not_ahead() -> None:
    world = calm()
    flow(world)
    emitter = worker(world, C)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PREPARING)
    world.coordination.suspend(emitter.session)  # it will not send its fence
    until(world, lambda: not world.coordination.moves)
    assert world.coordination.places[2] == A
    assert world.outcomes == {Outcome.ROLLED_BACK: 1}
    assert world.reasons == [
        f"it was not saved in time: it still waited for worker {A}, to have all fences and to save it"
    ]
    world.finish()
    assert not world.truth.lost()


def test_the_assignment_is_stored_before_anything_is_removed() -> None:
    world = calm()
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.RESTORED)
    seen: list[str] = []
    while world.coordination.moves and world.clock.step():
        if world.coordination.places[2] == B and "placed" not in seen:
            seen.append("placed")
            assert any(s.data for s in world.stores.at.values())
    assert seen == ["placed"] and not any(s.data for s in world.stores.at.values())
    world.finish()


def test_only_the_links_to_the_moving_task_hold() -> None:
    only_the_links_to_the_moving_task_hold()


def test_the_state_goes_in_after_prepare() -> None:
    new = MoverNew(2, 1, 1)
    assert new.handle(ev.PrepareNew(2, 1, 1)) == (ac.PrepareTask(2, 1, 1),)
    assert new.handle(ev.SavedSeen(2, 1, 1, ())) == ()
    with pytest.raises(ProtocolViolation):
        new.handle(ev.Fetched(2, 1, 1, None, None))  # type: ignore[arg-type]


def test_a_spout_moves_with_what_it_has_not_sent() -> None:
    world = calm(shape=line((1, 1), {1: A, 2: C}))
    flow(world, 60)
    move(world, {2: D})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    until(world, lambda: bool(worker(world, A).participant.emitters[1, 2].buffer))
    move(world, {1: B})
    world.finish()
    assert world.coordination.places == {1: B, 2: D} and not world.truth.lost()


def test_all_neighbours_move_at_once() -> None:
    """No task waits for one behind it. A topology that is a circle cannot be built: see the next one."""
    world = calm(shape=line((2, 2, 2), {1: A, 2: B, 3: A, 4: B, 5: A, 6: B}, window=2, buffer=2))
    flow(world, 40)
    move(world, {1: C, 2: D, 3: C, 4: D, 5: C, 6: D})
    world.finish()
    assert set(world.coordination.places.values()) == {C, D} and not world.truth.lost()


def test_a_circle_is_refused_when_it_is_built() -> None:
    builder = TopologyBuilder("circle")
    builder.spout("numbers", Numbers())
    builder.bolt("a", Same()).shuffle("numbers").shuffle("b")
    builder.bolt("b", Same()).shuffle("a")
    with pytest.raises(CyclicTopology, match="a <- b <- a"):
        builder.build()


def test_nobody_declares_a_stream_for_fences() -> None:
    """A user's topology as it is: no stream is added to it, and all who emit to the moving tasks send their fences nevertheless."""
    fences_on_links_that_users_declare()


def test_nimbus_is_not_locked_by_a_move() -> None:
    world = calm(shape=line((1, 2), {1: C, 2: A, 3: A}))
    world.stores.down(world.shape.workers[D], 1e6)
    move(world, {2: D})
    until(world, lambda: phase(world, 2) is Phase.PAUSED)
    move(world, {3: B})
    until(world, lambda: world.coordination.places[3] == B)
    world.finish()


def test_again_before_the_last_has_settled() -> None:
    world = calm()
    flow(world, 60)
    for target in (B, D, A, B):
        move(world, {2: target})
        until(world, lambda target=target: world.coordination.places[2] == target)  # type: ignore[misc]
    world.finish()
    assert not world.truth.lost()


def test_an_abort_takes_back_what_is_not_saved() -> None:
    world = calm(shape=line((1, 4), {1: C, 2: A, 3: A, 4: A, 5: A}))
    flow(world)
    move(world, {2: B, 3: B, 4: B, 5: B}, share=0.25)
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    assert world.nimbus is not None
    world.nimbus.abort(world.coordination.latest)
    world.finish()
    assert [world.coordination.places[t] for t in (2, 3, 4, 5)] == [B, A, A, A] and not world.truth.lost()


# ------------------------------------------------------------------ recovery


def test_a_notifier_is_its_record() -> None:
    """One that was made from the record decides the same as the one that has been there from the start, at every step."""
    world = calm()
    flow(world)
    move(world, {2: B})
    phases = set()
    while world.coordination.moves and world.clock.step():
        (node,) = world.coordination.moves.values() or (None,)
        if node is None or world.nimbus is None:
            break
        hosts = tuple(
            ev.Host(w, i, world.shape.workers[w]) for w, i in sorted(world.coordination.living.items())
        )
        fresh = Notifier.from_record(node.record, node.version)
        first = fresh.handle(ev.Observed(node.marks, hosts))
        decision = decide(node.record, node.version, node.marks, hosts, ())
        commits = [a for a in first if isinstance(a, ac.Commit)]
        if node.record.settled:
            assert [type(a) for a in first] == [ac.CleanStores]
        else:
            assert commits == ([decision.commit] if decision.commit else [])
        phases.add(phase(world, 2))
    assert phases >= {Phase.PREPARING, Phase.PAUSED, Phase.SAVED, Phase.RESTORED, Phase.COMMITTED}


def test_nothing_is_said_before_it_is_written() -> None:
    """Nor what could not be written: somebody was first, and something else follows from that."""
    made = record_of(AT, TO)
    marks = marks_of(a=Marks(AT, asked=(2,)), b=Marks(TO, prepared={2: 1}))
    alone = (ev.Host(A, AT, NodeId("n0")),)
    notifier = Notifier.from_record(made, 0)

    def look(marks: dict[Incarnation, Marked]) -> list[type]:
        return [
            type(a) for a in notifier.handle(ev.Observed(marks, alone)) if not isinstance(a, ac.StartTimer)
        ]

    assert look(marks) == [ac.Commit], "the new side has ended: it goes back"
    assert notifier.handle(ev.RecordConflict(made, 0)) == ()
    first = {**marks, AT: Marked(Marks(AT, asked=(2,), saved={2: SavedMark((NodeId("n0"),))}), 2)}
    assert look(first) == [ac.Commit]
    told = [a for a in notifier.handle(ev.RecordWritten(1)) if isinstance(a, ac.Say)]
    assert [a.kind for a in told] == ["task-move-forward"]


def test_outcomes_are_final() -> None:
    assert [o for o in Outcome if not o] == [Outcome.OPEN]


def _stop_states() -> Callable[[World], set[OldState]]:
    return lambda world: {r.state for r in worker(world, A).participant.old.values()}  # type: ignore[misc]


@pytest.mark.parametrize("when", [OldState.DRAINING, OldState.CONFIRMING])
def test_a_rolled_back_task_goes_on_with_everything(when: OldState) -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: when in _stop_states()(world))
    world._kill_worker(worker(world, B), notice=1, restart=300)
    world.finish()
    assert world.coordination.places[2] == A and not world.truth.lost() and not world.truth.lost_states


def test_a_move_says_what_it_waits_for() -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    said = {}
    while world.coordination.moves and world.clock.step():
        for node in world.coordination.moves.values():
            hosts = tuple(
                ev.Host(w, i, world.shape.workers[w]) for w, i in sorted(world.coordination.living.items())
            )
            waits = waiting_for(node.record, node.marks, hosts)
            said.update({phase(world, t): text for t, text in waits.items()})
    assert set(said) == {Phase.PREPARING, Phase.PAUSED, Phase.SAVED, Phase.RESTORED}
    assert A in said[Phase.PAUSED] and B in said[Phase.SAVED]


@pytest.mark.parametrize("scenario", returns.ALL)
def test_what_cannot_be_restored_elsewhere_goes_on_where_it_was(scenario: Callable[[], None]) -> None:
    scenario()


def test_a_state_that_nobody_can_read_is_kept_and_keeps_nobody_busy() -> None:
    world = calm()
    flow(world)
    world._faults["install fails"] = AT_ONCE + 10
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    world._kill_worker(worker(world, A), notice=2, restart=4000)  # or it would go on there
    failed = []
    for left in range(AT_ONCE + 9, -1, -1):
        until(world, lambda left=left: world._faults["install fails"] == left)  # type: ignore[misc]
        failed.append(world.clock.now)
    waits = [after - before for before, after in pairwise(failed[AT_ONCE - 1 :])]
    assert waits[0] < 30, "what has just failed is tried again soon"
    assert waits[5] > 30 and waits[-1] > 150, "attempts that fail follow each other too fast"
    until(world, lambda: not world.coordination.moves)
    assert not world.truth.lost_states
    world.finish()
    assert not world.truth.lost()


def test_what_was_copied_ahead_is_fetched_before_the_pause() -> None:
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PAUSED)
    (node,) = world.coordination.moves.values()
    source, target = (node.marks[i].marks for i in (node.record.tasks[0].source, node.record.tasks[0].target))
    assert 2 in source.ahead and target.fetched == {2: 1}, "the pause came before that was fetched"
    world.finish()
    assert not world.truth.lost()


def test_what_cannot_be_fetched_ahead_is_fetched_in_the_pause() -> None:
    world = calm()
    flow(world)
    world._faults["fetching ahead fails"] = 1
    move(world, {2: B})
    until(world, lambda: not world.coordination.moves)
    assert world._faults["fetching ahead fails"] == 0
    assert world.coordination.now.places[2] == B
    world.finish()
    assert not world.truth.lost()


def test_that_tasks_are_ready_is_written_once() -> None:
    world = calm(shape=line((1, 6), {1: C, **dict.fromkeys(range(2, 8), A)}, hints=False))
    flow(world)
    written, write = list[Marks](), world.coordination.write_marks

    def wrote(session: Any, epoch: int, me: Incarnation, marks: Marks, *more: Any) -> None:
        written.append(marks)
        write(session, epoch, me, marks, *more)

    with patch.object(world.coordination, "write_marks", wrote):
        move(world, dict.fromkeys(range(2, 8), B))
        until(world, lambda: phase(world, 2) is Phase.PAUSED)
    told = {len(m.asked) for m in written}, {len(m.prepared) for m in written}
    assert told == ({0, 6}, {0, 6}), "each task was told of by itself"
    world.finish()
    assert not world.truth.lost()
