"""Situations that are set up on purpose, for faults that random runs meet too seldom. Each raises when the product is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.decide import restore_timer
from elastic.migration.emitter import Emitter
from elastic.migration.notifier import Notifier
from elastic.migration.participant import Participant
from elastic.migration.plan import Wiring
from elastic.migration.receiver import Receiver
from elastic.migration.record import Marked, Marks, MoveRecord, Outcome, Phase, SavedMark
from elastic.migration.snapshot import InLink, OutLink, TaskLinks, Unsent
from elastic.migration.table import NewState, OldState
from elastic.migration.view import MoveView, View
from elastic.model.ids import Incarnation, NodeId, TaskId, worker_of
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


def commit_of_unknown_fate() -> None:
    """A new side was chosen, and the answer got lost: the notifier must not choose once more under the same number."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    saved = Marks(a, saved={2: SavedMark((NodeId("n0"),))})
    hosts = tuple(ev.Host(worker_of(i), i, NodeId(f"n{n}"), n) for n, i in ((0, a), (2, c), (3, d)))
    notifier = Notifier.from_record(record_of(a, b), 0)
    (*_, commit) = notifier.handle(ev.Observed(marks_of(a=saved, b=Marks(b)), hosts))
    assert isinstance(commit, ac.Commit) and commit.record.tasks[0].attempt == 2
    notifier.handle(ev.RecordConflict(commit.record, 1))
    chosen = commit.record.tasks[0].target
    seen = {**marks_of(a=saved, b=Marks(b)), chosen: Marked(Marks(chosen, restored={2: 2}), 1)}
    actions = notifier.handle(ev.Observed(seen, hosts))
    commits = [x for x in actions if isinstance(x, ac.Commit)]
    assert all(x.record.tasks[0].target == chosen and x.record.tasks[0].outcome for x in commits) and commits


