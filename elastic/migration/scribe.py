"""Writes one worker's marks in one move: grouped, one write at a time, on condition of the version.

While a write is under way, or events that came together are worked off, further marks gather for the next one: a thousand tasks that
become ready together are a few writes, not a thousand. After every write, whatever became of it, what is there is read: what of ours is
in it has been accepted; what Nimbus has refused is dropped (the record says what follows from that); the rest is written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elastic.migration.actions import Mark, WriteMarks
from elastic.migration.record import REASON, FailedMark, Marked, Marks, SavedMark
from elastic.model.words import plain

_READY = ("asked", "ahead", "prepared", "fetched")
"""That a task is ready. Nimbus goes on when all of a batch are."""


class Scribe:
    """See the module.

    Attributes:
        urgent: Whether a mark waits that somebody may be waiting for although other tasks are not ready yet.
    """

    __slots__ = ("_base", "_pending", "_writing", "epoch", "urgent")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._base: Marked | None = None
        self._pending: list[Mark] = []
        self._writing = False
        self.urgent = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._pending

    def seen(self, marked: Marked | None) -> None:
        """Our marks as a view shows them: where to begin."""
        if marked is not None and (self._base is None or marked.version > self._base.version):
            self._base = marked  # while a write is under way that is of no use: what it leaves there is read

    def add(self, mark: Mark) -> None:
        """Have a mark written, with the next `write`."""
        self._pending.append(mark)
        self.urgent = self.urgent or mark.what not in _READY

    def read(self, marked: Marked | None) -> list[Mark]:
        """After a write: the marks that are accepted."""
        self._writing = False
        if marked is None:  # the move is over
            self._pending.clear()
            self._base = None
            self.urgent = False
            return []
        self._base = marked
        accepted = [m for m in self._pending if _has(marked.marks, m)]
        self._pending = [
            m for m in self._pending if not _has(marked.marks, m) and not _refused(marked.marks, m)
        ]
        self.urgent = any(m.what not in _READY for m in self._pending)
        return accepted

    def write(self) -> tuple[WriteMarks, ...]:
        """What is to be written now, if anything: everything that waits."""
        if self._writing or self._base is None or not self._pending:
            return ()
        self._writing = True
        return (WriteMarks(self.epoch, _with(self._base.marks, self._pending), self._base.version),)


def _with(marks: Marks, added: Iterable[Mark]) -> Marks:
    """The marks with those added that are not refused."""
    asked, ahead, saved = set(marks.asked), set(marks.ahead), dict(marks.saved)
    prepared, fetched, restored = dict(marks.prepared), dict(marks.fetched), dict(marks.restored)
    failed, closed = dict(marks.failed), marks.closed
    for mark in added:
        if _refused(marks, mark):
            continue
        task = mark.task
        match mark.what:
            case "asked":
                asked.add(task)
            case "ahead":
                ahead.add(task)
            case "saved":
                saved[task] = SavedMark(mark.nodes, mark.size)
            case "prepared":
                prepared[task] = mark.attempt
            case "fetched":
                fetched[task] = mark.attempt
            case "restored":
                restored[task] = mark.attempt
            case "closed":
                closed = True
            case _:
                failed[task] = FailedMark(
                    mark.attempt, plain(" ".join(mark.reason.split()), REASON), mark.gone, mark.final
                )
    return replace(
        marks,
        asked=tuple(sorted(asked)),
        ahead=tuple(sorted(ahead)),
        saved=saved,
        prepared=prepared,
        fetched=fetched,
        restored=restored,
        failed=failed,
        closed=closed,
    )


def _has(marks: Marks, mark: Mark) -> bool:
    task = mark.task
    match mark.what:
        case "asked":
            return task in marks.asked
        case "ahead":
            return task in marks.ahead
        case "saved":
            return task in marks.saved
        case "prepared":
            return marks.prepared.get(task) == mark.attempt
        case "fetched":
            return marks.fetched.get(task) == mark.attempt
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
