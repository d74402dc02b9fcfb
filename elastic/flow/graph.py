"""What a flow is while it is written down: nodes, each a step that somebody has asked for; and how components are made of them.

    source -> flat_map -> filter -> key_by -> count -> map -> sink
    ------    ----------------------------    ------------    ----    the components

A step without state belongs to the component that makes its elements, and a branch of a stream to the same one as the other branches.
A component begins behind a source or a bolt of the user's, where streams are united, with what keeps something by key (its tuples have
come by their key), and where a step is given a name, tasks or executors of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic.api.builder import BoltHandle
from elastic.api.components import Bolt
from elastic.api.fields import Fields
from elastic.errors import TopologyError
from elastic.flow.plan import Out, Plan, Planned, Step
from elastic.flow.steps import Steps
from elastic.model.ids import DEFAULT_STREAM
from elastic.model.topology import FieldSpec

KEY_BY = "key_by"
_VALUE = Fields("value")
_KEYED = Fields("key", "value")

Inputs = Sequence[tuple[str, str]]
"""What a component is subscribed to: components and their streams."""
Make = Callable[[Inputs], Bolt]
Put = Callable[[str, Bolt, "Own", bool], BoltHandle]
"""Adds a bolt to the topology: its name, what it is given, and whether its tuples come by key."""


@dataclass(frozen=True)
class Own:
    """What a step is given of its own; a step without state that is given something is a component by itself.

    Attributes:
        name: The component's name; None: as the step is called.
        tasks, executors: How many; None: as many as is usual.
    """

    name: str | None = None
    tasks: int | None = None
    executors: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """Whether it is given anything."""
        return (
            self.name is not None or self.tasks is not None or self.executors is not None or bool(self.config)
        )


@dataclass(eq=False)
class Node:
    """A step.

    Attributes:
        kind: As it is called: `map`, `count`, `sink`.
        parents: Whose elements it gets.
        own: What it is given of its own.
        function: Of a step without state, what it does; None: it hands elements on.
        make: Of a component by itself, makes it, of what it is subscribed to; None: the node is a step without state.
        theirs: It is a spout or a bolt of the user's, which emits what it likes.
        stream: Of that, the stream that is meant.
        fields: The names by which a bolt of the user's reads the values of an element; None: the one field `value`.
        host: The node with which the component begins that it belongs to.
    """

    kind: str
    parents: tuple[Node, ...]
    own: Own = Own()
    function: Callable[..., Any] | None = None
    make: Make | None = None
    theirs: bool = False
    stream: str = DEFAULT_STREAM
    fields: Fields | None = None
    host: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        begins = self.make is not None or self.theirs or self.own.given or len(self.parents) != 1
        self.host = self if begins or self.parents[0].host.theirs else self.parents[0].host


class Graph:
    """All nodes of a flow, in the order in which they were asked for: whose elements a node gets is before it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> Node:
        """Add a node; returns it.

        Raises:
            TopologyError: There is another component of its name.
        """
        name = node.own.name
        if name is not None and any(n.own.name == name for n in self.nodes):
            raise TopologyError(
                f"Two steps are called {name!r}: each name is that of one component.",
                remedy="Give one of them another name, or none.",
            )
        self.nodes.append(node)
        return node

    def build(self, put: Put, taken: Collection[str]) -> None:
        """Make the components and their subscriptions.

        Args:
            put: Adds each to the topology.
            taken: Names of components that are there already.
        """
        names = self._names(taken)
        made = {host: _Component() for host in names}
        for node in self.nodes:
            made[node.host].take(node)
        for node, name in names.items():
            for parent in node.parents:
                if not parent.theirs:
                    made[parent.host].emit_for(node, parent, name)
        for component in made.values():
            component.name_streams()
        for node, name in names.items():
            if not node.parents:
                continue  # a source, which is there already
            inputs = [
                (names[p.host], p.stream if p.theirs else made[p.host].stream_for(node, p))
                for p in node.parents
            ]
            bolt = Steps() if node.make is None else node.make(inputs)
            if isinstance(bolt, Planned):
                made[node].give(bolt, node)
            handle = put(name, bolt, node.own, node.parents[0].kind == KEY_BY)
            for parent, (source, stream) in zip(node.parents, inputs, strict=True):
                if parent.kind == KEY_BY:
                    handle.fields(source, "key", stream=stream)
                else:
                    handle.shuffle(source, stream=stream)

    def _names(self, taken: Collection[str]) -> dict[Node, str]:
        """Of each host. Those that were given go before those that are made up."""
        hosts = [node for node in self.nodes if node.host is node]
        used = {*taken, *(n.own.name for n in hosts if n.own.name is not None)}
        names: dict[Node, str] = {}
        for host in hosts:
            name = host.own.name or _free(host.kind, used)
            used.add(name)
            names[host] = name
        return names


class _Component:
    """A component in the making: its steps and its streams."""

    def __init__(self) -> None:
        self.steps: dict[Node, Step] = {}
        self.labels: dict[Node, str] = {}
        # By whose elements they are and their fields: what they are called, at first as who gets them first.
        self.streams: dict[tuple[Node, tuple[FieldSpec, ...]], str] = {}

    def take(self, node: Node) -> None:
        """Take in a node that belongs to it."""
        alone = node.make is not None or node.function is None
        self.labels[node] = label = _free(node.kind, self.labels.values(), "_")
        self.steps[node] = Step("same", None) if alone else Step(node.kind, node.function)
        if node.host is not node:
            self.steps[node.parents[0]].then.append(label)

    def emit_for(self, consumer: Node, node: Node, name: str) -> None:
        """Have a stream of a node's elements for another component of that name."""
        self.streams.setdefault((node, _fields(consumer, node)), name)

    def name_streams(self) -> None:
        """Name the streams, once it is known how many there are. What nobody gets has one as well: a bolt may be subscribed by hand."""
        got = {node for node, _ in self.streams}
        for node, step in self.steps.items():
            if not step.then and node not in got and node.kind != KEY_BY:
                self.streams[node, _VALUE.specs] = self.labels[node]
        if len(self.streams) == 1:
            self.streams = dict.fromkeys(self.streams, str(DEFAULT_STREAM))
            return
        used: set[str] = set()
        for of, name in self.streams.items():
            self.streams[of] = free = _free(name, used)
            used.add(free)

    def stream_for(self, consumer: Node, node: Node) -> str:
        """The name of what `emit_for` has asked for."""
        return self.streams[node, _fields(consumer, node)]

    def give(self, bolt: Planned, host: Node) -> None:
        """Give a bolt its steps and its outputs."""
        outputs = {}
        for (node, specs), stream in self.streams.items():
            self.steps[node].outs.append(Out(stream, len(specs)))
            outputs[stream] = fields = Fields()
            fields.specs = specs
        bolt.plan = Plan(self.labels[host], {self.labels[node]: step for node, step in self.steps.items()})
        bolt.outputs = outputs  # type: ignore[misc]  # of this instance, where others have them on the class


def _fields(consumer: Node, node: Node) -> tuple[FieldSpec, ...]:
    """By which fields a component gets a node's elements."""
    if node.kind == KEY_BY:
        return _KEYED.specs
    return (consumer.fields or _VALUE).specs


def _free(name: str, used: Collection[str], between: str = "-") -> str:
    """That name, or the first with a number that is not used."""
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}{between}{number}"
    return free
