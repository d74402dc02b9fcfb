"""Where executors are by load: the scheduler that is in use places everything anew once a period."""

from __future__ import annotations

import logging

from elastic.errors import Conflict, Refused
from elastic.model.loadview import LoadView
from elastic.nimbus import subjects
from elastic.nimbus.balance_port import Ruler
from elastic.nimbus.facts import Facts
from elastic.nimbus.telling import Teller
from elastic.scheduler.decision import same_places
from elastic.scheduler.registry import Choice

log = logging.getLogger(__name__)


class Rescheduling:
    """See the module. For one thread.

    Attributes:
        choice: The scheduler, or None: what has a place stays there.
    """

    def __init__(self, ruler: Ruler, teller: Teller) -> None:
        self._ruler, self._teller = ruler, teller
        self.choice: Choice | None = None
        self._at = 0.0

    def use(self, choice: Choice | None) -> None:
        """Use another scheduler, from now on."""
        self.choice, self._at = choice, 0.0

    def run(self, facts: Facts, view: LoadView, period: float, now: float) -> None:
        """Let it place everything, if it is due and nothing is just changing.

        Args:
            period: Seconds between two decisions; 0: as suits the scheduler.
            now: Seconds, by `time.monotonic`.
        """
        if self.choice is None or now < self._at:
            return
        running = [
            t for t in facts.in_order() if t.running and t.assignment is not None and t.kill_at is None
        ]
        if any(not subjects.settled(t, facts, self._ruler.rules) for t in running if not t.finished):
            return
        self._at = now + (period or self.choice.kind.period)
        claims = facts.claims()
        decision = self.choice.decide([t.demand() for t in running], facts.cluster, view, claims)
        changed = [
            t
            for t in running
            if t.base is not None and not same_places(decision.assignments[t.name], claims[t.name])
        ]
        self._teller.explain(decision.reasons)
        for t in changed:
            why = next(
                (r.message for r in reversed(decision.reasons) if r.topology in ("", t.name)), "by load"
            )
            try:
                self._ruler.adopt(t.name, decision.assignments[t.name], f"{self.choice.kind.name}: {why}")
            except (Refused, Conflict) as error:
                log.info("%s: not placed anew: %s", t.name, error)
