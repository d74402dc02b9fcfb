"""Runs the moves that lie in coordination: a notifier for each record, whoever began it.

Fed by what the mirror shows, under the lock of the reign; a Nimbus that takes over goes on from the records. This leader is the only one
who writes records, so what its notifiers say is newer than what the mirror shows: `overlaid` puts that into the facts.

Of a topology that has ended there is nothing left to move: the stores are emptied, and the records go when its workers are gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from elastic.coordination import paths
from elastic.coordination.base import Check, Delete, Operation, Set
from elastic.errors import Conflict, ElasticError, ProtocolViolation, Refused, Superseded, Unavailable
from elastic.migration import events as ev
from elastic.migration.driver import Driver, notifier_driver
from elastic.migration.notifier import Notifier
from elastic.migration.record import MoveRecord
from elastic.migration.table import NotifierState
from elastic.model.codec import encode
from elastic.model.ids import Epoch, Incarnation, TopologyName, node_of, worker_of
from elastic.model.records import WorkerInfo
from elastic.nimbus import stories
from elastic.nimbus.moves.move_ports import Leader, MovePorts, beginning
from elastic.nimbus.observing.facts import Facts, MoveFacts, TopologyFacts
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.ports import StateCleaning

log = logging.getLogger(__name__)
_Key = tuple[str, Epoch]
"""A topology's id, and the number of a move of it."""
_AGAIN = 3
_CLEANERS = 4


@dataclass
class _Job:
    """One move that is being run.

    Attributes:
        seen: What the notifier was told last; None: tell it again.
        dead: Participants that are known to live no more.
    """

    name: TopologyName
    notifier: Notifier
    driver: Driver
    ports: MovePorts
    seen: object = None
    failed: ElasticError | None = None
    dead: set[Incarnation] = field(default_factory=set)


