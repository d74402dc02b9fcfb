"""How a component's tasks are divided among executors."""

from __future__ import annotations

from elastic.errors import InvalidParallelism
from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId
from elastic.model.words import counted


def split_tasks(component: ComponentId, tasks: range, executors: int) -> list[ExecutorId]:
    """Divide consecutive tasks into `executors` consecutive ranges whose sizes differ by at most one, larger
    ones first.

    Raises:
        InvalidParallelism: Fewer than one executor, or more than there are tasks.
    """
    if not 1 <= executors <= len(tasks):
        raise InvalidParallelism(
            f"component {component!r} has {counted(len(tasks), 'task')} and cannot have {counted(executors, 'executor')}",
            remedy=f"ask for 1 to {len(tasks)}; the number of tasks is fixed when a topology is submitted",
        )
    size, larger = divmod(len(tasks), executors)
    result, first = [], tasks.start
    for i in range(executors):
        last = first + size - (0 if i < larger else 1)
        result.append(ExecutorId(component, TaskId(first), TaskId(last)))
        first = last + 1
    return result
