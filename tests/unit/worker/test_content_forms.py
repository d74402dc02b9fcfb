"""What comes back from a move is what went: all types of keys and values, arrays, objects; and errors that name what cannot go."""

from __future__ import annotations

import datetime
import decimal
import enum
import threading
import time
import uuid
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from elastic import KeyedState, StatefulBolt
from elastic.api import tracking
from elastic.api.state import StateMap
from elastic.errors import ExecutionError
from elastic.worker.content import Arrival, Copier, entries, fill, install, keyed
from elastic.worker.content.arrival import LARGE_PUT
from elastic.worker.content.bins import place, places
from elastic.worker.content.layout import read_meta


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    pass


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Key:
    a: str


@dataclass
class Record:
    items: list[int]


class Bolt(StatefulBolt):
    state = KeyedState[Any, Any](int)
    other = KeyedState[Any, Any](list)


def move(bolt: Any, *, ahead: bool = True, piece: int = 200) -> Any:
    """The state of `bolt` in another one, which is not read yet."""
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=piece)
        assert copier.size() >= 0
        got = {}
        while ahead and not copier.done:
            got.update(copier.ahead(time.monotonic()))
        content = copier.rest()
    got.update(content.pieces)
    made = type(bolt)()
    install(made, content.meta, [got[n] for n in content.order])
    return made


VALUES: list[Any] = [
    0, -1, True, 1.0, float("inf"), None, "", "ä\ud800", b"", b"\x80", 2**63, 2**64, -(2**70), 1j,
    (), (1, "a", (2,)), [], [1, True, 1.0, None, "x", b"y"], [[]], [(1,)], {}, {1: 2, False: 3}, {"a": [1]}, {(1, 2): 3},
    {1, 2}, frozenset({1}), bytearray(b"x"), deque([1], maxlen=3), Counter("aab"), OrderedDict(a=1),
    Colour.RED, Level.LOW, Name("n"), Point(1, 2), Key("k"), decimal.Decimal("1.0"), uuid.UUID(int=5),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.date(2026, 1, 2), datetime.timedelta(1),
    range(3), np.int64(4), np.float64(0.5),
]  # fmt: skip
KEYS: list[Any] = [
    0, -5, 2**80, 1.5, True, None, "", "a", "ä\ud800", b"a", (), ("a", 1), ("a", (1, b"b")), frozenset({1, 2}),
    Colour.RED, Name("n"), Point(3, 4), Key("k"), decimal.Decimal("2.5"), uuid.UUID(int=5),
    datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta(hours=2))), datetime.datetime(2026, 1, 2),
    datetime.date(2026, 1, 2), np.int64(40),
]  # fmt: skip


GOLDEN = [3758135754, 1801707408, 1801707408, 0, 2654435769, 2893786093, 3996613049, 1852796517, 1152182066]


def exact(entries: dict[Any, Any]) -> set[tuple[type, str, type, str]]:
    return {(type(k), repr(k), type(v), repr(v)) for k, v in entries.items()}


@pytest.mark.parametrize("ahead", [True, False])
def test_every_value_comes_back_with_its_type(ahead: bool) -> None:
    bolt = Bolt()
    bolt.state.update(enumerate(VALUES))
    moved = move(bolt, ahead=ahead)
    for number, value in enumerate(VALUES):
        got = moved.state[number]
        assert (type(got), repr(got)) == (type(value), repr(value))
    assert exact(moved.state) == exact(bolt.state)
    assert moved.state["new"] == 0, "the default travels with the class"


@pytest.mark.parametrize("ahead", [True, False])
def test_every_key_comes_back_with_its_type_and_is_found(ahead: bool) -> None:
    bolt = Bolt()
    bolt.state.update((k, i) for i, k in enumerate(KEYS))
    for key in KEYS:
        moved = move(bolt, ahead=ahead)
        assert moved.state[key] == bolt.state[key], key
        assert exact(moved.state) == exact(bolt.state)


