"""What a life of a worker writes down is taken over by the next one, whatever that one does first."""

from __future__ import annotations

import os
import queue
from pathlib import Path
from typing import Any

import pytest

from elastic import Fields, KeyedState, Spout, StatefulBolt, TopologyBuilder
from elastic.cluster.worker_main import EXIT_SESSION, WorkerProcess
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.model import codec
from elastic.model.ids import Incarnation, WorkerId
from elastic.model.records import Progress


class Numbers(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        pass


class Count(StatefulBolt):
    counts: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        pass


W = WorkerId("t@n/0")
PATH = paths.worker_progress("t", W)  # type: ignore[arg-type]


@pytest.fixture
def life(tmp_path: Path) -> Any:
    b = TopologyBuilder("t")
    b.spout("numbers", Numbers())
    b.bolt("count", Count(), tasks=4).fields("numbers", "n")
    service = MemoryZooKeeper()
    coordination = service.connect()
    earlier = Progress(Incarnation(f"{W}#1"), 3, started=(2, 3), finished=(1,))  # type: ignore[arg-type]
    coordination.put(PATH, codec.encode(earlier))
    read, write = os.pipe()
    made: Any = WorkerProcess(
        spec=b.build().spec,
        id=W,
        incarnation=Incarnation(f"{W}#2"),
        coordination=coordination,
        store=None,  # type: ignore[arg-type]
        transport=None,  # type: ignore[arg-type]
        components=None,  # type: ignore[arg-type]
        report_fd=write,
        cycle=0,
    )
    made.said, made.service = [], service
    made.on_event = made.said.append
    yield made
    coordination.close()
    os.close(read)
    os.close(write)


def test_a_task_that_comes_first_does_not_wipe_out_what_was_started(life: Any) -> None:
    life._inherit()
    life.worker.will_start(4)  # a move brings it
    life._write_progress()
    stored = codec.decode(life._coordination.get(PATH).data, Progress)
    assert stored.incarnation == f"{W}#2"
    assert stored.started == (2, 3, 4) and stored.finished == (1,)
    life._say_lost({2, 3, 5})
    (event,) = life.said
    assert event.kind == "state-lost" and event.details["tasks"] == "2, 3"
    assert event.details["before"] == f"{W}#1"


def test_when_the_session_is_lost_the_process_ends_whatever_its_main_thread_is_at(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes the notices of this one: it might be within somebody's `prepare`."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    monkeypatch.setattr(os, "_exit", ended.put)
    life.service.expire(life._coordination)
    assert ended.get(timeout=30.0) == EXIT_SESSION
