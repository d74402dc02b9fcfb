"""Workers that take part in moves as the protocol says, without running anything: they write marks, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from coordination_harness import PATIENCE
from nimbus_harness import Cluster, spec

from elastic.coordination import paths
from elastic.errors import ElasticError
from elastic.migration.record import (
    FailedMark,
    Marks,
    Phase,
    SavedMark,
    TaskMove,
    encode_marks,
    stage_of,
)
from elastic.model.assignment import Assignment
from elastic.model.ids import Incarnation, TopologyName, WorkerId, worker_of
from elastic.model.views import MoveView
from elastic.nimbus.facts import MoveFacts, TopologyFacts
from elastic.nimbus.mirror import Mirror
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.ports import MemoryStateCleaning

WC = TopologyName("wc")
STEPS = ("asked", "prepared", "saved", "restored", "closed")


class Actors:
    """Takes part for every living worker of every topology.

    Attributes:
        held: Steps that nobody takes until `let` says so.
        fails: Why a side says that it can't, by (step, task).
    """

    def __init__(self, cluster: Cluster) -> None:
        self.held: set[str] = set()
        self.fails: dict[tuple[str, int], str] = {}
        self.session = cluster.service.connect()
        self.mirror = Mirror(self.session)
        self._over = False
        self._thread = threading.Thread(target=self._run, name="actors", daemon=True)
        self._thread.start()

    def hold(self, *steps: str) -> None:
        self.held |= set(steps)

    def let(self, *steps: str) -> None:
        """Let steps be taken; all when none is named."""
        self.held -= set(steps or STEPS)
        self.mirror.nudge()

    def close(self) -> None:
        self._over = True
        self.mirror.nudge()
        self._thread.join(PATIENCE)
        self.mirror.close()

    def _run(self) -> None:
        seen = -1
        while not self._over:
            self.mirror.wait_for(lambda: self._over or self.mirror.revision != seen, PATIENCE)  # noqa: B023
            seen = self.mirror.revision
            for t in self.mirror.facts(time.time(), {}).topologies.values():
                for move in t.moves.values():
                    for one, marked in move.marks.items():
                        info = t.workers.get(worker_of(one))
                        if info is None or info.incarnation != one:
                            continue
                        new = self._marks(one, marked.marks, move)
                        if new != marked.marks:
                            path = paths.move_marks(t.name, move.record.epoch, one)
                            try:
                                self.session.set(path, encode_marks(new), version=marked.version)
                            except ElasticError:
                                self.mirror.nudge()  # somebody was first, or it is gone: look again

    def _marks(self, me: Incarnation, marks: Marks, move: MoveFacts) -> Marks:
        record = move.record
        for task in record.tasks:
            if not task.outcome:
                phase, _ = stage_of(task, record, move.marks)
                marks = self._of(me, marks, task, phase)
        if record.settled and "closed" not in self.held:
            marks = replace(marks, closed=True)
        return marks

    def _of(self, me: Incarnation, marks: Marks, task: TaskMove, phase: Phase) -> Marks:
        n = task.task

        def may(step: str, attempt: int) -> bool:
            nonlocal marks
            if step in self.held:
                return False
            why = self.fails.get((step, n))
            if why is not None:
                marks = replace(marks, failed={**marks.failed, n: FailedMark(attempt, why, "gone" in why)})
            return why is None

        if task.source == me:
            if phase >= Phase.PREPARING and n not in marks.asked and may("asked", 0):
                marks = replace(marks, asked=tuple(sorted({*marks.asked, n})))
            free = n not in marks.saved and n not in marks.barred
            if phase is Phase.PAUSED and free and may("saved", 0):
                nodes = (task.source_node, task.target_node)
                marks = replace(marks, saved={**marks.saved, n: SavedMark(nodes, 100 + n)})
        if task.target == me and marks.revoked.get(n, 0) < task.attempt:
            new = marks.prepared.get(n) != task.attempt
            if phase >= Phase.PREPARING and new and may("prepared", task.attempt):
                marks = replace(marks, prepared={**marks.prepared, n: task.attempt})
            new = marks.restored.get(n) != task.attempt
            if phase is Phase.SAVED and new and may("restored", task.attempt):
                marks = replace(marks, restored={**marks.restored, n: task.attempt})
        return marks


class Moving:
    """A cluster in which tasks move, and what tests ask of it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.actors = Actors(cluster)
        self.stores = MemoryStateCleaning()

    def nimbus(self, address: str = "h:1", *, wait: bool = True, **options: object) -> Nimbus:
        options = {"moves": True, "move_retry": 0.05, "move_linger": 0.0, **options}
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

    def until(self, nimbus: Nimbus, condition: Callable[[TopologyFacts], bool]) -> None:
        """Wait until the topology is so."""
        self.cluster.until(
            nimbus, lambda: condition(self.facts(nimbus)), lambda: (self.facts(nimbus), nimbus.moves())
        )

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

        def ended() -> list[MoveView]:
            return [m for m in nimbus.moves() if m.state == "ended"]

        self.cluster.until(nimbus, lambda: len(ended()) >= count, lambda: nimbus.moves())
        return tuple(ended())

    def crash(self, worker: WorkerId, *, again: bool = True) -> None:
        """End a worker's process; its supervisor starts it anew if `again`."""
        node = self.cluster.nodes[worker.rpartition("@")[2].rpartition("/")[0]]
        node.crash(worker.rpartition("@")[0], worker, again=again)

    def close(self) -> None:
        self.actors.close()


def phases(t: TopologyFacts) -> Iterator[Phase]:
    for move in t.moves.values():
        for task in move.record.tasks:
            yield stage_of(task, move.record, move.marks)[0]


def on(assignment: Assignment, component: str) -> set[str]:
    """The nodes that a component's tasks are on."""
    return {assignment.workers[w].node for e, w in assignment.executors if e.component == component}
