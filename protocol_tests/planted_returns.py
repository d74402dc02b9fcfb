"""Faults in how a task goes on where it was when it could not be restored elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic.migration import decide
from elastic.migration import events as ev
from elastic.migration.actions import Mark, TakeBack
from elastic.migration.mover_new import MoverNew
from elastic.migration.participant import Participant
from elastic.migration.record import Outcome
from elastic.migration.table import NewState

Patch = tuple[Any, str, Any]


def _goes_on_at_once() -> list[Patch]:
    real = MoverNew._accepted

    def still_here(self: MoverNew, event: ev.StillHere) -> tuple[Any, ...]:
        self.state, self.back = NewState.MARKING, True
        return (Mark(self.epoch, self.task, "restored", self.attempt), TakeBack(self.task, self.epoch))

    def accepted(self: MoverNew, event: ev.RestoreAccepted) -> tuple[Any, ...]:
        done = real(self, event)
        return () if self.back else done

    return [(MoverNew, "_still_here", still_here), (MoverNew, "_accepted", accepted)]


def _the_other_is_not_refused() -> list[Patch]:
    real = decide._forward

    def forward(task: Any, saved: Any, draft: Any, expired: Any) -> Any:
        after = real(task, saved, draft, expired)
        if after is not task and after.target == task.source:
            draft.touched.discard(task.target)
        return after

    return [(decide, "_forward", forward)]


def _given_up_too_soon() -> list[Patch]:
    real = decide._forward

    def forward(task: Any, saved: Any, draft: Any, expired: Any) -> Any:
        if draft.record.forced and task.source not in draft.hosts:
            return decide._lost(task, "given up", draft)
        return real(task, saved, draft, expired)

    return [(decide, "_forward", forward)]


def _lets_go_of_it_first() -> list[Patch]:
    real = Participant._follow_mover

    def follow(self: Participant, task: int, at: Any, out: list[Any]) -> None:
        old = self.old.get(task)
        part = self.view.part(task, old.epoch) if old is not None else None
        if old is not None and part is not None and part.outcome is Outcome.COMMITTED:
            self._settle_old(old, ev.Settled(task, old.epoch, False), out)
            self.new.pop(task, None)
        real(self, task, at, out)

    return [(Participant, "_follow_mover", follow)]


RETURNS: dict[str, Callable[[], list[Patch]]] = {
    "who has it goes on before that was taken down": _goes_on_at_once,
    "who has it lets go of it when it reads of the outcome first": _lets_go_of_it_first,
    "who could not restore it is not refused": _the_other_is_not_refused,
    "a state is given up that somebody may still restore": _given_up_too_soon,
}
