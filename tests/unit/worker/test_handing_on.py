"""Handing on what a task has emitted may wait with a part of a batch sent: whoever wants the task to stand still waits for the rest."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.worker.executor import Executor


def stopped_while_it_hands_on(nested: bool = False) -> list[str]:
    """What happens, in order, when a move asks for a task in the middle of a batch; nested: while it is handed on for a stop already."""
    executor: Any = Executor.__new__(Executor)
    executor.current, executor._handing = None, []
    executor.urge = lambda do: do()  # the executor attends to it while it waits for room
    happened: list[str] = []
    task: Any = SimpleNamespace(executor=executor, deferred=deque(), stopping=None)

    def flush() -> None:
        happened.append("a part is sent")
        if len(happened) == 1:
            executor.stop_task(task, lambda: None)
        happened.append("the rest is sent")

    def stand_still() -> None:
        if task.stopping is not None:
            happened.append("it stands still")
        task.stopping = None

    task.outputs, task.stand_still = SimpleNamespace(flush=flush), stand_still
    if nested:
        executor.stop_task(task, lambda: None)
    else:
        executor.hand_on(task, flush)
    return happened


@pytest.mark.parametrize("nested", [False, True])
def test_a_task_stands_still_when_all_of_its_batch_is_sent(nested: bool) -> None:
    happened = stopped_while_it_hands_on(nested)
    assert happened[:2] == ["a part is sent", "the rest is sent"]
    assert happened[-1] == "it stands still" and happened.count("it stands still") == 1


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only looks at the tuple that is under way stops it too early."""
    monkeypatch.setattr(Executor, "_is_within", lambda self, task: self.current is task)
    with pytest.raises(AssertionError):
        test_a_task_stands_still_when_all_of_its_batch_is_sent(False)
