"""How states are copied ahead, on the old side: who has a turn, what is said, and what an executor is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.api import tracking
from elastic.worker.content import Copier
from elastic.worker.content.layout import has_caught_up
from elastic.worker.executing import brake
from elastic.worker.moving import copying, one_by_one
from elastic.worker.moving.copying import COPYING, LASTS, SMALLER, Copying
from elastic.worker.moving.going import Going
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.stopping import Stopping
from tests.unit.worker.test_brake import Clock
from tests.unit.worker.test_looks_ahead import Window

LIMIT = 30.0
COUNT = 20_000
CHANGED = 5000


class Old:
    """A task that leaves, of which copying is called by the test."""

    def __init__(self) -> None:
        self.bolt = Window()
        self.bolt.window.update((n, n) for n in range(COUNT))
        pace = SimpleNamespace(rate=lambda *_: 1000.0)
        task: Any = SimpleNamespace(
            id=1, brake=None, pace=pace, executed=0, queued=0, capacity=100, call=lambda what: what()
        )
        self.said: list[bool] = []
        write: Any = SimpleNamespace(
            put=lambda data: 1,
            commit=lambda order, meta: self.said.append(has_caught_up(meta)),
            close=lambda: None,
        )
        self.going = Going(task, 1, Copier(self.bolt), write=write)
        assert self.going.copier is not None
        words = SimpleNamespace(stored=lambda *_: None)
        worker: Any = SimpleNamespace(moves=SimpleNamespace(words=words, feed=lambda event: None))
        self.failures: list[BaseException] = []
        self.copying = Copying(worker, SimpleNamespace(), lambda old, e: self.failures.append(e))  # type: ignore[arg-type]
        self.copier = self.going.copier
        self.copier.read_at_once()

    def begin(self) -> None:
        """As it is done at first: until all is copied, and what has changed meanwhile is little."""
        self.going.began = copying.time.monotonic()
        self.copying._copy_ahead(self.going, self.copier, self.going.write)  # type: ignore[arg-type]
        self.going.kept_up = True

    def commit(self) -> None:
        self.copying._commit_ahead(self.going, self.copier, self.going.write)  # type: ignore[arg-type]

    def keep_up(self) -> None:
        self.copying._keep_up_one(self.going)
        assert not self.failures

    def clear(self) -> None:
        self.bolt.window.clear()

    def pop(self) -> None:
        for n in range(CHANGED):
            self.bolt.window.pop(n)

    def odd(self) -> None:
        """All of it goes in the pause from then on."""
        self.bolt.window[float("nan")] = 1  # type: ignore[index]


@pytest.mark.parametrize("goes", [Old.clear, Old.pop, Old.odd])
def test_that_all_is_there_is_said_also_when_what_had_changed_is_gone(goes: Callable[[Old], None]) -> None:
    """The new side waits for that word."""
    old = Old()
    old.begin()
    old.bolt.window.update((n, -1) for n in range(CHANGED))
    old.commit()
    assert old.said[-1] is False, "much has changed since the last slice"
    goes(old)
    old.keep_up()
    # A machine that stands still for a moment uses up the time of a look, or of the slice in which nothing had become ready yet.
    while old.going.behind or old.copier.busy:
        old.keep_up()
    assert old.said[-1] is True
    said = len(old.said)
    old.keep_up()
    assert len(old.said) == said, "it is said once"


def test_its_executor_is_asked_only_when_more_has_changed_than_is_left_to_the_pause() -> None:
    """Of sixteen tasks that wait for their turns it would be asked all the time."""
    old = Old()
    old.begin()
    old.commit()
    asked: list[int] = []
    call = old.going.task.call

    def calls(what: Callable[[], None]) -> None:
        asked.append(1)
        call(what)

    old.going.task.call = calls  # type: ignore[method-assign]
    old.going.behind = True
    for changed in (0, 1, 16):
        old.bolt.window.update((n, -1) for n in range(changed))
        old.keep_up()
    assert not asked and not old.going.behind and not old.failures
    old.bolt.window.update((n, -1) for n in range(CHANGED))
    old.keep_up()
    assert asked


@pytest.mark.parametrize("over", ["pausing", "ended"])
def test_nothing_is_copied_nor_committed_of_one_that_stands_still_or_goes_back(over: str) -> None:
    """What is committed after the last commit would stand in its place, and is not all."""
    old = Old()
    old.begin()
    old.bolt.window.update((n, -1) for n in range(CHANGED))
    said, asked = len(old.said), list[object]()
    setattr(old.going, over, True)
    old.going.task.call = lambda what: (asked.append(what), what())  # type: ignore[method-assign]
    copied = old.copying._copy_some(old.going, old.copier, old.going.write)  # type: ignore[arg-type]
    old.commit()
    old.keep_up()
    assert not copied and not asked and len(old.said) == said


def test_what_was_remembered_of_one_that_goes_back_while_it_is_read_is_forgotten_before_it_goes_on() -> None:
    """Else all that changes would be remembered for as long as it runs."""
    old, reading, went_on = Old(), dict[int, Going](), list[bool]()
    old.begin()
    old.going.encoding = True
    assert not old.going.end(lambda: went_on.append(tracking.is_tracking(old.bolt.window)), reading)
    assert tracking.is_tracking(old.bolt.window) and reading == {1: old.going} and not went_on
    old.going.encoded(reading)
    assert went_on == [False] and not reading


def test_who_is_about_to_stand_still_goes_slower_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "LARGE", 1)
    old, saving = Old(), object.__new__(Saving)
    old.going.brake.size = 1
    old.going.brake.press()
    assert old.going.brake.on
    saving._old, saving._stopping = {1: old.going}, Stopping()
    saving.pausing(old.going.task)
    assert not old.going.brake.on and old.going.pausing


class _Turns:
    """Counts who asks for a turn."""

    def __init__(self, *, late: bool) -> None:
        self.asked, self._late, self._lock = threading.Semaphore(0), late, threading.Lock()

    def acquire(self, timeout: float) -> bool:
        assert timeout == one_by_one.LONGEST
        self.asked.release()
        return not self._late and self._lock.acquire(timeout=LIMIT)

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("size", [SMALLER - 1, SMALLER])
def test_small_states_are_copied_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, size: int, late: bool
) -> None:
    """Unless one of them takes too long, as its executor is within a tuple. Large ones have turns of a slice."""
    one_at_a_time = size < SMALLER and not late
    began, gate, order = threading.Semaphore(0), threading.Event(), list[str]()

    def copies(self: Copying, old: Going, *_: Any) -> None:
        order.append("begins")
        began.release()
        gate.wait(LIMIT)
        order.append("ends")

    monkeypatch.setattr(Copying, "_copy_ahead", copies)
    monkeypatch.setattr(Copying, "_commit_ahead", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up", lambda *_: began.release())
    monkeypatch.setattr(Copying, "_share_of", lambda *_: 1.0)
    worker: Any = SimpleNamespace(spec=SimpleNamespace(name="t"), incarnation="i")
    stores: Any = SimpleNamespace(begin=lambda *_: SimpleNamespace(close=lambda: None))
    one, turns = Copying(worker, stores, lambda old, e: order.append(str(e))), _Turns(late=late)
    one._small._turn = turns  # type: ignore[assignment]
    try:
        for n in range(2):
            copier: Any = SimpleNamespace(read_at_once=lambda size: None, make_ready=lambda: None)
            one.begin(Going(SimpleNamespace(id=n, brake=None), 1, copier), (), size)  # type: ignore[arg-type]
        for _ in range(2):
            if size < SMALLER:
                assert turns.asked.acquire(timeout=LIMIT)
        for _ in range(1 if one_at_a_time else 2):
            assert began.acquire(timeout=LIMIT)
        gate.set()
        for _ in range(3 if one_at_a_time else 2):
            assert began.acquire(timeout=LIMIT)
        assert order == ["begins", "ends"] * 2 if one_at_a_time else order[:2] == ["begins"] * 2
    finally:
        gate.set()
        one.close()


@pytest.mark.parametrize(("batches", "share"), [(1, 1 / 8), (2, 1 / 4), (8, 1.0), (0, 0.0)])
def test_tasks_of_a_batch_share_a_rest(monkeypatch: pytest.MonkeyPatch, batches: int, share: float) -> None:
    """Eight tasks, in that many batches; without a move that is still known there is none."""
    shares: list[float] = []

    @contextmanager
    def turn(share: float) -> Iterator[None]:
        shares.append(share)
        yield

    monkeypatch.setattr(Copying, "_copy_all", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up", lambda *_: None)
    record = SimpleNamespace(batches=batches, tasks=range(8))
    view = SimpleNamespace(move={1: SimpleNamespace(record=record)}.get if batches else {}.get)
    worker: Any = SimpleNamespace(moves=SimpleNamespace(participant=SimpleNamespace(view=view)))
    one = Copying(worker, worker, lambda old, e: pytest.fail(str(e)))
    monkeypatch.setattr(one._small, "turn", turn)
    try:
        for size in (SMALLER - 1, SMALLER):
            going: Any = SimpleNamespace(id=0, brake=None)
            one._begin(Going(going, 1, going), (), size)
        assert shares == [share], "a large one rests slice by slice"
    finally:
        one.close()


def test_a_small_state_that_waits_for_others_of_its_move_is_not_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    monkeypatch.setattr(brake, "time", clock)
    old = Old()
    old.begin()
    clock.now += LASTS + 1
    old.keep_up()
    assert not old.going.brake.large and old.going.task.brake is None


def test_the_brake_of_a_move_that_is_over_stays_with_no_task() -> None:
    old = Old()

    def rate(*_: Any) -> float:
        old.going.end(None, {})  # it is given up at that very moment
        return 1.0

    old.going.task.pace.rate = rate  # type: ignore[method-assign]
    old.copying._copy_some(old.going, old.copier, old.going.write)  # type: ignore[arg-type]
    assert old.going.ended and old.going.task.brake is None


def test_a_write_is_let_go_of_by_the_last_who_uses_it() -> None:
    """It has files and streams; and who copies may be at it when its move is over."""
    closed: list[int] = []
    write: Any = SimpleNamespace(close=lambda: closed.append(1))
    task: Any = SimpleNamespace(id=1, brake=None)
    going = Going(task, 1, write=write)
    going.use()
    assert not closed, "its move goes on"
    with going.used():
        going.end(None, {})
        going.use()
        assert not closed, "somebody is at it"
    assert closed


def test_what_changes_is_copied_before_others_have_been(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more states than threads that copy."""
    order: list[tuple[str, int]] = []
    began, gates = threading.Semaphore(0), [threading.Event() for _ in range(2 * COPYING)]

    def copies(self: Copying, old: Going, *_: Any) -> None:
        began.release()
        gates[old.task.id].wait(LIMIT)

    def keeps_up(self: Copying, old: Going) -> None:
        order.append(("kept up", old.task.id))
        old.ended = True
        began.release()

    monkeypatch.setattr(Copying, "_copy_ahead", copies)
    monkeypatch.setattr(Copying, "_commit_ahead", lambda *_: None)
    monkeypatch.setattr(Copying, "_keep_up_one", keeps_up)
    worker: Any = SimpleNamespace(spec=SimpleNamespace(name="t"), incarnation="i")
    stores: Any = SimpleNamespace(begin=lambda *_: SimpleNamespace(close=lambda: None))
    one = Copying(worker, stores, lambda old, e: order.append((str(e), old.task.id)))
    try:
        for n in range(len(gates)):
            copier: Any = SimpleNamespace(
                read_at_once=lambda size: None, make_ready=lambda: None, outrun=False
            )
            task: Any = SimpleNamespace(id=n, brake=None)
            one.begin(Going(task, 1, copier), (), 1 << 20)
        for _ in range(COPYING):
            assert began.acquire(timeout=LIMIT)
        gates[0].set()
        for _ in range(2):  # the next state, and what has changed of the first
            assert began.acquire(timeout=LIMIT)
        assert order == [("kept up", 0)]
    finally:
        for gate in gates:
            gate.set()
        one.close()
