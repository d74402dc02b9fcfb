"""What stands still in a worker, and for what, by name: whose fence has not come, at which task there is no room, and why. For people.

Read while everything goes on: what is said is of about now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from elastic.migration.mover_new import MoverNew
from elastic.migration.mover_old import MoverOld
from elastic.migration.record import Phase
from elastic.migration.table import EmitterState, NewState, OldState
from elastic.migration.view import NOBODY
from elastic.model.ids import TaskId, worker_of
from elastic.worker.content.whole import has_own

if TYPE_CHECKING:
    from elastic.worker.executing.executor import Executor
    from elastic.worker.worker import Worker

NAMES = 8
"""Tasks that are named one by one."""
LONG = 1.0
"""Seconds without an end of its slice after which an executor is held up by a call into user code: a slice takes some milliseconds."""


class Wait(NamedTuple):
    """A task that takes part in a move and waits.

    Attributes:
        state: Of its part in it.
        what: What it waits for: the same words as long as it is the same.
        measured: Since when, and how much of it there is: other words each time.
    """

    task: int
    epoch: int
    state: str
    what: str
    measured: str = ""

    def __str__(self) -> str:
        return self.what + self.measured


class _Held(NamedTuple):
    """What holds an executor up: as `what` and `measured` of `Wait`."""

    what: str = ""
    measured: str = ""


def waits(worker: Worker) -> list[Wait]:
    """What the tasks that move wait for here. Those which only wait for the other side are not among them."""
    moves = worker.moves
    participant = moves.participant
    if not (participant.old or participant.new):
        return []
    found = []
    with moves.exclusive():
        roles: list[MoverOld | MoverNew] = [*participant.old.values(), *participant.new.values()]
        for role in roles:
            if isinstance(role, MoverNew) and role.state is NewState.READY and not role.gets_ready:
                continue
            held = _of_old(worker, role) if isinstance(role, MoverOld) else _Held(role.waits_for)
            if held.what:
                found.append(Wait(role.task, role.epoch, str(role.state), *held))
    return found


def blocked(worker: Worker) -> list[str]:
    """A sentence for each executor that waits for room."""
    executors = sorted({t.executor for t in list(worker.tasks.values()) if t.executor is not None}, key=str)
    return [
        f"Executor {e.id} waits for {''.join(room)}." for e in executors if (room := _room(worker, e)).what
    ]


def early(worker: Worker) -> list[str]:
    """A sentence for each link of which something has come too early, and waits for what is before it."""
    with worker.moves.exclusive():
        receivers = list(worker.moves.participant.receivers.values())
        found = [(r, r.export()) for r in receivers if r.waiting]
    return [
        f"{name_of(worker, r.target)} waits for tuple {link.seen + 1} of {name_of(worker, r.source)} (life {link.life}): "
        f"{sum(e.count for e in link.early)} that come after it are here, from {link.early[0].first} (life {link.early[0].life}) on."
        for r, link in found
    ]


def told(worker: Worker) -> str:
    """All of it, as lines; "" when nothing stands."""
    lines = [f"Task {w.task} waits in move {w.epoch} for {w}." for w in waits(worker)]
    lines += blocked(worker) + early(worker)
    return "".join(f"{line}\n" for line in lines)


def _of_old(worker: Worker, old: MoverOld) -> _Held:
    if old.state in (OldState.PREPARING, OldState.STOPPING):
        task = worker.tasks.get(old.task)
        busy = _busy(worker, task.executor) if task is not None and task.executor is not None else _Held()
        if busy.what:
            return busy._replace(what=f"its executor, which {busy.what}")
        # Whether it is user code that is asked for its size is known to its executor alone, which is within neither a tuple nor a tick.
        own = "get_state() to return, or " if task is not None and has_own(task.component) else ""
        return _Held(old.waits_for or f"{own}the stores to have room for it")
    if old.state in (OldState.DRAINING, OldState.CONFIRMING) and old.missing:
        rest = old.waits_for.partition(" and ")[2]
        return _Held(
            f"the fence of {_named(worker, sorted(old.missing))}" + (f", and {rest}" if rest else "")
        )
    return _Held(old.waits_for)


def _named(worker: Worker, tasks: Iterable[int]) -> str:
    """Emitters whose fences have not come: where they are, or why they cannot send one."""
    numbers = list(tasks)
    view = worker.moves.participant.view
    parts = []
    for number in numbers[:NAMES]:
        at = view.stands(number)
        where = f"in worker {worker_of(at.owner)}" if at.owner != NOBODY else "whom nobody runs"
        if at.phase is Phase.SAVED and at.move is not None:
            where = f"which is saved in move {at.epoch} and not restored in worker {worker_of(at.move.target)} yet"
        parts.append(f"{name_of(worker, number)} {where}")
    more = len(numbers) - NAMES
    return ", ".join(parts) + (f", and {more} more" if more > 0 else "")


def _busy(worker: Worker, executor: Executor) -> _Held:
    """What keeps an executor from whatever else is asked of it; nothing when nothing does."""
    room, task, since = _room(worker, executor), executor.emitting, executor.busy_since
    if room.what:
        return room._replace(what=f"waits for {room.what}")
    seconds = time.monotonic() - since if since else 0.0
    if task is None or seconds < LONG:
        return _Held()
    return _Held(f"is within a call into user code of {name_of(worker, task.id)}", _since(since))


def _room(worker: Worker, executor: Executor) -> _Held:
    """Where an executor waits for room, and why there is none; nothing when it doesn't."""
    target, since = executor.blocked_on, executor.blocked_since
    source = executor.emitting
    if not target or not since or source is None:
        return _Held()
    name = f"room at {name_of(worker, target)}"
    began = _since(since)
    link = worker.moves.participant.emitters.get((source.id, target))
    if link is None:
        return _Held(name, f"{began}: the link to it is being made")
    if link.state is not EmitterState.FLOWING:
        how = (
            f"stands still in move {link.epoch}"
            if link.state is EmitterState.HOLDING
            else "goes on, and takes what was held"
        )
        return _Held(name, f"{began}: it {how}, {link.rows} of {link.limit} tuples are held for it")
    if link.where == worker.incarnation:
        local = worker.tasks.get(target)
        queued = f"{local.queued} tuples are in its queue" if local is not None else "it is not here yet"
        still = ", and it stands still" if local is not None and local.stopped else ""
        return _Held(name, f"{began}: {queued}{still}")
    way = worker.ways.link(link.where)
    if way is None:
        return _Held(name, f"{began}: worker {worker_of(link.where)} is not there")
    size, rows = way.outstanding(target)
    there = "" if way.connected else ", to which there is no connection"
    return _Held(
        f"{name} in worker {worker_of(link.where)}{there}",
        f"{began}: {rows} tuples ({size} bytes) were sent to it and not taken",
    )


def _since(began: float) -> str:
    """A monotonic time as one of the day: what is said is read later, when a number of seconds would not be true any more."""
    return time.strftime(" since %H:%M:%S", time.localtime(time.time() - time.monotonic() + began))


def name_of(worker: Worker, task: int) -> str:
    """A task, with its component."""
    return f"task {task} ({worker.spec.component_of(TaskId(task)).id})"
