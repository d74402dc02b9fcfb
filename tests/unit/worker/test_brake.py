"""A task goes slower while its new side has not caught up with what changes: as fast as before at most, not for long, not in its pause."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from elastic.migration.record import Outcome
from elastic.worker.executing import brake
from elastic.worker.executing.brake import IN_ALL, LARGE, PARTS, STINT, Brake
from elastic.worker.moving import copying
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.copying import HARDER, SLICE, SLICE_LARGE, Copying
from elastic.worker.moving.fetching import Fetching
from elastic.worker.moving.going import Going
from elastic.worker.moving.saving import Saving
from elastic.worker.moving.words import Words
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_moves_ahead import COUNT, ENTRIES, _found, with_a_large_state

RATE = 1000.0


class Clock:
    """Nobody waits in truth: time passes by as much."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.waited = 100.0, []  # type: float, list[float]
        monkeypatch.setattr(brake, "time", self)

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float) -> bool:
        self.waited.append(timeout)
        self.now += timeout
        return False

    def turn(self, one: Brake, took: float, executed: int) -> float:
        """Have a turn, and say how long is to be waited for the next one."""
        began = self.now
        self.now += took
        one.had(began, executed)
        return max(0.0, one.next_turn() - self.now)


def large() -> Brake:
    made = Brake()
    made.size, made.rate = LARGE, RATE
    return made


def test_the_task_of_a_small_state_goes_as_fast_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), large()
    one.size -= 1
    one.press(1.0)
    assert not one.on and clock.turn(one, 0.001, 100) == 0.0


def test_it_goes_as_fast_as_before_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), large()
    assert clock.turn(one, 0.001, 10) == 0.0, "nobody has asked for it"
    one.press()
    assert clock.turn(one, 0.001, 10) == pytest.approx(0.009)
    assert clock.turn(one, 0.02, 10) == 0.0, "it was slower by itself"
    assert clock.turn(one, 0.001, 10**6) == pytest.approx(STINT)
    assert clock.turn(one, 0.001, 0) == 0.0, "it has executed nothing"
    clock.now += brake.LEAST
    assert clock.turn(one, 0.001, 10) == 0.0, "it was a while ago"
    one.press(1000.0)
    clock.now += brake.LONGEST
    assert not one.on


def test_it_goes_slower_each_time_that_was_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), large()
    for part in (*PARTS, PARTS[-1]):
        one.press()
        assert clock.turn(one, 0.0, 2) == pytest.approx(min(STINT, 2 / (RATE * part)))
        one.harder()


@pytest.mark.parametrize(("took", "level"), [((0.4, 0.2, 0.05), 1), ((0.1, 0.05), 0), ((0.05, 0.2), 1)])
def test_a_new_side_that_catches_up_does_not_slow_it_further(
    monkeypatch: pytest.MonkeyPatch, took: tuple[float, ...], level: int
) -> None:
    clock, one = Clock(monkeypatch), large()
    for seconds in took:
        one.press(seconds)
    assert clock.turn(one, 0.0, 10) == pytest.approx(10 / (RATE * PARTS[level]))
    one.press(took[-1])
    assert clock.turn(one, 0.0, 10) == pytest.approx(10 / (RATE * PARTS[level + 1])), "it takes no less"


