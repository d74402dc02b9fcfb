"""Domain values as plain values: the schema of `-o json` and `-o yaml`, which `docs/cli.md` documents.

Only names and numbers that stay are here: what is added later is added at the end of a mapping, nothing is renamed.
"""

from __future__ import annotations

from typing import Any

from elastic.model.events import Event
from elastic.model.views import (
    STEPS,
    CheckpointView,
    ComponentView,
    ExecutorView,
    MoveTotals,
    MoveView,
    NodeSummary,
    TaskMoveView,
    TopologyDetail,
    TopologySummary,
    TrafficView,
    WorkerView,
)

Plain = dict[str, Any]


def topology(summary: TopologySummary) -> Plain:
    """One element of `elastic list`."""
    return {
        "name": str(summary.name),
        "id": summary.id,
        "status": str(summary.status.value),
        "uptime": round(summary.uptime, 3),
        "submitted": summary.submitted,
        "workers": summary.workers,
        "executors": summary.executors,
        "tasks": summary.tasks,
        "unassigned": summary.unassigned,
        "reason": summary.reason,
    }


def component(view: ComponentView) -> Plain:
    """One component while it runs."""
    return {
        "id": str(view.id),
        "kind": view.kind,
        "stateful": view.stateful,
        "executors": view.executors,
        "tasks": view.tasks,
        "finished": view.finished,
        "executed": view.executed,
        "emitted": view.emitted,
        "failed": view.failed,
        "queued": view.queued,
        "held": view.held,
        "executed_rate": round(view.executed_rate, 3),
        "emitted_rate": round(view.emitted_rate, 3),
        "failed_rate": round(view.failed_rate, 3),
        "busy": round(view.busy, 4),
        "blocked": round(view.blocked, 4),
        "metrics": dict(view.custom),
        "state": view.state,
    }


def executor(view: ExecutorView) -> Plain:
    """One executor: its place and its load."""
    return {
        "id": view.id,
        "component": str(view.component),
        "first_task": view.first,
        "last_task": view.last,
        "node": view.node,
        "worker": view.worker,
        "queued": view.queued,
        "held": view.held,
        "executed_rate": round(view.executed_rate, 3),
        "emitted_rate": round(view.emitted_rate, 3),
        "busy": round(view.busy, 4),
        "blocked": round(view.blocked, 4),
        "idle": round(view.idle, 4),
        "cpu": round(view.cpu, 4),
        "state": view.state,
    }


def traffic(view: TrafficView) -> Plain:
    """What executors send each other, per second."""
    return {
        "tuples": round(view.tuples, 3),
        "between_workers": round(view.between_workers, 3),
        "between_nodes": round(view.between_nodes, 3),
        "bytes": round(view.bytes, 3),
        "pairs": [
            {"source": p.source, "target": p.target, "tuples": round(p.tuples, 3), "bytes": round(p.bytes, 3)}
            for p in view.pairs
        ],
    }


def worker(view: WorkerView) -> Plain:
    """One worker: its place and its present life."""
    return {
        "worker": str(view.worker),
        "node": str(view.node),
        "slot": view.slot,
        "alive": view.alive,
        "pid": view.pid,
        "address": view.address,
        "epoch": view.epoch,
        "executors": view.executors,
        "uptime": round(view.uptime, 3),
        "restarts": view.restarts,
        "memory": view.rss,
        "cpu": round(view.cpu, 4),
    }


def node(summary: NodeSummary) -> Plain:
    """One element of `elastic nodes list`."""
    return {
        "node": str(summary.id),
        "status": node_status(summary),
        "kind": summary.kind,
        "host": summary.host,
        "slots": summary.slots,
        "used": summary.used,
        "workers": [str(w) for w in summary.workers],
        "generation": summary.generation,
        "address": summary.address,
        "pid": summary.pid,
        "cores": round(summary.cores, 3),
        "cpu": round(summary.cpu, 4),
        "memory": summary.memory,
    }


def node_status(summary: NodeSummary) -> str:
    """alive, draining, starting (wanted, not there yet) or gone."""
    if summary.draining:
        return "draining"
    if summary.alive:
        return "alive"
    return "starting" if summary.wanted else "gone"


