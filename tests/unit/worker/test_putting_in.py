"""What comes ahead is put in behind what an executor has to do, and before it once somebody waits for that."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.errors import Unavailable
from elastic.migration import actions as ac
from elastic.model.ids import NodeId
from elastic.worker.content import Step
from elastic.worker.memory import TableMemory
from elastic.worker.moving import putting_in
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.fetching import THREADS, Fetching
from elastic.worker.moving.moving import Side
from elastic.worker.moving.putting_in import PuttingIn

PATIENCE = 30.0
STEPS = 5


class Home:
    """An executor that does what it is told to do."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.urgent: deque[Callable[[], None]] = deque()
        self.call, self.urge = self.calls.append, self.urgent.append

    def work_off(self, those: deque[Callable[[], None]]) -> None:
        while those:
            those.popleft()()


def steps(done: list[int], takes: int = 0) -> Generator[Step, None, None]:
    """The second one takes so many bytes."""
    for n in range(STEPS):
        done.append(n)
        yield Step(others_first=False, memory=TableMemory(takes) if takes and not n else None)


def not_aside(what: Callable[[], None]) -> None:
    raise AssertionError(what)


@pytest.fixture
def _each_step_is_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(putting_in, "SLICE", 0.0)


def hurried(*, before: bool) -> tuple[Home, PuttingIn, list[int]]:
    """Somebody waits for it while its first slice stands in the queue, or before it is there."""
    home, done = Home(), []  # type: ignore[var-annotated]
    going_in = PuttingIn(home, lambda: None, steps(done), not_aside)  # type: ignore[arg-type]
    if before:
        going_in.hurry()
    going_in.begin(urgent=False)
    going_in.hurry()
    home.work_off(home.urgent)
    return home, going_in, done


@pytest.mark.usefixtures("_each_step_is_a_slice")
@pytest.mark.parametrize("before", [False, True])
def test_who_is_waited_for_does_not_stand_behind_an_executor_s_tasks(before: bool) -> None:
    home, going_in, done = hurried(before=before)
    assert going_in.done.done() and done == list(range(STEPS))
    home.work_off(home.calls)  # what had been asked for first comes late
    assert done == list(range(STEPS))


@pytest.mark.usefixtures("_each_step_is_a_slice")
def test_that_it_stands_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(PuttingIn, "hurry", lambda self: None)
    with pytest.raises(AssertionError):
        test_who_is_waited_for_does_not_stand_behind_an_executor_s_tasks(False)


@pytest.mark.usefixtures("_each_step_is_a_slice")
def test_nobody_waits_and_each_slice_is_the_last_in_the_queue() -> None:
    home, done = Home(), []  # type: ignore[var-annotated]
    going_in = PuttingIn(home, lambda: None, steps(done), not_aside)  # type: ignore[arg-type]
    going_in.begin(urgent=False)
    while home.calls:
        assert len(home.calls) == 1 and not home.urgent
        home.calls.popleft()()
    assert going_in.done.done() and done == list(range(STEPS))


def test_what_does_not_come_any_more_is_said() -> None:
    home = Home()

    def gone() -> None:
        raise LookupError("gone")

    going_in = PuttingIn(home, gone, steps([]), not_aside)  # type: ignore[arg-type]
    going_in.begin(urgent=True)
    home.work_off(home.urgent)
    with pytest.raises(LookupError):
        going_in.done.result(0.0)
    going_in.hurry()


# ---------------------------------------------------------------------- memory


class Made:
    """Memory that is made on another thread, when that is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aside: deque[Callable[[], None]] = deque()
        self.sizes: list[int] = []
        self.home, self.done = Home(), []  # type: ignore[var-annotated]
        monkeypatch.setattr(TableMemory, "make_ready", lambda room: self.sizes.append(room.size))
        self.going_in = PuttingIn(self.home, lambda: None, steps(self.done, 9 << 20), self.aside.append)  # type: ignore[arg-type]
        self.going_in.begin(urgent=False)


def test_an_executor_does_not_wait_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(monkeypatch)
    made.home.work_off(made.home.calls)
    assert made.done == [0] and made.sizes == [] and len(made.aside) == 1
    made.home.work_off(made.aside)
    assert made.sizes == [9 << 20] and made.done == [0]
    made.home.work_off(made.home.calls)
    assert made.going_in.done.done() and made.done == list(range(STEPS)) and not made.home.urgent


def test_that_it_waits_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: memory is made where the state is put in."""
    init = PuttingIn.__init__
    monkeypatch.setattr(
        PuttingIn, "__init__", lambda self, *given: init(self, *given[:3], lambda what: what())
    )
    with pytest.raises(AssertionError):
        test_an_executor_does_not_wait_for_memory(monkeypatch)


