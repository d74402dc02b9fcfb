"""What a move is made of: which tasks go where, in which batches, and who emits to whom."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from elastic.errors import Refused
from elastic.migration.record import MoveRecord, TaskMove
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, WorkerId
from elastic.model.topology import ComponentSpec, TopologySpec

AHEAD = 64 << 10
"""Bytes of a state of which it is worth it to follow the changes until the pause, and to have what was copied put in before it. To take one
of 128 KB as a whole is some milliseconds of computing, which beside three busy executors take ten on either side."""


class Wiring:
    """Which task emits to which, whatever runs where.

    Args:
        targets: The tasks that each task may emit to.
    """

    __slots__ = ("_emitters", "_targets")

    def __init__(self, targets: Mapping[int, Iterable[int]]) -> None:
        self._targets = {t: tuple(sorted(set(to))) for t, to in targets.items()}
        emitters: dict[int, list[int]] = {}
        for source in sorted(self._targets):
            for target in self._targets[source]:
                emitters.setdefault(target, []).append(source)
        self._emitters = {t: tuple(sources) for t, sources in emitters.items()}

    @classmethod
    def of(cls, spec: TopologySpec) -> Wiring:
        """That of a topology: a component's tasks may emit to every task of its consumers."""
        return cls(
            {
                task: [t for consumer, _ in spec.consumers(c.id) for t in spec.tasks_of(consumer.id)]
                for c in spec.components
                for task in spec.tasks_of(c.id)
            }
        )

    def emitters_of(self, task: int) -> tuple[int, ...]:
        """The tasks that may emit to it, ascending."""
        return self._emitters.get(task, ())

    def targets_of(self, task: int) -> tuple[int, ...]:
        """The tasks that it may emit to, ascending."""
        return self._targets.get(task, ())


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a worker is: its present life and its node."""

    incarnation: Incarnation
    node: NodeId


@dataclass(frozen=True, slots=True)
class Change:
    """A task that is to go from one worker to another."""

    task: TaskId
    source: WorkerId
    target: WorkerId


@dataclass(frozen=True, slots=True)
class Bound:
    """What one batch may have, so that a pause stays short: each task that stands still with others waits for all of them.

    Attributes:
        tasks: At most so many, of all components together.
        size: Bytes of state at most, as far as it is saved and put in within the pause.
        sizes: By task, as far as they are known.
    """

    tasks: int
    size: int
    sizes: Mapping[TaskId, int]


def changes_between(
    before: Mapping[TaskId, WorkerId], after: Mapping[TaskId, WorkerId]
) -> tuple[Change, ...]:
    """The tasks that are to be in another worker, ascending. Those in the same one are not the protocol's business."""
    changed = sorted(t for t, at in before.items() if after.get(t, at) != at)
    return tuple(Change(t, before[t], after[t]) for t in changed)


def plan_move(
    spec: TopologySpec,
    epoch: Epoch,
    why: str,
    changes: Iterable[Change],
    seats: Mapping[WorkerId, Seat],
    *,
    busy: Collection[int] = (),
    share: float = 1.0,
    bound: Bound | None = None,
) -> MoveRecord:
    """Plan one move. Tasks are left out that have to wait: they are in one that has not settled, or a worker of theirs does not live.

    Args:
        epoch: Greater than that of any move before.
        seats: Of the living workers.
        busy: Tasks of moves that have not settled.
        share: Of a component's tasks that may be paused at once, 0 to 1; at least one task is.
        bound: What else a batch may not exceed.

    Raises:
        Refused: Nothing of it can be done now.
    """
    changes = sorted(changes, key=lambda c: c.task)
    now = [c for c in changes if c.task not in busy and c.source in seats and c.target in seats]
    if not now:
        waiting = ", ".join(str(c.task) for c in changes) or "none was named"
        raise Refused(
            f"no task of topology {spec.name!r} can be moved now ({waiting})",
            remedy="wait until the moves under way have ended and the workers live, then ask again",
        )
    tasks = tuple(
        TaskMove(
            c.task,
            str(spec.component_of(c.task).id),
            seats[c.source].incarnation,
            seats[c.target].incarnation,
            seats[c.source].node,
            seats[c.target].node,
            batch,
        )
        for c, batch in zip(now, batches(spec, [c.task for c in now], share, bound), strict=True)
    )
    return MoveRecord(spec.name, epoch, why, tasks)


def batches(
    spec: TopologySpec, tasks: Iterable[TaskId], share: float, bound: Bound | None = None
) -> list[int]:
    """Each task's batch; tasks that come first go first.

    Args:
        share: Of each component's tasks that a batch may have, 0 to 1; it has at least one.
        bound: What else it may not exceed; a task that does so by itself goes alone.
    """
    if not 0 < share <= 1:
        raise Refused(
            f"the share of a component that may be paused is {share:g}", remedy="give one above 0 and up to 1"
        )
    if bound is not None:
        return _bounded(spec, tasks, share, bound)
    taken: dict[str, int] = {}
    result = []
    for task in tasks:
        component = spec.component_of(task)
        position = taken.get(str(component.id), 0)
        taken[str(component.id)] = position + 1
        result.append(position // most_of(component, share))
    return result


def _bounded(spec: TopologySpec, tasks: Iterable[TaskId], share: float, bound: Bound) -> list[int]:
    """One component after the other: what a batch has of one it does not have of the others."""
    result: list[int] = []
    taken: dict[str, int] = {}
    batch = size = 0
    for task in tasks:
        component, own = spec.component_of(task), bound.sizes.get(task, 0)
        if taken and (
            taken.get(str(component.id), 0) >= most_of(component, share)
            or sum(taken.values()) >= bound.tasks
            or size + own > bound.size
        ):
            batch, size = batch + 1, 0
            taken.clear()
        taken[str(component.id)] = taken.get(str(component.id), 0) + 1
        size += own
        result.append(batch)
    return result


def most_of(component: ComponentSpec, share: float) -> int:
    """How many of its tasks may be paused at once: at least one."""
    return max(1, int(component.tasks * share))
