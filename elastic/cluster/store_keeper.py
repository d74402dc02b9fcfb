"""Keeps a node's state store running beside its supervisor.

    launching -> serving -> (ended unasked) -> a pause -> launching, in the same directory, at the same address

A store of this node that ends takes nothing with it that it had confirmed: the next one reads the same files. What
belongs to no move any more is collected whenever a store begins to serve, when the session with coordination was interrupted,
and when a topology has gone (`store_sweep`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from elastic.errors import ElasticError
from elastic.machine import with_limit
from elastic.model.events import Event
from elastic.supervisor.happenings import Happenings
from statestore.errors import StateStoreError

log = logging.getLogger(__name__)

_PAUSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before a store is started again, by how often it ended soon after it had started; the last one repeats."""
_HEALTHY = 60.0
_READY = 60.0
_GRACE = 5.0
_END = 35.0


class Service(Protocol):
    """A state store as something that runs. Used by one thread, except for `terminate` and `kill`."""

    def start(self, timeout: float) -> str:
        """Start it and wait until it serves. Returns its address, as in `NodeInfo.store`.

        Raises:
            StateStoreError: It does not.
        """

    def wait(self) -> str:
        """Wait for its end. Returns how it ended, for people."""

    def terminate(self) -> None:
        """Ask it to end, wherever it is; from any thread."""

    def kill(self) -> None:
        """Make it end; from any thread."""


class StoreKeeper:
    """See the top of this module.

    Args:
        service: What to keep running.
        happenings: Makes the node's events.
        serving: Told of the address whenever the store begins to serve, and of "" when it has ended; on the keeper's thread.
        report: Told of events.
        pauses: Seconds before each start that follows a failure; the last one repeats.
    """

    def __init__(
        self,
        service: Service,
        happenings: Happenings,
        serving: Callable[[str], None],
        report: Callable[[Event], None],
        pauses: tuple[float, ...] = _PAUSES,
    ) -> None:
        self._service = service
        self._happenings = happenings
        self._serving = serving
        self._report = report
        self._pauses = pauses
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="elastic-store", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the store; it is gone when this returns. Safe to call twice."""
        self._closing.set()
        if self._thread.ident is None:
            return
        self._service.terminate()
        self._thread.join(_GRACE)
        if self._thread.is_alive():
            self._service.kill()
            self._thread.join(_END)

    def _work(self) -> None:
        failures = 0
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                address = self._service.start(_READY)
                if self._closing.is_set():
                    self._service.terminate()
                else:
                    log.info("the state store serves at %s", address)
                    self._serving(address)
                try:
                    why = self._service.wait()
                finally:
                    if not self._closing.is_set():
                        self._serving("")
            except (StateStoreError, ElasticError) as error:
                why = with_limit(str(error), error.__cause__, starting=True)
            except Exception as error:
                log.exception("the state store")
                why = with_limit(repr(error), error, starting=True)
            if self._closing.is_set():
                break
            failures = 1 if time.monotonic() - started >= _HEALTHY else failures + 1
            pause = self._pauses[min(failures, len(self._pauses)) - 1]
            log.warning("the state store: %s", why)
            with contextlib.suppress(Exception):  # who is told of it must not end it
                self._report(self._happenings.store_lost(why, pause, failures))
            self._closing.wait(pause)
        self._service.kill()
