"""User code that recurses without end: its tuple fails, and nothing is lost of what was emitted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from elastic import Bolt, Fields, Spout, TopologyBuilder
from elastic.local import LocalCluster
from elastic.testing import collect
from elastic.worker.emitting import outputs

COUNT = 2000
emitted: dict[int, int] = {}


class Numbers(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterator[int]:
        yield from range(COUNT)


class Walks(Bolt):
    """Now and then it never comes back, and emits all the way."""

    outputs = Fields(n=int, depth=int)
    each = 100

    def execute(self, tup: Any) -> None:
        if tup.n % self.each:
            self.emit(tup.n, 0)
        else:
            self.walk(tup.n, 0)

    def walk(self, n: int, depth: int) -> None:
        self.emit(n, depth)
        emitted[n] = depth + 1
        self.walk(n, depth + 1)


class WalksThroughC(Walks):
    """Of calls by way of C Python 3.12 and 3.13 count how many are within each other by themselves."""

    each = 500

    def walk(self, n: int, depth: int) -> None:
        self.emit(n, depth)
        emitted[n] = depth + 1
        any(map(self.walk, (n,), (depth + 1,)))


def walk_to_the_end_of_the_stack(walks: Walks, batch_rows: int = 8) -> None:
    emitted.clear()
    b = TopologyBuilder("walks")
    b.spout("numbers", Numbers())
    b.bolt("walks", walks, max_errors=1000, batch_rows=batch_rows).shuffle("numbers")
    rows = collect()
    b.bolt("rows", rows).all_to_one("walks")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        run.wait(60)
        assert run.failed_tuples == COUNT // walks.each
    depths: dict[int, list[int]] = {}
    for n, depth in rows.rows:
        depths.setdefault(n, []).append(depth)
    assert list(depths) == list(range(COUNT))
    assert all(found == list(range(len(found))) for found in depths.values())
    assert all(len(depths[n]) >= most for n, most in emitted.items())


def test_recursion_without_end_loses_nothing_that_was_emitted() -> None:
    walk_to_the_end_of_the_stack(Walks())


def test_recursion_through_c_loses_nothing_that_was_emitted() -> None:
    limit = sys.getrecursionlimit()
    if sys.version_info >= (3, 12):
        sys.setrecursionlimit(20_000)  # that of C comes first
    try:
        walk_to_the_end_of_the_stack(WalksThroughC(), batch_rows=2)
    finally:
        sys.setrecursionlimit(limit)


def test_what_is_handed_on_at_the_end_of_the_stack_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "need_stack", lambda: None)
    with pytest.raises(AssertionError):
        walk_to_the_end_of_the_stack(Walks())
