"""What was decided on last: as long as nothing of it changes, and no deadline passes, the same follows, and that has been done.

While a move is under way its marks change all the time. They are for the move's own notifier: who shall run what does not depend on them,
unless the move was aborted.
"""

from __future__ import annotations

from typing import Any

from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts


class Decided:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._on: object = None
        self._due: float | None = None

    @property
    def due(self) -> float | None:
        """When it may be decided otherwise although nothing has changed: seconds since 1970, or None."""
        return self._due

    def covers(self, facts: Facts, by: object) -> bool:
        """Whether nothing is to be decided anew.

        Args:
            by: The scheduler.
        """
        return (self._due is None or facts.now < self._due) and self._on == _matter(facts, by)

    def note(self, facts: Facts, by: object, due: float | None) -> None:
        """On these facts nothing was to be done, until then."""
        self._on, self._due = _matter(facts, by), due

    def forget(self) -> None:
        """Something was done, or could not be."""
        self._on = self._due = None


def _matter(facts: Facts, by: object) -> tuple[Any, ...]:
    """All of the facts that a decision may depend on."""
    topologies = {n: _topology(t) for n, t in facts.topologies.items()}
    return by, facts.nodes, facts.wanted, facts.drains, facts.expected, topologies, facts.elsewhere


def _topology(t: TopologyFacts) -> tuple[Any, ...]:
    versions = (
        t.state.id,
        t.state_version,
        t.assignment_version,
        t.plan_version,
        t.latest,
        t.checkpoints_version,
    )
    stays = {} if t.plan is not None and not t.plan.halted else t.beyond_return
    return *versions, t.workers, t.progress, {e: _move(m) for e, m in t.moves.items()}, stays


def _move(m: MoveFacts) -> tuple[Any, ...]:
    """What has been decided of it, and who takes part; not how far it is."""
    return [(t.task, t.outcome, t.source, t.target) for t in m.record.tasks], sorted(m.marks)
