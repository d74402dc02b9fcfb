"""Situations between the pause of a task and its resume. Each raises when more is on that path than has to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.participant import Participant
from elastic.migration.plan import Wiring
from elastic.migration.record import Marked, Marks, Phase
from elastic.migration.snapshot import InLink, TaskLinks
from elastic.migration.table import EmitterState, OldState
from elastic.migration.view import MoveView, View
from elastic.model.ids import Incarnation, WorkerId
from protocol_tests.coordination import Session
from protocol_tests.situations import (
    A,
    B,
    C,
    D,
    calm,
    flow,
    kinds_of,
    line,
    marks_of,
    move,
    phase,
    record_of,
    until,
    view_of,
    worker,
)
from protocol_tests.world import World


class _Withheld:
    """Word of what has changed reaches nobody by itself: each session hears when it is told to."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.given = 0
        self._deliver = world.coordination._deliver
        self._waiting: list[Session] = []
        world.coordination._deliver = self._wait  # type: ignore[method-assign]

    def _wait(self, session: Session) -> None:
        self._waiting.append(session)

    def notify(self, session: Session) -> None:
        """One notification: that something has changed. What has is read."""
        until(self.world, lambda: session in self._waiting)
        self._waiting = [s for s in self._waiting if s is not session]
        self.given += 1
        self._deliver(session)

    def over(self) -> None:
        self.world.coordination._deliver = self._deliver  # type: ignore[method-assign]
        for session in self._waiting:
            self._deliver(session)


def _paused(world: World) -> Callable[[], bool]:
    """Task 2 is to stand still, and who emits to it holds."""
    old, link = worker(world, A).participant.old, worker(world, C).participant.emitters[1, 2]
    return lambda: (
        link.state is EmitterState.HOLDING
        and 2 in old
        and old[2].state not in (OldState.IDLE, OldState.READY)
    )


def _resumed(world: World) -> Callable[[], bool]:
    link = worker(world, C).participant.emitters[1, 2]
    return lambda: link.where == worker(world, B).me and link.state is EmitterState.FLOWING


def two_writes_and_two_notifications(*, hints: bool = False) -> None:
    """From the pause until those who emit send to the new place nothing else is needed: no other word reaches anybody, Nimbus neither.

    With the words of the old side to the new one, and of that to those who emit, it is no notification at all.
    """
    world = calm(shape=line(hints=hints))
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.PAUSED)
    before = world.coordination.writes
    until(world, _paused(world))
    withheld = _Withheld(world)
    if not hints:
        until(world, lambda: phase(world, 2) is Phase.SAVED)
        withheld.notify(worker(world, B).session)
    until(world, lambda: phase(world, 2) is Phase.RESTORED)
    if not hints:
        withheld.notify(worker(world, C).session)
    until(world, _resumed(world))
    assert withheld.given == (0 if hints else 2)
    assert world.coordination.writes - before <= 2, world.coordination.writes - before
    withheld.over()
    world.finish()
    assert world.coordination.places[2] == B and not world.truth.lost()


def only_the_links_to_the_moving_task_hold() -> None:
    """Not the whole stream: from the pause of task 2 until it is restored what is for the other tasks of its component flows."""
    world = calm(shape=line((1, 3), {1: C, 2: A, 3: A, 4: A}))
    flow(world, 200)
    move(world, {2: B})
    links = worker(world, C).participant.emitters
    held = 0
    while phase(world, 2) is not Phase.RESTORED:
        assert world.clock.step()
        held += links[1, 2].state is EmitterState.HOLDING
        assert links[1, 3].state is links[1, 4].state is EmitterState.FLOWING
        assert set(worker(world, A).participant.old) <= {2}
    assert held
    world.finish()
    assert world.coordination.places[2] == B and not world.truth.lost()


