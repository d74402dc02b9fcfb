"""How the manager is configured, and how many worker processes a topology should have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from elastic.elasticity.base import Room, Sizing, Subject
from elastic.elasticity.guards import Patience
from elastic.elasticity.kinds import ComponentLoad
from elastic.model.ids import ComponentId
from elastic.model.parameters import parameter


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """Seed 004 (section VI.A) has a period of 10 s and a cooldown of 12 runs, because there a decision stopped the topology for about 10 s;
    here it takes a fraction of a second.
    """

    enabled: bool = parameter(True, help="Whether it runs at all.")
    dry_run: bool = parameter(False, help="Say what would be done and why, and do nothing.")
    period: float = parameter(5.0, minimum=0.1, help="Seconds between two runs (T_nbs).")
    cooldown: int = parameter(
        1, minimum=0, help="Runs for which a topology is left alone after a decision (EM_cld)."
    )
    samples: int = parameter(2, minimum=1, help="Samples that every executor of a component must have.")
    confirm_out: int = parameter(1, minimum=1, help="Runs in a row that must want more executors.")
    confirm_in: int = parameter(2, minimum=1, help="Runs in a row that must want fewer executors.")
    memory: int = parameter(
        24,
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

    Python threads of a process share one core's worth of computing, so `cores` of it need `cores / process_share` processes. There are
    fewer again only when they would fit with half that share, and never more than executors.

    Returns:
        How many it should have if there were slots, and how many it can have.
    """
    now = subject.workers
    if not config.workers or not loads:
        return now, now
    executors = sum({**subject.executors, **sizing.executors}.values())
    most = min(executors, config.max_workers or executors)
    asked = max(1, min(most, math.ceil(cores / config.process_share - 1e-9)))
    if asked > now:
        return asked, asked if room.slots < 0 else min(asked, now + room.slots)
    loose = max(1, math.ceil(cores / (0.5 * config.process_share) - 1e-9))
    fewer = max(1, min(now, loose, most))
    return fewer, fewer
