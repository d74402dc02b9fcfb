"""How many nodes there are by load: asked for when executors no longer fit, drained and returned when they are not needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elastic.elasticity import infrastructure
from elastic.elasticity.infrastructure import Infrastructure, Past
from elastic.elasticity.manager import Outcome
from elastic.model.ids import NodeId, TopologyName
from elastic.model.loadview import LoadView
from elastic.nimbus.balancing import subjects
from elastic.nimbus.balancing.balance_port import Ruler
from elastic.nimbus.balancing.telling import Teller
from elastic.nimbus.observing.facts import Facts


class Extending:
    """See the module. For one thread.

    Attributes:
        params: When to do it; not enabled: never.
        past: What is remembered.
        asked: When those nodes were asked for that are not there, or have gone, seconds.
    """

    def __init__(self, ruler: Ruler, teller: Teller) -> None:
        self._ruler, self._teller = ruler, teller
        self.params = Infrastructure()
        self.past = Past()
        self.asked: dict[NodeId, float] = {}
        self._met: set[NodeId] = set()

    def see(self, facts: Facts, now: float) -> None:
        """Note which nodes were asked for, and which have come."""
        self._met = (self._met | facts.nodes.keys()) & facts.wanted.keys()
        for node in facts.wanted:
            if node not in facts.nodes:
                self.asked.setdefault(node, now)
        self.asked = {n: at for n, at in self.asked.items() if n in facts.wanted and n not in facts.nodes}

    def run(
        self,
        facts: Facts,
        view: LoadView,
        sized: Collection[TopologyName],
        outcomes: Sequence[Outcome],
        now: float,
    ) -> None:
        """Ask for nodes, or return one, if that is due.

        Args:
            sized: Topologies that policies have looked at in their last runs.
            outcomes: What they have found there.
        """
        self.see(facts, now)
        if not self.params.enabled:
            return
        every = [
            (s, t, t.name in sized)
            for t in facts.in_order()
            if t.running and (s := subjects.subject_of(t, facts, self._ruler.rules)) is not None
        ]
        wants = subjects.wants(every, outcomes, view)
        there = subjects.nodes(facts, view, self.asked, self._met)
        steps, self.past = infrastructure.decide(there, wants, self.params, self.past, now)
        self._teller.say(steps.reasons, steps.dry_run)
        if steps.dry_run:
            return
        if steps.add:
            self._ruler.add_nodes(steps.add)
        for node in steps.drain:
            self._ruler.drain_node(node)
