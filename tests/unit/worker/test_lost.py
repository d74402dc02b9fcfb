"""No store has what was saved of a task: it goes on where it was, with everything. Where the process that it was to leave is gone as
well it begins anew at its new place, that is said, and nobody else notices."""

from __future__ import annotations

from typing import Any

import pytest

from elastic.errors import NotFound
from elastic.migration import decide
from elastic.migration.record import Outcome, TaskMove
from elastic.worker.moving import fetching
from elastic.worker.moving.words import Words
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves import chain, tasks_of

COUNT = 4000


def lose(patch: pytest.MonkeyPatch, limit: float) -> None:
    topology, _ = chain(COUNT, spouts=1, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        _, lost, *others = tasks_of(topology, "count")
        cluster.wait(lambda: all(cluster.task(t).executed for t in (lost, *others)))
        # The stores confirm it, and their nodes go; it has not come along either. Nor does Nimbus know of the old side any more.
        forward = decide._forward

        def alone(task: TaskMove, saved: Any, draft: Any, expired: Any) -> TaskMove:
            draft.hosts.pop(task.source, None)
            return forward(task, saved, draft, expired)

        patch.setattr(decide, "_forward", alone)
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


def test_a_task_whose_state_no_store_has_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, _ = chain(COUNT, spouts=1, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        _, gone, *others = tasks_of(topology, "count")
        cluster.wait(lambda: all(cluster.task(t).executed for t in (gone, *others)))
        before = cluster.task(gone)
        monkeypatch.setattr(Words, "along", lambda *_: None)
        monkeypatch.setattr(cluster.stores, "save_many", lambda states, nodes: [None] * len(states))
        (part,) = cluster.move({gone: 1}).tasks
        assert part.outcome is Outcome.COMMITTED and part.came_back and "no store has" in part.reason
        assert cluster.task(gone) is before and "state-lost" not in [e.kind for e in cluster.events]
        cluster.wait_finished()
        assert sum(cluster.task(t).executed for t in tasks_of(topology, "count")) == COUNT


def test_of_a_task_whose_state_finds_no_memory_where_it_comes_it_is_said_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(*_: object) -> object:
        raise MemoryError

    topology, _ = chain(COUNT, spouts=1, rate=8000.0)
    with Moving(topology, 2, lambda c, i: 0) as cluster:
        _, large, *_others = tasks_of(topology, "count")
        cluster.wait(lambda: bool(cluster.task(large).executed))
        monkeypatch.setattr(Words, "along", lambda *_: None)
        monkeypatch.setattr(cluster.stores, "fetch", fetch)
        monkeypatch.setattr(cluster.stores, "fetch_many", lambda wanted, nodes: [MemoryError()] * len(wanted))
        (part,) = cluster.move({large: 1}).tasks
        assert part.outcome is Outcome.COMMITTED and part.came_back
        assert part.reason == f"worker {cluster.id(1)} has no memory left for its state"
        cluster.wait_finished()
        assert sum(cluster.task(t).executed for t in tasks_of(topology, "count")) == COUNT


def test_a_task_whose_state_no_store_has_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, 60.0)


def test_a_fetch_that_does_not_say_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(NotFound):
        """Never raised."""

    monkeypatch.setattr(fetching, "NotFound", Other)
    with pytest.raises(AssertionError):
        lose(monkeypatch, 3.0)
