"""Removes from a node's state store what belongs to no move any more.

Nimbus cleans the stores that it reaches at the end of a move (`NodeStores.clean`). What it did not reach, and what topologies leave that
were killed within a move, is found here, by the node itself: when its store begins to serve, when its session was interrupted, when the
records of moves have changed, and when a topology has gone.

What is kept are the tasks of moves whose records are there. Their numbers only grow, also over topologies of one name; what is newer than
the newest number that was read is left alone. Of checkpoints it is the newest complete one, and the one that is being taken.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

import msgspec

from elastic.coordination import paths
from elastic.coordination.base import Coordination, SessionState, Watch
from elastic.errors import ElasticError
from elastic.migration.record import MoveRecord, state_key
from elastic.model import codec
from elastic.model.checkpoints import Checkpoints, slot_of, snapshot_key, topology_of
from elastic.model.ids import Epoch, TopologyName
from elastic.model.topology import TopologySpec
from statestore.address import StoreAddress
from statestore.base import Collected, StateStore
from statestore.client import GrpcStore
from statestore.errors import StateStoreError

log = logging.getLogger(__name__)

_NOTHING = "/nothing"
_AGAIN = 5.0
_ENDING = 10.0
_AFTER = 1.0
"""Seconds from a change among the moves until the store is looked through: hardly ever is anything left there, and when a move begins or
ends is when processes have enough to do. So it is once for many changes that follow each other, both ends of a short move among them."""


def sweep(coordination: Coordination, store: StateStore) -> Collected:
    """Remove from a store what belongs to no move.

    Raises:
        ElasticError: Coordination cannot be read; nothing was removed that may be wanted.
        StateStoreError: The store cannot be asked.
    """
    newest: dict[str, int] = {}
    for entry in store.list():
        whose = entry.key.rpartition("/")[0]
        newest[whose] = max(newest.get(whose, 0), entry.epoch)
    if newest:
        # It passes through the leader of the ensemble, and so what is read after it is not older than what was listed.
        coordination.delete(_NOTHING)
    keys = size = 0
    for whose, epoch in sorted(newest.items()):
        topology, id, slot = topology_of(whose)
        if id is None:
            kept, before = _wanted(coordination, topology, epoch)
        else:
            kept, before = _wanted_snapshots(coordination, topology, id, slot, epoch)
        done = store.collect(f"{whose}/", keep=kept, before=before)
        keys, size = keys + done.keys, size + done.size
    if not newest:
        # Also what no key names any more, as its writer's store ended within the write, takes room: this looks for it alone.
        store.collect("/", keep=(), before=0)
    return Collected(keys, size)


def _wanted(
    coordination: Coordination, topology: TopologyName, newest: int
) -> tuple[set[tuple[str, int]], int]:
    """What is kept of a topology, and up to which epoch that is known.

    Args:
        newest: Epoch of what was in the store before coordination was read.
    """
    latest = coordination.get(paths.moves(topology))
    if latest is None:
        return set(), newest  # the topology is gone, and another one of its name has greater numbers
    kept: set[tuple[str, int]] = set()
    for name in coordination.children(paths.moves(topology)) or ():
        value = coordination.get(paths.move(topology, Epoch(int(name))))
        if value is None:
            continue  # it has just ended
        record = codec.decode(value.data, MoveRecord)
        kept |= {(state_key(topology, move.task), int(name)) for move in record.tasks}
    return kept, int(latest.data)


def _wanted_snapshots(
    coordination: Coordination, topology: TopologyName, id: str, slot: int, newest: int
) -> tuple[set[tuple[str, int]], int]:
    """The same of the snapshots in one slot."""
    found = coordination.get(paths.checkpoint(topology))
    record = codec.decode(found.data, Checkpoints) if found is not None else None
    if record is None or record.id != id:
        return set(), newest
    tickets = [record.back_to, *((record.newest,) if record.under_way else ())]
    spec = coordination.get(paths.spec(topology))
    count = codec.decode(spec.data, TopologySpec).task_count if spec is not None else 0
    kept = {
        (snapshot_key(topology, id, ticket, task), ticket)
        for ticket in tickets
        if slot_of(ticket) == slot
        for task in range(1, count + 1)
    }
    return kept, record.newest


class Sweeper:
    """Sweeps a node's store whenever there may be something, on a thread of its own.

    Args:
        coordination: The node's session.
        swept: Told after each time that nothing went wrong.
    """

    def __init__(
        self, coordination: Coordination, swept: Callable[[Collected], None] = lambda _: None
    ) -> None:
        self._coordination = coordination
        self._swept = swept
        self._condition = threading.Condition()
        self._address = ""
        self._due = math.inf  # when, monotonic
        self._closed = False
        self._interrupted = False
        self._moves: dict[str, Watch] = {}
        self._watches: list[Watch] = []
        self._store: GrpcStore | None = None
        self._thread = threading.Thread(target=self._work, name="elastic-sweep", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()
        self._watches = [
            self._coordination.watch_session(self._on_session),
            self._coordination.watch_children(paths.TOPOLOGIES, self._on_topologies),
        ]

    def serving(self, address: str) -> None:
        """The store has begun to serve; any thread."""
        with self._condition:
            self._address = StoreAddress.parse(address).tcp
        self._note()

    def close(self) -> None:
        """End; a sweep that is under way is given up. Safe to call twice."""
        with self._condition:
            self._closed = True
            self._condition.notify()
            store, watches = self._store, [*self._watches, *self._moves.values()]
        for watch in watches:
            watch.cancel()
        if store is not None:
            store.close()
        if self._thread.ident is not None:
            self._thread.join(_ENDING)

    def _on_session(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._interrupted = True
        elif self._interrupted:
            self._interrupted = False
            self._note()

    def _on_topologies(self, names: tuple[str, ...]) -> None:
        gone = self._moves.keys() - set(names)
        for name in gone:
            with self._condition:
                self._moves.pop(name).cancel()
        for name in set(names) - self._moves.keys():
            watch = self._coordination.watch_children(paths.moves(TopologyName(name)), self._on_moves)
            with self._condition:
                self._moves[name] = watch
                if self._closed:
                    watch.cancel()
        if gone:
            self._note()

    def _on_moves(self, _: tuple[str, ...]) -> None:
        # What has come and gone between two looks is in none of them, so the second look may be like the first, or lack only what is
        # there still: whatever is said, something may have ended. The first look may come after the store was looked through.
        self._note(_AFTER)

    def _note(self, after: float = 0.0) -> None:
        with self._condition:
            self._due = min(self._due, time.monotonic() + after)
            self._condition.notify()

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._closed and not (self._address and self._due <= time.monotonic()):
                    known = self._address and self._due < math.inf
                    self._condition.wait(max(0.0, self._due - time.monotonic()) if known else None)
                if self._closed:
                    return
                self._due = math.inf
                store = self._connected()
            try:
                done = sweep(self._coordination, store)
            except (ElasticError, StateStoreError, msgspec.MsgspecError, ValueError) as error:
                if self._closed:
                    return
                log.info("the state store is looked through again later: %s", error)
                store.close()
                with self._condition:
                    self._store = None
                if self._ended(_AGAIN):
                    return
                self._note()
            else:
                if done.keys:
                    log.info("removed what %d tasks of ended moves had left: %d bytes", done.keys, done.size)
                self._swept(done)

    def _connected(self) -> GrpcStore:
        """To where the store serves now; kept, as every move that ends has it looked through. With the condition."""
        if self._store is None or self._store.address != self._address:
            if self._store is not None:
                self._store.close()
            self._store = GrpcStore(self._address)
        return self._store

    def _ended(self, seconds: float) -> bool:
        """Wait a little before another attempt. Returns whether it is to end."""
        with self._condition:
            return self._condition.wait_for(lambda: self._closed, seconds)
