"""What comes ahead of a pause, and what of it counts when the rest has come."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.worker.content import Arrival, Content, Copier, keyed
from elastic.worker.content.keyed import KeyedCopier
from elastic.worker.content.layout import has_caught_up


class Bolt(StatefulBolt):
    state = KeyedState[Any, Any](int)


class Source:
    """A state of 3,000 entries that is copied while it changes."""

    def __init__(self) -> None:
        self.bolt = Bolt()
        self.bolt.state.update({f"k{n}": 0 for n in range(3000)})
        self.copier = Copier(self.bolt, piece=1000)
        self.copier.read_at_once()
        self.copier.size()
        self.pieces: dict[int, bytes] = {}

    def set(self, value: int) -> None:
        self.bolt.state.update({f"k{n}": value for n in range(3000)})

    def copy(self) -> Content:
        while not self.copier.done:
            self.pieces.update(self.copier.ahead(time.monotonic() + 0.01))
        return self.copier.so_far()

    def rest(self) -> Content:
        content = self.copier.rest()
        self.pieces.update(content.pieces)
        return content

    def of(self, content: Content, arrival: Arrival) -> list[bytes]:
        return [b"" if n in arrival.here else self.pieces[n] for n in content.order]


def test_only_what_is_new_has_to_come() -> None:
    source, target = Source(), Bolt()
    arrival, first = Arrival(target), source.copy()
    assert len(first.order) > 5
    for _ in arrival.ahead(first.meta, first.order, source.of(first, arrival)):
        pass
    assert target.state == source.bolt.state
    source.bolt.state["k7"] = 7
    last = source.rest()
    assert sum(n not in arrival.here for n in last.order) == 1
    arrival.put(last.meta, last.order, source.of(last, arrival))
    assert target.state == source.bolt.state


@pytest.mark.parametrize("copied", [True, False])
def test_the_rest_may_come_twice(copied: bool) -> None:
    """Once when it was saved, and once when coordination says so."""
    source, target = Source(), Bolt()
    arrival = Arrival(target)
    if copied:
        first = source.copy()
        for _ in arrival.ahead(first.meta, first.order, source.of(first, arrival)):
            pass
        source.bolt.state["k7"] = 7
    last = source.rest()
    for _ in arrival.ahead(last.meta, last.order, source.of(last, arrival)):
        pass
    assert not copied or target.state == source.bolt.state
    arrival.put(last.meta, last.order, source.of(last, arrival))
    assert target.state == source.bolt.state


def put_while_it_comes() -> None:
    """The pause comes while something is being put in, which goes on behind it."""
    source, target = Source(), Bolt()
    arrival = Arrival(target)
    first = source.copy()
    steps = arrival.ahead(first.meta, first.order, source.of(first, arrival))
    next(steps)
    with patch.multiple("elastic.worker.content.keyed", MOST_WRITTEN=0, WRITTEN=0):
        for value in (1, 2):  # the second time all of it is written once more, in the place of the first copy
            source.set(value)
            source.copy()
            while source.copier._keyed[0].busy:
                source.pieces.update(source.copier.ahead(time.monotonic() + 0.01))
    last = source.rest()
    assert not set(first.order) & set(last.order)
    arrival.put(last.meta, last.order, source.of(last, arrival))
    assert target.state == source.bolt.state
    for _ in steps:
        pass
    # Not the dictionaries: to say how these differ takes minutes.
    older = sum(target.state[k] != v for k, v in source.bolt.state.items())
    assert not older, "what is older has come over it"


def test_what_was_about_to_be_put_in_is_left_to_the_rest() -> None:
    put_while_it_comes()


def test_a_planted_fault_is_found() -> None:
    over = property(lambda self: False, lambda self, value: None)
    with patch.object(Arrival, "over", over, create=True), pytest.raises(AssertionError, match="older"):
        put_while_it_comes()


def follow(source: Source, rounds: int) -> tuple[int, int]:
    """A state that changes all the time is copied for long. (The most pieces of a commit, pieces that the pause still has to make.)"""
    most = 0
    source.copy()
    for turn in range(rounds):
        for n in range(300):
            source.bolt.state[f"k{(turn * 300 + n) % 3000}"] += 1
        source.pieces.update(source.copier.ahead(time.monotonic() + 0.01))
        most = max(most, len(source.copier.so_far().order))
    return most, len(source.copier.rest().pieces)


def follow_for_long() -> None:
    """Whenever the pause comes, only what has just changed is missing: also while all is written anew."""
    whole = len(Source().copy().order)
    for rounds in (5, 14, 17, 100):
        most, left = follow(Source(), rounds)
        assert most <= 3.2 * whole, f"{most} pieces of {whole} after {rounds} rounds"
        assert left <= whole / 8, f"{left} pieces of {whole} are left to the pause"


def test_what_is_written_has_a_bound_and_little_is_left_at_any_time() -> None:
    with patch.multiple("elastic.worker.content.keyed", WRITTEN=0, RENEWED_BYTES=0):
        follow_for_long()


@pytest.mark.parametrize(
    "fault", [{"WRITTEN": 1 << 30, "LEAST_WRITTEN": 1 << 30}, {"RENEWED": 0, "WRITTEN": 0}]
)
def test_that_nothing_is_written_anew_is_found(fault: dict[str, int]) -> None:
    faults = {"RENEWED_BYTES": 0, **fault}
    with (
        patch.multiple("elastic.worker.content.keyed", **faults),
        pytest.raises(AssertionError, match="after 100"),
    ):
        follow_for_long()


def most_written() -> int:
    """Bytes of a commit of a state of 2 MB that changes all the time, at most: stores keep these until the move has ended."""
    source, most, value = Source(), 0, "v" * 1000
    source.bolt.state.clear()
    source.bolt.state.update({f"k{n}": value for n in range(2000)})
    source.copier = Copier(source.bolt)
    source.copier.read_at_once()
    source.copier.size()
    source.copy()
    for turn in range(60):
        for n in range(500):
            source.bolt.state[f"k{(turn * 500 + n) % 2000}"] = f"{turn}{value}"
        while source.copier._keyed[0].busy:
            source.pieces.update(source.copier.ahead(time.monotonic() + 0.01))
        most = max(most, sum(len(source.pieces[n]) for n in source.copier.so_far().order))
    return most


def test_a_small_state_takes_little_room_however_long_it_is_copied() -> None:
    assert 4 << 20 < most_written() < 12 << 20
    with patch.object(keyed, "LEAST_WRITTEN", 16 << 20), patch.object(keyed, "WRITTEN", 16 << 20):
        assert most_written() > 12 << 20, "the fault: as much more as of a large one"


def stop_in_the_midst() -> None:
    """A round that nothing changes after is copied to its end, and until then the copy has not caught up."""
    source = Source()
    source.copy()
    source.set(1)
    source.pieces.update(source.copier.ahead(0.0))
    assert not has_caught_up(source.copier.so_far().meta)
    for _ in range(100):
        source.pieces.update(source.copier.ahead(0.0))
    assert has_caught_up(source.copier.so_far().meta)
    assert not source.copier.rest().pieces


def test_a_round_is_copied_to_its_end() -> None:
    stop_in_the_midst()


def test_that_what_a_round_still_owes_is_forgotten_is_found() -> None:
    owed = property(lambda self: 0, lambda self, value: None)
    with patch.object(KeyedCopier, "_owed", owed, create=True), pytest.raises(AssertionError):
        stop_in_the_midst()


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_keys_are_those_that_were_set_last_after_they_were_removed(seed: int, grid: bool) -> None:
    """Removed and set again, it is the key that was given then, of whatever type; set while it is there, it stays the one before."""
    chance, bolt, target = random.Random(seed), Bolt(), Bolt()
    bolt.state.update({n: n for n in range(chance.choice([0, 10]))} | {f"k{n}": n for n in range(200)})

    def change() -> None:
        for _ in range(chance.randrange(4)):
            key = chance.choice([int, float, Decimal, bool])(chance.randrange(2)) + chance.choice([0, 2])
            if chance.random() < 0.5:
                key = (key, "x")
            if chance.random() < 0.6:
                bolt.state.pop(key, None)
            if chance.random() < 0.6:
                bolt.state[key] = chance.random()

    change()
    pieces: dict[int, bytes] = {}
    arrival = Arrival(target)
    with patch.multiple(keyed, SMALL=0):
        copier = Copier(bolt, piece=chance.choice([100, 1000]))
        if not grid:
            copier.read_at_once()
        copier.size()
        for _ in range(chance.randrange(10)):
            pieces.update(copier.ahead(time.monotonic()))
            change()
            ahead = copier.so_far()
            if chance.random() < 0.5 and all(n in pieces for n in ahead.order):
                for _ in arrival.ahead(ahead.meta, ahead.order, [pieces[n] for n in ahead.order]):
                    pass
        content = copier.rest()
    pieces.update(content.pieces)
    arrival.put(content.meta, content.order, [pieces[n] for n in content.order])
    assert {repr(k): v for k, v in target.state.items()} == {repr(k): v for k, v in bolt.state.items()}