def emitter_restored_where_less_is_known() -> None:
    """Task 1 has held back tuples for task 2, because of move 2. Its next place has not read of move 2 yet: it must hold too."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(d, Wiring({1: (2,)}), 8)
    first = record_of(c, d, task=1, epoch=1)
    marks = {c: Marked(Marks(c, saved={1: SavedMark((NodeId("n2"),))}), 1), d: Marked(Marks(d), 0)}
    places = {1: C, 2: A}
    me.handle(ev.ViewRead(view_of(1, 1, (MoveView(first, marks),), places)))
    me.handle(ev.Prepared(1, 1, 1))
    links = TaskLinks(5, (), (OutLink(2, 4, 2, (Unsent("held", 1),)),))
    me.handle(ev.Fetched(1, 1, 1, links, None))
    me.handle(ev.Installed(1, 1, 1))
    restored = Marked(Marks(d, restored={1: 1}), 1)
    actions = me.handle(ev.MarksRead(1, restored))
    assert ac.BeginTask in kinds_of(actions) and not {ac.Open, ac.AskRoom, ac.Send} & set(
        kinds_of(actions)
    ), actions
    second = record_of(a, b, task=2, epoch=2)
    done = {a: Marked(Marks(a, saved={2: SavedMark(())}), 2), b: Marked(Marks(b, restored={2: 1}), 1)}
    later = view_of(2, 2, (MoveView(first, {c: marks[c], d: restored}), MoveView(second, done)), places)
    actions = me.handle(ev.ViewRead(later))
    assert [x.where for x in actions if isinstance(x, ac.Open)] == [b], actions


def restored_together_with_who_emits_to_it() -> None:
    """Tasks 1 and 3 emit to task 2; one write says that 1 and 2 are restored in d, where 3 is: what the fence of task 1 says there, which
    does not know of that yet when it begins, is not remembered. It would keep the link from the shortcut of the data path from then on."""
    _, _, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(d, Wiring({1: (2,), 3: (2,)}), 8)
    first = record_of(c, d, task=1)
    both = replace(first, tasks=tuple(replace(first.tasks[0], task=TaskId(n)) for n in (1, 2)))
    saved = Marks(c, saved={n: SavedMark((NodeId("n2"),)) for n in (1, 2)})
    places = {1: C, 2: C, 3: D}
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(3, 5))
    me.handle(ev.ViewRead(view_of(2, 1, (MoveView(both, marks_of(c=saved, d=Marks(d))),), places)))
    links = TaskLinks(5, (), (OutLink(2, 4, 1),)), TaskLinks(5, (InLink(1, 5, 4),))
    for n in (1, 2):
        me.handle(ev.Prepared(n, 1, 1))
        me.handle(ev.Fetched(n, 1, 1, links[n - 1], None))
        me.handle(ev.Installed(n, 1, 1))
    begun = me.handle(ev.MarksRead(1, Marked(Marks(d, restored={1: 1, 2: 1}), 2)))
    assert me.emitters[1, 2].flowing and me.emitters[1, 2].where == d
    for said in begun:  # by now the link leads here, and so does all that is said on it
        if isinstance(said, ac.SendFence):
            me.handle(ev.FenceArrived(said.source, 2, said.epoch, said.life, said.position))
    assert me.receivers[1, 2].takes(5, 5, 1), "each tuple that comes takes the long way"


def emitter_restored_before_what_is_gone_is_known() -> None:
    """As before, and task 2 has stayed where it was: of move 2, of which the record is gone when its next place reads of it, nothing else
    tells. It has read once more meanwhile, and still not of that."""
    _, _, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(d, Wiring({1: (2,)}), 8)
    first, places = record_of(c, d, task=1, epoch=1), {1: C, 2: A}
    saved = Marked(Marks(c, saved={1: SavedMark((NodeId("n2"),))}), 1)
    me.handle(ev.ViewRead(view_of(1, 1, (MoveView(first, {c: saved, d: Marked(Marks(d), 0)}),), places)))
    me.handle(ev.Prepared(1, 1, 1))
    me.handle(ev.Fetched(1, 1, 1, TaskLinks(5, (), (OutLink(2, 4, 2, (Unsent("held", 1),)),)), None))
    me.handle(ev.Installed(1, 1, 1))
    restored = MoveView(first, {c: saved, d: Marked(Marks(d, restored={1: 1}), 1)})
    for number in (2, 3):
        assert ac.Open not in kinds_of(me.handle(ev.ViewRead(view_of(number, 1, (restored,), places))))
    opened = [
        x.where for x in me.handle(ev.ViewRead(view_of(4, 2, (restored,), places))) if isinstance(x, ac.Open)
    ]
    assert opened == [Incarnation(f"{A}#1")], opened


def emitter_restored_where_the_move_before_is_read() -> None:
    """As before, and what its next place has read of task 2 is that a move before that one has restored it in b: where it may have left
    since. What is held for it is not sent there."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(d, Wiring({1: (2,)}), 8)
    saved, there = Marks(c, saved={1: SavedMark((NodeId("n2"),))}), Marks(b, restored={2: 1})
    before = MoveView(record_of(a, b, task=2, epoch=1), marks_of(a=Marks(a), b=there))
    first = MoveView(record_of(c, d, task=1, epoch=2), marks_of(c=saved, d=Marks(d)))
    me.handle(ev.ViewRead(view_of(1, 2, (before, first), {1: C, 2: A})))
    me.handle(ev.Prepared(1, 2, 1))
    me.handle(ev.Fetched(1, 2, 1, TaskLinks(5, (), (OutLink(2, 4, 3, (Unsent("held", 1),)),)), None))
    me.handle(ev.Installed(1, 2, 1))
    kinds = kinds_of(me.handle(ev.MarksRead(2, Marked(Marks(d, restored={1: 1}), 2))))
    assert ac.BeginTask in kinds and not {ac.Open, ac.AskRoom, ac.Send} & set(kinds), kinds


