"""Streams: what can be done with them, each a method that gives the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from elastic.api.components import Bolt
from elastic.api.fields import Fields
from elastic.api.windows import Windows
from elastic.errors import TopologyError
from elastic.flow.checks import check, check_time, folding, getter
from elastic.flow.graph import KEY_BY, Graph, Inputs, Make, Node, Own
from elastic.flow.joins import Join, Joined, Within
from elastic.flow.keyed import Collecting, Fold, Folding, Pair, Process, Reducing
from elastic.flow.steps import Call
from elastic.flow.windows import Windowed, WindowResult

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
S = TypeVar("S")
A = TypeVar("A")

_BY_KEY = ("collect", "count", "fold", "join", "process", "reduce", "window")
_BEFORE = ("filter", "flat_map", "key_by", "map", "sink", "union")


class _Node:
    """What streams have in common: a place in the graph of a flow."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node

    def _add(self, node: Node) -> Node:
        return self._graph.add(node)

    def _by_itself(self, kind: str, own: Own, make: Make, *others: Node) -> Stream[Any]:
        make(())  # what does not go together is said where it is written down
        return Stream(self._graph, self._add(Node(kind, (self._node, *others), own, make=make)))

    def _bolt(
        self, kind: str, bolt: Bolt, fields: Fields | Sequence[str] | None, stream: str, own: Own
    ) -> Stream[Any]:
        if not isinstance(bolt, Bolt):
            remedy = f"Give an instance: {bolt.__name__}(...)." if isinstance(bolt, type) else ""
            raise TopologyError(f"{kind}() takes a bolt, not {bolt!r}.", remedy=remedy)
        if isinstance(fields, str):
            fields = (fields,)
        if fields is not None and not isinstance(fields, Fields):
            fields = Fields(*fields)
        node = self._node
        if fields is not None and node.theirs:  # whose tuples have fields already
            node = self._add(Node("fields", (node,)))
        node = Node(kind, (node,), own, make=lambda inputs: bolt, theirs=True, stream=stream, fields=fields)
        return Stream(self._graph, self._add(node))

    def _same_flow(self, other: object, kind: type[_Node], what: str) -> None:
        if not isinstance(other, kind):
            raise TopologyError(
                f"{what} takes a {kind.__name__}, not {other!r}.",
                remedy="Divide it first: .key_by(function)."
                if kind is KeyedStream and isinstance(other, Stream)
                else "",
            )
        if other._graph is not self._graph:
            raise TopologyError(f"{what} takes a stream of the same flow, and was given one of another.")


