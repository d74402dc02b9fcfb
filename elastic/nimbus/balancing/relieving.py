"""Executors of a topology move from a full process to one that has room. Pure.

Threads of one Python process share one core's worth of computing. Round robin deals executors by number; what each of them computes is
known only when it was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.ids import NodeId, WorkerId

_WORTH = 0.05
"""Cores by which the fuller of two processes must become emptier."""


def relieved(
    assignment: Assignment, cpu: Mapping[ExecutorId, float], full: float, nodes: Collection[NodeId]
) -> Assignment:
    """The same workers, and as few executors as possible in others, so that none is full, as far as that can be.

    Args:
        cpu: Cores that each executor uses; those that are not there use none.
        full: Cores from which on a process is full.
        nodes: Those whose workers may get something.

    Returns:
        The same object when nothing is to be changed.
    """
    places = dict(assignment.executors)
    loads: dict[WorkerId, float] = dict.fromkeys(assignment.workers, 0.0)
    for executor, worker in places.items():
        loads[worker] += cpu.get(executor, 0.0)
    open_ = sorted(w for w, slot in assignment.workers.items() if slot.node in nodes)
    for _ in places:
        step = _step(places, loads, cpu, full, open_)
        if step is None:
            break
        executor, target = step
        loads[places[executor]] -= cpu.get(executor, 0.0)
        loads[target] += cpu.get(executor, 0.0)
        places[executor] = target
    if places == dict(assignment.executors):
        return assignment
    return replace(assignment, executors=tuple(sorted(places.items())))


def _step(
    places: Mapping[ExecutorId, WorkerId],
    loads: Mapping[WorkerId, float],
    cpu: Mapping[ExecutorId, float],
    full: float,
    targets: Collection[WorkerId],
) -> tuple[ExecutorId, WorkerId] | None:
    """The executor of the fullest process that helps most elsewhere, and where; None when nothing helps."""
    for worst in sorted((w for w in loads if loads[w] >= full), key=lambda w: (-loads[w], w)):
        target = min((t for t in targets if t != worst), key=lambda t: (loads[t], t), default=None)
        if target is None:
            return None
        options = [
            (max(loads[worst] - cpu.get(e, 0.0), loads[target] + cpu.get(e, 0.0)), e)
            for e, w in places.items()
            if w == worst
        ]
        highest, executor = min(options)
        if highest <= loads[worst] - _WORTH:
            return executor, target
    return None
