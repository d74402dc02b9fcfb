"""How marks go through a task: how far those of its sources have come, and what it says itself to those after it.

A mark is aligned when every source has sent it: everything that stood before it on any link has been worked off then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from elastic.worker.executing.part import Part
from elastic.worker.shown import described, user_traceback
from elastic.worker.tuples.batch import Mark, MarkKind

if TYPE_CHECKING:
    from elastic.worker.executing.task import Task
    from elastic.worker.executing.wiring import TaskListener


class Levels:
    """How far each source is in something that is numbered upwards. Pure.

    Args:
        sources: (source, number).
    """

    def __init__(self, sources: Iterable[tuple[int, int]]) -> None:
        self.of = dict(sources)
        # How many of them have come how far: few numbers, many sources.
        self._levels = Counter(self.of.values())

    def raise_to(self, source: int, number: int) -> bool:
        """That source is so far. False: it is known to be, or it is none of these."""
        before = self.of.get(source)
        if before is None or number <= before:
            return False
        self.of[source] = number
        self._levels[number] += 1
        self._left(before)
        return True

    def end(self, source: int) -> None:
        """Nothing more comes from there: it counts as having passed everything."""
        before = self.of.pop(source, None)
        if before is not None:
            self._left(before)

    def _left(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]

    @property
    def least(self) -> int:
        """How far all of them are; 0 when there is none."""
        return min(self._levels, default=0)

    @property
    def most(self) -> int:
        """How far one of them is."""
        return max(self._levels, default=0)


class Marks:
    """The marks that one task has received. Pure.

    Args:
        sources: All tasks of all components that it subscribes to.
    """

    def __init__(self, sources: frozenset[int]) -> None:
        # Of those that have not ended.
        self._drains = Levels((s, 0) for s in sources)
        self._checkpoints: Levels | None = None  # None: none has come yet, as in most topologies

    def receive(self, mark: Mark) -> None:
        """Take note of a mark. A late or repeated one changes nothing, nor does one of somebody else's."""
        if mark.kind == MarkKind.END:
            self._drains.end(mark.source)
            if self._checkpoints is not None:
                self._checkpoints.end(mark.source)
        elif mark.kind == MarkKind.DRAIN:
            self._drains.raise_to(mark.source, mark.number)
        else:
            self._raise(((mark.source, mark.number),))

    def _raise(self, tickets: Iterable[tuple[int, int]]) -> None:
        for source, ticket in tickets:
            if self._checkpoints is None:
                self._checkpoints = Levels((s, 0) for s in self._drains.of)
            self._checkpoints.raise_to(source, ticket)

    @property
    def ended(self) -> bool:
        """Whether every source has emitted its last tuple."""
        return not self._drains.of

    @property
    def drained(self) -> int:
        """The newest drain that has come from every source; one that has ended counts as having passed them all."""
        return self._drains.least

    @property
    def open(self) -> tuple[tuple[int, int], ...]:
        """(source, newest drain that has come from it), of those that have not ended."""
        return tuple(self._drains.of.items())

    @open.setter
    def open(self, drains: Iterable[tuple[int, int]]) -> None:
        before = self.checkpoints
        self._drains, self._checkpoints = Levels(drains), None
        self._raise(before)

    @property
    def checkpoint(self) -> int:
        """The newest ticket of a checkpoint that has come from every source that has not ended."""
        return self._checkpoints.least if self._checkpoints is not None else 0

    @property
    def newest_checkpoint(self) -> int:
        """The newest that has come from any of these."""
        return self._checkpoints.most if self._checkpoints is not None else 0

    @property
    def checkpoints(self) -> tuple[tuple[int, int], ...]:
        """(source, newest ticket that has come from it), of those from which one has come."""
        return (
            tuple((s, n) for s, n in self._checkpoints.of.items() if n)
            if self._checkpoints is not None
            else ()
        )

    @checkpoints.setter
    def checkpoints(self, tickets: Iterable[tuple[int, int]]) -> None:
        self._raise(tickets)

    def ahead_of(self, ticket: int) -> list[int]:
        """The sources from which a newer one has come."""
        return [s for s, n in self.checkpoints if n > ticket]