def test_equal_keys_have_one_place() -> None:
    moment = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    for same in (
        [1, 1.0, True, decimal.Decimal(1), Level.LOW, np.int64(1), np.float64(1), 1 + 0j],
        [(1, "a"), (1.0, "a"), (True, "a")],
        [(3, 4), Point(3, 4)],
        [moment, moment.astimezone(datetime.timezone(datetime.timedelta(hours=5)))],
        [2**70, float(2**70)],
    ):
        assert len({place(k) for k in same}) == 1, same
        assert None not in {place(k) for k in same}
    assert [place(k) for k in (Key("a"), Colour.RED, Name("a"), frozenset(), ("a", Key("b")))] == [None] * 5
    assert places(["a", "ä"]) == [place("a"), place("ä")]
    assert all(0 <= place(k) < 1 << 32 for k in (-1, -(2**80), float("nan"), "x", b"", None, ()))  # type: ignore[operator]


def test_places_stay_what_they_are() -> None:
    """State that was saved by another process, or another version, is found by them."""
    assert [place(k) for k in ("", "user-1", b"user-1", 0, 1, -7, 1.5, None, ("a", 1))] == GOLDEN


def test_a_key_is_found_by_an_equal_one_of_another_type() -> None:
    bolt = Bolt()
    bolt.state.update({n: n for n in range(200)} | {Key("k"): "own"})
    for ask in (7.0, decimal.Decimal(7), np.int64(7)):
        moved = move(bolt)
        assert tracking.is_lazy(moved.state)
        assert moved.state[ask] == 7
    moved = move(bolt)
    assert Name("x") not in moved.state, "a type without a place: everything is read"
    assert not tracking.is_lazy(moved.state)


def test_the_key_stays_the_one_that_was_there_first() -> None:
    bolt = Bolt()
    bolt.state.update({n: n for n in range(100)} | {(5, "x"): 0})
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=100)
        got = {}
        while not copier.done:
            got.update(copier.ahead(time.monotonic()))
        bolt.state[True] = "set by True"
        bolt.state[(5.0, "x")] = "set by 5.0"
        del bolt.state[2]
        bolt.state[2.0] = "there anew"
        content = copier.rest()
    got.update(content.pieces)
    moved = Bolt()
    install(moved, content.meta, [got[n] for n in content.order])
    assert exact(moved.state) == exact(bolt.state)
    assert {repr(k) for k, v in moved.state.items() if isinstance(v, str)} == {"1", "(5, 'x')", "2.0"}


def test_a_list_in_two_places_of_a_value_is_one_list() -> None:
    bolt = Bolt()
    shared = [1]
    bolt.state["a"] = [shared, shared]
    bolt.state["self"] = loop = []  # type: ignore[var-annotated]
    loop.append(loop)
    moved = move(bolt)
    first, second = moved.state["a"]
    assert first is second
    assert moved.state["self"][0] is moved.state["self"]


def test_an_object_that_is_changed_through_the_state_is_copied_again() -> None:
    bolt = Bolt()
    for number in range(100):
        bolt.state[number] = Record([number])
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=200)
        got = {}
        while not copier.done:
            got.update(copier.ahead(time.monotonic()))
            bolt.state[3].items.append(7)
        bolt.state[5].items.append(8)
        content = copier.rest()
        got.update(content.pieces)
    moved = Bolt()
    install(moved, content.meta, [got[n] for n in content.order])
    assert moved.state[3] == bolt.state[3]
    assert moved.state[5].items == [5, 8]
    assert all(moved.state[n] == bolt.state[n] for n in range(100))


class Member:
    """Hashable, and can be changed."""

    def __init__(self, name: str) -> None:
        self.name, self.seen = name, 0


@pytest.mark.parametrize("kind", [frozenset, tuple])
@pytest.mark.parametrize("way", [lambda s: s[5], lambda s: s.get(5), lambda s: dict(s.items())[5]])
def test_what_a_value_holds_that_cannot_be_changed_itself_is_copied_again(kind: Any, way: Any) -> None:
    bolt = Bolt()
    bolt.state.update({n: kind([Member(str(n))]) for n in range(100)})
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=200)
        got = {}
        while not copier.done:
            got.update(copier.ahead(time.monotonic()))
        (member,) = way(bolt.state)
        member.seen += 1
        content = copier.rest()
        got.update(content.pieces)
    moved = Bolt()
    install(moved, content.meta, [got[n] for n in content.order])
    (arrived,) = moved.state[5]
    assert (type(moved.state[5]), arrived.name, arrived.seen) == (kind, "5", 1)