def late_fence_of_a_move_that_is_over() -> None:
    """Task 2 was rolled back, and the fence of who emits to it comes after that: it does not keep the link from the shortcut."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    me, places, moving = Participant(a, Wiring({1: (2,)}), 8), {1: C, 2: A}, record_of(a, b)
    back = replace(moving, tasks=(replace(moving.tasks[0], outcome=Outcome.ROLLED_BACK),))
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(2, 3))
    me.handle(ev.Opened(1, 2, 7, 4, 0))
    for number, record in enumerate((replace(moving, paused=0), back), start=2):
        move = MoveView(record, marks_of(a=Marks(a), b=Marks(b)))
        me.handle(ev.ViewRead(view_of(number, 1, (move,), places)))
    me.handle(ev.FenceArrived(1, 2, 1, 7, 4))
    assert me.receivers[1, 2].takes(7, 5, 1), "each tuple that comes takes the long way"


def given_back_after_it_was_put_in() -> None:
    """Task 2 was restored in d from what it had heard of, and is given back, as c has ended before that was accepted. Who emits to it knows
    first that d is to start it anew, and what it says then is for that life of the task: nothing else says where the link begins."""
    _, _, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(d, Wiring({1: (2,)}), 8)
    moving = record_of(c, d, task=2, epoch=1)
    marks = {c: Marked(Marks(c), 0), d: Marked(Marks(d, prepared={2: 1}), 1)}
    me.handle(ev.ViewRead(view_of(1, 1, (MoveView(moving, marks),), {1: A, 2: C})))
    me.handle(ev.Prepared(2, 1, 1))
    me.handle(ev.SaveHeard(2, 1, 9))
    me.handle(ev.Fetched(2, 1, 1, TaskLinks(3, (InLink(1, 7, 4),)), None))
    me.handle(ev.Installed(2, 1, 1))
    early = (ev.Opened(1, 2, 7, 4, 0), ev.Arrived(1, 2, 7, 5, 1, "tuple"))
    kept = [a for event in early for a in me.handle(event)]
    assert kinds_of(tuple(kept)) == [ac.NotHere, ac.NotHere], kept
    task = replace(moving.tasks[0], outcome=Outcome.ROLLED_BACK)
    back = MoveView(replace(moving, tasks=(task,)), marks)
    actions = me.handle(ev.ViewRead(view_of(2, 1, (back,), {1: A, 2: D})))
    assert ac.DiscardTask in kinds_of(actions), actions
    me.handle(ev.TaskStarted(2, 8))
    came = [a for note in kept for a in me.handle(note.event)]
    assert [a.item for a in came if isinstance(a, ac.Accept)] == ["tuple"], came


def told_of_the_outcome_by_who_emits() -> None:
    """Task 2 has been saved in a, restored in b, which died, and a is to start it anew. Who emits to it knows that before a does: what it
    says is for the next life of the task, not for the one that is about to go. Had the task stayed, it would be for this one."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    for outcome in (Outcome.COMMITTED, Outcome.ROLLED_BACK):
        me = Participant(a, Wiring({1: (2,)}), 8)
        places = {1: C, 2: A}
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
        me.handle(ev.TaskStarted(2, 3))
        me.handle(ev.Opened(1, 2, 7, 4, 0))
        moving = record_of(a, b, task=2, epoch=1)
        marks = {a: Marked(Marks(a), 0), b: Marked(Marks(b, prepared={2: 1}), 1)}
        preparing = replace(moving, paused=0)
        me.handle(ev.ViewRead(view_of(2, 1, (MoveView(preparing, marks),), places)))
        me.handle(ev.StoreAsked(2, 1))
        me.handle(ev.MarksRead(1, Marked(Marks(a, asked=(2,)), 1)))
        me.handle(ev.FenceArrived(1, 2, 1, 7, 4))
        me.handle(ev.ViewRead(view_of(3, 1, (MoveView(moving, marks),), places)))
        me.handle(ev.Stopped(2, 1))
        assert ac.Save in kinds_of(me.handle(ev.Delivered(2, 1)))
        kept = me.handle(ev.Opened(1, 2, 7, 4, 0)), me.handle(ev.Arrived(1, 2, 7, 5, 1, "tuple"))
        assert not any(kept), kept
        ended = MoveView(replace(moving, tasks=(replace(moving.tasks[0], outcome=outcome),)), marks)
        came = me.handle(ev.ViewRead(view_of(4, 1, (ended,), places)))
        kind = ac.NotHere if outcome is Outcome.COMMITTED else ac.TellAgain
        notes = [x.event for x in came if isinstance(x, kind)]
        if outcome is Outcome.COMMITTED:
            me.handle(ev.TaskStarted(2, 8))
        came = tuple(x for event in notes for x in me.handle(event))
        assert [x.item for x in came if isinstance(x, ac.Accept)] == ["tuple"], (outcome, came)


