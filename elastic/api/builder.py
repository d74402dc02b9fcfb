"""`TopologyBuilder`: from components and subscriptions to a checked `Topology`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from elastic.api.components import (
    Bolt,
    Component,
    CustomGrouping,
    Presets,
    Spout,
    TaskHook,
    _Stateful,
    overrides,
)
from elastic.api.fields import Fields
from elastic.api.settings import check_component, check_settings
from elastic.api.state import declared_states
from elastic.api.validate import check_name, validate
from elastic.errors import TopologyError
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import DEFAULT_STREAM, ComponentId, StreamId, TopologyName
from elastic.model.topology import ComponentSpec, InputSpec, StreamSpec, TopologySpec

C = TypeVar("C", bound=Component)


@dataclass(frozen=True)
class Topology:
    """A topology that can be run: its description, and the user's objects.

    Attributes:
        spec: The description; no user code in it.
        components: Each component's pristine instance, copied for every task.
        groupings: The custom groupings, by (consumer, number of its subscription).
        hooks: Task hooks by component; under "" those for all.
    """

    spec: TopologySpec
    components: Mapping[str, Component]
    groupings: Mapping[tuple[str, int], CustomGrouping] = field(default_factory=dict)
    hooks: Mapping[str, tuple[TaskHook, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The topology's name."""
        return str(self.spec.name)

    def renamed(self, name: str) -> Topology:
        """The same topology under another name.

        Args:
            name: Letters, digits, `-`, `_` and `.`.

        Returns:
            A new topology; this one stays as it is.

        Raises:
            TopologyError: It cannot be a name.
        """
        return self._checked(replace(self.spec, name=TopologyName(name)))

    def with_workers(self, workers: int) -> Topology:
        """The same topology for another number of workers.

        Args:
            workers: Worker processes, at least 1.

        Returns:
            A new topology; this one stays as it is.

        Raises:
            InvalidParallelism: It is not a whole number, or less than 1.
        """
        return self._checked(replace(self.spec, workers=workers))

    def _checked(self, spec: TopologySpec) -> Topology:
        validate(spec)
        return replace(self, spec=spec)


class _Declared(Generic[C]):
    """A component in the making; subscriptions are added by its methods."""

    def __init__(
        self, id: str, component: C, tasks: int | None, executors: int | None, config: Mapping[str, Any]
    ) -> None:
        self.id = id
        self.component = component
        self.executors = executors if executors is not None else 1
        self.tasks = tasks if tasks is not None else self.executors
        presets: Mapping[str, Any] = component.presets if isinstance(component, Presets) else {}
        self.config = {**presets, **config}
        self.inputs: list[InputSpec] = []
        self.custom_groupings: dict[int, CustomGrouping] = {}
        self.hooks: list[TaskHook] = []

    def hook(self, hook: TaskHook) -> Any:
        """Add a task hook to this component.

        Args:
            hook: Copied to each of its tasks.

        Returns:
            This handle.

        Raises:
            TopologyError: It is no task hook.
        """
        _instance(hook, TaskHook, f"Hook of component {self.id!r}")
        check_calls(f"Hook of component {self.id!r}", hook)
        self.hooks.append(hook)
        return self


class SpoutHandle(_Declared[Spout]):
    """A declared spout."""


