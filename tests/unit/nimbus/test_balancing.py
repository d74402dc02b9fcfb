"""The balancer, with a reign that only remembers: measurements in, what is to be changed out; and nothing while nobody asks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from elastic.elasticity.monitor import LoadMonitor
from elastic.errors import Conflict
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo, WorkerSlot
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
from elastic.model.loadview import LoadView, NodeLoad
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
from elastic.nimbus import balancing, subjects
from elastic.nimbus.balancing import Balancer
from elastic.nimbus.facts import Facts, TopologyFacts
from elastic.nimbus.placing import Rules
from elastic.nimbus.plans import Plan
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
    """See `elastic.nimbus.balancing.Ruler`: carries out at once, and remembers."""

    def __init__(self, placed: Assignment = ALONE, line: str = "", **settings: Any) -> None:
        self.rules = Rules()
        self.said = ElasticitySettings(**settings)
        nodes = {n: NodeInfo(n, "h", 2, 1, "process") for n in (N1, N2)}
        wanted = {n: WantedNode(2) for n in nodes}
        config = {"elastic": line} if line else {}
        self.seen = Facts(0.0, nodes, wanted, topologies={T: topology(placed, **config)})
        self.events: list[Event] = []
        self.adopted: list[tuple[Assignment, str, dict[ComponentId, int], int | None]] = []
        self.refuses = False
        self.added = 0
        self.drained: list[NodeId] = []

    def wait_changed(self, seen: int) -> int:
        return seen

    def facts(self) -> Facts:
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


def test_nothing_is_measured_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> bool:
        raise AssertionError("measured")

    monkeypatch.setattr(LoadMonitor, "observe", never)
    monkeypatch.setattr(LoadMonitor, "view", never)
    clock = Clock(Reign())
    clock.go(3, 1.0)
    assert clock.reign.events == [] and clock.reign.adopted == []
    clock.reign.said = ElasticitySettings(policy=LINE)
    with pytest.raises(AssertionError, match="measured"):
        clock.go(2, 1.0)


@pytest.mark.parametrize("own", [True, False])
def test_a_topology_follows_its_load(own: bool) -> None:
    reign = Reign(line=LINE) if own else Reign(policy=LINE)
    clock = Clock(reign)
    clock.go(4, 1.0)
    assert clock.executors >= 2 and reign.kinds()[:2] == ["scale-out", "relocated"]
    desired, why, executors, workers = reign.adopted[0]
    assert executors == {OUT: 1, WORK: 2} and workers == 1 and "above 0.7 busy" in why
    assert {w for _, w in desired.executors} == {W1}, "it waits: a thread is enough"
    clock.go(12, 1.0)
    assert clock.executors == 3 and "at-maximum" in reign.kinds() and "topology-resized" in reign.kinds()
    clock.go(20, 0.01)
    assert clock.executors == 1 and "scale-in" in reign.kinds()
    told = [e.kind for e in clock.balancer.told(T)]
    assert told == [e.kind for e in reign.events if e.topology == T] and "scaled" in told


def test_computing_goes_to_other_processes() -> None:
    clock = Clock(Reign(line=LINE))
    clock.go(6, 0.95, cpu=0.9)
    (desired, *_) = clock.reign.adopted[-1]
    assert len({w for e, w in desired.executors if e.component == WORK}) >= 2


def test_what_is_only_tried_changes_nothing() -> None:
    clock = Clock(Reign(policy=f"{LINE} --dry-run"))
    clock.go(6, 1.0)
    assert clock.reign.adopted == [] and clock.executors == 1
    out = next(e for e in clock.reign.events if e.kind == "scale-out")
    assert out.message.startswith("dry run: ") and out.details["dry_run"] == 1


def test_what_cannot_be_done_is_said_and_tried_again() -> None:
    clock = Clock(Reign(policy=LINE))
    clock.reign.refuses = True
    clock.go(4, 1.0)
    assert "resize-refused" in clock.reign.kinds() and clock.executors == 1
    clock.reign.refuses = False
    clock.go(4, 1.0)
    assert clock.executors >= 2


def test_a_line_that_cannot_be_used_here_is_said_once() -> None:
    clock = Clock(Reign(policy="of-a-package-that-is-gone"))
    clock.go(3, 1.0)
    assert clock.reign.kinds() == ["elasticity-refused"]


@pytest.mark.parametrize(
    "why",
    ["inactive", "planned", "behind", "finished"],
)
def test_who_is_just_changing_is_left_alone(why: str) -> None:
    reign = Reign(policy=LINE)
    t = reign.seen.topologies[T]
    if why == "inactive":
        t = topology(ALONE, TopologyStatus.INACTIVE)
    elif why == "planned":
        t = replace(t, plan=Plan(APART, "asked", 0.0))
    elif why == "behind":
        t = replace(t, progress={W1: Progress(Incarnation(f"{W1}#1"), Epoch(0))})
    else:
        t = replace(t, progress={W1: Progress(Incarnation(f"{W1}#1"), Epoch(1), finished=(1,))})
    reign.seen = replace(reign.seen, topologies={T: t})
    clock = Clock(reign)
    clock.go(6, 1.0)
    assert reign.adopted == []


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes everything for settled resizes what is just changing."""
    monkeypatch.setattr(subjects, "settled", lambda *_: True)
    with pytest.raises(AssertionError):
        test_who_is_just_changing_is_left_alone("inactive")


def test_a_scheduler_is_exchanged_and_explains_itself() -> None:
    reign = Reign(APART, scheduler="otd", period=1.0)
    clock = Clock(reign)
    clock.go(3, 0.3)
    assert "case-4" in reign.kinds() or "moved" in reign.kinds()
    reign.adopted.clear()
    reign.seen = replace(reign.seen, topologies={T: topology(APART)})
    reign.said = ElasticitySettings(scheduler="tstorm --gamma 6 --worker-cores 0", period=1.0)
    clock.go(4, 0.3)
    assert "rescheduled" in reign.kinds()
    desired, why, executors, workers = reign.adopted[0]
    assert len({w for _, w in desired.executors}) == 1 and why.startswith("tstorm: ")
    assert executors == {} and workers is None
    before = len(reign.events)
    clock.go(5, 0.3)
    assert reign.kinds()[before:].count("kept") <= 1, "that nothing is done is said once"


def test_nodes_are_asked_for_and_returned() -> None:
    reign = Reign(policy=LINE, nodes="--maximum 4 --minimum 1 --patience 3 --cooldown-in 3 --cooldown-out 1")
    clock = Clock(reign)
    clock.go(6, 0.3)
    assert reign.added == 0
    clock.go(8, 0.3)
    assert reign.drained and "node-return" in reign.kinds()
    reign.said = replace(reign.said, nodes="--maximum 4 --minimum 3")
    clock.go(2, 0.3)
    assert reign.added >= 1 and "node-request" in reign.kinds()


def test_nodes_on_one_machine_share_its_cores() -> None:
    view = LoadView(nodes={N1: NodeLoad(2.0, 1.0), N2: NodeLoad(2.0, 1.0)})
    assert subjects.shared(view, {N1: "m", N2: "m"}).nodes == {N1: NodeLoad(1.0, 0.5), N2: NodeLoad(1.0, 0.5)}
    assert subjects.shared(view, {N1: "m", N2: "n"}) is view
    assert subjects.shared(view, {N1: "", N2: ""}) is view, "their own"


def test_the_thread_ends() -> None:
    balancer = Balancer(Reign())
    balancer.close()
    balancer.start()
    balancer.join()
    assert balancing.Balancer is Balancer
