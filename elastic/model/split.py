"""How a component's tasks are divided among executors."""

from __future__ import annotations

from elastic.model.assignment import ExecutorId
from elastic.model.ids import ComponentId, TaskId


def split_tasks(component: ComponentId, tasks: range, executors: int) -> list[ExecutorId]:
    """Contiguous ranges of even length (they differ by one at most), ascending.

    Args:
        tasks: The task numbers to divide.
        executors: How many ranges; 1 to len(tasks).
    """
    base, more = divmod(len(tasks), executors)
    made, first = [], tasks.start
    for n in range(executors):
        last = first + base + (n < more) - 1
        made.append(ExecutorId(component, TaskId(first), TaskId(last)))
        first = last + 1
    return made
