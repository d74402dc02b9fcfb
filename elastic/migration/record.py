"""What lies in coordination while a move is under way: its record, and the marks of those who take part.

    /topologies/<name>/moves                      the number of the newest move (`latest`), which only grows
    /topologies/<name>/moves/<epoch>              MoveRecord: written by Nimbus alone
    /topologies/<name>/moves/<epoch>/<life>       Marks of one worker life: written by that worker, and by Nimbus only to refuse

Where a task stands is a function of these (`stage_of`), so nobody has to remember it. A worker writes its marks on condition of the
version it knows; Nimbus refuses a mark (a rollback, another new side) by writing the same node on condition of the version *it* read.
So one of the two comes first, and the other one learns of it: that is the point of no return. A rollback refuses `saved` of the old side
and `restored` of the new one, in one transaction: the new side need not wait for the former to write the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TypeVar

from elastic.model import codec
from elastic.model.ids import Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId

T = TypeVar("T")
REASON = 200
"""Characters of a reason at most: the reasons of all tasks of a move lie in its record, in marks and in the plan, which are written as one.
Each can come from user code, which may raise whatever it likes."""
BRIEF = "see the log of its worker"
"""Instead of a reason that there is no room for."""
AT_ONCE = 4
"""Attempts to restore that follow each other at once. After so many a state may be given up, if an operator wants that."""
ENDED = "its process has ended"
"""The reason of a task that goes back although nobody is there who could go on with it: it starts anew, without its state. Not longer than
`BRIEF`, so that it is kept where there is no room for reasons."""


class Outcome(StrEnum):
    """How a task's part of a move has ended."""

    OPEN = ""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    """It is where it was, and goes on there, unless it starts anew (`TaskMove.starts_anew`)."""
    LOST = "lost"
    """Every node that held the saved state is gone: the task starts anew at its new place, and says so."""


class Phase(IntEnum):
    """How far a task has come in its move; only grows."""

    NONE = 0
    """In no move."""
    WAITING = 1
    """In a later batch."""
    PREPARING = 2
    """Runs at its old place; both sides get ready."""
    PAUSED = 3
    SAVED = 4
    """The point of no return: nobody runs it, stores hold it."""
    RESTORED = 5
    """The new side owns it, whether or not `saved` is in the marks by now."""
    COMMITTED = 6
    ROLLED_BACK = 7
    LOST = 8


SETTLED = (Phase.COMMITTED, Phase.ROLLED_BACK, Phase.LOST)
"""Said in the record: final."""
STANDING_STILL = (Phase.PAUSED, Phase.SAVED)
"""It is to stand still, or does: who emits to it holds what is for it."""
_OF_OUTCOME = {
    Outcome.COMMITTED: Phase.COMMITTED,
    Outcome.ROLLED_BACK: Phase.ROLLED_BACK,
    Outcome.LOST: Phase.LOST,
}


def briefly(reason: str) -> str:
    """A reason that takes next to no room."""
    return reason if len(reason) <= len(BRIEF) else BRIEF


def state_key(topology: TopologyName, task: int) -> str:
    """The key of a task's state in the state stores; the epoch of a write is that of the move."""
    return f"{topology}/{task}"


NOWHERE = WorkerId("")


@dataclass(frozen=True, slots=True)
class TaskMove:
    """One task's part of a move.

    Attributes:
        source: The worker life that runs it when the move begins.
        target: The worker life that is to run it; another one after a new side has died.
        source_node, target_node: Whose stores get the state.
        stores: Further nodes in whose stores some of it may lie: where it was saved before another new side was chosen.
        batch: Paused together with the others of that number, from 0, when it is their turn (`turn_of`).
        attempt: Which new side this is, from 1.
        reason: Why it was rolled back, or why this is not the first attempt.
        final: It was rolled back, or has come back, for a reason that is one at any other time as well.
        meant: Where it was to go, once another new side than that has been chosen; "" before.
    """

    task: TaskId
    component: str
    source: Incarnation
    target: Incarnation
    source_node: NodeId
    target_node: NodeId
    batch: int = 0
    attempt: int = 1
    outcome: Outcome = Outcome.OPEN
    reason: str = ""
    stores: tuple[NodeId, ...] = ()
    final: bool = False
    meant: WorkerId = NOWHERE

    @property
    def came_back(self) -> bool:
        """Whether the process that it was to leave is the new side, too, as another one could not restore it."""
        return self.source == self.target

    @property
    def starts_anew(self) -> bool:
        """Whether it has gone back although nobody is there who could go on with it: it begins without its state, there or elsewhere."""
        return self.outcome is Outcome.ROLLED_BACK and self.reason == ENDED


