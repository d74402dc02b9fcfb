"""Requests that change who runs what: rebalance, scale, move. Each decides under the lock of the reign, and waits without it."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.errors import ConfigError, Conflict, DeadlineExceeded, NotFound, Refused
from elastic.model.assignment import Assignment
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, TaskId, WorkerId
from elastic.model.records import TopologyState
from elastic.model.words import counted
from elastic.nimbus import placing
from elastic.nimbus.decisions import Place
from elastic.nimbus.facts import EXECUTORS, WORKERS, Facts, TopologyFacts
from elastic.nimbus.lookup import running, same
from elastic.nimbus.plans import Plan
from elastic.nimbus.plans import same as same_places
from elastic.nimbus.reign import Reign
from elastic.nimbus.targets import check_slot, place_for, tasks_named
from elastic.nimbus.writes import placing as placing_operations
from elastic.scheduler.base import Demand


def rebalance(
    reign: Reign,
    name: str,
    executors: Mapping[str, int],
    workers: int | None,
    wait: float,
    share: float | None = None,
) -> Assignment:
    """See `Nimbus.rebalance`."""
    _check_share(share)
    with reign.deciding() as facts:
        t = running(facts, name)
        for component in executors:
            _check_component(t, component)
        wanted = {**t.executors_wanted(), **{ComponentId(c): n for c, n in executors.items()}}
        new = _scheduled(reign, facts, t, wanted, workers, anew=not executors)
        settings = {**t.state.settings, **{EXECUTORS + c: n for c, n in executors.items()}}
        if workers is not None:
            settings[WORKERS] = workers
        state = replace(t.state, settings=settings)
        asked = ", ".join(
            [f"{c}={n}" for c, n in sorted(executors.items())]
            + ([counted(workers, "worker")] if workers is not None else [])
        )
        # Without numbers of executors it says where everything shall be.
        named = _tasks_of(t, executors) if executors and workers is None else _tasks_of(t)
        placed = _plan(reign, facts, t, new, state, f"rebalance {asked}".strip(), share, named)
        if placed.changed:
            message = f"topology {name} is rebalanced: {counted(len(new.executors), 'executor')} in {counted(len(new.workers), 'worker')}"
            reign.tell(
                Event(
                    time.time(),
                    "topology-rebalanced",
                    message,
                    topology=name,
                    details={
                        "epoch": placed.assignment.epoch,
                        "executors": len(new.executors),
                        "workers": len(new.workers),
                    },
                )
            )
    return _await_plan(reign, t, placed, new, wait)


def move(
    reign: Reign, name: str, what: str, where: str, wait: float, share: float | None = None
) -> Assignment:
    """See `Nimbus.move`."""
    _check_share(share)
    with reign.deciding() as facts:
        t = running(facts, name)
        base = t.base
        if base is None:
            raise Refused(f"topology {name!r} has no assignment")
        tasks = tasks_named(t.spec, what)
        new = place_for(facts, t, base, tasks, where)
        placed = _plan(reign, facts, t, new, t.state, f"move {what} to {where}", share, tasks)
    return _await_plan(reign, t, placed, new, wait)


def adopt(
    reign: Reign,
    name: str,
    desired: Assignment,
    why: str,
    *,
    executors: Mapping[ComponentId, int] | None = None,
    workers: int | None = None,
) -> bool:
    """Make true what an algorithm has decided, by moves. Returns at once.

    Args:
        desired: Made from `Facts.claims()`; its epoch means nothing.
        executors: Numbers of executors that are wanted from now on, by component.
        workers: The number of workers that is wanted from now on; None: as before.

    Returns:
        Whether anything is to change.

    Raises:
        NotFound, Refused: The topology does not run.
        Conflict: Its tasks or its places are not those that were decided on.
    """
    with reign.deciding() as facts:
        t = running(facts, name)
        executed = {n for e in (*dict(desired.executors), *desired.unassigned) for n in e.tasks()}
        if executed != set(range(1, t.spec.task_count + 1)):
            raise Conflict(f"the decision is about another topology than {name!r} is now")
        if t.base is not None and same_places(desired, t.base):
            return False  # also when it could not be done: it is not tried again for ever
        for worker, slot in desired.workers.items():
            check_slot(facts, t, worker, slot)
        settings = {**t.state.settings, **{EXECUTORS + c: n for c, n in (executors or {}).items()}}
        if workers is not None:
            settings[WORKERS] = workers
        state = replace(t.state, settings=settings)
        return _plan(reign, facts, t, desired, state, why, None, _tasks_of(t, executors or {})).changed


def _check_share(share: float | None) -> None:
    if share is not None and not 0 < share <= 1:
        raise ConfigError(
            f"the share of a component that may be paused is {share:g}", remedy="give one above 0 and up to 1"
        )


def _check_component(t: TopologyFacts, component: str) -> None:
    if component not in {c.id for c in t.spec.components}:
        known = ", ".join(str(c.id) for c in t.spec.components)
        raise NotFound(f"topology {t.name!r} has no component {component!r}", remedy=f"it has {known}")


def _tasks_of(t: TopologyFacts, components: Iterable[str] | None = None) -> list[TaskId]:
    """The tasks of some components, or all."""
    if components is None:
        return [TaskId(n) for n in range(1, t.spec.task_count + 1)]
    return [TaskId(n) for c in components for n in t.spec.tasks_of(ComponentId(c))]


def _scheduled(
    reign: Reign,
    facts: Facts,
    t: TopologyFacts,
    wanted: Mapping[ComponentId, int],
    workers: int | None,
    *,
    anew: bool,
) -> Assignment:
    """The assignment after a rebalance.

    Args:
        anew: Nothing but the placement is to change: as many workers as were wanted once, if there are slots by now.
    """
    base, current = t.base, facts.claims()

    def ask(many: int) -> Assignment:
        demand = Demand(
            t.spec,
            many,
            wanted,
            t.finished,
            rebalance=True,
            spread=anew or workers is not None,
            movable=True,
        )
        new = reign.scheduler.schedule([demand], facts.cluster, current)[t.name]
        return base if base is not None and same_places(new, base) else new

    present = len({w for _, w in base.executors}) if base is not None else 0
    if workers is not None:
        return ask(workers)
    if anew:
        with contextlib.suppress(Refused):
            return ask(t.workers_wanted())
    return ask(present or t.workers_wanted())


@dataclass(frozen=True, slots=True)
class _Placed:
    """What a request has written.

    Attributes:
        assignment: The one in force.
        request: Names it in the plan while something of it is missing.
        changed: Whether anything is to change.
        tasks: Those that it asks for: what becomes of others is no error of it.
    """

    assignment: Assignment
    request: str
    changed: bool
    tasks: frozenset[TaskId]


def _plan(
    reign: Reign,
    facts: Facts,
    t: TopologyFacts,
    desired: Assignment,
    state: TopologyState,
    why: str,
    share: float | None,
    named: Collection[TaskId],
) -> _Placed:
    """Write what is wanted, and what of it can be done without a move.

    What an earlier request asked for and could not be done is still wanted. It is tried again only when this one asks for it.

    Args:
        named: The tasks that the request names.
    """
    if t.assignment is None or t.base is None:
        raise Refused(f"topology {t.name!r} has no assignment")
    why = why if share is None else f"{why}, share {share:g}"
    request = secrets.token_hex(4)
    wanted = t.base.place_of()
    tasks = frozenset(named) | {n for n, w in desired.place_of().items() if w != wanted.get(n)}
    failures = t.plan.without(tasks).failures if t.plan is not None and not t.plan.halted else ()
    plan = Plan(desired, why, facts.now, request, share or 0.0, failures)
    step = placing.asked(t, facts, plan)
    # What was wanted before and has been given up is still missing, and is no change.
    as_before = t.plan is not None and same_places(desired, t.base) and failures == t.plan.failures
    changed = step.assignment is not t.assignment or (step.plan is not None and not as_before)
    if changed or t.plan is not None or state != t.state:
        place = Place(t.name, step.assignment, t.assignment_version, step.plan, step.gone)
        operations = placing_operations(t, place)
        if state != t.state:
            operations.append(Set(paths.state(t.name), encode(state), t.state_version))
        reign.commit(operations)
    return _Placed(step.assignment, request, changed or state != t.state, tasks)


# --- waiting


_ON_THEIR_WAY = ("tasks are on their way",)


def _await_plan(
    reign: Reign, t: TopologyFacts, placed: _Placed, desired: Assignment, wait: float
) -> Assignment:
    """Wait until what was asked for is so.

    Returns:
        The assignment in force then; without waiting, what is wanted.

    Raises:
        Refused: It will not be so: tasks could not be moved, or something else was asked for meanwhile.
        DeadlineExceeded: It goes on.
    """
    if wait <= 0:
        _echo_plan(reign, t)
        return replace(desired, epoch=placed.assignment.epoch)
    name, until = t.name, time.monotonic() + wait
    while True:
        seen = reign.mirror.revision
        left = max(0.0, until - time.monotonic())
        reached = reign.wait_for(
            lambda f: not _missing(reign, f, t, placed, briefly=True), left, f"topology {name!r} was changed"
        )
        with reign.lock:
            facts = reign.refresh()
        missing = _missing(reign, facts, t, placed)
        found = same(facts, t)
        if found is None or not found.running:
            raise Refused(f"topology {name!r} ended while it was being changed")
        _refuse_failed(reign, found, placed)
        if not missing and found.assignment is not None:
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
        found = same(reign.facts(), t)
        plan = reign.coordination.get(paths.plan(t.name))
        if found is None or found.plan_version == (plan.version if plan is not None else -1):
            return
        reign.mirror.wait_for(lambda seen=seen: reign.over or reign.mirror.revision != seen, left)  # type: ignore[misc]


def _missing(
    reign: Reign, facts: Facts, t: TopologyFacts, placed: _Placed, *, briefly: bool = False
) -> tuple[str, ...]:
    """What is missing until the request is carried out; nothing also when it never will be.

    Args:
        briefly: It is enough to know whether something is: it is asked at every change, and there may be thousands of tasks.
    """
    found = same(facts, t)
    if found is None or not found.running:
        return ()
    a = found.assignment
    if a is None or a.epoch < placed.assignment.epoch:
        return ("Nimbus has not seen its own change yet",)
    if placed.request in reign.aborted:
        return ()
    idle: frozenset[WorkerId] = frozenset()
    if found.plan is not None and found.plan.request == placed.request:
        stuck = placing.stuck(found, reign.rules)
        if not stuck:
            more = () if briefly else _waits(reign, facts, found)
            return more or _ON_THEIR_WAY
        if stuck.keys() & placed.tasks:
            return ()
        idle = found.idle  # the rest is for whoever asked for it, and so are the workers for it
    elif found.plan is not None and found.plan.request:
        return ()
    if found.moves:
        return tuple(() if briefly else reign.move_log.waits(t.name)) or _ON_THEIR_WAY
    if not set(a.workers) <= idle | {w for _, w in a.executors}:
        return ("workers that have no tasks any more are still named",)
    return tuple(f"worker {w} has not carried it out" for w in found.behind(Epoch(a.epoch)) if w not in idle)


def _waits(reign: Reign, facts: Facts, found: TopologyFacts) -> tuple[str, ...]:
    return (*placing.waits(found, facts, reign.rules), *reign.move_log.waits(found.name))


def _refuse_failed(reign: Reign, found: TopologyFacts, placed: _Placed) -> None:
    name, plan = found.name, found.plan
    if (why := reign.aborted.get(placed.request)) is not None:
        raise Refused(f"topology {name!r}: tasks stay where they are: {why}")
    if plan is None or not plan.request:
        return
    if plan.request != placed.request:
        raise Refused(
            f"topology {name!r}: another request has changed where its tasks shall run ({plan.why})"
        )
    stuck = placing.stuck(found, reign.rules)
    if failed := {n: why for n, why in stuck.items() if n in placed.tasks}:
        reasons = "; ".join(f"task {n}: {why}" for n, why in sorted(failed.items())[:5])
        more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
        raise Refused(
            f"topology {name!r}: {counted(len(failed), 'task')} cannot be moved: {reasons}{more}",
            remedy=f"see `elastic moves {name}`, mend the cause, and ask again; other requests leave what failed where it is",
        )
