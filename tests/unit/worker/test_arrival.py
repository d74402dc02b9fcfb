"""What comes ahead of a pause, and what of it counts when the rest has come."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest

from elastic import KeyedState, StatefulBolt
from elastic.worker.content import Arrival, Content, Copier


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
