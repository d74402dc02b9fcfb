"""What can be asked about topologies. Each decides under the lock of the reign, and waits without it."""

from __future__ import annotations

import contextlib
import difflib
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from elastic.api.validate import validate
from elastic.coordination import paths
from elastic.coordination.base import Create, Operation, Set
from elastic.errors import AlreadyExists, DeadlineExceeded, NotFound, NotShippable, Refused, Unavailable
from elastic.model.assignment import Assignment
from elastic.model.codec import encode
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, NodeId, TopologyName
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.topology import TopologySpec
from elastic.model.views import TopologyDetail, TopologySummary
from elastic.nimbus import answers
from elastic.nimbus.facts import EXECUTORS, KILL_AT, WORKERS, Facts, TopologyFacts
from elastic.nimbus.ports import NodeGateway
from elastic.nimbus.reign import Reign
from elastic.scheduler.base import Demand

_ASKED_AT_ONCE = 8


def _find(facts: Facts, name: str) -> TopologyFacts:
    found = facts.topologies.get(TopologyName(name))
    if found is None:
        near = difflib.get_close_matches(name, [str(n) for n in facts.topologies], n=1)
        raise NotFound(
            f"there is no topology {name!r}",
            remedy=f"did you mean {near[0]!r}?" if near else "`elastic list` shows those that there are",
        )
    return found


def _running(facts: Facts, name: str) -> TopologyFacts:
    t = _find(facts, name)
    if not t.running:
        raise Refused(
            f"topology {name!r} is {t.state.status.value}; it does not run any more", remedy="submit it again"
        )
    if t.kill_at is not None:
        raise Refused(f"topology {name!r} is being killed")
    return t


def _same(facts: Facts, t: TopologyFacts) -> TopologyFacts | None:
    """The topology in newer facts; None when it is gone, or another has its name."""
    found = facts.topologies.get(t.name)
    return found if found is not None and found.state.id == t.state.id else None


def _echo(reign: Reign, t: TopologyFacts, version: int) -> None:
    """Wait until the mirror shows the state that was just written, so that the next request sees it."""

    def shown(facts: Facts) -> bool:
        found = _same(facts, t)
        return found is None or found.state_version >= version

    reign.wait_for(shown, reign.options.answer_timeout, f"topology {t.name!r} was changed")


# --- submit


def submit(
    reign: Reign, gateway: NodeGateway, spec: TopologySpec, bundle: str, requires: Sequence[str]
) -> TopologyState:
    """See `Nimbus.submit`."""
    validate(spec)
    reign.bundles.path(bundle)
    facts = reign.facts()
    _refuse_running(facts.topologies.get(spec.name))
    if not facts.nodes and not facts.wanted:
        raise Refused(
            "the cluster has no nodes to run a topology on", remedy="add some with `elastic nodes add`"
        )
    _check_modules(reign, gateway, facts, requires)
    old = facts.topologies.get(spec.name)
    if old is not None:
        gone = reign.wait_for(
            lambda f: spec.name not in f.topologies or not f.topologies[spec.name].workers,
            reign.options.stop_timeout,
            f"the workers of the earlier topology {spec.name!r} stopped",
        )
        if not gone:
            raise AlreadyExists(
                f"the workers of the earlier topology {spec.name!r} still live",
                remedy="try again in a moment",
            )
    with reign.deciding() as facts:
        state, _ = reign.read(paths.state(spec.name), TopologyState)
        old = facts.topologies.get(spec.name)
        _refuse_running(old)
        if old is None and state is not None:
            raise AlreadyExists(f"topology {spec.name!r} exists", remedy="`elastic list` shows it")
        now = time.time()
        new = TopologyState(
            TopologyStatus.ACTIVE, f"{spec.name}-{secrets.token_hex(4)}", bundle, submitted=now
        )
        first = _first_assignment(reign, facts, spec, new)
        reign.commit(
            [
                *(reign.removal(old) if old is not None else ()),
                Create(paths.topology(spec.name)),
                Create(paths.spec(spec.name), encode(spec)),
                Create(paths.state(spec.name), encode(new)),
                Create(paths.assignment(spec.name), encode(first)),
                Create(paths.workers(spec.name)),
                Create(paths.progress(spec.name)),
            ]
        )
        if old is not None:
            reign.reports.forget(spec.name)
        _tell_submitted(reign, spec, new, first)
    reign.wait_for(
        lambda f: (t := f.topologies.get(spec.name)) is not None and t.state.id == new.id,
        reign.options.answer_timeout,
        f"topology {spec.name!r} was submitted",
    )
    return new


def _refuse_running(old: TopologyFacts | None) -> None:
    if old is None:
        return
    if old.running and old.kill_at is None:
        raise AlreadyExists(
            f"topology {old.name!r} is running",
            remedy=f"`elastic kill {old.name}` ends it; or submit under another name (--name)",
        )
    if old.running or old.state.status is TopologyStatus.KILLED:
        raise AlreadyExists(
            f"topology {old.name!r} is being stopped", remedy="try again when `elastic list` shows it no more"
        )


