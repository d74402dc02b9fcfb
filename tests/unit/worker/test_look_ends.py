"""A look at what is in the stores of a task that has stopped comes to an end, however much the engine itself has to say of it."""

from __future__ import annotations

import threading
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
