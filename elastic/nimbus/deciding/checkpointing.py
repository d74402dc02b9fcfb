"""When a checkpoint begins, and when it is complete: `step(topology, now)`. No clock, no thread, no storage.

    IDLE -> (due, and every task runs in this generation) -> COPYING, where states are large; else TAKING
    COPYING -> (workers have copied ahead, or it has taken long) -> TAKING
    TAKING -> (stores have a snapshot of every task) -> IDLE, with that as the one to go back to
    COPYING, TAKING -> (a worker says that one will not come; or it has taken too long) -> IDLE, with the one before

That a topology goes back is not decided here: a worker does it that is about to begin a task which a process had that is no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from types import MappingProxyType

from elastic.api.settings import setting
from elastic.migration.plan import AHEAD
from elastic.model.checkpoints import INTERVAL, TIMEOUT, Checkpoints, merged
from elastic.model.ids import TaskId
from elastic.model.records import TopologyStatus
from elastic.nimbus.observing.facts import TopologyFacts

_NAMED = 3
AGAIN = 1.0
"""Seconds after which one that was given up is taken again, at most."""
COPYING = 10.0
"""Seconds that are waited for states to be copied ahead: what is missing then is read when the checkpoint comes through."""
PATIENCE = 10.0
"""Seconds that one waits for tasks to be where they move to: a task that comes to others which have passed it would have it given up."""


def step(
    t: TopologyFacts, now: float, sizes: Mapping[TaskId, int] = MappingProxyType({})
) -> Checkpoints | None:
    """What is to be written of its checkpoints now; None: nothing.

    Args:
        sizes: Bytes of state by task, as far as workers have reported them.
    """
    c = t.checkpoints
    if c is None or not t.running:
        return None
    if c.under_way:
        return _going_on(t, c, now)
    due = _due(t, c)
    if t.state.status is not TopologyStatus.ACTIVE or now < due or not _all_run(t, c):
        return None
    if t.moving and now < due + PATIENCE:
        return None
    begun = c.begun(now)
    return begun if max(sizes.values(), default=0) >= AHEAD else begun.through()


def deadlines(t: TopologyFacts) -> Iterator[float]:
    """When `step` may say something else although nothing else has changed."""
    c = t.checkpoints
    if c is not None:
        due = _due(t, c)
        limit = c.began + float(setting(TIMEOUT, t.spec.config))
        yield from (limit, c.began + COPYING) if c.under_way else (due, due + PATIENCE)


def _due(t: TopologyFacts, c: Checkpoints) -> float:
    interval = float(setting(INTERVAL, t.spec.config))
    if c.failed:
        return c.ended + min(interval, AGAIN)
    # From when one began to when the next one does, unless that is not over then.
    return max((c.began or t.state.submitted) + interval, c.ended)


def _all_run(t: TopologyFacts, c: Checkpoints) -> bool:
    """Whether every task has begun, in this generation: one that has not would not hear of it."""
    if t.assignment is None or t.assignment.unassigned:
        return False
    wanted = {w for _, w in t.assignment.executors}
    return all(t.begun(w) and t.workers[w].generation == c.generation for w in wanted)


def _going_on(t: TopologyFacts, c: Checkpoints, now: float) -> Checkpoints | None:
    by_worker = {
        w: p.taken for w, p in t.progress.items() if p.taken is not None and p.taken.ticket == c.newest
    }
    said = by_worker.values()
    failed = next((s.failed for s in said if s.failed), "")
    if failed:
        return c.given_up(failed, now)
    if c.copying:
        ready = {w for w, s in by_worker.items() if s.ready}
        wanted = {w for _, w in t.assignment.executors} if t.assignment is not None else set()
        return c.through() if wanted <= ready or now >= c.began + COPYING else None
    have = {task for s in said for stored in s.stored for task in stored.tasks}
    if len(have) >= t.spec.task_count:
        return c.completed(merged(one for s in said for one in s.stored), sum(s.size for s in said), now)
    limit = float(setting(TIMEOUT, t.spec.config))
    if now < c.began + limit:
        return None
    return c.given_up(f"it was not complete after {limit:g} s: there is nothing of {_missing(t, have)}", now)


def _missing(t: TopologyFacts, have: set[int]) -> str:
    """The tasks of which there is no snapshot, for people."""
    missing = [n for n in range(1, t.spec.task_count + 1) if n not in have]
    of = groupby(missing, lambda n: str(t.spec.component_of(TaskId(n)).id))
    parts = []
    for component, tasks in of:
        numbers = list(tasks)
        more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
        parts.append(f"{component} ({', '.join(map(str, numbers[:_NAMED]))}{more})")
    return ", ".join(parts)