def one_is_late() -> None:
    """Of two tasks one gets ready: that it is does not wait for the other one for ever, or both would go back when their time is over."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    me = Participant(a, Wiring({1: (), 2: ()}), 8)
    both = tuple(replace(record_of(a, b, task=n, epoch=1).tasks[0], batch=0) for n in (1, 2))
    preparing = replace(record_of(a, b, task=1, epoch=1), tasks=both, paused=0)
    marks = {i: Marked(Marks(i), 0) for i in (a, b)}
    places = {1: A, 2: A}
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    for n in both:
        me.handle(ev.TaskStarted(n.task, 1))
    me.handle(ev.ViewRead(view_of(2, 1, (MoveView(preparing, marks),), places)))
    assert ac.WriteMarks not in kinds_of(me.handle(ev.StoreAsked(1, 1))), "one write for both"
    late = [x for x in me.handle(ev.ReadyLate(1)) if isinstance(x, ac.WriteMarks)]
    assert [x.marks.asked for x in late] == [(1,)], late
    assert not me.handle(ev.ReadyLate(7)), "nothing is known of that move"


def fetched_ahead_is_said_together() -> None:
    """Of two tasks that get ready what was copied ahead is fetched: one write says so of both, or of one when the other is late."""
    a, b = (Incarnation(f"{w}#1") for w in (A, B))
    both = tuple(replace(record_of(a, b, task=n, epoch=1).tasks[0], batch=0) for n in (1, 2))
    preparing = replace(record_of(a, b, task=1, epoch=1), tasks=both, paused=0)
    for late in (False, True):
        me = Participant(b, Wiring({1: (), 2: ()}), 8)
        empty = {i: Marked(Marks(i), 0) for i in (a, b)}
        me.handle(ev.ViewRead(view_of(1, 1, (MoveView(preparing, empty),), {1: A, 2: A})))
        me.handle(ev.Prepared(1, 1, 1))
        assert ac.WriteMarks in kinds_of(me.handle(ev.Prepared(2, 1, 1)))
        prepared = Marked(Marks(b, prepared={1: 1, 2: 1}), 1)
        me.handle(ev.MarksRead(1, prepared))
        marks = {a: Marked(Marks(a, asked=(1, 2), ahead=(1, 2)), 1), b: prepared}
        came = me.handle(ev.ViewRead(view_of(2, 1, (MoveView(preparing, marks),), {1: A, 2: A})))
        assert kinds_of(came).count(ac.FetchAhead) == 2
        assert ac.WriteMarks not in kinds_of(me.handle(ev.AheadFetched(1, 1, 1))), "one write for both"
        written = me.handle(ev.ReadyLate(1) if late else ev.AheadFetched(2, 1, 1))
        fetched = [x.marks.fetched for x in written if isinstance(x, ac.WriteMarks)]
        assert fetched == [{1: 1} if late else {1: 1, 2: 1}], fetched


def pause_comes_while_saving() -> None:
    """Task 1's links have been exported; a pause of its target must wait for its next place, which does not know of a fence sent now."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    me = Participant(c, Wiring({1: (2,)}), 8)
    places = {1: C, 2: A}
    me.handle(ev.ViewRead(view_of(1, 0, (), places)))
    me.handle(ev.TaskStarted(1, 3))
    first = record_of(c, d, task=1, epoch=1)
    marks = {c: Marked(Marks(c), 0), d: Marked(Marks(d, prepared={1: 1}), 1)}
    preparing = MoveRecord(first.topology, first.epoch, first.why, first.tasks, 0)
    me.handle(ev.ViewRead(view_of(2, 1, (MoveView(preparing, marks),), places)))
    me.handle(ev.StoreAsked(1, 1))
    me.handle(ev.MarksRead(1, Marked(Marks(c, asked=(1,)), 1)))
    me.handle(ev.ViewRead(view_of(3, 1, (MoveView(first, marks),), places)))
    me.handle(ev.Stopped(1, 1))
    assert ac.Save in kinds_of(me.handle(ev.Delivered(1, 1)))
    second = MoveView(record_of(a, b, task=2, epoch=2), {a: Marked(Marks(a), 0), b: Marked(Marks(b), 0)})
    actions = me.handle(ev.ViewRead(view_of(4, 2, (MoveView(first, marks), second), places)))
    assert ac.SendFence not in kinds_of(actions), actions


