"""A plan: the assignment that moves are bringing about. While they are under way, what is written is a function of it and of the present
places.

A plan lies in coordination for as long as something of it is missing, so that a Nimbus that takes over goes on with it. Tasks come to
their planned places by moves alone; executors are grouped as planned as soon as all their tasks have come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from elastic.migration.record import REASON, MoveRecord, Outcome, briefly
from elastic.model import whys
from elastic.model.assignment import Assignment, ExecutorId, Lost, WorkerSlot
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    TaskId,
    TopologyName,
    WorkerId,
    worker_of,
)
from elastic.scheduler.round_robin import natural


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that could not be moved.

    Attributes:
        times: How often in this plan.
        at: The last time, seconds since 1970.
        reason: Why, the last time.
        since: When it failed first for the sake of a store that was being started again, which does not count for a while; 0.0
            when it has not.
    """

    task: TaskId
    times: int
    at: float
    reason: str
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Left:
    """A task that was taken without a move from a worker that lives, and is nowhere now: nobody else may run it before that worker has
    let go of it, or has ended.

    Attributes:
        epoch: Of the assignment that took it.
    """

    task: TaskId
    worker: WorkerId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Ask:
    """What asked for it that tasks go elsewhere.

    Attributes:
        why: For people.
        asked: When, seconds since 1970: from then on it is waited for the workers and stores that they need.
        share: Of a component's tasks that may be paused at once, 0 to 1; 0.0: Nimbus's default.
        tasks: Which of them have not come yet, ascending.
    """

    why: str
    asked: float
    share: float
    tasks: tuple[TaskId, ...] = ()

    def names(self, task: int) -> bool:
        """Whether the task is one of them."""
        at = bisect_left(self.tasks, task)
        return at < len(self.tasks) and self.tasks[at] == task


@dataclass(frozen=True, slots=True)
class Plan:
    """See the module.

    Attributes:
        assignment: Who shall run what. Its epoch means nothing.
        why: What asked for it, for people.
        asked: When that was, seconds since 1970.
        requested: Whether somebody asked for it, and not only nodes came or went.
        share: Of a component's tasks that may be paused at once, 0 to 1; 0.0: Nimbus's default. As the newest request has it.
        failures: Of tasks that have not come to their place, ascending.
        halted: Why no further move begins because of it, or "". It is replaced by the next request.
        awaited: Nodes whose state stores are waited for.
        left: Tasks that workers have to let go of before they are placed anew, ascending. The plan stays for as long as there are some.
        earlier: What else asked for tasks that have not come yet; the oldest first. For all others it is `why`.
    """

    assignment: Assignment
    why: str
    asked: float
    requested: bool = False
    share: float = 0.0
    failures: tuple[Failure, ...] = ()
    halted: str = ""
    awaited: tuple[NodeId, ...] = ()
    left: tuple[Left, ...] = ()
    earlier: tuple[Ask, ...] = ()

    @property
    def newest(self) -> Ask:
        """What asked for all tasks that `earlier` does not name."""
        return Ask(self.why, self.asked, self.share)

    def asks(self) -> dict[TaskId, Ask]:
        """What asked for tasks, where it was not the newest."""
        return {n: ask for ask in self.earlier for n in ask.tasks}

    def asked_at(self, task: int) -> float:
        """When it was asked for that a task moves, seconds since 1970."""
        return next((ask.asked for ask in self.earlier if ask.names(task)), self.asked)

    def why_of(self, tasks: Collection[TaskId]) -> str:
        """What has asked for it that these tasks move, for people: each reason once, the oldest first."""
        others = self.asks()
        named = frozenset(tasks)
        found = [ask.why for ask in self.earlier if not named.isdisjoint(ask.tasks)]
        if not found or not named <= others.keys():
            found.append(self.why)
        return whys.several(found, REASON)

    def asked_before(self, tasks: Collection[TaskId], anew: float | None = None) -> tuple[Ask, ...]:
        """What asked for these tasks, as `earlier` of a plan that something else asks for.

        Args:
            anew: What is waited for is waited for from then on; None: from when it was asked for.
        """
        by: dict[Ask, list[TaskId]] = {replace(a, tasks=()): [] for a in (*self.earlier, self.newest)}
        own = self.asks()
        for n in sorted(tasks):
            by[replace(own.get(n, self.newest), tasks=())].append(n)
        return tuple(
            replace(a, asked=a.asked if anew is None else anew, tasks=tuple(of)) for a, of in by.items() if of
        )

    def asked_again(self, tasks: Collection[TaskId], now: float) -> Plan:
        """What these tasks need is waited for from now on, and what others need from when it was."""
        others = frozenset(n for ask in self.earlier for n in ask.tasks) - frozenset(tasks)
        return replace(self, earlier=(*self.asked_before(others), *self.asked_before(tasks, now)))

    def failure(self, task: int) -> Failure | None:
        """How the task has failed so far, if it has."""
        return next((f for f in self.failures if f.task == task), None)

    def without(self, tasks: Iterable[int]) -> Plan:
        """With the failures of these tasks forgotten."""
        gone = set(tasks)
        left = tuple(f for f in self.failures if f.task not in gone)
        return self if left == self.failures else replace(self, failures=left)

    def with_failure(self, task: int, at: float, reason: str, times: int | None = None) -> Plan:
        """With one more failure of a task.

        Args:
            times: How many it has then; None: one more than before.
        """
        known = self.failure(task)
        if times is None:
            times = 1 + (known.times if known is not None else 0)
        since = known.since if known is not None else 0.0
        return self._with(Failure(TaskId(task), times, at, reason, since))

    def with_trouble(self, task: int, at: float, reason: str) -> Plan:
        """With a failure of a task that does not count: a store that it needs was away."""
        known = self.failure(task)
        times, since = (known.times, known.since or at) if known is not None else (0, at)
        return self._with(Failure(TaskId(task), times, at, reason, since))

    def brief(self) -> Plan:
        """Without the reasons of failures, where they take room."""
        return replace(self, failures=tuple(replace(f, reason=briefly(f.reason)) for f in self.failures))

    def _with(self, failure: Failure) -> Plan:
        failures = {f.task: f for f in self.failures} | {failure.task: failure}
        return replace(self, failures=tuple(failures[t] for t in sorted(failures)))


