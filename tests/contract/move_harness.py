"""What tests of moves share: a cluster in which tasks move, and what may happen to its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from coordination_harness import PATIENCE
from nimbus_harness import Cluster, spec

from elastic.coordination import paths
from elastic.migration.record import Phase, stage_of
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.codec import decode
from elastic.model.ids import NodeId, TopologyName, WorkerId
from elastic.model.views import MoveView
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.observing.facts import TopologyFacts
from elastic.nimbus.ports import MemoryStateCleaning

WC = TopologyName("wc")
A, B = WorkerId("wc@a/0"), WorkerId("wc@b/0")
COUNT = [6, 7, 8, 9]
"""The tasks of its component with state."""


class Moving:
    """A cluster in which tasks move, and what tests ask of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.actors = cluster.actors
        self.stores = MemoryStateCleaning()

    def nimbus(self, address: str = "h:1", *, wait: bool = True, **options: object) -> Nimbus:
        options = {"move_retry": 0.05, "move_linger": 0.0, **options}
        return self.cluster.nimbus(address, wait=wait, stores=self.stores, **options)

    def started(self, nodes: dict[str, int], workers: int = 1, **shape: object) -> Nimbus:
        """A Nimbus, nodes by their slots, and a running topology."""
        nimbus = self.nimbus()
        for name, slots in nodes.items():
            self.cluster.node(name, slots)
        self.cluster.until(nimbus, lambda: len(nimbus.nodes()) == len(nodes))
        self.cluster.started(nimbus, spec(workers=workers, **shape))  # type: ignore[arg-type]
        return nimbus

    def facts(self, nimbus: Nimbus, name: TopologyName = WC) -> TopologyFacts:
        reign = nimbus._reign
        assert reign is not None
        return reign.facts().topologies[name]

    def node(self, nimbus: Nimbus, name: str) -> NodeInfo:
        """A node, as Nimbus sees it."""
        reign = nimbus._reign
        assert reign is not None
        return reign.facts().nodes[NodeId(name)]

    def until(self, nimbus: Nimbus, condition: Callable[[TopologyFacts], bool]) -> None:
        """Wait until the topology is so."""
        self.cluster.until(
            nimbus, lambda: condition(self.facts(nimbus)), lambda: (self.facts(nimbus), nimbus.moves())
        )

    def shown(self, nimbus: Nimbus, condition: Callable[[MoveView], bool]) -> MoveView:
        """Wait until the newest move is shown, and so, which is a moment after Nimbus has seen it."""
        assert nimbus._reign is not None
        deadline, seen = time.monotonic() + PATIENCE, 0
        while not (views := nimbus.moves("wc")) or not condition(views[0]):
            assert time.monotonic() < deadline, views
            seen, _ = nimbus._reign.move_log.changes(seen, 1.0)
        return views[0]

    def phase(self, nimbus: Nimbus, phase: Phase) -> None:
        """Wait until some task of a move is in that phase, as Nimbus sees it."""

        def reached(t: TopologyFacts) -> bool:
            return any(p is phase for p in phases(t))

        self.until(nimbus, reached)

    def quiet(self, nimbus: Nimbus, name: str = "wc") -> Assignment:
        """Wait until no move is left, and nothing waits for anything; the assignment then."""
        self.cluster.settled(nimbus, name)
        topology = TopologyName(name)
        self.cluster.until(
            nimbus,
            lambda: self._at_rest(self.facts(nimbus, topology)),
            lambda: (self.facts(nimbus, topology), nimbus.moves()),
        )
        self.cluster.settled(nimbus, name)
        assignment = nimbus.describe(name).assignment
        assert self.cluster.look.children(paths.moves(TopologyName(name))) in ((), None)
        assert self.cluster.look.get(paths.plan(TopologyName(name))) is None
        return assignment

    def _at_rest(self, t: TopologyFacts) -> bool:
        a = t.assignment
        busy = {w for _, w in a.executors} if a is not None else set()
        return a is not None and not t.moves and t.plan is None and busy == set(a.workers)

    def moves(self, nimbus: Nimbus, count: int = 1) -> tuple[MoveView, ...]:
        """Wait until that many moves have ended."""

        reign = nimbus._reign
        assert reign is not None

        def ended() -> list[MoveView]:
            return [m for m in reign.move_log.views() if m.state == "ended"]

        self.cluster.until(nimbus, lambda: len(ended()) >= count, reign.move_log.views)
        return tuple(ended())

    def crash(self, worker: WorkerId, *, again: bool = True) -> None:
        """End a worker's process; its supervisor starts it anew if `again`."""
        node = self.cluster.nodes[worker.rpartition("@")[2].rpartition("/")[0]]
        node.crash(worker.rpartition("@")[0], worker, again=again)


def phases(t: TopologyFacts) -> Iterator[Phase]:
    for move in t.moves.values():
        for task in move.record.tasks:
            yield stage_of(task, move.record, move.marks, move.turn)[0]


def on(assignment: Assignment, component: str) -> set[str]:
    """The nodes that a component's tasks are on."""
    return {assignment.workers[w].node for e, w in assignment.executors if e.component == component}


def places(moving: Moving) -> dict[int, str]:
    """Each task's worker, as coordination has it."""
    found = moving.cluster.look.get(paths.assignment(WC))
    assert found is not None
    return {int(t): str(w) for t, w in decode(found.data, Assignment).place_of().items()}


def takes_over(moving: Moving, second: Nimbus) -> None:
    """The leader's process is gone."""
    moving.cluster.service.expire(moving.cluster.sessions["h:1"])
    assert second.wait_leading(PATIENCE)
