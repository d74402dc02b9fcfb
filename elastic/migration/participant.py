"""All roles of one worker process, put together.

A task may be several things in one move (it moves, it emits to another that moves, it receives from a third): its roles do not know of
each other, and this class carries between them what one finds out and another waits for. It turns a view of coordination into
the events that follow for each role: always from what was read, compared with what was read before, so that a notification that was
missed, doubled or late changes nothing.

Order within one view: what a task's own move asks comes before what its links ask. A stopped task's links do not go on (what it sent is
being confirmed); from the moment its links were exported they do nothing at all, because its next place begins from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import Any

from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.emitter import Emitter
from elastic.migration.ends import Ends
from elastic.migration.gate import Gate
from elastic.migration.later import Later, Said
from elastic.migration.mover_new import MoverNew
from elastic.migration.mover_old import MoverOld
from elastic.migration.plan import Wiring
from elastic.migration.record import SETTLED, STANDING_STILL, Outcome, Phase, TaskMove
from elastic.migration.role import Actions, Role
from elastic.migration.scribes import Scribes
from elastic.migration.snapshot import OutLink, TaskLinks
from elastic.migration.table import EmitterState, NewState, OldState
from elastic.migration.turns import Turns
from elastic.migration.view import EMPTY, NOBODY, Standing
from elastic.model.ids import Incarnation, NodeId

_ACCEPTED: dict[StrEnum, tuple[Phase, ...]] = {
    OldState.MARKING: (Phase.SAVED, Phase.RESTORED),
    OldState.SAVING: (Phase.RESTORED,),
}
"""What has to be known of a task for its old side to be done, by how far that is."""
_WAITING = (OldState.DRAINING, OldState.STOPPING, OldState.CONFIRMING)
"""May wait for fences."""
Out = list[Sequence[Any]]


def _nodes(part: TaskMove) -> tuple[NodeId, ...]:
    """Whose stores get the state."""
    return tuple(dict.fromkeys((part.source_node, part.target_node)))


class Participant:
    """See the module.

    Args:
        me: This worker life.
        wiring: Which task emits to which.
        buffer_rows: Tuples that an output buffer holds.
        gate: Gives what to hold while a link of that source task changes; the data path holds the same while it asks `flowing` and
            says `left`.

    Attributes:
        tasks: Those that run here or are about to go; with the life of each.
        emitters: The ends of their links, as `Ends` has them.
        receivers: Likewise.
    """

    def __init__(
        self,
        me: Incarnation,
        wiring: Wiring,
        buffer_rows: int,
        gate: Callable[[int], AbstractContextManager[object]] = lambda source: nullcontext(),
    ) -> None:
        self.me = me
        self.wiring = wiring
        self.view = EMPTY
        self.tasks: dict[int, int] = {}
        self.old: dict[int, MoverOld] = {}
        self.new: dict[int, MoverNew] = {}
        self._ends = Ends(wiring, buffer_rows)
        self.emitters, self.receivers = self._ends.emitters, self._ends.receivers
        self._gate_of = gate
        self._gate = Gate()
        self._scribes = Scribes(me)
        self._arriving: dict[int, TaskLinks] = {}
        self._frozen: set[int] = set()
        self._sealed: set[int] = set()
        self._later = Later()
        self._behind: set[int] = set()  # targets of which a link was told more than this process has read
        self._read = EMPTY  # what was read, and nothing else
        self._heard: dict[
            int, tuple[int, int]
        ] = {}  # restored, by a word of their new side: task -> move, attempt
        self._accepted: list[MoverNew] = []  # since that was said to those who emit to them
        self._turns = Turns()
        self._doors: dict[type, Callable[[Any, Out], None]] = {
            **dict.fromkeys((ev.Emitted, ev.Room), self._on_emitter),
            **dict.fromkeys((ev.Opened, ev.Arrived, ev.FenceArrived), self._on_receiver),
            **dict.fromkeys(
                (ev.StoreAsked, ev.Stopped, ev.Delivered, ev.SaveDone, ev.OldFailed), self._on_old
            ),
            **dict.fromkeys(
                (ev.Prepared, ev.AheadFetched, ev.Fetched, ev.Installed, ev.NewFailed), self._on_new
            ),
            ev.SaveHeard: self._on_heard,
            ev.RestoreHeard: self._on_restored,
            ev.ViewRead: self._on_view,
            ev.MarksRead: self._on_marks,
            ev.Rested: self._on_rested,
            ev.ReadyLate: lambda event, out: self._scribes.hurry(event.epoch),
            ev.TaskStarted: self._on_started,
            ev.TaskGone: self._on_gone,
        }

    def handle(self, event: Any) -> Actions:
        """What is to be done because of the event, in order.

        Raises:
            ProtocolViolation: A role's state forbids it: a fault in elastic.
        """
        return tuple(action for answer in (*self.answers(event), *self.writes()) for action in answer)

    def answers(self, event: Any) -> tuple[Actions, ...]:
        """The same, each role's answer by itself: if an action fails, what follows it in that answer does not happen.

        The answers of other roles do: the task that cannot be saved must not cost another one its mark. Marks are not in it: see `writes`.
        """
        out: Out = []
        self._doors[event.__class__](event, out)
        return tuple(tuple(answer) for answer in out if answer)

    def writes(self) -> tuple[Actions, ...]:
        """The marks that are to be written now: to be asked for after one event, or after several that came together."""
        return self._scribes.writes(self._preparing)

    def _preparing(self, epoch: int) -> bool:
        return any(r.epoch == epoch and r.gets_ready for r in self.new.values()) or any(
            r.epoch == epoch and r.state is OldState.PREPARING for r in self.old.values()
        )

    @property
    def quiet(self) -> bool:
        """Whether nothing of any move is left here."""
        return self._ends.flow and not (
            self.old
            or self.new
            or self._scribes
            or self._frozen
            or self._sealed
            or self._arriving
            or self._later
        )

    # ------------------------------------------------------------------ what a view says

    def _on_view(self, event: ev.ViewRead, out: Out) -> None:
        view = event.view
        if not self._gate.admits("view", (view.number,)):
            return
        read_before, self._read = self._read, view
        self._heard = {t: of for t, of in self._heard.items() if not view.shows(t, *of)}
        before, self.view = self.view.standing, view.with_restored(self._heard)
        self._scribes.see(view)
        view, now = self.view, self.view.standing
        out.append(self._turns.follow(self.view))
        changed = view.changed(before)
        movers = {t for t in changed if now[t].move is not None}
        # Who has left, or has come, does nothing any more until the record says what has become of that.
        waits = view.same_records(read_before)
        movers |= {t for t, old in self.old.items() if not (waits and old.state is OldState.SAVED)}
        movers |= {t for t, new in self.new.items() if not (waits and new.state is NewState.RUNNING)}
        for task in sorted(movers):
            self._follow_mover(task, view.stands(task), out)
        targets = {*changed, *self._behind}
        self._behind.clear()
        self._follow_links(targets, out)
        self._say_restored(out)
        self._follow_absent([self.old[t] for t in sorted(self.old)], out)
        self._scribes.close({r.epoch for r in self.old.values()} | {r.epoch for r in self.new.values()})

    def _follow_mover(self, task: int, at: Standing, out: Out) -> None:
        move, old, new = at.move, self.old.get(task), self.new.get(task)
        if old is not None and at.epoch == old.epoch and at.phase in _ACCEPTED.get(old.state, ()):
            self._run(old, ev.SaveAccepted(task, at.epoch), out)
        if (
            new is not None
            and self._is_mine(new, at)
            and at.phase is Phase.RESTORED
            and new.state is NewState.MARKING
        ):
            self._run(new, ev.RestoreAccepted(task, at.epoch, at.attempt), out)
            self._accepted.append(new)
        if new is not None and new.back:  # first: it may take back what the old side has
            self._end_new(new, out)
            new, old = None, self.old.get(task)
        # Only the outcome in the record of that very move ends a role: who has the task now does not say how this one came to be.
        part = self.view.part(task, old.epoch) if old is not None else None
        if old is not None and part is not None and part.outcome:
            stays = part.outcome is Outcome.ROLLED_BACK
            self._settle_old(old, ev.Settled(task, old.epoch, stays), out)
        if new is not None:
            self._end_new(new, out)
        if move is None or at.phase in SETTLED or at.phase is Phase.WAITING:
            return
        if move.source == self.me and at.phase in (Phase.PREPARING, Phase.PAUSED):
            self._follow_old(task, at, out)
        if move.target == self.me and task not in self.new and at.phase is not Phase.RESTORED:
            self.new[task] = made = MoverNew(task, at.epoch, at.attempt)
            self._gate.admits(("new", task), (at.epoch, at.attempt))
            # It may be chosen because another one could not: its old side has held everything so far.
            still = task in self.old and self.old[task].epoch == at.epoch and at.phase is Phase.SAVED
            begin = ev.StillHere if still else ev.PrepareNew
            self._run(made, begin(task, at.epoch, at.attempt), out)
        if at.phase is Phase.PREPARING and task in self.new:
            self._follow_ahead(move, at, out)
        if at.phase is Phase.SAVED and task in self.new and at.saved is not None:
            saved = ev.SavedSeen(task, at.epoch, at.attempt, at.saved.nodes, at.saved.size)
            self._run(self.new[task], saved, out)

    def _end_new(self, new: MoverNew, out: Out) -> None:
        """End it if the record says so: the task has its outcome, or another new side was chosen."""
        part = self.view.part(new.task, new.epoch)
        if part is None:
            return
        mine = part.target == self.me and part.attempt == new.attempt
        if part.outcome or not mine:
            self._settle_new(new, mine and part.outcome is Outcome.COMMITTED, out)

    def _follow_ahead(self, part: TaskMove, at: Standing, out: Out) -> None:
        move = self.view.move(at.epoch)
        source = move.marks.get(part.source) if move is not None else None
        if source is not None and part.task in source.marks.ahead:
            self._run(self.new[part.task], ev.AheadSeen(part.task, at.epoch, at.attempt, _nodes(part)), out)

    def _is_mine(self, new: MoverNew, at: Standing) -> bool:
        move = at.move
        return move is not None and (at.epoch, at.attempt, move.target) == (new.epoch, new.attempt, self.me)

    def _follow_old(self, task: int, at: Standing, out: Out) -> None:
        assert at.move is not None
        old = self.old.get(task)
        if old is None:
            if task not in self.tasks:
                reason = "it has not been started in the process that it was to leave"
                self._scribes.refuse(at.epoch, task, reason)
                return
            old = self.old[task] = MoverOld(task, at.epoch)
            self._gate.admits(("old", task), (at.epoch,))
            self._run(old, ev.PrepareOld(task, at.epoch, _nodes(at.move)), out)
        if at.phase is Phase.PAUSED and self._turns.has_come(at) and old.state is OldState.READY:
            waits = {
                s for s in self.wiring.emitters_of(task) if not self._ends.fence_is_here(s, task, at.epoch)
            }
            self._run(old, ev.PauseTask(task, at.epoch, frozenset(waits), self._is_held(task)), out)
        elif old.state is OldState.DRAINING and self._is_held(task):
            self._run(old, ev.PauseTask(task, at.epoch, frozenset(old.missing), True), out)

    def _is_held(self, task: int) -> bool:
        """Whether what the task emits to somebody is held: it would lie here, and might hold the task up, until that one goes on."""
        ats = (self.view.stands(t) for t in self.wiring.targets_of(task))
        return any(self._turns.has_come(at) or at.owner == NOBODY for at in ats)

    def _follow_link(
        self, source: int, target: int, out: Out, *, again: bool = False, anew: bool = False
    ) -> None:
        """Let the link do what the target's standing asks, as far as this process knows it.

        A link that has sent a fence, here or at its task's former place, holds until the outcome of that very move is known.
        """
        link = self.emitters.get((source, target))
        if link is None or source in self._sealed:
            return
        at = self.view.stands(target)
        # Who has begun anew was gone: no fence of it is waited for, whether or not the stream rests here.
        if self._turns.has_come(at) or (anew and self._turns.is_near(at)):
            assert at.move is not None
            if link.epoch < at.epoch or (link.epoch == at.epoch and not link.fenced):
                self._run(link, ev.Pause(source, target, at.epoch, at.move.source), out)
            return
        if source in self._frozen:
            return
        known = at.epoch >= link.epoch if at.phase is Phase.RESTORED else self.view.ended(target, link.epoch)
        if link.epoch and not known:
            self._behind.add(target)
            return
        holding = link.state is EmitterState.HOLDING
        # Who has left may come back to the very process that it has left, without its state: the link then begins where it is. The record
        # of that may be gone, as an emitter need not have read it. (Who has stayed after all knows of the link, and takes no notice.)
        if (at.owner == NOBODY and not holding) or (
            holding and link.fenced and link.where != NOBODY and not self.view.stayed(target, link.epoch)
        ):
            self._run(link, ev.Detach(source, target), out)
        if at.owner != NOBODY and (again or holding or link.where != at.owner):
            self._run(link, ev.Resume(source, target, at.owner), out)

    def _follow_links(self, targets: Iterable[int], out: Out) -> None:
        for target in sorted(targets):
            for source in self.wiring.emitters_of(target):
                self._follow_link(source, target, out)

    def _follow_absent(self, those: Iterable[MoverOld], out: Out) -> None:
        """Do without the fences of emitters that are gone. Whoever starts one anew has read at least as much as was read here, or is seen:
        if it was read whose turn it is, and not only heard, that one holds from the start."""
        for old in those:
            waits = old.state in _WAITING and self._read.stands(old.task).phase in STANDING_STILL
            for source in sorted(old.missing) if waits else ():
                if self.view.absent(source):
                    self._run(old, ev.EmitterGone(old.task, old.epoch, source), out)

    # ------------------------------------------------------------------ what else happens

    def _on_emitter(self, event: ev.Emitted | ev.Room, out: Out) -> None:
        link = self.emitters.get((event.source, event.target))
        if link is not None and (event.source not in self._frozen or event.__class__ is ev.Emitted):
            out.append(link.handle(event))

    def _on_receiver(self, event: Said, out: Out) -> None:
        if event.__class__ is not ev.Arrived and not self._is_of_now(event):
            return
        receiver = self.receivers.get((event.source, event.target))
        if receiver is None:
            out.append((ac.NotHere(event.target, event),))
        elif event.target not in self._sealed or not self._later.keeps(event):
            self._run(receiver, event, out)

    def kept_for_later(self, task: int) -> tuple[Said, ...]:
        """What has come for a task that is about to go, and is for its next life, or for after its move."""
        return self._later.of(task)

    def _is_of_now(self, event: Any) -> bool:
        """What a fence, or the opening for one, has to do with: a move that is not over for the task here."""
        return not event.epoch or self._gate.admits(("fence", event.target), (event.epoch,))

    def _on_old(self, event: Any, out: Out) -> None:
        role = self.old.get(event.task)
        if role is None or not self._gate.admits(("old", event.task), (event.epoch,)):
            return
        if event.__class__ is ev.Stopped and role.state is OldState.STOPPING:
            self._frozen.add(event.task)
        self._run(role, event, out)

    def _on_new(self, event: Any, out: Out) -> None:
        role = self.new.get(event.task)
        if role is None or not self._gate.admits(("new", event.task), (event.epoch, event.attempt)):
            return
        if event.__class__ is ev.Fetched:
            self._arriving[event.task] = event.links
        self._run(role, event, out)

    def _on_heard(self, event: ev.SaveHeard, out: Out) -> None:
        new, part = self.new.get(event.task), self.view.part(event.task, event.epoch)
        if new is not None and part is not None and new.epoch == event.epoch:
            self._run(new, replace(event, nodes=_nodes(part)), out)

    def _on_marks(self, event: ev.MarksRead, out: Out) -> None:
        for mark in self._scribes.read(event.epoch, event.marked):
            old, new = self.old.get(mark.task), self.new.get(mark.task)
            if mark.what == "saved" and old is not None and old.state is OldState.MARKING:
                self._run(old, ev.SaveAccepted(mark.task, mark.epoch), out)
            elif mark.what == "restored" and new is not None and new.state is NewState.MARKING:
                self._run(new, ev.RestoreAccepted(mark.task, mark.epoch, mark.attempt), out)
                self._accepted.append(new)
        self._say_restored(out)

    def _say_restored(self, out: Out) -> None:
        """Tasks have begun here: whoever emits to them, or has those whose turn is next, need not wait until it reads that."""
        accepted, self._accepted = self._accepted, []
        told: dict[tuple[int, Incarnation], list[tuple[int, int]]] = {}
        for new in accepted:
            owners = {self.view.stands(s).owner for s in self.wiring.emitters_of(new.task)}
            owners |= self._next_after(new)
            for where in sorted(owners - {NOBODY}):
                told.setdefault((new.epoch, where), []).append((new.task, new.attempt))
        for (epoch, where), tasks in told.items():
            if where == self.me:
                self._on_restored(ev.RestoreHeard(epoch, tuple(tasks)), out)
            else:
                out.append((ac.TellRestored(where, epoch, tuple(tasks)),))

    def _next_after(self, new: MoverNew) -> set[Incarnation]:
        """Where the tasks are whose turn comes after that one's."""
        part, move = self.view.part(new.task, new.epoch), self.view.move(new.epoch)
        if part is None or move is None:
            return set()
        return {t.source for t in move.record.of_batch(part.batch + 1)}

    def _on_restored(self, event: ev.RestoreHeard, out: Out) -> None:
        """What was read, and that: it is so by now, and marks may be newer than what was read before them."""
        heard = {t: (event.epoch, attempt) for t, attempt in event.tasks}
        for task, of in heard.items():
            if of > self._heard.get(task, (0, 0)) and not self._read.shows(task, *of):
                self._heard[task] = of
        before, self.view = self.view, self._read.with_restored(self._heard)
        out.append(self._turns.follow(self.view))
        tasks = heard.keys() | {t.task for t in self.view.whose_turn(event.epoch)}
        self._follow([t for t in tasks if before.stands(t) != self.view.stands(t)], out)

    def _on_rested(self, event: ev.Rested, out: Out) -> None:
        if self._turns.rested(event.epoch, event.batch):
            self._follow([t.task for t in self.view.whose_turn(event.epoch)], out)

    def _follow(self, tasks: Sequence[int], out: Out) -> None:
        """Do what follows from how these stand."""
        for task in sorted(tasks):
            self._follow_mover(task, self.view.stands(task), out)
        self._follow_links(tasks, out)

    def _on_started(self, event: ev.TaskStarted, out: Out) -> None:
        links = TaskLinks(event.life)
        out += self._ends.receive(event.task, links)
        self._attach(event.task, links, out, anew=True)

    def _on_gone(self, event: ev.TaskGone, out: Out) -> None:
        if event.task not in self.old and self.tasks.pop(event.task, None) is not None:
            out += self._ends.forget(event.task)

    # ------------------------------------------------------------------ between the roles

    def _run(self, role: Role, event: Any, out: Out) -> None:
        """Have a role answer, and do what its answer means to the others."""
        answer: list[Any] = []
        out.append(answer)
        if isinstance(role, Emitter):
            with self._gate_of(role.source):
                actions = role.handle(event)
        else:
            actions = role.handle(event)
        for action in actions:
            match action:
                case ac.Mark():
                    self._scribes.add(action)
                case ac.FenceReached(source, target, epoch):
                    self._on_reached(source, target, epoch, out)
                    out.append(answer := [])
                case ac.Save():
                    self._sealed.add(action.task)
                    answer.append(
                        replace(action, links=self._ends.export(action.task, self.tasks[action.task]))
                    )
                case ac.BeginTask():
                    # Links end here from now on, and not before: of one that was put in and is given back after all, who emits to it may
                    # know sooner, and what comes then is for whoever starts it next, which may be this process.
                    links = self._arriving.pop(action.task)
                    # A fence of this move is for its former place; who emits to it may have begun here with it, and say it here. As long
                    # as one is remembered nothing of that link takes the shortcut of the data path.
                    self._gate.close(("fence", action.task), (action.epoch,))
                    out += self._ends.receive(action.task, links)
                    out.append(answer := [action])
                    self._attach(action.task, links, out)
                case ac.TakeBack(task):
                    self._settle_old(self.old[task], ev.TakenBack(task, action.epoch), out)
                    out.append(answer := [])
                case ac.DiscardTask():
                    answer.append(action)
                    self._arriving.pop(action.task, None)
                case _:
                    answer.append(action)

    def _on_reached(self, source: int, target: int, epoch: int, out: Out) -> None:
        old = self.old.get(target)
        if old is not None and old.epoch == epoch and old.state in _WAITING and source in old.missing:
            self._run(old, ev.Fenced(target, epoch, source), out)

    def _settle_old(self, old: MoverOld, how: ev.Settled | ev.TakenBack, out: Out) -> None:
        task, here = old.task, isinstance(how, ev.TakenBack) or how.here
        del self.old[task]
        self._gate.close(("old", task), (old.epoch,))
        self._gate.close(("fence", task), (old.epoch,))
        self._run(old, how, out)
        self._frozen.discard(task)
        self._sealed.discard(task)
        later = self._later.take(task)
        if not here:
            self.tasks.pop(task, None)
            out += self._ends.forget(task)
            out.append([ac.NotHere(task, event) for event in later])
            return
        self._ends.forget_fences(task, old.epoch)
        out.append([ac.TellAgain(task, event) for event in later])
        for target in self.wiring.targets_of(task):
            self._follow_link(task, target, out, again=True)

    def _settle_new(self, new: MoverNew, here: bool, out: Out) -> None:
        del self.new[new.task]
        self._gate.close(("new", new.task), (new.epoch, new.attempt))
        self._run(new, ev.Settled(new.task, new.epoch, here), out)

    def _attach(self, task: int, links: TaskLinks, out: Out, *, anew: bool = False) -> None:
        """The task runs here from now on: its links go where its targets are."""
        self.tasks[task] = links.life
        self._ends.emit(task, links)
        for target in self.wiring.targets_of(task):
            self._follow_link(task, target, out, anew=anew)

    def may_flush(self, source: int, target: int) -> bool:
        """Whether `Room` for that link would be taken: something is held back, and its task's links were not exported."""
        link = self.emitters.get((source, target))
        return link is not None and link.state is EmitterState.FLUSHING and source not in self._frozen

    def arriving(self, task: int) -> tuple[OutLink, ...]:
        """What a task that is being restored here has still to send."""
        links = self._arriving.get(task)
        return links.outputs if links is not None else ()

    def waits(self) -> Mapping[int, str]:
        """What each moving task waits for here, for people."""
        roles: list[MoverOld | MoverNew] = [*self.old.values(), *self.new.values()]
        return {r.task: r.waits_for for r in roles if r.waits_for}
