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


class Marks:
    """The marks that one task has received. Pure.

    Args:
        sources: All tasks of all components that it subscribes to.
    """

    def __init__(self, sources: frozenset[int]) -> None:
        self._drains = dict.fromkeys(sources, 0)  # of those that have not ended
        # How many of them have come how far: few numbers, many sources.
        self._levels = Counter(self._drains.values())

    def receive(self, mark: Mark) -> None:
        """Take note of a mark. A late or repeated one changes nothing, nor does one of somebody else's."""
        before = self._drains.get(mark.source)
        if before is None:
            return
        if mark.kind == MarkKind.END:
            del self._drains[mark.source]
        elif mark.number > before:
            self._drains[mark.source] = mark.number
            self._levels[mark.number] += 1
        else:
            return
        self._levels[before] -= 1
        if not self._levels[before]:
            del self._levels[before]

    @property
    def ended(self) -> bool:
        """Whether every source has emitted its last tuple."""
        return not self._drains

    @property
    def drained(self) -> int:
        """The newest drain that has come from every source; one that has ended counts as having passed them all."""
        return min(self._levels, default=0)

    @property
    def open(self) -> tuple[tuple[int, int], ...]:
        """(source, newest drain that has come from it), of those that have not ended."""
        return tuple(self._drains.items())

    @open.setter
    def open(self, drains: Iterable[tuple[int, int]]) -> None:
        self._drains = dict(drains)
        self._levels = Counter(self._drains.values())


class MarkDriver(Part):
    """Passes marks on for one task. On its executor's thread, if nothing else is said.

    Args:
        sources: As of `Marks`.

    Attributes:
        heard: Those that it has received.
        drained: The newest deactivation that it has passed on.
        finishing: It says its End, or has: some may have heard it.
        finished: It has said it, here or in an earlier process.
    """

    def __init__(self, task: Task, sources: frozenset[int], listener: TaskListener) -> None:
        super().__init__(task)
        self.heard = Marks(sources)
        self.drained = 0
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
        elif heard.drained > self.drained:
            self.pass_drain(heard.drained)

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
