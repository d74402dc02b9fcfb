"""No store has what was saved of a task: it begins anew at its new place, that is said, and nobody else notices."""

from __future__ import annotations

import pytest

from elastic.errors import NotFound
from elastic.migration.record import Outcome
from elastic.worker import fetching
from elastic.worker.words import Words
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves import chain, tasks_of

COUNT = 4000


def lose(patch: pytest.MonkeyPatch, limit: float) -> None:
    topology, _ = chain(COUNT, spouts=1, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        _, lost, *others = tasks_of(topology, "count")
        cluster.wait(lambda: all(cluster.task(t).executed for t in (lost, *others)))
        # The stores confirm it, and their nodes go; it has not come along either.
        patch.setattr(Words, "along", lambda *_: None)
        patch.setattr(cluster.stores, "save_many", lambda states, nodes: [None] * len(states))
        (part,) = cluster.move({lost: 1}, limit=limit).tasks
        assert part.outcome is Outcome.LOST and "no store has" in part.reason
        assert "state-lost" in [e.kind for e in cluster.events]
        cluster.wait(lambda: lost in cluster.processes[1].worker.tasks)
        assert lost not in cluster.processes[0].worker.tasks
        cluster.wait_finished()
        # What it had not worked off went with its state. What came later it works on, and of nobody else's anything is missing.
        counted, stayed = cluster.task(lost).executed, [cluster.task(t).executed for t in others]
        assert counted and sum(stayed) + counted <= COUNT


def test_a_task_whose_state_no_store_has_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, 60.0)


def test_a_fetch_that_does_not_say_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(NotFound):
        """Never raised."""

    monkeypatch.setattr(fetching, "NotFound", Other)
    with pytest.raises(AssertionError):
        lose(monkeypatch, 3.0)
