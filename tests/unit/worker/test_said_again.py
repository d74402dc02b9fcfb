"""Marks are said again to the new process of a target, whatever else happens at that moment: else it would wait for them for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.worker.batch import Mark
from elastic.worker.crossing import Out
from elastic.worker.outputs import Outputs
from tests.unit.worker.harness import InProcess, Numbers

PATIENCE = 20.0


class Lasting(Spout):
    """Emits nothing, and comes to its end when the test says so."""

    outputs = Fields(n=int)

    def next_tuple(self) -> float | None:
        if over.is_set():
            self.exhausted()
            return None
        return 0.01


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
        pass


over = threading.Event()


def test_end_is_said_to_a_target_that_starts_anew_while_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One target has heard it, and is gone, before it is said to the next."""
    over.clear()
    said, go_on = threading.Event(), threading.Event()
    put = Outputs._put

    def watched(self: Outputs, out: Out, item: Any) -> None:
        put(self, out, item)
        if self.component.id == "quick" and isinstance(item, Mark) and not said.is_set():
            assert self.emitter is not None
            self.emitter.flush_links()
            said.set()
            assert go_on.wait(PATIENCE)

    monkeypatch.setattr(Outputs, "_put", watched)
    b = TopologyBuilder("end-anew")
    b.spout("quick", Numbers(10))
    b.spout("lasting", Lasting())
    b.bolt("sink", Sink(), tasks=2).shuffle("quick").shuffle("lasting")
    with InProcess(b.build(), 2, place=lambda c, i: int(c == "sink")) as cluster:
        try:
            assert said.wait(PATIENCE)
            cluster.crash(1)
        finally:
            go_on.set()
            over.set()
        cluster.wait_finished(PATIENCE)
