"""A topology as data: what the builder makes, Nimbus stores and workers read. No user code in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic.model.grouping import Grouping
from elastic.model.ids import ComponentId, StreamId, TaskId, TopologyName


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a stream.

    Attributes:
        name: A Python identifier.
        type: The name of its declared type as written (`str`, `int`, `list[int]`, ...), or "" for any object.
    """

    name: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A declared output of a component."""

    id: StreamId
    fields: tuple[FieldSpec, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One subscription: stream `stream` of component `source`, divided by `grouping`."""

    source: ComponentId
    stream: StreamId
    grouping: Grouping


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """A spout or bolt of a topology.

    Attributes:
        tasks: How many tasks it has; fixed for the life of the topology.
        executors: How many threads run them to begin with; 1 <= executors <= tasks.
        stateful: Whether its tasks own state that must not be silently lost.
        vector: Whether it takes Arrow record batches (`execute_batch`).
        config: Its own settings, over those of the topology.
    """

    id: ComponentId
    kind: str  # "spout" or "bolt"
    tasks: int
    executors: int
    stateful: bool = False
    vector: bool = False
    outputs: tuple[StreamSpec, ...] = ()
    inputs: tuple[InputSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    def output(self, stream: StreamId) -> StreamSpec | None:
        """The declared output of that name, or None."""
        return next((s for s in self.outputs if s.id == stream), None)


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A whole topology.

    Tasks are numbered from 1 in the order of `components`, so every party derives the same numbers.
    """

    name: TopologyName
    components: tuple[ComponentSpec, ...]
    workers: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)

    def component(self, id: ComponentId) -> ComponentSpec:
        """The component of that name. Raises KeyError when there is none."""
        for c in self.components:
            if c.id == id:
                return c
        raise KeyError(id)

    def tasks_of(self, id: ComponentId) -> range:
        """The task numbers of a component, ascending."""
        first = 1
        for c in self.components:
            if c.id == id:
                return range(first, first + c.tasks)
            first += c.tasks
        raise KeyError(id)

    def component_of(self, task: TaskId) -> ComponentSpec:
        """The component that a task belongs to. Raises KeyError when there is no such task."""
        first = 1
        for c in self.components:
            if first <= task < first + c.tasks:
                return c
            first += c.tasks
        raise KeyError(task)

    def consumers(self, id: ComponentId) -> Iterator[tuple[ComponentSpec, InputSpec]]:
        """Who subscribes to a component's outputs: (consumer, subscription), in order of declaration."""
        for c in self.components:
            for i in c.inputs:
                if i.source == id:
                    yield c, i

    @property
    def task_count(self) -> int:
        """The number of tasks of all components."""
        return sum(c.tasks for c in self.components)
