"""User code that recurses without end: its tuple fails, and nothing is lost of what was emitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.local import LocalCluster
from elastic.testing import collect
from elastic.worker.emitting import outputs

COUNT, EACH = 2000, 100
emitted: dict[int, int] = {}


class Numbers(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterator[int]:
        yield from range(COUNT)


class Walks(Bolt):
    """Now and then it never comes back, and emits all the way."""

    outputs = Fields(n=int, depth=int)

    def execute(self, tup: Any) -> None:
        if tup.n % EACH:
            self.emit(tup.n, 0)
        else:
            self.walk(tup.n, 0)

    def walk(self, n: int, depth: int) -> None:
        self.emit(n, depth)
        emitted[n] = depth + 1
        self.walk(n, depth + 1)


def walk_to_the_end_of_the_stack() -> None:
    b = TopologyBuilder("walks")
    b.spout("numbers", Numbers())
    b.bolt("walks", Walks(), max_errors=1000, batch_rows=8).shuffle("numbers")
    rows = collect()
    b.bolt("rows", rows).all_to_one("walks")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        run.wait(60)
        assert run.failed_tuples == COUNT // EACH
    depths: dict[int, list[int]] = {}
    for n, depth in rows.rows:
        depths.setdefault(n, []).append(depth)
    assert list(depths) == list(range(COUNT))
    assert all(found == list(range(len(found))) for found in depths.values())
    assert all(len(depths[n]) >= most for n, most in emitted.items())


def test_recursion_without_end_loses_nothing_that_was_emitted() -> None:
    walk_to_the_end_of_the_stack()


def test_what_is_handed_on_at_the_end_of_the_stack_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "need_stack", lambda: None)
    with pytest.raises(AssertionError):
        walk_to_the_end_of_the_stack()
