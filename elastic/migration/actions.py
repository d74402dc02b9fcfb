"""What roles want done. A driver runs them in the order given; if one fails, what follows it does not happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elastic.migration.record import Marks, MoveRecord
from elastic.migration.snapshot import TaskLinks
from elastic.model.ids import Incarnation, NodeId, WorkerId

# ------------------------------------------------------------------ links


@dataclass(frozen=True, slots=True)
class Open:
    """Point the link to that worker life and say, in band, how far it has come.

    `epoch`: of the move because of which it opens only to put its fence; 0 otherwise.
    """

    source: int
    target: int
    where: Incarnation
    life: int
    position: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Send:
    """Put it on the link. There is room for it."""

    source: int
    target: int
    life: int
    first: int
    count: int
    item: Any


@dataclass(frozen=True, slots=True)
class SendFence:
    """Put the mark on the link: "up to `position`, move `epoch`; nothing more comes to you there". It never waits for room."""

    source: int
    target: int
    epoch: int
    life: int
    position: int


@dataclass(frozen=True, slots=True)
class AskRoom:
    """Items wait for this link: say `Room` as soon as it takes one (at once, if it does now)."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Block:
    """The output buffer of this link is full: the task must not emit."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Unblock:
    """It may emit again."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Accept:
    """Give it to the task: it is next in the order of its link."""

    source: int
    target: int
    count: int
    item: Any


@dataclass(frozen=True, slots=True)
class Drop:
    """It has been taken before, or comes from a life that has ended. Its room goes back to the sender."""

    source: int
    target: int
    count: int
    item: Any
    why: str


@dataclass(frozen=True, slots=True)
class NotHere:
    """The target has no receiver here yet: keep the event until it has."""

    target: int
    event: Any


@dataclass(frozen=True, slots=True)
class TellAgain:
    """The target has stayed here: the event, which was kept until that was known, is to be told when this answer has been carried out."""

    target: int
    event: Any


@dataclass(frozen=True, slots=True)
class TellRestored:
    """Say to another worker life, which emits to these tasks, that they are this process's by now: their marks have been accepted.

    `tasks`: each with its attempt.
    """

    where: Incarnation
    epoch: int
    tasks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """It will be that batch's turn to stand still: let the stream rest before that, for as long as what has stood still before it did.

    Without the rest emitters begin to hold for the next tasks while they are still at the end of what they have held for the last ones, and
    that is worked off beside a part of the component that stands still again: the latest tuples pay for all pauses before them.
    """

    epoch: int
    batch: int


@dataclass(frozen=True, slots=True)
class FenceReached:
    """Everything up to that fence has been taken."""

    source: int
    target: int
    epoch: int


# ------------------------------------------------------------------ mover, old side


@dataclass(frozen=True, slots=True)
class AskStore:
    """Ask the stores for room, and copy ahead what can be."""

    task: int
    epoch: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class NotePause:
    """Say that the task is paused: who emits to it holds. It runs on until it is to stop."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StopTask:
    """Stop the task between two tuples; it keeps receiving."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ConfirmOutput:
    """Say when everything that the task has sent was received."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Save:
    """Export state, unprocessed input, timers and open trees, and put them with `links` to all these nodes' stores."""

    task: int
    epoch: int
    nodes: tuple[NodeId, ...]
    links: TaskLinks


@dataclass(frozen=True, slots=True)
class ContinueTask:
    """Work off the input and go on, also if it was not stopped yet: nothing has happened. What was copied of it is given up."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ReleaseTask:
    """The task belongs to somebody else: drop the object, its input and its output."""

    task: int
    epoch: int


# ------------------------------------------------------------------ mover, new side


@dataclass(frozen=True, slots=True)
class PrepareTask:
    """Make the task: load its class, call `prepare`, dial its links. It does not run."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class FetchAhead:
    """Get what was copied ahead from the first of these nodes' stores that has it: `Fetch` then brings only what is missing."""

    task: int
    epoch: int
    attempt: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get the state, of so many bytes, from the first of these nodes' stores that has it whole.

    `heard`: no mark says so yet. What is there must say of itself that it is the whole of the stopped task; else `NewFailed`.
    """

    task: int
    epoch: int
    attempt: int
    nodes: tuple[NodeId, ...]
    size: int = 0
    heard: bool = False


@dataclass(frozen=True, slots=True)
class Install:
    """Put the state into the prepared task."""

    task: int
    epoch: int
    attempt: int
    links: TaskLinks
    payload: Any


@dataclass(frozen=True, slots=True)
class BeginTask:
    """The task is ours: work off its input, then run."""

    task: int
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TakeBack:
    """It is ours again: the old side is to go on with it. For the participant."""

    task: int
    epoch: int


@dataclass(frozen=True, slots=True)
class DiscardTask:
    """It is not to be ours after all."""

    task: int
    epoch: int
    attempt: int


# ------------------------------------------------------------------ marks


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark to be written, of one task; `what`: asked, ahead, saved, prepared, fetched, restored or failed."""

    epoch: int
    task: int
    what: str
    attempt: int = 0
    nodes: tuple[NodeId, ...] = ()
    size: int = 0
    reason: str = ""
    gone: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class WriteMarks:
    """Write this worker's marks over the version given; then say `MarksRead` with what is there, whatever became of it.

    Without a connection it is tried again when there is one: first by reading.
    """

    epoch: int
    marks: Marks
    version: int


# ------------------------------------------------------------------ notifier


@dataclass(frozen=True, slots=True)
class MarksChange:
    """Nimbus's word in a participant's marks. `version` is the one read; -1: make the node."""

    incarnation: Incarnation
    marks: Marks
    version: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction, with the leader's guard: the record over its version, marks over theirs, tasks to their workers.

    Then say `RecordWritten` or `RecordConflict`. Without a connection nothing is said: another Nimbus may go on.
    """

    record: MoveRecord
    version: int
    marks: tuple[MarksChange, ...] = ()
    places: tuple[tuple[int, WorkerId], ...] = ()


@dataclass(frozen=True, slots=True)
class CleanStores:
    """Delete what these nodes' stores hold of the move, and refuse what may still come; then say `StoresCleaned`."""

    epoch: int
    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class RemoveRecord:
    """Remove record and marks in one transaction; then say `RecordRemoved`."""

    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Say `TimerFired` with the same names after the time that the options give for this kind."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Say:
    """Tell people: an event of that kind about a task."""

    kind: str
    task: int
    message: str
