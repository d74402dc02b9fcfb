"""Faults at the ends of links, and in what comes late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elastic.migration import scribe
from elastic.migration.emitter import Emitter
from elastic.migration.gate import Gate
from elastic.migration.mover_new import MoverNew
from elastic.migration.participant import Participant
from elastic.migration.record import Marks
from elastic.migration.view import NOBODY

Patch = tuple[Any, str, Any]


def _links_go_on_while_it_is_confirmed() -> list[Patch]:
    real = Participant._run

    def run(self: Participant, role: Any, event: Any, out: list[Any]) -> None:
        self._frozen.clear()
        real(self, role, event, out)

    def on_emitter(self: Participant, event: Any, out: list[Any]) -> None:
        link = self.emitters.get((event.source, event.target))
        if link is not None:
            out.append(link.handle(event))

    return [(Participant, "_run", run), (Participant, "_on_emitter", on_emitter)]


def _asks_for_no_room_when_it_stays() -> list[Patch]:
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        real(self, source, target, out, **{**how, "again": False})

    return [(Participant, "_follow_link", follow)]


def _sends_to_who_is_gone() -> list[Patch]:
    real = Participant._follow_link

    def follow(self: Participant, source: int, target: int, out: list[Any], **how: bool) -> None:
        link = self.emitters.get((source, target))
        if link is None or not link.flowing or self.view.stands(target).owner != NOBODY:
            real(self, source, target, out, **how)

    return [(Participant, "_follow_link", follow)]


def _no_opening_before_a_fence() -> list[Patch]:
    real = Emitter._pause
    return [(Emitter, "_pause", lambda self, event: real(self, event)[-1:])]


def _takes_words_of_a_move_before(side: str) -> list[Patch]:
    real = Gate.admits

    def admits(self: Gate, key: Any, stamp: Any) -> bool:
        return real(self, key, stamp) or key[0] == side

    return [(Gate, "admits", admits)]


def _who_could_not_is_not_asked_again() -> list[Patch]:
    real = Participant._end_new

    def end(self: Participant, new: MoverNew, out: list[Any]) -> None:
        part = self.view.part(new.task, new.epoch)
        if part is None or part.outcome or part.target != self.me:
            real(self, new, out)

    return [(Participant, "_end_new", end)]


def _what_was_refused_is_written() -> list[Patch]:
    real = scribe._with

    def with_all(marks: Marks, added: Any) -> Marks:
        made = real(replace(marks, barred=(), revoked={}), added)
        return replace(made, barred=marks.barred, revoked=marks.revoked)

    return [(scribe, "_with", with_all)]


def _runs_on_whose_target_is_gone() -> list[Patch]:
    def is_held(self: Participant, task: int) -> bool:
        return any(self._turns.has_come(self.view.stands(t)) for t in self.wiring.targets_of(task))

    return [(Participant, "_is_held", is_held)]


ENDS: dict[str, Callable[[], list[Patch]]] = {
    "links go on while what has left is confirmed": _links_go_on_while_it_is_confirmed,
    "who stays asks for no room again": _asks_for_no_room_when_it_stays,
    "sends to who is gone": _sends_to_who_is_gone,
    "no opening before a fence": _no_opening_before_a_fence,
    "an old side takes words of a move before": lambda: _takes_words_of_a_move_before("old"),
    "a new side takes words of a move before": lambda: _takes_words_of_a_move_before("new"),
    "what was refused is written": _what_was_refused_is_written,
    "a task runs on whose target is gone": _runs_on_whose_target_is_gone,
    "who could not is not asked again": _who_could_not_is_not_asked_again,
}
