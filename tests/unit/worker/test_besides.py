"""Who has no room for what a task emits does not keep from others what it has emitted for them, nor for longer than it has to."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import Bolt, Fields, LocalCluster, Spout, TopologyBuilder
from elastic.worker.emitting import outputs
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing import task_queue
from elastic.worker.executing.executor import Executor

PATIENCE = 30.0
SOON = 0.5
ROOM = 4096


class _Both(Spout):
    """One tuple for who has nothing to do, and behind it more than there is room for at the other's, all in one call."""

    outputs = {"default": Fields(number=int), "others": Fields(number=int)}  # noqa: RUF012

    def next_tuple(self) -> None:
        self.emit_to("others", 0)
        self.emit_all([(n,) for n in range(4 * ROOM)])
        self.exhausted()


class _Full(Bolt):
    def execute(self, tup: Any) -> None:
        go_on.wait(PATIENCE)


class _Idle(Bolt):
    def execute(self, tup: Any) -> None:
        came.set()


go_on, came, blocked, again, begun = (threading.Event() for _ in range(5))


def came_while_blocked(patience: float) -> bool:
    go_on.clear()
    came.clear()
    b = TopologyBuilder("besides", queue_rows=ROOM, linger=PATIENCE)
    b.spout("both", _Both())
    b.bolt("full", _Full()).all_to_one("both")
    b.bolt("idle", _Idle()).all_to_one("both", stream="others")
    return came_within(patience, b)


def came_within(patience: float, b: TopologyBuilder) -> bool:
    """Run it until what is waited for has come; then nobody is held up any more."""
    with LocalCluster() as local:
        running = local.submit(b.build())
        try:
            return came.wait(patience)
        finally:
            go_on.set()
            again.set()
            running.wait(PATIENCE)


def test_what_is_for_others_does_not_wait_along() -> None:
    assert came_while_blocked(PATIENCE)


def test_an_emitter_that_keeps_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Outputs, "flush_besides", lambda self, full: None)
    assert not came_while_blocked(SOON)


BATCH = 512
WAIT, DONE = ROOM // BATCH, 2
"""Batches that wait, and that are executed."""
emitting = [0]
"""The number of the batch that is being emitted."""


class _Steps(Spout):
    """A batch for who is slow, and one tuple for who has nothing to do, by turns."""

    outputs = {"default": Fields(number=int), "others": Fields(number=int)}  # noqa: RUF012

    def next_tuple(self) -> None:
        for emitting[0] in range(2 * WAIT):
            n = emitting[0]
            self.emit_all([(n,)] * BATCH)
            self.emit_to("others", n)
        self.exhausted()


class _Slow(Bolt):
    """Nothing before its emitter waits for room, then some batches, and no more."""

    def prepare(self, context: Any) -> None:
        self.count = 0

    def execute(self, tup: Any) -> None:
        if not self.count:
            blocked.wait(PATIENCE)
            begun.wait(PATIENCE)  # the other one is at work when its emitter waits again
        self.count += 1
        if self.count > DONE * BATCH:
            go_on.wait(PATIENCE)


class _Counts(Bolt):
    """At its first tuple until its emitter waits with all that there is room for: it has room, and something to do."""

    def execute(self, tup: Any) -> None:
        begun.set()
        again.wait(PATIENCE)
        if tup.number == WAIT + DONE - 1:
            came.set()


def goes_on_when_some_is_done(monkeypatch: pytest.MonkeyPatch, patience: float) -> bool:
    for event in (go_on, came, blocked, again, begun):
        event.clear()
    emitting[0] = 0
    begin = Executor.begin_blocked

    def begins(self: Executor, at: Any) -> None:
        begin(self, at)
        blocked.set()
        # Not when it waits after the first of those batches: it need not have heard of the second one.
        if emitting[0] == WAIT + DONE:
            again.set()

    monkeypatch.setattr(Executor, "begin_blocked", begins)
    b = TopologyBuilder("some", queue_rows=ROOM, batch_rows=BATCH, linger=PATIENCE)
    b.spout("both", _Steps())
    b.bolt("slow", _Slow()).all_to_one("both")
    b.bolt("counts", _Counts()).all_to_one("both", stream="others")
    return came_within(patience, b)


def test_whoever_waits_goes_on_as_soon_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert goes_on_when_some_is_done(monkeypatch, PATIENCE)


def test_an_emitter_that_waits_until_half_is_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(task_queue, "FREE", 2)
    assert not goes_on_when_some_is_done(monkeypatch, SOON)


def test_an_emitter_that_keeps_what_is_for_a_task_at_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Outputs, "_offer", lambda self, out: None)
    assert not goes_on_when_some_is_done(monkeypatch, SOON)


def deepest_of(count: int) -> tuple[int, int]:
    """Of so many targets that have nothing to do, and no room either by the time that something comes: how many waits are within each
    other, and to how many nothing was offered."""
    made: Any = Outputs.__new__(Outputs)
    made._waits, depth, offered = 0, [0], set[int]()
    idle = SimpleNamespace(hungry=lambda: True)
    made._list = [SimpleNamespace(rows=[n], handing=0, destination=idle, number=n) for n in range(count)]

    def takes(out: Any) -> None:
        offered.add(out.number)
        out.rows.clear()

    def waits(out: Any, most: int | None = None) -> None:
        takes(out)
        depth[0] = max(depth[0], made._waits)
        out.handing += 1
        made.flush_besides(out)
        out.handing -= 1

    made._flush, made._offer = waits, takes
    waits(made._list[0])
    return depth[0], count - len(offered)


def test_of_thousands_without_room_each_does_not_wait_within_the_one_before() -> None:
    assert deepest_of(3_000) == (outputs.WITHIN, 0)


def test_waits_without_a_bound_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(outputs, "WITHIN", 1_000_000)
    with pytest.raises(RecursionError):
        deepest_of(3_000)
