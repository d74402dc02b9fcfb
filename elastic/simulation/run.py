"""A simulation: load in, reports out, decisions back. Time is a number that grows.

engine --reports--> LoadMonitor --view--> ElasticityManager --decision--> placer --assignment--> engine
                                          scheduler, once a period     --assignment--> engine
                                          infrastructure policy --nodes--> cluster
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic.elasticity.base import Subject
from elastic.elasticity.infrastructure import (
    Infrastructure,
    Node,
    Past,
    Wants,
    decide,
    measured,
    room_of,
)
from elastic.elasticity.infrastructure import check as check_infrastructure
from elastic.elasticity.manager import Decision, ElasticityManager, Outcome, expected
from elastic.elasticity.monitor import LoadMonitor, MonitorConfig
from elastic.elasticity.processes import ManagerConfig
from elastic.model.assignment import Assignment
from elastic.model.ids import ComponentId, Epoch, NodeId, TaskId
from elastic.model.load import ExecutorLoad, NodeReport, PairLoad, TaskLoad, WorkerReport
from elastic.scheduler.base import Demand
from elastic.simulation.engine import QUEUE, Engine, Step
from elastic.simulation.model import Model
from elastic.simulation.noise import Noise
from elastic.simulation.placement import Place, place
from elastic.simulation.profile import Profile
from elastic.simulation.result import Made, Result, Sample
from elastic.simulation.scheduled import Scheduled


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """What the world is like. Times are seconds.

    Attributes:
        nodes, cores, slots: The cluster, and of each node.
        step: Of the queueing model.
        report: Between two reports of a worker.
        plan: From a decision to the beginning of its moves.
        pause: For which a task stands still that goes to another worker.
        node_start: From asking for a node to its being there.
        offers: Whether the spout says what its source offers (metric `offered`).
        pairs: Whether workers report what each pair of tasks exchanges.
        elastic: False: nothing is changed, for comparison.
        seed: Of chance.
    """

    nodes: int = 5
    cores: float = 4.0
    slots: int = 6
    step: float = 0.1
    report: float = 1.0
    plan: float = 0.3
    pause: float = 0.15
    node_start: float = 2.0
    offers: bool = True
    pairs: bool = True
    elastic: bool = True
    seed: int = 1


class Simulation:
    """One run of one topology.

    Args:
        policy: As `ElasticityManager` takes it.
        scheduler: What places executors, and places them anew once a period; None: `placement.place`, and only when their number changes.
    """

    def __init__(
        self,
        model: Model,
        profile: Profile,
        *,
        policy: str = "thresholds",
        manager: ManagerConfig | None = None,
        monitor: MonitorConfig | None = None,
        infrastructure: Infrastructure | None = None,
        options: SimulationOptions | None = None,
        scheduler: Scheduled | None = None,
    ) -> None:
        self.model, self.profile = model, profile
        self.options = options or SimulationOptions()
        self.infrastructure = infrastructure or Infrastructure()
        check_infrastructure(self.infrastructure)
        self.manager = ElasticityManager(policy, manager)
        self.monitor = LoadMonitor(monitor)
        self.engine = Engine(model, Noise(self.options.seed))
        self.result = Result(profile)
        self._scheduler = scheduler
        self._place: Place = place if scheduler is None else scheduler.place
        self._spec = model.spec
        self._wanted = {c.id: c.executors for c in self._spec.components}
        self._workers = self._spec.workers
        self._past = Past()
        self._coming: list[tuple[float, Decision, float]] = []
        self._made = 0
        self._nodes: list[Node] = []
        for _ in range(self.options.nodes):
            self._add_node(alive=True, now=0.0)
        self._assignment = Assignment(self._spec.name, Epoch(0))
        self._arrange()

    # --- running

    def run(self) -> Result:
        """To the end of the profile."""
        options, time, steps = self.options, 0.0, 0
        each = max(1, round(options.report / options.step))
        total = round(self.profile.seconds / options.step)
        heap: list[Step] = []
        while steps < total:
            _, phase = self.profile.at(time)
            self._come(time)
            heap.append(self.engine.step(phase.rate, options.step))
            steps += 1
            time = steps * options.step
            if steps % each == 0:
                self._sample(time, phase.rate, heap)
                heap = []
                self._report(time)
                self._decide(time)
                self._place_anew(time)
        return self.result

    def _come(self, now: float) -> None:
        """What was decided happens."""
        for node in [n for n in self._nodes if not n.alive and now >= n.since + self.options.node_start]:
            self._nodes[self._nodes.index(node)] = replace(node, alive=True)
            self.engine.cores[node.id] = self.options.cores
            if self._assignment.unassigned:
                self._arrange()
        while self._coming and self._coming[0][0] <= now:
            _, decision, decided = self._coming.pop(0)
            self._wanted = dict(decision.executors)
            self._workers = decision.workers
            moved = self._arrange(decision)
            self.result.decisions.append(Made(decided, decision, now, moved))
        for node in [n for n in self._nodes if n.draining and not n.used]:
            self._nodes.remove(node)
            self.monitor.forget_node(node.id)
            self.engine.cores.pop(node.id, None)

    def _arrange(self, decision: Decision | None = None) -> int:
        view = self.monitor.view(self.engine.time)
        if decision is not None:
            view = expected(view, decision)
        self._assignment = self._place(self._demand(), self._assignment, self._nodes, view)
        return self._adopt()

    def _place_anew(self, now: float) -> None:
        """The scheduler's period."""
        if self._scheduler is None or self._coming:
            return
        view = self.monitor.view(now)
        if not self._scheduler.due(self._assignment, self._nodes, view):
            return
        found, placed = self._scheduler.again(self._demand(), self._assignment, self._nodes, view)
        self.result.placed.append(placed)
        if found is not self._assignment:
            self._assignment = found
            self._adopt()

    def _demand(self) -> Demand:
        return Demand(self._spec, self._workers, self._wanted, movable=True)

    def _adopt(self) -> int:
        executors = Counter(self._assignment.workers[w].node for _, w in self._assignment.executors)
        used = Counter(slot.node for slot in self._assignment.workers.values())
        self._nodes = [replace(n, used=used[n.id], executors=executors[n.id]) for n in self._nodes]
        return self.engine.arrange(self._assignment, self.options.pause)

    def _decide(self, now: float) -> None:
        if not self.options.elastic:
            return
        view = self.monitor.view(now)
        nodes = measured(self._nodes, view)
        subject = Subject(
            self._spec,
            self._wanted,
            len(self._assignment.workers) or self._workers,
            self.model.bounds,
            settled=not self._coming,
            waiting=len(self._assignment.unassigned),
            processes=self._scheduler is None or self._scheduler.processes,
        )
        ran = self.manager.state.run
        outcome = self.manager.run(view, [subject], room_of(nodes), now)
        self.result.reasons += [(now, r) for r in outcome.reasons]
        if outcome.decision is not None and not outcome.decision.dry_run:
            self._coming.append((now + self.options.plan, outcome.decision, now))
        if self.manager.state.run != ran:
            self._resize(nodes, outcome, now)

    def _resize(self, nodes: Sequence[Node], outcome: Outcome, now: float) -> None:
        wants = Wants(
            outcome.cores,
            outcome.lacking,
            outcome.workers,
            len(self._assignment.unassigned),
            bool(self._coming) or not outcome.settled,
        )
        steps, self._past = decide(nodes, wants, self.infrastructure, self._past, now)
        self.result.reasons += [(now, r) for r in steps.reasons]
        if steps.dry_run:
            return
        for _ in range(steps.add):
            self._add_node(alive=False, now=now)
        for id in steps.drain:
            self._nodes = [replace(n, draining=True) if n.id == id else n for n in self._nodes]
        if steps.drain:
            self._arrange()

    def _add_node(self, *, alive: bool, now: float) -> None:
        self._made += 1
        id = NodeId(f"n{self._made:04}")
        self._nodes.append(Node(id, self.options.slots, alive=alive, since=now))
        if alive:
            self.engine.cores[id] = self.options.cores

    # --- measuring

    def _sample(self, now: float, rate: float, steps: Sequence[Step]) -> None:
        n = len(steps)
        here = [node for node in self._nodes if node.alive]
        self.result.samples.append(
            Sample(
                now,
                rate,
                sum(s.flow for s in steps) / n,
                sum(s.latency for s in steps) / n,
                len(self._assignment.executors),
                len(self._assignment.workers),
                len(here),
                sum(s.cpu for s in steps) / (n * self.options.step),
                self.options.cores * len(here),
                self.engine.backlog,
                self._between(),
            )
        )

    def _between(self) -> float:
        """The share of the tuples between executors that goes to another node: every executor of a component sends to all alike."""
        parts: dict[ComponentId, Counter[NodeId]] = {c.id: Counter() for c in self._spec.components}
        for id, worker in self._assignment.executors:
            parts[id.component][self._assignment.workers[worker].node] += len(id.tasks())
        sent = sum(self.engine.sent.values())
        near = 0.0
        for (source, target), tuples in self.engine.sent.items():
            here, there = parts[source], parts[target]
            pairs = sum(n * there[node] for node, n in here.items())
            near += tuples * pairs / max(1, here.total() * there.total())
        return 1.0 - near / sent if sent else 0.0

    def _report(self, now: float) -> None:
        """What workers and nodes would report."""
        options, engine = self.options, self.engine
        by_worker: dict[str, list[ExecutorLoad]] = {w: [] for w in self._assignment.workers}
        tasks: dict[str, list[TaskLoad]] = {w: [] for w in self._assignment.workers}
        cpu: Counter[str] = Counter()
        rate = self.profile.at(now - options.step)[1].rate
        engine.settle()
        for e in engine.all():
            busy, blocked = min(1.0, e.busy / options.report), min(1.0, e.blocked / options.report)
            by_worker[e.worker].append(
                ExecutorLoad(
                    str(e.id),
                    busy,
                    min(blocked, 1.0 - busy),
                    max(0.0, 1.0 - busy - blocked),
                    e.cpu / options.report,
                    QUEUE,
                )
            )
            cpu[e.worker] += e.cpu / options.report  # type: ignore[assignment]  # a sum of floats
            spec = self._spec.component(e.id.component)
            offered = rate * e.share if options.offers and spec.kind == "spout" else 0.0
            for t in e.id.tasks():
                executed, emitted = engine.counts[TaskId(t)]
                tasks[e.worker].append(
                    TaskLoad(
                        t,
                        spec.id,
                        str(e.id),
                        int(executed),
                        int(emitted),
                        queued=int(e.queue / len(e.id.tasks())),
                        custom={"offered": offered / len(e.id.tasks())} if offered else {},
                        state=self.model.state if spec.stateful else 0,
                    )
                )
            e.busy = e.blocked = e.cpu = 0.0
        pairs = self._pairs() if options.pairs else {}
        nodes: Counter[NodeId] = Counter()
        for worker, slot in self._assignment.workers.items():
            nodes[slot.node] += cpu[worker]
            self.monitor.observe(
                WorkerReport(
                    self._spec.name,
                    worker,
                    f"{worker}#1",
                    now,
                    self._assignment.epoch,
                    rss=100 << 20,
                    cpu=float(cpu[worker]),
                    tasks=tuple(tasks[worker]),
                    executors=tuple(by_worker[worker]),
                    cores=options.cores,
                    pairs=tuple(p for t in tasks[worker] for p in pairs.get(t.task, ())),
                ),
                now,
            )
        for node in self._nodes:
            if node.alive:
                self.monitor.observe_node(NodeReport(node.id, now, options.cores, float(nodes[node.id])), now)

    def _pairs(self) -> dict[int, list[PairLoad]]:
        result: dict[int, list[PairLoad]] = {}
        for (source, target), sent in self.engine.sent.items():
            sources, targets = self._spec.tasks_of(source), self._spec.tasks_of(target)
            each = int(sent / (len(sources) * len(targets)))
            for s in sources:
                result.setdefault(s, []).extend(PairLoad(s, t, each, 0) for t in targets)
        return result
