"""What the record says against what was killed: which of it a kill may have cost, and whether it was said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from chaos.rounds import Kill

SLACK = 15_000_000_000
"""Nanoseconds before a hole's last arrival in which the kill may lie that made it: tuples that had passed it were still on their way."""
BACKLOG = 45_000_000_000
"""The same of a spout that begins anew, beyond that: what it had emitted may be worked off for long after it was killed, in a flood."""
NEVER = (
    "tuples-lost",
    "tuples-doubled",
    "executor-failed",
    "tuple-failed",
    "batch-unreadable",
    "frame-unreadable",
    "topology-failed",
)
"""Kinds of events that no kill accounts for."""


def judge(
    report: dict[str, Any],
    events: Sequence[dict[str, Any]],
    kills: Sequence[Kill],
    *,
    cost: bool,
    beyond: Collection[str] = (),
) -> list[str]:
    """Everything that is not as it was promised; empty when all is.

    Args:
        report: Of `chaos.check --json`.
        events: Of this topology.
        cost: Whether there were kills that may cost something; without, nothing is allowed at all.
        beyond: Nodes that were cut off: their workers may have ended with their session.
    """
    wrong: list[str] = []
    costly = [k for k in kills if k.owned] if cost else []
    for key in report["keys"].values():
        path = {int(str(key["key"]).split(".")[0]), *key["path"]}
        wrong += [f"{key['key']}: {a['n']} came again" for a in key["doubled"][:5]]
        wrong += [f"{key['key']}: {a['n']} came late" for a in key["reordered"][:5]]
        wrong += [f"{key['key']}: the state at {a['n']} is none that there was" for a in key["mixed"][:5]]
        for hole in key["lost"]:
            if not _accounted(costly, path, hole["after"], hole["before"]):
                wrong.append(f"{key['key']} by {sorted(path)}: {hole['first']} to {hole['last']} are lost")
        for f in key["forgotten"]:
            if not _accounted(costly, path, f["after"], f["at"]):
                wrong.append(
                    f"{key['key']} by {sorted(path)}: its state had counted {f['count']} instead of {f['expected']}"
                )
        spout = {int(str(key["key"]).split(".")[0])}
        if key["emitted"] < 0 and not _accounted(costly, spout, key["last"] - BACKLOG, 0):
            wrong.append(f"{key['key']}: its spout began anew, and nothing of its own was killed")
    wrong += [f"two at once: {o}" for o in report["overlaps"]]
    recounts: dict[int, list[str]] = {}
    for recount in report["recounts"]:
        recounts.setdefault(int(recount.split(":")[0].removeprefix("sink ")), []).append(recount)
    for sink, found in recounts.items():
        could = sum(sink in k.owned for k in costly)  # one life begins anew for each of them, at most
        wrong += found[could:]
    wrong += [f"unknown: {u}" for u in report["unknown"]]
    if not report["keys"]:
        wrong.append("nothing has arrived")
    stood_still = {w for k in kills if k.round.frozen for w in k.workers}
    return wrong + _events(events, costly, beyond, stood_still)


def _accounted(costly: Sequence[Kill], path: set[int], after: int, before: int) -> bool:
    """Whether a kill took something of a task on the way, at such a time."""
    return any(k.owned & path and k.done >= after - SLACK and (not before or k.at <= before) for k in costly)


def _events(
    events: Sequence[dict[str, Any]],
    costly: Sequence[Kill],
    beyond: Collection[str],
    stood_still: Collection[str],
) -> list[str]:
    wrong = []
    said: dict[int, int] = {}
    when: dict[int, list[float]] = {}
    for event in events:
        kind, details = event["kind"], event.get("details", {})
        if kind in NEVER:
            wrong.append(f"{kind} was said: {event['message'][:200]}")
        elif kind == "state-lost":
            for task in (int(t) for t in str(details.get("tasks", "")).split(",") if t.strip()):
                said[task] = said.get(task, 0) + 1
                when.setdefault(task, []).append(float(event.get("time", 0)))
        elif (
            kind == "worker-lost"
            and details.get("signal") != "SIGKILL"
            and event.get("node") not in beyond
            and event.get("worker") not in stood_still
        ):
            wrong.append(f"a worker ended that nobody killed: {event['message'][:200]}")
    for task, times in sorted(said.items()):
        could = sum(task in k.owned for k in costly)
        if times > could:
            wrong.append(f"the state of task {task} was lost {times} times, and killed {could} times")
    for kill in costly:
        for task in sorted(kill.surely):
            later = [k.clock for k in costly if k.clock > kill.clock and task in k.owned]
            until = min(later, default=float("inf"))
            if not any(kill.clock - 0.5 <= at < until for at in when.get(task, ())):
                wrong.append(
                    f"the state of task {task} went with its process ({kill.round}), and that was not said"
                )
    return wrong
