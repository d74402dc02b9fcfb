"""Where executors are by load: the scheduler that is in use places everything anew once a period.

It is computed here, or by a schedule generator beside Nimbus when one is connected: the same question, the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from elastic.errors import Conflict, Refused
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, TopologyName, WorkerId
from elastic.model.loadview import LoadView
from elastic.nimbus.balancing import subjects
from elastic.nimbus.balancing.balance_port import Ruler
from elastic.nimbus.balancing.generators import Generators, Seat
from elastic.nimbus.balancing.telling import Teller
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.scheduler import question
from elastic.scheduler.base import Demand
from elastic.scheduler.decision import Decision, Reason, same_places
from elastic.scheduler.overload import RELIEF
from elastic.scheduler.registry import Choice

log = logging.getLogger(__name__)
_SAMPLES = 3
"""Samples of the load since anything has changed its place: the first one after a move lacks what was sent before its pairs were known."""
_SILENCE = 15.0
"""Seconds after which a worker that has not reported so often is not waited for."""
_DOUBTS = 6
"""How often the time to the next decision doubles at most."""
_WORSE = 0.05
"""Cores by which an overload that could not be relieved has to grow before it is a reason again."""


class Rescheduling:
    """See the module. For one thread.

    Attributes:
        choice: The scheduler, or None: what has a place stays there.
    """

    def __init__(self, ruler: Ruler, teller: Teller, generators: Generators) -> None:
        self._ruler, self._teller, self._generators = ruler, teller, generators
        self._number = 0
        self.choice: Choice | None = None
        self._at = 0.0
        self._places: dict[TopologyName, Epoch] = {}
        self._since = 0.0
        """Since when everything has been where it is, and how often each worker had reported then."""
        self._heard: Mapping[WorkerId, int] = {}
        self._decided = 0.0
        self._borne = 0.0
        """Cores of overload that the last decision could not relieve."""
        self._hope: tuple[float, float] | None = None
        """Share of tuples between nodes before the last schedule that was to save some, and as it was to become."""
        self._doubt = 0
        """How often in a row that has not come true."""
        self._failure = ""
        """What the scheduler has failed with the last time."""

    def use(self, choice: Choice | None) -> None:
        """Use another scheduler, from now on."""
        if self.choice is None:
            self._places = {}  # nobody has looked meanwhile: it begins to be measured now
        self.choice, self._at, self._borne, self._hope, self._doubt = choice, 0.0, 0.0, None, 0
        self._failure = ""
        self._teller.anew()

    def paced(self) -> None:
        """Its period is another one from now on: that of before is not waited for."""
        self._at = 0.0

    def run(
        self,
        facts: Facts,
        view: LoadView,
        period: float,
        sample: float,
        now: float,
        heard: Mapping[WorkerId, int],
    ) -> None:
        """Let it place everything, if it is due, or something is overloaded, and nothing is just changing.

        Args:
            period: Seconds between two decisions; 0: as suits the scheduler.
            sample: Seconds that a sample of the load covers.
            now: Seconds, by `time.monotonic`.
            heard: How often each worker has reported: those with much to tell do it less often.
        """
        if self.choice is None:
            return
        running = [
            t
            for t in facts.in_order()
            if subjects.telling(t) and t.assignment is not None and t.kill_at is None
        ]
        places = {t.name: t.assignment.epoch for t in running if t.assignment is not None}
        moving = any(not subjects.settled(t, facts, self._ruler.rules) for t in running)
        if moving or places != self._places:
            self._places, self._since, self._heard = places, now, heard
        if now < self._since + _SAMPLES * sample:
            return
        told = [heard.get(w, 0) - self._heard.get(w, 0) for t in running for w in _workers(t)]
        if min(told, default=_SAMPLES) < _SAMPLES and now < self._since + _SILENCE:
            return
        due = now >= self._at
        if not due and (self.choice.kind.excess is None or now < self._decided + RELIEF):
            return
        period = period or self.choice.kind.period
        try:
            decided = self._ask(self.choice, running, facts, view, now, period, due=due)
        except Exception as error:  # whatever a plug-in's scheduler does: nothing else waits for it
            self._at, self._decided = now + period, now
            if self._failed(self.choice, f"{type(error).__name__}: {error}"):
                log.exception("%s has failed", self.choice.kind.who)
            return
        if decided is None:
            return
        self._failure = ""
        decision, seat, changed, kept = decided
        if (doubt := self._doubts(decision, period)) is not None:
            self._teller.explain((doubt,))
            self._at = now + float(doubt.details["seconds"])
            return
        refused = self._adopt(self.choice, decision, changed, seat)
        untold: set[str] = {*refused, *kept}  # what was not done is not told as if it were
        if untold and len(refused) == len(changed):
            untold.add("")
            self._hope = None
        reasons = [r for r in decision.reasons if r.warning or r.topology not in untold]
        self._teller.explain([*reasons, *refused.values()])
        if any(r.kind == "nothing-measured" for r in decision.reasons):
            self._at = min(self._at, now + _SAMPLES * sample)  # not a period later

    def _ask(
        self,
        choice: Choice,
        running: Sequence[TopologyFacts],
        facts: Facts,
        view: LoadView,
        now: float,
        period: float,
        *,
        due: bool,
    ) -> tuple[Decision, Seat | None, list[TopologyFacts], set[TopologyName]] | None:
        """What is decided, by whom, which topologies change by it, and for which it is what was given up: that is not tried again for ever.
        None: it is not due, and no more is overloaded than was.

        Raises:
            Exception: Whatever the scheduler raises, and what comes of an answer that is none.
        """
        # What was given up is not where anything is: the load is measured elsewhere.
        claims = facts.claims()
        given_up = {t.name: t for t in running if subjects.given_up(t, self._ruler.rules)}
        claims |= {name: _as_it_is(t, claims[name]) for name, t in given_up.items()}
        excess = choice.excess(facts.cluster, view, claims)
        self._borne = min(self._borne, excess)
        if not due and excess <= self._borne + _WORSE:
            return None
        self._at, self._decided, self._borne = now + period, now, excess
        decision, seat = self._decide(choice, [t.demand() for t in running], facts, view, claims)
        kept = {
            name
            for name, t in given_up.items()
            if t.base is not None and same_places(decision.assignments[name], t.base)
        }
        changed = [
            t
            for t in running
            if t.base is not None
            and t.name not in kept
            and not same_places(decision.assignments[t.name], claims[t.name])
        ]
        return decision, seat, changed, kept

    def _failed(self, choice: Choice, error: str) -> bool:
        """All stays where it is, until it is asked again a period later. Returns whether that is news: it is said once while it lasts."""
        if error == self._failure:
            return False
        self._failure = error
        text = (
            f"{choice.kind.who} has failed, and places nothing: {error}; the log of Nimbus says where. "
            "Repair the package that offers it, or set another scheduler"
        )
        details = {"scheduler": str(choice), "error": error}
        self._teller.explain((Reason("scheduler-failed", text, warning=True, details=details),))
        return True

    def _adopt(
        self, choice: Choice, decision: Decision, changed: Sequence[TopologyFacts], seat: Seat | None
    ) -> dict[TopologyName, Reason]:
        """Let what was decided be carried out. Returns which topologies stay as they are all the same, and why."""
        who = choice.kind.name + (f" by {seat.name}" if seat is not None else "")
        refused = {}
        for t in changed:
            about = [r for r in reversed(decision.reasons) if r.topology in ("", t.name) and not r.warning]
            why = about[0].message if about else "by load"
            try:
                self._ruler.adopt(t.name, decision.assignments[t.name], f"{who}: {why}")
            except (Refused, Conflict) as error:
                text = f"topology {t.name} is not placed anew: {error.message}"
                refused[t.name] = Reason(
                    "reschedule-refused", text, t.name, warning=True, details={"why": why}
                )
        return refused

    def _doubts(self, decision: Decision, period: float) -> Reason | None:
        """Whether the decision is not to be believed, and when the next one is made.

        What executors exchange can depend on where they are: where a queue is full, those near to it may send less than others. A scheduler
        that goes by it would then move them to and fro. So when a schedule has not saved what it was to, the next one of that kind
        waits, twice as long each time.
        """
        # A plug-in's reasons may name other things so, and give some of them alone.
        numbers = [{k: v for k, v in r.details.items() if not isinstance(v, str)} for r in decision.reasons]
        told = next((n for n in numbers if "before" in n and n.get("traffic", 0) > 0), None)
        if told is None:
            return None
        share, hope = told["before"] / told["traffic"], self._hope
        self._hope = None
        if hope is not None:
            came_true = share <= sum(hope) / 2
            self._doubt = 0 if came_true else min(self._doubt + 1, _DOUBTS)
            if not came_true and "saves" in told:
                seconds = period * 2**self._doubt
                was, wanted, now = (f"{x:.0%}" for x in (*hope, share))
                text = (
                    f"The placement stays: the last schedule was to bring the share of tuples between nodes from {was} to {wanted}, and it "
                    f"is {now}. What executors exchange depends on where they are, as where queues are full; the next decision is made in "
                    f"{seconds:g} s."
                )
                return Reason("kept", text, details={"before": share, "seconds": seconds})
        if "saves" in told:
            self._hope = share, share - told["saves"]
        return None

    def _decide(
        self,
        choice: Choice,
        demands: Sequence[Demand],
        facts: Facts,
        view: LoadView,
        claims: Mapping[TopologyName, Assignment],
    ) -> tuple[Decision, Seat | None]:
        """By the first generator; by this process when there is none, or when it has not answered as it should."""
        if demands and self._generators.names():
            self._number += 1
            asked = question.ask(self._number, choice, demands, facts.cluster, view, claims)
            if (answered := self._generators.ask(asked)) is not None:
                found, seat = answered
                if (decision := question.decision(found, demands, claims)) is not None:
                    return decision, seat
                seat.leave("its answer is not about the topologies that it was asked about")
        return choice.decide(demands, facts.cluster, view, claims), None


def _as_it_is(t: TopologyFacts, claimed: Assignment) -> Assignment:
    """Its places in force, with all slots that it claims."""
    return claimed if t.assignment is None else replace(t.assignment, workers=claimed.workers)


def _workers(t: TopologyFacts) -> set[WorkerId]:
    """Those that have executors."""
    return set() if t.assignment is None else {w for _, w in t.assignment.executors}
