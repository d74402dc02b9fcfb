"""The new side of one moving task: one attempt to have it run here.

    PREPARING -> READY -> FETCHING -> INSTALLING -> MARKING -> RUNNING -> DONE
    where the old side still has it: MARKING -> RUNNING -> DONE
    any before RUNNING -> DONE (discarded)       any before MARKING -> FAILED -> DONE (discarded)

Promises: everything slow that can be done before the pause is done before it; the state goes in after `prepare`; the task runs, and
sends anything, only after `restored` was accepted: from then on it is this process's, and nobody else's.

It need not wait until `saved` is in the marks: it fetches as soon as it hears that the stores have all of it, and restores from that if it
is the whole of the stopped task, which saves once in a move. What cannot be had then is fetched when the marks say that it is there.

When another new side could not, or would not, the process that the task was to leave may be the next: its old side holds everything until
an outcome, so nothing is fetched, and user code is not asked. All else is as anywhere: it goes on when its `restored` was accepted.
"""

from __future__ import annotations

from elastic.migration import events as ev
from elastic.migration.actions import (
    BeginTask,
    DiscardTask,
    Fetch,
    FetchAhead,
    Install,
    Mark,
    PrepareTask,
    TakeBack,
)
from elastic.migration.role import Actions, Role
from elastic.migration.table import MOVER_NEW, NewState
from elastic.model.ids import NodeId

_BEFORE = (NewState.PREPARING, NewState.READY)


class MoverNew(Role):
    """See the module.

    Attributes:
        coming: Whether what was copied ahead is being fetched.
        back: Whether the old side is here, and still has the task.
    """

    table = MOVER_NEW
    __slots__ = ("_ahead", "_heard", "_nodes", "_size", "attempt", "back", "coming", "epoch", "task")

    def __init__(self, task: int, epoch: int, attempt: int) -> None:
        super().__init__()
        self.task, self.epoch, self.attempt = task, epoch, attempt
        self._nodes: tuple[NodeId, ...] = ()
        self._size = 0
        self._ahead = self._heard = self.coming = self.back = False

    def __str__(self) -> str:
        return f"new side of task {self.task}, move {self.epoch}, attempt {self.attempt}"

    @property
    def gets_ready(self) -> bool:
        """Whether it does, and has not come to an end with that."""
        return self.state is NewState.PREPARING or (self.state is NewState.READY and self.coming)

    @property
    def waits_for(self) -> str:
        """What it cannot go on without, for people; "" when nothing."""
        if self.state is NewState.READY and self.coming:
            return "what was copied ahead, from the stores"
        return {
            NewState.PREPARING: "prepare() to return, and the way to the stores",
            NewState.READY: "the old side to save",
            NewState.FETCHING: f"the state from {', '.join(self._nodes) or 'the stores'}",
            NewState.MARKING: "coordination",
        }.get(NewState(self.state), "")

    def _prepare(self, event: ev.PrepareNew) -> Actions:
        self.state = NewState.PREPARING
        return (PrepareTask(self.task, self.epoch, self.attempt),)

    def _still_here(self, event: ev.StillHere) -> Actions:
        self.state, self.back = NewState.MARKING, True
        return (Mark(self.epoch, self.task, "restored", self.attempt),)

    def _prepared(self, event: ev.Prepared) -> Actions:
        if self.state is NewState.FAILED:
            return ()
        if self._nodes:
            return self._fetch()
        self.state = NewState.READY
        return (Mark(self.epoch, self.task, "prepared", self.attempt),)

    @property
    def _may_come_ahead(self) -> bool:
        """Also while it looks because of a word that came too early: then nothing may come of that."""
        return self.state in _BEFORE or (self.state is NewState.FETCHING and self._heard)

    def _ahead_seen(self, event: ev.AheadSeen) -> Actions:
        if self._ahead or not self._may_come_ahead:
            return ()
        self._ahead = self.coming = True
        return (FetchAhead(self.task, self.epoch, self.attempt, event.nodes),)

    def _ahead_fetched(self, event: ev.AheadFetched) -> Actions:
        if not self._may_come_ahead:
            return ()
        self.coming = False
        return (Mark(self.epoch, self.task, "fetched", self.attempt),)

    def _saved(self, event: ev.SavedSeen) -> Actions:
        self._nodes, self._size = event.nodes, event.size
        return self._fetch() if self.state is NewState.READY else ()

    def _save_heard(self, event: ev.SaveHeard) -> Actions:
        if self.state is not NewState.READY:
            return ()
        self.state, self._heard = NewState.FETCHING, True
        return (Fetch(self.task, self.epoch, self.attempt, event.nodes, event.size, heard=True),)

    def _fetch(self) -> Actions:
        self.state, self._heard = NewState.FETCHING, False
        return (Fetch(self.task, self.epoch, self.attempt, self._nodes, self._size),)

    def _fetched(self, event: ev.Fetched) -> Actions:
        if self.state is NewState.FAILED:
            return ()
        self.state = NewState.INSTALLING
        return (Install(self.task, self.epoch, self.attempt, event.links, event.payload),)

    def _installed(self, event: ev.Installed) -> Actions:
        if self.state is NewState.FAILED:
            return ()
        self.state = NewState.MARKING
        return (Mark(self.epoch, self.task, "restored", self.attempt),)

    def _accepted(self, event: ev.RestoreAccepted) -> Actions:
        self.state = NewState.RUNNING
        return (self._begin(),)

    def _begin(self) -> BeginTask | TakeBack:
        if self.back:
            return TakeBack(self.task, self.epoch)
        return BeginTask(self.task, self.epoch, self.attempt)

    def _failed(self, event: ev.NewFailed) -> Actions:
        if self.state is NewState.FAILED:
            return ()
        if self.state is NewState.FETCHING and self._heard:
            self.state = NewState.READY  # until the marks say that it is there
            return self._fetch() if self._nodes else ()
        self.state = NewState.FAILED
        return (Mark(self.epoch, self.task, "failed", self.attempt, reason=event.reason, gone=event.gone),)

    def _settled(self, event: ev.Settled) -> Actions:
        before, self.state = self.state, NewState.DONE
        if before is NewState.RUNNING:
            return ()
        if before is NewState.MARKING and event.here:
            return (self._begin(),)
        if self.back:
            return ()  # the old side holds it still
        return (DiscardTask(self.task, self.epoch, self.attempt),)

    doors = {  # noqa: RUF012
        ev.PrepareNew: "_prepare",
        ev.StillHere: "_still_here",
        ev.Prepared: "_prepared",
        ev.AheadSeen: "_ahead_seen",
        ev.AheadFetched: "_ahead_fetched",
        ev.SaveHeard: "_save_heard",
        ev.SavedSeen: "_saved",
        ev.Fetched: "_fetched",
        ev.Installed: "_installed",
        ev.RestoreAccepted: "_accepted",
        ev.NewFailed: "_failed",
        ev.Settled: "_settled",
    }
