"""A spout of values that are at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from elastic.api.components import StatefulSpout
from elastic.api.fields import Fields


class Items(StatefulSpout):
    """Emits given values, one after the other, as the field `value`; several tasks share them.

    They travel with the topology's code: for tests and for small tables. How far a task has come is its state.

    Args:
        values: Whatever can be pickled.
    """

    outputs = Fields("value")

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = tuple(values)
        self.done = 0  # of this task's share

    def get_state(self) -> object:
        return self.done

    def set_state(self, state: Any) -> None:
        self.done = state

    def tuples(self) -> Iterator[tuple[Any]]:
        index, tasks = self.context.index, self.context.parallelism
        while (n := index + self.done * tasks) < len(self.values):
            self.done += 1
            yield (self.values[n],)
