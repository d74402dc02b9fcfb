"""A topology with what a tuple costs in each component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic.elasticity.base import Bounds
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import DEFAULT_STREAM, ComponentId, TopologyName
from elastic.model.topology import ComponentSpec, FieldSpec, InputSpec, StreamSpec, TopologySpec


@dataclass(frozen=True, slots=True)
class Cost:
    """What one tuple costs.

    Attributes:
        compute: CPU seconds, with the interpreter's lock.
        wait: Seconds of waiting for something else, without it.
        makes: Tuples emitted for each.
    """

    compute: float = 0.0
    wait: float = 0.0
    makes: float = 1.0

    @property
    def service(self) -> float:
        """Seconds that an undisturbed executor needs for one."""
        return self.compute + self.wait


@dataclass(frozen=True, slots=True)
class Model:
    """A topology to simulate.

    Attributes:
        bounds: As in `elastic.elasticity.base.Subject`.
        state: Bytes of state per task of a stateful component.
    """

    spec: TopologySpec
    costs: Mapping[ComponentId, Cost]
    bounds: Mapping[ComponentId, Bounds] = field(default_factory=dict)
    state: int = 0


def chain(
    name: str, parts: list[tuple[str, int, int, Cost]], *, stateful: str = "", workers: int = 1
) -> Model:
    """A spout and bolts, one after the other.

    Args:
        parts: (component, executors, tasks, cost), the spout first.
        stateful: The component that has state.
    """
    components = []
    for i, (id, executors, tasks, _) in enumerate(parts):
        inputs: tuple[InputSpec, ...] = ()
        if i:
            kind = GroupingKind.FIELDS if id == stateful else GroupingKind.SHUFFLE
            grouping = Grouping(kind, ("key",) if kind is GroupingKind.FIELDS else ())
            inputs = (InputSpec(ComponentId(parts[i - 1][0]), DEFAULT_STREAM, grouping),)
        components.append(
            ComponentSpec(
                ComponentId(id),
                "bolt" if i else "spout",
                tasks,
                executors,
                stateful=id == stateful,
                outputs=(StreamSpec(DEFAULT_STREAM, (FieldSpec("key"),)),) if i < len(parts) - 1 else (),
                inputs=inputs,
            )
        )
    costs = {ComponentId(id): cost for id, _, _, cost in parts}
    return Model(TopologySpec(TopologyName(name), tuple(components), workers), costs, state=1 << 20)


def fpd(compute: float = 0.012, executors: int = 5) -> Model:
    """Frequent Pattern Detection: Elastic Storm (2016), figure 3 and table I. The detector computes.

    Args:
        compute: CPU seconds of the detector per tuple; with 0.012 the paper's numbers of executors are the right ones.
        executors: Of the detector, to begin with.
    """
    return chain(
        "fpd",
        [
            ("input", 1, 1, Cost(0.00005)),
            ("generator", 2, 2, Cost(0.0005)),
            ("detector", executors, 20, Cost(compute, makes=0.02)),
            ("reporter", 1, 1, Cost(0.0001, makes=0.0)),
        ],
        stateful="detector",
        workers=5,
    )


def large(times: int = 1) -> Model:
    """A source and a component that computes, with a thousand executors on two thousand tasks for each of `times`."""
    executors = 1000 * times - 1
    return chain(
        "large",
        [("source", 1, 1, Cost()), ("work", executors, 2 * executors + 2, Cost(0.02, makes=0.0))],
        workers=400 * times,
    )


def waiting_service(wait: float = 0.001, executors: int = 1, tasks: int = 32) -> Model:
    """Each tuple asks a local service that takes a millisecond."""
    return chain(
        "enrich",
        [
            ("requests", 1, 1, Cost(0.00001)),
            ("lookup", executors, tasks, Cost(0.00003, wait, makes=0.0)),
        ],
        workers=1,
    )