def test_what_is_bytes_still_moves_on_as_it_is() -> None:
    bolt = Bolt()
    bolt.state.update((f"k{n}", n) for n in range(1000))
    first = move(bolt, piece=1000)
    first.state["k1"] += 1
    first.state["k2"] = 0
    del first.state["k3"]
    with patch.object(keyed.UnreadBins, "read_all", side_effect=AssertionError):
        second = move(first, piece=1000)
        assert second.state["k1"] == 2
        third = move(second, piece=1000, ahead=False)
    model = dict(bolt.state) | {"k1": 2, "k2": 0}
    del model["k3"]
    assert len(third.state) == 999
    assert dict(third.state) == dict(second.state) == dict(first.state) == model
    for moved in (first, second, third):
        tracking.untrack(moved.state)
        assert type(moved.state) is StateMap


def test_with_time_everything_is_read() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(3000))
    bolt.other.update((n, [n]) for n in range(3000))
    moved = move(bolt, piece=2000)
    moved.state[3] = "set before it was read"
    assert fill(moved, time.monotonic()), "it stops when the time is over"
    while fill(moved, time.monotonic() + 0.001):
        pass
    assert type(moved.state) is type(moved.other) is StateMap
    assert dict(moved.state) == dict(bolt.state) | {3: "set before it was read"}
    assert dict(moved.other) == dict(bolt.other)
    assert not fill(moved, time.monotonic())


def test_after_a_rollback_it_is_a_plain_dictionary_again() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(1000))
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=500)
        copier.ahead(time.monotonic())
        copier.ahead(time.monotonic())  # of each state a step, however late it is
        assert tracking.is_tracking(bolt.state)
        copier.rest()
        copier.cancel()
    assert type(bolt.state) is StateMap
    assert dict(bolt.state) == {n: n for n in range(1000)}


def test_a_copy_that_is_given_up_late_costs_the_one_after_it_nothing() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(1000))
    with patch.multiple(keyed, SMALL=0):
        first, second = Copier(bolt), Copier(bolt)
        first.ahead(time.monotonic())
        first.cancel()
        got = {}
        while not second.done:
            got.update(second.ahead(time.monotonic()))
        first.cancel()
        bolt.state[1] = -1
        content = second.rest()
    got.update(content.pieces)
    moved = Bolt()
    install(moved, content.meta, [got[n] for n in content.order])
    assert moved.state[1] == -1


def test_a_small_state_is_left_to_the_pause() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(1000))
    copier = Copier(bolt)
    assert copier.ahead(time.monotonic() + 1) == []
    assert copier.done
    assert type(bolt.state) is StateMap, "its changes need not be remembered"
    bolt.state[5] = "later"
    content = copier.rest()
    moved = Bolt()
    install(moved, content.meta, [p for _, p in content.pieces])
    assert dict(moved.state) == dict(bolt.state)


@pytest.mark.parametrize("outrun", ["state", "other"])
def test_a_state_that_is_outrun_does_not_starve_another(outrun: str) -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(1000))
    bolt.other.update((n, [n]) for n in range(1000))
    fast: StateMap[int, Any] = getattr(bolt, outrun)
    with patch.multiple(keyed, SMALL=0, LITTLE=16):
        copier = Copier(bolt, piece=1000)
        copier.read_at_once()
        for _ in range(2000):
            if copier.done:
                break
            copier.ahead(time.monotonic())  # a step
            fast.update((n, fast[n]) for n in range(500))
    assert copier.done


@pytest.mark.parametrize("at_once", [True, False], ids=["read at once", "grid"])
@pytest.mark.parametrize("before", ["pause", "removal"])
def test_what_was_copied_is_not_gone_through_once_more(before: str, at_once: bool) -> None:
    """Neither in the pause nor when the first key is removed."""
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(1000))
    copier, at = Copier(bolt, piece=100), entries.Present.stop_iterating
    if at_once:
        copier.read_at_once()
    gone_through = 0

    def goes_through(self: entries.Present) -> None:
        nonlocal gone_through
        gone_through += self._keys is None
        at(self)

    with patch.multiple(keyed, SMALL=0), patch.object(entries.Present, "stop_iterating", goes_through):
        while not copier.done:
            copier.ahead(time.monotonic())
        if before == "removal":
            del bolt.state[1]
        else:
            copier.rest()
    assert not gone_through