@dataclass(frozen=True)
class MoveRecord:
    """One move. Written by Nimbus before it acts on what it says; a Nimbus that takes over needs nothing else.

    Attributes:
        epoch: Its number: greater than that of any move of the topology before.
        why: For people.
        paused: How many batches may pause; each one does when it is its turn.
        abort: Why it is to end early, or "".
        forced: Besides, states that were saved and that nobody could restore are to be given up.
        began: Seconds since 1970, by the clock of the Nimbus that began it; for people.
        ready: How many batches have been told to get ready; the first one always has.
        later: Tasks that are to move for the same reason, and wait for the end of this move: all together there would be no room for.
        soon: Tasks of which it is known that they may get ready together; 0: it is found out.
    """

    topology: TopologyName
    epoch: Epoch
    why: str
    tasks: tuple[TaskMove, ...]
    paused: int = 0
    abort: str = ""
    forced: bool = False
    began: float = 0.0
    ready: int = 0
    later: int = 0
    soon: int = 0

    @cached_property
    def under_way(self) -> tuple[tuple[TaskMove, ...], ...]:
        """The tasks that have no outcome, by batch."""
        batches: list[list[TaskMove]] = [[] for _ in range(self.batches)]
        for task in self.tasks:
            if not task.outcome:
                batches[task.batch].append(task)
        return tuple(map(tuple, batches))

    def of_batch(self, batch: int) -> tuple[TaskMove, ...]:
        """The tasks under way of that batch; none when there is no such batch."""
        return self.under_way[batch] if batch < self.batches else ()

    def first_batch(self, waits: Callable[[TaskMove], bool]) -> int:
        """The first batch with a task under way of which that is so; how many batches there are, when there is none."""
        return next((n for n, tasks in enumerate(self.under_way) if any(map(waits, tasks))), self.batches)

    @cached_property
    def batches(self) -> int:
        """How many."""
        return 1 + max((t.batch for t in self.tasks), default=-1)

    @property
    def settled(self) -> bool:
        """Whether every task has its outcome."""
        return all(t.outcome for t in self.tasks)

    @cached_property
    def participants(self) -> tuple[Incarnation, ...]:
        """The worker lives that write marks, sorted."""
        return tuple(sorted({i for t in self.tasks for i in (t.source, t.target)}))

    def ending(self, why: str, *, force: bool) -> MoveRecord:
        """As it is when its early end has been asked for; the very same when that has been before.

        Args:
            why: What is said of it if nobody has asked before.
            force: As `forced`.
        """
        if self.abort and (self.forced or not force):
            return self
        return replace(self, abort=self.abort or why, forced=self.forced or force)

    def brief(self) -> MoveRecord:
        """Without the reasons, where they take room."""
        return replace(self, tasks=tuple(replace(t, reason=briefly(t.reason)) for t in self.tasks))

    def nodes(self) -> tuple[NodeId, ...]:
        """The nodes in whose stores something of this move may lie, sorted."""
        return tuple(sorted({n for t in self.tasks for n in (t.source_node, t.target_node, *t.stores)}))


@dataclass(frozen=True, slots=True)
class SavedMark:
    """The old side's word: the state is in these nodes' stores.

    Attributes:
        size: Bytes.
    """

    nodes: tuple[NodeId, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class FailedMark:
    """A side's word: I can't.

    Attributes:
        attempt: Of the new side; 0: the old side says so.
        reason: In `REASON` characters at most, for people; the worker's log has all of it.
        gone: No store that could have the state has it.
        final: Nor can it at any other time, or to any other place.
    """

    attempt: int
    reason: str
    gone: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """What one worker life has reached in one move, for all of its tasks together.

    Attributes:
        asked: Old side: tasks for which the stores have room.
        ahead: Old side: those of them of which so much is copied ahead that it is fetched before the pause. Some of it is there.
        saved: Old side: barrier one.
        prepared: New side: attempt by task.
        fetched: New side: all that can be copied ahead has been and is here, or it cannot be had; attempt by task.
        restored: New side: barrier two; attempt by task.
        failed: By task, the last one.
        barred: Written by Nimbus: tasks that were rolled back; their `saved` is refused.
        revoked: Written by Nimbus: attempts up to this one are refused, by task: it was rolled back, or another new side was chosen.
        closed: Every outcome has been read, and this worker life has no role in the move any more.
    """

    incarnation: Incarnation
    asked: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()
    saved: Mapping[int, SavedMark] = field(default_factory=dict)
    prepared: Mapping[int, int] = field(default_factory=dict)
    fetched: Mapping[int, int] = field(default_factory=dict)
    restored: Mapping[int, int] = field(default_factory=dict)
    failed: Mapping[int, FailedMark] = field(default_factory=dict)
    barred: tuple[int, ...] = ()
    revoked: Mapping[int, int] = field(default_factory=dict)
    closed: bool = False

    def has_restored(self, task: int, attempt: int) -> bool:
        """Whether barrier two was reached by that attempt."""
        return self.restored.get(task) == attempt and self.revoked.get(task, 0) < attempt

    def bar(self, task: int) -> Marks:
        """With the save of that task refused."""
        return replace(self, barred=tuple(sorted({*self.barred, task})))

    def revoke(self, task: int, attempt: int) -> Marks:
        """With that attempt refused."""
        return replace(self, revoked={**self.revoked, task: attempt})

    def brief(self) -> Marks:
        """Without the reasons, where they take room."""
        return replace(self, failed={t: replace(f, reason=briefly(f.reason)) for t, f in self.failed.items()})


@dataclass(frozen=True, slots=True)
class Marked:
    """Marks, and the version they were read with."""

    marks: Marks
    version: int


@dataclass(frozen=True, slots=True)
class _Written:
    """`Marks` as JSON has them: names are text there."""

    incarnation: Incarnation
    asked: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()
    saved: Mapping[str, SavedMark] = field(default_factory=dict)
    prepared: Mapping[str, int] = field(default_factory=dict)
    fetched: Mapping[str, int] = field(default_factory=dict)
    restored: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, FailedMark] = field(default_factory=dict)
    barred: tuple[int, ...] = ()
    revoked: Mapping[str, int] = field(default_factory=dict)
    closed: bool = False


