"""Nimbus as one object: stands for election, rules while it leads, and answers requests meanwhile.

    STANDING BY  <->  LEADING (a `Reign`)      by the election
    either       ->   LOST                     the session is gone: `wait_lost` returns, and the process starts anew

Everything that must outlive it is in coordination, and bundles and events on disk: a Nimbus that takes over reads
them.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from elastic.coordination import election, paths
from elastic.coordination.base import Check, Coordination, SessionState, Watch
from elastic.coordination.election import Election
from elastic.errors import NotConnected, Refused, Unavailable
from elastic.model.events import Event
from elastic.nimbus.balancing.balancing import Balancer
from elastic.nimbus.bundle_store import BundleStore
from elastic.nimbus.event_log import EventLog
from elastic.nimbus.moves.move_history import MoveHistory
from elastic.nimbus.observing.reports import ReportStore
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.ports import MemoryStateCleaning, NodeGateway, StateCleaning
from elastic.nimbus.reign import Reign
from elastic.nimbus.requests.requests import Requests
from elastic.nimbus.ruler import ReignRuler
from elastic.scheduler.base import Scheduler
from elastic.scheduler.round_robin import RoundRobinScheduler

log = logging.getLogger(__name__)
_PAUSE = 0.5
_JOIN = 10.0


class Nimbus(Requests):
    """One Nimbus: its life. What it can be asked is in `Requests`. Thread-safe.

    Only the leader answers requests: others raise Refused, naming the leader, or Unavailable when there is none.

    Args:
        coordination: Its session; stays the caller's.
        address: `host:port` that others reach it by; different for each Nimbus.
        directory: Where bundles and events are kept; Nimbuses on one machine share it.
        nodes: How to ask a node's supervisor.
        options: See there.
        scheduler: Decides placements; round robin when none is given.
        stores: How to empty the nodes' state stores after moves; becomes this object's. Without it there are none.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        address: str,
        directory: Path,
        nodes: NodeGateway,
        options: NimbusOptions,
        scheduler: Scheduler | None = None,
        stores: StateCleaning | None = None,
    ) -> None:
        super().__init__(nodes)
        self.address = address
        self.options = options.validate()
        self.bundles = BundleStore(directory / "bundles", options.max_bundle)
        self.events = EventLog(directory / "events.jsonl", options.events, options.events_file)
        self._history = MoveHistory(directory / "moves.jsonl", options.move_history, options.events_file)
        self._coordination = coordination
        self._stores = stores if stores is not None else MemoryStateCleaning()
        self._scheduler = scheduler if scheduler is not None else RoundRobinScheduler()
        self._election = Election(coordination, paths.CANDIDATES, address.encode(), self._on_election)
        self._changed = threading.Condition()
        self._reign: Reign | None = None
        self._balancer: Balancer | None = None
        self._closed = False
        self._lost = threading.Event()
        self._session: Watch | None = None
        self._state = SessionState.CONNECTED
        self._thread = threading.Thread(target=self._run, name="nimbus-reconciler", daemon=True)

    # --- its life

    def start(self) -> None:
        """Stand for election; returns at once. Once only."""
        self._thread.start()
        self._session = self._coordination.watch_session(self._on_session)
        self._election.start()

    def close(self) -> None:
        """Stand down and end. The session stays open. Safe to call twice."""
        with self._changed:
            self._closed = True
            if self._reign is not None:
                self._reign.stop()
            self._changed.notify_all()
        if self._session is not None:
            self._session.cancel()
        self._election.close()
        if self._thread.is_alive():
            self._thread.join(_JOIN)
        self._stores.close()
        self.events.close()
        self._history.close()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Wait until the session is gone for ever; then this object is of no more use. False when the time is over
        before."""
        return self._lost.wait(timeout)

    @property
    def leading(self) -> bool:
        """Whether it answers requests."""
        reign = self._reign
        return self._election.leading and reign is not None and reign.ruling

    def wait_leading(self, timeout: float) -> bool:
        """Wait until it leads, but not longer than `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.leading, timeout)
        return self.leading

    def leader(self) -> str | None:
        """`host:port` of the Nimbus that leads; None when there is none.

        Raises:
            NotConnected, SessionExpired: Coordination cannot be asked.
        """
        if self._state is SessionState.SUSPENDED:
            # Else coordination is waited for, and longer than whoever asks waits for an answer: there would seem to be no Nimbus.
            raise NotConnected(
                f"Nimbus at {self.address} has no connection to coordination", remedy="ask again"
            )
        found = election.leader(self._coordination, paths.CANDIDATES)
        return None if found is None else found.decode()

    def _on_session(self, state: SessionState) -> None:
        self._state = state
        if state is SessionState.LOST:
            self._lost.set()

    def _on_election(self, leading: bool) -> None:
        with self._changed:
            if not leading and self._reign is not None:
                self._reign.stop()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._election.leading)
                if self._closed:
                    return
            try:
                self._rule_once()
            except Exception:  # it leads as long as nobody else is elected, and must not do so without ruling
                log.exception("Nimbus at %s could not go on leading; it begins anew", self.address)
            with self._changed:
                self._reign = self._balancer = None
                self._changed.notify_all()
                # It ends at once again when something is wrong that the election does not know of yet.
                self._changed.wait_for(lambda: self._closed or not self._election.leading, _PAUSE)

    def _rule_once(self) -> None:
        """From the election to the end of the reign."""
        try:
            term = self._election.guard()
        except Refused:
            return
        self.events.load()
        self._history.load()
        reports = ReportStore(self.options.errors)
        reports.load(event for _, event in self.events.since(0))
        with self._changed:
            reign = Reign(
                self._coordination,
                lambda: self._guard(term),
                self._scheduler,
                self.options,
                bundles=self.bundles,
                events=self.events,
                reports=reports,
                stores=self._stores,
                history=self._history,
                on_ruling=self._on_ruling,
            )
            self._reign = reign
            balancer = self._balancer = Balancer(ReignRuler(reign))
            if self._closed or not self._election.leading:
                reign.stop()
        try:
            reign.run()
        finally:
            reign.stop()
            balancer.close()
            balancer.join()

    def _on_ruling(self) -> None:
        self.events.append(
            Event(
                time.time(),
                "nimbus-elected",
                f"Nimbus at {self.address} leads",
                details={"address": self.address},
            )
        )
        if (balancer := self._balancer) is not None:
            balancer.start()
        with self._changed:
            self._changed.notify_all()

    def _guard(self, term: Check) -> Check:
        """What lets only the reign pass that began with that."""
        if self._election.guard() != term:
            raise Refused("this Nimbus has come to lead anew since")
        return term

    def _deciding(self) -> Balancer | None:
        return self._balancer

    def _lead(self) -> Reign:
        with self._changed:

            def settled() -> bool:
                return self._closed or not self._election.leading or self.leading

            self._changed.wait_for(settled, self.options.answer_timeout)
            reign = self._reign
            if reign is not None and self.leading:
                return reign
            begins = self._election.leading and not self._closed
        if self._closed:
            raise Unavailable(f"Nimbus at {self.address} is ending", remedy="ask again")
        if begins:
            raise Unavailable(
                f"Nimbus at {self.address} leads, and has not read everything yet", remedy="ask again"
            )
        if self._lost.is_set():
            raise NotConnected(
                f"Nimbus at {self.address} has lost its session with coordination", remedy="ask again"
            )
        if self._state is not SessionState.CONNECTED:
            raise NotConnected(
                f"Nimbus at {self.address} has no connection to coordination", remedy="ask again"
            )
        leader = self.leader()
        if leader is None or leader == self.address:
            raise Unavailable("no Nimbus leads at the moment", remedy="ask again in a moment")
        raise Refused(f"Nimbus at {self.address} stands by; the leader is {leader}", remedy=f"ask {leader}")
