"""Who resizes and places topologies by load while they run: measurements in, decisions out, carried out as moves.

One thread of a reign. It sleeps for ever while nobody has asked for a policy, a scheduler or automatic nodes; then nothing is measured
either. What was chosen lies in coordination; what was measured and decided is in memory, and the next leader begins to measure anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from elastic.elasticity import infrastructure
from elastic.elasticity.base import Reason
from elastic.elasticity.infrastructure import Infrastructure, Past
from elastic.elasticity.manager import Decision, ElasticityManager, Outcome, expected
from elastic.elasticity.monitor import LoadMonitor
from elastic.errors import ConfigError, Conflict, Refused, Superseded, Unavailable
from elastic.model.assignment import Assignment
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, NodeId, TopologyName
from elastic.model.load import NodeReport, WorkerReport
from elastic.model.loadview import LoadView
from elastic.model.records import ElasticitySettings
from elastic.model.views import MoveView
from elastic.nimbus import subjects
from elastic.nimbus.elastic_lines import PolicyLine, policy_of, read_nodes, read_policy
from elastic.nimbus.facts import Facts, TopologyFacts
from elastic.nimbus.placing import Rules
from elastic.scheduler.base import Demand
from elastic.scheduler.decision import Reason as PlacingReason
from elastic.scheduler.decision import same_places
from elastic.scheduler.even import EvenParams
from elastic.scheduler.registry import Choice, choose, find

log = logging.getLogger(__name__)
_TICK = 1.0
_KEPT = 100
"""Reasons that are kept for each topology."""
_JOIN = 10.0
_QUIET = frozenset({"kept", "nothing-measured"})
"""What schedulers say when they do nothing: said once while it lasts."""


class Ruler(Protocol):
    """What this needs of the reign."""

    rules: Rules

    def wait_changed(self, seen: int) -> int:
        """Wait until something in coordination has changed, or the reign is over.

        Args:
            seen: What the call before has returned; -1 at first.
        """

    def facts(self) -> Facts: ...

    def settings(self) -> ElasticitySettings:
        """Who resizes and places, as coordination says."""

    def tell(self, event: Event) -> None: ...

    def adopt(
        self,
        name: str,
        desired: Assignment,
        why: str,
        executors: Mapping[ComponentId, int] | None = None,
        workers: int | None = None,
    ) -> bool:
        """See `elastic.nimbus.placement_requests.adopt`."""

    def even(self, demand: Demand, facts: Facts) -> Assignment:
        """Storm's even placement, made true. Raises Refused."""

    def moves(self, name: TopologyName) -> tuple[MoveView, ...]:
        """Those of a topology, the newest first."""

    def add_nodes(self, count: int) -> None: ...

    def drain_node(self, node: NodeId) -> None: ...


@dataclass
class _Sizer:
    """One policy line in use."""

    line: PolicyLine
    manager: ElasticityManager
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(frozen=True)
class _Begun:
    """A decision that is being carried out."""

    decision: Decision
    at: float
    why: str


