"""`emit` and `emit_all` are generated for each stream: both must do the same, for every grouping and number of fields."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import Bolt, CustomGrouping, Fields, LocalCluster, Spout, TopologyBuilder
from elastic.errors import ExecutionError
from elastic.testing import BoltTester, collect

ROWS = [(f"k{n % 5}", n) for n in range(700)]


class ByNumber(CustomGrouping):
    def prepare(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def choose(self, values: tuple[Any, ...]) -> list[int]:
        return [self.tasks[values[1] % len(self.tasks)]]


class Two(Spout):
    outputs = Fields(key=str, n=int)

    def __init__(self, many: bool) -> None:
        self.many = many

    def next_tuple(self) -> None:
        if self.many:
            self.emit_all(iter(ROWS))
        else:
            for row in ROWS:
                self.emit(*row)
        self.exhausted()


class Seen(Bolt):
    outputs = Fields(task=int, key=str, n=int)

    def execute(self, tup: Any) -> None:
        self.emit(self.context.index, tup.key, tup.n)


GROUPINGS = {
    "shuffle": lambda b: b.shuffle("two"),
    "fields": lambda b: b.fields("two", "key"),
    "both fields": lambda b: b.fields("two", "n", "key"),
    "partial key": lambda b: b.partial_key("two", "key"),
    "all": lambda b: b.all("two"),
    "global": lambda b: b.all_to_one("two"),
    "local or shuffle": lambda b: b.local_or_shuffle("two"),
    "none": lambda b: b.none("two"),
    "custom": lambda b: b.custom("two", ByNumber()),
}


def seen(grouping: str, many: bool) -> Counter[tuple[Any, ...]]:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("two", Two(many))
    GROUPINGS[grouping](b.bolt("seen", Seen(), tasks=3))
    b.bolt("out", out).all_to_one("seen")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(20)
        return Counter(out.rows)


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_many_at_once_are_the_same_as_one_by_one(grouping: str) -> None:
    one, many = seen(grouping, False), seen(grouping, True)
    assert one == many
    assert sum(one.values()) == len(ROWS) * (3 if grouping == "all" else 1)


class Words(Bolt):
    outputs = Fields(word=str)

    def execute(self, tup: Any) -> None:
        self.emit_all(tup.line.split())


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(alphabet="ab ", max_size=20), max_size=5))
def test_a_single_field_takes_the_values_as_they_are(lines: list[str]) -> None:
    tester = BoltTester(Words())
    assert [w for line in lines for (w,) in tester.execute(line=line)] == " ".join(lines).split()


class Breaks(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        self.exhausted()
        self.emit_all(n if n < 5 else 1 // 0 for n in range(10))


class ToNowhere(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        self.exhausted()
        self.emit_all([1], stream="nowhere")


def test_what_came_before_an_error_is_emitted_and_the_error_is_the_users() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("breaks", Breaks())
    b.bolt("out", out).shuffle("breaks")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build()).wait(20)
        assert out.rows == [(n,) for n in range(5)]
        assert "ZeroDivisionError" in next(e.message for e in run.events if e.kind == "tuple-failed")


def test_a_stream_that_is_not_declared_is_refused() -> None:
    b = TopologyBuilder("t", max_errors=0)
    b.spout("s", ToNowhere())
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match="nowhere"):
        cluster.submit(b.build()).wait(20)