def test_of_a_task_that_has_just_begun_its_own_turns_are_the_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), large()
    one.rate = 0.0
    one.press()
    assert clock.turn(one, 0.002, 50) == 0.0
    one._level = PARTS.index(0.5)
    assert clock.turn(one, 0.002, 50) == pytest.approx(0.002)


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
def test_of_a_large_state_copying_rests_less(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """As much of it changes meanwhile, and is copied again; of others little is."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    task: Any = SimpleNamespace(queued=4096, capacity=4096)
    old = Going(task, 1, None, brake=large(), gave=clock.now)
    old.brake.size = size
    saver: Any = SimpleNamespace(_closing=SimpleNamespace(wait=clock.wait))
    Copying._give_back(saver, old, SimpleNamespace())  # type: ignore[arg-type]
    rests = copying.RESTS_LARGE * SLICE_LARGE if size == LARGE else copying.RESTS * SLICE
    assert sum(clock.waited) == pytest.approx(rests)


@pytest.mark.parametrize("level", [0, 1])
def test_a_task_is_not_slower_than_before_for_ever(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    clock, one = Clock(monkeypatch), large()
    waited = 0.0
    for _ in range(1000):
        one.press()
        one._level = level
        wait = clock.turn(one, 0.001, 10)
        clock.now += wait
        waited += wait
    if level:
        assert not one.on and waited == pytest.approx(IN_ALL, abs=STINT)
    else:
        assert one.on, "as fast as before it may go for as long as copying lasts"


def test_who_is_to_stand_still_has_its_turn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, one = Clock(monkeypatch), large()
    one.press()
    assert clock.turn(one, 0.001, 10) > 0
    one.release()
    assert one.next_turn() == 0.0
    one.press(1.0)
    assert not one.on, "what comes late"


def slowed() -> list[bool]:
    """For each time that a task waited with its turn that moves to where putting in takes long: whether it was standing still."""
    name, topology, large = with_a_large_state()
    held: list[bool] = []
    began, took = threading.Event(), [1.0] * 3
    look, next_turn, pausing = Fetching._look, Brake.next_turn, Saving.pausing
    pauses: list[int] = []

    def looks(self: Fetching, coming: Coming) -> float:
        truly = look(self, coming)
        if not took:
            return truly
        if len(took) == 1:
            # It has been said by now. For as long as putting in takes more changes, and is copied.
            began.wait(0.5)
        return took.pop()

    def waits(self: Brake) -> float:
        at = next_turn(self)
        if at:
            held.append(bool(pauses))
            began.set()
        return at

    def pauses_now(self: Saving, task: Any) -> None:
        pausing(self, task)
        pauses.append(task.id)

    with pytest.MonkeyPatch.context() as patch, Moving(topology, 2, lambda c, i: 0) as cluster:
        patch.setattr(brake, "LARGE", 0)
        patch.setattr(brake, "PARTS", (0.5,))
        patch.setattr(Fetching, "_look", looks)
        patch.setattr(Brake, "next_turn", waits)
        patch.setattr(Saving, "pausing", pauses_now)
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT
    return held


def test_a_task_waits_for_who_puts_its_state_in() -> None:
    held = slowed()
    assert held, "nobody was held back"
    assert not any(held), "somebody waits for it to stand still"


def test_a_new_side_that_says_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Words, "behind", lambda *_: None)
    monkeypatch.setattr(brake, "LEAST", 0.0)  # by itself the old side, which copies fast enough, does not
    with pytest.raises(AssertionError, match="nobody was held back"):
        test_a_task_waits_for_who_puts_its_state_in()


@pytest.mark.parametrize("size", [LARGE - 1, LARGE])
@pytest.mark.parametrize("outrun", [False, True])
def test_only_of_a_large_state_that_changes_as_fast_as_it_is_copied_much_is_copied_at_once(
    monkeypatch: pytest.MonkeyPatch, size: int, outrun: bool
) -> None:
    """Keys that stay wait for it as well."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    until: list[float] = []
    copier: Any = SimpleNamespace(
        outrun=outrun, in_vain=0, ahead=lambda at: until.append(at - clock.now) or []
    )
    task: Any = SimpleNamespace()
    old = Going(task, 1, copier, brake=large())
    old.brake.size = size
    saver: Any = SimpleNamespace()
    assert Copying._slice(saver, old, copier, 0.0) == []
    usual = SLICE_LARGE if size == LARGE else SLICE
    hurries = outrun and size == LARGE
    assert until == [pytest.approx(usual * (HARDER if hurries else 1))]


def test_what_is_copied_in_vain_slows_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", clock)
    copier: Any = SimpleNamespace(outrun=True, in_vain=0, ahead=lambda at: [])
    task: Any = SimpleNamespace()
    old = Going(task, 1, copier, brake=large())
    saver: Any = SimpleNamespace()
    levels = []
    for in_vain in (0, 1, 1, 2):
        copier.ahead = lambda at, now=in_vain: setattr(copier, "in_vain", now) or []
        Copying._slice(saver, old, copier, 0.0)
        levels.append(old.brake._level)
    assert levels == [0, 1, 1, 2] and old.brake.on
