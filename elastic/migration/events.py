"""What can happen to a role. Values only: time and answers come in as events.

`source` and `target` are tasks, the ends of a link; `task` is the one that moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic.migration.record import Marked, MoveRecord
from elastic.migration.snapshot import TaskLinks
from elastic.migration.view import View
from elastic.model.ids import Incarnation, NodeId, WorkerId

# ------------------------------------------------------------------ emitter


@dataclass(frozen=True, slots=True)
class Emitted:
    """The task emitted `count` tuples to the target. An in-band mark counts as one."""

    source: int
    target: int
    item: Any
    count: int


@dataclass(frozen=True, slots=True)
class Room:
    """The way to the target takes at least one more item."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Pause:
    """The target moves; it is at `at` still."""

    source: int
    target: int
    epoch: int
    at: Incarnation


@dataclass(frozen=True, slots=True)
class Resume:
    """The target runs at `where`: restored, rolled back, or started anew."""

    source: int
    target: int
    where: Incarnation


@dataclass(frozen=True, slots=True)
class Detach:
    """Nobody runs the target at present."""

    source: int
    target: int


# ------------------------------------------------------------------ receiver


@dataclass(frozen=True, slots=True)
class Opened:
    """The source begins to send here: its next tuple has the position after `position`.

    `epoch`: of the move because of which it opens only to put its fence; 0 otherwise.
    """

    source: int
    target: int
    life: int
    position: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Tuples with the positions `first` to `first + count - 1` have come over the link."""

    source: int
    target: int
    life: int
    first: int
    count: int
    item: Any


@dataclass(frozen=True, slots=True)
class FenceArrived:
    """The source's word: up to `position`, then nothing more comes to this place, because of move `epoch`."""

    source: int
    target: int
    epoch: int
    life: int
    position: int


# ------------------------------------------------------------------ mover, old side


@dataclass(frozen=True, slots=True)
class PrepareOld:
    """The task's batch is next. `nodes`: whose stores are to get its state."""

    task: int
    epoch: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class StoreAsked:
    """The stores have room. `ahead`: a part of the state lies there, and more is being copied: to be fetched before the pause."""

    task: int
    epoch: int
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class PauseTask:
    """The move pauses the task. `emitters`: those whose fence must come. `at_once`: it is of no use that it runs on until then."""

    task: int
    epoch: int
    emitters: frozenset[int]
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task stands between two tuples."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Everything up to that emitter's fence of this move is here."""

    task: int
    epoch: int
    source: int


@dataclass(frozen=True, slots=True)
class EmitterGone:
    """No process runs that emitter: what has come from it is all there is."""

    task: int
    epoch: int
    source: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Whatever the task sent has been received, or its receiver's process is gone."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SaveDone:
    """These nodes' stores have confirmed all of it."""

    task: int
    epoch: int
    nodes: tuple[NodeId, ...]
    size: int


@dataclass(frozen=True, slots=True)
class OldFailed:
    """Something that the old side had to do could not be done. `final`: nor can it be at another time."""

    task: int
    epoch: int
    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class SaveAccepted:
    """The `saved` mark is in coordination; or the `restored` of the new side, which is as much and more."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The move is over for the task; `here`: this side has it."""

    task: int
    epoch: int
    here: bool


# ------------------------------------------------------------------ mover, new side


@dataclass(frozen=True, slots=True)
class PrepareNew:
    """The task is to run here."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What was saved is this process's again: it was accepted as the new side, which goes on with what the old side has."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StillHere:
    """The task is to run here again, and its old side has all of it."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """Class loaded, `prepare` called, links dialled."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class AheadSeen:
    """The old side has copied a part of the state ahead, to these nodes."""

    task: int
    epoch: int
    attempt: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class AheadFetched:
    """What was copied ahead is here, as far as it can be had."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SavedSeen:
    """The old side has saved so many bytes to these nodes."""

    task: int
    epoch: int
    attempt: int
    nodes: tuple[NodeId, ...]
    size: int = 0


@dataclass(frozen=True, slots=True)
class SaveHeard:
    """The old side's word on the way between the two workers: the stores have all of it, so many bytes. It may come late, twice, or
    never, and nothing follows from it but that the new side looks.

    `nodes`: whose stores; the participant puts in what the record says.
    """

    task: int
    epoch: int
    size: int = 0
    nodes: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """The state of the stopped task has come, whole. `payload` is the driver's."""

    task: int
    epoch: int
    attempt: int
    links: TaskLinks
    payload: Any


@dataclass(frozen=True, slots=True)
class Installed:
    """State, input, timers and open trees are in the new object."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class NewFailed:
    """Something that the new side had to do could not be done. `gone`: no store has the state."""

    task: int
    epoch: int
    attempt: int
    reason: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class RestoreAccepted:
    """The `restored` mark is in coordination."""

    task: int
    epoch: int
    attempt: int


# ------------------------------------------------------------------ participant (a worker process)


@dataclass(frozen=True, slots=True)
class ViewRead:
    """Coordination was read."""

    view: View


@dataclass(frozen=True, slots=True)
class RestoreHeard:
    """A new side's word, on the way between two workers: its `restored` marks of these tasks are in coordination. It may come late, twice,
    or never: who hears it knows a part of what it will read.

    `tasks`: each with its attempt.
    """

    epoch: int
    tasks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rested:
    """The stream has had its rest before that batch of a move."""

    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class MarksRead:
    """This worker's own marks in that move, as they are now: after a write of ours, a refused one, or one whose fate is unknown.

    `marked` is None when there is no such node any more.
    """

    epoch: int
    marked: Marked | None


@dataclass(frozen=True, slots=True)
class ReadyLate:
    """Some task has been getting ready here for long in that move: that others are is said without it. It may come at any time."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The engine starts a task here without what a move brings. `life` is greater than any life it had."""

    task: int
    life: int


@dataclass(frozen=True, slots=True)
class TaskGone:
    """The task does not run here any more, without a move having said so: another process has it, which had no state of it."""

    task: int


# ------------------------------------------------------------------ notifier (Nimbus)


@dataclass(frozen=True, slots=True)
class Host:
    """A living worker that could be a new side.

    Attributes:
        load: How many tasks it has.
    """

    worker: WorkerId
    incarnation: Incarnation
    node: NodeId
    load: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """Marks and living workers, read by a connected session."""

    marks: Mapping[Incarnation, Marked]
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class AbortAsked:
    """An operator wants the move to end: what is not saved goes back, and what nobody could restore is given up if that was asked for as
    well. The record says so already, and this is its version now."""

    record: MoveRecord
    version: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the notifier started has run out."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """The commit went through; the record has this version."""

    version: int


@dataclass(frozen=True, slots=True)
class RecordConflict:
    """The commit did not go through: something had changed. The record and its version, read anew."""

    record: MoveRecord
    version: int


@dataclass(frozen=True, slots=True)
class StoresCleaned:
    """No reachable store holds anything of the move; its node empties an unreachable one when the record has gone."""


@dataclass(frozen=True, slots=True)
class RecordRemoved:
    """Nothing of the move is left in coordination."""
