"""What all roles have in common: one door, and a table that says what may come through it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from elastic.errors import ProtocolViolation
from elastic.migration.table import Table

Actions = tuple[Any, ...]


class Role:
    """A pure state machine.

    Attributes:
        table: Its transitions.
        doors: The method that answers each kind of event.
    """

    table: ClassVar[Table]
    doors: ClassVar[Mapping[type, str]]
    __slots__ = ("state",)
    state: StrEnum

    def __init__(self) -> None:
        self.state = self.table.initial

    def handle(self, event: Any) -> Actions:
        """What is to be done because of the event, in order.

        Raises:
            ProtocolViolation: The state forbids the event. Nothing has changed.
        """
        before = self.state
        allowed = self.table.rows.get((before, event.__class__))
        if allowed is None:
            raise ProtocolViolation(
                f"{self}: {event.__class__.__name__} is not possible when it is {before}: {event}"
            )
        actions: Actions = getattr(self, self.doors[event.__class__])(event)
        if self.state not in allowed:
            raise ProtocolViolation(
                f"{self}: {event.__class__.__name__} led from {before} to {self.state}: {event}"
            )
        return actions

    def _nothing(self, event: Any) -> Actions:
        return ()
