"""What scenarios are made of: a cluster in which nothing goes wrong by itself, and, for one role alone, views, records and marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elastic.migration.record import Marked, Marks, MoveRecord, Phase, TaskMove
from elastic.migration.view import MoveView, View
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, StreamId, TaskId, WorkerId
from elastic.model.topology import ComponentSpec, FieldSpec, InputSpec, StreamSpec, TopologySpec
from protocol_tests.shape import NAME, Shape
from protocol_tests.worker import Worker
from protocol_tests.world import World

A, B, C, D = (WorkerId(f"sim@n{n}/0") for n in range(4))


def line(
    tasks: tuple[int, ...] = (1, 1, 1), places: Mapping[int, WorkerId] | None = None, **bounds: int
) -> Shape:
    """Components one behind the other on four workers, each on its node. With one task each: 1 in C, 2 in A, 3 in C."""
    components = []
    for n, count in enumerate(tasks):
        inputs = (
            (InputSpec(ComponentId(f"c{n - 1}"), StreamId("default"), Grouping(GroupingKind.SHUFFLE)),)
            if n
            else ()
        )
        outputs = (StreamSpec(StreamId("default"), (FieldSpec("x", "int"),)),) if n < len(tasks) - 1 else ()
        components.append(
            ComponentSpec(
                ComponentId(f"c{n}"), "bolt" if n else "spout", count, 1, True, False, outputs, inputs
            )
        )
    spec = TopologySpec(NAME, tuple(components))
    where = places or {1: C, 2: A, 3: C}
    return Shape(
        spec,
        {w: NodeId(w[4:6]) for w in (A, B, C, D)},
        dict(where),
        bounds.get("window", 8),
        bounds.get("buffer", 8),
        bool(bounds.get("hints", True)),
    )


def calm(seed: int = 1, shape: Shape | None = None) -> World:
    """A cluster in which nothing goes wrong by itself."""
    world = World(seed, shape=shape or line(), trace=[])
    world.coordination.lag, world.coordination.delay = 0.0, 1.0
    while world.clock.step():
        pass
    return world


def until(world: World, reached: Callable[[], bool], most: int = 20_000) -> None:
    """Let things happen until it is so."""
    for _ in range(most):
        if reached():
            return
        if not world.clock.step():
            break
    assert reached(), "\n".join((world.trace or [])[-40:])


def phase(world: World, task: int) -> Phase:
    return world.coordination.now.stands(task).phase


def worker(world: World, id: WorkerId) -> Worker:
    found = world.workers[id]
    assert found is not None
    return found


def move(world: World, wanted: dict[int, WorkerId], share: float = 1.0) -> None:
    assert world.nimbus is not None
    assert world.nimbus.move(wanted, share, "a scenario")


def flow(world: World, count: int = 20) -> None:
    for which in range(len(world.shape.spouts)):
        world.do_emit(which, count)


# ------------------------------------------------------------------ of one role alone


def record_of(
    source: Incarnation, target: Incarnation, task: int = 2, epoch: int = 1, paused: int = 1
) -> MoveRecord:
    part = TaskMove(TaskId(task), "c1", source, target, NodeId("n0"), NodeId("n1"))
    return MoveRecord(NAME, Epoch(epoch), "a scenario", (part,), paused)


def marks_of(**marks: Marks) -> dict[Incarnation, Marked]:
    return {m.incarnation: Marked(m, 1) for m in marks.values()}


def view_of(number: int, latest: int, records: tuple[MoveView, ...], places: dict[int, WorkerId]) -> View:
    return View(number, latest, records, places, {w: Incarnation(f"{w}#1") for w in (A, B, C, D)})


def kinds_of(actions: tuple[Any, ...]) -> list[type]:
    return [type(a) for a in actions]
