"""The events that Nimbus itself tells: their names, sentences and details in one place."""

from __future__ import annotations

from collections.abc import Iterator

from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.events import Event, Severity
from elastic.model.records import TopologyState, TopologyStatus
from elastic.nimbus.facts import Facts, TopologyFacts

_ENDS = {
    TopologyStatus.FINISHED: (
        "topology-finished",
        "has finished: all its input is worked off",
        Severity.INFO,
    ),
    TopologyStatus.FAILED: ("topology-failed", "has failed", Severity.ERROR),
    TopologyStatus.KILLED: ("topology-killed", "is killed; its workers stop", Severity.INFO),
}


def ended(t: TopologyFacts, state: TopologyState) -> Event:
    """A topology's status is one of those that it does not come back from."""
    kind, words, severity = _ENDS[state.status]
    reason = f": {state.reason}" if state.status is TopologyStatus.FAILED else ""
    details: dict[str, str | int | float] = {"id": state.id, "seconds": round(state.ended - state.submitted, 3)}
    if state.status is TopologyStatus.FAILED and t.trace:
        details["traceback"] = t.trace
    return Event(
        state.ended,
        kind,
        f"topology {t.name} {words}{reason}",
        severity,
        topology=t.name,
        details=details,
    )


def moved(t: TopologyFacts, new: Assignment, facts: Facts) -> Iterator[Event]:
    """An assignment has changed without being asked for: nodes have come, gone, or are being drained."""
    old = t.assignment
    before, after = (old.place_of() if old is not None else {}), new.place_of()
    tasks = sorted(n for n, w in after.items() if before.get(n) != w)
    if tasks:
        executors = [str(e) for e, _ in new.executors if set(e.tasks()) & set(tasks)]
        came_from = sorted({before[n].rpartition("@")[2].rpartition("/")[0] for n in tasks if n in before})
        went_to = sorted({new.workers[after[n]].node for n in tasks})
        where = (
            f"from {', '.join(came_from)} to {', '.join(went_to)}"
            if came_from
            else f"to {', '.join(went_to)}"
        )
        yield Event(
            facts.now,
            "executors-reassigned",
            f"topology {t.name}: {len(executors)} executors go {where}",
            Severity.WARNING if came_from else Severity.INFO,
            topology=t.name,
            details={"epoch": new.epoch, "executors": " ".join(executors), "tasks": len(tasks)},
        )
    waited = set(old.unassigned) if old is not None else set()
    waiting = [str(e) for e in new.unassigned if e not in waited]
    if waiting:
        yield Event(
            facts.now,
            "executors-waiting",
            f"topology {t.name}: no slot is free for {', '.join(waiting)}; add nodes with `elastic nodes add`",
            Severity.WARNING,
            topology=t.name,
            details={"epoch": new.epoch, "executors": " ".join(waiting)},
        )


def node_joined(node: NodeInfo, now: float) -> Event:
    """A node's supervisor has registered."""
    return Event(
        now,
        "node-joined",
        f"node {node.id} is there, with {node.slots} slots on {node.host}",
        node=node.id,
        details={"slots": node.slots, "generation": node.generation, "kind": node.kind},
    )


def node_lost(node: NodeInfo, drained: bool, facts: Facts) -> Event:
    """A node's supervisor is not registered any more."""
    workers = facts.assigned_to(node.id)
    if drained and not workers:
        return Event(facts.now, "node-left", f"node {node.id} was drained, and is gone", node=node.id)
    return Event(
        facts.now,
        "node-lost",
        f"node {node.id} is gone; {len(workers)} workers were assigned to it",
        Severity.WARNING,
        node=node.id,
        details={"generation": node.generation, "workers": " ".join(workers)},
    )