def test_a_small_state_that_grows_large_is_copied_ahead() -> None:
    bolt = Bolt()
    copier = Copier(bolt)
    copier.ahead(time.monotonic() + 1)
    bolt.state.update((f"key number {n}", n) for n in range(50_000))
    got: dict[int, bytes] = {}
    while not copier.done or not got:
        got.update(copier.ahead(time.monotonic() + 0.01))
    assert not copier.rest().pieces


def test_one_large_value_makes_one_large_piece() -> None:
    bolt = Bolt()
    bolt.state.update(dict.fromkeys(range(100), b"x") | {"large": b"y" * 3_000_000})
    for ahead in (True, False):
        assert dict(move(bolt, ahead=ahead, piece=1000).state) == dict(bolt.state)


def in_steps(entries: int, over_after: int) -> tuple[Bolt, list[int], Arrival]:
    """A state that is put in ahead: how many entries are there after each step, of which the last is that one."""
    bolt, moved = Bolt(), Bolt()
    bolt.state.update((f"key number {n}", n) for n in range(entries))
    copier = Copier(bolt, piece=1 << 20)
    copier.read_at_once()
    got: dict[int, bytes] = {}
    while not copier.done:
        got.update(copier.ahead(time.monotonic()))
    content, arrival, there = copier.so_far(), Arrival(moved), []
    for _ in arrival.ahead(content.meta, content.order, [got[n] for n in content.order]):
        there.append(len(moved.state))
        arrival.over = len(there) == over_after
    rest = copier.rest()
    got.update(rest.pieces)
    arrival.put(rest.meta, rest.order, [b"" if n in arrival.here else got[n] for n in rest.order])
    assert dict(moved.state) == dict(bolt.state)
    return moved, there, arrival


def test_a_piece_is_put_in_by_parts_between_which_others_run() -> None:
    _, there, _ = in_steps(20_000, -1)
    assert max(b - a for a, b in pairwise([0, *there])) <= LARGE_PUT < 8192


def test_a_piece_that_was_put_in_by_half_when_the_pause_came_is_put_in_again() -> None:
    _, there, arrival = in_steps(20_000, 2)
    assert there == [LARGE_PUT, 2 * LARGE_PUT], "in the midst of the first piece"
    assert arrival.over


def test_pieces_that_are_put_in_with_one_call_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr("elastic.worker.content.arrival.LARGE_PUT", 1 << 20)
    with pytest.raises(AssertionError):
        test_a_piece_is_put_in_by_parts_between_which_others_run()


def test_what_is_remembered_is_bounded() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(2000))
    with patch.multiple(keyed, SMALL=0, MOST_REMOVED=100):
        copier = Copier(bolt, piece=2000)
        got: dict[int, bytes] = {}
        for number in range(20_000):
            bolt.state[f"w{number}"] = number
            if number >= 100:
                del bolt.state[f"w{number - 100}"]
            if number % 50 == 0:
                got.update(copier.ahead(time.monotonic() + 0.001))
            assert len(tracking.removed(bolt.state)) < 7000 if tracking.is_tracking(bolt.state) else True
        content = copier.rest()
    got.update(content.pieces)
    moved = Bolt()
    install(moved, content.meta, [got[n] for n in content.order])
    assert exact(moved.state) == exact(bolt.state)


# ------------------------------------------------------------------ get_state and set_state


class Own(StatefulBolt):
    counts = KeyedState[str, int](int)

    def __init__(self) -> None:
        self.window: Any = deque(maxlen=5)

    def get_state(self) -> object:
        return {"window": self.window}

    def set_state(self, state: Any) -> None:
        self.window = state["window"]


def test_a_state_of_ones_own_and_keyed_states_travel_together() -> None:
    bolt = Own()
    bolt.window.extend(range(9))
    bolt.counts["a"] = 3
    moved = move(bolt)
    assert moved.window == deque([4, 5, 6, 7, 8], maxlen=5)
    assert moved.window.maxlen == 5
    assert dict(moved.counts) == {"a": 3}


