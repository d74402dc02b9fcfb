"""A test kit for users: run one component by hand, without threads, queues or services.

    tester = BoltTester(Split())
    assert tester.execute("a b") == [("a",), ("b",)]

`LocalCluster` runs whole topologies; `collect` gives a sink for it.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from elastic.api.builder import check_calls, check_state, output_specs
from elastic.api.components import Bolt, Component, Spout, StatefulBolt, StatefulSpout, overrides
from elastic.api.context import Source, TopologyContext
from elastic.api.fields import Fields, Tuple, tuple_class
from elastic.api.settings import check_settings
from elastic.errors import ElasticError, ExecutionError
from elastic.model.ids import ComponentId, StreamId, TopologyName
from elastic.model.topology import ComponentSpec, StreamSpec, TopologySpec
from elastic.model.words import counted


class Emitted(list[tuple[Any, ...]]):
    """What was emitted, as plain tuples, in order; by stream in `streams`."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, list[tuple[Any, ...]]] = {}


class _Tester:
    def __init__(self, component: Component, index: int, parallelism: int, config: Mapping[str, Any]) -> None:
        check_settings(config, where="the tester")
        check_calls("Component 'tested'", component)
        check_state("tested", component)
        self._given = copy.deepcopy(component)
        self.emitted = Emitted()
        self._classes = {str(s.id): (s, tuple_class("tested", s)) for s in output_specs(component)}
        kind = "spout" if isinstance(component, Spout) else "bolt"
        spec = TopologySpec(
            TopologyName("test"), (ComponentSpec(ComponentId("tested"), kind, parallelism, 1),)
        )
        self._spec, self._task, self._config = spec, index + 1, config
        self.warnings: list[tuple[str, str]] = []
        self._begin()

    def _begin(self) -> None:
        """With a new copy, as for a task that starts."""
        self.component = copy.deepcopy(self._given)
        self.context = TopologyContext(self._spec, "tested", self._task, "test@tester/0", self._config)
        self.context.on_warning = lambda kind, message, details: self.warnings.append((kind, message))
        self.component.__dict__.update(
            emit=lambda *values: self._emit("default", values),
            emit_all=self._emit_all,
            emit_to=lambda stream, *values: self._emit(stream, values),
            emit_direct=lambda task, *values, stream="default": self._emit(stream, values),
            emit_batch=self._emit_batch,
            context=self.context,
        )
        self.component.prepare(self.context)

    def _emit(self, stream: str, values: tuple[Any, ...]) -> None:
        declared = self._classes.get(stream)
        if declared is None:
            raise ElasticError(
                f"{type(self.component).__name__} emitted on stream {stream!r}, which it does not declare.",
                remedy="Declare it in `outputs` on the class.",
            )
        fields = declared[0].fields
        if len(values) != len(fields):
            given, names = counted(len(values), "value"), ", ".join(f.name for f in fields)
            raise TypeError(
                f"{type(self.component).__name__} emitted {given} on stream {stream!r}, which takes {len(fields)} ({names})"
            )
        self.emitted.append(values)
        self.emitted.streams.setdefault(stream, []).append(values)

    def _emit_all(self, values: Iterable[Any], stream: str = "default") -> None:
        single = stream in self._classes and len(self._classes[stream][0].fields) == 1
        for value in values:
            self._emit(stream, (value,) if single else tuple(value))

    def _emit_batch(self, batch: Any, stream: str = "default") -> None:
        from elastic.worker.tuples import vector

        declared = self._classes.get(stream)
        if declared is None:
            raise ElasticError(
                f"{type(self.component).__name__} emitted on stream {stream!r}, which it does not declare."
            )
        for row in vector.to_rows(vector.check_record(batch, declared[0]), declared[1]):
            self._emit(stream, row.values)

    def take(self) -> Emitted:
        """What was emitted since the last call."""
        taken, self.emitted = self.emitted, Emitted()
        return taken

    def tick(self) -> Emitted:
        """Let the component's clock tick once."""
        self.component.tick()
        return self.take()

    def finish(self) -> Emitted:
        """Tell the component that all input has been worked off."""
        self.component.finish()
        return self.take()

    def move(self) -> Emitted:
        """Move the task, as from one worker to another while it runs: its state and its metrics are encoded as they are sent, and put into
        a new copy of the component after `prepare`; the old copy is cleaned up. `component` is the new one from then on.

        Returns:
            What was emitted by that.

        Raises:
            ExecutionError: The state cannot be pickled, or `get_state` or `set_state` raised: the task stays what it was, as in a topology.
            Exception: Whatever `prepare` raises, likewise; or `cleanup`.
        """
        from elastic.worker.content import Copier, install
        from elastic.worker.content.engine import metrics_of, put_metrics

        old, context, metrics = self.component, self.context, metrics_of(self.context)
        content = Copier(old).rest() if isinstance(old, StatefulBolt | StatefulSpout) else None
        try:
            self._begin()
            if content is not None:
                install(self.component, content.meta, content.in_order())
        except BaseException:
            self.component, self.context = old, context
            raise
        put_metrics(self.context, *metrics)
        self._clean_up(old)
        return self.take()

    def close(self) -> None:
        """End the task."""
        self._clean_up(self.component)

    def _clean_up(self, component: Component) -> None:
        from elastic.worker.executing.wiring import Unheard

        unheard = Unheard(component)
        component.cleanup()
        complaint = unheard.complaint("tested", self._task)
        if complaint is not None:
            self.warnings.append(("cleanup-emitted", complaint))

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics that the component has registered."""
        return self.context.metric_values()


class BoltTester(_Tester):
    """Runs a bolt by hand. The bolt is copied, as for a task.

    Args:
        bolt: The bolt.
        fields: The fields of the tuples that it gets; without them, for each stream those of the first `execute` by keyword that is
            said to come from it.
        index: Which of the component's tasks it is, from 0.
        parallelism: How many tasks the component has.
        config: Settings.
    """

    def __init__(
        self, bolt: Bolt, fields: Fields | None = None, *, index: int = 0, parallelism: int = 1, **config: Any
    ) -> None:
        super().__init__(bolt, index, parallelism, config)
        self._fields = fields
        self._seen: dict[Source, Fields] = {}

    def execute(self, *values: Any, source: str = "source", stream: str = "default", **named: Any) -> Emitted:
        """Execute one tuple.

        Args:
            values: Its values, in the order of `fields`; or
            named: its values by name, in any order (`execute(line="a b")`).
            source: The component that it is said to come from.
            stream: The stream that it is said to come from.

        Returns:
            What was emitted, as plain tuples in order; by stream in `streams`.

        Raises:
            TypeError: These are not values for the fields.
            Exception: Whatever the bolt raises.
        """
        bolt = self.component
        assert isinstance(bolt, Bolt)
        if type(bolt).execute is Bolt.execute:
            raise TypeError(
                f"{type(bolt).__name__} has no execute(): give it a record batch, by execute_batch()"
            )
        self.context.source = Source(source, stream, 1)
        try:
            bolt.execute(self._tuple(self.context.source, values, named))
        finally:
            self.context.source = None
        return self.take()

    def execute_batch(self, batch: Any, *, source: str = "source", stream: str = "default") -> Emitted:
        """Execute a record batch.

        Args:
            batch: A `pyarrow.RecordBatch`.
            source: The component that it is said to come from.
            stream: The stream that it is said to come from.

        Returns:
            What was emitted, as plain tuples.

        Raises:
            TypeError: The bolt works on tuples.
            Exception: Whatever the bolt raises.
        """
        bolt = self.component
        assert isinstance(bolt, Bolt)
        if type(bolt).execute_batch is Bolt.execute_batch:
            raise TypeError(f"{type(bolt).__name__} has no execute_batch(): give it tuples, by execute()")
        self.context.source = Source(source, stream, 1)
        try:
            bolt.execute_batch(batch)
        finally:
            self.context.source = None
        return self.take()

    @property
    def state(self) -> object:
        """The whole state of a stateful bolt."""
        return self.component.get_state()  # type: ignore[attr-defined]

    def _tuple(self, source: Source, values: tuple[Any, ...], named: dict[str, Any]) -> Tuple:
        if named and values:
            raise TypeError("give the tuple's values by position or by name, not both")
        fields = self._fields or self._seen.get(source)
        if fields is None:
            fields = Fields(*(named or (f"field{i}" for i in range(len(values)))))
            if named:
                self._seen[source] = fields
        if named:
            names = [f.name for f in fields.specs]
            if named.keys() != set(names):
                raise TypeError(
                    f"the fields of stream {source.stream!r} of {source.component!r} are {', '.join(names)}, and values were given for "
                    f"{', '.join(named)}: give one for each (other fields are for another stream= or source=, in a tester without `fields`)"
                )
            values = tuple(named[n] for n in names)
        return tuple_class("source", StreamSpec(StreamId("default"), fields.specs))(*values)


class SpoutTester(_Tester):
    """Runs a spout by hand. The spout is copied, as for a task.

    Args:
        spout: The spout.
        index: Which of the component's tasks it is, from 0.
        parallelism: How many tasks the component has.
        config: Settings.
    """

    def __init__(self, spout: Spout, *, index: int = 0, parallelism: int = 1, **config: Any) -> None:
        super().__init__(spout, index, parallelism, config)
        self._generator: Any = None

    def move(self) -> Emitted:
        """See `BoltTester.move`.

        Raises:
            ElasticError: It yields from a generator and has no state: it would begin anew, and stays where it is in a topology.
        """
        spout = self.component
        if not isinstance(spout, StatefulSpout) and overrides(spout, "tuples", Spout):
            raise ElasticError(
                f"{type(spout).__name__} yields its tuples from a generator and has no state: it does not move.",
                remedy="Make it a StatefulSpout that knows how far it is.",
            )
        self._generator = None
        exhausted = self.exhausted
        emitted = super().move()
        if exhausted:
            self.component.__dict__["_exhausted"] = True
        return emitted

    def run(self, most: int = 1000) -> Emitted:
        """Ask for tuples until the spout is exhausted, or was asked often enough.

        Args:
            most: How often it is asked at most.

        Returns:
            What was emitted, as plain tuples.
        """
        from elastic.worker.executing.spouts import values_of

        spout = self.component
        assert isinstance(spout, Spout)
        for _ in range(most):
            if self.exhausted:
                break
            if type(spout).tuples is not Spout.tuples:
                if self._generator is None:
                    self._generator = values_of(spout)
                if not spout._emit_each(itertools.islice(self._generator, 1)):
                    spout.exhausted()
            elif type(spout).next_batch is not Spout.next_batch:
                spout.next_batch()
            else:
                spout.next_tuple()
        return self.take()

    @property
    def exhausted(self) -> bool:
        """Whether the spout has said that there will never be more."""
        return bool(self.component.__dict__.get("_exhausted"))


_collected: dict[str, list[tuple[Any, ...]]] = {}
_collected_lock = threading.Lock()


class collect(Bolt):
    """A sink for tests in `LocalCluster`: `out = collect(); ...bolt("out", out)...; out.rows`.

    What its tasks get is gathered in this process, in order of arrival.
    """

    def __init__(self) -> None:
        self.key = f"{id(self)}"
        with _collected_lock:
            _collected[self.key] = []

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What has arrived so far."""
        with _collected_lock:
            return list(_collected[self.key])

    def execute(self, tup: Any) -> None:
        with _collected_lock:
            rows = _collected.get(self.key)
            if rows is None:
                raise ExecutionError(
                    "collect() gathers what it gets in the process in which it was made, and this is another one.",
                    remedy="Use it in LocalCluster; in a cluster, have a bolt of yours write what it gets (TextSink writes files).",
                )
            rows.append(tup.values)
