"""Facts and measurements side by side, as the views that requests answer. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from elastic.api.settings import setting
from elastic.model.assignment import Assignment, ExecutorId
from elastic.model.checkpoints import INTERVAL, Complete, number_of
from elastic.model.events import Event
from elastic.model.ids import ComponentId, Epoch, NodeId, TaskId, WorkerId, node_of
from elastic.model.load import ExecutorLoad, NodeReport, TaskLoad
from elastic.model.loadview import LoadView, NodeLoad
from elastic.model.rates import Rated
from elastic.model.records import TopologyStatus
from elastic.model.views import (
    CheckpointView,
    ComponentView,
    ExecutorView,
    NodeSummary,
    PairView,
    TopologyDetail,
    TopologySummary,
    TrafficView,
    WorkerView,
)
from elastic.model.words import counted
from elastic.nimbus.balancing import subjects
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.observing.reports import Life, Measured
from elastic.scheduler.round_robin import natural


def summary(t: TopologyFacts, now: float) -> TopologySummary:
    """One line about a topology."""
    a = t.assignment
    return TopologySummary(
        name=t.name,
        id=t.state.id,
        status=t.state.status,
        submitted=t.state.submitted,
        uptime=max(0.0, (t.state.ended or now) - t.state.submitted),
        tasks=t.spec.task_count,
        executors=len(a.executors) if a is not None else 0,
        workers=len(a.workers) if a is not None else 0,
        unassigned=len(a.unassigned) if a is not None else 0,
        reason=t.state.reason,
    )


_PAIRS = 100
"""Pairs of executors that are told of."""


class _Load:
    """The measurements that count now, by task and executor."""

    def __init__(
        self, t: TopologyFacts, measured: Mapping[WorkerId, Measured], rated: Mapping[int, Rated]
    ) -> None:
        self.tasks: dict[int, TaskLoad] = {}
        self.rates: dict[int, tuple[float, float, float]] = {}
        self.executors: dict[str, ExecutorLoad] = {}
        self.sent: dict[tuple[int, int], tuple[float, float]] = {}
        places = t.assignment.place_of() if t.assignment is not None else {}
        told_by: dict[str, list[tuple[int, Rated]]] = defaultdict(list)
        for number, one in rated.items():
            told_by[one.incarnation].append((number, one))
        for worker, m in measured.items():
            living = worker in t.workers and t.workers[worker].incarnation == m.newest.incarnation
            for task in m.newest.tasks:
                if t.running and places.get(TaskId(task.task)) != worker:
                    continue  # It has gone elsewhere since.
                self.tasks[task.task] = task
            if living:
                self.executors.update({e.executor: e for e in m.newest.executors})
                self.sent.update({p: r for p, r in m.sent().items() if p[0] in self.tasks})
                # Also of what has just gone elsewhere, from where there is no report of it yet: it does there what it did here.
                since = m.newest.time - 2 * m.seconds
                told = told_by.get(m.newest.incarnation, ())
                self.rates.update({n: (r.executed, r.emitted, r.failed) for n, r in told if r.time >= since})

    def of(self, tasks: range) -> list[TaskLoad]:
        return [self.tasks[n] for n in tasks if n in self.tasks]

    def rate(self, tasks: range) -> tuple[float, float, float]:
        found = [self.rates[n] for n in tasks if n in self.rates]
        return sum(r[0] for r in found), sum(r[1] for r in found), sum(r[2] for r in found)


def detail(
    t: TopologyFacts,
    facts: Facts,
    measured: Mapping[WorkerId, Measured],
    rated: Mapping[int, Rated],
    lives: Mapping[WorkerId, Life],
    errors: Sequence[Event],
) -> TopologyDetail:
    """Everything about a topology."""
    load = _Load(t, measured, rated)
    assignment = t.assignment or Assignment(t.name, Epoch(0))
    placed: list[tuple[ExecutorId, str]] = [*assignment.executors, *((e, "") for e in assignment.unassigned)]
    placed.sort(key=lambda item: item[0].first)
    return TopologyDetail(
        summary=summary(t, facts.now),
        spec=t.spec,
        state=t.state,
        assignment=assignment,
        components=_components(t, [e for e, _ in placed], load),
        executors=tuple(_executor(e, w, assignment, load) for e, w in placed),
        workers=_workers(t, assignment, measured, lives, facts.now),
        reports=tuple(m.newest for _, m in sorted(measured.items())),
        errors=tuple(errors),
        waits=tuple(waits(t, facts)),
        traffic=_traffic(assignment, load),
        checkpoints=_checkpoints(t),
    )


def _checkpoints(t: TopologyFacts) -> CheckpointView:
    c = t.checkpoints
    if c is None:
        return CheckpointView()
    done = c.complete or Complete(0, 0.0, 0.0, 0, ())
    return CheckpointView(
        interval=float(setting(INTERVAL, t.spec.config)),
        number=number_of(done.ticket),
        began=done.began,
        seconds=done.ended - done.began,
        size=done.size,
        taking=number_of(c.newest) if c.under_way else 0,
        failed=c.failed,
        back=c.generation - 1,
    )


def _components(t: TopologyFacts, executors: Sequence[ExecutorId], load: _Load) -> tuple[ComponentView, ...]:
    of: dict[ComponentId, list[str]] = defaultdict(list)
    for executor in executors:
        of[executor.component].append(str(executor))
    result = []
    for c in t.spec.components:
        tasks = t.spec.tasks_of(c.id)
        loads, shares = load.of(tasks), [load.executors[e] for e in of[c.id] if e in load.executors]
        rates = load.rate(tasks)
        custom: Counter[str] = Counter()
        for one in loads:
            custom.update(one.custom)  # adds, also fractions
        result.append(
            ComponentView(
                id=c.id,
                kind=c.kind,
                stateful=c.stateful,
                tasks=c.tasks,
                executors=len(of[c.id]),
                executed=sum(x.executed for x in loads),
                emitted=sum(x.emitted for x in loads),
                failed=sum(x.failed for x in loads),
                queued=sum(x.queued for x in loads) if t.running else 0,
                executed_rate=rates[0],
                emitted_rate=rates[1],
                failed_rate=rates[2],
                busy=sum(x.busy for x in shares) / len(shares) if shares else 0.0,
                blocked=sum(x.blocked for x in shares) / len(shares) if shares else 0.0,
                finished=sum(1 for n in tasks if n in t.finished),
                custom=dict(sorted(custom.items())),
                state=sum(x.state for x in loads),
                held=sum(x.held for x in loads) if t.running else 0,
            )
        )
    return tuple(result)


def _executor(e: ExecutorId, worker: str, assignment: Assignment, load: _Load) -> ExecutorView:
    share = load.executors.get(str(e), ExecutorLoad(str(e)))
    executed, emitted, _ = load.rate(e.tasks())
    return ExecutorView(
        id=str(e),
        component=e.component,
        first=e.first,
        last=e.last,
        worker=worker,
        node=assignment.workers[WorkerId(worker)].node if worker else "",
        busy=share.busy,
        blocked=share.blocked,
        idle=share.idle,
        cpu=share.cpu,
        queued=sum(x.queued for x in load.of(e.tasks())),
        executed_rate=executed,
        emitted_rate=emitted,
        state=sum(x.state for x in load.of(e.tasks())),
        held=sum(x.held for x in load.of(e.tasks())),
    )


def _traffic(assignment: Assignment, load: _Load) -> TrafficView:
    """By executors, of what was measured by tasks."""
    place = {t: (str(e), w) for e, w in assignment.executors for t in e.tasks()}
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    far = apart = 0.0
    for (source, target), (tuples, size) in sorted(load.sent.items()):
        if source not in place or target not in place or tuples <= 0:
            continue
        (a, here), (b, there) = place[source], place[target]
        sums[a, b][0] += tuples
        sums[a, b][1] += size
        apart += tuples if here != there else 0.0
        far += tuples if node_of(here) != node_of(there) else 0.0
    heaviest = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))[:_PAIRS]
    return TrafficView(
        tuples=sum(tuples for tuples, _ in sums.values()),
        between_workers=apart,
        between_nodes=far,
        bytes=sum(size for _, size in sums.values()),
        pairs=tuple(PairView(a, b, tuples, size) for (a, b), (tuples, size) in heaviest),
    )


def _workers(
    t: TopologyFacts,
    assignment: Assignment,
    measured: Mapping[WorkerId, Measured],
    lives: Mapping[WorkerId, Life],
    now: float,
) -> tuple[WorkerView, ...]:
    count = Counter(w for _, w in assignment.executors)
    result = []
    for worker in sorted({*assignment.workers, *t.workers}, key=natural):
        info, done, life = t.workers.get(worker), t.progress.get(worker), lives.get(worker)
        m = measured.get(worker)
        fresh = m if m is not None and info is not None and m.newest.incarnation == info.incarnation else None
        result.append(
            WorkerView(
                worker=worker,
                node=node_of(worker),
                slot=int(worker.rpartition("/")[2]),
                alive=info is not None,
                incarnation=info.incarnation if info is not None else "",
                pid=info.pid if info is not None else 0,
                address=info.address if info is not None else "",
                epoch=done.epoch if done is not None else 0,
                drained=done.drained if done is not None else 0,
                executors=count[worker],
                uptime=max(0.0, now - life.since) if life is not None and info is not None else 0.0,
                restarts=life.earlier if life is not None else 0,
                rss=fresh.newest.rss if fresh is not None else 0,
                cpu=fresh.newest.cpu if fresh is not None else 0.0,
                reported=m.newest.time if m is not None else 0.0,
            )
        )
    return tuple(result)


def _free(facts: Facts) -> bool:
    """Whether a slot is free on a node that may get more."""
    used = {(s.node, s.slot) for a in facts.assignments.values() for s in a.workers.values()}
    return any((n.id, i) not in used for n in facts.cluster.nodes if n.open for i in range(n.slots))


def _placeless(t: TopologyFacts, a: Assignment) -> list[ExecutorId]:
    """What waits for a slot; not what has one and waits for the worker from which it was taken."""
    if t.plan is None:
        return list(a.unassigned)
    there = t.plan.assignment.place_of()
    coming = {x.task for x in t.plan.left if x.task in there}
    return [e for e in a.unassigned if not coming.issuperset(e.tasks())]


def waits(t: TopologyFacts, facts: Facts) -> list[str]:
    """Sentences that say why something does not run, or is not carried out yet."""
    result = []
    if not t.running:
        if t.workers:
            result.append(f"stopping: {', '.join(sorted(t.workers))} still live")
        return result
    if t.kill_at is not None:
        late = ", ".join(t.undrained()) or "nobody"
        result.append(
            f"being killed in {max(0.0, t.kill_at - facts.now):.0f} s, or when it has drained; not yet: {late}"
        )
    a = t.assignment
    if a is None:
        return result
    if not facts.nodes:
        result.append(f"no node is alive; {facts.more_slots()}")
    elif placeless := _placeless(t, a):
        slots = sum(n.slots for n in facts.cluster.nodes if n.open)
        names = ", ".join(str(e) for e in placeless)
        result.append(f"no slot is free for {names}: the cluster has {slots}; {facts.more_slots()}")
    elif t.plan is None and len(a.workers) < min(t.workers_wanted(), len(a.executors)) and not _free(facts):
        # With free slots it has fewer because a scheduler wants it so, or because nobody has asked since there are more.
        result.append(
            f"wanted: {counted(t.workers_wanted(), 'worker')}; there are slots for {len(a.workers)}"
        )
    for worker, slot in sorted(a.workers.items()):
        if slot.node not in facts.nodes:
            result.append(f"node {slot.node} of worker {worker} is not there")
        elif worker not in t.workers:
            result.append(f"worker {worker} has not started")
        elif worker not in t.progress or t.progress[worker].epoch < a.epoch:
            done = t.progress[worker].epoch if worker in t.progress else 0
            result.append(f"worker {worker} has not carried out assignment {a.epoch} (it is at {done})")
    if t.state.status is TopologyStatus.INACTIVE and t.kill_at is None:
        result.append("it is deactivated; `elastic activate` lets its spouts go on")
    return result


def node_summaries(facts: Facts, reports: Mapping[NodeId, NodeReport]) -> tuple[NodeSummary, ...]:
    """A line for each node that is alive, wanted or being drained, as people count."""
    result = []
    loads = _node_loads({n: r for n, r in reports.items() if n in facts.nodes})
    for id in sorted({*facts.nodes, *facts.wanted, *facts.drains}, key=natural):
        info, wanted = facts.nodes.get(id), facts.wanted.get(id)
        workers = facts.assigned_to(NodeId(id))
        result.append(
            NodeSummary(
                id=id,
                alive=info is not None,
                wanted=wanted is not None,
                draining=facts.draining(id),
                slots=info.slots if info is not None else wanted.slots if wanted is not None else 0,
                used=len(workers),
                workers=workers,
                host=info.host if info is not None else "",
                kind=info.kind if info is not None else wanted.host if wanted is not None else "",
                generation=info.generation if info is not None else 0,
                address=info.address if info is not None else "",
                pid=info.pid if info is not None else 0,
                cores=loads[id].cores if id in loads else 0.0,
                cpu=loads[id].cpu if id in loads else 0.0,
                memory=int(loads[id].memory) if id in loads else 0,
            )
        )
    return tuple(result)


def _node_loads(reports: Mapping[NodeId, NodeReport]) -> Mapping[NodeId, NodeLoad]:
    """What nodes have and use, as schedulers and policies count it."""
    view = LoadView(nodes={n: NodeLoad(r.cores, r.cpu, r.memory) for n, r in reports.items()})
    return subjects.shared(view, {n: r.machine for n, r in reports.items()}).nodes