class Balancer:
    """See the module. Thread-safe."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._lock = threading.Lock()  # of what is measured
        self._closed = threading.Event()
        self._active = False
        self._monitor = LoadMonitor()
        self._machines: dict[NodeId, str] = {}
        self._sizers: dict[str, _Sizer] = {}
        self._broken: dict[str, str] = {}
        self._choice: Choice | None = None
        self._scheduler = ""
        self._schedule_at = 0.0
        self._nodes = ("", Infrastructure())
        self._past = Past()
        self._asked: dict[NodeId, float] = {}
        self._begun: dict[TopologyName, _Begun] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._told: dict[str, deque[Event]] = {}
        self._thread = threading.Thread(target=self._run, name="nimbus-balancer", daemon=True)

    # --- from any thread

    def start(self) -> None:
        """Begin; once only."""
        self._thread.start()

    def close(self) -> None:
        """End, after the reign is over. Returns at once; safe to call twice."""
        self._closed.set()

    def join(self) -> None:
        """Wait until it has ended, after `close`."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN)

    def observe(self, reports: Iterable[WorkerReport], nodes: Iterable[NodeReport]) -> None:
        """Take in measurements; costs nothing while nobody asks for them."""
        if not self._active:
            return
        now = time.monotonic()
        with self._lock:
            for report in reports:
                self._monitor.observe(report, now)
            for measured in nodes:
                self._monitor.observe_node(measured, now)
                self._machines[NodeId(measured.node)] = measured.machine

    def told(self, topology: str = "") -> tuple[Event, ...]:
        """What was decided about a topology (or about nodes: ""), and why; oldest first."""
        with self._lock:
            return tuple(self._told.get(topology, ()))

    def policy(self, t: TopologyFacts) -> str:
        """The line of the policy that resizes a topology; "": none."""
        return policy_of(t.name, t.spec.config.get("elastic"), self._ruler.settings().policy)

    # --- its thread

    def _run(self) -> None:
        seen = -1
        while True:
            if self._active:
                self._closed.wait(self._tick())
            else:
                seen = self._ruler.wait_changed(seen)
            if self._closed.is_set():
                return
            try:
                self.look(time.monotonic())
            except (Superseded, Unavailable, Conflict) as error:
                log.info("the load is not looked at now: %s", error)
            except Exception:  # whatever a plug-in does must not end the loop
                log.exception("looking at the load failed")

    def _tick(self) -> float:
        return max(0.05, min([_TICK, *(s.manager.config.period for s in self._sizers.values())]))

    def look(self, now: float) -> None:
        """Look at the load once, and do what follows from it."""
        facts, settings = self._ruler.facts(), self._ruler.settings()
        lines = {t.name: line for t in facts.in_order() if t.running and (line := self.policy(t))}
        self._choose(settings, set(lines.values()))
        self._active = bool(self._sizers or self._choice is not None or self._nodes[1].enabled)
        if not self._active:
            self._forget(set(facts.topologies))
            return
        view = self._view(facts, now)
        self._results(facts)
        sized = self._size(facts, view, lines, now)
        self._extend(facts, view, lines, now)
        if self._choice is not None and now >= self._schedule_at and not sized:
            self._schedule(facts, view, settings, now)

    def _choose(self, settings: ElasticitySettings, lines: set[str]) -> None:
        """Use what was set, and keep what is remembered of what has not changed."""
        wanted = lines | ({settings.policy} if settings.policy else set())
        for gone in self._sizers.keys() - wanted:
            del self._sizers[gone]
        for text in sorted(wanted - self._sizers.keys()):
            try:
                line = read_policy(text)
            except ConfigError as error:
                self._complain(text, error)
                continue
            if line is not None:
                self._sizers[text] = _Sizer(line, line.make())
        if settings.scheduler != self._scheduler:
            self._scheduler, self._choice, self._schedule_at = settings.scheduler, None, 0.0
            if settings.scheduler:
                try:
                    self._choice = choose(settings.scheduler)
                except ConfigError as error:
                    self._complain(settings.scheduler, error)
        if settings.nodes != self._nodes[0]:
            try:
                self._nodes = settings.nodes, read_nodes(settings.nodes)
            except ConfigError as error:
                self._nodes = settings.nodes, Infrastructure()
                self._complain(settings.nodes, error)
        with self._lock:
            own = self._sizers.get(settings.policy)
            sample = min((s.line.sample for s in self._sizers.values()), default=_TICK)
            values: dict[str, object] = {"period": sample, **(own.line.monitor if own is not None else {})}
            self._monitor.configure(**values)

    def _complain(self, text: str, error: ConfigError) -> None:
        """What was set cannot be used here: a package that offers it may be missing since."""
        if self._broken.get(text) != error.message:
            self._broken[text] = error.message
            self._ruler.tell(
                Event(
                    time.time(),
                    "elasticity-refused",
                    f"{text!r} cannot be used: {error.message}",
                    Severity.WARNING,
                    details={"line": text},
                )
            )

    def _forget(self, topologies: set[TopologyName]) -> None:
        with self._lock:
            for name in {TopologyName(n) for n in self._told} - topologies - {TopologyName("")}:
                del self._told[name]
            for begun in self._begun.keys() - topologies:
                del self._begun[begun]

    def _view(self, facts: Facts, now: float) -> LoadView:
        """The load now, without what is not assigned any more."""
        self._forget(set(facts.topologies))
        with self._lock:
            known = self._monitor.topologies()
            for name in known - facts.assignments.keys():
                self._monitor.forget(name)
            for name in known & facts.assignments.keys():
                self._monitor.retain(name, set(facts.assignments[name].workers))
            for node in self._machines.keys() - facts.nodes.keys():
                del self._machines[node]
                self._monitor.forget_node(node)
            view = self._monitor.view(now)
            machines = dict(self._machines)
        return subjects.shared(replace(view, time=time.time()), machines)

    # --- how many executors

    def _size(self, facts: Facts, view: LoadView, lines: Mapping[TopologyName, str], now: float) -> bool:
        """Let the policies that are due decide. Returns whether a topology is changed."""
        changed = False
        space = infrastructure.room_of(subjects.nodes(facts, view, self._asked))
        for text, sizer in self._sizers.items():
            mine = [
                s
                for name, line in lines.items()
                if line == text
                and (s := subjects.subject_of(facts.topologies[name], facts, self._ruler.rules)) is not None
            ]
            if not mine or changed:
                continue
            before = sizer.manager.state.run
            outcome = sizer.manager.run(view, mine, space, now)
            if sizer.manager.state.run == before:
                continue
            sizer.outcome = outcome
            decision = outcome.decision
            dry = sizer.manager.config.dry_run
            self._say(outcome.reasons, dry)
            if decision is not None and not decision.dry_run:
                self._resize(decision, view, sizer.manager.config.process_share)
                changed = True
        return changed

    def _resize(self, decision: Decision, view: LoadView, process_share: float) -> None:
        """Place what a policy has decided, and let it be carried out."""
        facts = self._ruler.facts()
        t = facts.topologies.get(decision.topology)
        if t is None or t.base is None:
            return
        why = "; ".join(r.message for r in decision.reasons) or "elasticity"
        demand = Demand(
            t.spec, decision.workers, decision.executors, t.finished, marked=decision.marked, movable=True
        )
        claims, base = facts.claims(), t.base
        try:
            desired = claims[t.name]
            if decision.changes:
                scheduler = self._choice or _relocating(process_share)
                placed = scheduler.decide([demand], facts.cluster, expected(view, decision), claims)
                desired = placed.assignments[t.name]
                self._explain([r for r in placed.reasons if r.kind not in _QUIET])
            if same_places(replace(desired, workers=base.workers), base):
                even = replace(demand, marked=False, rebalance=True, spread=True)
                desired = self._ruler.even(even, facts)
            adopted = self._ruler.adopt(t.name, desired, why, decision.executors, decision.workers)
        except (Refused, Conflict) as error:
            self._tell(
                Event(
                    time.time(),
                    "resize-refused",
                    f"topology {t.name} stays as it is: {error.message}",
                    Severity.WARNING,
                    topology=t.name,
                    details={"why": why},
                )
            )
            return
        if adopted:
            self._begun[t.name] = _Begun(decision, time.time(), why)

    def _results(self, facts: Facts) -> None:
        """Say what it took to carry out what was decided."""
        for name, begun in list(self._begun.items()):
            t = facts.topologies.get(name)
            if t is not None and not subjects.settled(t, facts, self._ruler.rules):
                continue
            del self._begun[name]
            if t is None:
                continue
            moves = [m for m in self._ruler.moves(name) if m.began >= begun.at - 1 and m.why == begun.why]
            tasks = [task for m in moves for task in m.tasks]
            seconds = time.time() - begun.at
            pause = max((task.pause for task in tasks), default=0.0)
            sizes = ", ".join(f"{c} {a} -> {b}" for c, (a, b) in begun.decision.changes.items())
            what = sizes or f"{begun.decision.workers} workers"
            self._tell(
                Event(
                    time.time(),
                    "topology-resized",
                    f"topology {name}: {what} after {seconds:.1f} s; {len(tasks)} tasks moved, longest pause {1000 * pause:.0f} ms",
                    topology=name,
                    details={
                        "seconds": round(seconds, 3),
                        "moves": len(moves),
                        "tasks": len(tasks),
                        "pause_ms": round(1000 * pause, 1),
                        "bytes": sum(task.size for task in tasks),
                        "workers": begun.decision.workers,
                    },
                )
            )

    # --- how many nodes

    def _extend(self, facts: Facts, view: LoadView, lines: Mapping[TopologyName, str], now: float) -> None:
        params = self._nodes[1]
        for node in facts.wanted:
            if node not in facts.nodes:
                self._asked.setdefault(node, now)
        self._asked = {n: at for n, at in self._asked.items() if n in facts.wanted and n not in facts.nodes}
        if not params.enabled:
            return
        every = [
            (s, t, t.name in lines)
            for t in facts.in_order()
            if t.running and (s := subjects.subject_of(t, facts, self._ruler.rules)) is not None
        ]
        outcomes = [s.outcome for s in self._sizers.values() if s.manager.state.run]
        wants = subjects.wants(every, outcomes, view)
        there = subjects.nodes(facts, view, self._asked)
        steps, self._past = infrastructure.decide(there, wants, params, self._past, now)
        self._say(steps.reasons, steps.dry_run)
        if steps.dry_run:
            return
        if steps.add:
            self._ruler.add_nodes(steps.add)
        for node in steps.drain:
            self._ruler.drain_node(node)

    # --- where

    def _schedule(self, facts: Facts, view: LoadView, settings: ElasticitySettings, now: float) -> None:
        """Let the scheduler place everything by load, unless something is just changing."""
        assert self._choice is not None
        running = [
            t for t in facts.in_order() if t.running and t.assignment is not None and t.kill_at is None
        ]
        if any(not subjects.settled(t, facts, self._ruler.rules) for t in running if not t.finished):
            return
        self._schedule_at = now + (settings.period or self._choice.kind.period)
        claims = facts.claims()
        decision = self._choice.decide([t.demand() for t in running], facts.cluster, view, claims)
        changed = [
            t
            for t in running
            if t.base is not None and not same_places(decision.assignments[t.name], claims[t.name])
        ]
        self._explain(decision.reasons)
        for t in changed:
            why = next(
                (r.message for r in reversed(decision.reasons) if r.topology in ("", t.name)), "by load"
            )
            try:
                self._ruler.adopt(t.name, decision.assignments[t.name], f"{self._choice.kind.name}: {why}")
            except (Refused, Conflict) as error:
                log.info("%s: not placed anew: %s", t.name, error)

    # --- what is said

    def _say(self, reasons: Sequence[Reason], dry: bool) -> None:
        for reason in reasons:
            event = reason.event(time.time())
            if dry:
                event = replace(
                    event, message=f"dry run: {event.message}", details={**event.details, "dry_run": 1}
                )
            self._tell(event)

    def _explain(self, reasons: Sequence[PlacingReason]) -> None:
        """Say why a scheduler did something, and once why it does nothing."""
        for topology in {r.topology for r in reasons}:
            mine = [r for r in reasons if r.topology == topology]
            idle = tuple(r.kind for r in mine if r.kind in _QUIET or r.warning)
            news = [r for r in mine if r.kind not in _QUIET and not r.warning]
            if not news and self._said.get(topology) == idle:
                continue
            self._said[topology] = idle
            for r in mine:
                severity = Severity.WARNING if r.warning else Severity.INFO
                self._tell(
                    Event(time.time(), r.kind, r.message, severity, topology=r.topology, details=r.details)
                )

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._told.setdefault(event.topology, deque(maxlen=_KEPT)).append(event)
        self._ruler.tell(event)


def _relocating(process_share: float) -> Choice:
    """Minimal relocation that gives a worker no more computing than the manager counts on when it says how many there should be."""
    even = find("roundrobin")
    return Choice(even, EvenParams(worker_cores=min(1.0, process_share / EvenParams().capacity)))
