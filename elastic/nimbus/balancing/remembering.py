"""What is written down of decisions by load, so that the next leader goes on with it. Pure.

In memory times go by a clock of this process; written down they are seconds since 1970. Runs of a policy are counted, not timed: a leader
that takes over counts those that would have been meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elastic.elasticity.guards import Memory
from elastic.elasticity.infrastructure import Past
from elastic.model.events import Event
from elastic.model.ids import ComponentId

KEPT = 20
"""Events that are written down of each topology, of nodes, and of all topologies."""
_MOST = 1 << 30


@dataclass(frozen=True, slots=True)
class Begun:
    """A decision that is being carried out.

    Attributes:
        changes: Executors before and after, of each component that changes.
        at: Seconds since 1970.
        why: The reason that its moves bear.
    """

    changes: Mapping[ComponentId, tuple[int, int]]
    workers: int
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class TopologyMemory:
    """Of one topology.

    Attributes:
        id: Of the topology: another one may have its name by then.
        written: Seconds since 1970.
        period: Seconds between two runs.
        memory: Its `before.time` is seconds since 1970.
        told: What was decided, why, and what it has led to; the oldest first.
    """

    id: str
    written: float
    period: float = 0.0
    memory: Memory = field(default_factory=Memory)
    begun: Begun | None = None
    told: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class NodesMemory:
    """Of nodes.

    Attributes:
        grown, returned: When nodes were asked for and returned last, seconds since 1970; None: never.
        told: As in `TopologyMemory`.
    """

    grown: float | None = None
    returned: float | None = None
    told: tuple[Event, ...] = ()


def lasting(memory: Memory, now: float, wall: float) -> Memory:
    """A memory as it is written down.

    Args:
        now: Seconds by the clock of this process.
        wall: The same moment in seconds since 1970.
    """
    return _shifted(memory, wall - now)


def recalled(written: TopologyMemory, now: float, wall: float) -> Memory:
    """The memory as it is by now, in the terms of this process's clock."""
    elapsed = max(0.0, wall - written.written)
    runs = min(_MOST, int(elapsed / written.period)) if written.period > 0 else 0
    return _shifted(written.memory, now - wall).later(runs)


def past_of(written: NodesMemory, now: float, wall: float) -> Past:
    """When nodes were asked for and returned, by the clock of this process. How long one was not needed is looked at anew."""
    never = -math.inf
    grown, returned = (never if t is None else t + now - wall for t in (written.grown, written.returned))
    return Past(grown=grown, returned=returned)


def nodes_memory(past: Past, told: tuple[Event, ...], now: float, wall: float) -> NodesMemory:
    """The opposite of `past_of`."""
    grown, returned = (None if math.isinf(t) else t + wall - now for t in (past.grown, past.returned))
    return NodesMemory(grown, returned, told)


def _shifted(memory: Memory, seconds: float) -> Memory:
    before = memory.before
    return memory if before is None else replace(memory, before=replace(before, time=before.time + seconds))