def resumes_at_once(to: WorkerId = D) -> None:
    """Two tasks of one batch: what it takes to put task 3 in lasts. Task 2 goes on, and those who emit to it flow, before that is over."""
    world = calm(shape=line((1, 2), {1: C, 2: A, 3: A}))
    flow(world, 40)
    move(world, {2: B, 3: to})
    (node,) = world.coordination.moves.values()
    assert node.record.batches == 1
    target, kept = worker(world, to), []
    real = target.feed

    def feed(event: Any) -> None:
        if isinstance(event, ev.Installed) and event.task == 3:
            kept.append(event)
        else:
            real(event)

    with patch.object(target, "feed", feed):
        until(world, lambda: phase(world, 2) in (Phase.SAVED, Phase.RESTORED))
        applied = world.truth.last.get((1, 2), 0)
        flow(world, 4)  # what came before may have been applied by now
        until(world, lambda: bool(kept))
        until(world, _resumed(world))
        assert phase(world, 2) is Phase.RESTORED, "only its outcome has let them go on"
        until(world, lambda: world.truth.last.get((1, 2), 0) > applied)
        at = world.coordination.now.stands(3)
        assert (at.phase, at.attempt) == (Phase.SAVED, 1), at
        assert worker(world, C).participant.emitters[1, 3].state is EmitterState.HOLDING
    target.feed(*kept)
    world.finish()
    assert (world.coordination.places[2], world.coordination.places[3]) == (B, to)
    assert not world.truth.lost() and not world.truth.lost_states


def _turns(**marks: Marks) -> MoveView:
    """Tasks 2 and 3 go from A to B, one after the other, and both may pause."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    parts = tuple(replace(t, batch=n) for n, t in enumerate(record_of(a, b, task=n).tasks[0] for n in (2, 3)))
    ready = {"a": Marks(a, asked=(2, 3)), "b": Marks(b, prepared={2: 1, 3: 1})}
    return MoveView(replace(record_of(a, b), tasks=parts, paused=2, ready=2), marks_of(**{**ready, **marks}))


def takes_turns_and_rests() -> None:
    """Who emits to both holds what is for task 3 when task 2 is restored, heard of by a word or read, and not before a rest."""
    b, c = (Incarnation(f"{w}#1") for w in (B, C))
    places = {1: C, 2: A, 3: A}
    restored = _turns(b=Marks(b, prepared={2: 1, 3: 1}, restored={2: 1}))
    heard, seen = ev.RestoreHeard(1, ((2, 1),)), ev.ViewRead(view_of(3, 1, (restored,), places))
    for news in (heard, seen):
        me = Participant(c, Wiring({1: (2, 3)}), 8)
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
        me.handle(ev.TaskStarted(1, 3))
        first = me.handle(ev.ViewRead(view_of(2, 1, (_turns(),), places)))
        assert [f.target for f in first if isinstance(f, ac.SendFence)] == [2] and ac.Rest not in kinds_of(
            first
        )
        assert not me.handle(ev.Rested(1, 1)), "it is not its turn"
        next_one = me.handle(news)
        assert ac.Rest(1, 1) in next_one and ac.SendFence not in kinds_of(next_one)
        assert ac.Open in kinds_of(next_one), "what was held goes on meanwhile"
        assert not me.handle(ev.Rested(1, 0))
        assert [f.target for f in me.handle(ev.Rested(1, 1)) if isinstance(f, ac.SendFence)] == [3]


def holds_from_the_start() -> None:
    """Who begins anew when it is a task's turn holds what is for it, also while the stream rests there: no fence of it is waited for."""
    b, c = (Incarnation(f"{w}#1") for w in (B, C))
    places = {1: C, 2: A, 3: A}
    restored = _turns(b=Marks(b, prepared={2: 1, 3: 1}, restored={2: 1}))
    for known, held in ((_turns(), 2), (restored, 3)):
        me = Participant(c, Wiring({1: (2, 3)}), 8)
        me.handle(ev.ViewRead(view_of(2, 1, (known,), places)))
        begun = me.handle(ev.TaskStarted(1, 3))
        assert [f.target for f in begun if isinstance(f, ac.SendFence)] == [held]
        assert [t for t in (2, 3) if me.emitters[1, t].state is EmitterState.HOLDING] == [held]
        me.handle(ev.ViewRead(view_of(3, 1, (restored,), places)))
        later = me.handle(ev.Rested(1, 1))
        assert [f.target for f in later if isinstance(f, ac.SendFence)] == ([3] if held == 2 else []), "once"
        assert me.emitters[1, 2].flowing and me.emitters[1, 3].state is EmitterState.HOLDING


