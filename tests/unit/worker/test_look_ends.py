"""A look at what is in the stores of a task that has stopped comes to an end, however much the engine itself has to say of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from elastic import StatefulBolt
from elastic.migration.snapshot import TaskLinks
from elastic.worker.content import Arrival, Copier
from elastic.worker.content.engine import EngineState, encode_engine
from elastic.worker.moving import fetching
from elastic.worker.moving.coming import Coming
from elastic.worker.moving.moving import Side
from tests.unit.worker.moving_harness import Stores

MB = 1 << 20


class Own(StatefulBolt):
    def get_state(self) -> bytes:
        return bytes(MB)

    def set_state(self, state: Any) -> None: ...


@pytest.mark.parametrize("size", [MB, 15 * MB, int(15.95 * MB)])
def test_a_look_ends_whatever_the_engine_has_to_say(size: int) -> None:
    """With as much as may come at once nothing else comes, each time that it is looked."""
    engine = encode_engine(EngineState(counters={"x" * (size - 200): 1}), TaskLinks(0))
    content, stores = Copier(Own()).rest(), Stores()
    made = dict(content.pieces)
    write = stores.begin("k", 1, "w", (), 0)
    numbers = [write.put(piece) for piece in (*engine, *(made[n] for n in content.order))]
    write.commit(numbers, content.meta)
    looking: Any = object.__new__(fetching.Fetching)
    looking._stores, looking._closing = stores, threading.Event()
    looking._along = SimpleNamespace(take=lambda *_: None)
    looking._worker = SimpleNamespace(spec=SimpleNamespace(name="t"))
    stores.states = {(fetching.key_of(looking._worker, 1), 1): found for found in stores.states.values()}
    looks: list[None] = []

    def put_in(coming: Coming, steps: Any) -> Future[None]:
        looks.append(None)
        list(steps)
        assert len(looks) < 20
        done: Future[None] = Future()
        done.set_result(None)
        return done

    looking._put_in = put_in
    looking._wait = lambda side, done: done.result()
    coming = Coming(Side(1, 1, 1), ())
    coming.arrival = Arrival(Own())
    coming.last.set()
    looking._look(coming)
    assert len(looks) < 20


class Looked:
    """One look at what a store says piece by piece, and what has become of it.

    Args:
        find: What the store says, given what is here.
    """

    def __init__(self, find: Callable[[dict[Any, bytes]], Any], *, last: bool) -> None:
        self.asked: list[dict[Any, bytes]] = []
        self.put_in: list[Future[None]] = []
        self.waited_for: list[Future[None]] = []
        looking: Any = object.__new__(fetching.Fetching)
        looking._worker = SimpleNamespace(spec=SimpleNamespace(name="t"))
        looking._put_in, looking._wait = self._put_in, lambda side, done: self.waited_for.append(done)
        self.coming = Coming(Side(1, 1, 1), ())
        self.arrival: Any = SimpleNamespace(over=False, here={}, ahead=lambda meta, names, pieces: names)
        self.coming.arrival = self.arrival
        if last:
            self.coming.last.set()

        def found(key: str, coming: Coming, here: dict[Any, bytes], most: int | None) -> Any:
            self.asked.append(dict(here))
            assert len(self.asked) < 20
            return find(here)

        looking._find = found
        looking._look(self.coming)

    def _put_in(self, coming: Coming, names: Any) -> Future[None]:
        self.put_in.append(Future())
        return self.put_in[-1]


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each state the first piece is the engine's, if it is all of it, and it comes in parts."""
    monkeypatch.setattr(fetching, "engine_pieces", lambda pieces: 1)
    monkeypatch.setattr(fetching, "comes_in_parts", lambda meta: True)
    monkeypatch.setattr(fetching, "is_last", lambda meta: meta == b"last")
    monkeypatch.setattr(fetching, "has_caught_up", lambda meta: True)


def test_a_look_ends_although_ever_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    looked = Looked(
        lambda here: SimpleNamespace(meta=b"", named=[len(here)], pieces=[b"x"], more=1), last=False
    )
    assert len(looked.asked) == 2 and looked.coming.whole is None


@pytest.mark.parametrize("last", [False, True])
def test_what_comes_in_parts_is_asked_for_once_and_is_not_the_whole(
    last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells yet what is to stand for those pieces that are going in."""
    in_parts(monkeypatch)

    def find(here: dict[Any, bytes]) -> Any:
        if not here:
            return SimpleNamespace(meta=b"last", named=["e", 1], pieces=[b"e", b"x"], more=1)
        return SimpleNamespace(meta=b"last", named=["e", 1, 2], pieces=[b"e", here[1], b"y"], more=0)

    looked = Looked(find, last=last)
    assert looked.asked == [{}, {1: b""}] and looked.arrival.here == {}, "they are not here yet"
    assert looked.coming.whole is None
    assert len(looked.put_in) == 2 and looked.waited_for == looked.put_in


@pytest.mark.parametrize("last", [False, True])
def test_what_comes_at_once_is_the_whole(last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    found = SimpleNamespace(meta=b"last", named=["e", 1], pieces=[b"e", b"x"], more=0)
    looked = Looked(lambda here: found, last=last)
    assert looked.coming.whole is found  # type: ignore[comparison-overlap]
    assert looked.waited_for == looked.put_in and len(looked.put_in) == (not last)
