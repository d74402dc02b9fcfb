"""The notifier of one move, on Nimbus (the seed's MigrationNotifier).

    WATCHING -> (something follows) WRITING -> (written) WATCHING ... -> (every task has its outcome) CLEANING -> CLOSING ->
    REMOVING -> ENDED

Where the move stands is in the record and the marks, not here: `Notifier.from_record(record, version)` goes on wherever another Nimbus
was. Promises: what is decided is written first, in one transaction with the assignment it changes; a task goes back only while its
`saved` and its `restored` can be refused in that same transaction; the stores are emptied only after every outcome is written, and the
record goes last, when nobody who lives needs it: a worker that was cut off learns its outcome from nothing else.
"""

from __future__ import annotations

from elastic.migration import events as ev
from elastic.migration.actions import CleanStores, Commit, RemoveRecord, Say, StartTimer
from elastic.migration.decide import Timer, decide
from elastic.migration.record import MoveRecord
from elastic.migration.role import Actions, Role
from elastic.migration.table import NOTIFIER, NotifierState


class Notifier(Role):
    """See the module."""

    table = NOTIFIER
    __slots__ = (
        "_abort",
        "_commit",
        "_expired",
        "_forced",
        "_open",
        "_says",
        "_started",
        "record",
        "version",
    )

    def __init__(self, record: MoveRecord, version: int) -> None:
        super().__init__()
        self.record, self.version = record, version
        self._abort, self._forced = "", False
        self._open = True
        self._commit: Commit | None = None
        self._says: tuple[Say, ...] = ()
        self._expired: set[Timer] = set()
        self._started: set[Timer] = set()

    @classmethod
    def from_record(cls, record: MoveRecord, version: int) -> Notifier:
        """The notifier of a move that is in coordination, whoever began it."""
        return cls(record, version)

    def __str__(self) -> str:
        return f"notifier of move {self.record.epoch} of topology {self.record.topology}"

    def _observed(self, event: ev.Observed) -> Actions:
        lives = {h.incarnation for h in event.hosts}
        self._open = any(i in lives and not m.marks.closed for i, m in event.marks.items())
        if self.state is NotifierState.CLOSING:
            return self._remove_if_closed()
        if self.state is not NotifierState.WATCHING:
            return ()
        if self.record.settled:
            return self._clean()
        record = self.record.ending(self._abort, force=self._forced) if self._abort else self.record
        decision = decide(record, self.version, event.marks, event.hosts, self._expired)
        timers = tuple(StartTimer(*t) for t in decision.timers if t not in self._started)
        self._started.update(decision.timers)
        commit = decision.commit
        if commit is None and record != self.record:
            commit = Commit(record, self.version)
        if commit is None:
            return timers
        self._commit, self._says = commit, decision.says
        self.state = NotifierState.WRITING
        return (*timers, commit)

    def _written(self, event: ev.RecordWritten) -> Actions:
        assert self._commit is not None
        self.record, self.version, self._commit = self._commit.record, event.version, None
        says, self._says = self._says, ()
        if self.record.settled:
            return (*says, *self._clean())
        self.state = NotifierState.WATCHING
        return says

    def _conflict(self, event: ev.RecordConflict) -> Actions:
        # Whatever had been decided was decided on an older record: maybe our own, whose fate was not known.
        self.record, self.version = event.record, event.version
        if self.state is NotifierState.REMOVING:
            return (RemoveRecord(self.record.epoch, self.version),)
        self._commit, self._says = None, ()
        self.state = NotifierState.WATCHING
        return ()

    def _clean(self) -> Actions:
        self.state = NotifierState.CLEANING
        return (CleanStores(self.record.epoch, self.record.nodes()),)

    def _cleaned(self, event: ev.StoresCleaned) -> Actions:
        return self._remove_if_closed()

    def _remove_if_closed(self) -> Actions:
        self.state = NotifierState.CLOSING if self._open else NotifierState.REMOVING
        return () if self._open else (RemoveRecord(self.record.epoch, self.version),)

    def _removed(self, event: ev.RecordRemoved) -> Actions:
        self.state = NotifierState.ENDED
        return ()

    def _aborted(self, event: ev.AbortAsked) -> Actions:
        # While a write of ours is under way, the next one conflicts, and the record is read anew.
        self._abort, self._forced = event.record.abort, event.record.forced
        if self.state is NotifierState.WATCHING:
            self.record, self.version = event.record, event.version
        return ()

    def _timer(self, event: ev.TimerFired) -> Actions:
        self._expired.add((event.kind, event.number))
        return ()

    doors = {  # noqa: RUF012
        ev.Observed: "_observed",
        ev.RecordWritten: "_written",
        ev.RecordConflict: "_conflict",
        ev.StoresCleaned: "_cleaned",
        ev.RecordRemoved: "_removed",
        ev.AbortAsked: "_aborted",
        ev.TimerFired: "_timer",
    }
