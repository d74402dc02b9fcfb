"""States at their edges: attributes that are assigned anew, keys that are equal to nothing or to too much, entries that are too large."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.errors import ExecutionError
from elastic.worker.content import Arrival, Copier, keyed, wholes
from statestore.base import MAX_PIECE


class Two(StatefulBolt):
    now: KeyedState[Any, Any] = KeyedState(int)
    before: KeyedState[Any, Any] = KeyedState(int)


class Move:
    """A state that is copied ahead, as workers do it, and put in on the way if `looks`."""

    def __init__(self, old: StatefulBolt, *, looks: bool = True, piece: int = 200) -> None:
        self.new = type(old)()
        self.looks = looks
        self.copier = Copier(old, piece=piece)
        self.copier.size()
        self.copier.read_at_once()
        self._got: dict[int, bytes] = {}
        self._arrival = Arrival(self.new)

    def _pieces(self, order: tuple[int, ...]) -> list[bytes]:
        return [b"" if n in self._arrival.here else self._got[n] for n in order]

    def copy(self) -> None:
        for _ in range(10_000):
            self._got.update(self.copier.ahead(time.monotonic()))
            if self.copier.done:
                break
        if self.looks:
            found = self.copier.so_far()
            for _ in self._arrival.ahead(found.meta, found.order, self._pieces(found.order)):
                pass

    def rest(self) -> Any:
        found = self.copier.rest()
        self._got.update(found.pieces)
        self._arrival.put(found.meta, found.order, self._pieces(found.order))
        return self.new


@pytest.fixture(autouse=True)
def also_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "SMALL", 0)


# ---------------------------------------------------------------- states that are assigned anew


@pytest.mark.parametrize("when", ["before", "while it is copied"])
def test_a_dictionary_in_the_place_of_a_state_is_one(when: str) -> None:
    old: Any = Two()
    old.now.update({n: n for n in range(100)})
    if when == "before":
        old.before, old.now = dict(old.now), {"x": 1}
    move = Move(old)
    move.copy()
    if when != "before":
        old.before, old.now = dict(old.now), {"x": 1}
    new = move.rest()
    assert (new.now, new.before) == ({"x": 1}, {n: n for n in range(100)})
    assert new.now["not there"] == 0 == old.now["not there"], "with its default"


@pytest.mark.parametrize("again", [False, True])
def test_states_that_change_places_while_they_are_copied_arrive_so(again: bool) -> None:
    old: Any = Two()
    old.now.update({f"n{n}": 1 for n in range(100)})
    old.before.update({f"b{n}": 2 for n in range(100)})
    move = Move(old)
    move.copy()
    old.now, old.before = old.before, old.now
    old.now.clear()
    old.now["first of the next"] = 1
    if again:
        move.copy()
        old.before["later"] = 3
    new = move.rest()
    assert (new.now, new.before) == (old.now, old.before) and len(new.before) == 100 + again


def test_a_copy_in_the_place_of_a_state_is_followed() -> None:
    old: Any = Two()
    old.now.update(dict.fromkeys(range(100), 1))
    move = Move(old)
    move.copy()
    old.now = old.now.copy()
    old.now["later"] = 5
    assert move.rest().now == old.now


def test_what_is_no_dictionary_is_no_state() -> None:
    old: Any = Two()
    old.now = [1, 2]
    with pytest.raises(ExecutionError, match=r"State 'now' of 'Two'|State 'now' of Two"):
        Move(old)


def infinite() -> float:
    return float("inf")


@pytest.mark.parametrize(
    "assigned",
    [Counter("aab"), OrderedDict(a=2), defaultdict(infinite), defaultdict(None)],
    ids=lambda given: repr(given)[:20],
)
def test_a_dictionary_that_would_lose_something_as_a_state_is_none(assigned: Any) -> None:
    """What it can do, or its default: it stays what it is, and its task where it is."""
    old: Any = Two()
    old.now = assigned
    with pytest.raises(ExecutionError, match=rf"'now' of Two is of class {type(assigned).__name__} by now"):
        Move(old)
    assert old.now is assigned


def test_a_dictionary_with_the_default_that_was_declared_is_a_state() -> None:
    old: Any = Two()
    old.now = defaultdict(int, x=1)
    new = Move(old).rest()
    assert new.now == {"x": 1} and new.now["not there"] == 0 == old.now["not there"]


class Flushing(StatefulBolt):
    counts: KeyedState[int, int] = KeyedState(int)

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def get_state(self) -> None:
        for key, count in self.kept.items():
            self.counts[key] += count
        self.kept.clear()

    def set_state(self, state: Any) -> None:
        self.kept = {}


@pytest.mark.parametrize("ahead", [False, True])
def test_what_get_state_puts_into_a_keyed_state_goes_along(ahead: bool) -> None:
    old = Flushing()
    old.counts.update(dict.fromkeys(range(100), 1))
    move = Move(old)
    if ahead:
        move.copy()
    old.kept[1] = 1
    assert move.rest().counts == {**dict.fromkeys(range(100), 1), 1: 2}


class A(StatefulBolt):
    x: KeyedState[Any, Any] = KeyedState(int)


class B(A):
    x: KeyedState[Any, Any] = KeyedState(list)


class C(A):
    pass


class D(C, B):
    pass


def test_of_two_bases_the_state_is_that_which_comes_first() -> None:
    made: Any = D()
    assert made.x.default_factory is list
    assert A().x.default_factory is int


# ---------------------------------------------------------------- keys


class Session:
    """Equal to nothing but itself."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_keys_that_are_equal_to_nothing_are_there_once(looks: bool, late: bool) -> None:
    old: Any = Two()
    old.now.update({n: n for n in range(100)})
    odd: dict[Any, int] = {Session(n): 0 for n in range(5)}
    odd |= {float("nan"): 0, ("x", float("nan")): 0}
    if not late:
        old.now.update(odd)
    move = Move(old, looks=looks)
    move.copy()
    old.now.update(odd)
    for key in list(odd):
        old.now[key] += 1
    del old.now[next(key for key in odd if getattr(key, "number", 0) == 2)]
    del old.now[next(key for key in odd if type(key) is tuple)]
    new = move.rest()
    assert len(new.now) == 100 + 5
    assert sorted(key.number for key in new.now if isinstance(key, Session)) == [0, 1, 3, 4]
    assert all(new.now[key] == 1 for key in new.now if type(key) is not int)


