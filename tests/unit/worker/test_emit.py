"""`emit` and `emit_all` are generated for each stream: both must do the same, for every grouping and number of fields."""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic import (
    Bolt,
    CustomGrouping,
    Fields,
    FlatMap,
    KeyedState,
    LocalCluster,
    Spout,
    StatefulBolt,
    TopologyBuilder,
)
from elastic.errors import ExecutionError
from elastic.testing import BoltTester, SpoutTester, collect
from elastic.worker.emitting.outputs import Outputs
from elastic.worker.executing.task import Task
from elastic.worker.tuples.batch import Batch

ROWS = [(f"k{n % 5}", n) for n in range(700)]


class ByNumber(CustomGrouping):
    def prepare(self, tasks: tuple[int, ...]) -> None:
        self.tasks = tasks

    def choose(self, values: tuple[Any, ...]) -> list[int]:
        return [self.tasks[values[1] % len(self.tasks)]]


class Two(Spout):
    outputs = Fields(key=str, n=int)

    def __init__(self, how: str) -> None:
        self.how = how

    def next_tuple(self) -> None:
        if self.how == "iterator":
            self.emit_all(iter(ROWS))
        elif self.how == "lists":
            self.emit(*ROWS[0])
            self.emit_all([])
            self.emit_all(ROWS[1:2])
            self.emit_all(ROWS[2:450])
            self.emit_all(ROWS[450:])
        elif self.how == "a long list":
            self.emit_all(list(ROWS))
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


def seen(grouping: str, how: str, tasks: int = 3) -> list[tuple[Any, ...]]:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("two", Two(how))
    GROUPINGS[grouping](b.bolt("seen", Seen(), tasks=tasks))
    b.bolt("out", out).all_to_one("seen")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(20)
        return list(out.rows)


@pytest.mark.parametrize("how", ["iterator", "lists"])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_many_at_once_are_the_same_as_one_by_one(grouping: str, how: str) -> None:
    one, many = Counter(seen(grouping, "one")), Counter(seen(grouping, how))
    assert one == many
    assert sum(one.values()) == len(ROWS) * (3 if grouping == "all" else 1)


@pytest.mark.parametrize("how", ["iterator", "lists", "a long list"])
def test_with_one_receiver_they_come_in_order(how: str) -> None:
    assert seen("shuffle", how, tasks=1) == [(0, *row) for row in ROWS]


class Uneven(Spout):
    outputs = Fields(key=str, n=int)

    def __init__(self, given: Any, whole: bool) -> None:
        self.given, self.whole = given, whole

    def next_tuple(self) -> None:
        self.exhausted()
        values = [("a", 1), self.given, ("b", 2)]
        self.emit_all(values if self.whole else iter(values))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("grouping", ["shuffle", "fields"])
@pytest.mark.parametrize(
    ("given", "said"),
    [(("x",), "1"), ("xyz", "3"), (2, "the value 2"), (("x", 1, 2), "3"), (None, "the value None")],
)
def test_a_value_that_is_not_as_many_as_there_are_fields_is_told_with_its_stream(
    given: Any, said: str, grouping: str, whole: bool
) -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("two", Uneven(given, whole))
    GROUPINGS[grouping](b.bolt("seen", Seen(), tasks=1 if grouping == "shuffle" else 2))
    b.bolt("out", out).all_to_one("seen")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build())
        run.wait(20)
        assert [row[1:] for row in out.rows] == [("a", 1)], "as by `emit` one by one"
        (failed,) = (e.message for e in run.events if e.kind == "tuple-failed")
    assert (
        f"emit_all() takes 2 values (key, n) for each tuple of stream 'default' of 'two', not {said}"
        in failed
    )


class Pairs(Spout):
    outputs = {"pairs": Fields(key=str, n=int)}  # noqa: RUF012

    def __init__(self, *given: Any) -> None:
        self.given = given

    def next_tuple(self) -> None:
        self.exhausted()
        self.emit_to("pairs", *self.given)


