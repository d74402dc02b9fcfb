"""What follows from the facts: `decide(facts) -> actions`. No clock, no thread, no storage.

The life of a topology, in words:

    ACTIVE <-> INACTIVE -> FINISHED (all tasks have finished)        -> removed after the retention
                        -> FAILED   (an executor gave up)            -> removed after the retention
                        -> KILLED   (asked for, and drained or late) -> removed when its workers are gone

To end one is one change: the state says so and the assignment goes. Everything that is decided here is
decided again by a leader that takes over, from the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from elastic.migration.record import MoveRecord
from elastic.model.assignment import Assignment
from elastic.model.checkpoints import Checkpoints
from elastic.model.ids import NodeId, TaskId, TopologyName, WorkerId, node_of
from elastic.model.records import TopologyStatus
from elastic.nimbus.deciding import checkpointing, placing
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.observing.plans import Plan, same
from elastic.scheduler.base import Scheduler
from elastic.scheduler.round_robin import natural


@dataclass(frozen=True, slots=True)
class Place:
    """Write a new assignment over the one of this version, and what is still missing of the plan.

    Attributes:
        plan: None: nothing is missing.
        gone: Workers that must not live: their tasks are given to others.
    """

    topology: TopologyName
    assignment: Assignment
    version: int
    plan: Plan | None = None
    gone: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a move."""

    topology: TopologyName
    record: MoveRecord


@dataclass(frozen=True, slots=True)
class End:
    """Say in the state that it has ended, and take its assignment away."""

    topology: TopologyName
    status: TopologyStatus
    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove all that coordination has about it."""

    topology: TopologyName


@dataclass(frozen=True, slots=True)
class Unwant:
    """The node is empty: tell the launcher to end it."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class ForgetDrain:
    """The drained node is gone: its name can be used again."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint begins, is complete, or is given up."""

    topology: TopologyName
    checkpoints: Checkpoints


Action = Place | Begin | End | Remove | Unwant | ForgetDrain | Checkpoint


@dataclass(frozen=True, slots=True)
class Limits:
    """How long, and how many, records of ended topologies stay; and how moves are begun."""

    retention: float
    keep_ended: int
    moves: Rules = field(default_factory=Rules)


Sizes = Callable[[TopologyName], Mapping[TaskId, int]]
"""Bytes of state by task, as far as its workers have reported them."""


def decide(
    facts: Facts, scheduler: Scheduler, limits: Limits, sizes: Sizes = lambda _: {}
) -> tuple[Action, ...]:
    """Everything that is to be done now, in the order in which it is to be done."""
    ends = [end for t in facts.in_order() if (end := _end(t, facts.now)) is not None]
    ending = {e.topology for e in ends}
    return (
        *ends,
        *_places(facts, scheduler, ending, limits.moves),
        *_begins(facts, ending, limits.moves, sizes),
        *_checkpoints(facts, ending, sizes),
        *_removals(facts, limits),
        *_drains(facts),
    )


def next_deadline(facts: Facts, limits: Limits) -> float | None:
    """When `decide` may say something else although nothing else has changed: seconds since 1970, or None."""
    times = [until for node, until in facts.expected.items() if node in facts.missing()]
    for t in facts.topologies.values():
        if t.running and t.kill_at is not None:
            times.append(t.kill_at)
        elif t.state.status in (TopologyStatus.FINISHED, TopologyStatus.FAILED):
            times.append(t.state.ended + limits.retention)
        if t.running:
            times.extend(placing.deadlines(t, facts, limits.moves))
            times.extend(checkpointing.deadlines(t))
    return min((x for x in times if x > facts.now), default=None)


def _end(t: TopologyFacts, now: float) -> End | None:
    if not t.running:
        return None
    if t.kill_at is not None:
        if now >= t.kill_at or t.all_finished or t.failed or not t.undrained():
            return End(t.name, TopologyStatus.KILLED, "killed by request")
        return None
    if t.failed:
        return End(t.name, TopologyStatus.FAILED, t.failed)
    if t.all_finished:
        return End(t.name, TopologyStatus.FINISHED, "")
    return None


