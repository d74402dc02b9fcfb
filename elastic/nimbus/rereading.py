"""Facts with states, assignments and plans read just now: the mirror may lag behind, and what is written depends on these."""

from __future__ import annotations

from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.model.assignment import Assignment
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import TopologyState
from elastic.nimbus.facts import Facts, TopologyFacts
from elastic.nimbus.followed import read_versioned
from elastic.nimbus.mirror import FORCE
from elastic.nimbus.plans import Plan


def reread(coordination: Coordination, seen: Facts) -> Facts:
    """Those facts, and what of them is so now.

    All that is known of is asked for at once: one after the other, each answer would wake three threads while streams want the processor.

    Raises:
        Unavailable: There is no connection.
    """
    asked = [p for n in seen.topologies for p in (paths.state(n), paths.assignment(n), paths.plan(n))]
    now = coordination.look(asked, [paths.TOPOLOGIES, paths.WANTED, paths.DRAINS])
    names = [TopologyName(n) for n in now.children[paths.TOPOLOGIES] or ()]
    drains = [NodeId(n) for n in now.children[paths.DRAINS] or ()]
    new = [paths.assignment(n) for n in names if n not in seen.topologies]
    values = {**now.values, **coordination.look([*new, *map(paths.drain, drains)]).values}
    known: dict[TopologyName, TopologyFacts] = {}
    elsewhere: dict[TopologyName, Assignment] = {}
    for name in names:
        at = paths.assignment(name)
        assignment, version = read_versioned(at, values[at], Assignment)
        before = seen.topologies.get(name)
        if before is not None:
            at = paths.state(name)
            state, state_version = read_versioned(at, values[at], TopologyState)
            at = paths.plan(name)
            plan, plan_version = read_versioned(at, values[at], Plan)
            if state is not None and before.state.id == state.id:
                known[name] = replace(
                    before,
                    state=state,
                    state_version=state_version,
                    assignment=assignment,
                    assignment_version=version,
                    plan=plan,
                    plan_version=plan_version,
                )
                continue
        if assignment is not None:
            elsewhere[name] = assignment
    wanted = now.children[paths.WANTED] or ()
    return replace(
        seen,
        wanted={n: w for n, w in seen.wanted.items() if n in wanted},
        drains={n: v.data == FORCE for n in drains if (v := values[paths.drain(n)]) is not None},
        topologies=known,
        elsewhere=elsewhere,
    )
