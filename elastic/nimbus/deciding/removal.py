"""What removes everything that coordination has about a topology, in one transaction."""

from __future__ import annotations

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Delete, Operation, Set
from elastic.errors import Conflict
from elastic.model.ids import TopologyName
from elastic.nimbus.observing.facts import TopologyFacts


def removal(coordination: Coordination, t: TopologyFacts) -> list[Operation]:
    """All that removes its record.

    Raises:
        Conflict: A worker of it lives.
    """
    if coordination.children(paths.workers(t.name)):
        raise Conflict(f"workers of topology {t.name!r} live")
    return [Delete(paths.state(t.name), t.state_version), *_but_the_state(coordination, t.name)]


def remains(coordination: Coordination, name: TopologyName) -> list[Operation]:
    """All that removes what there is of a topology that has no record.

    Raises:
        Conflict: A worker of it lives.
    """
    if coordination.get(paths.topology(name)) is None:
        return []
    if coordination.children(paths.workers(name)):
        raise Conflict(f"workers of an earlier topology {name!r} live", remedy="try again in a moment")
    return _but_the_state(coordination, name)


def _but_the_state(coordination: Coordination, name: TopologyName) -> list[Operation]:
    top, operations = paths.topology(name), _of_moves(coordination, name)
    for leaf in coordination.children(top) or ():
        path = f"{top}/{leaf}"
        if path in (paths.state(name), paths.moves(name), paths.plan(name)):
            continue
        operations += [Delete(f"{path}/{below}") for below in coordination.children(path) or ()]
        operations.append(Delete(path))
    return [*operations, Delete(top)]


def _of_moves(coordination: Coordination, name: TopologyName) -> list[Operation]:
    """All that removes what there is about moves. A later topology of that name goes on with the numbers: stores remember them."""
    operations: list[Operation] = []
    if coordination.get(paths.plan(name)) is not None:
        operations.append(Delete(paths.plan(name)))
    found = coordination.get(paths.moves(name))
    if found is None:
        return operations
    for epoch in coordination.children(paths.moves(name)) or ():
        path = f"{paths.moves(name)}/{epoch}"
        names = coordination.children(path) or ()
        operations += [*(Delete(f"{path}/{n}") for n in names), Delete(path)]
    greatest, version = moves_ever(coordination)
    if int(found.data or b"0") > greatest:
        operations.append(Set(paths.TOPOLOGIES, found.data, version))
    operations.append(Delete(paths.moves(name)))
    return operations


def moves_ever(coordination: Coordination) -> tuple[int, int]:
    """The greatest number of a move of any topology that is no more, and the version of that."""
    found = coordination.get(paths.TOPOLOGIES)
    data = found.data if found is not None else b""
    return (int(data) if data.isdigit() else 0), found.version if found is not None else -1