def waits_for_who_may_have_begun_anew() -> None:
    """That it is task 3's turn has only been heard of: what was read of an emitter that was gone may be older than that one's new life,
    which has read of no turn and sends."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    places, living = {1: C, 2: A, 3: A}, {A: a, B: b}

    def view(number: int, move: MoveView) -> View:
        return View(number, 1, (move,), places, living)

    old = Participant(a, Wiring({1: (2, 3)}), 8)
    old.handle(ev.ViewRead(View(1, 0, (), places, living)))
    for task in (2, 3):
        old.handle(ev.TaskStarted(task, 3))
        old.handle(ev.Opened(1, task, 5, 0))
    old.handle(ev.ViewRead(view(2, MoveView(replace(_turns().record, paused=0), _turns().marks))))
    for task in (2, 3):
        old.handle(ev.StoreAsked(task, 1))
    old.handle(ev.ViewRead(view(3, _turns())))
    assert old.old[2].state is OldState.STOPPING, (
        "it was read that it is its turn, and that nobody runs task 1"
    )
    old.handle(ev.RestoreHeard(1, ((2, 1),)))
    old.handle(ev.Rested(1, 1))
    old.handle(ev.ViewRead(view(4, _turns())))
    states = [old.old[3].state]
    old.handle(ev.ViewRead(view(5, _turns(b=Marks(b, prepared={2: 1, 3: 1}, restored={2: 1})))))
    assert [*states, old.old[3].state] == [OldState.DRAINING, OldState.STOPPING]


def hears_of_its_turn() -> None:
    """Where task 3 is, nobody emits to it or to task 2: it is told all the same when that one is restored."""
    a, b, c = (Incarnation(f"{w}#1") for w in (A, B, C))
    places = {1: C, 2: A, 3: A}
    new, old = (Participant(i, Wiring({1: (2, 3)}), 8) for i in (b, a))
    for me in (new, old):
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    for task in (2, 3):
        old.handle(ev.TaskStarted(task, 3))
        old.handle(ev.Opened(1, task, 5, 0))
    view = view_of(2, 1, (MoveView(replace(_turns().record, paused=0), _turns().marks),), places)
    for me in (new, old):
        me.handle(ev.ViewRead(view))
    for task in (2, 3):
        old.handle(ev.StoreAsked(task, 1))
        new.handle(ev.Prepared(task, 1, 1))
    for me in (new, old):
        me.handle(ev.ViewRead(view_of(3, 1, (_turns(),), places)))
    assert [(t, r.state) for t, r in old.old.items()] == [(2, OldState.DRAINING), (3, OldState.READY)]
    new.handle(ev.SaveHeard(2, 1))
    links = TaskLinks(4, (InLink(1, 5, 0),))
    new.handle(ev.Fetched(2, 1, 1, links, None))
    new.handle(ev.Installed(2, 1, 1))
    told = new.handle(ev.MarksRead(1, Marked(Marks(b, prepared={2: 1, 3: 1}, restored={2: 1}), 2)))
    assert {x.where for x in told if isinstance(x, ac.TellRestored)} == {a, c}
    assert ac.Rest(1, 1) in old.handle(ev.RestoreHeard(1, ((2, 1),)))
    old.handle(ev.Rested(1, 1))
    assert old.old[3].state is OldState.DRAINING


def takes_turns_without_nimbus() -> None:
    """From when they may pause until all are restored Nimbus has no part in it, and nobody waits for a notification."""
    tasks = range(2, 6)
    world = calm(shape=line((1, len(tasks)), {1: C, **dict.fromkeys(tasks, A)}))
    flow(world, 60)
    move(world, dict.fromkeys(tasks, B), 1 / len(tasks))
    (node,) = world.coordination.moves.values()
    until(world, lambda: node.record.paused == len(tasks))
    assert world.nimbus is not None
    world.nimbus.die()
    before = world.coordination.writes
    until(world, lambda: all(phase(world, t) is Phase.RESTORED for t in tasks))
    assert world.coordination.writes - before <= 2 * len(tasks)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


def runs_until_all_hold() -> None:
    """Task 2 runs on until all that emit to it hold. Unless task 3, to which it emits, stands still as well: then it stops at once."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    places = {1: C, 3: C, 4: D, 2: A}
    second = MoveView(
        record_of(a, b, task=2, epoch=2), marks_of(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1}))
    )
    third = MoveView(
        record_of(c, d, task=3, epoch=1), marks_of(c=Marks(c, asked=(3,)), d=Marks(d, prepared={3: 1}))
    )
    for beside in ((), (third,)):
        me = Participant(a, Wiring({1: (2,), 4: (2,), 2: (3,)}), 8)
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
        me.handle(ev.TaskStarted(2, 3))
        for source in (1, 4):
            me.handle(ev.Opened(source, 2, 5, 0))
        ready = MoveView(replace(second.record, paused=0), second.marks)
        me.handle(ev.ViewRead(view_of(2, 2, (*beside, ready), places)))
        me.handle(ev.StoreAsked(2, 2))
        kinds = kinds_of(me.handle(ev.ViewRead(view_of(3, 2, (*beside, second), places))))
        assert ac.NotePause in kinds and (ac.StopTask in kinds) == bool(beside)
        kinds = kinds_of(me.handle(ev.FenceArrived(1, 2, 2, 5, 0)))
        assert ac.StopTask not in kinds
        assert me.old[2].waits_for.startswith("fences of tasks 4") == (not beside)
        assert (ac.StopTask in kinds_of(me.handle(ev.FenceArrived(4, 2, 2, 5, 0)))) != bool(beside)
        me.handle(ev.Stopped(2, 2))
        assert ac.Save in kinds_of(me.handle(ev.Delivered(2, 2)))


