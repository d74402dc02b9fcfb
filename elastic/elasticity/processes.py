"""How the manager is configured, and how many worker processes a topology should have."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elastic.elasticity.base import Reason, Room, Sizing, Subject
from elastic.elasticity.guards import Patience
from elastic.elasticity.kinds import FULL_PROCESS, ComponentLoad
from elastic.model.ids import ComponentId
from elastic.model.loadview import LoadView
from elastic.model.parameters import parameter

_CROSSED = 1.1
"""So much more than there is room for must be wanted before there are more processes."""
_LOOSE = 0.5
"""Of what a process may get, as much must be enough before there are fewer."""
_TIGHT = 0.85
"""The same when there are to be fewer executors as well."""
_FEWER = 0.75
"""To so small a part must their number shrink before there are fewer."""
NOTICED = 0.05
"""Cores of an executor whose place matters."""
WORTH = 0.1
"""Cores by which the fullest process must become emptier by more processes."""


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """Elastic Storm (2016), section VI.A, has a period of 10 s and a cooldown of 12 runs, because there a decision stopped the topology
    for about 10 s; here it takes a fraction of a second.
    """

    enabled: bool = parameter(True, help="Whether it runs at all.")
    dry_run: bool = parameter(False, help="Say what would be done and why, and do nothing.")
    period: float = parameter(5.0, minimum=0.1, maximum=86_400, help="Seconds between two runs (T_nbs).")
    cooldown: int = parameter(
        1, minimum=0, help="Runs for which a topology is left alone after a decision (EM_cld)."
    )
    samples: int = parameter(2, minimum=1, help="Samples that every executor of a component must have.")
    confirm_out: int = parameter(1, minimum=1, help="Runs in a row that must want more executors.")
    confirm_in: int = parameter(1, minimum=1, help="Runs in a row that must want fewer executors.")
    memory: int = parameter(
        6,
        minimum=0,
        help="A scale-in that is undone within so many runs doubles the runs that the next one must be wanted; 0: never.",
    )
    defer: int = parameter(1, minimum=0, help="Runs that a policy may wait for a load that is just changing.")
    workers: bool = parameter(True, help="Whether it also decides the number of worker processes.")
    process_share: float = parameter(
        0.6, minimum=0.05, maximum=1.0, help="Cores of computing that one worker process gets."
    )
    max_workers: int = parameter(0, minimum=0, help="Worker processes of a topology at most; 0: no bound.")

    @property
    def patience(self) -> Patience:
        return Patience(self.confirm_out, self.confirm_in, self.memory)


def workers_for(
    subject: Subject,
    sizing: Sizing,
    loads: Mapping[ComponentId, ComponentLoad],
    cores: float,
    room: Room,
    config: ManagerConfig,
) -> tuple[int, int]:
    """How many worker processes a topology should have.

    Python threads of a process share one core's worth of computing, so `cores` of it need `cores / process_share` processes, and no
    process should get executors that together have more than that to do: who waits for the lock is as late as who waits in a queue. There
    are fewer again only when everything would fit with half of that, or with `_TIGHT` of it when the load has gone down so far that there
    are fewer executors; and never more than executors.

    Returns:
        How many it should have if there were slots, and how many it can have.
    """
    now = subject.workers
    if not (config.workers and subject.processes) or not loads:
        return now, now
    executors = {**subject.executors, **sizing.executors}
    uses = {
        id: sizing.cores.get(id, load.cpu) / max(1, executors[id])
        for id, load in loads.items()
        if id in executors
    }
    sizes = [(use, executors[id]) for id, use in uses.items()]
    total = sum(executors.values())
    most = min(total, config.max_workers or total)

    def enough(looseness: float) -> int:
        by_cores = math.ceil(cores / (config.process_share * looseness) - 1e-9)
        by_size = bins(sizes, config.process_share * looseness)
        return max(1, min(most, max(by_cores, by_size)))

    asked = enough(1.0) if enough(_CROSSED) > now else now
    # One executor that does nearly all cannot be divided: a process for the others is no relief.
    if asked > now and fullest(sizes, asked) <= fullest(sizes, now) - WORTH:
        possible = asked if room.slots < 0 else min(asked, now + room.slots)
        # More processes than cores would wait for these instead of the lock.
        return asked, possible if room.cores <= 0 else min(possible, max(now, math.ceil(room.cores)))
    shrinks = any(n < subject.executors.get(id, n) for id, n in sizing.executors.items())
    loose = enough(_TIGHT if shrinks else _LOOSE)
    fewer = max(1, min(now, most, loose if loose <= _FEWER * now else now))
    return fewer, fewer


def crowded(view: LoadView, subject: Subject) -> Reason | None:
    """Why executors should be placed anew although there are enough: a process is full, and another has room for one of its executors."""
    mine = {id: w for id, w in view.workers.items() if id.rpartition("@")[0] == subject.name}
    if not mine:
        return None
    room, other = min((w.cpu, id) for id, w in mine.items())
    for id, worker in sorted(mine.items()):
        if worker.cpu < FULL_PROCESS or len(worker.executors) < 2:
            continue
        parts = [
            view.executors[k].cpu
            for k in worker.executors
            if k in view.executors and view.executors[k].cpu >= NOTICED
        ]
        if len(parts) < 2:
            continue
        part = min(parts)
        if room + part <= FULL_PROCESS and room + part <= worker.cpu - NOTICED:
            return Reason(
                "crowded",
                f"the executors of {id} share {worker.cpu:.2f} cores of one process, and {other} uses {room:.2f}: "
                "they are to be placed anew",
                topology=subject.name,
                warning=False,
                details={
                    "measure": "cpu",
                    "value": round(worker.cpu, 4),
                    "threshold": FULL_PROCESS,
                    "worker": id,
                    "other": other,
                },
            )
    return None


def fullest(sizes: Sequence[tuple[float, int]], processes: int) -> float:
    """Cores that the fullest of so many processes has, the largest executors being dealt first and each to the emptiest.

    Args:
        sizes: (cores of an executor, how many such executors).
    """
    loads = [0.0] * processes
    for size, number in sorted(sizes, reverse=True):
        for _ in range(number if size > 0 else 0):
            heapq.heapreplace(loads, loads[0] + size)
    return max(loads)


def bins(sizes: Sequence[tuple[float, int]], room: float) -> int:
    """How many bins it takes, the largest first and each into the first that has room. What is larger than a bin gets one for itself.

    Args:
        sizes: (size, how many of it).
    """
    open: list[tuple[float, int]] = []  # (room left, how many such bins)
    for size, number in sorted(sizes, reverse=True):
        if size <= 0:
            continue
        rest: list[tuple[float, int]] = []
        for left, count in [*open, (room, number)]:
            each = max(int(left / size + 1e-9), int(left >= room))
            filled = min(count, -(-number // each)) if each and number else 0
            if filled:
                full, odd = divmod(min(number, filled * each), each)
                rest += [(max(0.0, left - each * size), full)] if full else []
                rest += [(max(0.0, left - odd * size), 1)] if odd else []
                number -= full * each + odd
                count -= filled
            if count and left < room:
                rest.append((left, count))
        open = rest
    return sum(count for _, count in open)
