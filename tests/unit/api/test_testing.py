"""The testers: a tuple is made as a topology would make it."""

from __future__ import annotations

from typing import Any

import pytest

from elastic import Bolt, Fields
from elastic.testing import BoltTester


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


def test_each_stream_has_fields_of_its_own() -> None:
    tester = BoltTester(Read())
    tester.execute(a=1, b=2)
    assert tester.execute(x=3, a=4, source="other") == [(3, 4, 4)]
    assert tester.execute(b=5, a=6) == [(6, 5, 6)]
    assert tester.execute(7, 8, source="other") == [(7, 8, 8)]