@dataclass(frozen=True)
class Reading:
    """As hashable as what is in it."""

    of: Any


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "within", [float("nan"), Session(7), ("x", Session(7))], ids=["nan", "object", "tuple"]
)
def test_keys_that_hold_what_is_equal_to_nothing_are_there_once(within: Any, late: bool, looks: bool) -> None:
    old: Any = Two()
    old.now.update({Reading(n): n for n in range(100)})
    stays, goes = Reading(within), (1, Reading(within))
    if not late:
        old.now.update({stays: 0, goes: 0})
    move = Move(old, looks=looks)
    move.copy()
    old.now[stays] += 1
    old.now[goes] += 1
    move.copy()
    old.now[stays] += 1
    del old.now[goes]
    new = move.rest()
    assert [
        value for key, value in new.now.items() if type(key) is not Reading or type(key.of) is not int
    ] == [2]
    assert len(new.now) == 101


@pytest.mark.parametrize("looks", [False, True])
def test_a_key_that_was_removed_and_set_again_as_an_equal_one_is_the_new_one(looks: bool) -> None:
    old: Any = Two()
    old.now.update({n: n for n in range(100)})
    move = Move(old, looks=looks)
    move.copy()
    del old.now[1], old.now[2]
    old.now[True], old.now[2.0] = "one", "two"
    move.copy()
    new = move.rest()
    assert [type(key) for key in new.now if key in (1, 2)] == [bool, float]
    assert new.now == old.now