@pytest.mark.parametrize(
    ("given", "said"),
    [(("a", 1, 2), "takes 2 positional arguments but 3 were given"), (("a",), "missing 1 .* argument: 'n'")],
)
def test_a_call_with_values_that_are_not_as_many_is_told_with_its_stream(
    given: tuple[Any, ...], said: str
) -> None:
    b = TopologyBuilder("t", max_errors=0)
    b.spout("two", Pairs(*given))
    b.bolt("out", collect()).shuffle("two", stream="pairs")
    told = rf"TypeError: stream 'pairs' of 'two' takes 2 values \(key, n\): emit\(\) {said}"
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match=told):
        cluster.submit(b.build()).wait(20)


class Words(Bolt):
    outputs = Fields(word=str)

    def execute(self, tup: Any) -> None:
        self.emit_all(tup.line.split())


@settings(max_examples=20)
@given(st.lists(st.text(alphabet="ab ", max_size=20), max_size=5))
def test_a_single_field_takes_the_values_as_they_are(lines: list[str]) -> None:
    tester = BoltTester(Words())
    assert [w for line in lines for (w,) in tester.execute(line=line)] == " ".join(lines).split()


class Breaks(Spout):
    outputs = Fields(n=int)

    def next_tuple(self) -> None:
        self.exhausted()
        self.emit_all(n if n < 5 else 1 // 0 for n in range(10))


class TooShort(Spout):
    outputs = Fields(a=int, b=int)

    def next_tuple(self) -> None:
        self.exhausted()
        self.emit_all([(1, 2), (3, 4), (5,), (6, 7)])


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


def test_what_came_before_a_value_that_does_not_fit_is_emitted() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("short", TooShort())
    b.bolt("out", out).shuffle("short")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build()).wait(20)
        assert out.rows == [(1, 2), (3, 4)]
        assert any(e.kind == "tuple-failed" for e in run.events)


def test_a_stream_that_is_not_declared_is_refused() -> None:
    b = TopologyBuilder("t", max_errors=0)
    b.spout("s", ToNowhere())
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match="nowhere"):
        cluster.submit(b.build()).wait(20)


class Given(Spout):
    def __init__(self, values: list[Any], breaks: bool = False, **fields: Any) -> None:
        self.outputs = Fields(**fields)  # type: ignore[misc]
        self.given, self.breaks = values, breaks

    def tuples(self) -> Iterator[Any]:
        yield from self.given
        if self.breaks:
            raise LookupError("no more")


class Sub(tuple[Any, ...]):
    """Not exactly a tuple: with one field a value by itself, with several taken apart as any other."""


class Pair(NamedTuple):
    first: str
    second: int


ONE: list[Any] = ["a", ("b",), ("c", "d"), None, [1], (), Sub("xy"), *"efg"]
TWO: list[Any] = [("a", 1), "b", ["c", 2], ("d", 3), (), ("e", 4, 5), Sub("xy"), None, ("f", 6)]


def by_hand(values: list[Any], fields: dict[str, Any]) -> tuple[list[tuple[Any, ...]], int, int]:
    """What the component's own slow version does: (emitted, wrong ones, how many there were)."""
    emitted: list[tuple[Any, ...]] = []
    wrong: list[Any] = []

    def emit(*given: Any) -> None:
        if len(given) != len(fields):
            raise TypeError
        emitted.append(given)

    def failed(error: Exception, value: Any) -> bool:
        wrong.append(value)
        return False

    spout = Given(values, **fields)
    spout.__dict__["emit"] = emit
    count = spout._emit_each(spout.tuples(), failed)
    return emitted, len(wrong), count


@pytest.mark.parametrize(("values", "fields"), [(ONE, {"a": Any}), (TWO, {"a": Any, "b": Any})])
def test_a_generator_gives_single_values_or_tuples_and_wrong_ones_cost_only_themselves(
    values: list[Any], fields: dict[str, Any]
) -> None:
    expected, wrong, count = by_hand(values * 300, fields)
    assert wrong and len(expected) + wrong == count == len(values) * 300
    out = collect()
    b = TopologyBuilder("t", max_errors=wrong)
    b.spout("given", Given(values * 300, **fields))
    b.bolt("out", out).shuffle("given")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build()).wait(20)
        assert out.rows == expected
        assert next(e for e in run.events if e.kind == "tuple-failed").message.count("TypeError") == 1