def test_arrays_travel_outside_of_the_pickle_and_can_be_written_to() -> None:
    bolt = Own()
    bolt.window = [np.arange(100_000, dtype="i8"), np.arange(10), "x" * 700_000]
    copier = Copier(bolt)
    assert 1_000_000 < copier.size() < 3_000_000
    content = copier.rest()
    assert len(read_meta(content.meta).buffers) == 1
    assert max(len(p) for _, p in content.pieces) < 800_000
    moved = Own()
    got = dict(content.pieces)
    install(moved, content.meta, [got[n] for n in content.order])
    assert all(np.array_equal(a, b) for a, b in zip(moved.window[:2], bolt.window[:2], strict=True))
    assert moved.window[2] == bolt.window[2]
    moved.window[0][0] = 7


def test_a_component_without_state_has_no_pieces() -> None:
    class Plain(StatefulBolt):
        pass

    content = Copier(Plain()).rest()
    assert content.pieces == ()
    install(Plain(), content.meta, [])


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize("ahead", [True, False])
def test_a_value_that_cannot_be_pickled_is_named(ahead: bool) -> None:
    bolt = Bolt()
    bolt.other.update((n, [n]) for n in range(300))
    bolt.other[217] = [threading.Lock()]  # type: ignore[list-item]
    with pytest.raises(
        ExecutionError,
        match=r"State 'other' of Bolt .* value of key 217 is a list that cannot be pickled.*lock",
    ):
        move(bolt, ahead=ahead)
    assert type(bolt.other) is StateMap, "the task goes on"


def test_a_key_that_cannot_be_pickled_is_named() -> None:
    bolt = Bolt()
    bolt.state[lambda: 0] = 1
    with pytest.raises(ExecutionError, match=r"the key .*lambda.* is a function"):
        Copier(bolt).size()


def test_an_own_state_that_cannot_be_pickled_is_named() -> None:
    bolt = Own()
    bolt.window = threading.Lock()
    with pytest.raises(ExecutionError, match=r"state of Own cannot be pickled \(part 'window' is a lock\)"):
        Copier(bolt).rest()


def test_what_user_code_raises_is_said() -> None:
    class Broken(Own):
        def get_state(self) -> object:
            raise ValueError("no state today")

    class Refuses(Own):
        def set_state(self, state: Any) -> None:
            raise ValueError("not that")

    with pytest.raises(ExecutionError, match=r"get_state\(\) of Broken raised ValueError: no state today"):
        Copier(Broken()).rest()
    content = Copier(Own()).rest()
    with pytest.raises(ExecutionError, match=r"set_state\(\) of Refuses raised ValueError: not that"):
        install(Refuses(), content.meta, [p for _, p in content.pieces])


def test_other_code_and_other_bytes_are_refused() -> None:
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(10))
    content = Copier(bolt).rest()
    with pytest.raises(ExecutionError, match="Own has no state 'other'"):
        install(Own(), content.meta, [p for _, p in content.pieces])
    with pytest.raises(ExecutionError, match="cannot be read"):
        install(Bolt(), b"\x00", [])
    with pytest.raises(ExecutionError, match="has the form 0"):
        install(Bolt(), b"\x94\x00\x90\xc0\x90", [])
    with pytest.raises(ExecutionError, match="'state' of Bolt cannot be read"):
        install(Bolt(), content.meta, [b"\x81" for _ in content.pieces])


LONG = 10.0


def test_a_state_that_is_outrun_once_is_copied_quickly_until_little_is_left() -> None:
    """Also when a round has halved what was left: a stream that has been held back is quicker than ever once it is not."""
    bolt = Bolt()
    bolt.state.update((n, n) for n in range(2000))
    with patch.multiple(keyed, SMALL=0, LITTLE=16):
        copier = Copier(bolt, piece=1000)
        copier.read_at_once()
        (of,) = (k for k in copier._keyed if k.name == "state")

        def a_round(changes: int) -> bool:
            """So many entries have changed when it has ended; whether it is outrun then."""
            steps, rounds = 0, of._rounds
            while of._rounds == rounds and of.busy and steps < 10_000:
                copier.ahead(time.monotonic())  # a step
                steps += 1
                if changes:
                    bolt.state.update((n, -n) for n in range(changes))
            return of.outrun

        assert a_round(1900), "most of what the first round has copied is out of date"
        assert a_round(800), "that is half as much as before, and too much still"
        assert a_round(300)
        while of.busy:
            copier.ahead(time.monotonic() + LONG)
        copier.ahead(time.monotonic() + LONG)
        assert not of.outrun and of.caught_up
