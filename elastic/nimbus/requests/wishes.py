"""What a request asks for, and waiting until it is so. Others may ask for something else meanwhile: each waits for its own tasks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic.coordination import paths
from elastic.errors import DeadlineExceeded, Refused, SessionExpired
from elastic.model.assignment import Assignment
from elastic.model.ids import ComponentId, Epoch, TaskId, WorkerId
from elastic.model.words import counted
from elastic.nimbus.deciding import placing
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.reign import Reign, stopped
from elastic.nimbus.requests.lookup import same

_NAMED = 5
"""Tasks that an error names; the others are counted."""
_ON_THEIR_WAY = ("tasks are on their way",)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for.

    Attributes:
        tasks: Those that it is about: what becomes of others is no error of it.
        places: The worker of each task for which it names one.
        executors: The number of executors by component, where it names one.
        workers: The number of workers, if it names one.
    """

    tasks: frozenset[TaskId]
    places: Mapping[TaskId, WorkerId] = field(default_factory=dict)
    executors: Mapping[ComponentId, int] = field(default_factory=dict)
    workers: int | None = None

    def overtaken(self, t: TopologyFacts) -> str:
        """What is wanted in its place by now, or ""."""
        wanted = _wanted(t)
        by: dict[WorkerId | None, list[TaskId]] = {}
        for task, place in sorted(self.places.items()):
            if (to := wanted.get(task)) != place:
                by.setdefault(to, []).append(task)
        said = [f"{_tasks(tasks)} shall run in {to or 'no worker'} now" for to, tasks in by.items()]
        many = t.executors_wanted()
        said += [
            f"component {c!r} shall have {counted(many[c], 'executor')} now"
            for c, n in self.executors.items()
            if many[c] != n
        ]
        if self.workers is not None and t.workers_wanted() != self.workers:
            said.append(f"it shall have {counted(t.workers_wanted(), 'worker')} now")
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Placed:
    """What a request has written.

    Attributes:
        assignment: The one in force.
        changed: Whether anything is to change.
        places: Where it wants each of its tasks.
        aborts: How often moves of the topology had been aborted by then.
    """

    assignment: Assignment
    changed: bool
    wish: Wish
    places: Mapping[TaskId, WorkerId]
    aborts: int


def await_wish(
    reign: Reign, t: TopologyFacts, placed: Placed, desired: Assignment, wait: float
) -> Assignment:
    """Wait until what was asked for is so.

    Args:
        wait: Seconds; 0: not at all.

    Returns:
        The assignment in force then; without waiting, what is wanted.

    Raises:
        Refused: It will not be so: tasks could not be moved, or something else was asked for meanwhile.
        DeadlineExceeded: It goes on.
        Unavailable: This Nimbus stopped leading meanwhile.
    """
    try:
        if wait <= 0:
            _echo_plan(reign, t)
            return replace(desired, epoch=placed.assignment.epoch)
        return _awaited(reign, t, placed, wait)
    except SessionExpired as error:  # it has not heard of that yet
        raise stopped(f"topology {t.name!r} was changed") from error


def _awaited(reign: Reign, t: TopologyFacts, placed: Placed, wait: float) -> Assignment:
    name, until = t.name, time.monotonic() + wait

    def over(facts: Facts) -> bool:
        try:
            return not _missing(reign, facts, t, placed, briefly=True)
        except Refused:
            return True

    while True:
        seen = reign.mirror.revision
        left = max(0.0, until - time.monotonic())
        reached = reign.wait_for(over, left, f"topology {name!r} was changed")
        with reign.lock:
            facts = reign.refresh()
        missing = _missing(reign, facts, t, placed)
        found = same(facts, t)
        if not missing and found is not None and found.assignment is not None:
            return found.assignment
        if not reached or time.monotonic() >= until:
            what = "; ".join(missing)
            raise DeadlineExceeded(
                f"topology {name!r}: not everything was where it shall be after {wait:g} s: {what}",
                remedy=f"it goes on; `elastic moves {name}` and `elastic describe {name}` show how far it is",
            )
        # The mirror was ahead of, or behind, what has just been read.
        reign.mirror.wait_for(
            lambda seen=seen: reign.over or reign.mirror.revision != seen,  # type: ignore[misc]
            max(0.0, until - time.monotonic()),
        )


