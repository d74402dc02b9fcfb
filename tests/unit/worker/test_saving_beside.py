"""What stands still is saved while others are copied ahead, however long that takes."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder
from elastic.migration import decide
from elastic.migration.record import Outcome, state_key
from elastic.migration.view import View
from elastic.model.ids import ComponentId
from elastic.worker.moving import saving
from elastic.worker.moving.saving import Saving
from tests.unit.worker.moving_harness import Moving, Nimbus

PATIENCE = 20.0
BATCH = 2


class Numbers(StatefulSpout):
    """Emits nothing. Who emits to a task that moves has a part in its pause."""

    outputs = Fields(number=int)

    def get_state(self) -> object:
        return None

    def set_state(self, state: Any) -> None:
        pass

    def next_tuple(self) -> float:
        return 0.01


class Large(StatefulBolt):
    """More than what goes together with others."""

    texts = KeyedState(str)

    def prepare(self, context: Any) -> None:
        self.texts.update((n, f"{n:01000d}") for n in range(600))

    def execute(self, tup: Any) -> None:
        pass


def test_a_batch_that_stands_still_does_not_wait_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads that copy ahead wait for their stores by the time at which the first batch stands still."""
    monkeypatch.setattr(saving, "THREADS", BATCH)
    monkeypatch.setattr(saving, "COPYING", BATCH, raising=False)
    b = TopologyBuilder("beside")
    b.spout("numbers", Numbers())
    b.bolt("large", Large(), tasks=2 * BATCH).shuffle("numbers")
    topology = b.build()
    with Moving(topology, 2, lambda c, i: int(c == "numbers")) as cluster:
        tasks = cluster.spec.tasks_of(ComponentId("large"))
        late: set[str] = set()
        done: set[int] = set()
        in_time: list[bool] = []
        held, saved, lock = threading.Event(), threading.Event(), threading.Lock()
        holding: list[str] = []
        begin, see, told = cluster.stores.begin, cluster.processes[1].worker.moves.see, Saving._saved

        def begins(key: str, *more: Any) -> Any:
            if key in late:
                with lock:
                    holding.append(key)
                    # One thread follows what changes in the first batch until that stops.
                    if len(holding) == BATCH - 1:
                        held.set()
                in_time.append(saved.wait(PATIENCE))
            return begin(key, *more)

        def sees(view: View) -> None:
            """Its emitters say where the tasks that are to stand still stop, as soon as all threads are taken."""
            if any(move.record.paused for move in view.moves):
                assert held.wait(PATIENCE)
            see(view)

        def is_saved(self: Saving, states: Any, nodes: Any) -> None:
            done.update(old.task.id for old, _ in states)
            if len(done) == BATCH:
                saved.set()
            told(self, states, nodes)

        # As another move would: within one move large states are not copied ahead while somebody stands still.
        monkeypatch.setattr(decide, "_readying", lambda record, *_: min(record.batches, record.paused + 1))
        monkeypatch.setattr(cluster.stores, "begin", begins)
        monkeypatch.setattr(cluster.processes[1].worker.moves, "see", sees)
        monkeypatch.setattr(Saving, "_saved", is_saved)
        move = Nimbus(cluster, dict.fromkeys(tasks, 1), 0.5)
        late.update(state_key(cluster.spec.name, t.task) for t in move.record.tasks if t.batch)
        assert len(late) == BATCH
        record = move.run(4 * PATIENCE)
        assert in_time == [True] * BATCH, "it stood still for as long as the next batch was being copied"
        assert {t.outcome for t in record.tasks} == {Outcome.COMMITTED}