def restored_where_it_came_from() -> None:
    """The target is restored in the process that it left: another incarnation, to which the link has to be opened."""
    link = Emitter(1, 2, 7, 8)
    here = Incarnation(f"{A}#1")
    link.handle(ev.Pause(1, 2, 1, here))
    assert ac.Open in kinds_of(link.handle(ev.Resume(1, 2, here)))


def started_anew_where_it_came_from() -> None:
    """Task 2 has moved from A to B, which died at once: it begins anew in the very process that it had left, before the emitter has heard
    of any of that. What the link brings next is the first that this incarnation gets. Also when its state is lost, or the record gone."""
    a, b, c = (Incarnation(f"{w}#1") for w in (A, B, C))
    paused, marks = record_of(a, b), {a: Marked(Marks(a), 0), b: Marked(Marks(b, prepared={2: 1}), 1)}
    ended, lost = (
        replace(paused, tasks=(replace(paused.tasks[0], outcome=o),))
        for o in (Outcome.COMMITTED, Outcome.LOST)
    )
    for left in ((MoveView(ended, marks),), (MoveView(lost, marks),), ()):
        me = Participant(c, Wiring({1: (2,)}), 8)
        me.handle(ev.ViewRead(view_of(1, 0, (), {1: C, 2: A})))
        me.handle(ev.TaskStarted(1, 3))
        link = me.emitters[1, 2]
        assert link.flowing and link.where == a
        link.left(5)
        actions = me.handle(ev.ViewRead(view_of(2, 1, (MoveView(paused, marks),), {1: C, 2: A})))
        assert [x.position for x in actions if isinstance(x, ac.SendFence)] == [5]
        actions = me.handle(ev.ViewRead(view_of(3, 1, left, {1: C, 2: A})))
        (opened,) = (x for x in actions if isinstance(x, ac.Open))
        assert (opened.where, opened.position) == (a, 5), opened
        receiver = Receiver(1, 2)
        receiver.handle(ev.Opened(1, 2, opened.life, opened.position, 0))
        assert receiver.takes(opened.life, link.left(1), 1), (
            "it waits for what its former incarnation has taken"
        )


def both_nodes_die_after_saved() -> None:
    """Each node that has the state goes: that is said, the task begins anew where it was to be restored, and no other loses anything."""
    world = calm(shape=line((1, 2, 1), {1: C, 2: A, 3: C, 4: D}))
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    for node in ("n0", "n1"):
        world.do_lose_node(
            sorted(n for n in world.stores.at if n not in world._down).index(NodeId(node)), 4000.0
        )
    until(world, lambda: bool(world.outcomes))
    assert world.outcomes == {Outcome.LOST: 1} and "no store has" in world.reasons[0]
    until(world, lambda: not world.coordination.moves)
    flow(world)
    world.finish()
    assert world.coordination.places[2] in (C, D) and world.truth.lost_states == 1
    assert all(2 in (source, target) for source, target, _ in world.truth.lost())


def fence_overtakes() -> None:
    """What was sent to task 2 is lost with its connection, and sent again later than the fence, which comes over the next one: that is
    reached when what is before it was taken, and the task does not go before."""
    world = calm()
    flow(world, 2)
    until(world, lambda: not world.clock.step())
    connection = world.network.connections[worker(world, C).me, worker(world, A).me]
    flow(world, 3)
    until(world, lambda: sum(isinstance(f, ev.Arrived) for f in connection.waiting.values()) == 3)
    connection.cut(40.0)
    while connection.broken:
        connection.cut(40.0)
    move(world, {2: B})
    end = worker(world, A).participant.receivers[1, 2]
    until(world, lambda: end._fence is not None)
    assert end._fence is not None and end.seen < end._fence.position, "nothing was tried: they are here"
    until(world, lambda: world.coordination.places[2] == B)
    world.finish()
    assert not world.truth.lost() and not world.truth.lost_states