def same(a: Assignment, b: Assignment) -> bool:
    """Whether both have the same executors in the same workers."""
    return set(a.executors) == set(b.executors) and set(a.unassigned) == set(b.unassigned)


class _Group(NamedTuple):
    """Tasks that share an executor, as far as they are neighbours. `worker`: "" while they wait for a slot."""

    worker: WorkerId
    executor: ExecutorId
    planned: bool


def interim(
    present: Assignment,
    desired: Assignment,
    places: Mapping[TaskId, WorkerId],
    held: Mapping[WorkerId, WorkerSlot],
    *,
    halted: bool = False,
) -> Assignment:
    """What is to be written while tasks are on their way.

    In each worker, the tasks that are where they shall be are in their desired executors, restricted to those that have come; the others
    stay in (ranges of) the executors that they are in at present. When all tasks are at their desired places the executors
    are the desired ones.

    Args:
        present: What is written now.
        desired: Who shall run what.
        places: Each task's worker; a task that is not in it waits for a slot.
        held: Workers that must stay although they may have no task, with their slots.
        halted: Nothing more comes to where it shall be until somebody asks: workers that have no task give their slots to others.

    Returns:
        `present` itself when nothing changes, otherwise an assignment whose epoch is one larger.
    """
    planned = {TaskId(t): (e, w) for e, w in desired.executors for t in e.tasks()}
    waiting = {TaskId(t): e for e in desired.unassigned for t in e.tasks()}
    now = {TaskId(t): e for e in (*dict(present.executors), *present.unassigned) for t in e.tasks()}
    groups: dict[_Group, list[TaskId]] = defaultdict(list)
    for task in sorted({*planned, *waiting}):
        place = places.get(task, WorkerId(""))
        executor, worker = planned.get(task) or (waiting[task], WorkerId(""))
        if worker != place and task in now:
            groups[_Group(place, now[task], False)].append(task)
        else:
            groups[_Group(place, executor, True)].append(task)
    placed: list[tuple[ExecutorId, WorkerId]] = []
    unassigned: list[ExecutorId] = []
    for (worker, executor, _), tasks in groups.items():
        for first, last in _ranges(tasks):
            one = ExecutorId(executor.component, first, last)
            if worker:
                placed.append((one, worker))
            else:
                unassigned.append(one)
    slots = {**held, **present.workers, **desired.workers}
    named = {*held, *(w for _, w in placed)}
    if not halted:
        named.update(w for _, w in desired.executors)
    result = Assignment(
        present.topology,
        Epoch(present.epoch + 1),
        {w: slots[w] for w in sorted(named, key=natural)},
        tuple(sorted(placed, key=lambda item: item[0].first)),
        tuple(sorted(unassigned, key=lambda e: e.first)),
        present.lost,
    )
    unchanged = same(present, result) and dict(present.workers) == dict(result.workers)
    return present if unchanged else result


def _ranges(tasks: Iterable[TaskId]) -> list[tuple[TaskId, TaskId]]:
    """Ascending task numbers as ranges, both ends included."""
    result: list[tuple[TaskId, TaskId]] = []
    for task in tasks:
        if result and result[-1][1] == task - 1:
            result[-1] = (result[-1][0], task)
        else:
            result.append((task, task))
    return result


