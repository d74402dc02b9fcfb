"""A mark that cannot be written as it is keeps no other mark of its worker from being written."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elastic.cluster import worker_marks
from elastic.cluster.worker_marks import MarksWriter
from elastic.coordination import _checks, paths
from elastic.coordination.base import Versioned
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.errors import NotConnected, Refused
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
def written(
    before: Callable[[Marks], None] = lambda _: None, free: Callable[[Marks], bool] = lambda _: False
) -> Iterator[tuple[Scribe, _Drive]]:
    session = MemoryZooKeeper().connect()
    session.create(AT, encode_marks(Marks(ME)))
    read: queue.SimpleQueue[ev.MarksRead] = queue.SimpleQueue()
    told: list[tuple[str, Versioned]] = []
    writer = MarksWriter(
        session, NAME, ME, before, read.put, lambda path, value: told.append((path, value)), free
    )
    scribe = Scribe(int(EPOCH))
    writer.start()
    connected = threading.Event()
    # After the writer has: what it does of its own accord from here on nobody has told it to.
    session.watch_session(lambda state: connected.set())
    assert connected.wait(20.0)

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
    assert told[-1] == (AT, stored), "who reads coordination is told of what this worker has written"
    assert there.closed and there.saved.keys() == {7} and there.failed
    assert all(len(f.reason) <= REASON + 3 for f in there.failed.values())


def end(scribe: Scribe, drive: _Drive) -> None:
    """What is there when all is well (`written`)."""
    scribe.add(ac.Mark(1, 7, "saved", nodes=(NodeId("a"),), size=1))
    scribe.add(ac.Mark(1, 0, "closed"))
    drive()


def mark_all(scribe: Scribe, drive: _Drive) -> None:
    scribe.add(ac.Mark(1, 8, "failed", 1, reason="it does not want to"))
    drive()
    end(scribe, drive)


def unanswered(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[MemoryCoordination, str, str], bool]
) -> None:
    """Have those reads and writes fail of which `fails` says so, by session, name and path."""
    real = {name: getattr(MemoryCoordination, name) for name in ("get", "set")}

    def instead_of(name: str) -> Callable[..., object]:
        def asked(self: MemoryCoordination, path: str, *arguments: object, **options: object) -> object:
            if fails(self, name, path):
                raise NotConnected("no answer")
            return real[name](self, path, *arguments, **options)

        return asked

    for name in real:
        monkeypatch.setattr(MemoryCoordination, name, instead_of(name))


@pytest.mark.parametrize(
    "reasons", [[CANNOT_BE_ENCODED], ["x" * 2000] * 600, ["\udcff" * 2000] * 300, ["\0" * 2000] * 300]
)
def test_whatever_user_code_raises_the_other_marks_are_written(reasons: list[str]) -> None:
    with written() as (scribe, drive):
        for number, reason in enumerate(reasons):
            scribe.add(ac.Mark(1, 100 + number, "failed", 1, reason=reason))
        drive()
        end(scribe, drive)


def test_marks_are_written_after_a_fault_that_nothing_tells_the_end_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_marks, "_PAUSE", 0.01)
    faults = [ValueError("planted"), ValueError("planted")]

    def before(marks: Marks) -> None:
        if faults:
            raise faults.pop()

    with written(before) as (scribe, drive):
        mark_all(scribe, drive)
    assert not faults


def test_reasons_are_left_out_where_there_is_no_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "MAX_BYTES", 20_000)
    with written() as (scribe, drive):
        for number in range(100):
            scribe.add(ac.Mark(1, 100 + number, "failed", 1, reason="x" * 200))
        end(scribe, drive)


def test_marks_are_written_after_answers_that_did_not_come_although_the_session_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither to the write nor to the question after it; and nothing says that the connection is back, as it never was away."""
    monkeypatch.setattr(worker_marks, "_PAUSE", 0.01)
    faults: list[str] = []

    def fails(session: MemoryCoordination, name: str, path: str) -> bool:
        if fault := bool(faults and path.startswith(paths.moves(NAME))):
            faults.pop()
        return fault

    unanswered(monkeypatch, fails)
    with written() as (scribe, drive):
        faults += ["set", "get"]
        scribe.add(ac.Mark(1, 8, "failed", 1, reason="it does not want to"))
        drive()
        assert not faults
        end(scribe, drive)


def test_marks_are_written_as_soon_as_the_connection_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_marks, "_PAUSE", 1e6)
    faults, sessions = ["set", "get"], list[MemoryCoordination]()

    def come_back() -> None:
        (session,) = sessions
        session._server.suspend(session)
        session._server.resume(session)

    comes_back = threading.Thread(target=come_back)

    def fails(session: MemoryCoordination, name: str, path: str) -> bool:
        if fault := threading.current_thread().name == "marks" and faults[:1] == [name]:
            faults.pop(0)
            if not faults:
                sessions.append(session)
                comes_back.start()
        return fault

    unanswered(monkeypatch, fails)
    with written() as (scribe, drive):
        mark_all(scribe, drive)
    comes_back.join()
    assert not faults


def test_what_somebody_else_has_written_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    real, values = MemoryCoordination.set, list[bytes]()

    def late(self: MemoryCoordination, path: str, data: bytes, **options: Any) -> int:
        if not values:
            found = self.get(path)
            assert found is not None
            real(self, path, encode_marks(decode_marks(found.data).bar(9)))
        values.append(data)
        return real(self, path, data, **options)

    monkeypatch.setattr(MemoryCoordination, "set", late)
    with written() as (scribe, drive):
        mark_all(scribe, drive)
    assert decode_marks(values[-1]).barred == (9,)


def test_marks_before_which_nothing_is_written_are_begun_by_who_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: set[str] = set()
    begin = MemoryCoordination.begin_set

    def notes(self: MemoryCoordination, *arguments: object, **options: Any) -> None:
        threads.add(threading.current_thread().name)
        begin(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryCoordination, "begin_set", notes)
    monkeypatch.setattr(MarksWriter, "_write", lambda self, action: pytest.fail("nobody is to be woken"))
    with written(free=lambda marks: True) as (scribe, drive):
        mark_all(scribe, drive)
    assert threads == {threading.current_thread().name}


@pytest.mark.parametrize(
    "fault", ["no connection", "no answer", "done, and no answer", "somebody else", "no room"]
)
def test_marks_that_cannot_be_written_at_once_are_written_all_the_same(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    begin = MemoryCoordination.begin_set
    faults = [fault]

    def lost() -> int:
        raise NotConnected("no answer")

    def fails(self: MemoryCoordination, path: str, data: bytes, *, version: int, then: Any) -> None:
        if not faults:
            begin(self, path, data, version=version, then=then)
            return
        faults.pop()
        match fault:
            case "no connection":
                raise NotConnected("planted")
            case "no room":
                raise Refused("planted")
            case "somebody else":
                found = self.get(path)
                assert found is not None
                self.set(path, found.data)
                begin(self, path, data, version=version, then=then)
            case "done, and no answer":
                begin(self, path, data, version=version, then=lambda _: then(lost))
            case _:
                then(lost)

    monkeypatch.setattr(MemoryCoordination, "begin_set", fails)
    with written(free=lambda marks: True) as (scribe, drive):
        mark_all(scribe, drive)
    assert not faults