def _echo_plan(reign: Reign, t: TopologyFacts) -> None:
    """Wait until the mirror shows the plan as it is, so that the next request sees it."""
    until = time.monotonic() + reign.options.answer_timeout
    while (left := until - time.monotonic()) > 0:
        seen = reign.mirror.revision
        if reign.over:
            raise stopped(f"topology {t.name!r} was changed")
        found = same(reign.facts(), t)
        plan = reign.coordination.get(paths.plan(t.name))
        if found is None or found.plan_version == (plan.version if plan is not None else -1):
            return
        reign.mirror.wait_for(lambda seen=seen: reign.over or reign.mirror.revision != seen, left)  # type: ignore[misc]


def _wanted(t: TopologyFacts) -> dict[TaskId, WorkerId]:
    """Where each task shall run, also if it was given up."""
    a = t.plan.assignment if t.plan is not None else t.assignment
    return a.place_of() if a is not None else {}


def _missing(
    reign: Reign, facts: Facts, t: TopologyFacts, placed: Placed, *, briefly: bool = False
) -> tuple[str, ...]:
    """What is missing until the request is carried out.

    Args:
        briefly: It is enough to know whether something is: it is asked at every change, and there may be thousands of tasks.

    Raises:
        Refused: It never will be.
    """
    found, wish = same(facts, t), placed.wish
    if found is None or not found.running:
        raise Refused(f"topology {t.name!r} ended while it was being changed")
    a = found.assignment
    if a is None or a.epoch < placed.assignment.epoch:
        return ("Nimbus has not seen its own change yet",)
    wanted, now = _wanted(found), a.place_of()
    moving = {n for n in wish.tasks if n in found.moving}
    if reign.aborted.times(t.name) > placed.aborts:
        elsewhere = any(wanted.get(n) not in (place, now.get(n)) for n, place in placed.places.items())
        said, why = wish.overtaken(found) if elsewhere else "", reign.aborted.why(t.name)
        if (said or not moving) and any(now.get(n) != place for n, place in placed.places.items()):
            what = (
                f"{why}; something else was asked for since: {said}"
                if said
                else f"tasks stay where they are: {why}"
            )
            raise Refused(f"topology {t.name!r}: {what}", remedy="ask again if it is still wanted")
    elif said := wish.overtaken(found):
        cause = f" ({found.plan.why})" if found.plan is not None else ""
        raise Refused(
            f"topology {t.name!r}: something else was asked for meanwhile, or nodes have come or gone: {said}{cause}",
            remedy=f"see `elastic describe {t.name}` and `elastic events`, and ask again if it is still wanted",
        )
    failed = placing.failed(found, reign.rules)
    # What could not go to where somebody else wants it by now is no matter of this request.
    others = {n for n in failed if n in wish.tasks and wanted.get(n) != placed.places.get(n)}
    away = moving | {n for n in wish.tasks - others if now.get(n) != wanted.get(n)}
    if away:
        if away <= failed.keys():
            raise _cannot(t, {n: failed[n] for n in sorted(away)})
        more = () if briefly else _waits(reign, facts, found, away)
        return more or _ON_THEIR_WAY
    if any(x.task in wish.tasks for m in found.moves.values() for x in m.record.tasks):
        return tuple(() if briefly else reign.move_log.waits(t.name, wish.tasks)) or _ON_THEIR_WAY
    # The workers of what others have asked for are for them.
    theirs = found.idle | {w for m in found.moves.values() for w in m.workers}
    if not set(a.workers) <= theirs | {w for _, w in a.executors}:
        return ("workers that have no tasks any more are still named",)
    ours = {now[n] for n in wish.tasks if n in now} | (found.workers.keys() - a.workers.keys())
    return tuple(f"worker {w} has not carried it out" for w in found.behind(Epoch(a.epoch)) if w in ours)


def _waits(reign: Reign, facts: Facts, found: TopologyFacts, tasks: set[TaskId]) -> tuple[str, ...]:
    return (
        *placing.waits(found, facts, reign.rules, tasks),
        *reign.move_log.waits(found.name, tasks),
    )


def _cannot(t: TopologyFacts, failed: Mapping[TaskId, str]) -> Refused:
    reasons = "; ".join(f"task {n}: {why.rstrip('.')}" for n, why in list(failed.items())[:_NAMED])
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return Refused(
        f"topology {t.name!r}: {counted(len(failed), 'task')} cannot be moved: {reasons}{more}",
        remedy=f"see `elastic moves {t.name}`, mend the cause, and ask again; other requests leave what failed where it is",
    )


def _tasks(tasks: list[TaskId]) -> str:
    named = ", ".join(map(str, tasks[:_NAMED]))
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    return f"{'task' if len(tasks) == 1 else 'tasks'} {named}{more}"
