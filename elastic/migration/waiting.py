"""What tasks of a move wait for: whether one is ready, and who has not got it so, for decisions and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from elastic.migration.events import Host
from elastic.migration.record import AT_ONCE, Marked, MoveRecord, Phase, TaskMove, stage_of, turn_of
from elastic.model.ids import Incarnation, worker_of


def is_ready(task: TaskMove, marks: Mapping[Incarnation, Marked]) -> bool:
    """Whether both sides of it have done what comes before the pause. Marks of both must be known."""
    source, target = marks[task.source].marks, marks[task.target].marks
    return (
        task.task in source.asked
        and target.prepared.get(task.task) == task.attempt
        and (task.task not in source.ahead or target.fetched.get(task.task) == task.attempt)
    )


def lacking(task: TaskMove, marks: Mapping[Incarnation, Marked], prepared: Collection[int] = ()) -> str:
    """Who has not got a task ready, and to do what; "" when it is, or has only been heard to be prepared."""
    source, target = worker_of(task.source), worker_of(task.target)
    if task.source not in marks or task.task not in marks[task.source].marks.asked:
        # Only the task's own executor can tell how large the state is, between two tuples.
        return f"worker {source}, to find out how large its state is, and to ask the stores for room"
    marked = task.target in marks and marks[task.target].marks.prepared.get(task.task) == task.attempt
    if not marked:
        return "" if task.task in prepared else f"worker {target}, to prepare it"
    return "" if is_ready(task, marks) else f"worker {target}, to fetch what was copied ahead"


def saving(task: TaskMove) -> str:
    """Who has a task that stands still, and what for."""
    return f"worker {worker_of(task.source)}, to have all fences and to save it"


def may_be_given_up(task: TaskMove, record: MoveRecord, living: Collection[Incarnation]) -> bool:
    """Whether attempts enough have come to nothing to restore a task that is saved, and only an operator can end that."""
    return task.attempt >= AT_ONCE and task.source not in living and not record.forced


def how_to_give_up(record: MoveRecord) -> str:
    """What that operator is told."""
    return f"`elastic move {record.topology} --abort --force` gives its state up"


def waiting_for(
    record: MoveRecord,
    marks: Mapping[Incarnation, Marked],
    hosts: tuple[Host, ...],
    prepared: Collection[int] = (),
) -> dict[int, str]:
    """What each task of a move waits for, for people: in events, in `describe`, in the error of a command that waits.

    Args:
        prepared: Tasks of which it is heard that they are, whatever the marks say by now.
    """
    living = {h.incarnation for h in hosts}
    unready = Counter(t.batch for t in record.tasks if _gets_ready(t, record, marks))
    turn = turn_of(record, marks)
    return {
        t.task: _wait_of(t, record, marks, living, prepared, unready, turn)
        for t in record.tasks
        if not t.outcome
    }


def _wait_of(
    task: TaskMove,
    record: MoveRecord,
    marks: Mapping[Incarnation, Marked],
    living: Collection[Incarnation],
    prepared: Collection[int],
    unready: Counter[int],
    turn: int,
) -> str:
    phase = stage_of(task, record, marks, turn)[0]
    before = f"batch {min(turn, task.batch - 1)} of {record.batches - 1}, which comes before it"
    if phase is Phase.WAITING:
        return before
    if phase is Phase.PREPARING:
        if wanted := lacking(task, marks, prepared):
            return wanted
        own = _gets_ready(task, record, marks)
        if unready[task.batch] > own:
            return "the other tasks of its batch, to be ready"
        if unready.total() > own and task.batch == record.paused:
            return "others that get ready with it: nobody stands still meanwhile"
        return before if task.batch else "Nimbus, to pause it"
    if phase is Phase.PAUSED:
        return saving(task)
    if phase is Phase.SAVED:
        ends = f"; {how_to_give_up(record)}" if may_be_given_up(task, record, living) else ""
        if task.target not in living:
            return f"a living worker, to restore it{ends}"
        failed = marks[task.target].marks.failed.get(task.task) if task.target in marks else None
        again = f"; attempt {failed.attempt} failed: {failed.reason}" if failed is not None else ""
        return f"worker {worker_of(task.target)}, to restore it{again}{ends}"
    return "Nimbus, to write what has become of it"


def _gets_ready(task: TaskMove, record: MoveRecord, marks: Mapping[Incarnation, Marked]) -> bool:
    """Whether it has been told to get ready, and is not."""
    if task.outcome or not record.paused <= task.batch < max(1, record.ready):
        return False
    return not {task.source, task.target} <= marks.keys() or not is_ready(task, marks)
