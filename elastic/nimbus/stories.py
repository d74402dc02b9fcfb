"""The events that Nimbus itself tells: their names, sentences and details in one place."""

from __future__ import annotations

from collections.abc import Iterator

from elastic.errors import Refused
from elastic.migration.actions import Say
from elastic.migration.record import MoveRecord
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.checkpoints import Checkpoints, number_of
from elastic.model.events import Event, Severity
from elastic.model.ids import TaskId, node_of, worker_of
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.views import MoveView
from elastic.model.words import counted
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.observing.plans import Plan

_NAMED = 5
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
    details: dict[str, str | int | float] = {
        "id": state.id,
        "seconds": round(state.ended - state.submitted, 3),
    }
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


def checkpointed(t: TopologyFacts, c: Checkpoints) -> Event | None:
    """A checkpoint was begun, completed or given up. What is as usual is not said: there may be one every second."""
    before = t.checkpoints
    assert before is not None
    if c.under_way or c.failed == before.failed != "":
        return None
    number = number_of(c.newest)
    if c.failed:
        return Event(
            c.ended,
            "checkpoint-failed",
            f"topology {t.name} has no checkpoint {number}: {c.failed}; after a crash it would go back to {_back_to(c)}",
            Severity.WARNING,
            topology=t.name,
            details={"checkpoint": number, "reason": c.failed},
        )
    done = c.complete
    if done is None or (before.complete is not None and not before.failed):
        return None
    return Event(
        c.ended,
        "checkpoint-complete",
        f"topology {t.name} has checkpoint {number}: {done.size:,} bytes in {done.ended - done.began:.2f} s",
        topology=t.name,
        details={"checkpoint": number, "bytes": done.size, "seconds": round(done.ended - done.began, 3)},
    )


def went_back(t: TopologyFacts, c: Checkpoints, now: float) -> Event:
    """A topology has gone back to its newest checkpoint."""
    age = f", {now - c.complete.began:.1f} s old" if c.complete is not None else ""
    return Event(
        now,
        "topology-went-back",
        f"topology {t.name} goes back to {_back_to(c)}{age}: {c.back}",
        Severity.WARNING,
        topology=t.name,
        details={"checkpoint": number_of(c.back_to), "generation": c.generation},
    )


def _back_to(c: Checkpoints) -> str:
    return f"checkpoint {number_of(c.back_to)}" if c.back_to else "its beginning"


def moved(t: TopologyFacts, new: Assignment, facts: Facts) -> Iterator[Event]:
    """An assignment has changed without being asked for: nodes have come, gone, or are being drained."""
    old = t.assignment
    before, after = (old.place_of() if old is not None else {}), new.place_of()
    tasks = sorted(n for n, w in after.items() if before.get(n) != w)
    if tasks:
        executors = [str(e) for e, _ in new.executors if set(e.tasks()) & set(tasks)]
        came_from = sorted({node_of(before[n]) for n in tasks if n in before})
        went_to = sorted({new.workers[after[n]].node for n in tasks})
        where = (
            f"from {', '.join(came_from)} to {', '.join(went_to)}"
            if came_from
            else f"to {', '.join(went_to)}"
        )
        yield Event(
            facts.now,
            "executors-reassigned",
            f"topology {t.name}: {counted(len(executors), 'executor')} {where}",
            Severity.WARNING if came_from else Severity.INFO,
            topology=t.name,
            details={"epoch": new.epoch, "executors": " ".join(executors), "tasks": len(tasks)},
        )
    waited = set(old.unassigned) if old is not None else set()
    # What has a place, and waits until it is gone from where it was, needs no slot.
    wanted = t.plan.assignment.place_of() if t.plan is not None else {}
    waiting = [
        str(e) for e in new.unassigned if e not in waited and not any(TaskId(n) in wanted for n in e.tasks())
    ]
    if waiting:
        yield Event(
            facts.now,
            "executors-waiting",
            f"topology {t.name}: no slot is free for {', '.join(waiting)}; {facts.more_slots()}",
            Severity.WARNING,
            topology=t.name,
            details={"epoch": new.epoch, "executors": " ".join(waiting)},
        )


def node_joined(node: NodeInfo, now: float) -> Event:
    """A node's supervisor has registered."""
    return Event(
        now,
        "node-joined",
        f"node {node.id} is there, with {counted(node.slots, 'slot')} on {node.host}",
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
        f"node {node.id} is gone, with {counted(len(workers), 'worker')}",
        Severity.WARNING,
        node=node.id,
        details={"generation": node.generation, "workers": " ".join(workers)},
    )


# --- moves


def began(record: MoveRecord) -> Event:
    """A move has been written."""
    ways = sorted({(worker_of(t.source), worker_of(t.target)) for t in record.tasks})
    where = "; ".join(f"from {a} to {b}" for a, b in ways[:4]) + (" and more" if len(ways) > 4 else "")
    more = f"; {counted(record.later, 'task')} follow after that" if record.later else ""
    return Event(
        record.began,
        "move-began",
        f"topology {record.topology}: move {record.epoch} of {counted(len(record.tasks), 'task')} {where}{more}: {record.why}",
        topology=record.topology,
        details={
            "epoch": record.epoch,
            "tasks": len(record.tasks),
            "batches": record.batches,
            "later": record.later,
            "why": record.why,
        },
    )


