"""Identifiers are types: a task is not an epoch, although both are numbers."""

from __future__ import annotations

from typing import NewType

TopologyName = NewType("TopologyName", str)
ComponentId = NewType("ComponentId", str)
StreamId = NewType("StreamId", str)
TaskId = NewType("TaskId", int)
"""A task's number: unique within its topology, fixed when the topology is submitted, starting at 1."""

NodeId = NewType("NodeId", str)
WorkerId = NewType("WorkerId", str)
"""`<topology>@<node>/<slot>`: the place, not the process; see `Incarnation` for the process."""

Incarnation = NewType("Incarnation", str)
"""One life of a worker process: its WorkerId, `#`, and a number that no other life of it has."""

Epoch = NewType("Epoch", int)
"""Only grows. Every assignment has one; what carries an older one is stale."""

DEFAULT_STREAM = StreamId("default")


def worker_id(topology: TopologyName, node: NodeId, slot: int) -> WorkerId:
    """The worker of `topology` in slot number `slot` of `node`."""
    return WorkerId(f"{topology}@{node}/{slot}")


def worker_of(incarnation: Incarnation) -> WorkerId:
    """The place that this life of a worker fills."""
    return WorkerId(incarnation.rpartition("#")[0])


def life_of(incarnation: Incarnation) -> int:
    """Its number among the lives of its worker; 0: it has none."""
    number = incarnation.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0


def node_of(worker: WorkerId) -> NodeId:
    """The node in a worker's name."""
    return NodeId(worker.rpartition("@")[2].rpartition("/")[0])
