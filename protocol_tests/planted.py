"""Faults planted into the roles and ports, one at a time: the suite has to find each of them.

The first ten are those that the protocol's contract names. The others are faults that building it has brought up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from elastic.errors import ProtocolViolation
from elastic.migration import actions as ac
from elastic.migration import decide, participant, record, view
from elastic.migration import events as ev
from elastic.migration.emitter import Emitter
from elastic.migration.ends import Ends
from elastic.migration.gate import Gate
from elastic.migration.later import Later
from elastic.migration.mover_new import MoverNew
from elastic.migration.mover_old import MoverOld
from elastic.migration.notifier import Notifier
from elastic.migration.participant import Participant
from elastic.migration.receiver import Receiver
from elastic.migration.record import STANDING_STILL, MoveRecord, Outcome, Phase
from elastic.migration.scribes import Scribes
from elastic.migration.table import EmitterState, NewState, NotifierState, OldState, ReceiverState
from elastic.migration.turns import Turns
from elastic.migration.view import NOBODY, View
from elastic.model.ids import Incarnation
from protocol_tests import starting, worker
from protocol_tests.coordination import Coordination
from protocol_tests.planted_ends import ENDS
from protocol_tests.planted_returns import RETURNS
from protocol_tests.store import Stores
from protocol_tests.tasks import Content, Task
from protocol_tests.worker import Worker

Patch = tuple[Any, str, Any]


def _no_fence() -> list[Patch]:
    real_pause, real_old = Emitter._pause, MoverOld._pause

    def pause(self: Emitter, event: ev.Pause) -> tuple[Any, ...]:
        return real_pause(self, event)[:-1]

    def old(self: MoverOld, event: ev.PauseTask) -> tuple[Any, ...]:
        return real_old(self, ev.PauseTask(event.task, event.epoch, frozenset()))

    return [(Emitter, "_pause", pause), (MoverOld, "_pause", old)]


def _stops(at_once: bool) -> list[Patch]:
    real = MoverOld._pause

    def pause(self: MoverOld, event: ev.PauseTask) -> tuple[Any, ...]:
        return real(self, replace(event, at_once=at_once))

    return [(MoverOld, "_pause", pause)]


def _looks_once_who_is_held() -> list[Patch]:
    real = MoverOld._pause

    def pause(self: MoverOld, event: ev.PauseTask) -> tuple[Any, ...]:
        return () if self.state is OldState.DRAINING else real(self, event)

    return [(MoverOld, "_pause", pause)]


def _fence_without_position() -> list[Patch]:
    return [(Receiver, "_is_reached", lambda self, fence: fence.life <= self.life)]


def _fence_without_epoch() -> list[Patch]:
    def reached(self: Receiver, epoch: int) -> bool:
        return self._fence is not None and self._is_reached(self._fence)

    return [(Receiver, "reached", reached), (Receiver, "forget_fence", lambda self, epoch: None)]


def _resume_before_restore() -> list[Patch]:
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        link, at = self.emitters.get((source, target)), self.view.stands(target)
        ready = link is not None and source not in self._frozen and link.state is EmitterState.HOLDING
        if (
            ready
            and at.phase is Phase.SAVED
            and at.move is not None
            and link is not None
            and link.epoch == at.epoch
        ):
            self._run(link, ev.Resume(source, target, at.move.target), out)
        elif not (link is not None and at.phase is Phase.SAVED and link.epoch == at.epoch):
            real(self, source, target, out, **how)

    return [(Participant, "_follow_link", follow)]


def _release_before_drained() -> list[Patch]:
    def confirm(self: Worker, action: ac.ConfirmOutput) -> None:
        self.later(0.1, ev.Delivered(action.task, action.epoch))

    return [(Worker, "confirm_output", confirm)]


def _rollback_after_saved() -> list[Patch]:
    def back(task: Any, saved: Any, draft: Any, expired: Any) -> Any:
        if task.target in draft.hosts and decide.restore_timer(task) not in expired:
            return task
        draft.write(task.source, draft.marks[task.source].marks.bar(task.task))
        return replace(task, outcome=Outcome.ROLLED_BACK, reason="planted")

    return [(decide, "_forward", back)]


def _pauses_whole_streams() -> list[Patch]:
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        real(self, source, target, out, **how)
        still = self._turns.has_come(self.view.stands(target))
        for other in self.wiring.targets_of(source):
            link = self.emitters.get((source, other))
            if link is None or other == target or source in self._sealed:
                continue
            if still and link.flowing:
                self._run(link, ev.Detach(source, other), out)
            elif not still:
                real(self, source, other, out)

    return [(Participant, "_follow_link", follow)]


def _no_epoch_check() -> list[Patch]:
    return [(Gate, "admits", lambda self, key, stamp: True)]


def _delete_before_commit() -> list[Patch]:
    real = Stores.get

    def get(self: Stores, node: Any, epoch: int, task: int, done: Callable[[str, Any], None]) -> None:
        def read(error: str, value: Any) -> None:
            for store in self.at.values():
                store.data.pop((epoch, task), None)
            done(error, value)

        real(self, node, epoch, task, read)

    return [(Stores, "get", get)]


def _empty_list_on_connection_loss() -> list[Patch]:
    real = Coordination.suspend

    def suspend(self: Coordination, session: Any) -> None:
        real(self, session)
        now = self.now
        session.on_view(View(session.old + session.new, now.latest, (), now.places, now.living))

    return [(Coordination, "suspend", suspend)]


def _unbounded_buffer() -> list[Patch]:
    real = Emitter.__init__

    def made(self: Emitter, source: int, target: int, life: int, limit: int, link: Any = None) -> None:
        real(self, source, target, life, 1_000_000, link)

    return [(Emitter, "__init__", made)]


def _conflict_keeps_the_old_record() -> list[Patch]:
    def conflict(self: Notifier, event: ev.RecordConflict) -> tuple[Any, ...]:
        self.version = event.version
        if self.state is NotifierState.REMOVING:
            return (ac.RemoveRecord(self.record.epoch, self.version),)
        self._commit, self._says = None, ()
        self.state = NotifierState.WATCHING
        return ()

    return [(Notifier, "_conflict", conflict)]


def _no_opening_after_a_pause() -> list[Patch]:
    real = Emitter._open

    def opened(self: Emitter, where: Any, epoch: int, *, again: bool = False) -> tuple[Any, ...]:
        return real(self, where, epoch)

    return [(Emitter, "_open", opened)]


def _begins_before_restored_is_accepted() -> list[Patch]:
    real_installed, real_accepted = MoverNew._installed, MoverNew._accepted

    def installed(self: MoverNew, event: ev.Installed) -> tuple[Any, ...]:
        before = self.state
        actions = real_installed(self, event)
        return (
            (*actions, ac.BeginTask(self.task, self.epoch, self.attempt))
            if before is not NewState.FAILED
            else actions
        )

    def accepted(self: MoverNew, event: ev.RestoreAccepted) -> tuple[Any, ...]:
        return real_accepted(self, event)[:0]

    return [(MoverNew, "_installed", installed), (MoverNew, "_accepted", accepted)]


def _links_end_where_it_was_put_in() -> list[Patch]:
    real = Participant._on_new

    def on_new(self: Participant, event: Any, out: list[Any]) -> None:
        if isinstance(event, ev.Installed) and event.task in self.new:
            out += self._ends.receive(event.task, self._arriving[event.task])
        real(self, event, out)

    return [(Participant, "_on_new", on_new)]


def _new_place_forgets_the_fence() -> list[Patch]:
    real = Emitter.__init__

    def made(self: Emitter, source: int, target: int, life: int, limit: int, link: Any = None) -> None:
        real(self, source, target, life, limit, link)
        self.epoch = 0

    return [(Emitter, "__init__", made)]


def _looks_once_for_what_is_not_known() -> list[Patch]:
    real = Participant._on_view

    def on_view(self: Participant, event: ev.ViewRead, out: list[Any]) -> None:
        real(self, event, out)
        self._behind.clear()

    return [(Participant, "_on_view", on_view)]


def _remembers_fences_where_it_has_come() -> list[Patch]:
    real = Gate.close

    def close(self: Gate, key: Any, stamp: Any) -> None:
        if key[0] != "fence":
            real(self, key, stamp)

    return [(Gate, "close", close)]


def _remembers_fences_where_it_has_stayed() -> list[Patch]:
    return [(Ends, "forget_fences", lambda self, task, epoch: None)]


def _restored_in_whichever_move() -> list[Patch]:
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        link, at = self.emitters.get((source, target)), self.view.stands(target)
        if link is not None and at.phase is Phase.RESTORED:
            link.epoch = min(link.epoch, at.epoch)
        real(self, source, target, out, **how)

    return [(Participant, "_follow_link", follow)]


def _next_life_is_this_one() -> list[Patch]:
    return [(Later, "keeps", lambda self, event: False)]


def _links_go_on_after_they_were_exported() -> list[Patch]:
    real = Participant._run

    def run(self: Participant, role: Any, event: Any, out: list[Any]) -> None:
        real(self, role, event, out)
        self._sealed.clear()

    return [(Participant, "_run", run)]


def _stops_within_a_tuple() -> list[Patch]:
    from protocol_tests.tasks import Task

    real = Task._step

    def step(self: Task) -> None:
        if self.stopping and not self.stopped and self.running and not self.closed and self.worker.alive:
            self._scheduled, self.stopped = False, True
            self.worker.stopped(self)
        else:
            real(self)

    return [(Task, "_step", step)]


def _saves_to_one_node() -> list[Patch]:
    real = MoverOld._prepare

    def prepare(self: MoverOld, event: ev.PrepareOld) -> tuple[Any, ...]:
        return real(self, ev.PrepareOld(event.task, event.epoch, event.nodes[:1]))

    return [(MoverOld, "_prepare", prepare)]


def _marks_without_condition() -> list[Patch]:
    real = Coordination.write_marks

    def write(
        self: Coordination,
        session: Any,
        epoch: int,
        me: Any,
        marks: Any,
        version: int,
        done: Any,
        accepted: Any,
    ) -> None:
        node = self.moves.get(epoch)
        now = node.marks[me].version if node is not None and me in node.marks else version
        real(self, session, epoch, me, marks, now, done, accepted)

    return [(Coordination, "write_marks", write)]


def _given_up_and_not_asked() -> list[Patch]:
    real = worker.read_by
    return [(worker, "read_by", lambda me, view: real(Incarnation(""), view))]


def _comes_back_as_it_was() -> list[Patch]:
    return [(View, "stayed", lambda self, task, epoch: True)]


def _a_part_is_the_whole() -> list[Patch]:
    return [(worker, "is_whole", lambda value: True)]


def _begins_without_having_written_it_down() -> list[Patch]:
    return [(starting, "begin_now", lambda startable, written: startable)]


def _rollback_refuses_saved_alone() -> list[Patch]:
    def refuse(task: Any, draft: Any) -> None:
        draft.write(task.source, draft.marks[task.source].marks.bar(task.task))

    return [(decide, "_refuse", refuse)]


def _rollback_refuses_restored_alone() -> list[Patch]:
    def refuse(task: Any, draft: Any) -> None:
        draft.write(task.target, draft.marks[task.target].marks.revoke(task.task, task.attempt))

    return [(decide, "_refuse", refuse)]


def _whose_old_place_is_gone_is_absent() -> list[Patch]:
    def absent(self: View, task: int) -> bool:
        at = self.stands(task)
        return at.owner == NOBODY and at.phase is not Phase.SAVED

    return [(View, "absent", absent)]


def _asked_before_it_has_gone_on() -> list[Patch]:
    from protocol_tests.tasks import Task

    return [(Task, "when_gone_on", lambda self, what: what())]


def _old_side_does_not_hear_of_restored() -> list[Patch]:
    real = MoverOld._settled

    def settled(self: MoverOld, event: ev.Settled) -> tuple[Any, ...]:
        if not event.here and self.state not in (OldState.SAVED, OldState.MARKING):
            raise ProtocolViolation(f"{self}: given to another worker when it was {self.state}")
        return real(self, event)

    return [(MoverOld, "_settled", settled)]


def _stores_of_the_last_attempt_alone() -> list[Patch]:
    def nodes(self: MoveRecord) -> tuple[Any, ...]:
        return tuple(sorted({n for t in self.tasks for n in (t.source_node, t.target_node)}))

    return [(MoveRecord, "nodes", nodes)]


def _late_keeps_back_others() -> list[Patch]:
    return [(Scribes, "hurry", lambda self, epoch: None)]


def _nodes_do_not_hear_that_a_move_has_ended() -> list[Patch]:
    return [(Stores, "record_gone", lambda self: None)]


def _links_wait(waits: Callable[[Participant, int], bool]) -> list[Patch]:
    """Those that lead to a task do not follow what is read of it as long as that is so."""
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        if waits(self, target):
            self._behind.add(target)
        else:
            real(self, source, target, out, **how)

    return [(Participant, "_follow_link", follow)]


def _emitters_wait_for_the_outcome() -> list[Patch]:
    return _links_wait(lambda self, target: self.view.stands(target).phase is Phase.RESTORED)


def _one_more_write_in_the_pause() -> list[Patch]:
    real = MoverNew._fetched

    def fetched(self: MoverNew, event: ev.Fetched) -> tuple[Any, ...]:
        return (ac.Mark(self.epoch, self.task, "fetched", self.attempt), *real(self, event))

    return [(MoverNew, "_fetched", fetched)]


def _barrier_for_the_batch() -> list[Patch]:
    def waits(self: Participant, target: int) -> bool:
        at = self.view.stands(target)
        found = self.view.move(at.epoch)
        batch = at.move.batch if at.move is not None else -1
        tasks = found.record.tasks if found is not None and at.phase is Phase.RESTORED else ()
        return any(t.batch == batch and self.view.stands(t.task).phase in STANDING_STILL for t in tasks)

    return _links_wait(waits)


def _restored_is_written_for_all_together() -> list[Patch]:
    real = Participant.writes

    def writes(self: Participant) -> tuple[Any, ...]:
        busy = any(r.state in (NewState.FETCHING, NewState.INSTALLING) for r in self.new.values())
        return () if busy else real(self)

    return [(Participant, "writes", writes)]


def _goes_on_after_its_session() -> list[Patch]:
    def go_on(self: Worker) -> None:
        self.alive = True
        for task in self.tasks.values():
            task.wake()

    return [(Worker, "may_go_on", go_on)]


def _gone_is_tried_again() -> list[Patch]:
    real = MoverNew._failed

    def failed(self: MoverNew, event: ev.NewFailed) -> tuple[Any, ...]:
        return real(self, replace(event, gone=False))

    return [(MoverNew, "_failed", failed)]


def _restored_is_said_before_it_is_accepted() -> list[Patch]:
    real = Participant._on_new

    def on_new(self: Participant, event: Any, out: list[Any]) -> None:
        role = self.new.get(event.task)
        real(self, event, out)
        if role is not None and event.__class__ is ev.Installed and role.state is NewState.MARKING:
            self._accepted.append(role)
            self._say_restored(out)

    return [(Participant, "_on_new", on_new)]


def _words_of_a_move_before_count() -> list[Patch]:
    real = View.with_restored

    def with_restored(self: View, heard: Any) -> View:
        stands = {t: self.stands(t) for t in heard}
        return real(self, {t: (at.epoch, at.attempt) for t, at in stands.items()})

    return [(View, "with_restored", with_restored), (View, "shows", lambda self, task, epoch, attempt: False)]


def _begins_without_what_is_beside_the_state(part: str) -> list[Patch]:
    real = Task.install

    def install(self: Task, content: Content) -> None:
        real(self, content)
        setattr(self, part, 0)

    return [(Task, "install", install)]


def _shortcut_takes(*, early: bool, next_alone: bool) -> list[Patch]:
    def takes(self: Receiver, life: int, first: int, count: int) -> bool:
        if (self.state is not ReceiverState.OPEN and not early) or self._fence is not None:
            return False
        if life != self.life or (first != self.seen + 1 and next_alone):
            return False
        self.seen += count
        return True

    return [(Receiver, "takes", takes)]


def _drops_the_first_of_a_new_life() -> list[Patch]:
    real_opened, real_takes, real_arrived = Receiver._opened, Receiver.takes, Receiver._arrived
    begins: dict[Receiver, int] = {}

    def opened(self: Receiver, event: ev.Opened) -> tuple[Any, ...]:
        if 0 <= self.life < event.life:
            begins[self] = event.position + 1
        return real_opened(self, event)

    def takes(self: Receiver, life: int, first: int, count: int) -> bool:
        return begins.get(self) != first and real_takes(self, life, first, count)

    def arrived(self: Receiver, event: ev.Arrived) -> tuple[Any, ...]:
        if event.life == self.life and begins.get(self) == event.first == self.seen + 1:
            del begins[self]
            self.seen += event.count
            drop = ac.Drop(self.source, self.target, event.count, event.item, "of a life that has ended")
            return (drop, *self._take_early(), *self._fence_reached())
        return real_arrived(self, event)

    return [(Receiver, "_opened", opened), (Receiver, "takes", takes), (Receiver, "_arrived", arrived)]


def _fetched_is_said_one_by_one() -> list[Patch]:
    return [(MoverNew, "gets_ready", property(lambda self: self.state is NewState.PREPARING))]


def _what_has_changed_is_not_seen() -> list[Patch]:
    return [(view, "differences", lambda before, now: iter(()))]


def _all_take_their_turn_at_once() -> list[Patch]:
    def told(task: Any, of: MoveRecord, turn: int) -> Phase:
        return real(task, of, of.batches)

    real = record.told
    return [(record, "told", told), (view, "told", told), *_the_next_turn_comes_without_a_rest()]


def _the_next_turn_comes_without_a_rest() -> list[Patch]:
    return [(Turns, "has_come", lambda self, at: at.phase in STANDING_STILL)]


def _a_turn_is_heard_of_by_nobody() -> list[Patch]:
    return [(Participant, "_next_after", lambda self, new: set())]


def _a_word_of_the_last_brings_no_turn() -> list[Patch]:
    real = View.with_restored

    def with_restored(self: View, heard: Any) -> View:
        read = {m.record.epoch: m.turn for m in self.moves}
        with patch.object(view, "_turn_of", lambda of, standing: read[of.epoch]):
            return real(self, heard)

    return [(View, "with_restored", with_restored)]


def _begins_anew_and_rests() -> list[Patch]:
    return [(Turns, "is_near", staticmethod(lambda at: False))]


def _gone_by_what_was_heard() -> list[Patch]:
    return [(participant, "STANDING_STILL", tuple(Phase))]


NAMED: dict[str, Callable[[], list[Patch]]] = {
    "no fence": _no_fence,
    "fence without position": _fence_without_position,
    "fence without epoch": _fence_without_epoch,
    "resume before restore": _resume_before_restore,
    "release before the receivers have drained": _release_before_drained,
    "rollback after saved": _rollback_after_saved,
    "no epoch check": _no_epoch_check,
    "delete from the store before commit": _delete_before_commit,
    "an empty list on connection loss": _empty_list_on_connection_loss,
    "unbounded buffer": _unbounded_buffer,
}
MORE: dict[str, Callable[[], list[Patch]]] = {
    **RETURNS,
    **ENDS,
    "a conflict keeps the old record": _conflict_keeps_the_old_record,
    "no opening after a pause": _no_opening_after_a_pause,
    "begins before restored is accepted": _begins_before_restored_is_accepted,
    "the new place forgets the fence": _new_place_forgets_the_fence,
    "looks once for what is not known yet": _looks_once_for_what_is_not_known,
    "fences are remembered where a task has come to": _remembers_fences_where_it_has_come,
    "fences are remembered where a task has stayed": _remembers_fences_where_it_has_stayed,
    "restored in a move before is restored in this one": _restored_in_whichever_move,
    "links end where it was put in": _links_end_where_it_was_put_in,
    "what is for the next life is for this one": _next_life_is_this_one,
    "links go on after they were exported": _links_go_on_after_they_were_exported,
    "stops within a tuple": _stops_within_a_tuple,
    "saves to one node": _saves_to_one_node,
    "marks without condition": _marks_without_condition,
    "who was given up does not read its marks": _given_up_and_not_asked,
    "who comes back without its state is who had left": _comes_back_as_it_was,
    "a part is taken for the whole": _a_part_is_the_whole,
    "a task begins that was not written down": _begins_without_having_written_it_down,
    "a rollback refuses saved alone": _rollback_refuses_saved_alone,
    "a rollback refuses restored alone": _rollback_refuses_restored_alone,
    "restored without condition": _marks_without_condition,
    "a next move begins before the task has gone on": _asked_before_it_has_gone_on,
    "whose old place is gone sends no fence": _whose_old_place_is_gone_is_absent,
    "restored by word, and the old side would not let go": _old_side_does_not_hear_of_restored,
    "only the last attempt's stores are emptied": _stores_of_the_last_attempt_alone,
    "pauses whole streams": _pauses_whole_streams,
    "a task stops before its emitters hold": partial(_stops, True),
    "a task runs on that emits to one that stands still": partial(_stops, False),
    "a task runs on whose target is paused since": _looks_once_who_is_held,
    "emitters wait for the outcome": _emitters_wait_for_the_outcome,
    "one more write in the pause": _one_more_write_in_the_pause,
    "a state that is gone is fetched again and again": _gone_is_tried_again,
    "a barrier for the whole batch": _barrier_for_the_batch,
    "restored is written for all together": _restored_is_written_for_all_together,
    "restored is said before it is accepted": _restored_is_said_before_it_is_accepted,
    "what was heard in a move before counts in this one": _words_of_a_move_before_count,
    "goes on after its session has expired": _goes_on_after_its_session,
    "nodes don't hear that a move has ended": _nodes_do_not_hear_that_a_move_has_ended,
    "who is late keeps back the others' word": _late_keeps_back_others,
    "timers do not travel": partial(_begins_without_what_is_beside_the_state, "timer"),
    "where a spout is does not travel": partial(_begins_without_what_is_beside_the_state, "number"),
    "the shortcut takes what is not next": partial(_shortcut_takes, early=False, next_alone=False),
    "the shortcut takes while something early waits": partial(_shortcut_takes, early=True, next_alone=True),
    "the first of a new life is dropped": _drops_the_first_of_a_new_life,
    "a view is taken for what was read before": _what_has_changed_is_not_seen,
    "all take their turn at once": _all_take_their_turn_at_once,
    "the next turn comes without a rest": _the_next_turn_comes_without_a_rest,
    "whose turn is next does not hear of it": _a_turn_is_heard_of_by_nobody,
    "a word that the last one is restored brings nobody a turn": _a_word_of_the_last_brings_no_turn,
    "each says by itself that it has come from the stores": _fetched_is_said_one_by_one,
    "who begins anew sends while the stream rests": _begins_anew_and_rests,
    "who was gone is gone, though it was only heard whose turn it is": _gone_by_what_was_heard,
}
ALL = {**NAMED, **MORE}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with that fault in it."""
    with ExitStack() as stack:
        for where, attribute, value in ALL[name]():
            stack.enter_context(patch.object(where, attribute, value))
        yield
