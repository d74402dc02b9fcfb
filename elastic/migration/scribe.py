"""Writes one worker's marks in one move: grouped, one write at a time, on condition of the version.

While a write is under way, further marks gather for the next one: a thousand tasks that become ready together are a few writes, not a
thousand. After every write, whatever became of it, what is there is read: what of ours is in it has been accepted; what Nimbus has
refused is dropped (the record says what follows from that); the rest is written again.
"""

from __future__ import annotations

from dataclasses import replace

from elastic.migration.actions import Mark, WriteMarks
from elastic.migration.record import FailedMark, Marked, Marks, SavedMark


class Scribe:
    """See the module."""

    __slots__ = ("_base", "_pending", "_writing", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._base: Marked | None = None
        self._pending: list[Mark] = []
        self._writing = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._pending

    def seen(self, marked: Marked | None) -> tuple[WriteMarks, ...]:
        """Our marks as a view shows them: where to begin."""
        if (
            marked is not None
            and (self._base is None or marked.version > self._base.version)
            and not self._writing
        ):
            self._base = marked
            return self._write()
        return ()

    def add(self, mark: Mark) -> tuple[WriteMarks, ...]:
        """Have a mark written."""
        self._pending.append(mark)
        return self._write()

    def read(self, marked: Marked | None) -> tuple[list[Mark], tuple[WriteMarks, ...]]:
        """After a write: (the marks that are accepted, what to write next)."""
        self._writing = False
        if marked is None:  # the move is over
            self._pending.clear()
            self._base = None
            return [], ()
        self._base = marked
        accepted = [m for m in self._pending if _has(marked.marks, m)]
        self._pending = [m for m in self._pending if m not in accepted and not _refused(marked.marks, m)]
        return accepted, self._write()

    def _write(self) -> tuple[WriteMarks, ...]:
        if self._writing or self._base is None or not self._pending:
            return ()
        marks = self._base.marks
        for mark in self._pending:
            if not _refused(marks, mark):
                marks = _with(marks, mark)
        self._writing = True
        return (WriteMarks(self.epoch, marks, self._base.version),)


def _with(marks: Marks, mark: Mark) -> Marks:
    task = mark.task
    match mark.what:
        case "asked":
            return replace(marks, asked=tuple(sorted({*marks.asked, task})))
        case "saved":
            return replace(marks, saved={**marks.saved, task: SavedMark(mark.nodes, mark.size)})
        case "prepared":
            return replace(marks, prepared={**marks.prepared, task: mark.attempt})
        case "restored":
            return replace(marks, restored={**marks.restored, task: mark.attempt})
        case "closed":
            return replace(marks, closed=True)
        case _:
            return replace(
                marks, failed={**marks.failed, task: FailedMark(mark.attempt, mark.reason, mark.gone)}
            )


def _has(marks: Marks, mark: Mark) -> bool:
    task = mark.task
    match mark.what:
        case "asked":
            return task in marks.asked
        case "saved":
            return task in marks.saved
        case "prepared":
            return marks.prepared.get(task) == mark.attempt
        case "restored":
            return marks.has_restored(task, mark.attempt)
        case "closed":
            return marks.closed
        case _:
            return task in marks.failed and marks.failed[task].attempt == mark.attempt


def _refused(marks: Marks, mark: Mark) -> bool:
    if mark.what == "saved":
        return mark.task in marks.barred
    return mark.attempt > 0 and marks.revoked.get(mark.task, 0) >= mark.attempt
