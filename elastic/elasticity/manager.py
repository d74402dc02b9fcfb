"""The ElasticityManager: asks a policy once a period, and keeps it from oscillating. (Elastic Storm (2016), section IV.A.)

Every T_nbs it looks at each running topology, and changes at most one of them, so that what a change does to the others can be seen.
`run` is a pure function from measurements, memory and time to a decision with its reasons and a new memory; `ElasticityManager` keeps
memory and configuration between runs. Not thread-safe: whoever owns it has a lock.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elastic.elasticity.base import Policy, Reason, Room, Sizing, Subject
from elastic.elasticity.guards import MOST, Before, Memory
from elastic.elasticity.kinds import ComponentLoad, Kind, Measured, classify, components
from elastic.elasticity.processes import ManagerConfig, crowded, workers_for
from elastic.elasticity.registry import find, parameters_of
from elastic.elasticity.thresholds import POLICY as THRESHOLDS
from elastic.model.ids import ComponentId, TopologyName
from elastic.model.loadview import LoadView
from elastic.model.parameters import parse, spell, split

_ONLY_NEWS = frozenset({"at-maximum", "no-cores", "held"})
"""Reasons that would be the same in every run: said once while they last."""
_CROWD = "[crowd]"
"""The track of executors that should be elsewhere: no component can be called so."""
_UNDONE = "[undone]"
"""The track of a number of processes that somebody else undoes."""
_QUIET = 24
"""Runs after which they are said again."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done with one topology.

    Attributes:
        executors: How many each component shall have, all components.
        workers: How many worker processes it shall have.
        changes: (before, after) of the components that change; without any (and as many workers) executors are only to be placed anew.
        spread: Over how many processes the executors of a component should be: as many as it has when they compute, 1 when they wait.
        cores: What each component is expected to use; see `expected`.
        reasons: Which measurement crossed which threshold, and what follows.
        dry_run: It is only to be shown.
        marked: Tell the scheduler that a scaling decision was made, so that it relocates few tasks (Elastic Storm (2016), IV.C).
    """

    topology: TopologyName
    executors: Mapping[ComponentId, int]
    workers: int
    changes: Mapping[ComponentId, tuple[int, int]]
    spread: Mapping[ComponentId, int]
    cores: Mapping[ComponentId, float]
    reasons: tuple[Reason, ...]
    dry_run: bool = False
    marked: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run gave.

    Attributes:
        decision: At most one topology is changed in a run.
        reasons: Everything to be said, that of the decision included, and what earlier decisions have led to.
        cores: That all topologies would use if they could.
        lacking: Of those, the cores that there are not.
        workers: Worker processes that all topologies would have if there were slots.
        settled: No topology is being changed, or has just been, or wants more, and all of them is measured: what they use now is what
            they need.
    """

    decision: Decision | None = None
    reasons: tuple[Reason, ...] = ()
    cores: float = 0.0
    lacking: float = 0.0
    workers: int = 0
    settled: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered between runs.

    Attributes:
        run: The number of the last run.
        due: When the next one is, seconds.
        last: The topology that was changed last: the others come first.
    """

    run: int = 0
    due: float = 0.0
    last: str = ""
    topologies: Mapping[TopologyName, Memory] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Look:
    """One topology in one run."""

    subject: Subject
    loads: Mapping[ComponentId, ComponentLoad]
    sizing: Sizing
    memory: Memory
    reasons: tuple[Reason, ...]
    cores: float
    workers: int
    asked: int
    crowd: Reason | None = None

    @property
    def settled(self) -> bool:
        grows = any(n > self.subject.executors[c] for c, n in self.sizing.executors.items())
        return not (grows or self.sizing.lacking or self.sizing.changing or self.unmeasured)

    @property
    def unmeasured(self) -> bool:
        """Whether some of it seems to use nothing only because nobody has measured it yet."""
        return bool(self.subject.executors.keys() - self.loads.keys())


def run(
    view: LoadView,
    subjects: Sequence[Subject],
    room: Room,
    config: ManagerConfig,
    policy: Policy,
    params: Any,
    state: State,
    now: float,
) -> tuple[Outcome, State]:
    """One run, if it is due.

    Args:
        subjects: All running topologies.
        room: What the cluster offers to them together.
        now: Seconds, by the clock that `state.due` goes by.
    """
    if now < state.due or not config.enabled:
        return Outcome(), state
    number = state.run + 1
    measured = classify(view)
    names = sorted(subjects, key=lambda s: (s.name <= state.last, s.name))
    looks = [
        _look(
            view,
            s,
            room,
            config,
            policy,
            params,
            state.topologies.get(s.name, Memory()),
            measured,
            now,
        )
        for s in names
    ]
    decision, memories, last = None, {}, state.last
    for look in looks:
        memory = look.memory
        if decision is None:
            decision, memory = _decide(look, config, now)
            if decision is not None:
                last = look.subject.name
        memories[look.subject.name] = memory
    reasons = [r for look in looks for r in look.reasons]
    if decision is not None:
        reasons += decision.reasons
    on_time = state.run > 0 and now - state.due < config.period
    due = (state.due if on_time else now) + config.period
    return (
        Outcome(
            decision,
            tuple(reasons),
            cores=sum(x.cores for x in looks),
            lacking=sum(x.sizing.lacking for x in looks),
            workers=sum(max(x.asked, x.workers) for x in looks),
            settled=decision is None and all(x.settled for x in looks),
        ),
        State(number, due, last, dict(sorted(memories.items()))),
    )


def _look(
    view: LoadView,
    subject: Subject,
    room: Room,
    config: ManagerConfig,
    policy: Policy,
    params: Any,
    memory: Memory,
    measured: Measured,
    now: float,
) -> _Look:
    """What the policy wants of a topology, and how often it has wanted it."""
    every = components(view, subject.spec, measured, memory.purity)
    number = memory.run + 1
    # What nobody has measured yet, or has not measured again since it was regrouped, is what it was.
    purity = {**memory.purity, **{id: load.purity for id, load in every.items()}}
    memory = replace(memory, run=number, purity=purity)
    loads = {
        id: load
        for id, load in every.items()
        if load.samples >= config.samples and len(load.loads) == subject.executors.get(id)
    }
    use = sum(load.cpu for load in every.values())
    effects: tuple[Reason, ...] = ()
    done = subject.settled and memory.cooldown <= 1  # what is still being carried out has led to nothing yet
    if memory.before is not None and done and memory.before.changes.keys() <= loads.keys():
        effects = _effects(subject, memory.before, loads, now)
        memory = replace(memory, before=None)
    if memory.cooldown > 0 or not subject.settled:
        memory = replace(memory, cooldown=max(0, memory.cooldown - 1))
        return _Look(
            subject, loads, Sizing(changing=True), memory, effects, use, subject.workers, subject.workers
        )
    sizing = _possible(policy.size(loads, subject, room, params), loads, subject)
    cores = sum(sizing.cores.get(id, load.cpu) for id, load in every.items())
    patience = config.patience
    tracks = {
        str(c.id): memory.track(c.id).forgiven(number, patience).wished(_direction(subject, sizing, c.id))
        for c in subject.spec.components
    }
    asked, workers = workers_for(subject, sizing, every, cores, room, config)
    if subject.executors.keys() - loads.keys():
        # What has just moved is not measured yet: that it seems to use nothing is no reason for fewer processes.
        asked, workers = max(asked, subject.workers), max(workers, subject.workers)
    if sizing.lacking > 0 and not sizing.executors:
        workers = min(workers, subject.workers)  # More processes would only share the same cores.
    tracks[""] = (
        memory.track("")
        .forgiven(number, patience)
        .wished((workers > subject.workers) - (workers < subject.workers))
    )
    tracks[_UNDONE] = (
        memory.track(_UNDONE).forgiven(number, patience).wished(-int(workers != subject.workers))
    )
    crowd = crowded(view, subject) if subject.processes else None
    tracks[_CROWD] = memory.track(_CROWD).forgiven(number, patience).wished(-1 if crowd is not None else 0)
    news = [r for r in sizing.reasons if r.kind in _ONLY_NEWS or r.warning]
    said = {k: n for k, n in memory.said.items() if number - n <= _QUIET}
    reasons = (*effects, *(r for r in news if f"{r.kind} {r.component}" not in said))
    said.update((f"{r.kind} {r.component}", number) for r in news)
    memory = replace(memory, tracks=tracks, said=said)
    return _Look(subject, loads, sizing, memory, reasons, cores, workers, asked, crowd)


def _possible(sizing: Sizing, loads: Mapping[ComponentId, ComponentLoad], subject: Subject) -> Sizing:
    """What a policy wants, with its numbers as whole ones. Raises ValueError, TypeError: it cannot be; whoever carries it out, and whoever
    counts nodes by it, would only fail later.
    """
    executors = {c: operator.index(n) for c, n in sizing.executors.items()}
    for c, n in executors.items():
        if c not in loads:
            raise ValueError(f"it sizes component {c!r} of {subject.name}, of which it was told nothing")
        (least, most), now = subject.limits(c), subject.executors[c]
        if not min(least, now) <= n <= max(most, now):
            raise ValueError(
                f"component {c!r} of {subject.name} may have {least} to {most} executors, not {n}"
            )
    if not all(math.isfinite(cores) for cores in (*sizing.cores.values(), sizing.lacking)):
        raise ValueError(f"the cores that it wants for {subject.name} are no finite numbers")
    return replace(sizing, executors=executors)


def _decide(look: _Look, config: ManagerConfig, now: float) -> tuple[Decision | None, Memory]:
    """What of it is done now."""
    subject, memory, patience = look.subject, look.memory, config.patience
    number = memory.run
    ready = {c: n for c, n in look.sizing.executors.items() if memory.track(c).ready(patience)}
    grows = any(n > subject.executors[c] for c, n in ready.items())
    # A process more is part of a scale-out. A process fewer comes together with the executors that go.
    pending = look.sizing.executors.keys() - ready.keys()
    undone = memory.track(_UNDONE)
    again = look.workers == memory.workers and undone.mistakes > 0
    wanted = memory.track("").ready(patience) and (not again or undone.ready(patience))
    workers = look.workers if grows or (wanted and not pending) else subject.workers
    if grows:
        workers = max(workers, subject.workers)
    crowd = look.crowd if not look.sizing.executors and memory.track(_CROWD).ready(patience) else None
    if not ready and workers == subject.workers and crowd is None:
        return None, replace(memory, deferred=0)
    if look.sizing.changing and memory.deferred < config.defer:
        return None, replace(memory, deferred=memory.deferred + 1)
    changes = {c: (subject.executors[c], n) for c, n in sorted(ready.items())}
    executors = {**subject.executors, **ready}
    workers = max(1, min(workers, sum(executors.values())))
    reasons = [r for r in look.sizing.reasons if r.component in ready and r.kind not in _ONLY_NEWS]
    if workers != subject.workers:
        reasons.append(_workers_reason(look, workers, config))
    if crowd is not None and not reasons:
        reasons.append(crowd)
    spread = {
        c: min(executors[c], workers) if load.kind is Kind.COMPUTING else 1
        for c, load in sorted(look.loads.items())
    }
    cores = {c: look.sizing.cores.get(c, load.cpu) for c, load in sorted(look.loads.items())}
    decision = Decision(
        subject.name, executors, workers, changes, spread, cores, tuple(reasons), dry_run=config.dry_run
    )
    if config.dry_run:
        return decision, replace(memory, cooldown=config.cooldown, deferred=0)
    tracks = dict(memory.tracks)
    if crowd is not None:
        # Whoever places it may be unable to help: ask ever more rarely.
        crowding = memory.track(_CROWD)
        more = min(MOST, crowding.mistakes + 1)
        tracks[_CROWD] = replace(crowding, wish=0, runs=0, mistakes=more, last_mistake=number)
    for c, (was, becomes) in changes.items():
        tracks[c] = memory.track(c).done((becomes > was) - (becomes < was), number, patience)
    if workers != subject.workers:
        up = (workers > subject.workers) - (workers < subject.workers)
        tracks[""] = memory.track("").done(up, number, patience)
        tracks[_UNDONE] = replace(undone, wish=0, runs=0)
        if workers == memory.workers:
            more = min(MOST, undone.mistakes + 1)
            tracks[_UNDONE] = replace(tracks[_UNDONE], mistakes=more, last_mistake=number)
        memory = replace(memory, workers=workers)
    before = Before(
        now,
        changes,
        {c: look.loads[c].busy for c in changes},
        {c: look.loads[c].queued for c in changes},
    )
    return decision, replace(memory, cooldown=config.cooldown, tracks=tracks, deferred=0, before=before)


def expected(view: LoadView, decision: Decision) -> LoadView:
    """The load as it will be when a decision is carried out: what a scheduler should place by. An overloaded component uses as much CPU as
    it gets, not as it needs.
    """
    now: dict[ComponentId, float] = {}
    for key, load in view.executors.items():
        if key.topology == decision.topology:
            now[key.executor.component] = now.get(key.executor.component, 0.0) + load.cpu
    factors = {c: cores / now[c] for c, cores in decision.cores.items() if now.get(c, 0.0) > 0}
    executors = {
        key: replace(load, cpu=load.cpu * factors.get(key.executor.component, 1.0))
        if key.topology == decision.topology
        else load
        for key, load in view.executors.items()
    }
    return replace(view, executors=executors)


def _direction(subject: Subject, sizing: Sizing, component: ComponentId) -> int:
    now = subject.executors.get(component, 0)
    wanted = sizing.executors.get(component, now)
    return (wanted > now) - (wanted < now)


def _effects(
    subject: Subject, before: Before, loads: Mapping[ComponentId, ComponentLoad], now: float
) -> tuple[Reason, ...]:
    """What a decision has led to."""
    return tuple(
        Reason(
            "scaled",
            f"{c} went from {was} to {became} executors {now - before.time:.0f} s ago: busy {before.busy[c]:.2f} -> {loads[c].busy:.2f}, "
            f"waiting tuples {before.queued[c]:.0f} -> {loads[c].queued:.0f}",
            topology=subject.name,
            component=c,
            details={
                "before": was,
                "after": became,
                "now": subject.executors[c],
                "busy-before": round(before.busy[c], 4),
                "busy-after": round(loads[c].busy, 4),
                "queued-before": before.queued[c],
                "queued-after": loads[c].queued,
                "seconds": round(now - before.time, 3),
            },
        )
        for c, (was, became) in before.changes.items()
    )


def _workers_reason(look: _Look, workers: int, config: ManagerConfig) -> Reason:
    before = look.subject.workers
    return Reason(
        "more-workers" if workers > before else "fewer-workers",
        f"{look.cores:.2f} cores of computing at {config.process_share:g} to a process (Python threads of one process share a core): "
        f"{before} -> {workers} workers",
        topology=look.subject.name,
        details={
            "measure": "cores",
            "value": round(look.cores, 4),
            "threshold": round(before * config.process_share, 4),
            "before": before,
            "after": workers,
        },
    )


class ElasticityManager:
    """Keeps policy, configuration and memory between runs; all can be changed while it runs.

    Args:
        policy: Its name, and its parameters as on a command line: `thresholds --scale-out 0.8`.

    Raises:
        ConfigError: No such policy, or parameters that cannot be.
    """

    def __init__(self, policy: str = THRESHOLDS.name, config: ManagerConfig | None = None) -> None:
        self.config = config or ManagerConfig()
        self.state = State()
        self.use(policy)

    def use(self, policy: str) -> None:
        """Change the policy, or its parameters; what is remembered of the topologies stays.

        Raises:
            ConfigError: No such policy, or parameters that cannot be; the one before stays in use.
        """
        name, *words = split(f"policy {policy!r}", policy) or [THRESHOLDS.name]
        found = find(name)
        self.params = parameters_of(found, words)
        self.policy = found

    def configure(self, words: Iterable[str]) -> None:
        """Change period, cooldown, dry-run and so on: `--period 10 --dry-run`. What is not named gets its default.

        Raises:
            ConfigError: An unknown name or an impossible value; nothing is changed.
        """
        self.config = parse("the elasticity manager", ManagerConfig, list(words))
        self.state = replace(self.state, due=0.0)

    def describe(self) -> str:
        """Policy and parameters as `use` reads them."""
        return f"{self.policy.name} {spell(self.params)}".strip()

    def run(self, view: LoadView, subjects: Sequence[Subject], room: Room, now: float) -> Outcome:
        """One run, if it is due; see `run`."""
        outcome, self.state = run(
            view, subjects, room, self.config, self.policy, self.params, self.state, now
        )
        return outcome

    def postpone(self, now: float) -> None:
        """Let the next run be a period later: one that is due cannot be made.

        Args:
            now: Seconds, by the clock of `run`.
        """
        self.state = replace(self.state, due=now + self.config.period)

    def recall(self, topologies: Mapping[TopologyName, Memory]) -> None:
        """Go on with what somebody else remembers of topologies: another policy, or a leader before this one."""
        self.state = replace(self.state, topologies={**self.state.topologies, **topologies})

    def forget(self, topology: TopologyName) -> None:
        """The topology has gone."""
        left = {n: m for n, m in self.state.topologies.items() if n != topology}
        self.state = replace(self.state, topologies=left)
