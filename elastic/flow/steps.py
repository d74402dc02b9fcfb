"""The bolts of a flow without state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import astuple

from elastic.api.components import Bolt
from elastic.flow.plan import Planned


def element(tup: Any) -> Any:
    """A tuple as an element of a stream: of one field its value, else the tuple itself, read by the names of its fields."""
    values = astuple(tup)
    return values[0] if len(values) == 1 else tup


class Steps(Planned, Bolt):
    """Takes each element through its steps."""

    def execute(self, tup: Any) -> None:
        self._give(element(tup))


class Call(Bolt):
    """Calls a function with each element: the end of a stream.

    Args:
        function: What it returns is not used.
    """

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.function = function

    def execute(self, tup: Any) -> None:
        self.function(element(tup))
