"""How the tasks that are to move are divided: into moves, as much as can be written at once, and of each move into batches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastic.coordination import paths
from elastic.coordination.base import MAX_BYTES
from elastic.migration.decide import SOON
from elastic.migration.plan import Bound, Change, Seat
from elastic.migration.record import Marks, TaskMove, encode_marks
from elastic.model.codec import encode
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.topology import TopologySpec
from elastic.nimbus.observing.facts import TopologyFacts

BATCHES = 64
"""A move is not divided into many more: each batch takes a pause and a rest, one after the other."""
BATCH_SIZE = 1 << 20
"""Bytes of state in a batch: they are saved and put in within about 20 ms beside a stream that takes half of a core."""
CHANGED = 256 << 10
"""What a larger state counts: it is copied ahead, and what has changed since goes in the pause."""
SOON_SIZE = 2 << 20
"""Bytes of the states that are copied ahead together: so small ones are copied again while others are paused."""
_WRITTEN = 3
"""All that is written of a move at once takes no more than so many times its record."""
_NOBODY, _NOWHERE = Incarnation(""), NodeId("")
_TASK = len(encode(TaskMove(TaskId(99_999), "", _NOBODY, _NOBODY, _NOWHERE, _NOWHERE, 9_999)))
"""Bytes of a task in a record, without the names in it."""
_LIFE = len(encode_marks(Marks(_NOBODY))) + len(paths.move_marks(TopologyName(""), Epoch(1), _NOBODY))
"""Bytes of one who takes part."""


def fitting(t: TopologyFacts, changes: Sequence[Change], living: Mapping[WorkerId, Seat]) -> int:
    """How many of these changes, from the first on, can be one move: all that is written of it at once has to go into one transaction.

    That is, in the worst case, the record and the marks of all that take part with the outcomes of all tasks, the assignment, and the plan
    with as many failures. Reasons are left out if need be.
    """
    room = (MAX_BYTES - len(encode(t.assignment)) - len(encode(t.plan))) // _WRITTEN
    lives, size = set[Seat](), 0
    for count, change in enumerate(changes):
        sides = {living[change.source], living[change.target]}
        size += _TASK + len(t.spec.component_of(change.task).id)
        size += sum(len(s.incarnation) + len(s.node) for s in sides)
        size += sum(_LIFE + len(t.name) + 2 * len(s.incarnation) for s in sides - lives)
        lives |= sides
        if size > room and count:
            return count
    return len(changes)


def bound_of(tasks: Sequence[TaskId], at_once: int, sizes: Mapping[TaskId, int]) -> Bound:
    """What a pause may cost when nobody has said otherwise.

    Args:
        at_once: Tasks that are paused together in any case (`Rules.at_once`).
        sizes: Bytes of state by task, as far as they are known.
    """
    counted = {t: min(sizes[t], CHANGED) for t in tasks if t in sizes}
    return Bound(
        max(at_once, -(-len(tasks) // BATCHES)),
        max(BATCH_SIZE, -(-sum(counted.values()) // BATCHES)),
        counted,
    )


def together(spec: TopologySpec, tasks: Sequence[TaskId], sizes: Mapping[TaskId, int]) -> int:
    """How many of these tasks may get ready together; 0: that is not known, or it is one. Of a task that has just come nobody knows how
    large its state is: it may be as large as any of its component."""
    largest = 0
    for component in {c.id for t in tasks if (c := spec.component_of(t)).stateful}:
        known = max(sizes.get(TaskId(t), 0) for t in spec.tasks_of(component))
        if not known:
            return 0
        largest = max(largest, known)
    most = min(SOON, SOON_SIZE // max(1, largest))
    return most if most > 1 else 0
