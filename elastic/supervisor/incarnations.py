"""The numbers of worker lives, remembered in the node's store: none is given twice, also by later
supervisors."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastic.model import codec
from elastic.model.ids import Incarnation, WorkerId, life_of
from elastic.nodestore import keys
from elastic.nodestore.base import NodeStore

PER_GENERATION = 1000
"""Each generation of a node begins that much further, so that numbers grow also where the store does not
follow the node."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Note(msgspec.Struct):
    number: int
    boot: str


class Incarnations:
    """Gives numbers to lives, and knows which were lived on this machine.

    Args:
        generation: Of the node, from 1.
    """

    def __init__(self, store: NodeStore, generation: int) -> None:
        self._store = store
        self._base = max(generation - 1, 0) * PER_GENERATION
        self._boot = boot_id()

    def next(self, worker: WorkerId) -> Incarnation:
        """A new life of that worker; durable when it returns."""
        last = self._store.latest(keys.life(worker))
        number = max(codec.decode(last.data, _Note).number if last else 0, self._base) + 1
        self._store.append(keys.life(worker), codec.encode(_Note(number, self._boot)))
        return Incarnation(f"{worker}#{number}")

    def lived_here(self, worker: WorkerId, incarnation: Incarnation) -> bool:
        """Whether that life began on this machine, since it was booted, and not too long ago to be
        remembered."""
        number = life_of(incarnation)
        notes = (codec.decode(e.data, _Note) for e in self._store.history(keys.life(worker), 100))
        return any(n.number == number and n.boot == self._boot for n in notes)


def boot_id() -> str:
    """Identifies this machine until it is booted again; "" where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
