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
from elastic.migration.record import Marks, Phase
from elastic.migration.table import EmitterState, OldState
from elastic.migration.view import MoveView
from elastic.model.ids import Incarnation, WorkerId
from protocol_tests.coordination import Session
from protocol_tests.scenarios import (
    A,
    B,
    C,
    D,
    _kinds,
    _marked,
    _record,
    _view,
    calm,
    flow,
    line,
    move,
    phase,
    until,
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


def runs_until_all_hold() -> None:
    """Task 2 runs on until all that emit to it hold. Unless task 3, to which it emits, stands still as well: then it stops at once."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    places = {1: C, 3: C, 4: D, 2: A}
    second = MoveView(
        _record(a, b, task=2, epoch=2), _marked(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1}))
    )
    third = MoveView(
        _record(c, d, task=3, epoch=1), _marked(c=Marks(c, asked=(3,)), d=Marks(d, prepared={3: 1}))
    )
    for beside in ((), (third,)):
        me = Participant(a, Wiring({1: (2,), 4: (2,), 2: (3,)}), 8)
        me.handle(ev.ViewRead(_view(1, 0, (), places)))
        me.handle(ev.TaskStarted(2, 3))
        for source in (1, 4):
            me.handle(ev.Opened(source, 2, 5, 0))
        ready = MoveView(replace(second.record, paused=0), second.marks)
        me.handle(ev.ViewRead(_view(2, 2, (*beside, ready), places)))
        me.handle(ev.StoreAsked(2, 2))
        kinds = _kinds(me.handle(ev.ViewRead(_view(3, 2, (*beside, second), places))))
        assert ac.NotePause in kinds and (ac.StopTask in kinds) == bool(beside)
        kinds = _kinds(me.handle(ev.FenceArrived(1, 2, 2, 5, 0)))
        assert ac.StopTask not in kinds
        assert me.old[2].waits_for.startswith("fences of tasks 4") == (not beside)
        assert (ac.StopTask in _kinds(me.handle(ev.FenceArrived(4, 2, 2, 5, 0)))) != bool(beside)
        me.handle(ev.Stopped(2, 2))
        assert ac.Save in _kinds(me.handle(ev.Delivered(2, 2)))


def stops_when_its_target_is_paused() -> None:
    """Task 2 runs on, and task 3, to which it emits, is paused by another move: it stops although not all that emit to it hold."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    places = {1: C, 3: C, 2: A}
    marks = _marked(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1}))
    second = MoveView(_record(a, b, task=2, epoch=1), marks)
    beside = _marked(c=Marks(c, asked=(3,)), d=Marks(d, prepared={3: 1}))
    third = MoveView(_record(c, d, task=3, epoch=2), beside)
    me = Participant(a, Wiring({1: (2,), 2: (3,)}), 8)
    me.handle(ev.ViewRead(_view(1, 0, (), places)))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(ev.Opened(1, 2, 5, 0))
    me.handle(ev.ViewRead(_view(2, 1, (MoveView(replace(second.record, paused=0), marks),), places)))
    me.handle(ev.StoreAsked(2, 1))
    waiting = MoveView(replace(third.record, paused=0), beside)
    for number, other in ((3, ()), (4, (waiting,))):
        assert ac.StopTask not in _kinds(me.handle(ev.ViewRead(_view(number, 2, (second, *other), places))))
    assert ac.StopTask in _kinds(me.handle(ev.ViewRead(_view(5, 2, (second, third), places))))
    assert me.old[2].waits_for == "the task to finish its present tuple"
    assert ac.StopTask not in _kinds(me.handle(ev.ViewRead(_view(6, 2, (second, third), places))))
