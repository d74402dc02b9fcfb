"""The testers: a tuple is made as a topology would make it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from elastic import Bolt, Fields, KeyedState, Spout, StatefulBolt, StatefulSpout, testing
from elastic.api.fields import tuple_class
from elastic.errors import ElasticError, ExecutionError, TopologyError
from elastic.model.ids import StreamId
from elastic.model.topology import StreamSpec
from elastic.testing import BoltTester, SpoutTester, collect


class Read(Bolt):
    """Reads two fields by position and by name."""

    outputs = Fields("first", "second", "named")

    def execute(self, tup: Any) -> None:
        self.emit(tup[0], tup[1], tup.a)


@pytest.mark.parametrize("fields", [Fields("a", "b"), None])
def test_values_by_name_stand_in_the_order_of_the_fields(fields: Fields | None) -> None:
    tester = BoltTester(Read(), fields)
    assert tester.execute(a=1, b=2) == [(1, 2, 1)]
    assert tester.execute(b=2, a=1) == [(1, 2, 1)]
    assert tester.execute(1, 2) == [(1, 2, 1)], "and are remembered"


@pytest.mark.parametrize("fields", [Fields("a", "b"), None])
@pytest.mark.parametrize("wrong", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 3}])
def test_other_names_are_refused(fields: Fields | None, wrong: dict[str, int]) -> None:
    tester = BoltTester(Read(), fields)
    tester.execute(a=1, b=2)
    with pytest.raises(TypeError, match=f"are a, b, and values were given for {', '.join(wrong)}"):
        tester.execute(**wrong)


def test_of_a_wrong_number_of_values_it_is_said_whose_and_which_are_right() -> None:
    class Emits(Bolt):
        outputs: ClassVar = {"pairs": Fields("a", b=int)}

        def execute(self, tup: Any) -> None:
            self.emit_to("pairs", *tup.values)

    said = r"Emits emitted {} on stream 'pairs', which takes 2 \(a, b\)"
    with pytest.raises(TypeError, match=said.format("1 value")):
        BoltTester(Emits()).execute(1)
    with pytest.raises(TypeError, match=said.format("3 values")):
        BoltTester(Emits()).execute(1, 2, 3)
    assert BoltTester(Emits()).execute(1, 2) == [(1, 2)]


def test_each_stream_has_fields_of_its_own() -> None:
    tester = BoltTester(Read())
    tester.execute(a=1, b=2)
    assert tester.execute(x=3, a=4, source="other") == [(3, 4, 4)]
    assert tester.execute(b=5, a=6) == [(6, 5, 6)]
    assert tester.execute(7, 8, source="other") == [(7, 8, 8)]


class Own(StatefulBolt):
    """With a state of its own, and one by key, and what it makes in prepare()."""

    outputs = Fields(total=int)
    by = KeyedState[str, list[int]](list)

    def __init__(self, breaks: str = "") -> None:
        self.breaks = breaks
        self.total = 0

    def prepare(self, context: Any) -> None:
        self.opened = threading.Lock()
        self.seen = context.counter("seen")

    def execute(self, tup: Any) -> None:
        self.total += tup.n
        self.by[str(tup.n)].append(tup.n)
        self.seen.inc()
        self.emit(self.total)

    def get_state(self) -> object:
        return {"total": self.opened if self.breaks == "get" else self.total}

    def set_state(self, state: Any) -> None:
        if self.breaks == "set":
            raise KeyError("totals")
        self.total = state["total"]

    def cleanup(self) -> None:
        self.emit_to("default", -1)
        self.emit_all(range(2))


def test_a_bolt_moves_with_all_that_it_has() -> None:
    tester = BoltTester(Own(), Fields(n=int))
    before = tester.component
    tester.execute(3)
    assert tester.move() == [], "nobody takes what the old copy emits as it is cleaned up"
    ((kind, message),) = tester.warnings
    assert kind == "cleanup-emitted" and "emitted 3 tuples, which nobody takes any more" in message
    assert tester.component is not before and tester.execute(4) == [(7,)]
    after: Any = tester.component
    assert after.by == {"3": [3], "4": [4]} and tester.metrics["seen"] == 2
    assert tester.move() == [] and tester.execute(1) == [(8,)]


class Waits(StatefulBolt):
    """Keeps what it receives, as the side of a join does."""

    outputs = Fields(waited=int, equal=bool)
    tuples = KeyedState[str, Any]()
    seen = KeyedState[Any, int](int)

    def execute(self, tup: Any) -> None:
        self.seen[tup] += 1
        before = self.tuples.get(tup.key)
        if before is not None:
            self.emit(before.at, before == tup)
        self.tuples[tup.key] = tup


def test_a_tuple_in_a_state_moves_and_equals_those_that_come() -> None:
    tester = BoltTester(Waits(), Fields(key=str, at=int))
    tester.execute("a", 1)
    tester.move()
    assert tester.execute("a", 1) == [(1, True)]
    assert list(tester.state["seen"].values()) == [2]


def test_a_tuple_is_read_in_another_process() -> None:
    stream = StreamSpec(StreamId("late"), Fields("why", n=int).specs)
    saved = pickle.dumps(tuple_class("join", stream)("slow", 3))
    code = f"import pickle; t = pickle.loads({saved!r}); print(t.why, t.n, t.fields, t)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "slow 3 ('why', 'n') join_late(why='slow', n=3)\n"


@pytest.mark.parametrize(
    ("breaks", "says"), [("get", "cannot be pickled"), ("set", "set_state.* raised KeyError")]
)
def test_a_state_that_does_not_come_through_a_move_fails_the_test(breaks: str, says: str) -> None:
    tester = BoltTester(Own(breaks), Fields(n=int))
    tester.execute(3)
    with pytest.raises(ExecutionError, match=says):
        tester.move()


class Reads(StatefulSpout):
    outputs = Fields(n=int)
    at = KeyedState[str, int](int)

    def tuples(self) -> Iterable[Any]:
        while self.at["n"] < 5:
            self.at["n"] += 1
            yield (self.at["n"] - 1,)


class Forgets(Spout):
    outputs = Fields(n=int)

    def tuples(self) -> Iterable[Any]:
        yield from ((n,) for n in range(5))


def test_a_spout_goes_on_where_it_was() -> None:
    tester = SpoutTester(Reads())
    assert tester.run(2) == [(0,), (1,)]
    tester.move()
    assert tester.run() == [(2,), (3,), (4,)]
    tester.move()
    assert tester.exhausted and tester.run() == []
    with pytest.raises(ElasticError, match="does not move"):
        SpoutTester(Forgets()).move()


def test_a_move_that_is_refused_leaves_the_task_as_it_was() -> None:
    tester = BoltTester(Own("set"), Fields(n=int))
    tester.execute(3)
    before = tester.component
    with pytest.raises(ExecutionError):
        tester.move()
    assert tester.component is before and tester.take() == [] and tester.execute(1) == [(4,)]


def test_what_no_topology_takes_no_tester_does() -> None:
    class Half(StatefulBolt):
        def execute(self, tup: Any) -> None: ...

        def get_state(self) -> object:
            return 1

    with pytest.raises(TopologyError, match="must override both"):
        BoltTester(Half())


def test_what_is_collected_elsewhere_says_so() -> None:
    out = collect()
    del testing._collected[out.key]  # as in another process
    with pytest.raises(ExecutionError, match="in the process in which it was made"):
        BoltTester(out).execute(1)


class Sides(Bolt):
    outputs = Fields(side=str, rows=int)

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        source = self.context.source
        assert source is not None
        self.emit(f"{source.component}:{source.stream}", batch.num_rows)


def test_a_batch_comes_from_somewhere_as_a_tuple_does() -> None:
    tester, batch = BoltTester(Sides()), pa.RecordBatch.from_pydict({"n": [1, 2]})
    assert tester.execute_batch(batch, source="left", stream="late") == [("left:late", 2)]
    assert tester.execute_batch(batch) == [("source:default", 2)]
    assert tester.context.source is None


def test_a_bolt_is_given_what_it_works_on() -> None:
    with pytest.raises(TypeError, match=r"Sides has no execute\(\): give it a record batch"):
        BoltTester(Sides()).execute(n=1)
    with pytest.raises(TypeError, match=r"Read has no execute_batch\(\): give it tuples"):
        BoltTester(Read()).execute_batch(pa.RecordBatch.from_pydict({"n": [1]}))