def _held(world: World) -> dict[NodeId, list[tuple[int, int]]]:
    return {node: sorted(store.data) for node, store in world.stores.at.items() if store.data}


def saved_where_it_is_not_restored() -> None:
    """Saved at both nodes, and restored at a third one, as the new side's process has died. Nimbus empties all stores that got something,
    before the record goes."""
    world = calm()
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    assert _held(world).keys() == {"n0", "n1"}
    world._kill_worker(worker(world, B), notice=2, restart=2000)
    world._kill_worker(worker(world, A), notice=2, restart=2000)
    until(world, lambda: 1 not in world.coordination.moves)
    assert not _held(world), f"left behind: {_held(world)}"
    world.finish()
    assert world.coordination.places[2] in (C, D)
    assert not world.truth.lost() and not world.truth.lost_states


def store_not_reached_at_the_end() -> None:
    """A store that serves, and that Nimbus does not reach when it empties the stores: its node sees to it."""
    world = calm()
    flow(world)
    world.stores.at[NodeId("n0")].reached = False
    move(world, {2: B})
    until(world, lambda: 1 not in world.coordination.moves)
    assert _held(world).keys() == {"n0"}
    world.finish()
    assert not _held(world)


def given_up_while_restoring() -> None:
    """Another place is chosen while the new side fetches, which does not hear of it: its `restored` is refused. Who had it is gone."""
    world = calm(shape=line(hints=False))
    flow(world)
    move(world, {2: B})
    until(world, lambda: phase(world, 2) is Phase.SAVED)
    new, session = worker(world, B).participant.new[2], worker(world, B).session
    node = world.coordination.moves[1]
    asked, get = list[Any](), world.stores.get
    with patch.object(world.stores, "get", lambda *of: asked.append(of)):
        until(world, lambda: new.state is NewState.FETCHING and bool(asked))
        heard, session.on_view = session.on_view, lambda view: None
        world._kill_worker(worker(world, A), notice=2, restart=4000)
        nimbus = world.nimbus
        assert nimbus is not None
        until(world, lambda: A not in nimbus._seen[1][2])
        nimbus.feed(1, ev.TimerFired(*restore_timer(node.record.tasks[0])))
        until(world, lambda: node.record.tasks[0].attempt == 2)
        get(*asked.pop(0))
        until(world, lambda: new.state is NewState.MARKING)
    assert not node.record.tasks[0].outcome, "nothing was tried: the other place has it"
    for of in asked:
        get(*of)
    until(world, lambda: bool(node.record.tasks[0].outcome))
    session.on_view = heard
    world.finish()
    assert world.coordination.places[2] != B
    assert not world.truth.lost() and not world.truth.lost_states


def rolled_back_while_restoring() -> None:
    """The new side restores by word alone, as `saved` has not reached coordination; the move is aborted, of which it does not hear: its
    `restored` is refused, and the old side goes on with everything. It has read the state before that goes, and gets it only then."""
    world = calm(shape=line(hints=False))
    flow(world)
    move(world, {2: B})
    old_side, new_side = worker(world, A), worker(world, B)
    until(
        world, lambda: 2 in old_side.participant.old and old_side.participant.old[2].state is OldState.SAVING
    )
    world.coordination.suspend(old_side.session)
    until(world, lambda: old_side.participant.old[2].state is OldState.MARKING)
    new, session = new_side.participant.new[2], new_side.session
    heard, session.on_view = session.on_view, lambda view: None
    answers, get = list[Callable[[], None]](), world.stores.get

    def hold(node: NodeId, epoch: int, task: int, done: Callable[[str, Any], None]) -> None:
        get(node, epoch, task, lambda *found: answers.append(partial(done, *found)))

    with patch.object(world.stores, "get", hold):
        new_side.feed(ev.SaveHeard(2, 1))
        until(world, lambda: bool(answers))
    assert new.state is NewState.FETCHING and world.nimbus is not None
    world.nimbus.abort(1)
    node = world.coordination.moves[1]
    until(world, lambda: node.record.tasks[0].outcome is Outcome.ROLLED_BACK)
    assert new.state is NewState.FETCHING, f"nothing was tried: it is {new.state}"
    answers.pop()()
    until(world, lambda: new.state is NewState.MARKING)
    world.coordination.reconnect(old_side.session)
    until(world, lambda: not world.clock.step())
    session.on_view = heard
    heard(world.coordination.sync(session))
    world.finish()
    assert world.coordination.places[2] == A
    assert not world.truth.lost() and not world.truth.lost_states


