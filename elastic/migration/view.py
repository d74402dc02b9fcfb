"""What a worker has read of coordination, in one piece.

How it must be read, within one session: `latest`, then the records, then the marks, then the places and the living workers; each
part may be newer than those before it, never older. A worker that was just started, and one that is about to start a task without
state, reads everything anew (after a `sync`) before the task runs. Nothing is ever made up: without a connection there is no view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from elastic.migration.record import (
    SETTLED,
    STANDING_STILL,
    Marked,
    MoveRecord,
    Outcome,
    Phase,
    ReadMove,
    SavedMark,
    TaskMove,
    differences,
    stage_of,
    told,
)
from elastic.model.ids import Epoch, Incarnation, WorkerId, worker_of

NOBODY = Incarnation("")
_OPEN = (Phase.WAITING, Phase.PREPARING, Phase.PAUSED, Phase.SAVED)


class Standing(NamedTuple):
    """Where one task stands, by its newest move.

    Attributes:
        epoch: Of that move; 0 when it is in none.
        owner: The living worker life that may run it; NOBODY when there is none (it is in the stores, or lost its worker).
    """

    epoch: int
    phase: Phase
    attempt: int
    owner: Incarnation
    move: TaskMove | None
    saved: SavedMark | None


@dataclass(frozen=True)
class MoveView(ReadMove):
    """A move as it was read."""

    record: MoveRecord
    marks: Mapping[Incarnation, Marked] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """See the module.

    Attributes:
        number: Grows with every view of one reader.
        latest: The number of the newest move that has ever been begun.
        moves: Those that have a record.
        places: Each task's worker, as the assignment says.
        living: Each worker's registered life.
    """

    number: int
    latest: int
    moves: tuple[MoveView, ...]
    places: Mapping[int, WorkerId]
    living: Mapping[WorkerId, Incarnation]

    @cached_property
    def standing(self) -> dict[int, Standing]:
        """Every task's, by the newest move that has it."""
        places, living = self.places, self.living
        result = {t: Standing(0, Phase.NONE, 0, living.get(w, NOBODY), None, None) for t, w in places.items()}
        for view in self._in_order:
            for task in view.record.tasks:
                result[task.task] = self._in_move(view, task)
        return result

    @cached_property
    def _in_order(self) -> list[MoveView]:
        return sorted(self.moves, key=lambda m: m.record.epoch)

    def _in_move(self, view: MoveView, task: TaskMove) -> Standing:
        phase, saved = stage_of(task, view.record, view.marks, view.turn)
        if phase in SETTLED:
            owner = self.living.get(self.places.get(task.task, WorkerId("")), NOBODY)
        elif phase is Phase.SAVED:
            owner = NOBODY
        else:
            owner = self._living(task.target if phase is Phase.RESTORED else task.source)
        return Standing(view.record.epoch, phase, task.attempt, owner, task, saved)

    def follows(self, before: View) -> None:
        """Take over from a view that was read before this one what is as it was: each step of one task is a view, and hundreds may move."""
        if (
            self.places is not before.places
            or self.living != before.living
            or [m.record.epoch for m in self._in_order] != [m.record.epoch for m in before._in_order]
        ):
            return
        if self.same_records(before):
            self.__dict__["_parts"] = before._parts
        said = {
            t
            for was, now in zip(before._in_order, self._in_order, strict=True)
            for t in differences(was.read, now.read)
        }
        standing, changed = dict(before.standing), list[int]()
        for task in sorted(said):
            view = next((m for m in reversed(self._in_order) if (m.record.epoch, task) in self._parts), None)
            if view is not None:
                at = self._in_move(view, self._parts[view.record.epoch, task])
                if standing.get(task) != at:
                    standing[task] = at
                    changed.append(task)
        # As the cached properties keep it.
        self.__dict__["standing"], self.__dict__["_since"] = standing, (before.standing, changed)

    def same_records(self, before: View) -> bool:
        """Whether no record of a move was read anew since that view."""
        return len(self.moves) == len(before.moves) and all(
            a.record is b.record for a, b in zip(self.moves, before.moves, strict=True)
        )

    def _living(self, owner: Incarnation) -> Incarnation:
        return owner if self.living.get(worker_of(owner)) == owner else NOBODY

    def with_restored(self, heard: Mapping[int, tuple[int, int]]) -> View:
        """The same, with what is known to be in marks that may have been read before that: tasks that are restored.

        Args:
            heard: The move and the attempt of each.
        """
        known: dict[int, Standing] = {}
        for task, what in heard.items():
            at = self.stands(task)
            if at.move is not None and (at.epoch, at.attempt) == what and at.phase in _OPEN:
                known[task] = at._replace(phase=Phase.RESTORED, owner=self._living(at.move.target))
        if not known:
            return self
        made, standing, turns = replace(self), {**self.standing, **known}, dict(self.turns)
        for move in self.moves:
            epoch = move.record.epoch
            if not any(at.epoch == epoch for at in known.values()):
                continue
            turn = turns[epoch] = _turn_of(move.record, standing)
            for part in move.record.of_batch(turn):
                at = standing[part.task]
                if at.epoch == epoch and at.phase in (Phase.WAITING, Phase.PREPARING):
                    standing[part.task] = at._replace(phase=told(part, move.record, turn))
        # As the cached properties keep them.
        made.__dict__["standing"], made.__dict__["turns"] = standing, turns
        return made

    @cached_property
    def turns(self) -> Mapping[int, int]:
        """The batch whose turn it is, of each move that has a record."""
        return {m.record.epoch: m.turn for m in self.moves}

    def whose_turn(self, epoch: int) -> tuple[TaskMove, ...]:
        """The tasks under way of that move whose turn it is."""
        move = self.move(epoch)
        return move.record.of_batch(self.turns[epoch]) if move is not None else ()

    def shows(self, task: int, epoch: int, attempt: int) -> bool:
        """Whether that attempt of the move to restore the task is seen to be over: it is restored, or there has been another since."""
        at = self.stands(task)
        return self.ended(task, epoch) or (
            at.epoch == epoch and (at.phase is Phase.RESTORED or at.attempt > attempt)
        )

    @cached_property
    def standing_still(self) -> int:
        """How many tasks do."""
        return sum(at.phase in STANDING_STILL for at in self.standing.values())

    @cached_property
    def _parts(self) -> dict[tuple[int, int], TaskMove]:
        return {(m.record.epoch, t.task): t for m in self.moves for t in m.record.tasks}

    def part(self, task: int, epoch: int) -> TaskMove | None:
        """The task's part of that move, if the move has a record."""
        return self._parts.get((epoch, task))

    def stands(self, task: int) -> Standing:
        """Where that task stands; in no move and with nobody when it is unknown."""
        return self.standing.get(task) or Standing(0, Phase.NONE, 0, NOBODY, None, None)

    @cached_property
    def _since(self) -> tuple[Mapping[int, Standing], Sequence[int]]:
        """How all tasks stood at some time, and those that do not stand so."""
        return {}, list(self.standing)

    def changed(self, before: Mapping[int, Standing]) -> Sequence[int]:
        """The tasks that do not stand as they did then. (Of one that is not known any more nothing is said.)"""
        since, changed = self._since
        if since is before:
            return changed
        return [t for t, at in self.standing.items() if (was := before.get(t)) is not at and was != at]

    def elsewhere(self, before: View) -> tuple[int, ...]:
        """Tasks that another worker life may run than in that view."""
        was, now = before.standing, self.standing
        return tuple(t for t in self.changed(was) if t in was and was[t].owner != now[t].owner)

    def ended(self, task: int, epoch: int) -> bool:
        """Whether that move is over for the task: it has an outcome, is followed by another, or its record is gone."""
        at = self.stands(task)
        if at.epoch == epoch:
            return at.phase in SETTLED
        return at.epoch > epoch or self.latest >= epoch

    def stayed(self, task: int, epoch: int) -> bool:
        """Whether the task has stayed where it was by that move, as its record says. Not known any more when that is gone."""
        outcomes = (
            t.outcome for m in self.moves if m.record.epoch == epoch for t in m.record.tasks if t.task == task
        )
        return any(o is Outcome.ROLLED_BACK for o in outcomes)

    def absent(self, task: int) -> bool:
        """Whether no process runs the task, nor will without starting it anew: no fence can come from it.

        Of a task in a move only the outcome says so, or its `restored`: until then a new side may have its state already, whatever
        has become of the old one.
        """
        at = self.stands(task)
        return at.owner == NOBODY and at.phase not in _OPEN

    def may_start(self, task: int, me: Incarnation) -> bool:
        """Whether that worker life is to start the task by itself, without what a move brings.

        Where that task has run before and is stateful, its state is gone; whoever starts it says so.
        """
        at = self.stands(task)
        return at.owner == me and (at.phase is Phase.NONE or at.phase in SETTLED)

    def move(self, epoch: int) -> MoveView | None:
        """The move of that number, if it has a record."""
        return next((m for m in self.moves if m.record.epoch == epoch), None)


def _turn_of(record: MoveRecord, standing: Mapping[int, Standing]) -> int:
    """The batch whose turn it is when more is known than the marks say: how tasks stand. Of one in a newer move this one is over."""

    def waits(task: TaskMove) -> bool:
        at = standing[task.task]
        return at.epoch == record.epoch and at.phase is not Phase.RESTORED

    return record.first_batch(waits)


EMPTY = View(-1, Epoch(0), (), {}, {})
