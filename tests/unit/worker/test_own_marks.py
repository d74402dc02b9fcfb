"""What a worker has written of its marks is in its next view without another question, and never hides what came later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from elastic.cluster.worker_moves import ViewReader
from elastic.coordination import paths
from elastic.coordination.base import Set, Versioned
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.migration.record import Marks, MoveRecord, Outcome, TaskMove, encode_marks
from elastic.migration.view import View
from elastic.model import codec
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName

NAME, EPOCH, ME, OTHER = TopologyName("t"), Epoch(1), Incarnation("t@b/0#1"), Incarnation("t@a/0#1")
RECORD = MoveRecord(NAME, EPOCH, "test", (TaskMove(TaskId(7), "c", OTHER, ME, NodeId("a"), NodeId("b")),))
RECORD_AT, MARKS_AT = paths.move(NAME, EPOCH), paths.move_marks(NAME, EPOCH, ME)
RESTORED = replace(Marks(ME), restored={7: 1})


class _World:
    """A reader whose watches say nothing more once they are deaf."""

    def __init__(self) -> None:
        server = MemoryZooKeeper()
        self.nimbus, self.mine = server.connect(), server.connect()
        self.nimbus.create(paths.moves(NAME), b"1")
        self.nimbus.create(RECORD_AT, codec.encode(RECORD))
        for one in (ME, OTHER):
            self.nimbus.create(paths.move_marks(NAME, EPOCH, one), encode_marks(Marks(one)))
        self.views: list[View] = []
        self.changed = threading.Condition()
        self.hears = threading.Event()
        self.hears.set()
        self.reader = ViewReader(self.mine, NAME, self._on_view, ME)
        self.reader.start()
        self.until(lambda v: v.move(EPOCH) is not None)

    def _on_view(self, view: View, workers: object) -> None:
        with self.changed:
            self.views.append(view)
            self.changed.notify_all()

    def until(self, so: object) -> View:
        assert callable(so)
        with self.changed:
            assert self.changed.wait_for(lambda: self.views and so(self.views[-1]), 30.0)
            return self.views[-1]

    def deafen(self) -> None:
        """From here on watches give no value: their thread is busy with this until the end."""
        deaf = threading.Event()

        def block(_: object) -> None:
            deaf.set()
            self.hears.wait(60.0)

        self.hears.clear()
        self.mine.watch_value("/deaf", block)
        assert deaf.wait(30.0)

    def mine_in(self, view: View) -> Marks:
        move = view.move(EPOCH)
        assert move is not None
        return move.marks[ME].marks

    def close(self, sessions: tuple[MemoryCoordination, ...] = ()) -> None:
        self.hears.set()
        self.reader.close()
        for session in (self.nimbus, self.mine):
            session.close()


@pytest.fixture
def world() -> Iterator[_World]:
    made = _World()
    yield made
    made.close()


def _write(world: _World) -> Versioned:
    data = encode_marks(RESTORED)
    return Versioned(data, world.mine.set(MARKS_AT, data, version=0))


def test_what_was_written_is_in_the_next_view_before_any_watch_has_said_so(world: _World) -> None:
    world.deafen()
    world.reader.wrote(MARKS_AT, _write(world))
    assert world.mine_in(world.until(lambda v: world.mine_in(v).restored)) == RESTORED


def test_what_nimbus_has_written_after_it_is_never_hidden(world: _World) -> None:
    world.deafen()
    world.reader.wrote(MARKS_AT, _write(world))
    world.until(lambda v: world.mine_in(v).restored)
    barred = RESTORED.bar(7)
    settled = replace(RECORD, tasks=(replace(RECORD.tasks[0], outcome=Outcome.ROLLED_BACK),))
    world.nimbus.transaction(
        [Set(RECORD_AT, codec.encode(settled), 0), Set(MARKS_AT, encode_marks(barred), 1)]
    )
    for _ in range(2):  # also not in the view after that
        world.reader.read()
        move = world.views[-1].move(EPOCH)
        assert move is not None and move.record == settled
        assert world.mine_in(world.views[-1]) == barred