def _first_assignment(reign: Reign, facts: Facts, spec: TopologySpec, state: TopologyState) -> Assignment:
    demand = TopologyFacts(spec, state, 0).demand()
    others = {n: a for n, a in facts.assignments.items() if n != spec.name}
    return reign.scheduler.schedule([demand], facts.cluster, others)[spec.name]


def _tell_submitted(reign: Reign, spec: TopologySpec, state: TopologyState, first: Assignment) -> None:
    reign.tell(
        Event(
            state.submitted,
            "topology-submitted",
            f"topology {spec.name} is submitted: {len(first.executors)} executors in {len(first.workers)} workers",
            topology=spec.name,
            details={"id": state.id, "tasks": spec.task_count, "bundle": state.bundle},
        )
    )
    if first.unassigned:
        names = ", ".join(str(e) for e in first.unassigned)
        message = f"topology {spec.name}: no slot is free for {names}; add nodes with `elastic nodes add`"
    elif len(first.workers) < min(spec.workers, len(first.executors)):
        message = (
            f"topology {spec.name} wants {spec.workers} workers, and found slots for {len(first.workers)}"
        )
    else:
        return
    reign.tell(Event(state.submitted, "executors-waiting", message, Severity.WARNING, topology=spec.name))


def _check_modules(reign: Reign, gateway: NodeGateway, facts: Facts, requires: Sequence[str]) -> None:
    """Ask the nodes for the modules that the code needs and does not bring along."""
    nodes = [n for _, n in sorted(facts.nodes.items()) if n.address]
    if not requires or not nodes:
        return

    def ask(address: str) -> tuple[str, ...] | Unavailable:
        try:
            return gateway.missing_modules(address, requires, reign.options.answer_timeout)
        except Unavailable as error:
            return error

    with ThreadPoolExecutor(min(len(nodes), _ASKED_AT_ONCE), thread_name_prefix="nimbus-asks") as pool:
        said = list(pool.map(ask, [n.address for n in nodes]))
    missing: list[str] = []
    for node, answer in zip(nodes, said, strict=True):
        if isinstance(answer, Unavailable):
            # It may be on its way out. What it lacks shows when a worker there loads the bundle.
            message = f"node {node.id} could not be asked for Python modules: {answer.message}"
            reign.tell(Event(time.time(), "node-silent", message, Severity.WARNING, node=node.id))
        elif answer:
            missing.append(f"{', '.join(answer)} on node {node.id}")
    if missing:
        raise NotShippable(
            f"Python modules are missing: {'; '.join(missing)}",
            remedy="install them there, or ship them with the topology",
        )


# --- status


def kill(reign: Reign, name: str, wait: float) -> None:
    """See `Nimbus.kill`."""
    with reign.deciding() as facts:
        t = _find(facts, name)
        now = time.time()
        active = t.state.status is TopologyStatus.ACTIVE
        if t.running and wait > 0 and (active or t.undrained()):
            by = min(now + wait, t.kill_at if t.kill_at is not None else now + wait)
            state = replace(
                t.state,
                status=TopologyStatus.INACTIVE,
                drain=t.state.drain + 1 if active else t.state.drain,
                settings={**t.state.settings, KILL_AT: by},
            )
            reign.commit([Set(paths.state(t.name), encode(state), t.state_version)])
            message = f"topology {name} is being killed: it drains for at most {by - now:.0f} s"
            reign.tell(
                Event(now, "topology-deactivated", message, topology=name, details={"drain": state.drain})
            )
        elif t.state.status is not TopologyStatus.KILLED:
            reign.end(t, TopologyStatus.KILLED, "killed by request")
    bound = wait + reign.options.stop_timeout
    if not reign.wait_for(lambda f: _same(f, t) is None, bound, f"topology {name!r} was being killed"):
        late = _same(reign.facts(), t)
        living = ", ".join(sorted(late.workers)) if late is not None else ""
        raise DeadlineExceeded(
            f"topology {name!r} was not gone after {bound:.0f} s; these workers still live: {living or 'none'}",
            remedy="it is being stopped all the same; `elastic logs` of these workers may say what they do",
        )


def activate(reign: Reign, name: str) -> None:
    """See `Nimbus.activate`."""
    with reign.deciding() as facts:
        t = _running(facts, name)
        if t.state.status is TopologyStatus.ACTIVE:
            return
        state = replace(t.state, status=TopologyStatus.ACTIVE)
        reign.commit([Set(paths.state(t.name), encode(state), t.state_version)])
        reign.tell(Event(time.time(), "topology-activated", f"topology {name} is active", topology=name))
    _echo(reign, t, t.state_version + 1)


