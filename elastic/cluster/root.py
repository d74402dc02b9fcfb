"""What the launcher reads and writes in coordination: its own mark, the nodes that are wanted, those that are there."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from elastic import procs
from elastic.api.settings import SETTINGS, setting
from elastic.coordination import paths
from elastic.coordination.base import Coordination, Create, Delete
from elastic.errors import Conflict, ElasticError, Refused
from elastic.hosts.generation import start_of
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.ids import NodeId, TopologyName, node_of
from elastic.model.records import WantedNode, WorkerInfo
from elastic.model.topology import TopologySpec
from elastic.transport.addresses import boot_id

log = logging.getLogger(__name__)
_END = 2.0
"""Seconds for a killed process to have ended."""
_ASKED = 2.0
"""Seconds that an answer is waited for before nodes are ended."""
SINCE = 1_735_689_600
"""2025-01-01, in seconds since 1970: from then on numbers of moves are counted where they go by the clock, one a second at most."""
_NODE_GRACE = 3.0
"""Seconds beyond those of its workers, which its supervisor kills before (`SupervisorOptions.grace`)."""


def claim(coordination: Coordination, where: str, what: str) -> None:
    """Leave the launcher's mark: there is one launcher for each root. That of one that was killed goes with its
    session, which is waited for.

    Args:
        where: The root's address, for messages.
        what: Says whose mark it is, for people.

    Raises:
        Refused: Another launcher's mark is there.
    """
    mark = f"{socket.gethostname()}, process {os.getpid()}, {what}".encode()
    gone = threading.Event()
    watch = coordination.watch_value(
        paths.LAUNCHER, lambda value: gone.set() if value is None else gone.clear()
    )
    try:
        deadline = time.monotonic() + 2 * coordination.session_timeout
        while True:
            try:
                coordination.create(paths.LAUNCHER, mark, ephemeral=True)
                return
            except Conflict:
                if not gone.wait(max(0.0, deadline - time.monotonic())) or time.monotonic() > deadline:
                    break
    finally:
        watch.cancel()
    there = coordination.get(paths.LAUNCHER)
    raise Refused(
        f"another cluster uses ZooKeeper at {where}: {there.data.decode() if there else 'unknown'}",
        remedy="Give this one a root of its own: --zookeeper host:port/name",
    )


def reset(
    coordination: Coordination, first: Mapping[NodeId, WantedNode], *, after: int = 0
) -> dict[NodeId, int]:
    """Make the root that of a new cluster: what an earlier one left there goes, but for how far the numbers of moves have come. Stores may
    outlive it, and refuse whatever has a number that is not greater than those that they have seen of a task.

    Args:
        first: The nodes that are wanted.
        after: All numbers of moves are to be greater than this one.

    Returns:
        The highest generations that nodes may have which still seem to be there: new ones must have higher ones.
    """
    for path in paths.ALL:
        with contextlib.suppress(Conflict):
            coordination.create(path)
    # Before anything else: a Nimbus that leads already would act by it.
    coordination.set(paths.ELASTICITY, b"")
    coordination.set(paths.TOPOLOGIES, str(max(after, _greatest(coordination))).encode())
    coordination.delete(paths.NODES_MEMORY)
    for path in (paths.TOPOLOGIES, paths.MEMORIES, paths.DRAINS, paths.WANTED):
        for name in coordination.children(path) or ():
            if path != paths.WANTED or NodeId(name) not in first:
                coordination.delete(f"{path}/{name}", recursive=True)
    for node, wanted in first.items():
        coordination.put(paths.wanted(node), encode(wanted))
    coordination.set(paths.WANTED, paths.WANTED_SAID)  # from here on, nodes that are not in it end
    found = {NodeId(n): _start(coordination, NodeId(n)) for n in coordination.children(paths.NODES) or ()}
    return {node: ours[-1] for node, ours in found.items() if ours}


def after_all_before(remember: bool) -> int:
    """What the numbers of a new cluster's moves come after.

    Args:
        remember: Whether there are stores, or is coordination, that outlive clusters: then the numbers go by the clock, as an earlier
            cluster's may be known to nobody but those stores.
    """
    return max(0, int(time.time()) - SINCE) if remember else 0


def _greatest(coordination: Coordination) -> int:
    """The greatest number of a move of which the root knows."""
    known = [coordination.get(paths.TOPOLOGIES)]
    known += [
        coordination.get(paths.moves(TopologyName(name)))
        for name in coordination.children(paths.TOPOLOGIES) or ()
    ]
    return max((int(v.data) for v in known if v is not None and v.data.isdigit()), default=0)


def node_grace(coordination: Coordination | None) -> float:
    """Seconds that a node has to end: for its workers the longest `stop_grace` of the topologies that are there, and then for itself.

    Without an answer, which is waited for a moment only, that is the default: without a connection the workers have none either, and end
    by that.
    """
    longest: float = setting("stop_grace")
    if coordination is not None:
        with contextlib.suppress(queue.Empty):
            longest = _answer(coordination, longest)
    return longest + _NODE_GRACE


def _answer(coordination: Coordination, least: float) -> float:
    """On a thread of its own: without a connection a question waits for as long as the session may go on."""
    found: queue.SimpleQueue[float] = queue.SimpleQueue()

    def ask() -> None:
        graces = [least]
        with contextlib.suppress(ElasticError):
            graces += _stop_graces(coordination)
        found.put(max(graces))

    threading.Thread(target=ask, name="elastic-node-grace", daemon=True).start()
    return found.get(timeout=_ASKED)


def _stop_graces(coordination: Coordination) -> Iterator[float]:
    bound = SETTINGS["stop_grace"].maximum
    names = coordination.children(paths.TOPOLOGIES) or ()
    for found in coordination.look([paths.spec(TopologyName(n)) for n in names]).values.values():
        with contextlib.suppress(msgspec.MsgspecError):  # of another version of this program, perhaps
            config = decode(found.data, TopologySpec).config if found is not None else {}
            yield min(setting("stop_grace", config), bound)


def remove(coordination: Coordination) -> None:
    """Remove all that a cluster had there."""
    for path in (*paths.ALL, paths.LAUNCHER):
        coordination.delete(path, recursive=True)


def read_wanted(coordination: Coordination, names: Iterable[str]) -> dict[NodeId, WantedNode]:
    """What is wanted of those nodes; without those that are not wanted any more."""
    values = {NodeId(n): coordination.get(paths.wanted(NodeId(n))) for n in names}
    return {node: decode(v.data, WantedNode) for node, v in values.items() if v is not None}


def forget(coordination: Coordination, node: NodeId, generation: int) -> bool:
    """A node's process has ended: its registration goes now, not with its session.

    Args:
        generation: The first of the start of it that has ended; the registration of another stays.

    Returns:
        Whether the node is still wanted.
    """
    if generation in _start(coordination, node):
        with contextlib.suppress(ElasticError):
            coordination.delete(paths.node(node))
    return coordination.get(paths.wanted(node)) is not None


def bury(coordination: Coordination, node: NodeId) -> None:
    """What the workers of a node have left goes now, not with their sessions: until then their tasks stand still.

    Only for a node that was a child of this process: its workers die with it, by the kernel. That has been set in motion when its end is
    known, but is not over, and nobody else may run their tasks before it is. So each is waited for; one that does not end keeps its entry.

    A later life of the node sees to them itself, before it starts workers; it is registered before, and then nothing is done here.
    """
    here = boot_id()
    names = [TopologyName(n) for n in coordination.children(paths.TOPOLOGIES) or ()]
    listed = coordination.look([], [paths.workers(n) for n in names]).children
    entries = [
        f"{parent}/{leaf}"
        for parent, leaves in listed.items()
        for leaf in leaves or ()
        if node_of(paths.unleaf(leaf)) == node
    ]
    nobody = Create(paths.node(node)), Delete(paths.node(node))
    for path, found in coordination.look(entries).values.items():
        info = decode(found.data, WorkerInfo) if found is not None else None
        if found is None or info is None or info.boot != here:
            continue
        if not procs.end_stray(info.pid, info.incarnation, _END):
            log.warning("%s of node %s, which has ended, does not end", info.incarnation, node)
            continue
        with contextlib.suppress(Conflict):  # another life of the node, or it has gone by itself
            coordination.transaction([nobody[0], Delete(path, found.version), nobody[1]])


def _start(coordination: Coordination, node: NodeId) -> range:
    """The generations of the start of a node that is registered; empty when none is."""
    value = coordination.get(paths.node(node))
    if value is None:
        return range(0)
    info = decode(value.data, NodeInfo)
    return start_of(info.generation, info.kind == "spark")