def _places(facts: Facts, scheduler: Scheduler, ending: set[TopologyName], rules: Rules) -> Iterable[Place]:
    if not facts.nodes:
        # Nobody could carry out anything. Who runs what stays written, for when the nodes come back.
        return
    topologies = [t for t in facts.in_order() if t.running and t.name not in ending]
    current = {n: a for n, a in facts.claims().items() if n not in ending}
    wanted = scheduler.schedule([t.demand() for t in topologies], facts.cluster, current)
    for t in topologies:
        new, base = wanted[t.name], t.base
        if t.assignment is None or base is None:
            yield Place(t.name, new, -1)
            continue
        plan = planned(t, base if same(new, base) else new, facts, over=bool(placing.stuck(t, rules)))
        step = placing.step(t, facts, plan, rules)
        if step.assignment is not t.assignment or step.plan != t.plan:
            yield Place(t.name, step.assignment, t.assignment_version, step.plan, step.gone)


def planned(t: TopologyFacts, desired: Assignment, facts: Facts, *, over: bool) -> Plan:
    """The plan that makes an assignment true which nobody has asked for: nodes have come or gone, or are being drained.

    What is wanted elsewhere than before is tried anew: that it could not go to the one place says nothing of the other.

    Args:
        over: All that is left of the present plan was given up: what moves now does not do so because of that.
    """
    now = t.assignment.place_of() if t.assignment is not None else {}
    if t.plan is None:
        return Plan(desired, _why(now, desired, facts), facts.now)
    if t.plan.assignment is desired:
        return t.plan
    if t.plan.halted and same(t.plan.assignment, desired):
        return t.plan
    before, after = t.plan.assignment.place_of(), desired.place_of()
    elsewhere = frozenset(n for n, w in after.items() if w != before.get(n))
    plan = replace(t.plan.without(elsewhere), assignment=desired)
    if over or not t.plan.requested:
        return replace(plan, why=_why(now, desired, facts), asked=facts.now, share=0.0, earlier=())
    # What somebody has asked for is still theirs, also where it goes elsewhere now; the others move because nodes come and go.
    asked = frozenset(n for n, w in before.items() if now.get(n) != w and after.get(n) != now.get(n))
    plan = plan.asked_again(elsewhere & asked, facts.now)
    if not elsewhere - asked:
        return plan
    # How much may be paused at once was said of that alone.
    return replace(
        plan,
        why=_why(before, desired, facts),
        asked=facts.now,
        share=0.0,
        earlier=plan.asked_before(asked),
    )


def _why(before: Mapping[TaskId, WorkerId], desired: Assignment, facts: Facts) -> str:
    """Which nodes it is that tasks leave, or are not to come to any more, and why."""
    after = desired.place_of()
    left = sorted({node_of(w) for n, w in before.items() if after.get(n) != w}, key=natural)
    drained = [n for n in left if facts.draining(n)]
    gone = [n for n in left if n not in facts.nodes and n not in drained]
    parts = [
        f"{'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes)} {one if len(nodes) == 1 else more}"
        for nodes, one, more in (
            (drained, "is being drained", "are being drained"),
            (gone, "is gone", "are gone"),
        )
        if nodes
    ]
    return "; ".join(parts) or "nodes have come, gone, or are being drained"


def _begins(facts: Facts, ending: set[TopologyName], rules: Rules, sizes: Sizes) -> Iterable[Begin]:
    for t in facts.in_order():
        if t.plan is None or t.name in ending:
            continue
        if (record := placing.begin(t, facts, rules, sizes(t.name))) is not None:
            yield Begin(t.name, record)


def _checkpoints(facts: Facts, ending: set[TopologyName], sizes: Sizes) -> Iterable[Checkpoint]:
    for t in facts.in_order():
        if t.name not in ending and (step := checkpointing.step(t, facts.now, sizes(t.name))) is not None:
            yield Checkpoint(t.name, step)


def _removals(facts: Facts, limits: Limits) -> Iterable[Remove]:
    kept = 0
    ended = [t for t in facts.topologies.values() if not t.running and not t.workers and not t.moves]
    for t in sorted(ended, key=lambda t: (-t.state.ended, t.name)):
        kill = t.state.status is TopologyStatus.KILLED or t.kill_at is not None
        if not kill and facts.now < t.state.ended + limits.retention and kept < limits.keep_ended:
            kept += 1
            continue
        yield Remove(t.name)


def _drains(facts: Facts) -> Iterable[Action]:
    for node in sorted(facts.drains):
        if node in facts.wanted:
            if not facts.assigned_to(node) and not facts.living_on(node):
                yield Unwant(node)
        elif node not in facts.nodes:
            yield ForgetDrain(node)
