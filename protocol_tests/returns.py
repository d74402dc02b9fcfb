"""Situations in which what was saved goes on where it was, as it could not be restored elsewhere. Each raises when the product is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.decide import restore_timer
from elastic.migration.participant import Participant
from elastic.migration.plan import Wiring
from elastic.migration.record import AT_ONCE, Marked, Marks, MoveRecord, Outcome, Phase, SavedMark
from elastic.migration.table import NewState
from elastic.migration.view import MoveView
from elastic.model.ids import Incarnation, NodeId
from protocol_tests.situations import (
    A,
    B,
    C,
    calm,
    flow,
    kinds_of,
    line,
    move,
    phase,
    record_of,
    until,
    view_of,
    worker,
)
from protocol_tests.world import World


def _out_of_time(world: World) -> None:
    """The time of the present attempt to restore task 2 is over."""
    (node,) = world.coordination.moves.values()
    (part,) = node.record.tasks
    assert world.nimbus is not None
    world.nimbus.feed(1, ev.TimerFired(*restore_timer(part)))


def could_not_be_restored() -> None:
    """The new side's user code raises: the task goes on in the process that it was to leave, with all that it had, and nothing is lost."""
    world = calm()
    flow(world)
    until(world, lambda: not world.clock.step())
    before = worker(world, A).tasks[2]
    world._faults["install fails"] = 1
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    flow(world)
    until(world, lambda: bool(world.outcomes))
    assert worker(world, A).tasks[2] is before and before.running and not before.stopped, "the very same"
    assert world.outcomes == {Outcome.COMMITTED: 1} and "cannot be read" in world.reasons[0]
    until(world, lambda: not world.coordination.moves)
    assert world.coordination.places[2] == A and not any(s.data for s in world.stores.at.values())
    move(world, {2: B})  # and another time it can
    flow(world)
    until(world, lambda: world.coordination.places[2] == B)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


def goes_on_while_another_restores() -> None:
    """The new side is given up while it fetches, and does not hear of that: its `restored` is refused."""
    world = calm(shape=line(hints=False))
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    new, session = worker(world, B).participant.new[2], worker(world, B).session
    asked, get = list[Any](), world.stores.get
    with patch.object(world.stores, "get", lambda *of: asked.append(of)):
        until(world, lambda: new.state is NewState.FETCHING and bool(asked))
        heard, session.on_view = session.on_view, lambda view: None
        _out_of_time(world)
        until(world, lambda: worker(world, A).tasks[2].running and not worker(world, A).tasks[2].stopped)
    for of in asked:
        get(*of)
    until(world, lambda: new.state is NewState.MARKING)
    flow(world)
    world.do_run(200)  # it hears what has become of its mark, and of nothing else
    assert new.state is NewState.MARKING, "two go on with it"
    session.on_view = heard
    world.coordination._notify(session)
    world.finish()
    assert world.coordination.places[2] == A
    assert not world.truth.lost() and not world.truth.lost_states


def is_not_heard_of_by_who_has_it() -> None:
    """Who was to go on with it has read that, and coordination does not answer: another one restores it, and this one never goes on."""
    world = calm(shape=line(hints=False))
    flow(world)
    world._faults["install fails"] = 1
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    before, session = worker(world, A), worker(world, A).session
    late, write = list[Any](), world.coordination.write_marks

    def slow(of: Any, *more: Any) -> None:
        (late.append if of is session else lambda all: write(*all))((of, *more))

    with patch.object(world.coordination, "write_marks", slow):
        until(world, lambda: bool(late))
        assert before.participant.new[2].back, "nothing was tried: it has not been chosen"
        _out_of_time(world)
        until(world, lambda: bool(world.outcomes))
        assert 2 not in before.tasks or before.tasks[2].stopped, "two go on with it"
    for each in late:
        write(*each)
    flow(world)
    world.finish()
    assert world.coordination.places[2] != A
    assert not world.truth.lost() and not world.truth.lost_states