def stops_when_its_target_is_paused() -> None:
    """Task 2 runs on, and task 3, to which it emits, is paused by another move: it stops although not all that emit to it hold."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    places = {1: C, 3: C, 2: A}
    marks = marks_of(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1}))
    second = MoveView(record_of(a, b, task=2, epoch=1), marks)
    beside = marks_of(c=Marks(c, asked=(3,)), d=Marks(d, prepared={3: 1}))
    third = MoveView(record_of(c, d, task=3, epoch=2), beside)
    me = Participant(a, Wiring({1: (2,), 2: (3,)}), 8)
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(ev.Opened(1, 2, 5, 0))
    me.handle(ev.ViewRead(view_of(2, 1, (MoveView(replace(second.record, paused=0), marks),), places)))
    me.handle(ev.StoreAsked(2, 1))
    waiting = MoveView(replace(third.record, paused=0), beside)
    for number, other in ((3, ()), (4, (waiting,))):
        assert ac.StopTask not in kinds_of(
            me.handle(ev.ViewRead(view_of(number, 2, (second, *other), places)))
        )
    assert ac.StopTask in kinds_of(me.handle(ev.ViewRead(view_of(5, 2, (second, third), places))))
    assert me.old[2].waits_for == "the task to finish its present tuple"
    assert ac.StopTask not in kinds_of(me.handle(ev.ViewRead(view_of(6, 2, (second, third), places))))
