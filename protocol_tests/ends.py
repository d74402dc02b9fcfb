"""Situations at the ends of links, and of words that come late. Each raises when the product is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.participant import Participant
from elastic.migration.plan import Wiring
from elastic.migration.record import FailedMark, Marked, Marks, MoveRecord, Outcome, SavedMark
from elastic.migration.snapshot import OutLink, TaskLinks
from elastic.migration.view import MoveView
from elastic.model.ids import Epoch, Incarnation, NodeId, worker_of
from protocol_tests.situations import A, B, C, D, kinds_of, marks_of, record_of, view_of

a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
GOES_ON = {ac.Open, ac.AskRoom, ac.Send}


def _rolled_back(record: MoveRecord) -> MoveRecord:
    return replace(record, tasks=(replace(record.tasks[0], outcome=Outcome.ROLLED_BACK),))


def stopped_while_it_has_something_to_send() -> None:
    """Task 1 has held back tuples for task 2, which is restored in b, before task 1 stops or after it. Nothing leaves while what has left
    is being confirmed, or it would be lost with this process; all of it travels; and when task 1 stays after all, it is sent."""
    places = {1: C, 2: A}
    second, first = record_of(a, b, task=2, epoch=1), record_of(c, d, task=1, epoch=2)
    stands = MoveView(second, marks_of(a=Marks(a, saved={2: SavedMark(())}), b=Marks(b)))
    goes_on = MoveView(second, marks_of(a=Marks(a, saved={2: SavedMark(())}), b=Marks(b, restored={2: 1})))
    marks = marks_of(c=Marks(c), d=Marks(d, prepared={1: 1}))
    for before in (True, False):
        me = Participant(c, Wiring({1: (2,)}), 8)
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
        me.handle(ev.TaskStarted(1, 3))
        me.handle(ev.ViewRead(view_of(2, 1, (stands,), places)))
        for item in "xy":
            me.handle(ev.Emitted(1, 2, item, 1))
        now = goes_on if before else stands
        preparing = MoveView(replace(first, paused=0), marks)
        asks = ac.AskRoom in kinds_of(me.handle(ev.ViewRead(view_of(3, 2, (now, preparing), places))))
        assert asks is before, "nothing was tried"
        me.handle(ev.StoreAsked(1, 2))
        moving = MoveView(first, marks)
        assert ac.StopTask in kinds_of(me.handle(ev.ViewRead(view_of(4, 2, (now, moving), places))))
        assert ac.ConfirmOutput in kinds_of(me.handle(ev.Stopped(1, 2)))
        came = me.handle(ev.ViewRead(view_of(5, 2, (goes_on, moving), places))), me.handle(ev.Room(1, 2))
        assert not {x for answer in came for x in kinds_of(answer)} & GOES_ON and not me.may_flush(1, 2), came
        (save,) = (x for x in me.handle(ev.Delivered(1, 2)) if isinstance(x, ac.Save))
        assert [u.item for u in save.links.outputs[0].buffer] == ["x", "y"]
        stays = me.handle(ev.ViewRead(view_of(6, 2, (goes_on, MoveView(_rolled_back(first), marks)), places)))
        assert ac.AskRoom in kinds_of(stays) and me.may_flush(1, 2), "it waits for ever"
        sent = [x for _ in "xy" for x in me.handle(ev.Room(1, 2)) if isinstance(x, ac.Send)]
        assert [(x.first, x.item) for x in sent] == [(1, "x"), (2, "y")] and me.emitters[1, 2].where == b


def who_is_gone_is_held_for() -> None:
    """The process of task 2 has ended, in no move. What is emitted to it from then on waits for its next life, and is all that this gets;
    also when the next thing that is read is that life."""
    again = Incarnation(f"{A}#2")
    for seen in (True, False):
        me = Participant(c, Wiring({1: (2,)}), 8)
        view = view_of(1, 0, (), {1: C, 2: A})
        me.handle(ev.ViewRead(view))
        me.handle(ev.TaskStarted(1, 3))
        link = me.emitters[1, 2]
        assert link.flowing and link.where == a
        link.left(5)
        if seen:
            me.handle(ev.ViewRead(replace(view, number=2, living={C: c})))
            assert not link.flowing, "it sends to who is gone"
            me.handle(ev.Emitted(1, 2, "x", 1))
        actions = me.handle(ev.ViewRead(replace(view, number=3, living={C: c, worker_of(again): again})))
        opened = [(x.where, x.position) for x in actions if isinstance(x, ac.Open)]
        assert opened == [(again, 5)], opened
        sent = me.handle(ev.Room(1, 2) if seen else ev.Emitted(1, 2, "x", 1))
        assert [(x.first, x.item) for x in sent if isinstance(x, ac.Send)] == [(6, "x")], sent


def paused_where_its_emitter_has_come_to() -> None:
    """Task 1 comes to d, and task 2, to which it emits, is to stand still in a: the fence of that is the first that is said on this link,
    which nobody has opened yet."""
    first, second = record_of(c, d, task=1, epoch=1), record_of(a, b, task=2, epoch=2)
    me = Participant(d, Wiring({1: (2,)}), 8)
    saved = Marks(c, saved={1: SavedMark((NodeId("n2"),))})
    beside = MoveView(second, marks_of(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1})))
    me.handle(
        ev.ViewRead(view_of(1, 2, (MoveView(first, marks_of(c=saved, d=Marks(d))), beside), {1: C, 2: A}))
    )
    me.handle(ev.Prepared(1, 1, 1))
    me.handle(ev.Fetched(1, 1, 1, TaskLinks(5, (), (OutLink(2, 4),)), None))
    me.handle(ev.Installed(1, 1, 1))
    (mark,) = marks_of(d=Marks(d, restored={1: 1})).values()
    said = [x for x in me.handle(ev.MarksRead(1, mark)) if isinstance(x, ac.Open | ac.SendFence)]
    assert said == [ac.Open(1, 2, a, 5, 4, 2), ac.SendFence(1, 2, 2, 5, 4)], said


def _moved_twice(record: MoveRecord, *marks: Marks) -> Iterator[ev.ViewRead]:
    """Prepared, paused and rolled back; and once more, by a move that is paused in the end."""
    next_one = replace(record, epoch=Epoch(record.epoch + 1))
    places, marked, number = {1: C, 2: A}, {i.incarnation: i for i in marks}, 1
    for one in (
        replace(record, paused=0),
        record,
        _rolled_back(record),
        replace(next_one, paused=0),
        next_one,
    ):
        number += 1
        move = MoveView(one, marks_of(**marked))
        yield ev.ViewRead(view_of(number, one.epoch, (move,), places))


def late_words_of_a_move_before() -> None:
    """Task 2 was given back while what it had sent was being confirmed, and while its new side fetched it; it is to move again. That all
    had come then says nothing of now, and what is fetched by now is its state of then."""
    record = record_of(a, b)
    prepared, paused, back, again, now = _moved_twice(record, Marks(a), Marks(b, prepared={2: 1}))
    old = Participant(a, Wiring({}), 8)
    old.handle(ev.ViewRead(view_of(1, 0, (), {2: A})))
    old.handle(ev.TaskStarted(2, 3))
    old.handle(prepared)
    old.handle(ev.StoreAsked(2, 1))
    old.handle(paused)
    assert ac.ConfirmOutput in kinds_of(old.handle(ev.Stopped(2, 1)))
    old.handle(back)
    old.handle(again)
    old.handle(ev.StoreAsked(2, 2))
    old.handle(now)
    old.handle(ev.Stopped(2, 2))
    assert not old.handle(ev.Delivered(2, 1)), "what it has sent since may be lost with this process"
    assert ac.Save in kinds_of(old.handle(ev.Delivered(2, 2)))
    new = Participant(b, Wiring({}), 8)
    for view, epoch in ((prepared, 1), (again, 2)):
        new.handle(view)
        new.handle(ev.Prepared(2, epoch, 1))
        assert ac.Fetch in kinds_of(new.handle(ev.SaveHeard(2, epoch, 9)))
        if epoch == 1:
            new.handle(back)
    assert not new.handle(ev.Fetched(2, 1, 1, TaskLinks(3), "then")), "it goes on with what it was"
    (install,) = new.handle(ev.Fetched(2, 2, 1, TaskLinks(3), "now"))
    assert isinstance(install, ac.Install) and install.payload == "now"


def tries_again_where_it_could_not() -> None:
    """Nobody else lives: who could not restore it is the next to try."""
    me, record = Participant(b, Wiring({}), 8), record_of(a, b)
    saved = Marks(a, saved={2: SavedMark((NodeId("n0"),))})
    me.handle(ev.ViewRead(view_of(1, 1, (MoveView(record, marks_of(a=saved, b=Marks(b))),), {2: A})))
    me.handle(ev.Prepared(2, 1, 1))
    me.handle(ev.NewFailed(2, 1, 1, "no room"))
    next_try = replace(record, tasks=(replace(record.tasks[0], attempt=2),))
    given_up = Marks(b, failed={2: FailedMark(1, "no room")}, revoked={2: 1})
    move = MoveView(next_try, marks_of(a=saved, b=given_up))
    done: list[Any] = kinds_of(me.handle(ev.ViewRead(view_of(2, 1, (move,), {2: A}))))
    assert [x for x in done if x in (ac.DiscardTask, ac.PrepareTask)] == [ac.DiscardTask, ac.PrepareTask], (
        done
    )


def refused_before_it_was_written() -> None:
    """Task 2 was given back, of which a has read its marks, and not yet the record, when its state is saved: it does not say so then."""
    record = record_of(a, b)
    prepared, paused, back, *_ = _moved_twice(record, Marks(a, asked=(2,)), Marks(b, prepared={2: 1}))
    me = Participant(a, Wiring({}), 8)
    me.handle(ev.ViewRead(view_of(1, 0, (), {2: A})))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(prepared)
    me.handle(ev.StoreAsked(2, 1))
    me.handle(ev.MarksRead(1, Marked(Marks(a, asked=(2,)), 1)))
    me.handle(paused)
    me.handle(ev.Stopped(2, 1))
    assert ac.Save in kinds_of(me.handle(ev.Delivered(2, 1)))
    barred = Marked(Marks(a, asked=(2,), barred=(2,)), 2)
    move = MoveView(record, {a: barred, b: Marked(Marks(b, prepared={2: 1}, revoked={2: 1}), 2)})
    me.handle(ev.ViewRead(replace(paused.view, moves=(move,), number=4)))
    written = [
        x.marks for x in me.handle(ev.SaveDone(2, 1, (NodeId("n0"),), 1)) if isinstance(x, ac.WriteMarks)
    ]
    assert not any(m.saved for m in written), "it is saved and given back"
    for number, marks in enumerate(written, start=3):
        me.handle(ev.MarksRead(1, Marked(marks, number)))
    assert ac.ContinueTask in kinds_of(me.handle(ev.ViewRead(replace(back.view, number=5))))


def stops_when_its_target_is_gone() -> None:
    """Task 2 runs on until task 1 holds, and the process of task 3, to which it emits, ends: what is for that one would hold it up. So it
    stops at once, with its unprocessed input."""
    record, places = record_of(a, b), {1: C, 2: A, 3: D}
    marks = marks_of(a=Marks(a, asked=(2,)), b=Marks(b, prepared={2: 1}))
    me = Participant(a, Wiring({1: (2,), 2: (3,)}), 8)
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(ev.Opened(1, 2, 5, 0))
    me.handle(ev.ViewRead(view_of(2, 1, (MoveView(replace(record, paused=0), marks),), places)))
    me.handle(ev.StoreAsked(2, 1))
    paused = view_of(3, 1, (MoveView(record, marks),), places)
    assert ac.StopTask not in kinds_of(me.handle(ev.ViewRead(paused)))
    gone = replace(paused, number=4, living={w: i for w, i in paused.living.items() if w != D})
    assert ac.StopTask in kinds_of(me.handle(ev.ViewRead(gone)))
