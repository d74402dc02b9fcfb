"""Which tasks share an executor."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from elastic.errors import Refused
from elastic.model.assignment import ExecutorId
from elastic.model.ids import TaskId, WorkerId
from elastic.model.split import split_tasks
from elastic.model.topology import ComponentSpec
from elastic.model.words import counted

STAYS = "their state does not go along"
"""Why tasks of a demand that is not `movable` keep their worker."""


def runs(tasks: range, places: Mapping[TaskId, WorkerId]) -> list[tuple[range, WorkerId | None]]:
    """The longest ranges of consecutive tasks that are in one worker (or in none)."""
    result: list[tuple[range, WorkerId | None]] = []
    for place, group in groupby(tasks, key=lambda t: places.get(TaskId(t))):
        members = list(group)
        result.append((range(members[0], members[-1] + 1), place))
    return result


def regroup(
    component: ComponentSpec, tasks: range, places: Mapping[TaskId, WorkerId], executors: int
) -> list[tuple[ExecutorId, WorkerId | None]]:
    """Divide a component's tasks anew among `executors` executors, no task leaving its worker.

    Every run of tasks gets one executor, and the others go one by one to the run whose executors are largest
    then.

    Returns:
        Executors with their workers, ascending. None stands for tasks that are in no worker now.

    Raises:
        InvalidParallelism: More executors than tasks, or fewer than one.
        Refused: Fewer executors than runs: an executor's tasks are consecutive and in one worker.
    """
    if not 1 <= executors <= len(tasks):
        split_tasks(component.id, tasks, executors)
    pieces = runs(tasks, places)
    if executors < len(pieces):
        workers = sorted({w or "(waiting)" for _, w in pieces})
        raise Refused(
            f"component {component.id!r} cannot have {counted(executors, 'executor')}: its tasks lie in {len(pieces)} "
            f"separate runs in {', '.join(workers)}, and {STAYS}",
            remedy=f"ask for at least {counted(len(pieces), 'executor')}",
        )
    shares = [1] * len(pieces)
    for _ in range(executors - len(pieces)):
        most = max(range(len(pieces)), key=lambda i: (len(pieces[i][0]) / shares[i], -i))
        shares[most] += 1
    return [
        (executor, place)
        for (piece, place), share in zip(pieces, shares, strict=True)
        for executor in split_tasks(component.id, piece, share)
    ]
