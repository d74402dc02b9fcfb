"""Who has no room for what a task emits does not keep from others what it has emitted for them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Bolt, Fields, LocalCluster, Spout, TopologyBuilder
from elastic.worker.outputs import Outputs

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


go_on, came = threading.Event(), threading.Event()


def came_while_blocked(patience: float) -> bool:
    go_on.clear()
    came.clear()
    b = TopologyBuilder("besides", queue_rows=ROOM, linger=PATIENCE)
    b.spout("both", _Both())
    b.bolt("full", _Full()).all_to_one("both")
    b.bolt("idle", _Idle()).all_to_one("both", stream="others")
    with LocalCluster() as local:
        running = local.submit(b.build())
        try:
            return came.wait(patience)
        finally:
            go_on.set()
            running.wait(PATIENCE)


def test_what_is_for_others_does_not_wait_along() -> None:
    assert came_while_blocked(PATIENCE)


def test_an_emitter_that_keeps_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Outputs, "flush_hungry", lambda self, besides: None)
    assert not came_while_blocked(SOON)
