"""Requests that change who runs what: rebalance, scale, move. Each decides under the lock of the reign, and waits without it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Set
from elastic.errors import ConfigError, InvalidParallelism, NotFound, Refused
from elastic.model import whys
from elastic.model.assignment import Assignment
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import ComponentId, TaskId
from elastic.model.records import TopologyState
from elastic.model.split import split_tasks
from elastic.model.words import counted
from elastic.nimbus.deciding import placing
from elastic.nimbus.deciding.decisions import Place
from elastic.nimbus.deciding.writes import placing as placing_operations
from elastic.nimbus.observing.facts import EXECUTORS, WORKERS, Facts, TopologyFacts
from elastic.nimbus.observing.plans import Plan
from elastic.nimbus.observing.plans import same as same_places
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests.lookup import running
from elastic.nimbus.requests.targets import check_division, check_slot, place_for, tasks_named
from elastic.nimbus.requests.wishes import Placed, Wish, await_wish
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
        for component, many in executors.items():
            _check_component(t, component)
            _check_executors(t, ComponentId(component), many)
        wanted = {**t.executors_wanted(), **{ComponentId(c): n for c, n in executors.items()}}
        new = _scheduled(reign, facts, t, wanted, workers, anew=not executors)
        settings = {**t.state.settings, **{EXECUTORS + c: n for c, n in executors.items()}}
        if workers is not None:
            settings[WORKERS] = workers
        state = replace(t.state, settings=settings)
        # Without numbers of executors it says where everything shall be.
        named = _tasks_of(t, executors) if executors and workers is None else _tasks_of(t)
        wish = Wish(frozenset(named), {}, {ComponentId(c): n for c, n in executors.items()}, workers)
        placed = _plan(reign, facts, t, new, state, whys.to_rebalance(executors, workers), share, wish)
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
    return await_wish(reign, t, placed, new, wait)


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
        there = new.place_of()
        wish = Wish(frozenset(tasks), {n: there[n] for n in tasks})
        placed = _plan(reign, facts, t, new, t.state, whys.to_move(what, where), share, wish)
    return await_wish(reign, t, placed, new, wait)


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
        Conflict: Its tasks or its places are not those that were decided on, or no assignment can be as the decision is.
    """
    with reign.deciding() as facts:
        t = running(facts, name)
        check_division(t, desired)
        if t.base is not None and same_places(desired, t.base):
            return False  # also when it could not be done: it is not tried again for ever
        for worker, slot in desired.workers.items():
            check_slot(facts, t, worker, slot)
        settings = {**t.state.settings, **{EXECUTORS + c: n for c, n in (executors or {}).items()}}
        if workers is not None:
            settings[WORKERS] = workers
        state = replace(t.state, settings=settings)
        wish = Wish(frozenset(_tasks_of(t, executors or {})))
        return _plan(reign, facts, t, desired, state, why, None, wish).changed


def _check_share(share: float | None) -> None:
    if share is not None and not 0 < share <= 1:
        raise ConfigError(
            f"the share of a component that may be paused is {share:g}", remedy="give one above 0 and up to 1"
        )


def _check_component(t: TopologyFacts, component: str) -> None:
    if component not in {c.id for c in t.spec.components}:
        known = ", ".join(str(c.id) for c in t.spec.components)
        raise NotFound(f"topology {t.name!r} has no component {component!r}", remedy=f"it has {known}")


def _check_executors(t: TopologyFacts, component: ComponentId, many: int) -> None:
    """The topology runs, and is not wrong: the request cannot be carried out, as one for more workers than slots cannot."""
    try:
        split_tasks(component, t.spec.tasks_of(component), many)
    except InvalidParallelism as error:
        raise Refused(f"topology {t.name!r}: {error.message}", remedy=error.remedy) from error


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


def _plan(
    reign: Reign,
    facts: Facts,
    t: TopologyFacts,
    desired: Assignment,
    state: TopologyState,
    why: str,
    share: float | None,
    wish: Wish,
) -> Placed:
    """Write what is wanted, and what of it can be done without a move.

    What an earlier request asked for and could not be done is still wanted. It is tried again only when this one asks for it.
    """
    if t.assignment is None or t.base is None:
        raise Refused(f"topology {t.name!r} has no assignment")
    why = whys.with_share(why, share)
    wanted, there = t.base.place_of(), desired.place_of()
    tasks = wish.tasks | {n for n, w in there.items() if w != wanted.get(n)}
    failures = t.plan.without(tasks).failures if t.plan is not None and not t.plan.halted else ()
    plan = Plan(
        desired,
        why,
        facts.now,
        True,
        share or 0.0,
        failures,
        earlier=t.plan.asked_before(_earlier(t) - tasks) if t.plan is not None else (),
    )
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
    return Placed(
        step.assignment,
        changed or state != t.state,
        replace(wish, tasks=tasks),
        {n: there[n] for n in tasks if n in there},
        reign.aborted.times(t.name),
    )


def _earlier(t: TopologyFacts) -> frozenset[TaskId]:
    """The tasks that earlier requests want elsewhere, and that have not come there yet."""
    if t.plan is None or t.plan.halted or t.assignment is None:
        return frozenset()
    now = t.assignment.place_of()
    return frozenset(n for n, w in t.plan.assignment.place_of().items() if now.get(n) != w)
