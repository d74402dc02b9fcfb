"""Handing on what a task has emitted may wait with a part of a batch sent: whoever wants the task to stand still waits for the rest."""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.worker.emitting import flushing
from elastic.worker.emitting.destination import Destination
from elastic.worker.executing import executor as executor_module
from elastic.worker.executing.executor import Executor
from elastic.worker.executing.hands import Hands
from elastic.worker.executing.haste import Haste


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

    def stand_still(told: Any) -> None:
        if task.stopping is told:
            happened.append("it stands still")
            task.stopping = None

    task.outputs, task.stand_still = SimpleNamespace(flush_all=flush, waiting=lambda: 0), stand_still
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


def test_who_asks_what_is_being_handed_on_may_ask_when_that_ends() -> None:
    executor: Any = Executor.__new__(Executor)
    task: Any = SimpleNamespace()

    class Ending(list[Any]):
        """It ends right after somebody has seen that there is something."""

        def __bool__(self) -> bool:
            some = len(self) > 0
            self.clear()
            return some

    executor.current, executor._handing = None, Ending([task])
    assert executor.emitting in (task, None)
    executor.current, executor._handing = task, []
    assert executor.emitting is task
    executor.current, executor._handing = None, [None, task]
    assert executor.emitting is task, "the innermost"


def blocked_within_blocked() -> tuple[Executor, list[int]]:
    """Of one task there is no room for what it emits, and meanwhile, as a move asks, there is none for what another has emitted."""
    executor = Executor(
        ExecutorId(ComponentId("c"), TaskId(1), TaskId(2)), 0.005, lambda _: None, Hands(), Haste()
    )
    first, second = Destination(8), Destination(9)
    woken: list[int] = []

    def urged() -> None:
        before = (first.sequence, second.sequence)
        executor.urge(lambda: None)
        woken.append(
            8 if first.sequence != before[0] else 9 if second.sequence != before[1] else 0,
        )

    executor.begin_blocked(first)
    executor.begin_blocked(second)
    urged()
    executor.end_blocked()
    urged()
    assert executor.blocked_on == 8, "what it still waits for"
    executor.end_blocked()
    urged()
    return executor, woken


def test_a_wait_within_a_wait_does_not_end_the_outer_one() -> None:
    began = time.monotonic()
    executor, woken = blocked_within_blocked()
    assert woken == [9, 8, 0], "whoever waits is woken for what a move asks"
    assert executor.shares()[1] <= time.monotonic() - began and not executor.blocked_on


def test_a_wait_that_ends_with_the_inner_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: nobody wakes the executor for a move any more, and it has been blocked since the machine was started."""

    def end_blocked(self: Executor) -> None:
        self.blocked += time.monotonic() - self.blocked_since
        self.blocked_since, self.blocked_on, self._blocked_at = 0.0, 0, None

    monkeypatch.setattr(Executor, "end_blocked", end_blocked)
    with pytest.raises(AssertionError):
        test_a_wait_within_a_wait_does_not_end_the_outer_one()


def rest_after(times: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Seconds that an idle executor rests after having handed on for three tasks so many times, and how often it asked what that takes."""
    asked = used = 0.0

    def thread_time() -> float:
        nonlocal asked
        asked += 1
        return used

    def flush() -> None:
        nonlocal used
        used += 0.001

    monkeypatch.setattr(flushing, "time", SimpleNamespace(monotonic=lambda: 0.0, thread_time=thread_time))
    emitter: Any = SimpleNamespace(flush_links=lambda: None)
    one = flushing.Flushing(emitter, 10.0, lambda task, what: what())
    tasks = [SimpleNamespace(id=n, outputs=SimpleNamespace(flush=flush, outs={}, me="w#1")) for n in range(3)]
    for _ in range(times):
        for task in tasks:
            one.note(task, 0.0)  # type: ignore[arg-type]
        one.flush()
    return one.at, int(asked)


def test_an_idle_executor_rests_in_proportion_to_what_handing_on_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rest, asked = rest_after(32, monkeypatch)
    assert rest == pytest.approx(flushing.FLUSH_REST * 3 * 0.001)
    assert asked == 2 * 2, "once in sixteen times, before and after"


def test_one_that_measures_each_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "MEASURED", 1)
    with pytest.raises(AssertionError):
        test_an_idle_executor_rests_in_proportion_to_what_handing_on_takes(monkeypatch)


def handed_on_to_the_starving(
    cost: float, turns: int, monkeypatch: pytest.MonkeyPatch, linger: float = 10.0
) -> list[float]:
    """When a task that has its turn every millisecond hands on to those who have nothing to do.

    Args:
        cost: Seconds that handing on has taken for it.
    """
    now = 0.0
    handed: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: 0.0)
    monkeypatch.setattr(executor_module, "time", clock)
    monkeypatch.setattr(flushing, "time", clock)
    executor: Any = Executor(
        ExecutorId(ComponentId("c"), TaskId(1), TaskId(1)), linger, lambda e: None, Hands(), Haste()
    )
    executor._flushing._cost = cost
    outputs = SimpleNamespace(
        starving=lambda: True, pending=lambda: False, flush_starving=lambda: handed.append(now)
    )
    task = SimpleNamespace(
        executor=executor, brake=None, stopped=False, executed=0, deferred=deque(), outputs=outputs,
        pace=SimpleNamespace(is_due=lambda at: False), run=lambda until: False,
    )  # fmt: skip
    for turn in range(1, turns + 1):
        now = turn / 1000
        executor._run_task(task)
    return handed


def test_who_has_nothing_to_do_is_handed_a_few_tuples_at_once_where_that_costs_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(handed_on_to_the_starving(0.00001, 40, monkeypatch)) == 40


def test_handing_on_to_many_who_have_nothing_to_do_rests_as_all_of_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tuple or two for each of a hundred tasks, every millisecond, was a fifth of what a worker did at half of its load."""
    handed = handed_on_to_the_starving(0.00055, 40, monkeypatch)
    assert [b - a for a, b in pairwise(handed)] == pytest.approx([0.005] * (len(handed) - 1))
    assert len(handed) == 8
    assert len(handed_on_to_the_starving(1.0, 40, monkeypatch, linger=0.005)) == 8, (
        "never for longer than that"
    )


def test_one_that_hands_on_with_each_turn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushing, "FLUSH_REST", 0)
    with pytest.raises(AssertionError):
        test_handing_on_to_many_who_have_nothing_to_do_rests_as_all_of_it_does(monkeypatch)
