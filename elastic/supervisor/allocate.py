"""What a worker is told, from what coordination says (N-Storm 2019, section III.B). Pure."""

from __future__ import annotations

import dataclasses

from elastic.model.ids import Epoch, NodeId, TopologyName, WorkerId
from elastic.model.records import Allocation, TopologyStatus
from elastic.supervisor.observe import TopologyView


def workers_here(view: TopologyView, node: NodeId) -> tuple[WorkerId, ...]:
    """The workers of a topology that should run on this node: all that the assignment names here. Sorted.

    One without executors is the target of a move that begins when it lives, or the source of one that is not closed.
    """
    if not view.running or view.assignment is None:
        return ()
    return tuple(sorted(w for w, slot in view.assignment.workers.items() if slot.node == node))


def allocation(view: TopologyView, worker: WorkerId) -> Allocation:
    """The part of one worker, without its version. A worker that has no part is told so, and where the
    others are.

    Needs a view with state and assignment.
    """
    assert view.state is not None and view.assignment is not None
    return Allocation(
        topology=view.name,
        worker=worker,
        epoch=view.assignment.epoch,
        version=0,
        status=view.state.status,
        drain=view.state.drain,
        executors=tuple((e.component, e.first, e.last) for e in view.assignment.executors_of(worker)),
        places=tuple(sorted((e.first, e.last, w) for e, w in view.assignment.executors)),
        peers=view.workers,
        settings=dict(view.state.settings),
    )


def nothing(topology: TopologyName, worker: WorkerId, before: Allocation | None) -> Allocation:
    """The allocation of a worker whose topology is over."""
    if before is not None:
        return dataclasses.replace(before, version=0, status=TopologyStatus.KILLED, executors=())
    return Allocation(topology, worker, Epoch(0), 0, TopologyStatus.KILLED, 0)
