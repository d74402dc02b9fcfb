"""What the new side does while the task stands still: what was saved is put in before coordination has said that it was."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from elastic import Fields, KeyedState, StatefulBolt, StatefulSpout, TopologyBuilder
from elastic.migration.record import Outcome
from elastic.model.ids import ComponentId
from elastic.worker.content.layout import is_last
from elastic.worker.fetching import Fetching, _Coming
from elastic.worker.moves import Moves
from tests.unit.worker.moving_harness import Moving

ENTRIES = 20_000
COUNT = 3000
MOVES = 3
_names = itertools.count(1)
_found: dict[str, int] = {}


class Numbers(StatefulSpout):
    """0 to `COUNT`."""

    outputs = Fields(number=int)

    def __init__(self) -> None:
        self.at = 0

    def get_state(self) -> object:
        return self.at

    def set_state(self, state: Any) -> None:
        self.at = state

    def next_tuple(self) -> None:
        if self.at >= COUNT:
            self.exhausted()
        else:
            self.emit(self.at)
            self.at += 1


class Large(StatefulBolt):
    """Two megabytes; every tuple changes an entry."""

    texts = KeyedState(str)

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, context: Any) -> None:
        self.texts.update((n, f"{n:0100d}") for n in range(ENTRIES))

    def execute(self, tup: Any) -> None:
        n = tup.number * 7919 % ENTRIES
        self.texts[n] = f"{int(self.texts[n]) + 1:0100d}"

    def finish(self) -> None:
        _found[self.name] = sum(map(int, self.texts.values()))


def move_while_marks_wait() -> list[int]:
    """Marks are written only when the new side has looked at what was saved last, or has given up. How many pieces each pause fetched."""
    name = f"ahead{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Numbers(), rate=2000.0)
    b.bolt("large", Large(name)).shuffle("numbers")
    topology = b.build()
    (large,) = topology.spec.tasks_of(ComponentId("large"))
    looked: dict[tuple[str, int], threading.Event] = {}
    with Moving(topology, 2, lambda c, i: 0) as cluster, pytest.MonkeyPatch.context() as patch:
        stores, look = cluster.stores, Fetching._look

        def looks(self: Fetching, coming: _Coming) -> float:
            try:
                return look(self, coming)
            finally:
                for at, (meta, _) in list(stores.states.items()):
                    if is_last(meta):
                        looked.setdefault(at, threading.Event()).set()

        def before_marks() -> None:
            for at, (meta, _) in list(stores.states.items()):
                if is_last(meta):
                    assert looked.setdefault(at, threading.Event()).wait(10.0), "nobody has looked"

        patch.setattr(Fetching, "_look", looks)
        cluster.before_marks = before_marks
        for n in range(MOVES):
            (part,) = cluster.move({large: 1 - n % 2}).tasks
            assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
        brought = list(stores.brought)
    assert _found[name] == sum(range(ENTRIES)) + COUNT
    return brought


def test_what_was_saved_last_is_in_before_coordination_says_so() -> None:
    assert move_while_marks_wait() == [1] * MOVES, (
        "what the engine knows of the task, and nothing of its state"
    )


def test_that_what_was_saved_last_is_taken_for_something_else_is_found() -> None:
    """The engine's part comes first then: all that came ahead was given up, and the whole state fetched in the pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elastic.worker.fetching.is_last", lambda meta: False)
        assert max(move_while_marks_wait()) > 5


def test_a_hint_that_gets_lost_costs_time_and_nothing_else() -> None:
    name = f"ahead{next(_names)}"
    b = TopologyBuilder(name)
    b.spout("numbers", Numbers(), rate=2000.0)
    b.bolt("large", Large(name)).shuffle("numbers")
    topology = b.build()
    (large,) = topology.spec.tasks_of(ComponentId("large"))
    with Moving(topology, 2, lambda c, i: 0) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "say_stored", lambda *_, last: None)
        (part,) = cluster.move({large: 1}).tasks
        assert (part.outcome, part.reason) == (Outcome.COMMITTED, "")
        cluster.wait_finished()
    assert _found[name] == sum(range(ENTRIES)) + COUNT
