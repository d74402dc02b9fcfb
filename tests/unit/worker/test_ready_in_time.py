"""A move becomes ready although states change all the time: nobody waits for what comes to no end, and nobody keeps others from it."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import TopologyBuilder
from elastic.api.state import KeyedState
from elastic.migration.record import Outcome
from elastic.model.ids import ComponentId
from elastic.worker.content import Copier
from elastic.worker.content.keyed import _ROUNDS
from elastic.worker.executing.brake import Brake
from elastic.worker.moving import copying, fetching
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.copying import (
    CATCH_UP_LONGEST,
    KEEP_UP_LONGEST,
    LASTS,
    LONGEST_SLICE,
    SHARE,
    SLICE,
    Copying,
)
from elastic.worker.moving.fetching import THREADS, Fetching
from elastic.worker.moving.going import Going
from tests.unit.worker.moving_harness import Moving
from tests.unit.worker.test_brake import Clock
from tests.unit.worker.test_moves_ahead import Large, Numbers, with_a_large_state

LIMIT = 30.0
TASKS = 2 * THREADS
ENTRIES = 2000
MANY = 20_000


def move_tasks_that_always_have_more() -> None:
    """Whenever somebody has looked at what comes of one, there is more of it."""
    look = Fetching._look

    def looks(self: Fetching, coming: Coming) -> float:
        try:
            return look(self, coming)
        finally:
            coming.more = coming.more or not coming.last.is_set()

    b = TopologyBuilder("ready")
    b.spout("numbers", Numbers(), rate=2000.0)
    b.bolt("large", Large("ready", ENTRIES), tasks=TASKS).shuffle("numbers")
    topology = b.build()
    with pytest.MonkeyPatch.context() as patch, Moving(topology, 2, lambda c, i: 0) as cluster:
        patch.setattr(Fetching, "_look", looks)
        moved = cluster.move(dict.fromkeys(topology.spec.tasks_of(ComponentId("large")), 1), limit=LIMIT)
        assert [(part.outcome, part.reason) for part in moved.tasks] == [(Outcome.COMMITTED, "")] * TASKS


def test_tasks_that_always_have_more_keep_no_thread_from_others() -> None:
    move_tasks_that_always_have_more()


def test_that_they_do_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Fetching, "_others_first", lambda *_: False)
    monkeypatch.setitem(globals(), "LIMIT", 3.0)
    with pytest.raises(AssertionError):
        move_tasks_that_always_have_more()


def move_one_that_falls_behind() -> None:
    """Everything was copied once; from then on more changes than is copied, and each look takes long."""
    look, caught_up = Fetching._look, itertools.chain([True], itertools.repeat(False))

    def looks(self: Fetching, coming: Coming) -> float:
        look(self, coming)
        coming.caught_up = next(caught_up)
        return 1.0

    _, topology, large = with_a_large_state()
    with pytest.MonkeyPatch.context() as patch, Moving(topology, 2, lambda c, i: 0) as cluster:
        patch.setattr(Fetching, "_look", looks)
        (part,) = cluster.move({large: 1}, limit=LIMIT).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")


def test_what_falls_behind_for_good_is_left_to_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LONG_ENOUGH", 0.0)
    move_one_that_falls_behind()


def test_that_it_is_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(fetching, "LONG_ENOUGH", 1000.0)
    monkeypatch.setitem(globals(), "LIMIT", 3.0)
    with pytest.raises(AssertionError):
        move_one_that_falls_behind()


def test_a_state_of_which_much_changes_whenever_somebody_asks_is_said_to_be_copied() -> None:
    class Bolt(Large):
        numbers = KeyedState[int, int]()

        def __init__(self) -> None: ...

    bolt = Bolt()
    bolt.numbers.update((n, n) for n in range(MANY))
    copier = Copier(bolt)
    copier.read_at_once()
    copier.ahead(math.inf)
    (keyed,) = (k for k in copier._keyed if k.name == "numbers")
    said: list[bool] = []
    while keyed._rounds < 2 * _ROUNDS:
        bolt.numbers.update((k, len(said)) for k in range(MANY // 2))
        said.append(keyed.caught_up)
        copier.ahead(math.inf)
        assert keyed.caught_up, "there is nothing to copy"
    bolt.numbers.update((k, -1) for k in range(MANY // 2))
    assert said and not any(said) and keyed.caught_up
    copier.cancel()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(monkeypatch)
    monkeypatch.setattr(copying, "time", made)
    return made


def test_the_longer_an_executor_is_waited_for_the_longer_copying_takes_it(clock: Clock) -> None:
    """Streams are held up then: it comes only between two tuples that wait for room."""
    until: list[float] = []
    copier: Any = SimpleNamespace(outrun=False, in_vain=0, ahead=lambda at: until.append(at - clock.now))
    old, none = Going(SimpleNamespace(), 1, copier), SimpleNamespace()  # type: ignore[arg-type]
    for waited in (0.0, SHARE * SLICE / 2, 1.5 * SHARE * SLICE, 10.0):
        Copying._slice(none, old, copier, waited)  # type: ignore[arg-type]
    assert until == pytest.approx([SLICE, SLICE, 1.5 * SLICE, LONGEST_SLICE])


def test_what_was_not_copied_in_time_is_given_more_of_it(clock: Clock) -> None:
    step, left = KEEP_UP_LONGEST / 2, [1] * 100
    calls: list[int] = []

    def some(*_: Any) -> bool:
        clock.now += step
        calls[-1] += 1
        return bool(left and left.pop())

    copier: Any = SimpleNamespace(caught_up=False, said_all=True, busy=True)
    old = Going(SimpleNamespace(), 1, copier, write=SimpleNamespace())  # type: ignore[arg-type]
    mine: Any = SimpleNamespace(_copy_some=some, _commit_ahead=lambda *_: None)
    behind = []
    for _ in range(3):
        calls.append(0)
        Copying._keep_up_one(mine, old)
        behind.append(old.behind)
        if len(calls) == 2:
            left.clear()
    assert behind == [True, True, False]
    assert calls[0] < calls[1] == pytest.approx(CATCH_UP_LONGEST / step, abs=1.5) and calls[2] == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_that_lasts_is_one_of_a_large_state(clock: Clock, late: bool) -> None:
    pace: Any = SimpleNamespace(rate=lambda now, executed: 7.0)
    task: Any = SimpleNamespace(brake=None, pace=pace, executed=0, call=lambda what: what())
    copier: Any = SimpleNamespace(outrun=True, in_vain=0, ahead=lambda at: [], caught_up=False)
    old = Going(task, 1, copier, brake=Brake(), began=clock.now)
    clock.now += LASTS + (1.0 if late else -1.0)
    mine: Any = SimpleNamespace()
    mine._brake = lambda old: Copying._brake(mine, old)
    mine._slice = lambda *given: Copying._slice(mine, *given)
    assert not Copying._copy_some(mine, old, copier, SimpleNamespace())  # type: ignore[arg-type]
    assert old.brake.large == old.hurries == late and (task.brake is old.brake) == late
    assert not late or (old.brake.on and old.brake.rate == 7.0)
