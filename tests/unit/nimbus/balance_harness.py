"""A reign that only remembers, and a clock, for tests of the balancer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from elastic.errors import Conflict
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo, WorkerSlot
from elastic.model.codec import decode, encode
from elastic.model.events import Event
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import (
    ComponentId,
    Epoch,
    Incarnation,
    NodeId,
    StreamId,
    TaskId,
    TopologyName,
    WorkerId,
)
from elastic.model.load import ExecutorLoad, NodeReport, PairLoad, TaskLoad, WorkerReport
from elastic.model.records import (
    ElasticitySettings,
    Progress,
    TopologyState,
    TopologyStatus,
    WantedNode,
    WorkerInfo,
)
from elastic.model.topology import ComponentSpec, InputSpec, StreamSpec, TopologySpec
from elastic.model.views import MoveView
from elastic.nimbus.balancing.balancing import Balancer
from elastic.nimbus.balancing.remembering import NodesMemory, TopologyMemory
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.scheduler.base import Demand
from elastic.scheduler.round_robin import RoundRobinScheduler

N1, N2 = NodeId("n1"), NodeId("n2")
T, OUT, WORK = TopologyName("t"), ComponentId("out"), ComponentId("work")
W1, W2 = WorkerId("t@n1/0"), WorkerId("t@n2/0")
LINE = "thresholds --period 1 --sample 1 --samples 2 --cooldown 0"


def spec(**config: Any) -> TopologySpec:
    reads = (InputSpec(OUT, StreamId("default"), Grouping(GroupingKind.SHUFFLE)),)
    return TopologySpec(
        T,
        (
            ComponentSpec(OUT, "spout", 1, 1, outputs=(StreamSpec(StreamId("default"), ()),)),
            ComponentSpec(WORK, "bolt", 4, 1, True, inputs=reads, config={"max_executors": 3}),
        ),
        config=config,
    )


def executor(component: ComponentId, first: int, last: int) -> ExecutorId:
    return ExecutorId(component, TaskId(first), TaskId(last))


def topology(
    placed: Assignment, status: TopologyStatus = TopologyStatus.ACTIVE, **config: Any
) -> TopologyFacts:
    lives = {w: Incarnation(f"{w}#1") for w in placed.workers}
    return TopologyFacts(
        spec(**config),
        TopologyState(status, "t-1", "b", 0.0),
        0,
        placed,
        0,
        {w: WorkerInfo(w, i, "", "", "", 1, placed.epoch) for w, i in lives.items()},
        {w: Progress(i, placed.epoch) for w, i in lives.items()},
    )


APART = Assignment(
    T,
    Epoch(1),
    {W1: WorkerSlot(N1, 0), W2: WorkerSlot(N2, 0)},
    ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 5), W2)),
)
ALONE = Assignment(
    T, Epoch(1), {W1: WorkerSlot(N1, 0)}, ((executor(OUT, 1, 1), W1), (executor(WORK, 2, 5), W1))
)


class Reign:
    """See `elastic.nimbus.balancing.balance_port.Ruler`: carries out at once, and remembers."""

    def __init__(self, placed: Assignment = ALONE, line: str = "", **settings: Any) -> None:
        self.rules = Rules()
        self.said = ElasticitySettings(**settings)
        nodes = {n: NodeInfo(n, "h", 2, 1, "process", store="h:1") for n in (N1, N2)}
        wanted = {n: WantedNode(2) for n in nodes}
        config = {"elastic": line} if line else {}
        self.seen = Facts(0.0, nodes, wanted, topologies={T: topology(placed, **config)})
        self.shown: Facts | None = None
        """What is shown while it lags."""
        self.events: list[Event] = []
        self.adopted: list[tuple[Assignment, str, dict[ComponentId, int], int | None]] = []
        self.refuses = False
        self.added = 0
        self.drained: list[NodeId] = []
        self.written: dict[TopologyName, bytes] = {}
        self.of_nodes, self.writes = NodesMemory(), 0

    def wait_changed(self, seen: int, timeout: float) -> int:
        return seen

    def wait_asked(self, seen: int) -> int:
        return seen

    def facts(self) -> Facts:
        return self.shown or self.seen

    def facts_now(self) -> Facts:
        return self.seen

    def settings(self) -> ElasticitySettings:
        return self.said

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def adopt(
        self,
        name: str,
        desired: Assignment,
        why: str,
        executors: Mapping[ComponentId, int] | None = None,
        workers: int | None = None,
    ) -> bool:
        if self.refuses:
            raise Conflict("somebody else was faster")
        self.adopted.append((desired, why, dict(executors or {}), workers))
        now = self.seen.topologies[T]
        config = dict(now.spec.config)
        self.seen = replace(self.seen, topologies={T: topology(desired, **config)})
        return True

    def even(self, demand: Demand, facts: Facts) -> Assignment:
        return RoundRobinScheduler().schedule([demand], facts.cluster, facts.claims())[demand.spec.name]

    def moves(self, name: TopologyName) -> tuple[MoveView, ...]:
        return ()

    def add_nodes(self, count: int) -> None:
        self.added += count

    def drain_node(self, node: NodeId) -> None:
        self.drained.append(node)

    def recall(self) -> tuple[dict[TopologyName, TopologyMemory], NodesMemory]:
        return {n: decode(data, TopologyMemory) for n, data in self.written.items()}, self.of_nodes

    def remember(self, topologies: Mapping[TopologyName, TopologyMemory], nodes: NodesMemory | None) -> None:
        self.writes += 1
        self.written |= {n: encode(m) for n, m in topologies.items()}
        self.of_nodes = decode(encode(nodes), NodesMemory) if nodes is not None else self.of_nodes

    def forget(self, topologies: Iterable[TopologyName]) -> None:
        for name in topologies:
            del self.written[name]

    def kinds(self) -> list[str]:
        return [e.kind for e in self.events]

    def measured(self, second: int, busy: float, cpu: float = 0.01, tuples: int = 100) -> list[WorkerReport]:
        """What all workers report that second."""
        t = self.seen.topologies[T]
        assert t.assignment is not None
        reports = []
        for worker in t.assignment.workers:
            mine = t.assignment.executors_of(worker)
            tasks = [
                TaskLoad(n, str(e.component), str(e), executed=tuples * second, emitted=tuples * second)
                for e in mine
                for n in e.tasks()
            ]
            loads = [
                ExecutorLoad(
                    str(e), *((busy, 0.0, 1 - busy, cpu) if e.component == WORK else (0.05, 0.0, 0.95, 0.01))
                )
                for e in mine
            ]
            pairs = [
                PairLoad(1, n, tuples * second) for n in range(2, 6) if any(e.component == OUT for e in mine)
            ]
            reports.append(
                WorkerReport(
                    str(T),
                    worker,
                    f"{worker}#1",
                    float(second),
                    int(t.assignment.epoch),
                    tasks=tuple(tasks),
                    executors=tuple(loads),
                    cpu=sum(load.cpu for load in loads),
                    pairs=tuple(pairs),
                )
            )
        return reports


def nodes(second: int, cores: float = 4.0, used: float = 0.1, machine: str = "") -> list[NodeReport]:
    return [NodeReport(n, float(second), cores, used, machine=machine) for n in (N1, N2)]


class Clock:
    """Seconds go by, with a report and a look in each."""

    def __init__(self, reign: Reign) -> None:
        self.reign, self.balancer = reign, Balancer(reign)
        self.now, self.second = time.monotonic(), 0

    def go(self, seconds: int, busy: float, *, cores: float = 4.0, cpu: float = 0.01) -> None:
        for _ in range(seconds):
            self.balancer.look(self.now)
            self.second += 1
            self.now += 1.0
            self.balancer.observe(self.reign.measured(self.second, busy, cpu), nodes(self.second, cores))
        self.balancer.look(self.now)

    @property
    def executors(self) -> int:
        t = self.reign.seen.topologies[T]
        assert t.assignment is not None
        return sum(e.component == WORK for e, _ in t.assignment.executors)
