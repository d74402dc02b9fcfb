"""The node's own entry in coordination: ephemeral, and replaced by a newer generation of the node, never
by an older one."""

from __future__ import annotations

import dataclasses
import logging
from typing import TypeVar

import msgspec

from elastic.coordination import paths
from elastic.coordination.base import Check, Coordination, Create, Delete, Operation, Set, Versioned
from elastic.errors import Conflict, NotFound, Superseded
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.ids import Epoch, Incarnation, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, WorkerInfo
from elastic.supervisor.decide import Life

log = logging.getLogger(__name__)

T = TypeVar("T")
_ATTEMPTS = 10


def register(coordination: Coordination, info: NodeInfo) -> None:
    """Make the node's entry say `info`, in this session.

    Raises:
        Superseded: A newer generation of the node is there.
        Conflict: Others keep changing it.
    """
    path = paths.node(info.id)
    data = codec.encode(info)
    for _ in range(_ATTEMPTS):
        present = coordination.get(path)
        try:
            if present is None:
                coordination.create(path, data, ephemeral=True)
                return
            other = read(present)
            if other is not None and other.generation > info.generation:
                raise superseded(info, other)
            # Whose session it belongs to cannot be seen: what is there is replaced by an entry of this
            # session.
            coordination.transaction([Delete(path, present.version), Create(path, data, ephemeral=True)])
            return
        except Superseded:
            raise
        except (Conflict, NotFound):
            continue
    raise Conflict(f"node {info.id}: its entry in coordination is changed by others all the time")


def update(coordination: Coordination, before: NodeInfo, after: NodeInfo) -> None:
    """Change the entry, if it is still this node's own; else nothing: the watch on it says what has
    happened."""
    path = paths.node(before.id)
    present = coordination.get(path)
    if present is not None and same_life(read(present), before):
        try:
            coordination.set(path, codec.encode(after), version=present.version)
        except (Conflict, NotFound) as error:
            log.info("node %s: entry not updated: %s", before.id, error)


def unregister(coordination: Coordination, info: NodeInfo) -> None:
    """Remove the entry, if it is still this node's own."""
    path = paths.node(info.id)
    present = coordination.get(path)
    if present is not None and same_life(read(present), info):
        try:
            coordination.delete(path, version=present.version)
        except Conflict as error:
            log.info("node %s: entry not removed: %s", info.id, error)


def read(value: Versioned) -> NodeInfo | None:
    """The entry, or None when it cannot be read."""
    return _read(value, NodeInfo)


def same_life(other: NodeInfo | None, mine: NodeInfo) -> bool:
    """Whether an entry was written by this very start of the node."""
    if other is None:
        return False
    return (
        dataclasses.replace(other, draining=mine.draining, store=mine.store, store_life=mine.store_life)
        == mine
    )


def superseded(mine: NodeInfo, other: NodeInfo) -> Superseded:
    return Superseded(
        f"node {mine.id}: generation {other.generation} runs in process {other.pid} on {other.host}; "
        f"this is generation {mine.generation}",
        remedy="this one ends",
    )


def unregister_worker(
    coordination: Coordination, topology: TopologyName, worker: WorkerId, incarnation: Incarnation
) -> None:
    """Remove the entry of a life that has ended, if it is still there: it would stay until its session's time-out."""
    path = paths.worker(topology, worker)
    present = coordination.get(path)
    found = _read(present, WorkerInfo)
    if present is not None and found is not None and found.incarnation == incarnation:
        coordination.delete(path, version=present.version)


def report_broken(coordination: Coordination, life: Life, epoch: Epoch) -> None:
    """Say in the worker's `Progress` that it cannot run, so that Nimbus fails the topology. Nothing, if that is gone: one that has been
    submitted under its name since may have other code."""
    state = coordination.get(paths.state(life.topology))
    of = _read(state, TopologyState)
    if state is None or of is None or of.id != life.topology_id:
        return
    path = paths.worker_progress(life.topology, life.worker)
    present = coordination.get(path)
    before = _read(present, Progress) or Progress(life.incarnation, epoch)
    data = codec.encode(dataclasses.replace(before, incarnation=life.incarnation, failed=life.broken))
    # Checked, so that a topology that has just been removed does not come back in parts, nor fails the next one of its name.
    operations: list[Operation] = [Check(paths.state(life.topology), state.version)]
    if present is None:
        if coordination.children(paths.progress(life.topology)) is None:
            operations.append(Create(paths.progress(life.topology)))
        operations.append(Create(path, data))
    else:
        operations.append(Set(path, data, present.version))
    try:
        coordination.transaction(operations)
    except (Conflict, NotFound):
        if coordination.get(paths.state(life.topology)) is not None:
            raise


def _read(value: Versioned | None, kind: type[T]) -> T | None:
    """The value, or None when there is none or nobody can read it."""
    try:
        return None if value is None else codec.decode(value.data, kind)
    except msgspec.MsgspecError:
        return None
