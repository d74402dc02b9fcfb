"""Checkpoints of a topology: which is the newest, and where it lies. What recovery from a crash is a function of.

Each has a *ticket*: twice its number, and its slot. There are two slots, as the newest complete checkpoint stays until the next one is, and
what is written takes the place of the one before that. A ticket is what marks carry through the streams, and the epoch in the state stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from elastic.model.ids import NodeId, TopologyName

INTERVAL, TIMEOUT, COPIES = "checkpoint_interval", "checkpoint_timeout", "checkpoint_copies"
"""The settings."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the snapshots of some tasks lie.

    Attributes:
        nodes: Each of their stores has all of them.
        tasks: Ascending.
    """

    nodes: tuple[NodeId, ...]
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What one worker says of the checkpoint that is being taken.

    Attributes:
        stored: The snapshots that stores have confirmed.
        size: Bytes of these.
        failed: Why there will be none of a task, or "".
        ready: What can be copied ahead of its tasks' states is.
    """

    ticket: int
    stored: tuple[Stored, ...] = ()
    size: int = 0
    failed: str = ""
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Complete:
    """A checkpoint of all tasks.

    Attributes:
        began, ended: Seconds since 1970.
        size: Bytes of all snapshots, without copies.
    """

    ticket: int
    began: float
    ended: float
    size: int
    stored: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Of one topology that takes any.

    Attributes:
        id: Tells this topology from earlier ones of its name, whose snapshots a store may still have.
        generation: Grows whenever the topology goes back to its newest complete checkpoint. A worker process is of one generation.
        newest: The ticket of the newest that was begun; 0: none was.
        began, ended: When that was, and when it was complete or given up (seconds since 1970).
        copying: Whether large states are being copied ahead for it, while their tasks go on.
        taking: Whether it is on its way through the streams.
        failed: Why the last one that ended was given up, or "".
        back: Why the topology has gone back last, or "".
    """

    id: str
    generation: int = 1
    newest: int = 0
    began: float = 0.0
    ended: float = 0.0
    copying: bool = False
    taking: bool = False
    complete: Complete | None = None
    failed: str = ""
    back: str = ""

    @property
    def back_to(self) -> int:
        """The ticket of the newest complete one; 0: there is none, and the topology would go back to its beginning."""
        return self.complete.ticket if self.complete is not None else 0

    @property
    def under_way(self) -> bool:
        """Whether one is being taken."""
        return self.copying or self.taking

    def begun(self, now: float) -> Checkpoints:
        """With the next one begun."""
        slot = 1 - slot_of(self.back_to) if self.back_to else 0
        ticket = 2 * (number_of(self.newest) + 1) + slot
        return replace(self, newest=ticket, began=now, copying=True)

    def through(self) -> Checkpoints:
        """With the newest one on its way through the streams."""
        return replace(self, copying=False, taking=True)

    def completed(self, stored: tuple[Stored, ...], size: int, now: float) -> Checkpoints:
        """With the newest one complete."""
        complete = Complete(self.newest, self.began, now, size, stored)
        return replace(self, ended=now, taking=False, complete=complete, failed="")

    def given_up(self, why: str, now: float) -> Checkpoints:
        """With the newest one given up."""
        return replace(self, ended=now, copying=False, taking=False, failed=why)

    def gone_back(self, why: str, now: float) -> Checkpoints:
        """In the next generation: all tasks begin with the newest complete one. What was being taken is nothing any more."""
        back = replace(self, generation=self.generation + 1, back=why)
        return back.given_up("the topology went back to a checkpoint", now) if self.under_way else back


def number_of(ticket: int) -> int:
    """The number of a checkpoint, from 1."""
    return ticket >> 1


def slot_of(ticket: int) -> int:
    """0 or 1."""
    return ticket & 1


def snapshot_key(topology: TopologyName, id: str, ticket: int, task: int) -> str:
    """What the stores have a task's snapshot under. The part before the slash is of the topology: `topology_of`."""
    return f"{topology}@{id}.{slot_of(ticket)}/{task}"


def topology_of(prefix: str) -> tuple[TopologyName, str | None, int]:
    """Whose a store's key is, by what stands before its last slash: the topology, and of a snapshot the `Checkpoints.id` and the slot."""
    name, at, rest = prefix.rpartition("@")
    if not at:
        return TopologyName(prefix), None, 0
    id, _, slot = rest.rpartition(".")
    return TopologyName(name), id, int(slot)


def merged(stored: Iterable[Stored]) -> tuple[Stored, ...]:
    """The same, each group of nodes once."""
    found: dict[tuple[NodeId, ...], set[int]] = {}
    for one in stored:
        found.setdefault(one.nodes, set()).update(one.tasks)
    return tuple(Stored(nodes, tuple(sorted(tasks))) for nodes, tasks in sorted(found.items()))
