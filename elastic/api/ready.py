"""Ready-made bolts for what nearly every topology does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from elastic.api.components import Bolt, StatefulBolt
from elastic.api.fields import Fields
from elastic.api.state import KeyedState
from elastic.errors import TopologyError


class FlatMap(Bolt):
    """Emits everything that a function makes of a tuple: `FlatMap(str.split, word=str)`.

    Args:
        function: Gets the tuple's values as its arguments; returns, or yields, what is to be emitted: a single value each, or
            a tuple of values, as `Spout.tuples` does.
        fields: The fields of the output, with their types.
    """

    def __init__(self, function: Callable[..., Iterable[Any]], **fields: Any) -> None:
        if not callable(function):
            raise TopologyError(f"FlatMap takes a function, not {function!r}.")
        if not fields:
            raise TopologyError("FlatMap emits, so it needs fields.", remedy="FlatMap(function, word=str)")
        self.outputs = Fields(**fields)  # type: ignore[misc]  # of this instance, where others have them on the class
        self.function = function

    def execute(self, tup: Any) -> None:
        self._emit_each(self.function(*astuple(tup)))


class CountBy(StatefulBolt):
    """Counts tuples by the values of some of their fields; emits the counts when all input has been worked off.

    Its output has these fields and `count`. Subscribe it by `.fields(source, ...)` with the same fields, so that equal values meet in
    one task.

    Args:
        fields: The names of the fields.
    """

    counts = KeyedState[Any, int](int)

    def __init__(self, *fields: str) -> None:
        if not fields:
            raise TopologyError("CountBy counts by fields, and was given none.", remedy='CountBy("word")')
        self.outputs = Fields(*fields, count=int)  # type: ignore[misc]  # of this instance
        self.fields = fields
        self.key = attrgetter(*fields)  # of several fields a tuple

    def execute(self, tup: Any) -> None:
        self.counts[self.key(tup)] += 1

    def finish(self) -> None:
        for key, count in self.counts.items():
            if len(self.fields) == 1:
                self.emit(key, count)
            else:
                self.emit(*key, count)
