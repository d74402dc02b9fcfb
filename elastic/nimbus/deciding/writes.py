"""What a decision writes in coordination."""

from __future__ import annotations

from elastic.coordination import paths
from elastic.coordination.base import Check, Create, Delete, Operation, Set
from elastic.model.codec import encode
from elastic.nimbus.deciding.decisions import Place
from elastic.nimbus.observing.facts import TopologyFacts


def placing(t: TopologyFacts, place: Place) -> list[Operation]:
    """All that writes an assignment and a plan over those of the facts."""
    name = t.name
    operations: list[Operation] = [Check(paths.state(name), t.state_version)]
    if t.latest_version >= 0:
        operations.append(Check(paths.moves(name), t.latest_version))
    path = paths.assignment(name)
    if place.version < 0:
        operations.append(Create(path, encode(place.assignment)))
    elif place.assignment is t.assignment:
        operations.append(Check(path, place.version))
    else:
        operations.append(Set(path, encode(place.assignment), place.version))
    path = paths.plan(name)
    if place.plan != t.plan:
        if place.plan is None:
            operations.append(Delete(path, t.plan_version))
        elif t.plan is None:
            operations.append(Create(path, encode(place.plan)))
        else:
            operations.append(Set(path, encode(place.plan), t.plan_version))
    for worker in place.gone:
        # It goes through only if none is registered: who runs a task must not lose it to another without a move.
        path = paths.worker(name, worker)
        operations += [Create(path), Delete(path)]
    return operations
