"""What lies between a task that emits and those that it emits to: the ends of its links, and who knows the way.

Used by the outputs of a task, by the task that takes what is offered to it, and by the moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from elastic.api.components import CustomGrouping
from elastic.migration.emitter import Emitter as LinkEnd
from elastic.model.ids import Incarnation
from elastic.model.topology import ComponentSpec, InputSpec
from elastic.transport.base import Link
from elastic.worker.emitting.destination import Destination
from elastic.worker.tuples.batch import Item

FULL, TAKEN, ASK = 0, 1, 2
"""What a task in this process says to an item: no room; it has it; it is not the next one of its link as far as it knows."""


class Crossing(Protocol):
    """What lies between the tasks of this process and those of others: `elastic.worker.moving.moves.Moves`."""

    @property
    def me(self) -> Incarnation: ...

    def link(self, where: Incarnation) -> Link | None:
        """The way to another worker process."""

    def arrived(self, target: int, life: int, first: int, item: Item) -> None:
        """An item for a task of this process has come that is not simply the next one. It is looked at in `work`."""

    def room(self, target: int) -> None:
        """There may be room on the way to that task. Never with a gate or a task's lock."""

    def work(self) -> None:
        """Look at what was left to be looked at. Never with a gate or a task's lock."""


class Out:
    """What this task has for one target task.

    Attributes:
        link: How far the link has come, and where it leads; None until the task is where it is to run.
        handing: How many times something that was taken out of `rows` is being handed on: what is there now comes after that.
        tuples, bytes: What it has got from this task; bytes only of what left the process.
    """

    __slots__ = ("bytes", "destination", "handing", "link", "mixed", "rows", "tuples")

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.rows: list[Any] = []
        self.link: LinkEnd | None = None
        self.mixed = False
        self.handing = 0
        self.tuples = 0
        self.bytes = 0


class Subscription:
    """One consumer of one of the task's streams."""

    def __init__(
        self,
        consumer: ComponentSpec,
        number: int,
        spec: InputSpec,
        targets: Sequence[int],
        custom: CustomGrouping | None,
    ) -> None:
        self.consumer = consumer
        self.number = number
        self.spec = spec
        self.targets = tuple(targets)
        self.custom = custom
