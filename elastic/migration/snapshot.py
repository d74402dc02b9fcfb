"""What travels with a task besides its own state: how far its links have come, and what it had not yet sent.

The driver adds the rest when it saves (the component's state, the unprocessed input, when the next tick is due), so that state,
input and positions are of one moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Early:
    """Something that came over a link before what belongs in front of it."""

    life: int
    first: int
    count: int
    item: Any


@dataclass(frozen=True, slots=True)
class Unsent:
    """Something emitted that was held back; `size`: its bytes, as far as known."""

    item: Any
    count: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class InLink:
    """A receiver's end: everything up to `seen` of that life of the source has been taken."""

    source: int
    life: int
    seen: int
    early: tuple[Early, ...] = ()


@dataclass(frozen=True, slots=True)
class OutLink:
    """An emitter's end: `sent` tuples have left in this life; the newest fence was of move `epoch`."""

    target: int
    sent: int
    epoch: int = 0
    buffer: tuple[Unsent, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskLinks:
    """All ends of one task's links.

    Attributes:
        life: Of the task: grows whenever it starts without the state it had. Positions count within one life.
    """

    life: int
    inputs: tuple[InLink, ...] = ()
    outputs: tuple[OutLink, ...] = ()
