"""What Nimbus decides about one move: a function of the record, the marks and who lives. Nothing is remembered.

The rules, for a task without an outcome:

    neither     and aborted, or a side is gone or has failed, or its time is over   rolled back: `saved` and `restored` are refused
    saved       and the new side is gone or has failed, or its time is over         another new side: this one's word is refused;
                mostly the process that it was to leave, if that lives: it goes on with what it has
                and no store that could have the state has it                       lost: two nodes went at once
                and `AT_ONCE` have tried in vain, the process that it left is gone,
                and an operator gives it up                                         lost, its word refused as well
    restored    whether or not it is saved                                          committed: the assignment says so

Batches may be paused when all that get ready have done so, and nobody stands still any more. They stand still one after the other: whose
turn it is those who take part find out by themselves (`record.turn_of`), and they let the stream rest in between (`turns`).
Nothing gets ready while somebody stands still, and nobody is told to stand still while others get ready: to make tasks, to ask stores for
room and to copy states ahead takes the very processors that those wait for who stand still. So where states are not large, some batches get
ready together: that they are, and that they may pause, is a few writes, not four a task.

A task that is restored runs already: nobody waits for its outcome, and each one makes every process of the topology read a new
assignment and carry it out. So outcomes are written `TOGETHER`, as long as what is still under way goes well; the last ones when the stream
has had time to work off what was held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from elastic.migration.actions import Commit, MarksChange, Say
from elastic.migration.events import Host
from elastic.migration.record import (
    AT_ONCE,
    ENDED,
    REASON,
    FailedMark,
    Marked,
    Marks,
    MoveRecord,
    Outcome,
    Phase,
    SavedMark,
    Stage,
    TaskMove,
    stage_of,
    told,
    turn_of,
)
from elastic.migration.waiting import is_ready, lacking, saving
from elastic.model.ids import Incarnation, TaskId, WorkerId, node_of, worker_of

PREPARE, PAUSE, RESTORE, AGAIN, SETTLE = "prepare", "pause", "restore", "again", "settle"
_BOUNDS = (PREPARE, PAUSE, RESTORE)
AGAIN_AFTER = 1.0
"""Seconds between the next two; twice as long with each further one, up to the time of an attempt. A node that was not there may come
back soon. A state that no process can read must not keep the cluster busy, and must not be given up either."""
ATTEMPTS = 1_000_000
TOGETHER = 64
"""Tasks that are restored before their outcomes are written, while others of the move are still under way."""
KEPT = 128 << 20
"""Bytes of state that are restored before outcomes are written: their former places keep them in memory until then."""
SOON = 16
"""Tasks with small states that get ready ahead of their batch."""
Stages = Mapping[TaskId, Stage]
"""Of tasks without an outcome. Looked for once: a move may have hundreds of tasks, and each step of one of them is looked at."""
Timer = tuple[str, int]
"""Kind and number: a batch; for `restore` and `again`, a task and its attempt; for `settle`, how many batches have been paused. `again`
and `settle` bound nothing: they are over when they fire."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be written, and said once it is.

    Attributes:
        timers: What must not last for ever at present.
    """

    commit: Commit | None
    says: tuple[Say, ...] = ()
    timers: tuple[Timer, ...] = ()


class _Draft:
    """A commit in the making."""

    def __init__(
        self, record: MoveRecord, marks: Mapping[Incarnation, Marked], hosts: tuple[Host, ...]
    ) -> None:
        self.record = record
        self.marks = dict(marks)
        self.hosts = {h.incarnation: h for h in hosts}
        self.touched: set[Incarnation] = set()
        self.places: list[tuple[int, WorkerId]] = []
        self.says: list[Say] = []
        self.load = {h.incarnation: h.load for h in hosts}
        turn = turn_of(record, marks)
        self.stages: Stages = {
            t.task: stage_of(t, record, marks, turn) for t in record.tasks if not t.outcome
        }

    def write(self, incarnation: Incarnation, marks: Marks) -> None:
        found = self.marks.get(incarnation)
        self.marks[incarnation] = Marked(marks, found.version if found is not None else -1)
        self.touched.add(incarnation)

    def changes(self) -> tuple[MarksChange, ...]:
        return tuple(MarksChange(i, self.marks[i].marks, self.marks[i].version) for i in sorted(self.touched))


def restore_timer(task: TaskMove) -> Timer:
    """The one that bounds an attempt to restore it."""
    return RESTORE, task.task * ATTEMPTS + task.attempt


def again_timer(task: TaskMove) -> Timer:
    """The one between an attempt that has failed and the next."""
    return AGAIN, task.task * ATTEMPTS + task.attempt


def again_after(number: int, most: float) -> float:
    """How long an `again` timer takes, in seconds.

    Args:
        number: The timer's.
        most: The time of an attempt, in seconds.
    """
    return min(most, AGAIN_AFTER * 2.0 ** min(32, number % ATTEMPTS - AT_ONCE))


def decide(
    record: MoveRecord,
    version: int,
    marks: Mapping[Incarnation, Marked],
    hosts: tuple[Host, ...],
    expired: Collection[Timer],
) -> Decision:
    """Everything that follows from what is known, as one transaction.

    Args:
        marks: Of every participant of the record; where one is missing, the reader is behind and nothing is decided.
        expired: Timers that have run out.
    """
    if any(i not in marks for t in record.tasks if not t.outcome for i in (t.source, t.target)):
        return Decision(None)
    draft = _Draft(record, marks, hosts)
    later = _later(draft, expired)
    tasks = tuple(
        _decide_task(t, draft, expired) if not (t.outcome or t.task in later) else t for t in record.tasks
    )
    after = replace(record, tasks=tasks)
    turn = turn_of(after, draft.marks)
    stages = {
        t.task: draft.stages[t.task] if t is before else stage_of(t, after, draft.marks, turn)
        for t, before in zip(tasks, record.tasks, strict=True)
        if not t.outcome
    }
    after = replace(after, ready=_readying(after, draft.marks, stages))
    after = replace(after, paused=_paused(after, draft.marks, stages))
    timers = _timers(after, draft.marks, stages, draft.hosts, turn)
    if after == record and not draft.touched:
        return Decision(None, (), timers)
    return Decision(Commit(after, version, draft.changes(), tuple(draft.places)), tuple(draft.says), timers)


def _later(draft: _Draft, expired: Collection[Timer]) -> frozenset[int]:
    """Restored tasks whose outcomes wait for those of others, or for the stream. What these wait for has a time: nothing waits for ever."""
    record, stages = draft.record, draft.stages
    under_way = [t for t in record.tasks if not t.outcome]
    if record.abort or any(
        t.attempt > 1 or t.source not in draft.hosts or t.target not in draft.hosts for t in under_way
    ):
        return frozenset()
    if any(not stages.keys().isdisjoint(m.marks.failed) for m in draft.marks.values()):
        return frozenset()
    # Nobody takes a timer back when what it bounds has come in time: only one that still runs says that something is late.
    late = [timer for timer in expired if timer[0] in _BOUNDS]
    if late and any(_bound(t, stages[t.task][0]) in late for t in under_way):
        return frozenset()
    restored = frozenset(t for t, (phase, _) in stages.items() if phase is Phase.RESTORED)
    if len(restored) < len(stages):
        kept = sum(
            saved.size for phase, saved in stages.values() if phase is Phase.RESTORED and saved is not None
        )
        return restored if len(restored) < TOGETHER and kept < KEPT else frozenset()
    return restored if (SETTLE, record.paused) not in expired else frozenset()


def _decide_task(task: TaskMove, draft: _Draft, expired: Collection[Timer]) -> TaskMove:
    phase, saved = draft.stages[task.task]
    if phase is Phase.RESTORED:
        worker = worker_of(task.target)
        draft.places.append((task.task, worker))
        said = f"Task {task.task} runs in worker {worker} now."
        if task.came_back:
            said = f"Task {task.task} has come back to worker {worker}: {task.reason.rstrip('.')}."
        if task.target not in draft.hosts:
            said = f"Task {task.task} had come to worker {worker}, of which the process has ended since: it starts anew there."
        draft.says.append(Say("task-moved", task.task, said))
        return replace(task, outcome=Outcome.COMMITTED)
    if saved is not None:
        return _forward(task, saved, draft, expired)
    reason, final = _why_back(task, phase, draft, expired)
    if not reason:
        return task
    _refuse(task, draft)
    source = worker_of(task.source)
    if reason == ENDED:
        # Where is not decided here: its worker's next life, or whoever has room.
        said = f"Task {task.task} starts anew, without any state that it had: the process of worker {source} has ended."
    else:
        said = f"Task {task.task} stays in worker {source}: {reason.rstrip('.')}."
    draft.says.append(Say("task-move-rolled-back", task.task, said))
    return replace(task, outcome=Outcome.ROLLED_BACK, reason=reason, final=final)


def _refuse(task: TaskMove, draft: _Draft) -> None:
    """Neither side may be farther than was read: a new side may restore what is in the stores before `saved` is in the marks."""
    draft.write(task.source, draft.marks[task.source].marks.bar(task.task))
    draft.write(task.target, draft.marks[task.target].marks.revoke(task.task, task.attempt))


def _why_back(task: TaskMove, phase: Phase, draft: _Draft, expired: Collection[Timer]) -> tuple[str, bool]:
    """Why a task that is neither saved nor restored has to go back, or "", and whether it is so at any other time as well."""
    if task.source not in draft.hosts:
        return ENDED, False
    if draft.record.abort:
        return draft.record.abort, False
    if task.target not in draft.hosts:
        return f"worker {worker_of(task.target)}, where it was to go, has ended", False
    failed = draft.marks[task.source].marks.failed.get(task.task)
    if failed is not None and failed.attempt == 0:
        return failed.reason, failed.final
    failed = _failed(task, draft.marks[task.target].marks)
    if failed is not None:
        return failed.reason, False
    late = phase is Phase.PREPARING and (PREPARE, task.batch) in expired
    if late and (wanted := lacking(task, draft.marks)):
        return f"it was not ready in time: it still waited for {wanted}", False
    if phase is Phase.PAUSED and (PAUSE, task.batch) in expired:
        return f"it was not saved in time: it still waited for {saving(task)}", False
    return "", False


def _forward(task: TaskMove, saved: SavedMark, draft: _Draft, expired: Collection[Timer]) -> TaskMove:
    """A saved task: leave it, or find another new side."""
    marks = draft.marks[task.target].marks
    failed = _failed(task, marks)
    # Its old side has it until the outcome, and needs no store for it: all that it costs is that the task has not moved.
    back = draft.hosts.get(task.source) if task.target != task.source else None
    if failed is not None and failed.gone and back is None:
        return _lost(task, failed.reason, draft)
    reason = ""
    if task.target not in draft.hosts:
        reason = f"worker {worker_of(task.target)} has ended"
    elif failed is not None:
        reason = failed.reason
    late = restore_timer(task) in expired
    if not (reason or late):
        return task
    reason = reason or "it was not restored in time"
    if draft.record.forced and task.source not in draft.hosts and task.attempt >= AT_ONCE:
        # It may be restoring it still.
        draft.write(task.target, marks.revoke(task.task, task.attempt))
        return _lost(task, f"given up after {task.attempt} attempts to restore it: {reason}", draft)
    rested = back is not None or task.attempt < AT_ONCE or again_timer(task) in expired
    if not (rested or late):
        return task
    dead = _dead(task, draft)
    # A process that has ended may have had to for any reason: of two it may be what they restored. So it is for sure of another one of
    # its node, which may be about to go as a whole.
    first = dead == [task.target]
    host = back if back is not None and not first else _another(task, saved, draft)
    if host is None:
        return task
    if back is not None and host.node == task.target_node and host.worker != worker_of(task.target):
        host = back
    takes_back = host.incarnation == task.source
    draft.write(task.target, marks.revoke(task.task, task.attempt))
    if host.incarnation not in draft.marks:
        draft.write(host.incarnation, Marks(host.incarnation))
    draft.load[host.incarnation] += 1
    draft.says.append(
        Say(
            "task-move-forward",
            task.task,
            f"Task {task.task} goes on in worker {host.worker}, which still has it: {reason.rstrip('.')}."
            if takes_back
            else f"Task {task.task} is restored in worker {host.worker} instead: {reason.rstrip('.')}.",
        )
    )
    return replace(
        task,
        target=host.incarnation,
        target_node=host.node,
        attempt=task.attempt + 1,
        reason=reason,
        final=takes_back and len({node_of(worker_of(i)) for i in dead}) > 1,
        meant=task.meant or worker_of(task.target),
        stores=tuple(sorted({*task.stores, task.target_node, *saved.nodes})),
    )


def _lost(task: TaskMove, reason: str, draft: _Draft) -> TaskMove:
    """It starts anew where it was to go."""
    draft.places.append((task.task, worker_of(task.target)))
    said = f"The state of task {task.task} is lost: {reason.rstrip('.')}."
    draft.says.append(Say("state-lost", task.task, said))
    return replace(task, outcome=Outcome.LOST, reason=reason[:REASON])


def _dead(task: TaskMove, draft: _Draft) -> list[Incarnation]:
    """The new sides, this one included, of which the process has ended."""
    tried = [i for i, m in draft.marks.items() if task.task in m.marks.revoked or i == task.target]
    return [i for i in tried if i not in draft.hosts]


def _failed(task: TaskMove, marks: Marks) -> FailedMark | None:
    """That the new side has said that it cannot, by this attempt."""
    failed = marks.failed.get(task.task)
    return failed if failed is not None and failed.attempt == task.attempt else None


def _another(task: TaskMove, saved: SavedMark, draft: _Draft) -> Host | None:
    """Where to restore it: in the next life of the same worker, else on a node that has the state, else anywhere. A worker that could not
    comes after all others, and of several the one that has tried it last: what is wrong there may be so for good."""
    others = [h for h in draft.hosts.values() if h.incarnation != task.target]
    if not others:
        # The only one that lives: it gets another try.
        others = [h for h in draft.hosts.values() if h.incarnation == task.target]
    return min(
        others,
        key=lambda h: (
            _tried(task, h.worker, draft),
            h.worker != worker_of(task.target),
            h.node not in saved.nodes,
            draft.load[h.incarnation],
            h.incarnation,
        ),
        default=None,
    )


def _tried(task: TaskMove, worker: WorkerId, draft: _Draft) -> int:
    """The last attempt that a worker was given up with; 0: none, or its process has ended within one, once."""
    lives = [m.marks for i, m in draft.marks.items() if worker_of(i) == worker]
    failed = [f.attempt for m in lives if (f := m.failed.get(task.task)) is not None]
    given_up = [attempt for m in lives if (attempt := m.revoked.get(task.task)) is not None]
    return max(given_up, default=0) if failed or len(given_up) > 1 else 0


def _paused(record: MoveRecord, marks: Mapping[Incarnation, Marked], stages: Stages) -> int:
    """How many batches may be paused: all that have been told to get ready, when they are."""
    if _standing_still(record, stages):
        return record.paused
    ready = max(1, record.ready)
    waits = any(
        not (t.outcome or is_ready(t, marks)) for t in record.tasks if record.paused <= t.batch < ready
    )
    return record.paused if waits else ready


def _readying(record: MoveRecord, marks: Mapping[Incarnation, Marked], stages: Stages) -> int:
    """How many batches may get ready: the next one when those before it have had their turn, and more with it unless states are large."""
    if _standing_still(record, stages):
        return record.ready
    batches = max(1, _together(record, marks) * record.batches // len(record.tasks))
    following = min(record.batches, record.paused + batches)
    return following if following > max(1, record.ready) else record.ready


def _together(record: MoveRecord, marks: Mapping[Incarnation, Marked]) -> int:
    """How many tasks may get ready together. Large states, and those that are not known yet, get ready by themselves: they are copied again
    and again until the pause."""
    sources = [marks[life].marks for life in {t.source for t in record.tasks if not t.outcome}]
    small = any(m.asked for m in sources) and not any(m.ahead for m in sources)
    return record.soon or (SOON if small else 0)


def _timers(
    record: MoveRecord,
    marks: Mapping[Incarnation, Marked],
    stages: Stages,
    living: Collection[Incarnation],
    turn: int,
) -> tuple[Timer, ...]:
    result: set[Timer] = set()
    phases = set()
    for task in record.tasks:
        if task.target not in marks or task.outcome:
            continue
        phase, saved = stages[task.task]
        if saved is None and phase is not Phase.RESTORED:
            phase = told(task, record, turn)  # it may have been told something else just now
        phases.add(phase)
        bound = _bound(task, phase)
        if bound is not None:
            result.add(bound)
        if (
            phase is Phase.SAVED
            and task.attempt >= AT_ONCE
            and (task.target not in living or _failed(task, marks[task.target].marks) is not None)
        ):
            result.add(again_timer(task))
    if phases == {Phase.RESTORED}:
        result.add((SETTLE, record.paused))
    return tuple(sorted(result))


def _bound(task: TaskMove, phase: Phase) -> Timer | None:
    """What bounds how long a task is in that phase; None: nothing does."""
    if phase is Phase.PREPARING:
        return PREPARE, task.batch
    if phase is Phase.PAUSED:
        return PAUSE, task.batch
    return restore_timer(task) if phase is Phase.SAVED else None


def _standing_still(record: MoveRecord, stages: Stages) -> bool:
    return any(
        t.batch < record.paused and not t.outcome and stages[t.task][0] is not Phase.RESTORED
        for t in record.tasks
    )
