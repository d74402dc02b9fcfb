"""Finding a topology in the facts, as requests do."""

from __future__ import annotations

import difflib

from elastic.errors import NotFound, Refused
from elastic.model.ids import NodeId, TopologyName
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.reign import Reign


def find(facts: Facts, name: str) -> TopologyFacts:
    """The topology of that name. Raises NotFound."""
    found = facts.topologies.get(TopologyName(name))
    if found is None:
        near = difflib.get_close_matches(name, [str(n) for n in facts.topologies], n=1)
        raise NotFound(
            f"there is no topology {name!r}",
            remedy=f"did you mean {near[0]!r}?" if near else "`elastic list` shows those that there are",
        )
    return found


def running(facts: Facts, name: str) -> TopologyFacts:
    """The same, if it runs and is not being killed. Raises NotFound, Refused."""
    t = find(facts, name)
    if not t.running:
        raise Refused(
            f"topology {name!r} is {t.state.status.value}; it does not run any more", remedy="submit it again"
        )
    if t.kill_at is not None:
        raise Refused(f"topology {name!r} is being killed")
    return t


def same(facts: Facts, t: TopologyFacts) -> TopologyFacts | None:
    """The topology in newer facts; None when it is gone, or another has its name."""
    found = facts.topologies.get(t.name)
    return found if found is not None and found.state.id == t.state.id else None


def echo(reign: Reign, t: TopologyFacts, version: int) -> None:
    """Wait until the mirror shows the state that was just written, so that the next request sees it."""

    def shown(facts: Facts) -> bool:
        found = same(facts, t)
        return found is None or found.state_version >= version

    reign.wait_for(shown, reign.options.answer_timeout, f"topology {t.name!r} was changed")


def stateful_on(facts: Facts, node: NodeId) -> list[str]:
    """Components that hold state on a node, as `topology/component`, sorted."""
    found: set[str] = set()
    for t in facts.topologies.values():
        if t.running and t.assignment is not None:
            demand = t.demand()
            for executor, worker in t.assignment.executors:
                if t.assignment.workers[worker].node == node and demand.pinned(executor):
                    found.add(f"{t.name}/{executor.component}")
    return sorted(found)