class BoltHandle(_Declared[Bolt]):
    """A declared bolt. Each method subscribes it to a stream of another component (Storm's stream groupings).

    All take the same arguments, and return the handle, so that subscriptions can follow one another:

    Args:
        source: The name of the component whose tuples this bolt gets. It may be declared later; `build` looks.
        stream: Which of its streams.
        names: The fields that decide, for the groupings by key.

    Raises:
        TopologyError: One of them is not a string, or a custom grouping is no `CustomGrouping`.
    """

    def _add(
        self, source: str, stream: str, kind: GroupingKind, names: Sequence[str] = (), name: str = ""
    ) -> BoltHandle:
        where = f"Bolt {self.id!r}"
        _string(source, f"{where}: what it subscribes to must be the name of a component", "")
        _string(
            stream, f"{where}: the stream of {source!r} must be a name", "Leave it out for the default one."
        )
        for given in names:
            _string(
                given, f"{where}: a field of {source!r} must be a name", "See `outputs` of that component."
            )
        grouping = Grouping(kind, tuple(names), name)
        self.inputs.append(InputSpec(ComponentId(source), StreamId(stream), grouping))
        return self

    def shuffle(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """Tuples go to this bolt's tasks in turn."""
        return self._add(source, stream, GroupingKind.SHUFFLE)

    def fields(self, source: str, *names: str, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """Tuples with equal values in these fields go to the same task, in the order of emission."""
        return self._add(source, stream, GroupingKind.FIELDS, names)

    def partial_key(self, source: str, *names: str, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """Tuples with equal values in these fields go to one of two tasks, the less used of them."""
        return self._add(source, stream, GroupingKind.PARTIAL_KEY, names)

    def all(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """Every task gets every tuple."""
        return self._add(source, stream, GroupingKind.ALL)

    def all_to_one(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """The first task gets every tuple (Storm's global grouping)."""
        return self._add(source, stream, GroupingKind.GLOBAL)

    def local_or_shuffle(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """In turn among the tasks in the emitter's own worker; among all where it has none."""
        return self._add(source, stream, GroupingKind.LOCAL_OR_SHUFFLE)

    def none(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """You do not care; it is a shuffle."""
        return self._add(source, stream, GroupingKind.NONE)

    def direct(self, source: str, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """The emitter names the task, by `emit_direct`."""
        return self._add(source, stream, GroupingKind.DIRECT)

    def custom(self, source: str, grouping: CustomGrouping, *, stream: str = DEFAULT_STREAM) -> BoltHandle:
        """Your own `CustomGrouping` decides; each emitting task gets a copy of it."""
        _instance(grouping, CustomGrouping, f"Bolt {self.id!r}, grouping of {source!r}")
        check_calls(f"Bolt {self.id!r}, grouping of {source!r}", grouping)
        self.custom_groupings[len(self.inputs)] = grouping
        return self._add(source, stream, GroupingKind.CUSTOM, name=type(grouping).__name__)


class TopologyBuilder:
    """Puts a topology together.

    Args:
        name: The topology's name: letters, digits, `-`, `_` and `.`.
        workers: How many worker processes it wants.
        config: Settings for all components (`docs/settings.md`).
    """

    def __init__(self, name: str, *, workers: int = 1, **config: Any) -> None:
        self._name = name
        self._workers = workers
        self._config = dict(config)
        self._declared: dict[str, SpoutHandle | BoltHandle] = {}
        self._hooks: list[TaskHook] = []

    def spout(
        self, id: str, spout: Spout, *, tasks: int | None = None, executors: int | None = None, **config: Any
    ) -> SpoutHandle:
        """Add a spout.

        Args:
            id: Its name in the topology.
            spout: The instance that each task gets a copy of.
            tasks: Its number of tasks, fixed for the life of the topology (default: as many as executors).
            executors: How many threads run them to begin with (default 1).
            config: Its own settings, for instance `rate=10_000` tuples/s.

        Returns:
            The declared spout.

        Raises:
            TopologyError: It is no spout, its name cannot be one, or there is a component of that name already.
        """
        _instance(spout, Spout, f"Spout {id!r}")
        made = SpoutHandle(id, spout, tasks, executors, config)
        self._put(made)
        return made

    def bolt(
        self, id: str, bolt: Bolt, *, tasks: int | None = None, executors: int | None = None, **config: Any
    ) -> BoltHandle:
        """Add a bolt.

        Args:
            id: Its name in the topology.
            bolt: The instance that each task gets a copy of.
            tasks: Its number of tasks, fixed for the life of the topology (default: as many as executors).
            executors: How many threads run them to begin with (default 1).
            config: Its own settings, for instance `tick_interval=1.0` seconds.

        Returns:
            The declared bolt; its methods subscribe it to streams.

        Raises:
            TopologyError: It is no bolt, its name cannot be one, or there is a component of that name already.
        """
        _instance(bolt, Bolt, f"Bolt {id!r}")
        made = BoltHandle(id, bolt, tasks, executors, config)
        self._put(made)
        return made

    def hook(self, hook: TaskHook) -> TopologyBuilder:
        """Add a task hook to every component.

        Args:
            hook: Copied to each task.

        Returns:
            This builder.

        Raises:
            TopologyError: It is no task hook.
        """
        _instance(hook, TaskHook, f"Hook of topology {self._name!r}")
        check_calls(f"Hook of topology {self._name!r}", hook)
        self._hooks.append(hook)
        return self

    def _put(self, handle: SpoutHandle | BoltHandle) -> None:
        check_name(handle.id, "a component")
        if handle.id in self._declared:
            raise TopologyError(f"Topology {self._name!r} has two components called {handle.id!r}.")
        self._declared[handle.id] = handle

    def build(self) -> Topology:
        """Check everything and make the topology.

        Returns:
            What `LocalCluster` runs, and `elastic run` and `elastic submit` take.

        Raises:
            TopologyError: Something does not fit; a subclass says what (`elastic.errors`).
            ConfigError: A setting is unknown, has a value that it cannot have, or does not go together with others.
        """
        check_settings(self._config, where=f"topology {self._name!r}")
        specs = []
        for handle in self._declared.values():
            check_settings(handle.config, where=f"component {handle.id!r}", component=True)
            specs.append(_spec_of(handle))
        spec = TopologySpec(TopologyName(self._name), tuple(specs), self._workers, self._config)
        validate(spec)
        for component in specs:
            check_component(component, self._config)
        return Topology(
            spec,
            {h.id: h.component for h in self._declared.values()},
            {(h.id, n): g for h in self._declared.values() for n, g in h.custom_groupings.items()},
            {"": tuple(self._hooks)} | {h.id: tuple(h.hooks) for h in self._declared.values() if h.hooks},
        )


def output_specs(component: Component, id: str = "") -> tuple[StreamSpec, ...]:
    """The declared outputs of a component as data. Raises TopologyError when the declaration makes no sense."""
    declared = component.outputs
    if declared is None:
        return ()
    if isinstance(declared, str):
        declared = Fields(declared)
    if isinstance(declared, Fields):
        declared = {DEFAULT_STREAM: declared}
    if not isinstance(declared, Mapping):
        raise TopologyError(
            f"Component {id!r}: outputs must be Fields or a mapping of stream names to Fields, not {declared!r}."
        )
    made = []
    for name, fields in declared.items():
        if isinstance(fields, str):
            fields = Fields(fields)
        if not isinstance(fields, Fields):
            raise TopologyError(
                f"Component {id!r}: the fields of stream {name!r} must be Fields(...), not {fields!r}."
            )
        made.append(StreamSpec(StreamId(name), fields.specs))
    return tuple(made)


_GENERATORS = ("tuples", "choose")
"""What may be a generator: what these return is iterated."""
_CALLS = {
    Component: (
        *("prepare", "execute", "execute_batch", "tick", "activate", "deactivate", "finish", "cleanup"),
        *("tuples", "next_tuple", "next_batch", "get_state", "set_state"),
    ),
    CustomGrouping: ("prepare", "choose"),
    TaskHook: ("prepare", "on_execute", "on_emit", "on_error", "cleanup"),
}
"""What is called of the user's objects."""


def check_calls(where: str, given: Component | CustomGrouping | TaskHook) -> None:
    """See that calling a method of a user's object runs it: of a coroutine or a generator nothing would be, and nobody would hear of it.

    Raises:
        TopologyError: It would not.
    """
    for base, names in _CALLS.items():
        for name in names if isinstance(given, base) else ():
            method = getattr(type(given), name, None)
            if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
                what, remedy = "async", "Make it a plain function; asyncio.run(...) in it runs a coroutine."
            elif inspect.isgeneratorfunction(method) and name not in _GENERATORS:
                what, remedy = "a generator", "Call self.emit(...) where it has `yield`."
                if not isinstance(given, Component):
                    remedy = "Make it a plain function."
            else:
                continue
            raise TopologyError(
                f"{where}: {type(given).__name__}.{name} is {what}: calling it would do nothing.",
                remedy=remedy,
            )


def check_state(id: str, component: Component) -> bool:
    """See that what a component says of its state goes together. Returns whether it has one.

    Raises:
        TopologyError: It does not.
    """
    stateful = isinstance(component, _Stateful)
    states = declared_states(type(component))
    if states and not stateful:
        raise TopologyError(
            f"Component {id!r}: {type(component).__name__} declares state ({', '.join(states)}) but is not stateful.",
            remedy="Subclass StatefulBolt or StatefulSpout.",
        )
    for name in states:
        if inspect.isdatadescriptor(inspect.getattr_static(type(component), name, None)):
            raise TopologyError(
                f"Component {id!r}: {type(component).__name__} has a property in the place of its state {name!r}: what that returns would "
                "not move.",
                remedy="Give one of them another name.",
            )
    if stateful:
        own = [overrides(component, m, _Stateful) for m in ("get_state", "set_state")]
        if any(own) != all(own):
            raise TopologyError(
                f"Component {id!r}: {type(component).__name__} must override both get_state and set_state."
            )
        if not states and not any(own):
            raise TopologyError(
                f"Component {id!r}: {type(component).__name__} is stateful but has no state.",
                remedy="Declare it (counts = KeyedState(int)), or override get_state and set_state, or subclass Bolt.",
            )
    return stateful


def _spec_of(handle: SpoutHandle | BoltHandle) -> ComponentSpec:
    component = handle.component
    check_calls(f"Component {handle.id!r}", component)
    stateful = check_state(handle.id, component)
    if isinstance(component, Spout) and isinstance(component, Bolt):
        raise TopologyError(
            f"Component {handle.id!r}: {type(component).__name__} is both a spout and a bolt.",
            remedy="Make two components of it, and subscribe the bolt to the spout.",
        )
    if isinstance(component, Bolt):
        vector = overrides(component, "execute_batch", Bolt)
        if not vector and not overrides(component, "execute", Bolt):
            raise TopologyError(
                f"Bolt {handle.id!r}: {type(component).__name__} has neither execute nor execute_batch."
            )
    else:
        vector = overrides(component, "next_batch", Spout)
        if not any(overrides(component, m, Spout) for m in ("tuples", "next_tuple", "next_batch")):
            raise TopologyError(
                f"Spout {handle.id!r}: {type(component).__name__} has none of tuples, next_tuple, next_batch."
            )
    return ComponentSpec(
        id=ComponentId(handle.id),
        kind="spout" if isinstance(component, Spout) else "bolt",
        tasks=handle.tasks,
        executors=handle.executors,
        stateful=stateful,
        vector=vector,
        outputs=output_specs(component, handle.id),
        inputs=tuple(handle.inputs),
        config=handle.config,
    )


def _instance(given: object, kind: type, where: str) -> None:
    """Raise TopologyError unless it is one of that kind; a class is most often one whose call was forgotten."""
    if not isinstance(given, kind):
        raise TopologyError(
            f"{where}: {given!r} is not an instance of a subclass of elastic.{kind.__name__}.",
            remedy=f"Give an instance: {given.__name__}(...)." if isinstance(given, type) else "",
        )


def _string(given: object, rule: str, remedy: str) -> None:
    """Raise TopologyError with that rule unless it is a string; handles and lists of names are most often given for one."""
    if isinstance(given, _Declared):
        raise TopologyError(f"{rule}, not a {type(given).__name__}.", remedy=f"Give its name: {given.id!r}.")
    if isinstance(given, list | tuple):
        remedy = f"Give {', '.join(map(repr, given))} without brackets."
    if not isinstance(given, str):
        raise TopologyError(f"{rule}, not {given!r}.", remedy=remedy)