def deactivate(reign: Reign, name: str, wait: float) -> bool:
    """See `Nimbus.deactivate`."""
    with reign.deciding() as facts:
        t = _running(facts, name)
        drain, version = t.state.drain, t.state_version
        if t.state.status is TopologyStatus.ACTIVE:
            drain, version = drain + 1, version + 1
            state = replace(t.state, status=TopologyStatus.INACTIVE, drain=drain)
            reign.commit([Set(paths.state(t.name), encode(state), t.state_version)])
            message = f"topology {name} is inactive: its spouts are not asked for tuples"
            reign.tell(
                Event(time.time(), "topology-deactivated", message, topology=name, details={"drain": drain})
            )
    _echo(reign, t, version)

    def drained(facts: Facts) -> bool:
        found = _same(facts, t)
        return found is None or not found.running or not found.undrained()

    reign.wait_for(drained, wait, f"topology {name!r} drained")
    found = _same(reign.facts(), t)
    if found is None or not found.running:
        return found is not None and found.state.status is TopologyStatus.FINISHED
    return found.state.drain >= drain and not found.undrained()


# --- rebalance


def rebalance(
    reign: Reign, name: str, executors: Mapping[str, int], workers: int | None, wait: float
) -> Assignment:
    """See `Nimbus.rebalance`."""
    with reign.deciding() as facts:
        t = _running(facts, name)
        for component in executors:
            if component not in {c.id for c in t.spec.components}:
                known = ", ".join(str(c.id) for c in t.spec.components)
                raise NotFound(f"topology {name!r} has no component {component!r}", remedy=f"it has {known}")
        wanted = {**t.executors_wanted(), **{ComponentId(c): n for c, n in executors.items()}}
        new = _scheduled(reign, facts, t, wanted, workers, anew=not executors)
        settings = {**t.state.settings, **{EXECUTORS + c: n for c, n in executors.items()}}
        if workers is not None:
            settings[WORKERS] = workers
        state = replace(t.state, settings=settings)
        operations: list[Operation] = []
        if state != t.state:
            operations.append(Set(paths.state(t.name), encode(state), t.state_version))
        if new is not t.assignment:
            operations.append(Set(paths.assignment(t.name), encode(new), t.assignment_version))
        if operations:
            reign.commit(operations)
            message = (
                f"topology {name} is rebalanced: {len(new.executors)} executors in {len(new.workers)} workers"
            )
            reign.tell(
                Event(
                    time.time(),
                    "topology-rebalanced",
                    message,
                    topology=name,
                    details={
                        "epoch": new.epoch,
                        "executors": len(new.executors),
                        "workers": len(new.workers),
                    },
                )
            )
    _await_epoch(reign, t, new, wait)
    return new


def _scheduled(
    reign: Reign,
    facts: Facts,
    t: TopologyFacts,
    wanted: Mapping[ComponentId, int],
    workers: int | None,
    *,
    anew: bool,
) -> Assignment:
    """The assignment after a rebalance.

    Args:
        anew: Nothing but the placement is to change: as many workers as were wanted once, if there are slots by now.
    """

    def ask(many: int) -> Assignment:
        demand = Demand(t.spec, many, wanted, t.finished, rebalance=True, spread=anew or workers is not None)
        return reign.scheduler.schedule([demand], facts.cluster, facts.assignments)[t.name]

    present = len(t.assignment.workers) if t.assignment is not None else 0
    if workers is not None:
        return ask(workers)
    if anew:
        with contextlib.suppress(Refused):
            return ask(t.workers_wanted())
    return ask(present or t.workers_wanted())


def _await_epoch(reign: Reign, t: TopologyFacts, new: Assignment, wait: float) -> None:
    def behind(facts: Facts) -> tuple[str, ...]:
        found = _same(facts, t)
        if found is None or not found.running:
            return ()
        if found.assignment is None or found.assignment.epoch < new.epoch:
            return ("nimbus",)
        return found.behind(new.epoch)

    if wait <= 0 or reign.wait_for(lambda f: not behind(f), wait, f"topology {t.name!r} was rebalanced"):
        found = _same(reign.facts(), t)
        if wait > 0 and (found is None or not found.running):
            raise Refused(f"topology {t.name!r} ended while it was being rebalanced")
        return
    late = behind(reign.facts())
    if late:
        raise DeadlineExceeded(
            f"topology {t.name!r}: assignment {new.epoch} is written, and {', '.join(late)} had not carried it out "
            f"after {wait:g} s",
            remedy=f"`elastic describe {t.name}` shows when they have",
        )


# --- looking


def topologies(reign: Reign) -> tuple[TopologySummary, ...]:
    """See `Nimbus.topologies`."""
    facts = reign.facts()
    return tuple(answers.summary(t, facts.now) for _, t in sorted(facts.topologies.items()))


def describe(reign: Reign, name: str) -> TopologyDetail:
    """See `Nimbus.describe`."""
    facts = reign.facts()
    t = _find(facts, name)
    store = reign.reports
    store.see(t.name, t.workers, facts.now)
    return answers.detail(t, facts, store.measured(t.name), store.lives(t.name), store.errors(t.name))


def stateful_on(facts: Facts, node: NodeId) -> list[str]:
    """Components that hold state on a node, as `topology/component`, sorted."""
    found: set[str] = set()
    for t in facts.topologies.values():
        if t.running and t.assignment is not None:
            demand = t.demand()
            for executor, worker in t.assignment.executors:
                if t.assignment.workers[worker].node == node and demand.pinned(executor):
                    found.add(f"{t.name}/{executor.component}")
    return sorted(found)