@pytest.mark.parametrize(
    ("fields", "emitted"), [({"a": Any}, [(Pair("x", 1),)] * 300), ({"a": str, "b": int}, [("x", 1)] * 300)]
)
def test_a_named_tuple_is_values_for_several_fields_and_the_value_of_one(
    fields: dict[str, Any], emitted: list[tuple[Any, ...]]
) -> None:
    """In a topology as in the testers."""
    spout, pairs = Given([Pair("x", 1)] * 300, **fields), FlatMap(lambda a: [Pair(a, 1)] * 300, **fields)
    out = collect()
    b = TopologyBuilder("t", max_errors=0)
    b.spout("given", spout)
    b.bolt("out", out).shuffle("given")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(20)
    assert out.rows == emitted == SpoutTester(spout).run() == BoltTester(pairs).execute(a="x")


def test_after_too_many_wrong_ones_the_generator_is_asked_no_more() -> None:
    out, asked = collect(), Counter[int]()

    class Counted(Given):
        def tuples(self) -> Iterator[Any]:
            for n in range(100):
                asked[0] += 1
                yield (n, n)

    b = TopologyBuilder("t", max_errors=2)
    b.spout("given", Counted([], a=int))
    b.bolt("out", out).shuffle("given")
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match="3 failed tuples"):
        cluster.submit(b.build()).wait(20)
    assert asked[0] == 3


def test_a_generator_that_raises_fails_the_topology_with_its_own_error() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("given", Given([1, 2], breaks=True, a=int))
    b.bolt("out", out).shuffle("given")
    with LocalCluster() as cluster, pytest.raises(ExecutionError, match=r"tuples\(\).*LookupError"):
        cluster.submit(b.build()).wait(20)


def test_flat_map_emits_what_came_before_an_error_and_tells_it() -> None:
    out = collect()
    b = TopologyBuilder("t")
    b.spout("given", Given(["ab", "cd"], line=str))
    b.bolt(
        "flat", FlatMap(lambda line: (c if c != "d" else (c, "too many") for c in line), letter=str)
    ).shuffle("given")
    b.bolt("out", out).shuffle("flat")
    with LocalCluster() as cluster:
        run = cluster.submit(b.build()).wait(20)
        assert out.rows == [("a",), ("b",), ("c",)]
        assert "TypeError" in next(e.message for e in run.events if e.kind == "tuple-failed")


class Reads(StatefulBolt):
    seen: KeyedState[int, int] = KeyedState(int)

    def execute(self, tup: Any) -> None:
        self.seen[tup.n] += 1


class Numbers(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterator[int]:
        yield from range(2000)


def test_attributes_of_components_are_read_by_specialised_instructions() -> None:
    b = TopologyBuilder("t")
    b.spout("n", Numbers())
    b.bolt("reads", Reads()).shuffle("n")
    with LocalCluster() as cluster:
        cluster.submit(b.build()).wait(20)
    code = dis.get_instructions(Reads.execute, adaptive=True)
    (read,) = [i.opname for i in code if i.argval == "seen"]
    assert read.startswith("LOAD_ATTR_") and read != "LOAD_ATTR_ADAPTIVE"


class _Bursts(Spout):
    """In one call: who takes it is told of nothing meanwhile."""

    outputs = Fields(key=str, n=int)

    def next_tuple(self) -> None:
        for _ in range(2):
            self.emit_all(ROWS[:400])
        self.exhausted()


def handed_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    offer = Task.offer

    def noted(self: Task, item: Any, life: int, first: int) -> int:
        if isinstance(item, Batch):
            counts.append(item.count)
        return offer(self, item, life, first)

    b = TopologyBuilder("bursts", batch_rows=512)
    b.spout("bursts", _Bursts())
    b.bolt("seen", Seen()).all_to_one("bursts")
    monkeypatch.setattr(Task, "offer", noted)
    with LocalCluster() as local:
        local.submit(b.build()).wait(30)
    return counts


def test_what_is_more_than_a_full_buffer_waits_for_the_next_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever emits much at a time has to wait for twice as much, now and then, where there is no room."""
    assert handed_on(monkeypatch) == [512, 288]


def test_a_buffer_that_is_handed_on_as_a_whole_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault."""
    monkeypatch.setattr(Outputs, "full", lambda self, rows: self._flush(self._by_rows[id(rows)]))
    assert handed_on(monkeypatch) == [800]
