"""What one worker has to say in its moves: a `Scribe` for each of them, and what is said only once.

Marks of a move begin from what a view shows of them, and are no business of this process any more when its record is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from elastic.migration.actions import Mark, WriteMarks
from elastic.migration.record import Marked
from elastic.migration.scribe import Scribe
from elastic.migration.view import EMPTY, View
from elastic.model.ids import Incarnation


class Scribes:
    """See the module.

    Args:
        me: The worker life whose marks they are.
    """

    __slots__ = ("_closing", "_me", "_of", "_refused", "_view")

    def __init__(self, me: Incarnation) -> None:
        self._me = me
        self._view: View = EMPTY
        self._of: dict[int, Scribe] = {}  # by the move's number
        self._refused: set[tuple[int, int]] = set()
        self._closing: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._of)

    def see(self, view: View) -> None:
        """Coordination was read: marks begin from that."""
        self._view = view
        for epoch, scribe in self._of.items():
            scribe.seen(self._mine(epoch))

    def add(self, mark: Mark) -> None:
        """Have a mark written, with the next of `writes`."""
        scribe = self._of.get(mark.epoch)
        if scribe is None:
            scribe = self._of[mark.epoch] = Scribe(mark.epoch)
            scribe.seen(self._mine(mark.epoch))
        scribe.add(mark)

    def refuse(self, epoch: int, task: int, reason: str) -> None:
        """Say, once, that the task cannot leave with that move."""
        if (epoch, task) not in self._refused:
            self._refused.add((epoch, task))
            self.add(Mark(epoch, task, "failed", reason=reason))

    def hurry(self, epoch: int) -> None:
        """What waits there for other tasks to be ready is written now: of one that is late nobody knows how long that takes."""
        scribe = self._of.get(epoch)
        if scribe is not None and not scribe.idle:
            scribe.urgent = True

    def close(self, busy: Collection[int]) -> None:
        """Say of moves that have ended that nothing of them is left here: only then may their records go. Forget those that have gone.

        Args:
            busy: The moves that tasks here still have a role in.
        """
        for move in self._view.moves:
            epoch, mine = move.record.epoch, move.marks.get(self._me)
            if (
                mine is None
                or mine.marks.closed
                or epoch in self._closing
                or epoch in busy
                or not move.record.settled
            ):
                continue
            self._closing.add(epoch)
            self.add(Mark(epoch, 0, "closed"))
        for gone in [e for e in self._of if self._view.latest >= e and self._view.move(e) is None]:
            del self._of[gone]
            self._refused = {r for r in self._refused if r[0] != gone}
            self._closing.discard(gone)

    def read(self, epoch: int, marked: Marked | None) -> Iterable[Mark]:
        """After a write: the marks that are accepted."""
        scribe = self._of.get(epoch)
        return scribe.read(marked) if scribe is not None else ()

    def writes(self, preparing: Callable[[int], bool]) -> tuple[tuple[WriteMarks, ...], ...]:
        """What is to be written now.

        Args:
            preparing: Whether tasks get ready here for that move, or fetch for it what was copied ahead. That the others are ready is
                said when all are: nobody goes on before. (Or when somebody is late, see `hurry`: the others do not go back with it.)
        """
        if not self._of:
            return ()
        return tuple(
            write
            for epoch, scribe in self._of.items()
            if (scribe.urgent or (not scribe.idle and not preparing(epoch))) and (write := scribe.write())
        )

    def _mine(self, epoch: int) -> Marked | None:
        move = self._view.move(epoch)
        return move.marks.get(self._me) if move is not None else None
