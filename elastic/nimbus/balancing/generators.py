"""Schedule generators: processes beside Nimbus that decide for it (T-Storm (2014), section IV.A), so that it need not compute itself.

    WAITING (others came before it)  ->  FIRST (it is asked)  ->  GONE (for ever; who comes again is last)

A generator has a seat for as long as its connection lasts. The first is asked; when it goes, or does not answer in time, or answers what
cannot be, its seat is taken away, Nimbus decides that time itself, and asks the next one from then on. So there is no moment in which
nobody decides, and none in which two do: only Nimbus carries anything out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from elastic.model.events import Event, Severity
from elastic.scheduler.question import Answer, Question

ANSWER_WITHIN = 10.0
"""Seconds that a decision may take: ten times what one of 10,000 executors may."""


class Seat:
    """One generator's place. Thread-safe."""

    def __init__(self, all_of: Generators, name: str) -> None:
        self._all = all_of
        self.name = name
        self.question: Question | None = None
        self.answered: Answer | None = None
        self.sent = False
        self.gone = ""
        """Why it has no seat any more; "" while it has."""

    def next(self, timeout: float) -> Question | None:
        """The next question, or None: none came within so many seconds, or the seat is gone."""
        return self._all.next(self, timeout)

    def answer(self, answer: Answer) -> None:
        """Answer the question that was given last."""
        self._all.answer(self, answer)

    def leave(self, why: str) -> None:
        """Give the seat up. Safe to call twice."""
        self._all.remove(self, why)


class Generators:
    """All of them. Thread-safe.

    Args:
        tell: Takes events.
        answer_within: Seconds.
    """

    def __init__(self, tell: Callable[[Event], None], answer_within: float = ANSWER_WITHIN) -> None:
        self._tell = tell
        self._within = answer_within
        self._changed = threading.Condition()
        self._seats: list[Seat] = []
        self._closed = False

    def names(self) -> tuple[str, ...]:
        """Who they are; the first one is asked."""
        with self._changed:
            return tuple(s.name for s in self._seats)

    def attach(self, name: str) -> Seat:
        """A seat, behind all others."""
        seat = Seat(self, name)
        with self._changed:
            if self._closed:
                seat.gone = "this Nimbus does not lead any more"
                return seat
            self._seats.append(seat)
            place = len(self._seats)
            self._changed.notify_all()
        does = "decides from now on" if place == 1 else f"stands by, behind {place - 1}"
        message = f"schedule generator {name} has come, and {does}"
        self._tell(Event(time.time(), "generator-joined", message, details={"name": name, "place": place}))
        return seat

    def ask(self, question: Question) -> tuple[Answer, Seat] | None:
        """Let the first one decide. Blocks, with a bound.

        Returns:
            Its answer; None when there is none, or it has not answered: then it has no seat any more.
        """
        with self._changed:
            seat = self._seats[0] if self._seats else None
            if seat is None:
                return None
            seat.question, seat.answered, seat.sent = question, None, False
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._closed or seat.gone != "" or seat.answered is not None, self._within
            )
            seat.question, found = None, seat.answered
            if self._closed or (seat.gone and found is None):
                return None
        if found is None:
            self.remove(seat, f"it has not answered within {self._within:g} s")
            return None
        if found.failure:
            self.remove(seat, found.failure)
            return None
        return found, seat

    def close(self) -> None:
        """All seats are gone, and nobody waits. Safe to call twice."""
        with self._changed:
            self._closed = True
            for seat in self._seats:
                seat.gone = "this Nimbus does not lead any more"
            self._seats.clear()
            self._changed.notify_all()

    # --- for seats

    def next(self, seat: Seat, timeout: float) -> Question | None:
        """See `Seat.next`."""
        with self._changed:
            self._changed.wait_for(
                lambda: seat.gone != "" or (seat.question is not None and not seat.sent), timeout
            )
            if seat.gone or seat.question is None or seat.sent:
                return None
            seat.sent = True
            return seat.question

    def answer(self, seat: Seat, answer: Answer) -> None:
        """See `Seat.answer`. What was not asked, or not any more, counts for nothing."""
        with self._changed:
            if seat.question is not None and seat.question.number == answer.number:
                seat.answered = answer
                self._changed.notify_all()

    def remove(self, seat: Seat, why: str) -> None:
        """See `Seat.leave`."""
        with self._changed:
            if seat.gone:
                return
            seat.gone = why
            self._seats.remove(seat)
            left = tuple(s.name for s in self._seats)
            self._changed.notify_all()
        who = f"{left[0]} decides from now on" if left else "Nimbus decides itself"
        self._tell(
            Event(
                time.time(),
                "generator-left",
                f"schedule generator {seat.name} is gone ({why}); {who}",
                Severity.WARNING,
                details={"name": seat.name, "why": why, "left": len(left)},
            )
        )
