"""What users subclass: spouts and bolts.

The life of a component, once for each task, all in the executor's thread:

    (made where the topology is built, copied to each task)
    prepare -> execute / next_tuple, tick, activate, deactivate  (many times) -> finish (when all input is worked off) -> cleanup
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from elastic.api.context import TopologyContext
from elastic.api.fields import Fields
from elastic.api.state import KeyedState, StateMap, declared_states, restore, take_states
from elastic.errors import ElasticError

if TYPE_CHECKING:
    import pyarrow as pa

Outputs = Fields | Mapping[str, Fields] | str | None


class Component(ABC):
    """What spouts and bolts have in common.

    Attributes:
        outputs: The declared outputs, set on the class: `Fields(word=str)` for the one stream called `default`, a
            mapping from stream names to Fields for several, a plain string for a single untyped field, or None.
        context: The task's place in the topology; from `prepare` on.
    """

    outputs: ClassVar[Outputs] = None
    context: TopologyContext

    _states: ClassVar[Mapping[str, KeyedState[Any, Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._states = take_states(cls)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made = super().__new__(cls)
        for name, state in cls._states.items():
            made.__dict__[name] = StateMap(state.default)
        return made

    def prepare(self, context: TopologyContext) -> None:
        """Called once before anything else, in the task's own process: open what cannot be pickled here.

        Args:
            context: The task's place in the topology; also at `self.context` from now on.
        """

    def cleanup(self) -> None:
        """Called once when the task ends in an orderly way. After a crash it is not called."""

    def tick(self) -> None:
        """Called every `tick_interval` seconds (a setting of the component), between two tuples."""

    def finish(self) -> None:
        """Called when all input that there will ever be has been worked off; may still emit."""

    def checkpoint_begins(self, number: int) -> None:
        """Called just before the task's state is read for a checkpoint: what it is to have is put into the state by now. Emits nothing.

        Args:
            number: Of the checkpoint; grows.
        """

    def checkpoint_complete(self, number: int) -> None:
        """Called when a checkpoint with this task's state is complete, so that the topology never goes back to before it: what waited for
        that can be made known outside. May be called again with the same number, as after a move, and not be called for each.

        Args:
            number: Of the checkpoint.
        """

    # The functions below are replaced on each task's copy by functions made for its streams, before `prepare` is called.

    def emit(self, *values: Any) -> None:
        """Emit a tuple on the default stream.

        Waits where the receiver's queue is full.

        Args:
            values: In the declared order.

        Raises:
            TypeError: Their number is not that of the declared fields.
        """
        self._unwired("emit")

    def emit_all(self, values: Iterable[Any], stream: str = "default") -> None:
        """Emit many tuples: the same as `emit` for each, in their order, for less than half the cost.

        Args:
            values: For a stream of one field its values; else sequences of values in the declared order.
            stream: The stream's name.
        """
        self._unwired("emit_all")

    def emit_to(self, stream: str, *values: Any) -> None:
        """Emit a tuple on a named stream.

        Args:
            stream: One that `outputs` declares.
            values: In the declared order.

        Raises:
            ExecutionError: The stream is not declared.
            TypeError: The number of values is not that of its fields.
        """
        self._unwired("emit_to")

    def emit_direct(self, task: int, *values: Any, stream: str = "default") -> None:
        """Emit a tuple to one task of the consumers that subscribed with the direct grouping.

        Args:
            task: A number from `context.tasks_of(consumer)`.
            values: In the declared order.
            stream: One that `outputs` declares.

        Raises:
            NotFound: That task did not subscribe to the stream by direct grouping.
            ExecutionError: The stream is not declared.
        """
        self._unwired("emit_direct")

    def emit_batch(self, batch: pa.RecordBatch, stream: str = "default") -> None:
        """Emit all rows of an Arrow record batch.

        Args:
            batch: Its columns are the stream's fields, which must have declared types.
            stream: One that `outputs` declares.

        Raises:
            ExecutionError: The columns do not fit the stream, or a consumer's grouping cannot divide record batches.
        """
        self._unwired("emit_batch")

    def _emit_each(
        self,
        values: Iterable[Any],
        failed: Callable[[Exception, Any], bool] | None = None,
        ended: Callable[[Exception], None] | None = None,
    ) -> int:
        """Emit what a generator or a function gives: single values, or tuples of values.

        A tuple of a class of its own, as a named one, is taken apart only for several fields: one field can have it as its value.

        Args:
            failed: Told of a value that cannot be emitted; returns whether to stop. Without it, the error is raised.
            ended: Told of an error of `values` itself, which is the end of it. Without it, the error is raised.

        Returns:
            How many there were.
        """
        count = 0
        several = self._has_several_fields()
        try:
            for value in values:
                count += 1
                try:
                    if value.__class__ is tuple or (several and isinstance(value, tuple)):
                        self.emit(*value)
                    else:
                        self.emit(value)
                except Exception as e:
                    if failed is None:
                        raise
                    if failed(e, value):
                        break
        except Exception as e:
            if ended is None:
                raise
            ended(e)
        return count

    def _has_several_fields(self) -> bool:
        declared = self.outputs.get("default") if isinstance(self.outputs, Mapping) else self.outputs
        return isinstance(declared, Fields) and len(declared.specs) > 1

    def _unwired(self, name: str) -> None:
        raise ElasticError(
            f"{type(self).__name__}.{name} was called before the component was wired into a topology.",
            remedy="Emit from prepare(), execute(), next_tuple(), tick() or finish(); in tests, use elastic.testing.BoltTester.",
        )


class Spout(Component):
    """A source of tuples.

    Fill in one of three: `tuples` (a generator; simplest), `next_tuple`, or `next_batch` (Arrow).
    """

    def tuples(self) -> Iterable[Any]:
        """A generator of what to emit on the default stream: a tuple of values, or a single value.

        A named tuple is a tuple of values where there are several fields, and a single value where there is one.

        Its end says that the spout is exhausted. When it raises, the topology fails: there is nothing to go on with.

        Returns:
            Something that can be iterated once.
        """
        raise NotImplementedError

    def next_tuple(self) -> float | None:
        """Emit zero or more tuples, without blocking: while it waits its task does not move.

        Returns:
            None, or the seconds after which there may be something again. A call that emitted nothing and returns None is
            followed by a short pause of the framework's choice.
        """
        raise NotImplementedError

    def next_batch(self) -> float | None:
        """Emit zero or more record batches with `emit_batch`, without blocking: while it waits its task does not move.

        Returns:
            As `next_tuple`: None, or the seconds after which there may be something again.
        """
        raise NotImplementedError

    def exhausted(self) -> None:
        """Say that nothing will ever be emitted again. When all spouts have said so, the topology works off what is under
        way and ends by itself."""
        self.__dict__["_exhausted"] = True

    def activate(self) -> None:
        """The topology was activated again."""

    def deactivate(self) -> None:
        """The topology was deactivated: `next_tuple` is not called until `activate`."""


class Bolt(Component):
    """An operator: fill in `execute`, or `execute_batch` to work on Arrow record batches."""

    def execute(self, tup: Any) -> None:
        """Work on one tuple.

        What it raises is counted and told, and the next tuple is executed; more than `max_errors` of it fail the topology.

        Args:
            tup: Read it as `tup.word` (fastest), `tup[0]` or `tup.values`. It cannot be changed, and may be kept.
        """
        raise NotImplementedError

    def execute_batch(self, batch: pa.RecordBatch) -> None:
        """Work on an Arrow record batch. A bolt that has this gets record batches, whatever its sources emit.

        Args:
            batch: Rows of one stream from one task (`context.source`); its columns are the stream's fields.
        """
        raise NotImplementedError


class _Stateful(Component):
    """State that belongs to a task and travels with it (Elastic Storm 2016, sections III and V).

    Either declare it (`counts = KeyedState(int)`), or override both `get_state` and `set_state`.
    """

    def get_state(self) -> object:
        """The whole state.

        Returns:
            Something that can be pickled; by default all declared `KeyedState`s.
        """
        return {name: dict(getattr(self, name)) for name in declared_states(type(self))}

    def set_state(self, state: Any) -> None:
        """Take over a state. Called after `prepare`.

        Args:
            state: What `get_state` gave, in this process or another.
        """
        for name in declared_states(type(self)):
            target: StateMap[Any, Any] = getattr(self, name)
            restore(target, state.get(name, {}).items())


class StatefulSpout(_Stateful, Spout):
    """A spout with state, for instance how far it has read."""


class StatefulBolt(_Stateful, Bolt):
    """A bolt with state."""


class Presets:
    """A mix-in of components that bring settings along.

    Attributes:
        presets: Settings of the component, by name. Those that `TopologyBuilder.bolt` and `spout` are given go before them.
    """

    presets: ClassVar[Mapping[str, Any]] = {}


class CustomGrouping(ABC):  # noqa: B024
    """A user's own stream grouping: subclass and fill in `choose`.

    What it remembers does not travel with the emitting task: where that has moved to it is a new copy, and `prepare` is called.
    """

    def prepare(self, tasks: tuple[int, ...]) -> None:
        """Called once in each emitting task.

        Args:
            tasks: The numbers of the consumer's tasks, ascending.
        """

    def choose(self, values: tuple[Any, ...]) -> Iterable[int]:
        """Decide about one tuple.

        Args:
            values: The tuple's values, in the declared order.

        Returns:
            The numbers of the tasks that get it: none, one or several of those that `prepare` was given.
        """
        raise NotImplementedError


class TaskHook:
    """Told what a task does (Storm; Storm-MC 2015, section 4.4).

    Override what you need; what is not overridden costs nothing. Each task has its own copy, called in the task's thread.
    `context` is always the task's.
    """

    def prepare(self, context: TopologyContext) -> None:
        """The task is about to begin."""

    def on_execute(self, context: TopologyContext, tup: Any, seconds: float) -> None:
        """A tuple was executed. Of a bolt that takes record batches nothing is told.

        Args:
            context: The task's.
            tup: The tuple.
            seconds: How long `execute` took.
        """

    def on_emit(self, context: TopologyContext, stream: str, count: int) -> None:
        """Tuples were emitted: called for each batch that leaves the task.

        Args:
            context: The task's.
            stream: The stream's name.
            count: How many tuples, one for each receiver.
        """

    def on_error(self, context: TopologyContext, tup: Any, error: BaseException) -> None:
        """User code raised.

        Args:
            context: The task's.
            tup: The tuple that was being executed, or None outside of `execute`.
            error: What was raised.
        """

    def cleanup(self) -> None:
        """The task has ended."""


def overrides(instance: object, method: str, base: type) -> bool:
    """Whether the class of `instance` has its own version of a method of `base`."""
    return getattr(type(instance), method, None) is not getattr(base, method, None)


Emit = Callable[..., None]
