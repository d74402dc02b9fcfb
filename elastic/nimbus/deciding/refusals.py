"""What is decided and cannot be written, as coordination takes no more than so much at once: it is said, and nothing else waits for it.

The same facts lead to the same refusal: it is tried again when they have changed. A move that cannot begin is taken back: its plan is
halted, as if an operator had aborted it. So whoever waits for it learns why, and the next request takes its place.
"""

from __future__ import annotations

from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Operation, Set
from elastic.errors import Refused
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import TopologyName
from elastic.model.words import counted
from elastic.nimbus import stories
from elastic.nimbus.deciding.decisions import Action, Begin, End, ForgetDrain, Place, Unwant
from elastic.nimbus.observing.facts import Facts, TopologyFacts

REMEDY = "ask for less at once; a topology with fewer tasks or executors, or whose neighbouring tasks share workers, takes less room"


class Refusals:
    """What has been said, so that it is not said again while it lasts."""

    def __init__(self) -> None:
        self._said: set[tuple[str, type[Action]]] = set()

    def over(self, action: Action) -> None:
        """It was written."""
        if self._said:
            self._said.discard(_key(action))

    def said(self, action: Action, error: Refused, facts: Facts) -> Event | None:
        """The event that tells of it; None when it was told."""
        if (key := _key(action)) in self._said:
            return None
        self._said.add(key)
        return stories.refused(key[0], _what(action), error, facts.now)

    def forget(self, topology: TopologyName) -> None:
        """The topology's record is gone."""
        self._said = {key for key in self._said if key[0] != topology}


def halting(t: TopologyFacts, action: Begin, error: Refused) -> tuple[Operation, str]:
    """What takes back a move that cannot begin, and why it does not."""
    assert t.plan is not None
    why = f"{_what(action)} cannot be written: {error.message}; {REMEDY}"
    return Set(paths.plan(t.name), encode(replace(t.plan, halted=why)), t.plan_version), why


def _key(action: Action) -> tuple[str, type[Action]]:
    return "" if isinstance(action, Unwant | ForgetDrain) else action.topology, type(action)


def _what(action: Action) -> str:
    match action:
        case Place():
            return "where its tasks run"
        case Begin(_, record):
            return f"a move of {counted(len(record.tasks), 'task')}"
        case End():
            return "its end"
        case Unwant(node) | ForgetDrain(node):
            return f"that node {node} goes"
        case _:
            return "that its record goes"
