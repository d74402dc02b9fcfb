"""Moves and the nodes' state stores: a store that is being started again is waited for, and is no failure of what needs it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from elastic.migration.plan import Change
from elastic.model.assignment import NodeInfo
from elastic.model.ids import NodeId, node_of
from elastic.nimbus.observing.plans import Plan
from statestore.address import StoreAddress

Nodes = Mapping[NodeId, NodeInfo]


def awaited(change: Change, nodes: Nodes) -> NodeId | None:
    """The node whose store has to be back before a task can move; None when those of both sides serve."""
    for node in (node_of(change.source), node_of(change.target)):
        if node in nodes and not nodes[node].store:
            return node
    return None


def give_up_at(plan: Plan, task: int, timeout: float) -> float:
    """Until when the stores that a task needs are waited for: seconds since 1970."""
    failure, asked = plan.failure(task), plan.asked_at(task)
    if failure is None:
        return asked + timeout
    return (failure.since or max(asked, failure.at)) + timeout


def trouble(before: Nodes, now: Nodes, concerned: Collection[NodeId]) -> str:
    """What became of the stores that some nodes need, since a move began; "" when nothing did.

    Args:
        before: The nodes when it began.
        now: The nodes now.
        concerned: Those that take part. Stores in front of one cluster need each other.
    """
    groups = {_group(before[n]) for n in concerned if n in before} - {""}
    for node in sorted({*concerned, *(n for n, i in before.items() if _group(i) in groups)}):
        was, info = before.get(node), now.get(node)
        if info is None and was is not None and _group(was):
            return f"node {node} is gone, whose state store was one of several that hold states together"
        if info is not None and not info.store:
            return f"the state store of node {node} is being started again"
        if info is not None and was is not None and _life(info) != _life(was):
            return f"the state store of node {node} was started again meanwhile"
    return ""


def excuse(
    plan: Plan, before: Nodes, now: Nodes, at: float, timeout: float
) -> Callable[[int, Collection[NodeId]], str]:
    """For `after_outcomes`: why a failure of a task is that of a store which was away, as long as stores are waited for at all."""

    def why(task: int, concerned: Collection[NodeId]) -> str:
        failure = plan.failure(task)
        if failure is not None and failure.since and at >= failure.since + timeout:
            return ""
        return trouble(before, now, concerned)

    return why


def waiting(changes: Iterable[Change], nodes: Nodes) -> tuple[NodeId, ...]:
    """The nodes whose stores something that is to move waits for."""
    return tuple(sorted({n for c in changes if (n := awaited(c, nodes)) is not None}))


def _life(info: NodeInfo) -> tuple[int, int]:
    return info.generation, info.store_life


def _group(info: NodeInfo) -> str:
    return StoreAddress.parse(info.store).group if info.store else ""
