"""Executors leave full processes: as few as possible, and only if it helps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from balance_harness import ALONE, N1, N2, OUT, W1, W2, WORK, executor

from elastic.model.assignment import Assignment, ExecutorId, WorkerSlot
from elastic.model.ids import WorkerId
from elastic.nimbus.balancing.relieving import relieved

A, B, C = (executor(WORK, n, n) for n in (2, 3, 4))
SPOUT = executor(OUT, 1, 1)
TOGETHER = replace(
    ALONE,
    workers={W1: WorkerSlot(N1, 0), W2: WorkerSlot(N2, 0)},
    executors=((SPOUT, W1), (A, W1), (B, W1), (C, W2)),
)


def workers(found: Assignment) -> dict[ExecutorId, WorkerId]:
    return dict(found.executors)


def test_what_helps_most_goes_to_the_process_with_most_room() -> None:
    found = relieved(TOGETHER, {SPOUT: 0.1, A: 0.5, B: 0.35}, 0.8, {N1, N2})
    assert workers(found) == {SPOUT: W1, A: W2, B: W1, C: W2}
    assert found.workers == TOGETHER.workers and found.epoch == TOGETHER.epoch


@pytest.mark.parametrize(
    ("cpu", "nodes", "why"),
    [
        ({A: 0.4, B: 0.3}, {N1, N2}, "none is full"),
        ({A: 0.95}, {N1, N2}, "one executor alone fills its process"),
        ({A: 0.5, B: 0.4, C: 0.9}, {N1, N2}, "the other is as full"),
        ({A: 0.5, B: 0.5}, {N1}, "the other's node gets nothing"),
    ],
)
def test_what_does_not_help_is_not_done(cpu: dict[ExecutorId, float], nodes: set[str], why: str) -> None:
    assert relieved(TOGETHER, cpu, 0.8, nodes) is TOGETHER, why  # type: ignore[arg-type]


def test_it_goes_on_until_none_is_full() -> None:
    found = relieved(TOGETHER, {SPOUT: 0.3, A: 0.4, B: 0.4, C: 0.3}, 0.8, {N1, N2})
    assert workers(found) == {SPOUT: W2, A: W1, B: W1, C: W2} or workers(found)[A] != workers(found)[B]
    assert relieved(found, {SPOUT: 0.3, A: 0.4, B: 0.4, C: 0.3}, 0.8, {N1, N2}) is found
