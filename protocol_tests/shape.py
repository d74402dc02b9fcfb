"""A random topology and cluster, small: layers of components, each with a few tasks, on a few workers and nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from elastic.migration.plan import Wiring
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, NodeId, StreamId, TopologyName, WorkerId
from elastic.model.topology import ComponentSpec, FieldSpec, InputSpec, StreamSpec, TopologySpec

NAME = TopologyName("sim")


@dataclass
class Shape:
    """See the module.

    Attributes:
        workers: Each worker's node.
        window: Tuples that a link carries and the target has not consumed.
        buffer: Tuples in an output buffer.
        hints: Whether an old side tells the new one of what is in the stores.
    """

    spec: TopologySpec
    workers: dict[WorkerId, NodeId]
    places: dict[int, WorkerId]
    window: int
    buffer: int
    hints: bool = True
    wiring: Wiring = field(init=False)
    _consumers: dict[int, tuple[tuple[int, range], ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.wiring = Wiring.of(self.spec)
        self._consumers = {
            t: tuple(
                (n, self.spec.tasks_of(consumer.id))
                for n, (consumer, _) in enumerate(self.spec.consumers(c.id))
            )
            for c in self.spec.components
            for t in self.spec.tasks_of(c.id)
        }

    @property
    def spouts(self) -> tuple[int, ...]:
        return tuple(t for c in self.spec.components if c.kind == "spout" for t in self.spec.tasks_of(c.id))

    def route(self, task: int, root: int, number: int) -> list[int]:
        """The targets of what a task emits for a tuple: a function of the tuple."""
        return [tasks[(number * 7 + root + n) % len(tasks)] for n, tasks in self._consumers[task]]

    def reference(self, roots: dict[int, int]) -> dict[int, set[tuple[int, int, tuple[int, ...]]]]:
        """What each task applies when all of it runs in one process, for so many tuples of each spout."""
        result: dict[int, set[tuple[int, int, tuple[int, ...]]]] = {}

        def go(task: int, root: int, number: int, path: tuple[int, ...]) -> None:
            for target in self.route(task, root, number):
                result.setdefault(target, set()).add((root, number, (*path, task)))
                go(target, root, number, (*path, task))

        for root, count in roots.items():
            for number in range(1, count + 1):
                go(root, root, number, ())
        return result


def make_shape(rnd: Random, *, workers: int = 0, layers: int = 0) -> Shape:
    """A random one."""
    layers = layers or rnd.choice((2, 2, 3, 3, 4))
    components: list[ComponentSpec] = []
    for n in range(layers):
        inputs = []
        if n:
            sources = {n - 1} | ({rnd.randrange(n)} if rnd.random() < 0.3 else set())
            inputs = [
                InputSpec(ComponentId(f"c{s}"), StreamId("default"), Grouping(GroupingKind.SHUFFLE))
                for s in sorted(sources)
            ]
        tasks = rnd.choice((1, 2, 2, 3))
        outputs = (StreamSpec(StreamId("default"), (FieldSpec("x", "int"),)),) if n < layers - 1 else ()
        kind = "spout" if n == 0 else "bolt"
        components.append(
            ComponentSpec(ComponentId(f"c{n}"), kind, tasks, 1, True, False, outputs, tuple(inputs))
        )
    spec = TopologySpec(NAME, tuple(components))
    count = workers or rnd.choice((2, 3, 3, 4))
    nodes = rnd.choice((2, 3)) if count > 2 else 2
    places = {WorkerId(f"sim@n{w % nodes}/{w // nodes}"): NodeId(f"n{w % nodes}") for w in range(count)}
    names = sorted(places)
    return Shape(
        spec,
        places,
        {t: rnd.choice(names) for t in range(1, spec.task_count + 1)},
        window=rnd.choice((2, 4, 8)),
        buffer=rnd.choice((2, 3, 8)),
    )