@pytest.mark.parametrize("when", ["in the queue", "within a slice", "while it is made"])
def test_who_is_waited_for_goes_on_when_the_memory_is_there(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    made = Made(monkeypatch)
    if when == "in the queue":
        made.going_in.hurry()
        made.home.work_off(made.home.urgent)
    elif when == "within a slice":
        aside = made.aside.append
        monkeypatch.setattr(made.going_in, "_aside", lambda what: (made.going_in.hurry(), aside(what)))
    made.home.work_off(made.home.calls)
    made.going_in.hurry()
    made.home.work_off(made.home.urgent)
    assert made.done == [0], "not before it is there"
    made.home.work_off(made.aside)
    made.home.work_off(made.home.urgent)
    assert made.going_in.done.done() and made.done == list(range(STEPS))


def test_that_nobody_makes_it_is_said() -> None:
    def ended(what: Callable[[], None]) -> None:
        raise Unavailable("the worker is about to end")

    home = Home()
    going_in = PuttingIn(home, lambda: None, steps([], 1), ended)  # type: ignore[arg-type]
    going_in.begin(urgent=False)
    home.work_off(home.calls)
    with pytest.raises(Unavailable):
        going_in.done.result(0.0)


# ---------------------------------------------------------------------- whose turn it is


def fetched_while_others_come(*, told: bool) -> list[Any]:
    """A task stands still; the threads for what comes ahead are busy with others, and it stands behind them.

    Args:
        told: Its old side has said that the stores have all of it.

    Returns:
        What the participant was fed.
    """
    fed: list[Any] = []
    over, answered = threading.Event(), threading.Event()

    def feed(event: Any) -> None:
        fed.append(event)
        answered.set()

    worker: Any = SimpleNamespace(
        spec=SimpleNamespace(name="t"),
        moves=SimpleNamespace(feed=feed),
        streams=None,
        moving=SimpleNamespace(home=lambda side: Home()),
        haste=threading.Lock(),
    )

    def fetch(*_: Any) -> Any:
        raise LookupError("it was asked for")

    side, node = Side(7, 3, 1), NodeId("a")
    with ThreadPoolExecutor(2) as pool:
        fetching = Fetching(worker, SimpleNamespace(fetch=fetch), pool.submit)  # type: ignore[arg-type]
        try:
            for _ in range(THREADS):
                fetching._pool.submit(over.wait, PATIENCE)
            coming = fetching._coming[7] = Coming(side, (node,))
            coming.arrival = SimpleNamespace(over=False, here={})  # type: ignore[assignment]
            coming.busy = coming.queued = False
            coming.fetched = True
            fetching._look_again(7, 3, last=False)
            assert coming.queued, "behind the others"
            if told:
                fetching._look_again(7, 3, last=True)
            fetching.fetch(ac.Fetch(7, 3, 1, (node,), 2 << 20, heard=told))
            assert answered.wait(PATIENCE / 10)
        finally:
            over.set()
            fetching.close()
    return fed


@pytest.mark.parametrize("told", [False, True])
def test_a_task_that_stands_still_does_not_wait_for_what_comes_ahead_of_others(told: bool) -> None:
    began = time.monotonic()
    fed = fetched_while_others_come(told=told)
    assert "it was asked for" in fed[0].reason and time.monotonic() - began < PATIENCE


def test_that_it_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: whoever stands in the queue counts as being at it."""
    real = Fetching._look_again

    def look_again(self: Fetching, *given: Any, last: bool) -> None:
        real(self, *given, last=last)
        self._coming[7].queued = False

    monkeypatch.setattr(Fetching, "_look_again", look_again)
    with pytest.raises(AssertionError):
        fetched_while_others_come(told=False)
