"""What moves wait for, as sentences for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from elastic.migration.events import Host
from elastic.migration.waiting import waiting_for
from elastic.model.ids import node_of
from elastic.nimbus.observing.facts import MoveFacts, TopologyFacts

MOST = 20
"""Sentences of one move."""


def waits(found: MoveFacts, t: TopologyFacts, prepared: Set[int]) -> tuple[str, ...]:
    """What a move waits for."""
    if found.record.settled:
        late = found.unclosed({i.incarnation for i in t.workers.values()})
        return (f"it waits for {', '.join(late) or 'the stores'} to close it",)
    hosts = tuple(Host(w, i.incarnation, node_of(w)) for w, i in sorted(t.workers.items()))
    return _sentences(waiting_for(found.record, found.marks, hosts, prepared))


def _sentences(waits: Mapping[int, str]) -> tuple[str, ...]:
    """Tasks that wait for the same thing are said together."""
    by: dict[str, list[int]] = {}
    for task, what in waits.items():
        by.setdefault(what, []).append(task)
    result = [f"{named(tasks)} for {what}" for what, tasks in by.items()]
    more = len(result) - MOST
    return tuple(result[:MOST]) + ((f"{more} more",) if more > 0 else ())


def named(tasks: Iterable[int]) -> str:
    numbers = list(tasks)
    if len(numbers) == 1:
        return f"task {numbers[0]} waits"
    return f"{len(numbers)} tasks ({numbers[0]} to {numbers[-1]}) wait"
