"""That a move is removed is heard of each of its nodes for itself, of some of them sooner than of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elastic.cluster import worker_moves
from elastic.cluster.worker_moves import Mirror, ViewReader
from elastic.coordination import paths
from elastic.coordination.base import Create, Delete, Looked, Set, Watch
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.migration.record import Marks, MoveRecord, TaskMove, encode_marks
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName

NAME, EPOCH, A, B = TopologyName("t"), Epoch(1), Incarnation("t@a/0#1"), Incarnation("t@b/0#1")
RECORD = MoveRecord(NAME, EPOCH, "test", (TaskMove(TaskId(7), "c", A, B, NodeId("a"), NodeId("b")),))
LIST, RECORD_AT = (paths.moves(NAME), True), (paths.move(NAME, EPOCH), False)
MARKS_AT = [(paths.move_marks(NAME, EPOCH, i), False) for i in (A, B)]


class _Slow:
    """A session of which some watches have not said yet that anything has changed."""

    def __init__(self, session: MemoryCoordination, silent: set[tuple[str, bool]]) -> None:
        self._session, self._silent, self.removed = session, silent, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def watch_value(self, path: str, given: Callable[[Any], None], **more: Any) -> Watch:
        return self._session.watch_value(
            path, self._of((path, False), given), **self._all((path, False), more)
        )

    def watch_children(self, path: str, given: Callable[[Any], None], **more: Any) -> Watch:
        return self._session.watch_children(
            path, self._of((path, True), given), **self._all((path, True), more)
        )

    def _all(self, key: tuple[str, bool], more: dict[str, Any]) -> dict[str, Any]:
        return {**more, "early": self._of(key, more["early"])}

    def _of(self, key: tuple[str, bool], call: Callable[..., None]) -> Callable[..., None]:
        def says(*what: Any) -> None:
            if not (key in self._silent and self.removed.is_set()):
                call(*what)

        return says


def sees_the_end(silent: set[tuple[str, bool]]) -> None:
    server, seen, changed = MemoryZooKeeper(), list[View](), threading.Condition()
    nimbus, mine = server.connect(), _Slow(server.connect(), silent)
    nimbus.create(paths.moves(NAME), b"1")
    nimbus.create(RECORD_AT[0], codec.encode(RECORD))
    for (path, _), one in zip(MARKS_AT, (A, B), strict=True):
        nimbus.create(path, encode_marks(Marks(one)))

    def on_view(view: View, workers: object) -> None:
        with changed:
            seen.append(view)
            changed.notify_all()

    def until(there: bool) -> None:
        with changed:
            assert changed.wait_for(lambda: seen and (seen[-1].move(EPOCH) is not None) is there, 5.0)

    reader = ViewReader(mine, NAME, on_view, A)  # type: ignore[arg-type]
    reader.start()
    try:
        until(True)
        mine.removed.set()
        nimbus.transaction([*(Delete(path) for path, _ in MARKS_AT), Delete(RECORD_AT[0])])
        until(False)
    finally:
        reader.close()
        nimbus.close()
        mine.close()


SLOW = [
    {LIST},
    {RECORD_AT},
    {LIST, RECORD_AT},
    {*MARKS_AT, RECORD_AT},
    {*MARKS_AT, LIST},
    {MARKS_AT[0], LIST, RECORD_AT},
]


@pytest.mark.parametrize("silent", SLOW)
def test_a_move_that_is_heard_to_be_removed_in_parts_is_gone(silent: set[tuple[str, bool]]) -> None:
    sees_the_end(silent)


def test_to_believe_the_parts_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Mirror, "doubt", lambda self, keys: None)
    with pytest.raises(AssertionError):
        sees_the_end({LIST})


class _Asked:
    """A session that notes which values were asked for beside its watches."""

    def __init__(self, session: MemoryCoordination) -> None:
        self._session = session
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def look(self, values: Sequence[str], children: Sequence[str]) -> Looked:
        self.asked += values
        return self._session.look(values, children)


@pytest.mark.parametrize("fault", [False, True])
def test_what_a_move_that_begins_consists_of_is_read_once(
    monkeypatch: pytest.MonkeyPatch, fault: bool
) -> None:
    """By what watches it from then on."""
    monkeypatch.setattr(worker_moves, "_ON_THEIR_WAY", 5.0)
    if fault:
        monkeypatch.setattr(Mirror, "await_values", lambda *arguments: None)
    server, begun = MemoryZooKeeper(), threading.Event()
    nimbus, mine = server.connect(), _Asked(server.connect())
    nimbus.create(paths.moves(NAME), b"0")

    def on_view(view: View, workers: object) -> None:
        if (move := view.move(EPOCH)) is not None and move.marks.keys() == {A, B}:
            begun.set()

    reader = ViewReader(mine, NAME, on_view, A)  # type: ignore[arg-type]
    reader.start()
    reader.read()
    try:
        mine.asked.clear()
        made = [
            Create(path, encode_marks(Marks(one))) for (path, _), one in zip(MARKS_AT, (A, B), strict=True)
        ]
        nimbus.transaction([Set(paths.moves(NAME), b"1"), Create(RECORD_AT[0], codec.encode(RECORD)), *made])
        assert begun.wait(5.0)
    finally:
        reader.close()
        nimbus.close()
        mine.close()
    assert ({RECORD_AT[0], *(path for path, _ in MARKS_AT)} & set(mine.asked) != set()) == fault
