"""What a component learns about its place in the topology, and the metrics that it registers."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from elastic.errors import NotFound
from elastic.model.topology import TopologySpec

_MEASURED = frozenset({"executed", "emitted", "failed", "queued"})
"""Names that stand beside those of a component's own metrics."""


class Counter:
    """A number that only grows. Read by name in `elastic describe`, `elastic top` and `LocalRun.metrics()`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, by: int = 1) -> None:
        """Add to it.

        Args:
            by: How much, not negative.
        """
        self.value += by


class Gauge:
    """A number that is set, or read from a function when it is asked for."""

    __slots__ = ("_read", "value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self.value = 0.0
        self._read = read

    def set(self, value: float) -> None:
        """Set it."""
        self.value = value

    def read(self) -> float:
        """The present value."""
        return float(self._read()) if self._read is not None else float(self.value)


class Source(NamedTuple):
    """Where the tuples that are being executed come from."""

    component: str
    stream: str
    task: int


Warn = Callable[[str, str, Mapping[str, str | int | float]], None]
_MOST_KINDS = 100


class TopologyContext:
    """Handed to `prepare`; also at `self.context` from then on.

    Attributes:
        topology: The topology's name.
        component: This component's name.
        task: This task's number, unique in the topology.
        index: This task's place among those of its component, from 0.
        parallelism: How many tasks its component has.
        worker: The worker that it runs in.
        config: The settings of the topology with those of the component over them; read-only.
        checkpoints: Whether the topology takes checkpoints; in one process it never does.
        source: Where the tuple that is being executed comes from; None in `tick`, `finish` and in spouts.
    """

    def __init__(
        self, spec: TopologySpec, component: str, task: int, worker: str, config: Mapping[str, Any]
    ) -> None:
        self._spec = spec
        self.topology = str(spec.name)
        self.component = component
        self.task = task
        own = self._range(component)
        self.index = task - own.start
        self.parallelism = len(own)
        self.worker = worker
        self.config: Mapping[str, Any] = MappingProxyType(dict(config))
        self.checkpoints = False  # set by whoever runs the task
        self.source: Source | None = None
        self.metrics: dict[str, Counter | Gauge] = {}
        self.on_warning: Warn | None = None  # set by whoever runs the task
        self._warned: dict[str, int] = {}

    def tasks_of(self, component: str) -> tuple[int, ...]:
        """The tasks of a component of the topology.

        Args:
            component: Its name.

        Returns:
            Their numbers, ascending.

        Raises:
            NotFound: There is no such component.
        """
        return tuple(self._range(component))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Everybody that may send to this task: each task of the components that it has subscribed to, by stream."""
        mine = next(c for c in self._spec.components if c.id == self.component)
        return tuple(
            Source(str(i.source), str(i.stream), int(task))
            for i in mine.inputs
            for task in self._spec.tasks_of(i.source)
        )

    def _range(self, component: str) -> range:
        for spec in self._spec.components:
            if spec.id == component:
                return self._spec.tasks_of(spec.id)
        raise NotFound(f"Topology {self.topology!r} has no component {component!r}.")

    def counter(self, name: str) -> Counter:
        """A counter of this task; metrics show the sum over the component's tasks.

        Args:
            name: Its name in metrics.

        Returns:
            The counter of that name, registered at the first call.

        Raises:
            TypeError: The name is that of a gauge.
            ValueError: It is what elastic itself measures: `executed`, `emitted`, `failed`, `queued`.
        """
        name = _metric(name)
        made = self.metrics.setdefault(name, Counter())
        if not isinstance(made, Counter):
            raise TypeError(f"{name!r} is registered as a gauge")
        return made

    def gauge(self, name: str, read: Callable[[], float] | None = None) -> Gauge:
        """A gauge of this task; metrics show the sum over the component's tasks.

        Args:
            name: Its name in metrics.
            read: Called, from another thread, when the gauge is reported; must not wait for anything. Without it, the value is what was
                `set`.

        Returns:
            The gauge of that name, registered at the first call.

        Raises:
            TypeError: The name is that of a counter.
            ValueError: As for a counter.
        """
        name = _metric(name)
        made = self.metrics.setdefault(name, Gauge(read))
        if not isinstance(made, Gauge):
            raise TypeError(f"{name!r} is registered as a counter")
        return made

    def warn(self, kind: str, message: str, **details: str | int | float) -> None:
        """Tell whoever runs the topology that something is not as it should be; the task goes on.

        It becomes an event of severity warning: `elastic run` and `elastic submit --wait` show it, `elastic events` keeps it. Of
        each kind, this task's 1st, 2nd, 4th, 8th, ... is told, so that it may be called for every tuple.

        Args:
            kind: A short stable name for programs, in lower case with dashes: `input-undecodable`.
            message: One sentence for people.
            details: More, by name; what is neither text nor a finite number of up to 64 bits is told as text. `times`, which warning of
                this kind it is, is added.
        """
        kind = str(kind)[:100].encode("utf-8", "backslashreplace").decode()
        if kind not in self._warned and len(self._warned) >= _MOST_KINDS:
            kind = "other-warning"  # kinds are names: somebody makes them out of data
        times = self._warned[kind] = self._warned.get(kind, 0) + 1
        if times & (times - 1) == 0 and self.on_warning is not None:
            told = {name: _told(value) for name, value in details.items()}
            self.on_warning(kind, str(message), {**told, "times": times})

    def metric_values(self) -> dict[str, float]:
        """All registered metrics, now, as far as they are finite numbers."""
        values: dict[str, float] = {}
        # A copy first: the component may register another one while this is read by a reporting thread.
        for name, metric in list(self.metrics.items()):
            # What a gauge reads is the user's function: that it raises must not cost the others.
            with contextlib.suppress(Exception):
                value = float(metric.value) if isinstance(metric, Counter) else metric.read()
                if math.isfinite(value):
                    values[str(name)] = value
        return values


def _metric(name: str) -> str:
    """The name of a component's own metric, as it can be told: a text that is no Unicode would cost the whole report."""
    name = str(name).encode("utf-8", "backslashreplace").decode()
    if name in _MEASURED:
        raise ValueError(
            f"{name!r} is measured by elastic itself: give the component's own metric another name"
        )
    return name


def _told(value: Any) -> str | int | float:
    """A detail as everybody can be told it: messages between processes carry neither NumPy's numbers nor `nan`, nor just any object."""
    try:
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if hasattr(value, "__index__"):
            whole = operator.index(value)
            return whole if -(1 << 63) <= whole < 1 << 63 else str(whole)
        return str(value)
    except Exception as e:  # noqa: BLE001 - it is the user's; or a whole number of more digits than Python writes
        return f"({type(value).__name__}: {type(e).__name__})"