def is_gone_before_it_goes_on() -> None:
    """Who was to go on with it dies before that is taken down: the stores have it still."""
    world = calm(shape=line(hints=False))
    flow(world)
    world._faults["install fails"] = 1
    move(world, {2: B})
    until(world, lambda: 2 in worker(world, A).participant.new)
    world._kill_worker(worker(world, A), notice=2, restart=4000)
    until(world, lambda: bool(world.outcomes))
    flow(world)
    world.finish()
    assert world.coordination.places[2] != A
    assert not world.truth.lost() and not world.truth.lost_states


def is_given_up() -> None:
    """Nobody can restore it, and who had it is gone: an operator gives it up. The attempt that is under way then comes to nothing, the task
    begins anew, which is said, and its neighbours lose nothing."""
    world = calm(shape=line(hints=False))
    flow(world)
    world._faults["install fails"] = AT_ONCE - 1
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    world._kill_worker(worker(world, A), notice=2, restart=4000)
    assert world.nimbus is not None
    world.nimbus.abort(1, force=True)
    asked, get = list[Any](), world.stores.get
    until(world, lambda: not world._faults["install fails"])
    assert not world.outcomes, "it was given up before so many had tried"
    with patch.object(world.stores, "get", lambda *of: asked.append(of)):
        until(world, lambda: bool(asked))
        assert not world.outcomes, "it was given up while somebody restores it"
        _out_of_time(world)
        until(world, lambda: bool(world.outcomes))
    for of in asked:
        get(*of)
    assert world.outcomes == {Outcome.LOST: 1} and "given up after 4 attempts" in world.reasons[0]
    until(world, lambda: not world.coordination.moves)
    assert not any(s.data for s in world.stores.at.values())
    flow(world)
    world.finish()
    assert world.truth.lost_states == 1
    assert all(2 in (source, target) for source, target, _ in world.truth.lost())


def reads_of_the_outcome_first() -> None:
    """Who is to go on with it has written that it does, and the first that it reads of that is the outcome: it has not let go of it."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    me, places = Participant(a, Wiring({1: (2,)}), 8), {1: C, 2: A}
    moving = record_of(a, b)

    def see(number: int, record: MoveRecord, *marks: Marks) -> list[type]:
        move = MoveView(record, {m.incarnation: Marked(m, number) for m in marks})
        return kinds_of(me.handle(ev.ViewRead(view_of(number, 1, (move,), places))))

    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(ev.Opened(1, 2, 7, 4, 0))
    see(2, replace(moving, paused=0), Marks(a), Marks(b))
    me.handle(ev.StoreAsked(2, 1))
    see(3, moving, Marks(a, asked=(2,)), Marks(b, prepared={2: 1}))
    for event in (ev.FenceArrived(1, 2, 1, 7, 4), ev.Stopped(2, 1), ev.Delivered(2, 1)):
        me.handle(event)
    me.handle(ev.SaveDone(2, 1, (NodeId("n0"),), 1))
    saved = Marks(a, asked=(2,), saved={2: SavedMark((NodeId("n0"),))})
    me.handle(ev.MarksRead(1, Marked(saved, 4)))
    (part,) = moving.tasks
    back, given_up = replace(part, target=a, attempt=2), Marks(b, revoked={2: 1})
    assert ac.WriteMarks in see(5, replace(moving, tasks=(back,)), saved, given_up)
    ended = replace(moving, tasks=(replace(back, outcome=Outcome.COMMITTED),))
    done = see(6, ended, replace(saved, restored={2: 2}), given_up)
    assert ac.ContinueTask in done and not {ac.ReleaseTask, ac.DiscardTask} & set(done), done


ALL = (
    reads_of_the_outcome_first,
    is_given_up,
    could_not_be_restored,
    goes_on_while_another_restores,
    is_not_heard_of_by_who_has_it,
    is_gone_before_it_goes_on,
)
