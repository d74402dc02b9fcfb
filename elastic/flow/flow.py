"""`Flow`: a topology that is written down as streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, overload

from elastic.api.builder import BoltHandle, Topology, TopologyBuilder
from elastic.api.components import Bolt, Spout
from elastic.errors import TopologyError
from elastic.flow.graph import Graph, Node, Own
from elastic.flow.sources import Items
from elastic.flow.stream import Stream
from elastic.model.ids import DEFAULT_STREAM

T = TypeVar("T")

TASKS = 4
"""Of a step by key that does not say: as far as it can be spread later. Several tasks of another one would turn elements round."""


class Flow(TopologyBuilder):
    """A topology that begins with `source`; the streams do the rest. It is a `TopologyBuilder` as well: spouts and bolts of your own may
    stand beside its steps, and subscribe to them by their names.

    Args:
        name: The topology's name: letters, digits, `-`, `_` and `.`.
        workers: How many worker processes it wants.
        tasks: How many tasks a step behind `key_by` has that does not say; others have as many as executors.
        config: Settings for all components (`docs/settings.md`).
    """

    def __init__(self, name: str, *, workers: int = 1, tasks: int = TASKS, **config: Any) -> None:
        super().__init__(name, workers=workers, **config)
        self._tasks = tasks
        self._graph = Graph()

    @overload
    def source(
        self,
        name: str,
        source: Spout,
        *,
        stream: str = ...,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> Stream[Any]: ...
    @overload
    def source(
        self,
        name: str,
        source: Iterable[T],
        *,
        stream: str = ...,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> Stream[T]: ...
    def source(
        self,
        name: str,
        source: Spout | Iterable[Any],
        *,
        stream: str = DEFAULT_STREAM,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> Stream[Any]:
        """Begin a stream.

        Args:
            name: The component's name.
            source: A spout; or values, which travel with the topology (`Items`). An element of the stream is the value of a tuple with one
                field, or else the tuple, read by the names of its fields.
            stream: Which of the spout's streams.
            tasks: How many copies of the spout there are: whoever gives it several knows that they share the work (default: as executors).
            executors: How many threads run them to begin with (default 1).
            config: Its settings, for instance `rate=10_000` tuples/s.

        Returns:
            The stream.

        Raises:
            TopologyError: It is neither, its name cannot be one, or there is a component of that name already.
        """
        if not isinstance(source, Spout):
            if isinstance(source, type | str | bytes | Bolt) or not isinstance(source, Iterable):
                remedy = f"Give an instance: {source.__name__}(...)." if isinstance(source, type) else ""
                raise TopologyError(
                    f"Source {name!r} is a spout, or values in a list, not {source!r}.", remedy=remedy
                )
            source = Items(source)
        self.spout(name, source, tasks=tasks, executors=executors, **config)
        node = Node("source", (), Own(name), theirs=True, stream=stream)
        return Stream(self._graph, self._graph.add(node))

    def build(self) -> Topology:
        """Make the components of the flow, check everything and make the topology.

        Returns:
            What `LocalCluster` runs, and `elastic run` and `elastic submit` take.

        Raises:
            TopologyError: Something does not fit; a subclass says what (`elastic.errors`).
            ConfigError: A setting is unknown, has a value that it cannot have, or does not go together with others.
        """
        declared = dict(self._declared)
        try:
            self._graph.build(self._put_step, declared)
            return super().build()
        finally:
            self._declared = declared

    def _put_step(self, name: str, bolt: Bolt, own: Own, by_key: bool) -> BoltHandle:
        tasks = own.tasks
        if tasks is None and by_key:
            tasks = max(self._tasks, own.executors or 1)
        return self.bolt(name, bolt, tasks=tasks, executors=own.executors, **own.config)
