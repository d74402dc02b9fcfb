"""Elasticity of the infrastructure: when executors no longer fit, ask for nodes; when nodes are not needed, drain and return them.

What Elastic Storm (2016), section VIII, names as future work. A pure function again: nodes, what topologies want, memory, time ->
steps with reasons.

Growth: as many nodes as the cores, the workers and the executors without a slot need, at most `step` at once; nodes that have been asked
for count as if they were there, until they are overdue: then they are given up, and others asked for if they are still needed, so
that what a host cannot provide does not pile up there. Return: when what is wanted has fitted into fewer nodes for `patience` seconds,
with a margin, an empty node goes, or the one with the least on it is drained, one at a time: its tasks move first, with their state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic.elasticity.base import Reason, Room
from elastic.errors import ConfigError
from elastic.model.ids import NodeId, node_of
from elastic.model.loadview import LoadView
from elastic.model.parameters import parameter
from elastic.model.words import counted


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """Limits and paces. Times are seconds."""

    enabled: bool = parameter(False, help="Whether nodes are asked for and returned.")
    dry_run: bool = parameter(False, help="Say what would be done and why, and do nothing.")
    minimum: int = parameter(1, minimum=1, help="Nodes that stay, whatever the load.")
    maximum: int = parameter(4, minimum=1, help="Nodes at most.")
    target: float = parameter(
        0.8, minimum=0.05, maximum=1.0, help="Share of a node's cores that is to be used."
    )
    margin: float = parameter(
        0.25, minimum=0.0, maximum=0.9, help="Share of the cores that must stay free after a node has gone."
    )
    step: int = parameter(4, minimum=1, help="Nodes asked for at once, at most.")
    cooldown_out: float = parameter(5.0, minimum=0.0, help="Seconds from asking for nodes to asking again.")
    cooldown_in: float = parameter(60.0, minimum=0.0, help="Seconds from any change to returning a node.")
    patience: float = parameter(30.0, minimum=0.0, help="Seconds for which a node must not be needed.")
    overdue: float = parameter(
        120.0, minimum=1.0, help="Seconds after which a node that was asked for and has not come is given up."
    )
    consolidate: bool = parameter(
        True, help="Also drain a node that still has work, if the others have room for it."
    )


def check(params: Infrastructure) -> None:
    """Raises ConfigError when minimum and maximum contradict each other."""
    if params.minimum > params.maximum:
        raise ConfigError(
            f"`nodes auto`: --minimum {params.minimum} is above --maximum {params.maximum}",
            remedy="raise --maximum or lower --minimum",
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node as this policy sees it.

    Attributes:
        slots, used: How many workers it may run, and how many are assigned to it.
        executors: How many are assigned to it.
        state: Bytes of state there, 0 when unknown.
        cores: CPUs; 0: unknown.
        cpu: Cores in use.
        sharing: How many nodes its machine's cores are divided among.
        alive: Whether it is registered; otherwise it was asked for and is not there yet.
        since: When it was asked for, or has gone, seconds; only for those that are not alive.
        lost: It has gone: it was there.
        draining: It is being emptied, and goes.
        fixed: It is never returned: somebody has started it by hand, or it has what others lack.
    """

    id: NodeId
    slots: int
    used: int = 0
    executors: int = 0
    state: float = 0.0
    cores: float = 0.0
    cpu: float = 0.0
    sharing: int = 1
    alive: bool = True
    since: float = 0.0
    lost: bool = False
    draining: bool = False
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Wants:
    """What all topologies want together; `Outcome` of the manager says most of it.

    Attributes:
        cores: That they would use if they could.
        lacking: Of those, the ones that there are not; for people.
        workers: Worker processes that they would have.
        waiting: Executors that have found no slot.
        moving: A move is under way, or the outcome is not `settled`: nothing is returned now.
    """

    cores: float = 0.0
    lacking: float = 0.0
    workers: int = 0
    waiting: int = 0
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """What is to be done.

    Attributes:
        add: How many nodes to ask the host for.
        drain: Nodes to empty and return, and those to give up that have not come.
        reasons: Why; also why not although something is lacking.
    """

    add: int = 0
    drain: tuple[NodeId, ...] = ()
    reasons: tuple[Reason, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered between runs. Times are seconds, -inf: never.

    Attributes:
        grown, returned: When nodes were asked for and returned last.
        loose: Since when a node more than needed is there; inf: it is needed.
        said: The kind of what was said last although nothing was done.
        late: The nodes that are overdue, as was said.
    """

    grown: float = -math.inf
    returned: float = -math.inf
    loose: float = math.inf
    said: str = ""
    late: frozenset[NodeId] = frozenset()


def decide(
    nodes: Sequence[Node], wants: Wants, params: Infrastructure, past: Past, now: float
) -> tuple[Steps, Past]:
    """One run.

    Args:
        nodes: All that are there or were asked for.
        now: Seconds, by the clock that `past` and `Node.since` go by.
    """
    if not params.enabled:
        return Steps(), past
    coming = [n for n in nodes if not n.alive and not n.draining]
    late = {n.id: n for n in coming if now - n.since >= params.overdue}
    steps, past = _steps(
        nodes, [n for n in nodes if not n.draining and n.id not in late], wants, params, past, now
    )
    news = [n for n in late.values() if n.id not in past.late]
    past = replace(past, late=frozenset(late))
    if not late:
        return steps, past
    reasons = (*(_given_up(n, now) for n in news), *steps.reasons)
    return Steps(steps.add, (*late, *steps.drain), reasons, params.dry_run), past


def _given_up(node: Node, now: float) -> Reason:
    waited = f"{now - node.since:.0f} s"
    missing = (
        f"has been gone for {waited}, has not come back"
        if node.lost
        else f"was asked for {waited} ago, has not come"
    )
    text = (
        f"{node.id} {missing}, and is given up; "
        "`elastic events` and the launcher's log (launcher.log in the cluster's directory) say why it does not start"
    )
    details: dict[str, str | float] = {"node": node.id, "waited": round(now - node.since, 1)}
    return Reason("node-overdue", text, warning=True, details=details)


def _steps(
    nodes: Sequence[Node],
    staying: Sequence[Node],
    wants: Wants,
    params: Infrastructure,
    past: Past,
    now: float,
) -> tuple[Steps, Past]:
    """What is to be done, by the nodes that are counted on."""
    needed, why, numbers = _needed(staying, wants, params)
    have = len(staying)
    if needed > have:
        return _grow(staying, needed, why, numbers, params, replace(past, loose=math.inf), now)
    past = replace(past, said="")
    if wants.moving:
        return Steps(), replace(past, loose=math.inf)
    loose = _loose(staying, wants, params) if needed < have else None
    if loose is None:
        return Steps(), replace(past, loose=math.inf)
    past = replace(past, loose=min(past.loose, now))
    # An infinite cooldown is over at no time, not even if there was no change yet.
    quiet = math.isfinite(params.cooldown_in) and now - max(past.grown, past.returned) >= params.cooldown_in
    draining = any(n.draining for n in nodes)
    if now - past.loose < params.patience or not quiet or draining:
        return Steps(), past
    reason = Reason(
        "node-return",
        f"{loose.id} has not been needed for {now - past.loose:.0f} s: {wants.cores:.2f} cores and {counted(wants.workers, 'worker')} "
        f"need {needed} of {have} nodes; "
        + (
            "it is empty and goes"
            if not loose.used
            else f"{counted(loose.executors, 'executor')} move away, then it goes"
        )
        + f" (at least {params.minimum} stay, the next goes in {params.cooldown_in:g} s at the earliest)",
        details={
            "node": loose.id,
            "before": have,
            "after": have - 1,
            "needed": needed,
            "executors": loose.executors,
            **numbers,
        },
    )
    steps = Steps(drain=(loose.id,), reasons=(reason,), dry_run=params.dry_run)
    return steps, replace(past, returned=now, loose=math.inf)


def room_of(nodes: Sequence[Node]) -> Room:
    """What the nodes offer to topologies now: those that are there and stay."""
    here = [n for n in nodes if n.alive and not n.draining]
    known = bool(here) and all(n.cores > 0 for n in here)
    return Room(
        sum(n.cores for n in here) if known else 0.0,
        sum(n.cpu for n in here) if known else 0.0,
        sum(max(0, n.slots - n.used) for n in here),
    )


def measured(nodes: Sequence[Node], view: LoadView) -> list[Node]:
    """The nodes with cores, CPU and state as far as the load view has them."""
    state: dict[str, float] = {}
    for worker, load in view.workers.items():
        node = node_of(worker)
        state[node] = state.get(node, 0.0) + sum(
            view.executors[k].state for k in load.executors if k in view.executors
        )
    result = []
    for n in nodes:
        load_ = view.nodes.get(n.id)
        if load_ is not None:
            n = replace(n, cores=load_.cores, cpu=load_.cpu, sharing=load_.sharing)
        result.append(replace(n, state=state.get(n.id, n.state)))
    return result


def _needed(
    staying: Sequence[Node], wants: Wants, params: Infrastructure
) -> tuple[int, str, dict[str, float]]:
    """How many nodes there should be, why, and the numbers."""
    if not staying:
        some = int(wants.workers > 0 or wants.waiting > 0)
        return max(some, params.minimum), "there is no node", {"workers": wants.workers}
    cores = [n for n in staying if n.cores > 0]
    # The first one on a machine has all of its cores, and another one adds none: each has fewer then, and ever more would be needed.
    machines = sum(1 / n.sharing for n in cores)
    each = sum(n.cores for n in cores) / machines if cores else 0.0
    slots = sum(n.slots for n in staying) / len(staying)
    by_cores = math.ceil(wants.cores / (each * params.target) - 1e-9) if each else 0
    if any(n.sharing > 1 for n in cores):
        by_cores = min(by_cores, max(1, round(machines)))
    by_slots = math.ceil(wants.workers / slots - 1e-9) if slots else 0
    least = len(staying) + 1 if wants.waiting and all(n.used >= n.slots for n in staying) else 0
    needed = max(by_cores, by_slots, least, 1)
    if needed < params.minimum:
        why = f"{params.minimum} nodes are the fewest there are to be"
    elif by_cores == needed:
        why = f"{wants.cores:.2f} cores are wanted, and a node has {each:g}, of which {params.target:.0%} are to be used"
    elif by_slots == needed:
        why = f"{wants.workers} workers are wanted, and a node has {slots:g} slots"
    else:
        why = f"{wants.waiting} executors wait for a slot, and all are taken"
    numbers = {
        "cores": round(wants.cores, 4),
        "lacking": round(wants.lacking, 4),
        "workers": wants.workers,
        "waiting": wants.waiting,
    }
    return max(needed, params.minimum), why, numbers


def _grow(
    staying: Sequence[Node],
    needed: int,
    why: str,
    numbers: dict[str, float],
    params: Infrastructure,
    past: Past,
    now: float,
) -> tuple[Steps, Past]:
    have = len(staying)
    more = min(needed, params.maximum) - have
    kind = ""
    if more <= 0:
        kind, text = (
            "node-limit",
            f"{why}: {needed} nodes are needed, and {params.maximum} are the most there may be",
        )
    elif now - past.grown < params.cooldown_out:
        return Steps(), past
    if kind:
        if past.said == kind:
            return Steps(), past
        limit = Reason(kind, text, warning=True, details={"before": have, "needed": needed, **numbers})
        return Steps(reasons=(limit,)), replace(past, said=kind)
    more = min(more, params.step)
    reason = Reason(
        "node-request",
        f"{why}: {have} -> {have + more} nodes"
        + (f" of {needed}" if needed > have + more else "")
        + f" (at most {params.maximum}, {params.step} at once, again in {params.cooldown_out:g} s at the earliest)",
        details={
            "before": have,
            "after": have + more,
            "needed": needed,
            "maximum": params.maximum,
            **numbers,
        },
    )
    return Steps(add=more, reasons=(reason,), dry_run=params.dry_run), replace(past, grown=now, said="")


def _loose(staying: Sequence[Node], wants: Wants, params: Infrastructure) -> Node | None:
    """The node that can best be done without, or None. Nothing is returned while some are on their way, nor what would be asked for again
    at once: nodes may differ, and the one that goes may have more than its part.
    """
    if len(staying) <= params.minimum or not all(n.alive for n in staying):
        return None
    candidates = [n for n in staying if not n.fixed and (params.consolidate or not n.used)]
    for node in sorted(candidates, key=lambda n: (n.used, n.executors, n.state, n.id)):
        rest = [n for n in staying if n is not node]
        if sum(n.slots for n in rest) < max(wants.workers, sum(n.used for n in staying)):
            continue
        share = min(params.target, 1.0 - params.margin)
        # Where others share its machine they have its cores then.
        left = sum(n.cores for n in rest) + (node.cores if node.sharing > 1 else 0.0)
        if all(n.cores > 0 for n in staying) and wants.cores > share * left:
            continue
        return node
    return None