def paused(before: MoveRecord, after: MoveRecord, now: float) -> Iterator[Event]:
    """Further batches of a move may pause. There may be nothing left of them: all of it has gone back already."""
    tasks = [t for t in after.tasks if before.paused <= t.batch < after.paused and not t.outcome]
    if not tasks:
        return
    first, last = before.paused + 1, after.paused
    which = f"batch {first}" if first == last else f"batches {first} to {last}, one after the other,"
    yield Event(
        now,
        "move-paused",
        f"topology {after.topology}: move {after.epoch} pauses {counted(len(tasks), 'task')}, {which} of {after.batches}",
        topology=after.topology,
        details={
            "epoch": after.epoch,
            "batch": before.paused,
            "batches": after.paused - before.paused,
            "tasks": len(tasks),
        },
    )


_OF_TASK = {
    "task-moved": ("task-moved", Severity.INFO),
    "task-move-rolled-back": ("task-move-rolled-back", Severity.WARNING),
    "task-move-forward": ("task-move-forward", Severity.WARNING),
    "state-lost": ("state-lost", Severity.ERROR),
}


def of_task(record: MoveRecord, said: Say, now: float) -> Event:
    """What a move's notifier says of a task."""
    kind, severity = _OF_TASK[said.kind]
    task = next(t for t in record.tasks if t.task == said.task)
    details: dict[str, str | int | float] = {"epoch": record.epoch, "from": worker_of(task.source)}
    if kind == "state-lost":
        details.update({"tasks": str(said.task), "count": 1, "before": task.source})
    if task.reason:
        details["reason"] = task.reason
    return Event(
        now,
        kind,
        said.message,
        severity,
        topology=record.topology,
        component=task.component,
        task=task.task,
        worker=worker_of(task.target),
        details=details,
    )


def move_ended(view: MoveView) -> Event:
    """Nothing of a move is left."""
    moved = sum(1 for t in view.tasks if t.moved or t.phase == "restored")
    came_back = sum(1 for t in view.tasks if t.came_back)
    back, anew, lost = (
        sum(1 for t in view.tasks if t.phase == p) for p in ("rolled back", "started anew", "lost")
    )
    size = sum(t.size for t in view.tasks if t.phase == "committed")
    pause = max((t.pause for t in view.tasks), default=0.0)
    gap = max((t.gap for t in view.tasks), default=0.0)
    seen = f", at receivers {1000 * gap:.0f} ms" if gap else ""
    kinds = (
        (came_back, "came back"),
        (back, "stayed"),
        (anew, "started anew"),
        (lost, "lost their state"),
    )
    unhappy = "".join(f", {n} {what}" for n, what in kinds if n)
    held = f", longest pause {1000 * pause:.0f} ms" if pause else ""
    return Event(
        view.ended,
        "move-ended",
        f"topology {view.topology}: move {view.epoch} has ended: {counted(moved, 'task')} moved{unhappy}; {size:,} bytes{held}{seen}",
        Severity.WARNING if unhappy else Severity.INFO,
        topology=view.topology,
        details={
            "epoch": view.epoch,
            "tasks": len(view.tasks),
            "moved": moved,
            "came_back": came_back,
            "rolled_back": back + anew,
            "lost": lost,
            "bytes": size,
            "pause_ms": round(1000 * pause, 3),
            "gap_ms": round(1000 * gap, 3),
            "seconds": round(max(0.0, view.ended - view.began), 3),
            "why": view.why,
        },
    )


def given_up(
    t: TopologyFacts, before: Plan | None, after: Plan | None, rules: Rules, now: float
) -> Iterator[Event]:
    """Tasks that will not be tried again, unless somebody asks."""
    if after is None:
        return
    old = {f.task for f in before.failures if f.times >= rules.tries} if before is not None else set()
    new = [f for f in after.failures if f.times >= rules.tries and f.task not in old]
    if new:
        numbers = ", ".join(str(f.task) for f in new)
        first: dict[str, int] = {}
        for f in new:
            first.setdefault(f.reason, f.task)
        why = new[0].reason
        if len(first) > 1:
            why = "; ".join(f"task {n}: {reason.rstrip('.')}" for reason, n in list(first.items())[:_NAMED])
            why += f"; and {len(first) - _NAMED} more reasons" if len(first) > _NAMED else ""
        themselves = "itself" if len(new) == 1 else "themselves"
        yield Event(
            now,
            "move-given-up",
            f"topology {t.name}: {counted(len(new), 'task')} ({numbers}) will not be moved again by {themselves}: {why}",
            Severity.WARNING,
            topology=t.name,
            details={"tasks": numbers, "count": len(new), "reason": why},
        )


def awaiting(t: TopologyFacts, after: Plan | None, facts: Facts) -> Iterator[Event]:
    """Stores of nodes that moves have begun to wait for. Nothing is wrong with one that has just come with its node."""
    before = t.plan.awaited if t.plan is not None else ()
    for node in after.awaited if after is not None else ():
        if node not in before:
            info = facts.nodes.get(node)
            served = info is None or info.store_life > 0
            yield Event(
                facts.now,
                "move-waits",
                f"topology {t.name}: tasks wait to be moved until the state store of node {node} {'is back' if served else 'serves'}",
                Severity.WARNING if served else Severity.INFO,
                topology=t.name,
                node=node,
            )


def refused(topology: str, what: str, error: Refused, now: float) -> Event:
    """Something that was decided cannot be written."""
    return Event(
        now,
        "change-refused",
        f"{f'topology {topology}: ' if topology else ''}{what} cannot be written: {error.message}",
        Severity.ERROR,
        topology=topology,
        details={"what": what, "why": error.message, "remedy": error.remedy},
    )