class MarkDriver(Part):
    """Passes marks on for one task. On its executor's thread, if nothing else is said.

    Args:
        sources: As of `Marks`.

    Attributes:
        heard: Those that it has received.
        drained: The newest deactivation that it has passed on.
        checkpoint: The ticket of the newest checkpoint that it has passed on.
        finishing: It says its End, or has: some may have heard it.
        finished: It has said it, here or in an earlier process.
    """

    def __init__(self, task: Task, sources: frozenset[int], listener: TaskListener) -> None:
        super().__init__(task)
        self.heard = Marks(sources)
        self.drained = 0
        self.checkpoint = 0
        self.finishing = False
        self.finished = False
        self._listener = listener
        self._unsaid: set[int] = set()

    def receive(self, mark: Mark) -> None:
        """A mark was next in the queue: all that its source has sent before it has been worked off."""
        self._listener.on_consumed(mark, self._task)
        heard = self.heard
        heard.receive(mark)
        if heard.ended:
            self.end()
            return
        if heard.drained > self.drained:
            self.pass_drain(heard.drained)
        if heard.newest_checkpoint > self.checkpoint:
            self._align()

    def _align(self) -> None:
        """A checkpoint is on its way through: what those have sent that are past it waits until all are."""
        aligned = self.heard.checkpoint
        if aligned > self.checkpoint:
            self._pass_checkpoint(aligned)
        for source in self.heard.ahead_of(self.checkpoint):
            self._task.keep_apart(source)

    def _pass_checkpoint(self, ticket: int) -> None:
        """Everything before that checkpoint has been worked off here, and nothing after it: say so downstream, and have it saved."""
        task = self._task
        self.checkpoint = ticket
        task.outputs.mark(Mark(MarkKind.CHECKPOINT, task.id, ticket))
        self._listener.on_checkpoint(task, ticket)
        task.let_in()
        executor = task.executor
        if executor is not None:
            executor.abreast.passed(task)

    def look_for_checkpoint(self) -> None:
        """A checkpoint may be wanted that this task hears of from no source, as it is a spout, or has finished; or one was given up. From
        any thread.
        """
        wanted, given_up = self._listener.checkpoint_wanted()
        if given_up > self.checkpoint:
            self._task.between_slices(self._give_up_checkpoint)
        if wanted > self.checkpoint and (self._task.spout is not None or self.finished):
            self._task.between_slices(self._begin_checkpoint)

    def _begin_checkpoint(self) -> None:
        task, (ticket, _) = self._task, self._listener.checkpoint_wanted()
        # One that stands still may have been written down already: it looks again when it goes on.
        if ticket <= self.checkpoint or task.stopped or task.closed or task.failures.broken:
            return
        executor = task.executor
        if executor is not None:
            executor.hand_on(task, lambda: self._pass_checkpoint(ticket))

    def _give_up_checkpoint(self) -> None:
        """Nothing waits for it any more."""
        task, (_, ticket) = self._task, self._listener.checkpoint_wanted()
        if ticket <= self.checkpoint:
            return
        self.checkpoint = ticket
        task.let_in()
        for source in self.heard.ahead_of(ticket):
            task.keep_apart(source)
        if task.executor is not None:
            task.executor.abreast.passed(task)

    def late(self, ticket: int) -> None:
        """It has come to others that have passed that checkpoint."""
        self._listener.on_no_checkpoint(
            self._task, ticket, "it came to another thread while that was being taken"
        )

    def restored(self) -> None:
        """Levels were put in: what is to be kept apart, is."""
        for source in self.heard.ahead_of(self.checkpoint):
            self._task.keep_apart(source)

    def pass_drain(self, number: int) -> None:
        """Everything before deactivation `number` has been worked off here: say so downstream."""
        self.drained = number
        self._task.outputs.mark(Mark(MarkKind.DRAIN, self._task.id, number))
        self._listener.on_drained(self._task, number)

    def end(self) -> None:
        """All input has been worked off, or the spout is exhausted: finish, say End, be finished."""
        task = self._task
        if self.finished or task.failures.broken:
            return
        self.finishing = True
        try:
            task.component.finish()
        except Exception as e:
            task.failures.give_up(
                f"finish() of {str(task.spec.id)!r} (task {task.id}) raised {described(e)}", user_traceback(e)
            )
            return
        task.outputs.flush()
        task.outputs.mark(Mark(MarkKind.END, task.id))
        self.finished = True
        self._listener.on_finished(task)
        if task.executor is not None:
            task.executor.abreast.passed(task)
        self.look_for_checkpoint()

    def say_again(self, targets: Sequence[int]) -> None:
        """A new process runs these targets: repeat the marks that the old one had heard.

        A task that stands still says nothing: what it has sent may have been written down already. It does so when it goes on.
        """
        task = self._task
        with task.guard:  # whoever lets it go on takes what is noted before or after this, never in between
            if task.stopped:
                self._unsaid.update(targets)
                return
        if task.executor is not None and (self.finished or self.drained):
            kind, number = (MarkKind.END, 0) if self.finished else (MarkKind.DRAIN, self.drained)
            mark = Mark(kind, task.id, number)
            task.executor.hand_on(task, lambda: task.outputs.mark(mark, targets))

    def say_unsaid(self) -> None:
        """It goes on: have it say what it did not while it stood still. From any thread that holds the task's guard."""
        if self._unsaid:
            targets, self._unsaid = tuple(self._unsaid), set()
            self._task.between_slices(lambda: self.say_again(targets))
