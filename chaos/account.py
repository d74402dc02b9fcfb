"""What the record says against what was killed: which of it a kill may have cost, and whether it was said."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.findings import Recount
from chaos.rounds import Kill

SLACK = 15_000_000_000
"""Nanoseconds before a hole's last arrival in which the kill may lie that made it: tuples that had passed it were still on their way. And
as much longer as a task that moved stood still: what waited for it when it was saved arrives after that."""
BACKLOG = 45_000_000_000
"""The same of a spout that begins anew, beyond that: what it had emitted may be worked off for long after it was killed, in a flood."""
LATER = 60.0
"""Seconds in which a worker that was frozen may end by itself, once it has gone on and everybody has been waited for."""
EARLY = 0.5
"""Seconds that what follows from a kill may seem to come before it: its time was taken by another process."""
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
GIVEN_UP = "move-given-up"
"""The kind that no kill accounts for which costs nothing: of what it fails, the next attempt comes through."""


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
    costs = _Costs([k for k in kills if k.owned] if cost else [], _said(events), _longest_pause(events))
    for key in report["keys"].values():
        name, spout = key["key"], _spout(key)
        path = {spout, *key["tasks"], *key["sinks"]}
        wrong += [f"{name}: {a['n']} came again" for a in key["doubled"][:5]]
        wrong += [f"{name}: {a['n']} came late" for a in key["reordered"][:5]]
        wrong += [f"{name}: the state at {a['n']} is none that there was" for a in key["mixed"][:5]]
        for hole in key["lost"]:
            if not costs.may(path, hole["after"], hole["before"]):
                wrong.append(f"{name} by {sorted(path)}: {hole['first']} to {hole['last']} are lost")
        for f in key["forgotten"]:
            if not costs.forgotten(f):
                wrong.append(
                    f"{name} by {sorted(path)}: its state had counted {f['count']} instead of {f['expected']},"
                    f" with {f['hole']} lost"
                )
    wrong += costs.without(_begun_anew(report["keys"].values()))
    wrong += [f"two at once: {o}" for o in report["overlaps"]]
    # What goes with its process begins at nothing: no kill accounts for another count.
    recounts = [Recount(**r) for r in report["recounts"]]
    wrong += [str(r) for r in recounts if r.already]
    wrong += costs.without(_Loss(r.sink, r.after, r.first, str(r)) for r in recounts if not r.already)
    wrong += [f"another task: {s}" for s in report["strayed"]]
    wrong += [f"never emitted: {i}" for i in report["invented"]]
    wrong += [f"unknown: {u}" for u in report["unknown"]]
    if not report["keys"]:
        wrong.append("nothing has arrived")
    never = (*NEVER, *(() if cost else (GIVEN_UP,)))
    wrong += [f"{e['kind']} was said: {e['message'][:200]}" for e in events if e["kind"] in never]
    return [*wrong, *_ended(events, kills, beyond), *costs.said_wrongly()]


@dataclass(frozen=True)
class _Loss:
    """The state of a task that was gone once: between two times in monotonic nanoseconds, the later of which is 0 when there is none."""

    task: int
    after: int
    before: int
    what: str


class _Costs:
    """What kills may have cost.

    Args:
        kills: Those that may have cost something.
        said: When the state of which task was said to be lost, in seconds since 1970.
        stood: For how many nanoseconds a task stood still at most.
    """

    def __init__(self, kills: Sequence[Kill], said: dict[int, list[float]], stood: int) -> None:
        self._kills = kills
        self._said = said
        self._slack = SLACK + stood

    def may(self, path: Collection[int], after: int, before: int) -> bool:
        """Whether one of them took something of a task on the way, at such a time."""
        return any(not k.owned.isdisjoint(path) and self._then(k, after, before) for k in self._kills)

    def forgotten(self, found: dict[str, Any]) -> bool:
        """Whether one of them accounts for that count.

        There are no checkpoints. A state that went with its process begins at nothing, and what it has counted since and has not arrived
        is lost. One that is alive has counted all that was lost behind it, and nothing else.
        """
        count, hole, after, at = found["count"], found["hole"], found["after"], found["at"]
        if count <= hole and any(
            self._then(k, after, at) and self._heard(k, found["task"]) for k in self._kills
        ):
            return True
        return 0 < count - found["expected"] == hole and self.may({found["sink"]}, after, at)

    def without(self, losses: Iterable[_Loss]) -> list[str]:
        """What is left of them when each kill accounts for one of each task of its own, of which it was said."""
        left = list(losses)
        for kill in sorted(self._kills, key=lambda k: k.at):
            for task in kill.owned:
                could = [x for x in left if x.task == task and self._then(kill, x.after, x.before)]
                if could and self._heard(kill, task):
                    left.remove(min(could, key=lambda x: x.before or float("inf")))
        return [x.what for x in left]

    def said_wrongly(self) -> list[str]:
        """States that were said to be lost more often than they were killed, and those of which it was not said."""
        wrong = []
        for task, times in sorted(self._said.items()):
            could = sum(task in k.owned for k in self._kills)
            if len(times) > could:
                wrong.append(
                    f"the state of task {task} was lost {len(times)} times, and killed {could} times"
                )
        for kill in self._kills:
            wrong += [
                f"the state of task {task} went with its process ({kill.round}), and that was not said"
                for task in sorted(kill.surely)
                if not self._heard(kill, task)
            ]
        return wrong

    def _heard(self, kill: Kill, task: int) -> bool:
        """Whether it was said that the state of this task went with that kill, which owned it."""
        if task not in kill.owned:
            return False
        later = [k.clock for k in self._kills if k.clock > kill.clock and task in k.owned]
        until = min(later, default=float("inf"))
        return kill.unheard or any(kill.clock - EARLY <= at < until for at in self._said.get(task, ()))

    def _then(self, kill: Kill, after: int, before: int) -> bool:
        return kill.done >= after - self._slack and (not before or kill.at <= before)


def _longest_pause(events: Iterable[dict[str, Any]]) -> int:
    """Of all moves, as they were told, in nanoseconds."""
    ended = (e.get("details", {}) for e in events if e["kind"] == "move-ended")
    return round(max((float(d.get("pause_ms", 0)) for d in ended), default=0.0) * 1e6)


def _spout(key: dict[str, Any]) -> int:
    return int(str(key["key"]).split(".")[0])


def _begun_anew(keys: Iterable[dict[str, Any]]) -> Iterator[_Loss]:
    """The lives of spouts' tasks that came to no end: each until something of the next one arrived."""
    lives: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for key in keys:
        lives.setdefault((_spout(key), int(str(key["key"]).split(".")[1], 16)), []).append(key)
    first = {
        life: min(k["first"] for k in of if k["arrived"])
        for life, of in lives.items()
        if any(k["arrived"] for k in of)
    }
    for (spout, life), of in lives.items():
        if any(k["emitted"] < 0 for k in of):
            later = [other for task, other in first if task == spout and other > life]
            before = first[spout, min(later)] if later else 0
            yield _Loss(
                spout,
                max(k["last"] for k in of) - BACKLOG,
                before,
                f"{spout}.{life:x}: its spout began anew, and nothing of its own was killed of which that was said",
            )


def _said(events: Iterable[dict[str, Any]]) -> dict[int, list[float]]:
    """When the state of each task was said to be lost."""
    said: dict[int, list[float]] = {}
    for event in events:
        if event["kind"] == "state-lost":
            for task in str(event.get("details", {}).get("tasks", "")).split(","):
                if task.strip():
                    said.setdefault(int(task), []).append(float(event.get("time", 0)))
    return said


def _ended(events: Iterable[dict[str, Any]], kills: Sequence[Kill], beyond: Collection[str]) -> Iterator[str]:
    """Workers that ended and were not killed. One that was frozen ends by itself when it goes on."""
    frozen = [k for k in kills if k.round.frozen]
    for event in events:
        if event["kind"] != "worker-lost" or event.get("details", {}).get("signal") == "SIGKILL":
            continue
        at, worker = float(event.get("time", 0)), event.get("worker")
        stood_still = any(
            worker in k.workers and k.clock - EARLY <= at <= k.clock + (k.done - k.at) / 1e9 + LATER
            for k in frozen
        )
        if not stood_still and event.get("node") not in beyond:
            yield f"a worker ended that nobody killed: {event['message'][:200]}"
