"""A mark that cannot be written as it is keeps no other mark of its worker from being written."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from elastic.cluster import worker_marks
from elastic.cluster.worker_marks import MarksWriter
from elastic.coordination import _checks, paths
from elastic.coordination.base import SessionState
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.errors import NotConnected
from elastic.migration import actions as ac
from elastic.migration import events as ev
from elastic.migration.record import REASON, Marks, decode_marks, encode_marks
from elastic.migration.scribe import Scribe
from elastic.model.ids import Epoch, Incarnation, NodeId, TopologyName

NAME, EPOCH, ME = TopologyName("t"), Epoch(1), Incarnation("t@a/0#1")
AT = paths.move_marks(NAME, EPOCH, ME)
CANNOT_BE_ENCODED = "FileNotFoundError: [Errno 2] No such file or directory: 'caf\udce9.txt'"
_Drive = Callable[[], None]
"""Writes what waits, and what waits then, until nothing does."""


@contextmanager
def written(before: Callable[[Marks], None] = lambda _: None) -> Iterator[tuple[Scribe, _Drive]]:
    session = MemoryZooKeeper().connect()
    session.create(AT, encode_marks(Marks(ME)))
    read: queue.SimpleQueue[ev.MarksRead] = queue.SimpleQueue()
    writer = MarksWriter(session, NAME, ME, before, read.put, lambda path, value: None)
    scribe = Scribe(int(EPOCH))
    writer.start()

    def drive() -> None:
        while orders := scribe.write():
            for order in orders:
                writer.write(order)
            scribe.read(read.get(timeout=20.0).marked)

    try:
        scribe.read(writer._read(int(EPOCH)))
        yield scribe, drive
    finally:
        writer.close()
        stored = session.get(AT)
        assert stored is not None
        there = decode_marks(stored.data)
        session.close()
    assert there.closed and there.saved.keys() == {7} and there.failed
    assert all(len(f.reason) <= REASON + 3 for f in there.failed.values())


@pytest.mark.parametrize(
    "reasons", [[CANNOT_BE_ENCODED], ["x" * 2000] * 600, ["\udcff" * 2000] * 300, ["\0" * 2000] * 300]
)
def test_whatever_user_code_raises_the_other_marks_are_written(reasons: list[str]) -> None:
    with written() as (scribe, drive):
        for number, reason in enumerate(reasons):
            scribe.add(ac.Mark(1, 100 + number, "failed", 1, reason=reason))
        drive()
        scribe.add(ac.Mark(1, 7, "saved", nodes=(NodeId("a"),), size=1))
        scribe.add(ac.Mark(1, 0, "closed"))
        drive()


def test_marks_are_written_after_a_fault_that_nothing_tells_the_end_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_marks, "_PAUSE", 0.01)
    faults = [ValueError("planted"), ValueError("planted")]

    def before(marks: Marks) -> None:
        if faults:
            raise faults.pop()

    with written(before) as (scribe, drive):
        scribe.add(ac.Mark(1, 8, "failed", 1, reason="it does not want to"))
        drive()
        scribe.add(ac.Mark(1, 7, "saved", nodes=(NodeId("a"),), size=1))
        scribe.add(ac.Mark(1, 0, "closed"))
        drive()
    assert not faults


def test_reasons_are_left_out_where_there_is_no_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "MAX_BYTES", 20_000)
    with written() as (scribe, drive):
        for number in range(100):
            scribe.add(ac.Mark(1, 100 + number, "failed", 1, reason="x" * 200))
        scribe.add(ac.Mark(1, 7, "saved", nodes=(NodeId("a"),), size=1))
        scribe.add(ac.Mark(1, 0, "closed"))
        drive()


def test_marks_are_written_after_answers_that_did_not_come_although_the_session_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither to the write nor to the question after it; and nothing says that the connection is back, as it never was away."""
    monkeypatch.setattr(worker_marks, "_PAUSE", 0.01)
    faults: list[str] = []
    real = {name: getattr(MemoryCoordination, name) for name in ("get", "set")}

    def fails(name: str) -> Callable[..., object]:
        def asked(self: MemoryCoordination, path: str, *arguments: object, **options: object) -> object:
            if faults and path.startswith(paths.moves(NAME)):
                faults.pop()
                raise NotConnected("no answer")
            return real[name](self, path, *arguments, **options)

        return asked

    for name in real:
        monkeypatch.setattr(MemoryCoordination, name, fails(name))
    told, on_session = threading.Event(), MarksWriter._on_session

    def hears(writer: MarksWriter, state: SessionState) -> None:
        on_session(writer, state)
        told.set()

    monkeypatch.setattr(MarksWriter, "_on_session", hears)
    with written() as (scribe, drive):
        assert told.wait(20.0)
        faults += ["set", "get"]
        scribe.add(ac.Mark(1, 8, "failed", 1, reason="it does not want to"))
        drive()
        assert not faults
        scribe.add(ac.Mark(1, 7, "saved", nodes=(NodeId("a"),), size=1))
        scribe.add(ac.Mark(1, 0, "closed"))
        drive()
