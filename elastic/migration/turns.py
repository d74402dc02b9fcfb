"""Whose turn it is to stand still, as one worker process follows it: batch after batch, and the stream rests before each but the first."""

from __future__ import annotations

from elastic.migration.actions import Rest
from elastic.migration.record import STANDING_STILL, Phase
from elastic.migration.view import Standing, View


class Turns:
    """Of all moves that there is a record of."""

    __slots__ = ("_awaited", "_rested")

    def __init__(self) -> None:
        self._awaited: dict[int, int] = {}  # move -> the batch whose turn it is, or will be after a rest
        self._rested: dict[int, int] = {}  # move -> the last batch before which the stream has rested

    def follow(self, view: View) -> tuple[Rest, ...]:
        """The rests that begin with that view. Before the first batch of a move there is nothing to work off."""
        batches: dict[int, int] = {m.record.epoch: m.record.batches for m in view.moves}
        turns = {epoch: turn for epoch, turn in view.turns.items() if turn < batches[epoch]}
        for over in self._awaited.keys() - turns.keys():
            del self._awaited[over]
            self._rested.pop(over, None)
        begin = [(epoch, batch) for epoch, batch in turns.items() if self._awaited.get(epoch, 0) < batch]
        self._awaited.update(begin)
        return tuple(Rest(epoch, batch) for epoch, batch in begin)

    def rested(self, epoch: int, batch: int) -> bool:
        """A rest is over; returns whether it is that batch's turn now. Others may have gone on meanwhile."""
        if self._awaited.get(epoch) != batch:
            return False
        self._rested[epoch] = batch
        return True

    @staticmethod
    def is_near(at: Standing) -> bool:
        """Whether it is the turn of a task that stands so, after a rest at most."""
        return at.phase in STANDING_STILL

    def has_come(self, at: Standing) -> bool:
        """Whether a task that stands so does stand still, or is to: not before the rest, unless it has come farther by itself."""
        if at.phase is not Phase.PAUSED:
            return at.phase in STANDING_STILL
        return at.move is not None and at.move.batch <= self._rested.get(at.epoch, 0)
