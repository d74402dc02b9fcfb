"""Facts with states, assignments, plans and beginnings of moves read just now: the mirror may lag behind, and what is written depends on
these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.migration.record import MoveRecord
from elastic.model.assignment import Assignment
from elastic.model.ids import Epoch, NodeId, TopologyName
from elastic.model.records import TopologyState
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts
from elastic.nimbus.observing.followed import read_versioned
from elastic.nimbus.observing.followed_moves import read_marks
from elastic.nimbus.observing.mirror import FORCE
from elastic.nimbus.observing.plans import Plan


def reread(coordination: Coordination, seen: Facts) -> Facts:
    """Those facts, and what of them is so now.

    All that is known of is asked for at once: one after the other, each answer would wake three threads while streams want the processor.

    Raises:
        Unavailable: There is no connection.
    """
    asked = [p for n in seen.topologies for p in (paths.state(n), paths.assignment(n), paths.plan(n))]
    moves = [paths.moves(n) for n in seen.topologies]
    now = coordination.look(asked, [paths.TOPOLOGIES, paths.WANTED, paths.DRAINS, *moves])
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
                begun = paths.epochs(now.children[paths.moves(name)] or ())
                known[name] = replace(
                    before,
                    moves={**before.moves, **_begun(coordination, name, begun - before.moves.keys())},
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


def _begun(coordination: Coordination, name: TopologyName, epochs: Iterable[Epoch]) -> dict[Epoch, MoveFacts]:
    """Moves that the facts do not show yet. The mirror may show the newest one's number before them: whoever begins another on what it
    shows has two moves of the same tasks."""
    at = {paths.move(name, e): e for e in sorted(epochs)}
    if not at:
        return {}
    records = coordination.look(list(at), list(at))
    lives = {p: {f"{p}/{n}": paths.life(n) for n in names or ()} for p, names in records.children.items()}
    marks = coordination.look([m for of in lives.values() for m in of]).values
    found: dict[Epoch, MoveFacts] = {}
    for path, epoch in at.items():
        record, version = read_versioned(path, records.values[path], MoveRecord)
        if record is not None:
            of = {
                life: read_marks(m, v, life) for m, life in lives[path].items() if (v := marks[m]) is not None
            }
            found[epoch] = MoveFacts(record, version, of)
    return found