def moved_again_while_it_is_read() -> None:
    """A task is given back while its state is being read, and is to move again before that has ended. It goes on before that move takes
    its state, and not after it."""
    world = calm()
    flow(world)
    being_read: list[Callable[[], None]] = []
    with patch.object(world.stores, "read", being_read.append):
        move(world, {2: B})
        until(world, lambda: bool(being_read))
        assert world.nimbus is not None
        world.nimbus.abort(1)
        until(world, lambda: 1 not in world.coordination.moves)
        assert worker(world, A).tasks[2].stopped
        flow(world)
        move(world, {2: B})
        over = world.clock.now + 40
        until(world, lambda: len(being_read) == 2 or world.clock.now > over)
        being_read[0]()
        until(world, lambda: len(being_read) == 2)
        over = world.clock.now + 10
        until(world, lambda: world.clock.now > over)
    being_read[1]()
    world.finish()
    assert world.coordination.places[2] == B
    assert not world.truth.lost() and not world.truth.lost_states


def emitter_may_be_restored_by_word() -> None:
    """Task 1, which emits to task 2, has stopped in C and is in the stores; C has died before its marks said so. Its new side in D may
    restore it, and would send to the place of task 2 that it knows: task 2 is saved there only with its fence, or when the outcome of
    task 1 says that nobody runs it."""
    a, b, c, d = (Incarnation(f"{w}#1") for w in (A, B, C, D))
    first, second = record_of(c, d, task=1, epoch=1), record_of(a, b, task=2, epoch=2)
    places = {1: C, 2: A}

    def view(number: int, tasks: MoveRecord, **one: Marks) -> View:
        emitter = MoveView(tasks, {c: Marked(Marks(c), 1), d: Marked(one.get("d", Marks(d)), number)})
        target = MoveView(
            second, {a: Marked(Marks(a, asked=(2,)), 1), b: Marked(Marks(b, prepared={2: 1}), 1)}
        )
        return View(number, 2, (emitter, target), places, {A: a, B: b, D: d})

    gone = replace(first, tasks=(replace(first.tasks[0], outcome=Outcome.ROLLED_BACK),))
    for ended in (False, True):
        me = Participant(a, Wiring({1: (2,)}), 8)
        me.handle(ev.ViewRead(view_of(1, 0, (), places)))
        me.handle(ev.TaskStarted(2, 3))
        me.handle(ev.Opened(1, 2, 5, 0))
        ready = replace(second, paused=0)
        marks = {a: Marked(Marks(a), 0), b: Marked(Marks(b, prepared={2: 1}), 1)}
        me.handle(ev.ViewRead(view_of(2, 2, (MoveView(ready, marks),), places)))
        me.handle(ev.StoreAsked(2, 2))
        assert ac.StopTask not in kinds_of(me.handle(ev.ViewRead(view(3, first)))), (
            "it does not wait for task 1"
        )
        if ended:
            assert ac.StopTask in kinds_of(me.handle(ev.ViewRead(view(4, gone))))
        else:
            restored = view(4, first, d=Marks(d, prepared={1: 1}, restored={1: 1}))
            assert ac.StopTask not in kinds_of(me.handle(ev.ViewRead(restored)))
            assert ac.StopTask in kinds_of(me.handle(ev.FenceArrived(1, 2, 2, 5, 0)))
        me.handle(ev.Stopped(2, 2))
        assert ac.Save in kinds_of(me.handle(ev.Delivered(2, 2)))
