"""A component that emits on a thread of its own: that turns no order round, and much of it is an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from elastic import Fields, Spout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.local import run
from elastic.testing import collect
from elastic.worker.emitting.outputs import LEFT

LIMIT = 30.0
ROWS = 4


class OnThread(Spout):
    """Has a thread emit so many, and itself one before it and one after it."""

    outputs = Fields(n=int)

    def __init__(self, count: int) -> None:
        self.count = count

    def next_tuple(self) -> None:
        self.emit(-1)
        on_thread(lambda: [self.emit(n) for n in range(self.count)])
        self.emit(self.count)
        self.exhausted()


class BatchOnThread(OnThread):
    def next_tuple(self) -> None:
        on_thread(lambda: self.emit_batch(pa.record_batch({"n": [1]})))
        self.exhausted()


def on_thread(what: Callable[[], Any]) -> None:
    def do() -> None:
        try:
            what()
        except ExecutionError as e:
            raised.append(str(e))

    thread = threading.Thread(target=do, name="mine")
    thread.start()
    thread.join(LIMIT)


raised: list[str] = []


@pytest.mark.parametrize(
    ("spout", "came", "errors"),
    [
        (OnThread(2 * ROWS), [*range(-1, 2 * ROWS + 1)], 0),
        (OnThread(LEFT * ROWS), [*range(-1, LEFT * ROWS - 1), LEFT * ROWS], 1),
        (BatchOnThread(1), [], 1),
    ],
)
def test_what_is_emitted_on_another_thread(spout: Spout, came: list[int], errors: int) -> None:
    raised.clear()
    out = collect()
    b = TopologyBuilder("t", batch_rows=ROWS)
    b.spout("numbers", spout)
    b.bolt("out", out).all_to_one("numbers")
    run(b, timeout=LIMIT)
    assert [n for (n,) in out.rows] == came
    assert len(raised) == errors
    assert all("emits on thread 'mine'" in e and "queue.Queue" in e for e in raised)
