"""What user code raises when its task moves is shown like what it raises at any other time: `elastic errors`, with its traceback.

That the move goes back, or forward, is said by others; a mark holds only the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elastic.errors import ElasticError, ExecutionError
from elastic.model.events import Severity
from elastic.model.ids import TaskId
from elastic.worker.shown import user_traceback, why

if TYPE_CHECKING:
    from elastic.worker.worker import Worker


def tell(worker: Worker, task: int, epoch: int, error: BaseException, attempt: int = 0) -> None:
    """Say that a task could not move because of its code, if it was that. Of attempts the 1st, 2nd, 4th, 8th, ... is told: what is saved is
    tried again and again.

    Args:
        attempt: The new side's; 0: the task could not leave.
    """
    cause = _of_code(error)
    if cause is None or attempt & (attempt - 1):
        return
    where = "come here" if attempt else "leave"
    worker.event(
        "task-move-failed",
        f"Task {task} cannot {where}: {why(error)}",
        Severity.ERROR,
        component=str(worker.spec.component_of(TaskId(task)).id),
        task=task,
        details={"epoch": epoch, "attempt": attempt, "traceback": user_traceback(cause)},
    )


def _of_code(error: BaseException) -> BaseException | None:
    """What was raised in user code, or by pickling what it has made; None: it was something else, as a store that is full."""
    if isinstance(error, ExecutionError):
        return error.__cause__
    return None if isinstance(error, ElasticError) else error
