"""Stream groupings: which task of a consumer gets a tuple. (Storm; row S2 of the feature list.)"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GroupingKind(StrEnum):
    """How the tuples of a stream are divided among the tasks of a consumer."""

    SHUFFLE = "shuffle"
    """Evenly, in turn."""
    FIELDS = "fields"
    """By the values of some fields: equal values always reach the same task."""
    PARTIAL_KEY = "partial-key"
    """By the values of some fields, to the less used of the two tasks that the values hash to."""
    ALL = "all"
    """To every task."""
    GLOBAL = "global"
    """To the consumer's first task."""
    LOCAL_OR_SHUFFLE = "local-or-shuffle"
    """In turn among the consumer's tasks in the same worker, or among all when there is none."""
    NONE = "none"
    """The user does not care. Treated as shuffle."""
    DIRECT = "direct"
    """The emitter names the task."""
    CUSTOM = "custom"
    """A `CustomGrouping` of the user's decides."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """A grouping as data.

    Attributes:
        kind: Which of Storm's groupings.
        fields: The fields that decide, for `FIELDS` and `PARTIAL_KEY`.
        name: The class of a custom grouping, for people; the object itself travels in the code bundle.
    """

    kind: GroupingKind
    fields: tuple[str, ...] = ()
    name: str = ""

    def __str__(self) -> str:
        inside = ", ".join(self.fields) or self.name
        return f"{self.kind.value}({inside})" if inside else self.kind.value