def event(what: Event) -> Plain:
    """One event."""
    return {
        "time": what.time,
        "kind": what.kind,
        "severity": str(what.severity.value),
        "message": what.message,
        "topology": what.topology,
        "component": what.component,
        "task": what.task,
        "worker": what.worker,
        "node": what.node,
        "details": dict(what.details),
    }


def move(view: MoveView) -> Plain:
    """One element of `elastic moves`."""
    done = [t for t in view.tasks if t.phase == "committed"]
    return {
        "topology": str(view.topology),
        "epoch": view.epoch,
        "why": view.why,
        "state": view.state,
        "began": view.began,
        "ended": view.ended,
        "moved": sum(1 for t in view.tasks if t.moved),
        "came_back": sum(1 for t in view.tasks if t.came_back),
        "rolled_back": sum(1 for t in view.tasks if t.went_back),
        "lost": sum(1 for t in view.tasks if t.phase == "lost"),
        "size": sum(t.size for t in done),
        "pause": round(max((t.pause for t in view.tasks), default=0.0), 6),
        "gap": round(max((t.gap for t in view.tasks), default=0.0), 6),
        "tasks": [task_move(t) for t in view.tasks],
        "waits": list(view.waits),
    }


def task_move(view: TaskMoveView) -> Plain:
    """One task's part of a move."""
    return {
        "task": view.task,
        "component": str(view.component),
        "source": str(view.source),
        "target": str(view.target),
        "phase": view.phase,
        "attempt": view.attempt,
        "reason": view.reason,
        "size": view.size,
        "pause": round(view.pause, 6),
        "gap": round(view.gap, 6),
        "times": {s: view.times[s] for s in STEPS if s in view.times},
    }


def move_totals(view: MoveTotals) -> Plain:
    """What the moves of a topology that have ended came to."""
    return {
        "moves": view.moves,
        "committed": view.committed,
        "rolled_back": view.rolled_back,
        "lost": view.lost,
        "size": view.size,
        "pauses": dict(view.pauses),
        "pause_sum": round(view.pause_sum, 6),
        "pause_max": round(view.pause_max, 6),
        "gaps": dict(view.gaps),
        "gap_sum": round(view.gap_sum, 6),
        "gap_max": round(view.gap_max, 6),
    }


def placement(detail: TopologyDetail) -> Plain:
    """The answer of `elastic get`."""
    return {
        **topology(detail.summary),
        "epoch": int(detail.assignment.epoch),
        "placement": [
            {
                "worker": str(w),
                "node": str(slot.node),
                "slot": slot.slot,
                "executors": [str(e) for e in detail.assignment.executors_of(w)],
            }
            for w, slot in sorted(detail.assignment.workers.items())
        ],
        "waiting": [str(e) for e in detail.assignment.unassigned],
    }


def description(detail: TopologyDetail) -> Plain:
    """The answer of `elastic describe`."""
    groupings = {
        str(c.id): [
            {"source": str(i.source), "stream": str(i.stream), "grouping": str(i.grouping)} for i in c.inputs
        ]
        for c in detail.spec.components
    }
    return {
        **topology(detail.summary),
        "epoch": int(detail.assignment.epoch),
        "bundle": detail.state.bundle,
        "config": {**detail.spec.config, **detail.state.settings},
        "components": [{**component(c), "inputs": groupings.get(str(c.id), [])} for c in detail.components],
        "executor_list": [executor(e) for e in detail.executors],
        "worker_list": [worker(w) for w in detail.workers],
        "errors": [event(e) for e in detail.errors],
        "waits": list(detail.waits),
        "moves": [move(m) for m in detail.moves],
        "moved": move_totals(detail.moved),
        "policy": detail.policy,
        "decided": [event(e) for e in detail.decided],
        "traffic": traffic(detail.traffic),
        "checkpoints": checkpoints(detail.checkpoints),
    }


def checkpoints(view: CheckpointView) -> dict[str, object]:
    """The checkpoints of a topology."""
    return {
        "interval": view.interval or None,
        "number": view.number,
        "began": view.began or None,
        "seconds": view.seconds,
        "bytes": view.size,
        "taking": view.taking or None,
        "failed": view.failed,
        "went_back": view.back,
    }
