"""Where a worker gets the components' copies from: one for each task."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol

from elastic.api.builder import Topology
from elastic.api.components import Component, CustomGrouping, TaskHook
from elastic.errors import NotShippable


class ComponentSource(Protocol):
    """Gives each task its own copy of its component."""

    def component(self, id: str) -> Component: ...

    def grouping(self, consumer: str, number: int) -> CustomGrouping | None: ...

    def hooks(self, id: str) -> Sequence[TaskHook]: ...


class LocalComponents:
    """Copies of the objects of a topology in this process."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def component(self, id: str) -> Component:
        """A deep copy: the tasks share nothing but what cannot be copied by nature (classes, functions, modules)."""
        original = self._topology.components[id]
        try:
            return copy.deepcopy(original)
        except Exception as e:
            raise NotShippable(
                f"Component {id!r} cannot be copied for its tasks: {blame(original)}{type(e).__name__}: {e}",
                remedy="Open files, sockets, locks and connections in prepare(), not in __init__().",
            ) from e

    def grouping(self, consumer: str, number: int) -> CustomGrouping | None:
        found = self._topology.groupings.get((consumer, number))
        return None if found is None else copy.deepcopy(found)

    def hooks(self, id: str) -> Sequence[TaskHook]:
        return copy.deepcopy([*self._topology.hooks.get("", ()), *self._topology.hooks.get(id, ())])


def blame(component: object) -> str:
    """Which attribute cannot be copied, as the beginning of a sentence; "" when none can be named."""
    for name, value in sorted(vars(component).items()):
        try:
            copy.deepcopy(value)
        except Exception:
            return f"attribute {name!r} ({type(value).__name__}) cannot be copied: "
    return ""
