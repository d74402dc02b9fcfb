"""The old side of one moving task.

    PREPARING -> READY -> DRAINING -> STOPPING -> CONFIRMING -> SAVING -> MARKING -> SAVED -> DONE (released)
    any before SAVED -> DONE (rolled back: goes on)      any before MARKING -> FAILED -> DONE (rolled back)
    from SAVING on: the new side may have restored it, of which the marks or the record tell -> SAVED, DONE (released)
    SAVED -> DONE (taken back: this process was the next new side, and goes on with what it has)

It runs on until all that emit to it hold, and what they sent before is here: what comes meanwhile need not travel. Unless what it emits
would have to, because somebody it emits to stands still.

Promises: it stops between two tuples; it saves only when everything sent to it is here (a fence of this epoch from every emitter that
lives) and everything it sent has been received, so that from then on nobody needs this process; it saves once in a move; what it gives up
it gives up only after `saved`, or the new side's `restored`, was accepted; until then it holds everything.
"""

from __future__ import annotations

from elastic.errors import ProtocolViolation
from elastic.migration import events as ev
from elastic.migration.actions import (
    AskStore,
    ConfirmOutput,
    ContinueTask,
    Mark,
    NotePause,
    ReleaseTask,
    Save,
    StopTask,
)
from elastic.migration.role import Actions, Role
from elastic.migration.snapshot import TaskLinks
from elastic.migration.table import MOVER_OLD, OldState
from elastic.model.ids import NodeId

_NO_LINKS = TaskLinks(0)  # the participant puts in those of the moment


class MoverOld(Role):
    """See the module.

    Attributes:
        missing: Emitters whose fence has not come; empty before the pause.
    """

    table = MOVER_OLD
    __slots__ = ("_delivered", "_nodes", "_saving", "epoch", "missing", "task")

    def __init__(self, task: int, epoch: int) -> None:
        super().__init__()
        self.task, self.epoch = task, epoch
        self.missing: set[int] = set()
        self._nodes: tuple[NodeId, ...] = ()
        self._delivered = False
        self._saving = False

    def __str__(self) -> str:
        return f"old side of task {self.task}, move {self.epoch}"

    @property
    def waits_for(self) -> str:
        """What it cannot go on without, for people; "" when nothing."""
        if self.state is OldState.DRAINING:
            return self._fences
        if self.state is OldState.STOPPING:
            return "the task to finish its present tuple"
        if self.state is OldState.CONFIRMING:
            parts = [self._fences] if self.missing else []
            return " and ".join([*parts, *([] if self._delivered else ["its output to be received"])])
        if self.state is OldState.SAVING:
            return f"the stores of {', '.join(self._nodes)}"
        if self.state is OldState.MARKING:
            return "coordination, to take down that it is saved"
        return ""

    @property
    def _fences(self) -> str:
        return f"fences of tasks {', '.join(map(str, sorted(self.missing)))}"

    def _prepare(self, event: ev.PrepareOld) -> Actions:
        self.state, self._nodes = OldState.PREPARING, event.nodes
        return (AskStore(self.task, self.epoch, event.nodes),)

    def _asked(self, event: ev.StoreAsked) -> Actions:
        self.state = OldState.READY
        ahead = (Mark(self.epoch, self.task, "ahead"),) if event.ahead else ()
        return (*ahead, Mark(self.epoch, self.task, "asked"))

    def _pause(self, event: ev.PauseTask) -> Actions:
        if self.state is OldState.DRAINING:  # said once more: somebody it emits to has been paused since
            return self._stop() if event.at_once else ()
        self.missing = set(event.emitters)
        note = NotePause(self.task, self.epoch)
        if self.missing and not event.at_once:
            self.state = OldState.DRAINING
            return (note,)
        return (note, *self._stop())

    def _stopped(self, event: ev.Stopped) -> Actions:
        if self.state is OldState.FAILED:
            return ()
        self.state = OldState.CONFIRMING
        return (ConfirmOutput(self.task, self.epoch),)

    def _source_done(self, event: ev.Fenced | ev.EmitterGone) -> Actions:
        self.missing.discard(event.source)
        if self.state is OldState.DRAINING and not self.missing:
            return self._stop()
        return self._save_if_drained()

    def _stop(self) -> Actions:
        self.state = OldState.STOPPING
        return (StopTask(self.task, self.epoch),)

    def _on_delivered(self, event: ev.Delivered) -> Actions:
        self._delivered = True  # also when it has failed: no matter then
        return self._save_if_drained()

    def _save_if_drained(self) -> Actions:
        if self.state is not OldState.CONFIRMING or self.missing or not self._delivered:
            return ()
        self.state, self._saving = OldState.SAVING, True
        return (Save(self.task, self.epoch, self._nodes, _NO_LINKS),)

    def _save_done(self, event: ev.SaveDone) -> Actions:
        if self.state in (OldState.FAILED, OldState.SAVED):
            return ()
        self.state = OldState.MARKING
        return (Mark(self.epoch, self.task, "saved", nodes=event.nodes, size=event.size),)

    def _accepted(self, event: ev.SaveAccepted) -> Actions:
        self.state = OldState.SAVED
        return ()

    def _failed(self, event: ev.OldFailed) -> Actions:
        if self.state in (OldState.FAILED, OldState.SAVED):  # it was restored from what one store had
            return ()
        self.state = OldState.FAILED
        return (Mark(self.epoch, self.task, "failed", reason=event.reason, final=event.final),)

    def _settled(self, event: ev.Settled) -> Actions:
        if event.here:
            if self.state is OldState.SAVED:
                raise ProtocolViolation(f"{self}: rolled back after it was saved")
            self.state = OldState.DONE
            return (ContinueTask(self.task, self.epoch),)  # one that was not stopped is being copied, maybe
        if not self._saving:
            raise ProtocolViolation(f"{self}: given to another worker when it was {self.state}")
        self.state = OldState.DONE
        return (ReleaseTask(self.task, self.epoch),)

    def _taken_back(self, event: ev.TakenBack) -> Actions:
        self.state = OldState.DONE
        return (ContinueTask(self.task, self.epoch),)

    doors = {  # noqa: RUF012
        ev.PrepareOld: "_prepare",
        ev.StoreAsked: "_asked",
        ev.PauseTask: "_pause",
        ev.Stopped: "_stopped",
        ev.Fenced: "_source_done",
        ev.EmitterGone: "_source_done",
        ev.Delivered: "_on_delivered",
        ev.SaveDone: "_save_done",
        ev.SaveAccepted: "_accepted",
        ev.OldFailed: "_failed",
        ev.Settled: "_settled",
        ev.TakenBack: "_taken_back",
    }
