"""One move as the log of moves keeps it: where each of its tasks stands, by what coordination shows, and what workers have told of it."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, field

from elastic.migration.plan import Wiring
from elastic.migration.record import STANDING_STILL, MoveRecord, Phase, TaskMove, differences, stage_of
from elastic.model.ids import ComponentId, Epoch, TopologyName, worker_of
from elastic.model.views import MoveView, TaskMoveView
from elastic.nimbus.moves import move_waits
from elastic.nimbus.observing.facts import MoveFacts, TopologyFacts

_PHASES = {
    Phase.WAITING: "waiting",
    Phase.PREPARING: "preparing",
    Phase.PAUSED: "paused",
    Phase.SAVED: "saved",
    Phase.RESTORED: "restored",
    Phase.COMMITTED: "committed",
    Phase.ROLLED_BACK: "rolled back",
    Phase.LOST: "lost",
}
_STOOD = (*STANDING_STILL, Phase.RESTORED)


@dataclass
class LoggedTask:
    """What is known of a task's part.

    Attributes:
        stood: It was paused. That its batch counts as paused does not say so: it may have gone back before.
        heard: Workers with tasks behind it that have said for how long nothing came, or that there is nothing to say.
    """

    move: TaskMove
    phase: str
    stood: bool
    times: dict[str, float] = field(default_factory=dict)
    size: int = 0
    pause: float = 0.0
    gap: float = 0.0
    heard: set[str] = field(default_factory=set)


class Behind:
    """Who is behind the tasks of a topology: for one look."""

    def __init__(self, t: TopologyFacts) -> None:
        self.wiring = Wiring.of(t.spec)
        self._places = t.assignment.place_of() if t.assignment is not None else {}
        self._found: dict[tuple[Epoch, str], set[str]] = {}  # tasks of a component send to the same ones

    def workers(self, number: int, move: LoggedMove) -> set[str]:
        """The workers with tasks that it sent to before the move: with those that have moved along nothing could be measured."""
        key = (move.record.epoch, move.tasks[number].move.component)
        found = self._found.get(key)
        if found is None:
            targets = {t for t in self.wiring.targets_of(number) if not move.has_moved(t)}
            found = {str(w) for t, w in self._places.items() if t in targets}
            self._found[key] = found
        return found


@dataclass
class LoggedMove:
    """A move. Under the lock of the log.

    Attributes:
        told: Its end has been.
        changed: The log's number of its last change.
    """

    record: MoveRecord
    began: float
    tasks: dict[int, LoggedTask]
    ended: float = 0.0
    told: bool = False
    seen: tuple[MoveFacts, TopologyFacts] | None = None  # as coordination showed it last
    said: tuple[str, ...] | None = None
    standing: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    """Worker, and what it says is waited for there -> by which tasks."""
    changed: int = 0

    def waits(self) -> tuple[str, ...]:
        """What it waits for, for people, put together when somebody asks: what workers say of their own tasks first, which says more."""
        if self.said is None:
            self.said = move_waits.waits(*self.seen, self.prepared()) if self.seen is not None else ()
        said = (
            f"{move_waits.named(tasks)} in worker {w} for {what}"
            for (w, what), tasks in self.standing.items()
        )
        return (*said, *self.said)

    def prepared(self) -> Set[int]:
        """Tasks whose new side has told that it is prepared. Marks say so later: those of several tasks are written together."""
        return {n for n, task in self.tasks.items() if "prepared" in task.times}

    def has_moved(self, task: int) -> bool:
        """Whether it has moved the task."""
        return task in self.tasks and self.tasks[task].phase == _PHASES[Phase.COMMITTED]

    def goes_on(self, over: Collection[int], workers: Collection[str] | None = None) -> None:
        """What was said of these tasks is over; with `workers`, what those have said."""
        left = {
            (worker, what): tuple(t for t in tasks if t not in over)
            if workers is None or worker in workers
            else tasks
            for (worker, what), tasks in self.standing.items()
        }
        self.standing = {said: tasks for said, tasks in left.items() if tasks}

    def update(self, found: MoveFacts, t: TopologyFacts) -> bool:
        """Take in how far it is; returns whether that is news."""
        news = self.record != found.record
        self.record = found.record
        seen = self.seen[0] if self.seen is not None else None
        changed = set(differences(seen.read, found.read)) if seen is not None else None
        for task in found.record.tasks:
            if changed is not None and task.task not in changed:
                continue
            phase, _ = stage_of(task, found.record, found.marks, found.turn)
            marked = found.marks.get(task.source)
            saved = marked.marks.saved.get(task.task) if marked is not None else None
            known, said = self.tasks.get(task.task), _said(task, phase, t)
            if known is None:
                # Of what has ended before this leader looked nobody knows.
                stood = bool(task.outcome) and task.batch < found.record.paused
                known = self.tasks[task.task] = LoggedTask(task, said, stood)
            known.stood |= phase in _STOOD
            size = saved.size if saved is not None else known.size
            if known.phase != said:
                self.goes_on({task.task})
            news |= (known.phase, known.size) != (said, size)
            known.move, known.phase, known.size = task, said, size
        before, self.seen = self.seen, (found, t)
        if before is not None:
            # Nobody would say that it is over.
            ended = {w for w, i in before[1].workers.items() if w not in t.workers or t.workers[w] != i}
            self.goes_on(self.tasks.keys(), ended)
        if news or before is None or before[0].marks != found.marks or before[1].workers != t.workers:
            self.said = None
            return True
        return False

    def is_complete(self, behind: Behind) -> bool:
        """Whether everything has been said that can be: both sides of what has moved, those behind it, and emitters of all that was
        paused, are through. Of what has come back there is no more to say than of what was rolled back."""
        return all(
            (
                x.phase != "committed"
                or x.move.came_back
                or ({"saved", "begun"} <= x.times.keys() and behind.workers(n, self) <= x.heard)
            )
            and (
                "resumed" in x.times
                or not behind.wiring.emitters_of(n)
                or not (x.phase == "committed" or x.stood)
            )
            for n, x in self.tasks.items()
        )

    def view(self, name: TopologyName) -> MoveView:
        """For people and programs.

        Args:
            name: Its topology's.
        """
        record = self.record
        if self.told:
            state = "ended"
        elif record.settled or self.ended:
            state = "closing"
        else:
            state = "aborting" if record.abort else "running"
        return MoveView(
            name,
            record.epoch,
            record.why,
            state,
            self.began,
            self.ended if self.told else 0.0,
            tuple(_task_view(n, x) for n, x in sorted(self.tasks.items())),
            self.waits(),
        )


def _said(task: TaskMove, phase: Phase, t: TopologyFacts) -> str:
    """What is said of where a task stands: nobody goes on with what goes back because its process has ended."""
    if task.starts_anew:
        return "lost" if t.spec.component_of(task.task).stateful else "started anew"
    return _PHASES[phase]


def _task_view(number: int, task: LoggedTask) -> TaskMoveView:
    move, reason = task.move, task.move.reason
    if move.starts_anew:
        without = ", without its state" if task.phase == "lost" else ""
        reason = f"its worker's process has ended; it starts anew{without}"
    return TaskMoveView(
        number,
        ComponentId(move.component),
        worker_of(move.source),
        worker_of(move.target),
        task.phase,
        move.attempt,
        reason,
        task.size,
        dict(task.times),
        task.pause,
        task.gap,
    )