class Stream(_Node, Generic[T]):
    """Elements, one after the other. Use it as often as you like: each use gets all of them.

    Made by `Flow.source` and by what is done with streams. Methods that take them have these arguments in common:

    Args:
        name: The name of the component that the step is, in the topology; None: it is called as the step.
        tasks: How many tasks the component has, fixed for the life of the topology; None: behind `key_by` as many as the flow says, else as
            executors.
        executors: How many threads run them to begin with; None: one.

    Raises:
        TopologyError: Something does not fit; the message says what would.
    """

    def map(
        self,
        function: Callable[[T], R],
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[R]:
        """What a function makes of each element.

        A step without state belongs to the component that makes its elements, and costs no tuples; with a name, tasks or executors of its
        own it is a component by itself.
        """
        return self._step("map", function, Own(name, tasks, executors))

    def filter(
        self,
        function: Callable[[T], object],
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[T]:
        """The elements for which a function gives something true."""
        return self._step("filter", function, Own(name, tasks, executors))

    def flat_map(
        self,
        function: Callable[[T], Iterable[R]],
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[R]:
        """All that a function returns, or yields, for each element: `lines.flat_map(str.split)`."""
        return self._step("flat_map", function, Own(name, tasks, executors))

    def union(
        self,
        *others: Stream[T],
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[T]:
        """The elements of several streams, in no order between them.

        Args:
            others: The other streams.
        """
        for other in others:
            self._same_flow(other, Stream, "union()")
        if not others:
            raise TopologyError("union() takes the streams to be added, and was given none.")
        nodes = (self._node, *(other._node for other in others))
        return Stream(self._graph, self._add(Node("union", nodes, Own(name, tasks, executors))))

    @overload
    def key_by(self, key: str) -> KeyedStream[Any, T]: ...
    @overload
    def key_by(self, key: Callable[[T], K]) -> KeyedStream[K, T]: ...
    def key_by(self, key: str | Callable[[T], Any]) -> KeyedStream[Any, T]:
        """Divide the stream: elements with equal keys meet in one task of the step that follows, which can keep something for the key.

        Args:
            key: Makes the key of an element: str, int, float, bool, bytes, date, time, UUID, Decimal, None, or a tuple of these. Or the
                name of an attribute, of a tuple of a field.
        """
        function = getter(key)
        check(KEY_BY, function)
        return KeyedStream(self._graph, self._add(Node(KEY_BY, (self._node,), function=function)))

    def through(
        self,
        bolt: Bolt,
        *,
        fields: Fields | Sequence[str] | None = None,
        stream: str = "default",
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> Stream[Any]:
        """What a bolt of your own emits.

        Args:
            bolt: The instance that each task gets a copy of. Behind a source or another bolt of yours it gets the tuples of that, otherwise
                tuples of the fields below.
            fields: The names by which it reads the values of an element, with their types where it takes record batches
                (`Fields(word=str, count=int)`); an element is a sequence then, such as a tuple. None: the element is the field `value`.
            stream: Which of its streams.
            config: Its settings, for instance `tick_interval=1.0`.
        """
        return self._bolt("through", bolt, fields, stream, Own(name, tasks, executors, config))

    def sink(
        self,
        sink: Bolt | Callable[[T], object],
        *,
        fields: Fields | Sequence[str] | None = None,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> None:
        """The end of the stream: a bolt of your own or a ready-made one (`TextSink`, `DataFrameSink`), or a function of an element.

        Args:
            sink: The bolt, or the function.
            fields: As of `through`: `sink(TextSink("counts.tsv"), fields=("word", "count"))`.
            config: Its settings.
        """
        own = Own(name, tasks, executors, config)
        if isinstance(sink, Bolt):
            self._bolt("sink", sink, fields, "default", own)
            return
        check("sink", sink)
        if fields is not None:
            raise TopologyError("sink(): a function gets the element as it is, and has no use for fields.")
        self._by_itself("sink", own, lambda inputs: Call(sink))

    def _step(self, kind: str, function: Callable[..., Any], own: Own) -> Stream[Any]:
        check(kind, function)
        return Stream(self._graph, self._add(Node(kind, (self._node,), own, function=function)))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in _BY_KEY:
                raise TopologyError(
                    f"{name}() keeps something for each key, and this stream has no keys.",
                    remedy=f"Divide it first: .key_by(function).{name}(...); key_by(lambda element: None) has one key for all.",
                )
            raise AttributeError(f"a stream has no {name!r}")


class KeyedStream(_Node, Generic[K, V]):
    """A stream that is divided by keys: elements with equal keys meet in one task, which may keep something for them.

    What it keeps is the state of the component: it moves with its task. Methods have the arguments of `Stream`'s in common.
    """

    def count(
        self,
        *,
        final: bool = False,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[Pair[K, int]]:
        """How many elements each key has.

        Args:
            final: Whether the number is given when the input has ended; else with each element, as it is then.
        """
        return self._fold("count", Folding(), final, Own(name, tasks, executors))

    def reduce(
        self,
        function: Callable[[V, V], V],
        *,
        final: bool = False,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[Pair[K, V]]:
        """What a function of two makes of the elements of each key.

        Args:
            function: Gets what there is and an element; returns what there is then.
            final: As of `count`.
        """
        check("reduce", function)
        return self._fold("reduce", Reducing(function), final, Own(name, tasks, executors))

    def fold(
        self,
        begin: Callable[[], A],
        add: Callable[[A, V], A],
        *,
        final: bool = False,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[Pair[K, A]]:
        """What a function makes of the elements of each key, from a beginning on.

        Args:
            begin: Makes what there is before the first element: `int`, `list`, a function.
            add: Gets what there is and an element; returns what there is then: something new, or the same, changed.
            final: As of `count`. With each element a copy is given of what there is, which costs the more the larger that is.
        """
        return self._fold("fold", folding(begin, add, None), final, Own(name, tasks, executors))

    def process(
        self,
        function: Callable[[K, S | None, V], tuple[S | None, Iterable[R]]],
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[R]:
        """What a function gives that may keep something for each key.

        Args:
            function: Gets the key, what it has kept for it or None, and the element. Returns a pair: what to keep, where None forgets the
                key, and what to give, in a list, say.
        """
        check("process", function)
        return self._by_itself("process", Own(name, tasks, executors), lambda inputs: Process(function))

    def window(
        self,
        windows: Windows,
        *,
        time: str | Callable[[V], float] | None = None,
        lateness: float = 0.0,
        idle: float = 10.0,
    ) -> WindowedStream[K, V]:
        """Divide the elements of each key further, by windows: what is made of them is given when a window closes.

        Args:
            windows: `Tumbling`, `Sliding`, `Sessions` or `Batches`.
            time: The time of an element, in seconds, or the name of its attribute; None: the time at which it comes.
            lateness: Seconds by which an element may come after later ones of the same task that sends it.
            idle: Seconds after which a task that has sent nothing does not hold up windows; `math.inf`: it always does.
        """
        check_time("window", time)
        return WindowedStream(self._graph, self._node, windows, time, lateness, idle)

    def join(
        self,
        other: KeyedStream[K, W],
        *,
        within: Within,
        time: str | Callable[[V], float] | None = None,
        other_time: str | Callable[[W], float] | None = None,
        lateness: float = 0.0,
        idle: float = 10.0,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[Joined[K, V, W]]:
        """Each pair of an element and one of the other stream that has the same key and is within so much time of it, when the second of
        them comes. Elements are kept until nothing can come any more that they belong to.

        Args:
            other: The other stream.
            within: Seconds by which the other's element may be earlier or later; a pair: by which earlier, and by which later.
            time: The time of an element, in seconds, or the name of its attribute; None: the time at which it comes.
            other_time: The same of the other's; None: as `time`.
            lateness, idle: As of `window`.
        """
        self._same_flow(other, KeyedStream, "join()")
        check_time("join", time)
        check_time("join", other_time)
        # A stream with itself: which side an element is from is known by the stream that it comes on.
        right = self._add(replace(other._node)) if other._node is self._node else other._node

        def make(inputs: Inputs) -> Bolt:
            return Join(inputs[1] if inputs else None, within, time, other_time, lateness, idle)

        return self._by_itself("join", Own(name, tasks, executors), make, right)

    def through(
        self,
        bolt: Bolt,
        *,
        stream: str = "default",
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
        **config: Any,
    ) -> Stream[Any]:
        """What a bolt of your own emits. It gets tuples of the fields `key` and `value`, those of a key in one task: it may be a
        `StatefulBolt`.

        Args:
            bolt: The instance that each task gets a copy of.
            stream: Which of its streams.
            config: Its settings, for instance `tick_interval=1.0`.
        """
        return self._bolt("through", bolt, None, stream, Own(name, tasks, executors, config))

    def _fold(self, kind: str, folding: Folding, final: bool, own: Own) -> Stream[Any]:
        return self._by_itself(kind, own, lambda inputs: Fold(folding, final))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in _BEFORE:
                raise TopologyError(
                    f"{name}() is for streams without keys, and this one is divided by its keys.",
                    remedy=f"Put it before key_by(...), or behind what is made by key: .count().{name}(...).",
                )
            raise AttributeError(f"a keyed stream has no {name!r}")


class WindowedStream(_Node, Generic[K, V]):
    """The elements of each key in each window. Methods have the arguments of `Stream`'s in common."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        windows: Windows,
        time: str | Callable[[V], float] | None,
        lateness: float,
        idle: float,
    ) -> None:
        super().__init__(graph, node)
        self._windows = windows
        self._times = time, lateness, idle
        Windowed(
            Collecting(), windows, *self._times
        )  # what does not go together is said where it is written down

    def count(
        self, *, name: str | None = None, tasks: int | None = None, executors: int | None = None
    ) -> Stream[WindowResult[K, int]]:
        """How many elements there are."""
        return self._fold("count", Folding(), Own(name, tasks, executors))

    def collect(
        self, *, name: str | None = None, tasks: int | None = None, executors: int | None = None
    ) -> Stream[WindowResult[K, list[V]]]:
        """All elements, in a list: those of one sender in their order. Each window of a key is an entry of the state: 4 MiB at most."""
        return self._fold("collect", Collecting(), Own(name, tasks, executors))

    def reduce(
        self,
        function: Callable[[V, V], V],
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[WindowResult[K, V]]:
        """What a function of two makes of the elements. Over `Sessions` it makes of two of them one, too."""
        check("reduce", function)
        return self._fold("reduce", Reducing(function), Own(name, tasks, executors))

    def fold(
        self,
        begin: Callable[[], A],
        add: Callable[[A, V], A],
        merge: Callable[[A, A], A] | None = None,
        *,
        name: str | None = None,
        tasks: int | None = None,
        executors: int | None = None,
    ) -> Stream[WindowResult[K, A]]:
        """What a function makes of the elements, from a beginning on.

        Args:
            begin: Makes what there is before the first element: `int`, `list`, a function.
            add: Gets what there is and an element; returns what there is then: something new, or the same, changed.
            merge: For `Sessions`: of what there is in two of them, the earlier first, makes what there is when they have become one.
        """
        return self._fold("fold", folding(begin, add, merge), Own(name, tasks, executors))

    def _fold(self, kind: str, folding: Folding, own: Own) -> Stream[Any]:
        return self._by_itself(kind, own, lambda inputs: Windowed(folding, self._windows, *self._times))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in (*_BY_KEY, *_BEFORE):
                raise TopologyError(
                    f"{name}() is nothing that can be done with windows.",
                    remedy="First say what each comes to: .count(), .reduce(function), .fold(begin, add), .collect().",
                )
            raise AttributeError(f"a windowed stream has no {name!r}")
