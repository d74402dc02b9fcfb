"""The moves of one topology, followed by watches."""

from __future__ import annotations

import msgspec

from elastic.coordination import paths
from elastic.coordination.base import Versioned
from elastic.migration.record import Marked, Marks, MoveRecord, decode_marks
from elastic.model.ids import Epoch, Incarnation, TopologyName
from elastic.nimbus.observing.facts import MoveFacts
from elastic.nimbus.observing.followed import FollowedValue, Owner, log


def read_marks(path: str, found: Versioned, life: Incarnation) -> Marked:
    """The marks of a worker life at a path; none when nobody can read them."""
    try:
        return Marked(decode_marks(found.data) if found.data else Marks(life), found.version)
    except msgspec.MsgspecError as error:
        log.error("%s holds something that are no marks: %s", path, error)
        return Marked(Marks(life), found.version)


class FollowedMoves:
    """All moves of a topology that have a record, with their marks. `snapshot` is the newest moment at which all of it was known."""

    def __init__(self, owner: Owner, name: TopologyName) -> None:
        self.snapshot: dict[Epoch, MoveFacts] | None = None
        self._owner, self._name = owner, name
        self._listed = False
        self._moves: dict[Epoch, _Move] = {}
        self._latest = FollowedValue(owner, paths.moves(name), None)
        self._watch = owner.coordination.watch_children(paths.moves(name), self._on_children)

    def _on_children(self, names: tuple[str, ...]) -> None:
        with self._owner.changed:
            present = paths.epochs(names)
            for epoch in set(self._moves) - present:
                self._moves.pop(epoch).close()
            for epoch in present - set(self._moves):
                self._moves[epoch] = _Move(self._owner, self._name, epoch)
            self._listed = True
            self._owner.touch()

    def settle(self) -> None:
        """Take a new snapshot, if everything is known."""
        if self._listed and all(m.loaded for m in self._moves.values()):
            found = {e: m.facts() for e, m in sorted(self._moves.items())}
            self.snapshot = {e: f for e, f in found.items() if f is not None}

    @property
    def loaded(self) -> bool:
        return self._latest.loaded and self.snapshot is not None

    @property
    def latest(self) -> int:
        """The number of the newest move; 0 when there was none."""
        data = self._latest.value
        return int(data) if data and data.isdigit() else 0

    @property
    def latest_version(self) -> int:
        return self._latest.version

    def close(self) -> None:
        self._watch.cancel()
        self._latest.close()
        for move in self._moves.values():
            move.close()


class _Move:
    """One move: its record, and the marks of those that take part. There will be no other of its number."""

    def __init__(self, owner: Owner, name: TopologyName, epoch: Epoch) -> None:
        self._owner = owner
        self._path = paths.move(name, epoch)
        self._marks: dict[Incarnation, _MarksOf] = {}
        self._listed = False
        self._record = FollowedValue(owner, self._path, MoveRecord, until_gone=True)
        self._watch = owner.coordination.watch_children(self._path, self._on_children, until_gone=True)

    def _on_children(self, names: tuple[str, ...]) -> None:
        with self._owner.changed:
            present = {paths.life(n): n for n in names}
            for gone in set(self._marks) - set(present):
                self._marks.pop(gone).close()
            for new in set(present) - set(self._marks):
                self._marks[new] = _MarksOf(self._owner, f"{self._path}/{present[new]}", new)
            self._listed = True
            self._owner.touch()

    @property
    def loaded(self) -> bool:
        return self._record.loaded and self._listed and all(m.loaded for m in self._marks.values())

    def facts(self) -> MoveFacts | None:
        if self._record.value is None:
            return None  # it is just being removed
        marks = {i: m.marked for i, m in sorted(self._marks.items())}
        return MoveFacts(
            self._record.value, self._record.version, {i: m for i, m in marks.items() if m is not None}
        )

    def close(self) -> None:
        self._watch.cancel()
        self._record.close()
        for marks in self._marks.values():
            marks.close()


class _MarksOf:
    """The marks of one worker life."""

    def __init__(self, owner: Owner, path: str, life: Incarnation) -> None:
        self.loaded = False
        self.marked: Marked | None = None
        self._owner, self._path, self._life = owner, path, life
        self._watch = owner.coordination.watch_value(path, self._on_value, until_gone=True)

    def _on_value(self, found: Versioned | None) -> None:
        with self._owner.changed:
            self.marked = None if found is None else read_marks(self._path, found, self._life)
            self.loaded = True
            self._owner.touch()

    def close(self) -> None:
        self._watch.cancel()
