"""What is held for a task that stands still is bounded by its bytes as well."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.migration import emitter
from elastic.migration import events as ev
from elastic.migration.actions import AskRoom, Send, Unblock
from elastic.migration.emitter import Emitter
from elastic.migration.snapshot import OutLink
from elastic.model.ids import Incarnation
from tests.unit.worker.moving_harness import Moving

SIZE, COUNT, MOST = 100_000, 100, 1_000_000
LIMIT = 60.0


def test_a_link_is_full_with_few_large_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "MOST_HELD", 10)
    link = Emitter(1, 2, 1, 1000)
    assert link.kept("a", 1, size=9) and not link.full
    assert link.kept("bb", 2, size=30) and link.full, "what makes it more goes in"
    assert not link.kept("c", 1, size=1)
    brought = Emitter(1, 2, 1, 1000, OutLink(2, 0, 0, tuple(link.buffer)))
    assert brought.full and brought.size == 39, "also where its task goes"
    assert AskRoom(1, 2) in link.handle(ev.Resume(1, 2, Incarnation("t@n/0#1")))
    first = link.handle(ev.Room(1, 2))
    assert isinstance(first[0], Send) and Unblock(1, 2) not in first
    assert Unblock(1, 2) in link.handle(ev.Room(1, 2)) and not link.full and link.size == 0


class Source(Spout):
    outputs = Fields(n=int, data=bytes)
    large = threading.Event()
    emitted = 0

    def prepare(self, context: Any) -> None:
        self.n = 0

    def next_tuple(self) -> float | None:
        if not Source.large.is_set():
            return 0.001
        if self.n == COUNT:
            self.exhausted()
            return None
        self.emit(self.n, bytes(SIZE))
        self.n = Source.emitted = self.n + 1
        return None


class Sink(Bolt):
    came: list[int] = []  # noqa: RUF012

    def execute(self, tup: Any) -> None:
        Sink.came.append(tup.n)


def held_most() -> int:
    """A store that takes its time, while large tuples are emitted to the task that is being saved. Returns the bytes held for it."""
    Source.large, Source.emitted, Sink.came = threading.Event(), 0, []
    b = TopologyBuilder("held", batch_rows=1)
    b.spout("src", Source())
    b.bolt("sink", Sink()).shuffle("src")
    with Moving(b.build(), 3, lambda component, index: int(component == "sink")) as cluster:
        (sink,) = cluster.processes[1].worker.tasks
        (source,) = cluster.processes[0].worker.tasks.values()
        saves, goes_on = cluster.stores.save_many, threading.Event()

        def takes_long(*of: Any) -> Any:
            Source.large.set()
            assert goes_on.wait(LIMIT)
            return saves(*of)

        cluster.stores.save_many = takes_long  # type: ignore[method-assign]
        mover = threading.Thread(target=cluster.move, args=({sink: 2},))
        mover.start()
        try:
            cluster.wait(
                lambda: Source.emitted == COUNT or bool(source.executor and source.executor.blocked_since)
            )
            link = source.outputs.outs[sink].link
            assert link is not None
            most = link.size
        finally:
            goes_on.set()
            mover.join(LIMIT)
        cluster.wait_finished(LIMIT)
    assert Sink.came == list(range(COUNT))
    return most


def test_an_emitter_waits_before_it_holds_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "MOST_HELD", MOST)
    assert MOST <= held_most() <= MOST + 2 * SIZE


def test_that_only_tuples_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(emitter, "MOST_HELD", 1 << 60)
    assert held_most() > 2 * MOST