def relocated(
    base: Assignment,
    tasks: Iterable[TaskId],
    worker: WorkerId,
    slot: WorkerSlot,
    wanted: Mapping[ComponentId, int],
) -> Assignment:
    """An assignment with some tasks in another worker. Executors of which only a part goes are divided, and what comes joins the executor
    beside it there, while there are more of its component than were asked for: who moves a hundred tasks one by one is not to end with a
    hundred threads.

    Args:
        wanted: How many executors were asked for, by component.
    """
    going = set(tasks)
    executors: list[tuple[ExecutorId, WorkerId]] = []
    unassigned: list[ExecutorId] = []
    for executor, where in (*base.executors, *((e, None) for e in base.unassigned)):
        parts = (
            (worker, [TaskId(t) for t in executor.tasks() if t in going]),
            (where, [TaskId(t) for t in executor.tasks() if t not in going]),
        )
        for at, members in parts:
            for first, last in _ranges(members):
                one = ExecutorId(executor.component, first, last)
                if at is None:
                    unassigned.append(one)
                else:
                    executors.append((one, at))
    count = Counter(e.component for e in (*(e for e, _ in executors), *unassigned))
    executors = _joined(executors, worker, going, {c: n - wanted[c] for c, n in count.items()})
    slots = {**base.workers, worker: slot}
    named = {w for _, w in executors}
    return Assignment(
        base.topology,
        Epoch(base.epoch + 1),
        {w: slots[w] for w in sorted(named, key=natural)},
        tuple(sorted(executors, key=lambda item: item[0].first)),
        tuple(sorted(unassigned, key=lambda e: e.first)),
    )


def _joined(
    executors: Iterable[tuple[ExecutorId, WorkerId]],
    worker: WorkerId,
    going: Set[TaskId],
    more: Mapping[ComponentId, int],
) -> list[tuple[ExecutorId, WorkerId]]:
    """With executors of a worker joined, of which one or both have tasks that have come there: of each component as many as `more` says."""
    result: list[tuple[ExecutorId, WorkerId]] = []
    left = dict(more)
    for one, where in sorted(executors, key=lambda item: item[0].first):
        before, there = result[-1] if result else (None, None)
        if (
            before is not None
            and where == there == worker
            and before.component == one.component
            and before.last + 1 == one.first
            and left[one.component] > 0
            and not going.isdisjoint((before.last, one.first))
        ):
            result[-1] = (ExecutorId(one.component, before.first, one.last), worker)
            left[one.component] -= 1
        else:
            result.append((one, where))
    return result


def losing(
    present: Assignment, before: MoveRecord, after: MoveRecord, living: Collection[Incarnation]
) -> Assignment:
    """An assignment with what these outcomes say of lost states: remembered of processes that have died, which cannot read it."""
    lost = {task: one.incarnation for one in present.lost for task in one.tasks}
    for task, old in zip(after.tasks, before.tasks, strict=True):
        if task.outcome == old.outcome:
            continue
        if task.outcome is Outcome.COMMITTED:
            lost.pop(TaskId(task.task), None)
        elif task.outcome is Outcome.LOST and task.source not in living:
            lost[TaskId(task.task)] = task.source
    lives = sorted({*lost.values()})
    result = tuple(Lost(life, tuple(sorted(t for t, by in lost.items() if by == life))) for life in lives)
    return present if result == present.lost else replace(present, lost=result)


def after_outcomes(
    plan: Plan,
    before: MoveRecord,
    after: MoveRecord,
    living: Iterable[Incarnation],
    now: float,
    tries: int,
    trouble: Callable[[int, Collection[NodeId]], str] = lambda task, nodes: "",
) -> Plan:
    """The plan after a move's record has been written: which tasks have failed once more, and which have come.

    A task whose own worker has died is no failure of the move: it is placed anew without one. Nor is it one when a store was away, or
    when the task is wanted elsewhere by now. One that has come back has failed to move like one that was rolled back.

    Args:
        tries: How often a task's move may fail before it is given up: at once where it cannot be otherwise.
        trouble: What became of the stores of these nodes meanwhile, which a task needs; "" when a failure is to count.
    """
    alive = set(living)
    old, wanted = {t.task: t for t in before.tasks}, plan.assignment.place_of()
    for task in after.tasks:
        if not task.outcome or old[task.task].outcome:
            continue
        meant = wanted.get(task.task) == (task.meant or worker_of(task.target))
        stays = task.outcome is Outcome.ROLLED_BACK or (task.outcome is Outcome.COMMITTED and task.came_back)
        if stays and task.source in alive and meant:
            if task.final:
                plan = plan.with_failure(task.task, now, task.reason, tries)
            elif why := trouble(task.task, (task.source_node, task.target_node, *task.stores)):
                plan = plan.with_trouble(task.task, now, f"{task.reason} ({why})")
            else:
                plan = plan.with_failure(task.task, now, task.reason)
        else:
            plan = plan.without([task.task])
    return plan


def nothing(topology: TopologyName) -> Assignment:
    """The assignment of a topology that has none yet."""
    return Assignment(topology, Epoch(0))