class Moves:
    """See the module. All methods but `close` and `overlaid` are called with the lock of the reign.

    Args:
        nudge: Makes the reign reconcile soon; called on any thread.

    Attributes:
        written: Grows with everything that `overlaid` puts into the facts.
    """

    def __init__(
        self, leader: Leader, options: NimbusOptions, stores: StateCleaning, nudge: Callable[[], None]
    ) -> None:
        self._leader, self._options, self._stores, self._nudge = leader, options, stores, nudge
        self._limits = {
            "prepare": options.move_prepare,
            "pause": options.move_pause,
            "restore": options.move_restore,
        }
        self._jobs: dict[_Key, _Job] = {}
        self._latest: dict[str, tuple[int, int]] = {}
        self._lost_sight: dict[_Key, tuple[MoveRecord, int]] = {}
        """Records of jobs that failed, until the mirror shows them: it may not have seen their beginning."""
        self._there: set[_Key] = set()  # what the mirror showed last
        self._removed: set[_Key] = set()
        self._shown: dict[_Key, tuple[MoveRecord, int]] = {}
        self._hidden: frozenset[_Key] = frozenset()
        self.written = 0
        self._known: tuple[object, ...] = ()
        self._overlay: tuple[object, int, Mapping[TopologyName, TopologyFacts]] = (None, 0, {})
        self._cleaner = ThreadPoolExecutor(_CLEANERS, thread_name_prefix="nimbus-cleans-stores")
        self._lock = threading.Lock()
        self._cleaned: list[_Key] = []
        self._cleaning: set[_Key] = set()
        self._swept: set[_Key] = set()
        self._refused: set[_Key] = set()  # moves of which it was said that they cannot be written

    def close(self) -> None:
        """Run nothing any more. Returns at once."""
        self._cleaner.shutdown(wait=False, cancel_futures=True)

    # --- seeing

    def overlaid(self, facts: Facts) -> Facts:
        """The facts with what this leader has written since. Any thread may call."""
        # Read before what it counts: what is newer than that is taken for older, and made anew.
        written = self.written
        shown, hidden = self._shown, self._hidden
        if not shown and not hidden and not self._latest:
            return facts
        below, when, made = self._overlay
        if below is not facts.topologies or when != written:
            made = {n: self._over(t, shown) for n, t in facts.topologies.items()}
            self._overlay = facts.topologies, written, made
        return replace(facts, topologies=made)

    def _over(self, t: TopologyFacts, shown: dict[_Key, tuple[MoveRecord, int]]) -> TopologyFacts:
        id = t.state.id
        moves = {e: m for e, m in t.moves.items() if (id, e) not in self._hidden}
        for (owner, epoch), (record, version) in shown.items():
            if owner == id:
                known = moves.get(epoch)
                moves[epoch] = MoveFacts(record, version, known.marks if known is not None else {})
        latest, version = self._latest.get(id, (0, -1))
        if latest <= t.latest:
            latest, version = t.latest, t.latest_version
        return replace(t, moves=dict(sorted(moves.items())), latest=latest, latest_version=version)

    def _publish(self) -> None:
        running = {k: j for k, j in self._jobs.items() if j.notifier.state is not NotifierState.ENDED}
        now = {k: (j.notifier.record, j.notifier.version) for k, j in running.items()}
        self._shown = {**self._lost_sight, **now}
        self._hidden = frozenset(self._removed)
        known = (self._shown, self._hidden, dict(self._latest))
        if known != self._known:
            self._known = known
            self.written += 1

    # --- beginning and ending

    def begin(self, t: TopologyFacts, record: MoveRecord, facts: Facts) -> None:
        """Write a new move's record and marks.

        Raises:
            Conflict: What it was planned on is not so any more.
        """
        self._leader.commit(
            [
                *beginning(t, record),
                Check(paths.state(t.name), t.state_version),
                Check(paths.assignment(t.name), t.assignment_version),
                *([Check(paths.plan(t.name), t.plan_version)] if t.plan is not None else []),
            ]
        )
        id = t.state.id
        self._latest[id] = (record.epoch, 0 if t.latest_version < 0 else t.latest_version + 1)
        self._job(t, MoveFacts(record, 0), facts)
        self._publish()
        self._leader.tell(stories.began(record))

    def abort(
        self, t: TopologyFacts, epochs: Sequence[Epoch], why: str, also: Sequence[Operation], *, force: bool
    ) -> None:
        """End moves early: what is not saved goes back. Their records say so when this returns, whatever becomes of this Nimbus.

        Args:
            force: Whether states are given up that were saved, and that nobody could restore.
            also: Written with it.

        Raises:
            Conflict: Something has changed since it was read; nothing was written.
        """
        operations, told = list(also), []
        for epoch in epochs:
            path = paths.move(t.name, epoch)
            record, version = self._leader.read(path, MoveRecord)
            if record is None or record.settled:
                continue
            # One that says so already was written by a request that may not have heard of it: nor has the notifier then.
            if (asked := record.ending(why, force=force)) is not record:
                record, version = asked, version + 1
                operations.append(Set(path, encode(record), version - 1))
            told.append((epoch, ev.AbortAsked(record, version)))
        if operations:
            self._leader.commit(operations)
        for epoch, event in told:
            job = self._jobs.get((t.state.id, epoch))
            if job is not None:
                self._feed(job, event)
                job.seen = None
        self._publish()

    # --- running

    def run(self, facts: Facts) -> bool:
        """Tell every notifier what is so now, and carry out what it wants.

        Args:
            facts: As `see` gave them.

        Returns:
            False when something is to be tried again although nothing may change.

        Raises:
            Superseded, Unavailable: Nothing can be written now.
        """
        settled = True
        self._take_cleaned()
        for t in facts.topologies.values():
            if t.running and t.assignment is not None:
                for move in t.moves.values():
                    settled &= self._run(t, move, facts)
            elif t.moves:
                self._sweep(t)
        known = {(t.state.id, e) for t in facts.topologies.values() for e in t.moves}
        ids = {t.state.id for t in facts.topologies.values()}
        for key in [k for k in self._jobs if k not in known or self._ended(k)]:
            del self._jobs[key]
        self._latest = {id: v for id, v in self._latest.items() if id in ids}
        self._swept &= known
        self._refused &= known
        self._publish()
        return settled

    def see(self, shown: Facts) -> Facts:
        """Take in what the mirror shows, before `run`: which removals it has seen by now, and which moves are gone.

        Returns:
            That, as `overlaid` gives it.
        """
        before, self._there = (
            self._there,
            {(t.state.id, e) for t in shown.topologies.values() for e in t.moves},
        )
        self._removed &= self._there
        for key in before - self._there:
            # Removed by a write whose fate was not known: a job made of what the mirror still showed would keep itself alive.
            self._jobs.pop(key, None)
        for key, (record, _) in list(self._lost_sight.items()):
            path = paths.move(record.topology, record.epoch)
            if key in self._there or key in self._jobs or self._leader.coordination.get(path) is None:
                del self._lost_sight[key]
        self._publish()
        return self.overlaid(shown)

    def _ended(self, key: _Key) -> bool:
        if self._jobs[key].notifier.state is not NotifierState.ENDED:
            return False
        self._removed.add(key)
        return True

    def _job(self, t: TopologyFacts, move: MoveFacts, facts: Facts) -> _Job:
        key = (t.state.id, move.record.epoch)
        job = self._jobs.get(key)
        if job is None:
            notifier = Notifier.from_record(move.record, move.version)
            ports = MovePorts(
                self._leader,
                (t, move, facts),
                lambda event: driver.feed(event),
                lambda record, nodes: self._clean(key, record),
                self._limits,
            )
            driver = notifier_driver(
                notifier,
                records=ports,
                cleaning=ports,
                timers=ports,
                voice=ports,
                on_fatal=lambda action, error: self._on_fatal(key, error),
            )
            job = self._jobs[key] = _Job(t.name, notifier, driver, ports)
        return job

    def _on_fatal(self, key: _Key, error: ElasticError) -> None:
        self._jobs[key].failed = error

    def _run(self, t: TopologyFacts, move: MoveFacts, facts: Facts) -> bool:
        """One move. Returns whether nothing is left to be done now."""
        key = (t.state.id, move.record.epoch)
        if key in self._removed:
            return True
        job = self._job(t, move, facts)
        now = time.monotonic()
        for timer in [k for k, due in job.ports.timers.items() if due <= now]:
            del job.ports.timers[timer]
            self._feed(job, ev.TimerFired(*timer))
            job.seen = None
        conflict = False
        for _ in range(_AGAIN):
            if job.failed is not None or not set(job.notifier.record.participants) <= move.marks.keys():
                break  # failed, or the mirror does not show all marks yet
            hosts = self._hosts(job, t, move)
            seen = (move.marks, hosts)
            if seen == job.seen:
                break
            before = job.notifier.version
            job.ports.known = (t, move, facts)
            job.ports.record = job.notifier.record
            job.ports.living = frozenset(h.incarnation for h in hosts)
            job.seen = seen
            self._feed(job, ev.Observed(move.marks, hosts))
            conflict, job.ports.conflict = job.ports.conflict, False
            if conflict:
                job.seen = None
                continue
            if job.notifier.version != before:
                # Marks of ours may have been written with it: what follows is for the mirror's next word to say.
                job.seen = None
                self._publish()
                break
        return self._judge(key, job) and not conflict

    def _judge(self, key: _Key, job: _Job) -> bool:
        error, job.failed = job.failed, None
        if error is None:
            return True
        # What has been written of it, if anything, is in the record: the notifier is made anew from that.
        self._jobs.pop(key, None)
        self._lost_sight[key] = job.notifier.record, job.notifier.version
        self._publish()
        if isinstance(error, Superseded | Unavailable):
            raise error
        log.info("move %d of topology %s is taken up anew: %s", key[1], job.name, error)
        if isinstance(error, Refused) and key not in self._refused:
            self._refused.add(key)
            self._leader.tell(
                stories.refused(job.name, f"what has become of move {key[1]}", error, time.time())
            )
        return False

    def _feed(self, job: _Job, event: object) -> None:
        try:
            job.driver.feed(event)
        except ProtocolViolation as error:
            log.exception("the notifier of move %d of topology %s", job.notifier.record.epoch, job.name)
            job.failed = Conflict(f"a fault in elastic: {error.message}")

    def _hosts(self, job: _Job, t: TopologyFacts, move: MoveFacts) -> tuple[ev.Host, ...]:
        """The living workers that may run tasks, and all living ones that take part.

        One that takes part and is not shown is looked for once more: the mirror may have read who lives before it read the record, and
        who lives must not be taken for dead.
        """
        assert t.assignment is not None
        places = t.assignment.place_of()
        load: dict[str, int] = {}
        for worker in places.values():
            load[worker] = load.get(worker, 0) + 1
        lives = {w: i.incarnation for w, i in t.workers.items() if w in t.assignment.workers}
        for one in (*job.notifier.record.participants, *move.marks):
            worker = worker_of(one)
            shown = t.workers.get(worker)
            if shown is not None and shown.incarnation == one:
                lives[worker] = one
            elif one not in job.dead:
                info, _ = self._leader.read(paths.worker(t.name, worker), WorkerInfo)
                if info is not None and info.incarnation == one:
                    lives[worker] = one
                else:
                    job.dead.add(one)
        return tuple(ev.Host(w, i, node_of(w), load.get(w, 0)) for w, i in sorted(lives.items()))

    def timeouts(self) -> list[float]:
        """Seconds until each timer; negative for one that has passed."""
        now = time.monotonic()
        return [d - now for j in self._jobs.values() for d in j.ports.timers.values()]

    # --- stores

    def _clean(self, key: _Key, record: MoveRecord) -> None:
        if key in self._cleaning:
            return
        self._cleaning.add(key)
        try:
            self._cleaner.submit(self._clean_now, key, record)
        except RuntimeError as error:  # it is being closed
            self._cleaning.discard(key)
            raise Unavailable("this Nimbus stops leading") from error

    def _clean_now(self, key: _Key, record: MoveRecord) -> None:
        try:
            tasks = [t.task for t in record.tasks]
            missed = self._stores.clean(record.topology, record.epoch, tasks, record.nodes())
            if missed:
                log.info(
                    "move %d of topology %s: the stores of %s were not reached; their nodes empty them",
                    record.epoch,
                    record.topology,
                    ", ".join(missed),
                )
        except ElasticError as error:  # nodes collect by themselves what belongs to no record
            log.warning("cleaning up after move %d of topology %s: %s", record.epoch, record.topology, error)
        except Exception:
            log.exception("cleaning up after move %d of topology %s", record.epoch, record.topology)
        finally:
            with self._lock:
                self._cleaned.append(key)
            self._nudge()

    def _take_cleaned(self) -> None:
        with self._lock:
            done, self._cleaned = self._cleaned, []
        for key in done:
            self._cleaning.discard(key)
            job = self._jobs.get(key)
            if job is not None and job.notifier.state is NotifierState.CLEANING:
                self._feed(job, ev.StoresCleaned())
                job.seen = None
            elif job is None:
                self._swept.add(key)

    def _sweep(self, t: TopologyFacts) -> None:
        """The moves of a topology that has ended."""
        for epoch, move in t.moves.items():
            key = (t.state.id, epoch)
            self._jobs.pop(key, None)
            if key in self._removed:
                continue
            if key not in self._swept:
                self._clean(key, move.record)
            elif not t.workers:
                path = paths.move(t.name, epoch)
                names = self._leader.coordination.children(path) or ()
                operations: list[Operation] = [Delete(f"{path}/{n}") for n in names]
                self._leader.commit([*operations, Delete(path)])
                self._removed.add(key)
