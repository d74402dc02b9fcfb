"""What Nimbus knows, as policies see it: topologies to be sized, nodes, and the room there is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from elastic.api.settings import setting
from elastic.elasticity import infrastructure
from elastic.elasticity.base import Bounds, Subject
from elastic.elasticity.infrastructure import Node, Wants
from elastic.elasticity.manager import Outcome
from elastic.model.assignment import Assignment
from elastic.model.ids import ComponentId, NodeId, node_of
from elastic.model.loadview import LoadView, NodeLoad
from elastic.model.records import TopologyStatus
from elastic.nimbus.deciding import placing
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts, TopologyFacts

Asked = Mapping[NodeId, float]
"""When those nodes were asked for that are not there, seconds."""


def subject_of(t: TopologyFacts, facts: Facts, rules: Rules, *, processes: bool = True) -> Subject | None:
    """A topology that is to be sized; None while it has no assignment.

    Args:
        processes: See `Subject`.
    """
    # What was given up is not what it has: nothing of that would ever be measured.
    base = t.assignment if given_up(t, rules) else t.base
    if base is None:
        return None
    executors = executors_of(base)
    return Subject(
        t.spec,
        dict(executors),
        max(1, len({w for _, w in base.executors})),
        {
            c.id: Bounds(
                setting("min_executors", t.spec.config, c.config) or 1,
                setting("max_executors", t.spec.config, c.config) or 0,
            )
            for c in t.spec.components
        },
        # What the others do without a worker that has ended says nothing of what they need.
        settled=settled(t, facts, rules) and all(w in t.workers for _, w in base.executors),
        waiting=len(base.unassigned),
        processes=processes,
    )


def settled(t: TopologyFacts, facts: Facts, rules: Rules) -> bool:
    """Whether it runs as it was last wanted: nothing of it is being changed."""
    if t.kill_at is not None or t.moves or t.assignment is None:
        return False
    if t.plan is not None and not placing.stuck(t, rules):
        return False
    return not set(t.behind(t.assignment.epoch)) - t.idle and not set(facts.expected) & {
        s.node for s in t.assignment.workers.values()
    }


def executors_of(a: Assignment) -> Counter[ComponentId]:
    """How many each component has, or is to have."""
    return Counter(e.component for e in (*dict(a.executors), *a.unassigned))


def given_up(t: TopologyFacts, rules: Rules) -> bool:
    """Whether tasks that could not be moved stay where they are, against what was wanted, until something else is."""
    return t.plan is not None and not t.plan.halted and bool(placing.stuck(t, rules))


def telling(t: TopologyFacts) -> bool:
    """Whether what is measured of it says what it needs: not while its spouts rest."""
    return t.state.status is TopologyStatus.ACTIVE


def shared(view: LoadView, machines: Mapping[NodeId, str]) -> LoadView:
    """The view with the cores of a machine divided among the nodes on it that measure all of it.

    Args:
        machines: Each node's machine, "" when its cores are its own.
    """
    many = Counter(m for n, m in machines.items() if m and n in view.nodes)
    if all(n < 2 for n in many.values()):
        return view

    def part(node: NodeId, load: NodeLoad) -> NodeLoad:
        n = max(1, many[machines.get(node, "")])
        return replace(load, cores=load.cores / n, cpu=load.cpu / n, sharing=n)

    return replace(view, nodes={n: part(n, load) for n, load in view.nodes.items()})


def nodes(facts: Facts, view: LoadView, asked: Asked, met: Container[NodeId] = frozenset()) -> list[Node]:
    """The nodes there are and those that are wanted.

    Args:
        met: Those that have been there.
    """
    executors = Counter(node_of(w) for a in facts.claims().values() for _, w in a.executors)
    result = []
    for id in sorted({*facts.nodes, *facts.wanted}):
        info, wanted = facts.nodes.get(id), facts.wanted.get(id)
        slots = info.slots if info is not None else wanted.slots if wanted is not None else 1
        result.append(
            Node(
                id,
                slots,
                used=len(facts.assigned_to(id)),
                executors=executors[id],
                alive=info is not None,
                since=asked.get(id, 0.0),
                lost=info is None and id in met,
                draining=facts.draining(id),
                fixed=wanted is None,
            )
        )
    return infrastructure.measured(result, view)


def wants(
    sized: Iterable[tuple[Subject, TopologyFacts, bool]], outcomes: Sequence[Outcome], view: LoadView
) -> Wants:
    """What all topologies want together.

    Args:
        sized: Each running topology, and whether the outcomes say what it wants. What others have is what they want.
        outcomes: What the policies have found in their last runs.
    """
    every = list(sized)
    free = {
        s.name: min(max(s.workers, t.workers_wanted()), sum(s.executors.values()))
        for s, t, by in every
        if not by
    }
    used = sum(load.cpu for key, load in view.executors.items() if key.topology in free)
    return Wants(
        cores=sum(o.cores for o in outcomes) + used,
        lacking=sum(o.lacking for o in outcomes),
        workers=sum(o.workers for o in outcomes) + sum(free.values()),
        waiting=sum(s.waiting for s, _, _ in every),
        moving=not (all(s.settled for s, _, _ in every) and all(o.settled for o in outcomes)),
    )
