"""What can be asked about topologies. Each decides under the lock of the reign, and waits without it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from elastic.api.settings import setting
from elastic.api.validate import validate
from elastic.coordination import paths
from elastic.coordination.base import Create, Set
from elastic.errors import AlreadyExists, DeadlineExceeded, NotShippable, Refused, Unavailable
from elastic.model.assignment import Assignment
from elastic.model.checkpoints import INTERVAL, Checkpoints
from elastic.model.codec import encode
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.records import TopologyState, TopologyStatus
from elastic.model.topology import TopologySpec
from elastic.model.views import TopologyDetail, TopologySummary
from elastic.model.words import counted
from elastic.nimbus.deciding import draining, placing
from elastic.nimbus.deciding.removal import moves_ever, remains, removal
from elastic.nimbus.observing.facts import KILL_AT, Facts, TopologyFacts
from elastic.nimbus.ports import NodeGateway
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests import answers
from elastic.nimbus.requests.lookup import echo, find, running, same

_ASKED_AT_ONCE = 8


# --- submit


def submit(
    reign: Reign, gateway: NodeGateway, spec: TopologySpec, bundle: str, requires: Sequence[str]
) -> TopologyState:
    """See `Nimbus.submit`."""
    validate(spec)
    reign.bundles.path(bundle)
    facts = reign.facts()
    _refuserunning(facts.topologies.get(spec.name))
    if not facts.nodes and not facts.wanted:
        raise Refused(
            "the cluster has no nodes to run a topology on", remedy="add some with `elastic nodes add`"
        )
    _check_modules(reign, gateway, facts, requires)
    old = facts.topologies.get(spec.name)
    if old is not None:
        gone = reign.wait_for(
            lambda f: (t := f.topologies.get(spec.name)) is None or not (t.workers or t.moves),
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
        _refuserunning(old)
        if old is None and state is not None:
            raise AlreadyExists(f"topology {spec.name!r} exists", remedy="`elastic list` shows it")
        now = time.time()
        new = TopologyState(
            TopologyStatus.ACTIVE, f"{spec.name}-{secrets.token_hex(4)}", bundle, submitted=now
        )
        first = _first_assignment(reign, facts, spec, new)
        reign.commit(
            [
                *(
                    removal(reign.coordination, old)
                    if old is not None
                    else remains(reign.coordination, spec.name)
                ),
                Create(paths.topology(spec.name)),
                Create(paths.spec(spec.name), encode(spec)),
                Create(paths.state(spec.name), encode(new)),
                Create(paths.assignment(spec.name), encode(first)),
                Create(paths.workers(spec.name)),
                Create(paths.progress(spec.name)),
                Create(paths.moves(spec.name), str(_first_number(reign, spec.name)).encode()),
                *(
                    [Create(paths.checkpoint(spec.name), encode(Checkpoints(secrets.token_hex(4))))]
                    if setting(INTERVAL, spec.config) is not None
                    else []
                ),
            ]
        )
        if old is not None:
            reign.forget(spec.name)
        _tell_submitted(reign, spec, new, first)
    reign.wait_for(
        lambda f: (t := f.topologies.get(spec.name)) is not None and t.state.id == new.id,
        reign.options.answer_timeout,
        f"topology {spec.name!r} was submitted",
    )
    return new


def _refuserunning(old: TopologyFacts | None) -> None:
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
    others = {n: a for n, a in facts.claims().items() if n != spec.name}
    return reign.scheduler.schedule([demand], facts.cluster, others)[spec.name]


def _first_number(reign: Reign, name: TopologyName) -> int:
    """What the numbers of its moves come after: stores remember those of a topology that had the same name."""
    old = reign.coordination.get(paths.moves(name))
    return max(moves_ever(reign.coordination)[0], int(old.data or b"0") if old is not None else 0)


def _tell_submitted(reign: Reign, spec: TopologySpec, state: TopologyState, first: Assignment) -> None:
    reign.tell(
        Event(
            state.submitted,
            "topology-submitted",
            f"topology {spec.name} is submitted: {counted(len(first.executors), 'executor')} in {counted(len(first.workers), 'worker')}",
            topology=spec.name,
            details={"id": state.id, "tasks": spec.task_count, "bundle": state.bundle},
        )
    )
    if first.unassigned:
        names = ", ".join(str(e) for e in first.unassigned)
        message = f"topology {spec.name}: no slot is free for {names}; {reign.facts().more_slots()}"
    elif len(first.workers) < min(spec.workers, len(first.executors)):
        message = f"topology {spec.name} wants {counted(spec.workers, 'worker')}, and found slots for {len(first.workers)}"
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
        t = find(facts, name)
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
    if not reign.wait_for(lambda f: same(f, t) is None, bound, f"topology {name!r} was being killed"):
        late = same(reign.facts(), t)
        living = ", ".join(sorted(late.workers)) if late is not None else ""
        raise DeadlineExceeded(
            f"topology {name!r} was not gone after {bound:.0f} s; these workers still live: {living or 'none'}",
            remedy="it is being stopped all the same; `elastic logs` of these workers may say what they do",
        )


def activate(reign: Reign, name: str) -> None:
    """See `Nimbus.activate`."""
    with reign.deciding() as facts:
        t = running(facts, name)
        if t.state.status is TopologyStatus.ACTIVE:
            return
        state = replace(t.state, status=TopologyStatus.ACTIVE)
        reign.commit([Set(paths.state(t.name), encode(state), t.state_version)])
        reign.tell(Event(time.time(), "topology-activated", f"topology {name} is active", topology=name))
    echo(reign, t, t.state_version + 1)


def deactivate(reign: Reign, name: str, wait: float) -> bool:
    """See `Nimbus.deactivate`."""
    with reign.deciding() as facts:
        t = running(facts, name)
        drain, version = t.state.drain, t.state_version
        if t.state.status is TopologyStatus.ACTIVE:
            drain, version = drain + 1, version + 1
            state = replace(t.state, status=TopologyStatus.INACTIVE, drain=drain)
            reign.commit([Set(paths.state(t.name), encode(state), t.state_version)])
            message = f"topology {name} is inactive: its spouts are not asked for tuples"
            reign.tell(
                Event(time.time(), "topology-deactivated", message, topology=name, details={"drain": drain})
            )
    echo(reign, t, version)

    def drained(facts: Facts) -> bool:
        found = same(facts, t)
        return found is None or not found.running or not found.undrained()

    reign.wait_for(drained, wait, f"topology {name!r} drained")
    found = same(reign.facts(), t)
    if found is None or not found.running:
        return found is not None and found.state.status is TopologyStatus.FINISHED
    return found.state.drain >= drain and not found.undrained()


# --- looking


def topologies(reign: Reign) -> tuple[TopologySummary, ...]:
    """See `Nimbus.topologies`."""
    facts = reign.facts()
    return tuple(answers.summary(t, facts.now) for _, t in sorted(facts.topologies.items()))


def describe(reign: Reign, name: str) -> TopologyDetail:
    """See `Nimbus.describe`."""
    # First: what is taken down here of moves follows the facts. Of what begins, or ends, in between one of the two tells, and never none:
    # who sees nothing under way, and nothing that is waited for, takes it that nothing more happens.
    views = reign.move_log.views(TopologyName(name))
    facts = reign.facts()
    t = find(facts, name)
    begun = [f"move {e} has just begun" for e in sorted(t.moves.keys() - {v.epoch for v in views})]
    store = reign.reports
    store.see(t.name, t.workers, facts.now)
    measured, rated = store.measured(t.name), store.rated(t.name)
    detail = answers.detail(t, facts, measured, rated, store.lives(t.name), store.errors(t.name))
    waits = draining.waits(t, facts), placing.waits(t, facts, reign.rules), reign.move_log.waits(t.name)
    more = [*begun, *(sentence for those in waits for sentence in those)]
    return replace(
        detail,
        waits=(*detail.waits, *(more if t.running else ())),
        moves=tuple(m for m in views if m.state != "ended"),
        moved=reign.move_log.totals(t.name),
    )
