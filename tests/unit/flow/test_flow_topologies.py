"""What components come of a flow, what they are called, and what is said of steps that do not go together."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic import (
    Batches,
    Bolt,
    Fields,
    LocalCluster,
    Sessions,
    Spout,
    TextSink,
    Topology,
    TopologyBuilder,
    Tumbling,
)
from elastic.api.bundle import build_bundle, load_bundle
from elastic.errors import NotShippable, TopologyError
from elastic.flow import Flow, KeyedStream, Stream
from elastic.testing import BoltTester, collect


def shape(topology: Topology) -> dict[str, str]:
    """Of each component: by which grouping of which streams it gets its tuples."""
    return {
        str(c.id): ", ".join(f"{i.grouping} {i.source}:{i.stream}" for i in c.inputs)
        for c in topology.spec.components
    }


def outputs(topology: Topology, component: str) -> dict[str, str]:
    found = topology.spec.component(component)  # type: ignore[arg-type]
    return {str(o.id): ", ".join(f.name for f in o.fields) for o in found.outputs}


def test_steps_without_state_are_one_component_and_their_key_is_made_there() -> None:
    flow = Flow("one")
    words = flow.source("lines", ["a b"]).flat_map(str.split).filter(len).map(str.upper)
    words.key_by(len).count().map(tuple).sink(print)
    topology = flow.build()
    assert shape(topology) == {
        "lines": "",
        "flat_map": "shuffle lines:default",
        "count": "fields(key) flat_map:default",
        "sink": "shuffle count:default",
    }
    assert outputs(topology, "flat_map") == {"default": "key, value"}
    assert outputs(topology, "count") == {"default": "value"} and outputs(topology, "sink") == {}


def test_a_name_or_tasks_of_its_own_make_a_step_a_component() -> None:
    flow = Flow("own", tasks=3)
    words = flow.source("lines", ["a b"], rate=100).flat_map(str.split, executors=2)
    upper = words.map(str.upper, name="upper").filter(len)
    upper.map(len, tasks=5, executors=4).sink(print, name="out", executors=2)
    upper.key_by(len).count()
    upper.key_by(len).count(name="many", executors=9)
    topology = flow.build()
    assert shape(topology) == {
        "lines": "",
        "flat_map": "shuffle lines:default",
        "upper": "shuffle flat_map:default",
        "map": "shuffle upper:map",
        "out": "shuffle map:default",
        "count": "fields(key) upper:count",
        "many": "fields(key) upper:many",
    }
    sizes = {str(c.id): (c.tasks, c.executors) for c in topology.spec.components}
    without_state = {"lines": (1, 1), "flat_map": (2, 2), "upper": (1, 1), "map": (5, 4), "out": (2, 2)}
    assert sizes == without_state | {"count": (3, 1), "many": (9, 9)}
    assert topology.spec.components[0].config == {"rate": 100}


def test_branches_are_one_component_with_a_stream_for_each_that_gets_something_else() -> None:
    flow = Flow("branches")
    words = flow.source("lines", ["a b"]).flat_map(str.split, name="words")
    words.key_by(len).count(name="lengths")
    words.filter(str.isupper).sink(print, name="loud")
    words.sink(print, name="all")
    words.sink(print, name="all-too")
    topology = flow.build()
    assert outputs(topology, "words") == {"lengths": "key, value", "loud": "value", "all": "value"}
    assert shape(topology)["lengths"] == "fields(key) words:lengths"
    assert shape(topology)["loud"] == "shuffle words:loud"
    assert shape(topology)["all"] == shape(topology)["all-too"] == "shuffle words:all", (
        "emitted once for both"
    )


def test_names_that_are_given_go_before_those_that_are_made_up() -> None:
    flow = Flow("names")
    numbers = flow.source("count", [1, 2])
    numbers.key_by(str).count()
    numbers.key_by(int).count()
    numbers.key_by(abs).reduce(max, name="count-2")
    flow.bolt("key_by", Quiet()).shuffle("count-2")
    assert [str(c.id) for c in flow.build().spec.components] == [
        *("count", "key_by", "key_by-2", "count-3", "key_by-3", "count-4", "key_by-4", "count-2")
    ]


class Quiet(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class Two(Spout):
    outputs = {"default": Fields("n", "square"), "signs": Fields("sign")}  # noqa: RUF012

    def tuples(self) -> Any:
        for n in range(5):
            self.emit_to("signs", "odd" if n % 2 else "even")
            yield n, n * n


def ran(flow: Flow) -> None:
    with LocalCluster() as cluster:
        run = cluster.submit(flow).wait(60)
        assert run.failed_tuples == 0


def test_an_element_is_the_value_of_one_field_or_a_tuple_of_several() -> None:
    flow, squares, signs = Flow("fields"), collect(), collect()
    flow.source("two", Two()).map(lambda t: t.n + t.square).sink(squares)
    signed = flow.source("signs", Two(), stream="signs")
    signed.map(str.upper).sink(signs)
    ran(flow)
    assert sorted(squares.rows) == [(0,), (2,), (6,), (12,), (20,)]
    assert sorted(signs.rows) == [("EVEN",)] * 3 + [("ODD",)] * 2


def test_streams_are_united_and_used_more_than_once() -> None:
    flow, out, every = Flow("united"), collect(), collect()
    low, high = flow.source("low", range(5)), flow.source("high", range(10, 15)).map(float)
    low.union(high, low).filter(lambda n: n % 2 == 0).sink(out)
    low.sink(every, name="every")
    ran(flow)
    assert sorted(n for (n,) in out.rows) == [0, 0, 2, 2, 4, 4, 10.0, 12.0, 14.0]
    assert sorted(every.rows) == [(n,) for n in range(5)]


class Halves(Bolt):
    outputs = Fields("half", "rest")

    def execute(self, tup: Any) -> None:
        self.emit(*divmod(tup.value, 2))


def test_bolts_of_ones_own_are_steps_and_stand_beside_them() -> None:
    flow, out, sums, beside = Flow("through"), collect(), collect(), collect()
    halves = flow.source("n", [5, 6]).map(abs, name="abs").through(Halves(), name="halves", tasks=2)
    halves.sink(out)
    halves.key_by("rest").through(Pairs(), name="pairs").sink(sums, name="sums")
    flow.bolt("beside", beside).all_to_one("halves")
    topology = flow.build()
    assert shape(topology)["pairs"] == "fields(key) key_by:default"
    ran(flow)
    assert sorted(out.rows) == sorted(beside.rows) == [(2, 1), (3, 0)]
    assert sorted(sums.rows) == [("0 3",), ("1 2",)]


class Pairs(Bolt):
    outputs = Fields("text")

    def execute(self, tup: Any) -> None:
        self.emit(f"{tup.key} {tup.value.half}")


def test_a_bolt_at_the_end_reads_the_values_of_an_element_by_names(tmp_path: Path) -> None:
    flow, typed = Flow("sinks"), collect()
    pairs = flow.source("pairs", [("a", 1), ("b", 2)])
    pairs.sink(TextSink(tmp_path / "out"), fields=("word", "count"))
    pairs.map(lambda p: p[::-1]).sink(typed, fields=Fields(count=int, word=str), name="typed")
    topology = flow.build()
    assert outputs(topology, "fields") == {"default": "word, count"}
    ran(flow)
    assert (tmp_path / "out").read_text() == "a\t1\nb\t2\n" and sorted(typed.rows) == [(1, "a"), (2, "b")]
    assert [f.type for f in topology.spec.component("map").outputs[0].fields] == ["int", "str"]  # type: ignore[arg-type]


class Sums(Bolt):
    outputs = Fields(word=str, sum=int)

    def execute_batch(self, batch: Any) -> None:
        for word, count in zip(batch["word"].to_pylist(), batch["count"].to_pylist(), strict=True):
            self.emit(word, count)


def test_a_bolt_that_takes_record_batches_has_typed_fields() -> None:
    flow, out = Flow("batches"), collect()
    counts = flow.source("words", ["a", "b", "a"]).key_by(str).count(final=True)
    counts.through(Sums(), fields=Fields(word=str, count=int)).sink(out)
    ran(flow)
    assert sorted(out.rows) == [("a", 2), ("b", 1)]


def test_a_flow_can_be_built_again_and_is_a_builder() -> None:
    flow = Flow("again", workers=2)
    assert isinstance(flow, TopologyBuilder)
    flow.source("n", [1]).map(str).sink(print)
    first, second = flow.build(), flow.build()
    assert first.spec == second.spec and first.spec.workers == 2
    assert first.components["map"] is not second.components["map"]


def test_what_a_flow_is_made_of_travels(tmp_path: Path) -> None:
    factor = 3
    flow = Flow("travels")
    flow.source("n", [1, 2]).map(lambda n: n * factor).key_by(lambda n: n % 2).reduce(
        lambda a, b: a + b
    ).sink(print)
    build_bundle(flow.build(), None, tmp_path / "bundle.zip")
    with zipfile.ZipFile(tmp_path / "bundle.zip") as file:
        file.extractall(tmp_path / "there")
        assert not [name for name in file.namelist() if "flow/" in name], "elastic is there already"
    there = load_bundle(tmp_path / "there")
    assert BoltTester(there.component("map")).execute(value=5) == [(1, 15)]  # type: ignore[arg-type]
    assert BoltTester(there.component("reduce")).execute(key=1, value=15) == [((1, 15),)]  # type: ignore[arg-type]


def test_a_function_that_cannot_travel_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()
    flow = Flow("locked")
    flow.source("n", [1]).map(str).filter(lambda n: bool(lock)).sink(print)
    with pytest.raises(NotShippable, match=r"Component 'map'.*plan\.filter\.function\(\) uses 'lock'"):
        build_bundle(flow.build(), None, tmp_path / "bundle.zip")


# ---------------------------------------------------------------------- what does not go together


def numbers() -> Stream[int]:
    return Flow("wrong").source("n", [1, 2])


def keyed() -> KeyedStream[int, int]:
    return numbers().key_by(abs)


async def later(n: int) -> int:
    return n


def each(n: int) -> Any:
    yield n


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: numbers().reduce(max), r"reduce\(\) keeps something for each key.*\n.*key_by\(function\)"),
        (lambda: numbers().window(Tumbling(1)), r"no keys"),
        (lambda: keyed().map(str), r"map\(\) is for streams without keys.*\n.*before key_by"),
        (
            lambda: keyed().window(Tumbling(1)).sink(print),
            r"nothing that can be done with windows.*\n.*count",
        ),
        (lambda: keyed().window(60), "takes windows, not 60"),
        (lambda: keyed().window(Batches(2), time=float), "take no time"),
        (lambda: keyed().window(Tumbling(2), time=2), r"window\(\) takes a function, not 2"),
        (
            lambda: (k := keyed()).join(k, within=1, time=float, other_time=2),
            r"join\(\) takes a function, not 2",
        ),
        (lambda: keyed().window(Sessions(5), time=float).fold(int, max), r"over sessions.*\n.*merge"),
        (lambda: keyed().fold(0, max), r"begins with what a function makes.*\n.*lambda: 0"),
        (lambda: keyed().fold(int, 3), r"fold\(\) takes a function, not 3"),
        (lambda: keyed().join(numbers(), within=3), r"takes a KeyedStream.*\n.*key_by"),
        (lambda: keyed().join(keyed(), within=3), "one of another"),
        (lambda: (k := keyed()).join(k, within=-1), "within is a number of seconds"),
        (lambda: (k := keyed()).join(k, within=(1, 2, 3)), "within is a number of seconds"),
        (lambda: (k := keyed()).join(k, within=1, lateness=2), "none is late"),
        (lambda: (k := keyed()).join(k, within=1, other_time=float), "one side has no time"),
        (lambda: (k := keyed()).join(k, within=1, time=float, lateness="x"), "lateness"),
        (lambda: (k := keyed()).join(k, within=1, time=float, idle=0), "idle"),
        (lambda: numbers().union(), "given none"),
        (lambda: numbers().union(numbers()), "one of another"),
        (lambda: numbers().union(keyed()), "takes a Stream"),
        (lambda: numbers().map(Quiet()), r"not the component Quiet.*\n.*through\(Quiet"),
        (lambda: numbers().sink(Quiet), r"not the component Quiet.*\n.*sink\(Quiet"),
        (lambda: numbers().through(Quiet), r"takes a bolt.*\n.*Quiet\(\.\.\.\)"),
        (lambda: numbers().map("upper"), "takes a function"),
        (lambda: numbers().map(later), "async function"),
        (lambda: numbers().filter(each), r"a generator.*\n.*flat_map"),
        (lambda: numbers().sink(print, fields="n"), "no use for fields"),
        (
            lambda: numbers().map(str, name="a").map(str, name="a"),
            r"Two steps are called 'a'.*\n.*another name",
        ),
        (lambda: numbers().map(str, name="n"), "Two steps are called 'n'"),
        (lambda: Flow("f").source("s", Two), r"not <class.*\n.*Two\(\.\.\.\)"),
        (lambda: Flow("f").source("s", "text"), "values in a list"),
        (lambda: Flow("f").source("s", 3), "values in a list"),
    ],
)
def test_what_does_not_go_together_is_said_where_it_is_written(make: Callable[[], object], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        make()


def test_what_nobody_has_is_an_ordinary_error() -> None:
    assert not hasattr(numbers(), "maps") and not hasattr(keyed(), "maps")
    with pytest.raises(AttributeError, match="a stream has no 'foo'"):
        numbers().foo  # noqa: B018


def test_what_goes_wrong_in_building_leaves_the_flow_as_it_was() -> None:
    flow = Flow("wrong")
    flow.source("n", [1]).map(str, tasks=1, executors=2, name="two")
    for _ in range(2):
        with pytest.raises(TopologyError, match="'two' has 2 executors for 1 task"):
            flow.build()
