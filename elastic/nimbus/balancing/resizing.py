"""How many executors and workers topologies have by load: policies decide, and what they decide is carried out as moves."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from elastic.elasticity import infrastructure
from elastic.elasticity.guards import Memory
from elastic.elasticity.kinds import FULL_PROCESS
from elastic.elasticity.manager import Decision, ElasticityManager, Outcome, expected
from elastic.errors import Conflict, Refused
from elastic.model.assignment import Assignment
from elastic.model.events import Event, Severity
from elastic.model.ids import TopologyName
from elastic.model.loadview import LoadView
from elastic.model.words import counted
from elastic.nimbus.balancing import subjects
from elastic.nimbus.balancing.balance_port import Ruler
from elastic.nimbus.balancing.elastic_lines import PolicyLine
from elastic.nimbus.balancing.relieving import relieved
from elastic.nimbus.balancing.remembering import Begun
from elastic.nimbus.balancing.subjects import Asked
from elastic.nimbus.balancing.telling import QUIET, Teller
from elastic.nimbus.deciding import placing
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.scheduler.base import Demand
from elastic.scheduler.decision import Reason, same_places
from elastic.scheduler.even import EvenParams
from elastic.scheduler.registry import Choice, find

log = logging.getLogger(__name__)


@dataclass
class _Sizer:
    """One policy line in use.

    Attributes:
        outcome: What its last run gave; nothing if that failed.
        looked: The topologies that it is about.
        failed: What was said of a run that failed, "" after one that did not.
    """

    line: PolicyLine
    manager: ElasticityManager
    outcome: Outcome = field(default_factory=Outcome)
    looked: frozenset[TopologyName] = frozenset()
    failed: str = ""


class Resizing:
    """See the module. For one thread."""

    def __init__(self, ruler: Ruler, teller: Teller) -> None:
        self._ruler, self._teller = ruler, teller
        self._sizers: dict[str, _Sizer] = {}
        self.memories: dict[TopologyName, Memory] = {}
        """What policies remember. It belongs to the topology: another line goes on with it."""
        self.begun: dict[TopologyName, Begun] = {}

    # --- what is in use

    def use(self, lines: Mapping[str, PolicyLine]) -> None:
        """Use these lines, by their texts."""
        for gone in self._sizers.keys() - lines.keys():
            del self._sizers[gone]
        for text in sorted(lines.keys() - self._sizers.keys()):
            self._sizers[text] = _Sizer(lines[text], lines[text].make())

    def lines(self) -> dict[str, PolicyLine]:
        """Those in use, by their texts."""
        return {text: s.line for text, s in self._sizers.items()}

    def due_in(self, now: float) -> float:
        """Seconds until the next run of a policy; infinite when none is to come (those that are late are not waited for)."""
        left = (s.manager.state.due - now for s in self._sizers.values())
        return min((seconds for seconds in left if seconds > 0), default=math.inf)

    def outcomes(self) -> list[Outcome]:
        """What the policies have found in their last runs."""
        return [s.outcome for s in self._sizers.values() if s.manager.state.run]

    def sized(self) -> set[TopologyName]:
        """The topologies that `outcomes` are about: those that a policy can size, and has looked at."""
        return {name for s in self._sizers.values() for name in s.looked}

    def forget(self, topologies: Collection[TopologyName]) -> None:
        """Remember nothing of topologies other than these."""
        for name in self.memories.keys() - set(topologies):
            del self.memories[name]
        for name in self.begun.keys() - set(topologies):
            del self.begun[name]
        for sizer in self._sizers.values():
            sizer.looked = sizer.looked.intersection(topologies)
            for name in sizer.manager.state.topologies.keys() - set(topologies):
                sizer.manager.forget(name)

    # --- deciding

    def run(
        self,
        facts: Facts,
        view: LoadView,
        lines: Mapping[TopologyName, str],
        asked: Asked,
        choice: Choice | None,
        now: float,
    ) -> bool:
        """Let the policies that are due decide. Returns whether a topology is changed.

        Args:
            lines: The text of the line of each topology that has one.
            choice: The scheduler in use, if any.
            now: Seconds, by `time.monotonic`.
        """
        changed = False
        processes = choice is None or not choice.kind.workers
        space = infrastructure.room_of(subjects.nodes(facts, view, asked))
        for text, sizer in self._sizers.items():
            mine = [
                s
                for name, line in lines.items()
                if line == text
                and subjects.telling(facts.topologies[name])
                and (
                    s := subjects.subject_of(
                        facts.topologies[name], facts, self._ruler.rules, processes=processes
                    )
                )
                is not None
            ]
            if not mine:
                # What topologies that are gone wanted is not wanted any more.
                sizer.outcome, sizer.looked = Outcome(), frozenset()
                continue
            if changed:
                continue
            manager = sizer.manager
            before = manager.state.run
            manager.recall({s.name: self.memories[s.name] for s in mine if s.name in self.memories})
            try:
                outcome = manager.run(view, mine, space, now)
            except Exception as error:  # whatever a plug-in's policy does: nothing else waits for it
                if self._failed(sizer, text, f"{type(error).__name__}: {error}", now):
                    log.exception("the policy %r has failed", text)
                continue
            if manager.state.run == before:
                continue
            self.memories.update(manager.state.topologies)
            sizer.outcome, sizer.looked, sizer.failed = outcome, frozenset(s.name for s in mine), ""
            decision = outcome.decision
            if decision is not None and self._in_vain(decision, facts.topologies[decision.topology]):
                self._leads_to_nothing(decision.topology)
                outcome = replace(
                    outcome, reasons=tuple(r for r in outcome.reasons if r not in decision.reasons)
                )
                decision = None
            self._teller.say(outcome.reasons, manager.config.dry_run)
            if decision is not None and not decision.dry_run:
                self._resize(decision, view, choice, manager.config.process_share)
                changed = True
        return changed

    def _failed(self, sizer: _Sizer, text: str, error: str, now: float) -> bool:
        """Its topologies are as if nobody sized them, until a run a period later does not fail. Returns whether that is news: it is said
        once while it lasts.
        """
        sizer.outcome, sizer.looked = Outcome(), frozenset()
        sizer.manager.postpone(now)
        if sizer.failed == error:
            return False
        sizer.failed = error
        self._ruler.tell(
            Event(
                time.time(),
                "policy-failed",
                f"the policy {text!r} has failed, and changes nothing: {error}; the log of Nimbus says where. "
                "Repair the package that offers it, or set another policy",
                Severity.WARNING,
                details={"line": text, "error": error},
            )
        )
        return True

    def _resize(
        self, decision: Decision, view: LoadView, choice: Choice | None, process_share: float
    ) -> None:
        """Place what a policy has decided, and let it be carried out. What is not has led to nothing."""
        if not self._carried_out(decision, view, choice, process_share):
            self._leads_to_nothing(decision.topology)

    def _leads_to_nothing(self, name: TopologyName) -> None:
        """What was decided is not made true: there is nothing to compare later."""
        if (memory := self.memories.get(name)) is not None:
            self.memories[name] = replace(memory, before=None)

    def _in_vain(self, decision: Decision, t: TopologyFacts) -> bool:
        """Whether that has been tried, and tasks could not be moved: it is not tried for ever. Another decision tries them again."""
        if not decision.changes or t.base is None or not subjects.given_up(t, self._ruler.rules):
            return False
        return subjects.executors_of(t.base) == Counter(decision.executors)

    def _carried_out(
        self, decision: Decision, view: LoadView, choice: Choice | None, process_share: float
    ) -> bool:
        facts = self._ruler.facts()
        t = facts.topologies.get(decision.topology)
        if t is None or t.base is None:
            return False
        why = "; ".join(r.message.rstrip(".") for r in decision.reasons) or "elasticity"
        demand = Demand(
            t.spec, decision.workers, decision.executors, t.finished, marked=decision.marked, movable=True
        )
        claims, base = facts.claims(), t.base
        # Minimal relocation empties no worker. With one move too many in the end, everything is where it is to be.
        empties = choice is None and decision.workers < len({w for _, w in base.executors})
        try:
            desired = claims[t.name]
            if decision.changes and not empties:
                scheduler = choice or _relocating(process_share)
                desired, reasons = _placed(scheduler, demand, facts, expected(view, decision), claims)
                self._teller.explain([r for r in reasons if r.kind not in QUIET])
            if same_places(replace(desired, workers=base.workers), base):
                even = replace(demand, marked=False, rebalance=True, spread=True)
                desired = self._ruler.even(even, facts)
                # That counts executors. What each computes is known of those that are as they were.
                load = expected(view, decision)
                cpu = {k.executor: x.cpu for k, x in load.executors.items() if k.topology == t.name}
                nodes = {n.id for n in facts.cluster.nodes if n.open}
                desired = relieved(desired, cpu, FULL_PROCESS, nodes)
            adopted = self._ruler.adopt(t.name, desired, why, decision.executors, decision.workers)
        except (Refused, Conflict) as error:
            self._refused(t.name, f"topology {t.name} stays as it is: {error.message}", why)
            return False
        if adopted:
            self.begun[t.name] = Begun(decision.changes, decision.workers, time.time(), why)
        return adopted

    def _refused(self, name: TopologyName, text: str, why: str) -> None:
        """Say that what was decided cannot be made true.

        Args:
            why: What it was decided for.
        """
        self._teller.tell(
            Event(time.time(), "resize-refused", text, Severity.WARNING, topology=name, details={"why": why})
        )

    def results(self, facts: Facts) -> None:
        """Say what it took to carry out what was decided, or that it was not."""
        if not (over := [n for n in self.begun if self._over(n, facts)]):
            return
        facts = self._ruler.facts_now()  # what is shown may be of before the decision
        for name in over:
            if not self._over(name, facts):
                continue
            t, begun = facts.topologies.get(name), self.begun.pop(name)
            if t is None:
                continue
            sizes = ", ".join(f"{c} {a} -> {b}" for c, (a, b) in begun.changes.items())
            what = sizes or counted(begun.workers, "worker")
            if undone := self._undone(t, begun):
                self._leads_to_nothing(name)
                self._refused(name, f"topology {name}: {what} is not carried out: {undone}", begun.why)
                continue
            moves = [m for m in self._ruler.moves(name) if m.began >= begun.at - 1 and m.why == begun.why]
            tasks = [task for m in moves for task in m.tasks]
            seconds = time.time() - begun.at
            pause = max((task.pause for task in tasks), default=0.0)
            held = f", longest pause {1000 * pause:.0f} ms" if pause else ""
            moved = counted(len(tasks), "task")
            self._teller.tell(
                Event(
                    time.time(),
                    "topology-resized",
                    f"topology {name}: {what} after {seconds:.1f} s; {moved} moved{held}",
                    topology=name,
                    details={
                        "seconds": round(seconds, 3),
                        "moves": len(moves),
                        "tasks": len(tasks),
                        "pause_ms": round(1000 * pause, 1),
                        "bytes": sum(task.size for task in tasks),
                        "workers": begun.workers,
                    },
                )
            )

    def _over(self, name: TopologyName, facts: Facts) -> bool:
        """Whether nothing of a topology is under way, or it is gone."""
        t = facts.topologies.get(name)
        return t is None or subjects.settled(t, facts, self._ruler.rules)

    def _undone(self, t: TopologyFacts, begun: Begun) -> str:
        """Why a decision has not come true by the time that nothing is under way any more; "" when it has."""
        stay = {
            n: why
            for n, why in placing.failed(t, self._ruler.rules).items()
            if not begun.changes or t.spec.component_of(n).id in begun.changes
        }
        if stay:
            tasks, why = ", ".join(map(str, stay)), next(iter(stay.values()))
            one = "task {} stays where it is" if len(stay) == 1 else "tasks {} stay where they are"
            return f"{one.format(tasks)}: {why}"
        assert t.assignment is not None  # else it is not settled
        now = subjects.executors_of(t.assignment)
        other = any(now[c] != many for c, (_, many) in begun.changes.items())
        return "something else was asked for since" if other else ""


def _placed(
    scheduler: Choice,
    demand: Demand,
    facts: Facts,
    load: LoadView,
    claims: Mapping[TopologyName, Assignment],
) -> tuple[Assignment, Sequence[Reason]]:
    """What a scheduler makes of it, and why. Raises Refused: it has failed, as a plug-in's may in any way; nothing else waits for it."""
    try:
        placed = scheduler.decide([demand], facts.cluster, load, claims)
        return placed.assignments[demand.spec.name], placed.reasons
    except Refused:
        raise
    except Exception as error:
        log.exception("%s has failed", scheduler.kind.who)
        text = f"{scheduler.kind.who} has failed: {type(error).__name__}: {error}"
        raise Refused(text) from error


def _relocating(process_share: float) -> Choice:
    """Minimal relocation that gives a worker no more computing than the manager counts on when it says how many there should be."""
    even = find("roundrobin")
    return Choice(even, EvenParams(worker_cores=min(1.0, process_share / EvenParams().capacity)))
