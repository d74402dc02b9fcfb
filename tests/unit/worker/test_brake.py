"""A task is held back while its new side has not caught up with what changes: a little at a time, not for long, and never in its pause."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.migration.record import Outcome
from elastic.worker import brake, copying
from elastic.worker.brake import IN_ALL, LARGE, PART, STINT, Brake
from elastic.worker.coming import Coming
from elastic.worker.copying import HARDER, SLICE, Copying
from elastic.worker.fetching import Fetching
from elastic.worker.going import Going
from elastic.worker.saving import Saving
from elastic.worker.words import Words
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves_ahead import COUNT, ENTRIES, _found, with_a_large_state

LIMIT = 30.0


class Clock:
    """Nobody waits in truth: time passes by as much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.waited = 100.0, []  # type: float, list[float]
        monkeypatch.setattr(brake, "time", self)

    def monotonic(self) -> float:
        return self.now

    def of(self, one: Brake) -> Brake:
        one._released.wait = self.wait  # type: ignore[method-assign, assignment]
        return one

    def wait(self, timeout: float) -> bool:
        self.waited.append(round(timeout, 6))
        self.now += timeout
        return False


def large() -> Brake:
    made = Brake()
    made.size = LARGE
    return made


def test_a_small_state_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    one = clock.of(large())
    one.size -= 1
    one.press(1.0)
    one.hold(1.0)
    assert not one.on and not clock.waited


def test_it_holds_by_what_the_stream_had_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    one = clock.of(large())
    one.hold(1.0)
    assert not one.on and clock.waited == [], "nobody has asked for it"
    one.press(0.1)
    one.hold(0.001)
    one.hold(1.0)
    assert clock.waited == [round(PART * 0.001, 6), STINT]
    clock.now += brake.LEAST
    one.hold(1.0)
    assert not one.on and len(clock.waited) == 2, "it was a while ago"
    one.press(1000.0)
    clock.now += brake.LONGEST
    assert not one.on


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
def test_of_a_large_state_copying_rests_less(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """As much of it changes meanwhile, and is copied again; of others little is."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    task: Any = SimpleNamespace(queued=4096, capacity=4096)
    old = Going(task, 1, None, brake=clock.of(large()), gave=clock.now)
    old.brake.size = size
    saver: Any = SimpleNamespace(_closing=SimpleNamespace(wait=clock.wait))
    Copying._give_back(saver, old, SimpleNamespace())  # type: ignore[arg-type]
    rests = copying.RESTS_LARGE if size == LARGE else copying.RESTS
    assert sum(clock.waited) == pytest.approx(rests * SLICE)


def test_a_task_is_not_held_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    one = clock.of(large())
    for _ in range(1000):
        one.press()
        one.hold(1.0)
    assert not one.on and sum(clock.waited) == pytest.approx(IN_ALL)


def test_who_is_to_stand_still_is_let_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brake, "STINT", 10 * LIMIT)
    monkeypatch.setattr(brake, "IN_ALL", 10 * LIMIT)
    one = large()
    one._left = 10 * LIMIT
    one.press(LIMIT)
    thread = threading.Thread(target=one.hold, args=(LIMIT,))
    thread.start()
    one.release()
    thread.join(LIMIT)
    assert not thread.is_alive() and not one.on
    one.press(LIMIT)
    assert not one.on, "what comes late"


def held_back() -> list[tuple[str, bool]]:
    """On which threads a task is held back that moves to where putting in takes long, and whether it was standing still."""
    name, topology, large = with_a_large_state()
    held: list[tuple[str, bool]] = []
    began, took = threading.Event(), [1.0] * 3
    look, hold_back, pausing = Fetching._look, Copying._hold_back, Saving.pausing
    pauses: list[int] = []

    def looks(self: Fetching, coming: Coming) -> float:
        truly = look(self, coming)
        if not took:
            return truly
        if len(took) == 1:
            # It has been said by now. For as long as putting in takes more changes, and is copied.
            began.wait(0.5)
        return took.pop()

    def holds(self: Copying, old: Any) -> None:
        if old.brake.on:
            held.append((threading.current_thread().name, bool(pauses)))
            began.set()
        hold_back(self, old)

    def pauses_now(self: Saving, task: Any) -> None:
        pausing(self, task)
        pauses.append(task.id)

    with pytest.MonkeyPatch.context() as patch, Moving(topology, 2, lambda c, i: 0) as cluster:
        patch.setattr(brake, "LARGE", 0)
        patch.setattr(Fetching, "_look", looks)
        patch.setattr(Copying, "_hold_back", holds)
        patch.setattr(Saving, "pausing", pauses_now)
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT
    return held


def test_a_task_waits_for_who_puts_its_state_in() -> None:
    held = held_back()
    assert held, "nobody was held back"
    assert all("executor" in thread or "large" in thread for thread, _ in held), held
    assert not any(paused for _, paused in held), "somebody waits for it to stand still"


def test_a_new_side_that_says_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Words, "behind", lambda *_: None)
    monkeypatch.setattr(brake, "LEAST", 0.0)  # by itself the old side, which copies fast enough, does not
    with pytest.raises(AssertionError, match="nobody was held back"):
        test_a_task_waits_for_who_puts_its_state_in()


def test_tasks_of_one_executor_are_not_held_back_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """All others that it runs would wait for all of them."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    saver: Any = SimpleNamespace(_held_back={})
    some = [SimpleNamespace(brake=clock.of(large()), gave=clock.now) for _ in range(8)]
    clock.now += 1.0
    for one in some:
        one.brake.press(1.0)
        Copying._hold_back(saver, one)  # type: ignore[arg-type]
    assert sum(clock.waited) == pytest.approx(STINT)


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
@pytest.mark.parametrize("outrun", [False, True])
def test_only_of_a_large_state_that_changes_as_fast_as_it_is_copied_much_is_copied_at_once(
    monkeypatch: pytest.MonkeyPatch, size: int, outrun: bool
) -> None:
    """Keys that stay wait for it as well."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    until: list[float] = []
    copier: Any = SimpleNamespace(outrun=outrun, ahead=lambda at: until.append(at - clock.now) or [])
    task: Any = SimpleNamespace()
    old = Going(task, 1, copier, brake=clock.of(large()))
    old.brake.size = size
    saver: Any = SimpleNamespace()
    assert Copying._slice(saver, old, copier) == []
    hurries = outrun and size == LARGE
    assert until == [pytest.approx(SLICE * (HARDER if hurries else 1))]
