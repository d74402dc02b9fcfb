"""One period of leading: follows what coordination holds, decides, and carries out.

    LOADING (nothing is decided before everything was read) -> RULING -> OVER (lost or closed, for ever)

One thread reconciles, woken by watches and by the next deadline. Requests share its lock for what they decide themselves. Whoever
decides makes sure first that the mirror does not lag, and reads states and assignments anew when it does: an assignment that it does not
show yet takes slots.
Every write is one transaction with the versions that were read and with the guard of the election, so that a leader that has been
superseded changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from elastic.coordination import paths
from elastic.coordination.base import Check, Coordination, Delete, Operation, Set, Versioned
from elastic.errors import Begun, Conflict, Refused, Superseded, Unavailable
from elastic.model.assignment import NodeInfo
from elastic.model.codec import encode
from elastic.model.events import Event
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import TopologyStatus
from elastic.nimbus.bundle_store import BundleStore
from elastic.nimbus.deciding import decisions, draining
from elastic.nimbus.deciding.decided import Decided
from elastic.nimbus.deciding.decisions import Begin, Checkpoint, End, ForgetDrain, Place, Remove, Unwant
from elastic.nimbus.deciding.placing import Rules
from elastic.nimbus.deciding.refusals import REMEDY, Refusals, halting
from elastic.nimbus.deciding.removal import removal
from elastic.nimbus.deciding.writes import placing
from elastic.nimbus.event_log import EventLog
from elastic.nimbus.moves.aborts import Aborts
from elastic.nimbus.moves.move_history import MoveHistory
from elastic.nimbus.moves.move_log import MoveLog
from elastic.nimbus.moves.move_stands import MoveStands
from elastic.nimbus.moves.moves import Moves
from elastic.nimbus.observing.facts import Facts, TopologyFacts
from elastic.nimbus.observing.followed import read_versioned
from elastic.nimbus.observing.mirror import Mirror
from elastic.nimbus.observing.reports import ReportStore
from elastic.nimbus.observing.rereading import reread
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.ports import StateCleaning
from elastic.nimbus.stories import (
    awaiting,
    checkpointed,
    ended,
    given_up,
    move_ended,
    moved,
    node_joined,
    node_lost,
    went_back,
)
from elastic.scheduler.base import Scheduler

log = logging.getLogger(__name__)
T = TypeVar("T")
_TRIES = 5
_PAUSE = 1.0
"""Seconds until it is tried again after an error that nothing tells the end of."""
_LONGEST = 3600.0
"""Seconds after which deadlines are looked at again in any case: what people give may be as far off as they like."""


def stopped(what: str) -> Begun:
    """The answer to who waits for what a Nimbus has written when that does not lead any more."""
    return Begun(
        f"this Nimbus stopped leading while {what}; that is recorded, and the next leader goes on with it",
        remedy=Begun.LOOK,
    )


def _superseded() -> Superseded:
    return Superseded("this Nimbus does not lead any more: nothing was changed", remedy="ask again")


class Reign:
    """See the module.

    Args:
        guard: Gives the check that only the leader's transactions pass; raises Refused when this Nimbus does not lead.
    """

    def __init__(
        self,
        coordination: Coordination,
        guard: Callable[[], Check],
        scheduler: Scheduler,
        options: NimbusOptions,
        *,
        bundles: BundleStore,
        events: EventLog,
        reports: ReportStore,
        stores: StateCleaning,
        history: MoveHistory | None = None,
        on_ruling: Callable[[], None] = lambda: None,
    ) -> None:
        self.coordination = coordination
        self.options = options
        self.scheduler = scheduler
        self.bundles, self.events, self.reports = bundles, events, reports
        self.lock = threading.RLock()
        self._guard = guard
        self._on_ruling = on_ruling
        self.rules = Rules(
            options.move_tries,
            options.move_retry,
            options.move_start,
            options.move_at_once,
            options.move_share,
            options.move_store,
        )
        self._limits = decisions.Limits(options.retention, options.keep_ended, self.rules)
        self._over = False
        self._ready = False
        self._known: dict[NodeId, NodeInfo] = {}
        self._expected: dict[NodeId, float] = {}
        self._prune_at = 0.0  # when bundles that nobody uses are removed next (seconds since 1970)
        self._woken = 0
        self._decided = Decided()
        self._refusals = Refusals()
        self._stays = draining.Stays()
        self._generations: dict[TopologyName, tuple[str, int]] = {}
        self._stands = MoveStands()
        self.mirror = Mirror(coordination)
        self.aborted = Aborts()
        self.stores = stores
        self.move_log = MoveLog(options.move_history, options.move_linger, history)
        self.moves = Moves(self, options, stores, self.mirror.nudge)

    # --- its life

    @property
    def ruling(self) -> bool:
        """Whether requests can be answered."""
        return self._ready and not self._over

    @property
    def over(self) -> bool:
        return self._over

    def stop(self) -> None:
        """It is over. Returns at once; safe to call twice, and on the thread of coordination's callbacks."""
        self._over = True
        self.mirror.close()
        self.moves.close()
        for view in self.move_log.close():
            self.tell(move_ended(view))

    def run(self) -> None:
        """Reconcile until it is over. On the reconciling thread."""
        try:
            for path in paths.ALL:
                with contextlib.suppress(Conflict):
                    self.coordination.create(path)
        except Unavailable as error:
            log.info("this Nimbus cannot begin to lead: %s", error)
            return
        seen, pause = -1, False
        while not self._over:
            self._sleep(seen, pause)
            if self._over:
                return
            seen, pause = self.mirror.revision, True
            try:
                pause = not self.reconcile()
            except (Superseded, Unavailable) as error:
                # The election says when it is over. Until then the connection may come back.
                log.info("nothing can be decided now: %s", error)
            except Exception:  # whatever is wrong with one record must not end the loop
                log.exception("reconciling failed")

    def _sleep(self, seen: int, pause: bool) -> None:
        """Until something changes or a deadline passes; one that has passed is due now, except after a failure: it may be why."""
        with self.lock:
            times = (self._decided.due, self.move_log.next_deadline(), self._stands.next_deadline())
            waits = [*(t - time.time() for t in times if t is not None), *self.moves.timeouts()]
        if pause:
            waits = [_PAUSE, *(w for w in waits if w > 0)]
        timeout = min(_LONGEST, max(0.0, min(waits))) if waits else None
        self.mirror.wait_for(lambda: self._over or self.mirror.revision != seen, timeout)

    # --- seeing

    def facts(self) -> Facts:
        """What the mirror shows, and what this leader has written of moves since."""
        return self.moves.overlaid(self._shown())

    def _shown(self) -> Facts:
        return self.mirror.facts(time.time(), self._expected)

    def refresh(self) -> Facts:
        """What is so now: what the mirror shows when it has caught up, else with what `reread` reads. With the lock."""
        if self.coordination.caught_up() and self.mirror.complete:
            return self.facts()
        return reread(self.coordination, self.facts())

    def read(self, path: str, kind: type[T]) -> tuple[T | None, int]:
        """A value and its version, read just now; None and -1 when there is none."""
        return read_versioned(path, self.coordination.get(path), kind)

    def wait_for(self, predicate: Callable[[Facts], bool], timeout: float, what: str) -> bool:
        """Wait until the mirror shows that it is so, but not longer than `timeout` seconds. Without the lock.

        Args:
            what: What goes on meanwhile, for the error.

        Raises:
            Unavailable: This Nimbus stopped leading meanwhile.
        """
        reached = self.mirror.wait_for(lambda: self._over or predicate(self.facts()), timeout)
        if self._over:
            raise stopped(what)
        return reached

    # --- writing

    def commit(self, operations: Sequence[Operation]) -> None:
        """Write all of it, if this Nimbus still leads. With the lock.

        Raises:
            Conflict: Something has changed since it was read.
            Superseded: Another Nimbus leads, or this one has begun to lead anew.
            Refused: It is more than coordination takes at once.
            Begun: Coordination was lost meanwhile: it may have been written.
        """
        guard = self.guard()
        try:
            self.coordination.transaction([*guard, *operations])
        except Conflict as error:
            if self._over or any(_has_changed(g, self.coordination.get(g.path)) for g in guard):
                raise _superseded() from error
            raise
        except Refused as error:
            raise Refused(error.message, remedy=REMEDY) from error
        except Unavailable as error:
            raise Begun(f"{error.message}; whether it was written is not known", remedy=Begun.LOOK) from error

    def guard(self) -> tuple[Check, ...]:
        """What only a leader's transactions pass."""
        if self._over:
            raise _superseded()
        try:
            return (self._guard(),)
        except Refused as error:
            raise _superseded() from error

    def tell(self, event: Event) -> None:
        """Put an event into the stream; the steps of moves go to the record of moves."""
        if self.move_log.step(event):
            if self.move_log.next_deadline() is not None:
                self.mirror.nudge()
            return
        self.move_log.stands(event)
        self.events.append(event)
        self.reports.add_event(event)

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Facts]:
        """The lock, with the facts of this moment, after what follows from them by itself has been done.

        Raises:
            Superseded: It is over: what it knows is of before.
        """
        with self.lock:
            if self._over:
                raise _superseded()
            self.reconcile()
            yield self.refresh()

    # --- reconciling

    def reconcile(self) -> bool:
        """Do what follows from the facts.

        Returns:
            False when something could not be done, and is to be tried again although nothing may change.
        """
        with self.lock:
            if not self._ready and not self._load():
                return True
            self._watch_nodes(self.facts())
            settled = self.moves.run(self.moves.see(self._shown()))
            self.note_moves()
            if self._woken != self.moves.written:
                self._woken = self.moves.written
                self.mirror.wake()  # who waits for what a move has come to
            for _ in range(_TRIES):
                complete = self.mirror.complete  # first: the facts have every topology then
                facts = self._watch_nodes(self.facts())
                if self._decided.covers(facts, self.scheduler):
                    return settled
                if complete:
                    self.reports.retain(facts.topologies)
                for t in facts.topologies.values():
                    self.reports.see(t.name, t.workers, facts.now)
                self._watch_generations(facts)
                if not self._decide(facts):
                    self._nothing_to_do(facts)
                    return settled
                self._decided.forget()
                shown, facts = facts, self._watch_nodes(self.refresh())
                actions = self._decide(facts)
                try:
                    if actions and not self._carry_out(actions, facts):
                        self._nothing_to_do(shown)  # all that is left cannot be written
                    return settled
                except Superseded:
                    raise
                except Conflict as error:
                    log.info("decided on what is not so any more: %s", error)
            return False

    def _nothing_to_do(self, facts: Facts) -> None:
        for event in self._stays.news(facts):
            self.tell(event)
        self._prune_bundles(facts)
        due = decisions.next_deadline(facts, self._limits)
        if facts.now < self._prune_at < math.inf:
            due = self._prune_at if due is None else min(due, self._prune_at)
        self._decided.note(facts, self.scheduler, due)

    def note_moves(self) -> None:
        """Take down how far all moves are, and tell of those that have ended, and of those that stand. With the lock."""
        facts = self.facts()
        for t in facts.topologies.values():
            self.move_log.see(t, facts.now, lambda view: self.tell(move_ended(view)))
        for event in self._stands.news(facts):
            self.tell(event)

    def _watch_generations(self, facts: Facts) -> None:
        """Say which topologies have gone back to a checkpoint."""
        for t in facts.topologies.values():
            c = t.checkpoints
            if c is None:
                continue
            before = self._generations.get(t.name)
            self._generations[t.name] = c.id, c.generation
            if before is not None and before[0] == c.id and before[1] < c.generation:
                self.tell(went_back(t, c, facts.now))

    def _decide(self, facts: Facts) -> tuple[decisions.Action, ...]:
        return decisions.decide(facts, self.scheduler, self._limits, self.reports.sizes)

    def _load(self) -> bool:
        if not self.mirror.ready:
            return False
        facts = self.facts()
        self._known = dict(facts.nodes)
        self.move_log.history.keep(facts)
        if self.options.takeover_grace > 0:
            self._expected = dict.fromkeys(facts.missing(), facts.now + self.options.takeover_grace)
        self.note_moves()  # before the first answer: nobody is to be told that there were none
        self._ready = True
        self._on_ruling()
        return True

    def _watch_nodes(self, facts: Facts) -> Facts:
        """Say which nodes have come and gone, and how long those that have gone keep what they have.

        Nothing is decided on nodes that this has not seen: a drain is forgotten as soon as its node has gone, and whoever looks at what has
        gone only after that takes the node for lost.

        Returns:
            The same facts, with who is expected back by now.
        """
        if {n: i.store for n, i in self._known.items()} != {n: i.store for n, i in facts.nodes.items()}:
            self.stores.nodes_changed()
        gone = self._known.keys() - facts.nodes.keys()
        # The mirror shows the end of a node sooner than what had it end, now and then: nodes, drains and assignments are read one by one.
        true = reread(self.coordination, facts) if gone else facts
        for id in sorted({*self._known, *facts.nodes}):
            before, now = self._known.get(id), facts.nodes.get(id)
            if now is not None and (before is None or before.generation != now.generation):
                self._expected.pop(id, None)
                self.tell(node_joined(now, facts.now))
            elif before is not None and now is None:
                asked = id in true.drains or id not in true.wanted
                if self.options.node_loss_grace > 0 and not asked:
                    self._expected[id] = facts.now + self.options.node_loss_grace
                self.tell(node_lost(before, asked and id in true.drains, true))
        self._known = dict(facts.nodes)
        self._expected = {n: u for n, u in self._expected.items() if u > facts.now}
        return facts if facts.expected == self._expected else replace(facts, expected=dict(self._expected))

    def _carry_out(self, actions: Sequence[decisions.Action], facts: Facts) -> bool:
        """Returns whether anything could be written."""
        done = False
        for action in actions:
            try:
                self._write(action, facts)
            except Refused as error:
                # A matter of this topology alone: others, and requests, go on.
                log.info("%s", error)
                if (event := self._refusals.said(action, error, facts)) is not None:
                    self.tell(event)
                if isinstance(action, Begin):
                    with contextlib.suppress(Refused):
                        halt, why = halting(facts.topologies[action.topology], action, error)
                        self.commit([halt])
                        self.aborted.note(action.topology, why)
                        done = True
            else:
                self._refusals.over(action)
                done = True
        return done

    def _write(self, action: decisions.Action, facts: Facts) -> None:
        match action:
            case Place(name):
                t = facts.topologies[name]
                self.commit(placing(t, action))
                for event in (
                    *moved(t, action.assignment, facts),
                    *given_up(t, t.plan, action.plan, self.rules, facts.now),
                    *awaiting(t, action.plan, facts),
                ):
                    self.tell(event)
            case Begin(name, record):
                self.moves.begin(facts.topologies[name], record, facts)
            case End(name, status, reason):
                self.end(facts.topologies[name], status, reason)
            case Remove(name):
                self.remove(facts.topologies[name])
            case Unwant(node):
                self.commit([Delete(paths.wanted(node))])
                self.tell(Event(time.time(), "node-drained", f"node {node} is empty, and ends", node=node))
            case ForgetDrain(node):
                self.commit([Delete(paths.drain(node))])
            case Checkpoint(name, checkpoints):
                t = facts.topologies[name]
                self.commit([Set(paths.checkpoint(name), encode(checkpoints), t.checkpoints_version)])
                said = checkpointed(t, checkpoints)
                if said is not None:
                    self.tell(said)

    def end(self, t: TopologyFacts, status: TopologyStatus, reason: str) -> None:
        """Say that it has ended, and take its assignment away: its workers stop. With the lock."""
        now = time.time()
        state = replace(t.state, status=status, ended=now, reason=reason)
        operations: list[Operation] = [Set(paths.state(t.name), encode(state), t.state_version)]
        if t.assignment is not None:
            operations.append(Delete(paths.assignment(t.name), t.assignment_version))
        if t.plan is not None:
            operations.append(Delete(paths.plan(t.name), t.plan_version))
        self.commit(operations)
        self.tell(ended(t, state))

    def remove(self, t: TopologyFacts) -> None:
        """Remove its record. With the lock."""
        self.commit(removal(self.coordination, t))
        self.forget(t.name)
        self.tell(
            Event(
                time.time(),
                "topology-removed",
                f"the record of topology {t.name} is removed",
                topology=t.name,
            )
        )

    def forget(self, name: TopologyName) -> None:
        """That topology's record is gone, or has become another one's."""
        self.reports.forget(name)
        self.aborted.forget(name)
        self.move_log.forget(name)
        self._refusals.forget(name)
        self._generations.pop(name, None)
        self._prune_at = 0.0

    def _prune_bundles(self, facts: Facts) -> None:
        if facts.now >= self._prune_at and not facts.elsewhere:
            used = {t.state.bundle for t in facts.topologies.values()}
            gone, due = self.bundles.prune(used, self.options.bundle_grace)
            # What comes after this look, and is never used, has been here for so long then.
            self._prune_at = min(due, facts.now + self.options.bundle_grace)
            for name in gone:
                log.info("removed code bundle %s: no topology refers to it", name)


def _has_changed(guard: Check, found: Versioned | None) -> bool:
    return found is None or guard.version not in (-1, found.version)