def test_a_field_may_be_called_self_also_while_a_state_is_copied() -> None:
    old: Any = Two()
    old.now.update({n: n for n in range(100)})
    move = Move(old)
    move.copy()
    old.now.update(self=1, other=2)
    assert move.rest().now["self"] == 1


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_one_dictionary_in_place_of_two_states_has_the_move_refused(late: bool, plain: bool) -> None:
    """What changes would be remembered for one of them alone."""
    old: Any = Two()
    old.now.update((n, n) for n in range(100))
    move = Move(old) if late else None
    if move is not None:
        move.copy()
    old.before = old.now = dict(old.now) if plain else old.now
    with pytest.raises(
        ExecutionError, match=r"'before' and 'now' of .* one and the same dictionary"
    ) as refused:
        (move or Move(old)).copy()
    assert "dict(self." in str(refused.value.remedy)
    old.before = dict(old.now)
    move = Move(old)
    move.copy()
    old.now[1] = -1
    new = move.rest()
    assert (new.now[1], new.before[1]) == (-1, 1)


# ---------------------------------------------------------------- sizes


def test_an_entry_that_no_store_takes_is_named() -> None:
    assert wholes.LARGEST == MAX_PIECE
    old: Any = Two()
    old.now.update({"small": b"x", "model": bytes(5 << 20)})
    with pytest.raises(ExecutionError, match="the entry of key 'model' takes 5,242,"):
        Move(old, piece=256 << 10).rest()
    old.now["model"] = bytes(3 << 20)
    assert Move(old, piece=256 << 10).rest().now == old.now


def test_removed_keys_go_in_pieces_that_stores_take() -> None:
    old: Any = Two()
    old.now.update({f"{n:04000d}": 1 for n in range(4000)})
    move = Move(old, looks=False, piece=256 << 10)
    move.copy()
    for key in list(old.now)[:3000]:
        del old.now[key]
    found = move.copier.rest()
    assert max(len(data) for _, data in found.pieces) <= MAX_PIECE // 2


# ---------------------------------------------------------------- keys that were there within a tuple alone


class _Locked:
    """Equal by value, and not to be pickled any more since it has a lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Locked) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@pytest.mark.parametrize("looks", [False, True])
def test_a_key_that_came_and_went_in_between_is_nobodys_business(looks: bool) -> None:
    """As a lock, or a future, by which something is found again, or one that is larger than any store takes."""
    old: Any = Two()
    old.now.update({n: n for n in range(500)})
    move = Move(old, looks=looks)
    move.copy()
    for key in (threading.Lock(), lambda: 1, (n for n in ()), (1, threading.Lock()), "x" * (5 << 20)):
        old.now[key] = 1
        del old.now[key]
    del old.now[7]
    new = move.rest()
    assert new.now == old.now and 7 not in new.now and len(new.now) == 499


def test_a_key_that_may_have_been_copied_is_not_left_out() -> None:
    """It could be pickled then, and cannot be now: what was read of it would stay."""
    old: Any = Two()
    key = _Locked("a")
    old.now.update({n: n for n in range(500)} | {key: 1})
    move = Move(old)
    move.copy()
    key.lock = threading.Lock()
    del old.now[key]
    with pytest.raises(ExecutionError, match="cannot be copied: the key"):
        move.rest()


def test_a_large_key_that_took_less_beside_its_value_is_gone_when_it_was_removed() -> None:
    """Pickled, the parts of it that are one object are written once: so it was copied; by itself it is written otherwise."""
    old: Any = Two()
    key = ("x" * (1 << 20),) * 8
    old.now.update({n: n for n in range(500)} | {key: [{"a": [1]}]})
    move = Move(old, piece=256 << 10)
    move.copy()
    del old.now[key]
    assert move.rest().now == old.now


class _Sparse:
    """As a tensor of Torch that has no bytes of its own."""

    @property
    def nbytes(self) -> int:
        raise RuntimeError("nbytes is not defined for sparse tensors")


class _Shy(StatefulBolt):
    def execute(self, tup: Any) -> None: ...

    def get_state(self) -> object:
        return {"weights": _Sparse(), "text": "x" * 100_000}


def test_a_value_that_cannot_say_how_large_it_is_does_not_keep_its_task_from_moving() -> None:
    copier = Copier(_Shy())
    assert 50_000 < copier.size() < 200_000
    assert copier.rest().pieces