def encode_marks(marks: Marks) -> bytes:
    """Marks as they lie in coordination."""

    def text(values: Mapping[int, T]) -> dict[str, T]:
        return {str(k): v for k, v in values.items()}

    m = marks
    return codec.encode(
        _Written(
            m.incarnation,
            m.asked,
            m.ahead,
            text(m.saved),
            text(m.prepared),
            text(m.fetched),
            text(m.restored),
            text(m.failed),
            m.barred,
            text(m.revoked),
            m.closed,
        )
    )


def decode_marks(data: bytes) -> Marks:
    """The marks that `encode_marks` was given."""

    def numbers(values: Mapping[str, T]) -> dict[int, T]:
        return {int(k): v for k, v in values.items()}

    w = codec.decode(data, _Written)
    return Marks(
        w.incarnation,
        w.asked,
        w.ahead,
        numbers(w.saved),
        numbers(w.prepared),
        numbers(w.fetched),
        numbers(w.restored),
        numbers(w.failed),
        w.barred,
        numbers(w.revoked),
        w.closed,
    )


Stage = tuple[Phase, SavedMark | None]
"""Where a task stands, and what was saved."""


def turn_of(record: MoveRecord, marks: Mapping[Incarnation, Marked]) -> int:
    """The batch whose turn it is to stand still, if it may: the first one of which not every task is restored, or has its outcome.

    Those who take part find out by themselves, and from each other's words. So Nimbus says once for many batches that they may, and none of
    them waits for it.

    Returns:
        How many batches there are, when all have had it.
    """
    return record.first_batch(lambda task: not _is_restored(task, marks))


def _is_restored(task: TaskMove, marks: Mapping[Incarnation, Marked]) -> bool:
    target = marks.get(task.target)
    return target is not None and target.marks.has_restored(task.task, task.attempt)


def stage_of(task: TaskMove, record: MoveRecord, marks: Mapping[Incarnation, Marked], turn: int) -> Stage:
    """Where a task stands, and what was saved. The one place that says so.

    Args:
        turn: As `turn_of` says of that record and those marks.
    """
    if task.outcome:
        return _OF_OUTCOME[task.outcome], None
    source = marks.get(task.source)
    saved = source.marks.saved.get(task.task) if source is not None else None
    if _is_restored(task, marks):
        return Phase.RESTORED, saved
    if saved is not None:
        return Phase.SAVED, saved
    return told(task, record, turn), None


def told(task: TaskMove, record: MoveRecord, turn: int) -> Phase:
    """How far a task has been told to come that is neither saved nor restored."""
    if task.batch < record.paused and task.batch <= turn:
        return Phase.PAUSED
    return Phase.PREPARING if task.batch < max(record.ready, 1) else Phase.WAITING


Read = tuple[MoveRecord, Mapping[Incarnation, Marked], int]
"""What was read of a move, and whose turn it is by that."""


class ReadMove:
    """What all have in common that hold what was read of a move."""

    record: MoveRecord
    marks: Mapping[Incarnation, Marked]

    @cached_property
    def turn(self) -> int:
        """The batch whose turn it is."""
        return turn_of(self.record, self.marks)

    @property
    def read(self) -> Read:
        """For `differences`."""
        return self.record, self.marks, self.turn


def differences(before: Read, now: Read) -> Iterator[int]:
    """Tasks of a move whose stage may be another than it was, some of them more than once. All, where the record was read anew."""
    (record_before, marks_before, turn_before), (record, marks, turn) = before, now
    if record is not record_before or marks.keys() != marks_before.keys():
        yield from (t.task for t in record.tasks)
        return
    for life, marked in marks.items():
        was, says = marks_before[life].marks, marked.marks
        if was is says:
            continue
        said: tuple[tuple[Mapping[int, object], Mapping[int, object]], ...] = (
            (was.saved, says.saved), (was.restored, says.restored), (was.revoked, says.revoked)
        )  # fmt: skip
        for old, new in said:
            yield from (t for t in old.keys() | new.keys() if old.get(t) != new.get(t))
    first, last = sorted((turn_before, turn))
    yield from (t.task for batch in record.under_way[first + 1 : last + 1] for t in batch)
