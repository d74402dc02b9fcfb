"""Ready-made bolts."""

from __future__ import annotations

import pickle

import cloudpickle
import pytest

from elastic import CountBy, Fields, FlatMap, TopologyBuilder
from elastic.errors import TopologyError
from elastic.testing import BoltTester


def test_everything_that_a_function_gives_is_emitted() -> None:
    assert BoltTester(FlatMap(str.split, word=str)).execute(line="a b  a") == [("a",), ("b",), ("a",)]
    pairs = FlatMap(lambda key, numbers: ((key, n) for n in numbers), key=str, value=int)
    assert BoltTester(pairs).execute(key="k", numbers=[1, 2]) == [("k", 1), ("k", 2)]


def test_tuples_are_counted_by_one_field_or_several() -> None:
    one = BoltTester(CountBy("word"), Fields("word", "line"))
    for word in "abca":
        assert one.execute(word, 1) == []
    assert sorted(one.finish()) == [("a", 2), ("b", 1), ("c", 1)]
    two = BoltTester(CountBy("host", "code"))
    for code in (200, 404, 200):
        two.execute(host="h", code=code, other="x")
    assert sorted(two.finish()) == [("h", 200, 2), ("h", 404, 1)]


def test_they_travel_and_keep_their_state() -> None:
    split = pickle.loads(cloudpickle.dumps(FlatMap(lambda line: line.split(","), part=str)))
    assert BoltTester(split).execute(line="a,b") == [("a",), ("b",)]
    first, second = BoltTester(CountBy("word")), BoltTester(CountBy("word"))
    first.execute(word="a")
    second.component.set_state(first.state)  # type: ignore[attr-defined]
    second.execute(word="a")
    assert second.finish() == [("a", 2)]


def test_each_has_its_own_outputs() -> None:
    b = TopologyBuilder("two")
    with pytest.raises(TopologyError, match="needs fields"):
        b.bolt("none", FlatMap(str.split))
    with pytest.raises(TopologyError, match="takes a function"):
        FlatMap("split", word=str)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="given none"):
        CountBy()
    assert repr(CountBy("a").outputs) != repr(CountBy("b").outputs)
