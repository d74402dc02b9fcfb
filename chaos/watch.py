"""What coordination says of moves while they go on: the views that a worker reads, kept in order, with a trigger on them."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

from elastic.cluster.grid_members import READY
from elastic.cluster.worker_moves import ViewReader
from elastic.coordination import paths
from elastic.coordination.base import Coordination, SessionState
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect
from elastic.errors import ElasticError
from elastic.migration.record import MoveRecord
from elastic.migration.view import EMPTY, View
from elastic.model import codec
from elastic.model.assignment import NodeInfo
from elastic.model.ids import NodeId, TopologyName, WorkerId
from elastic.model.records import WorkerInfo
from elastic.nimbus.observing.plans import Plan
from statestore.address import StoreAddress
from statestore.client import GrpcStore
from statestore.errors import StateStoreError

STEPS = (
    "asked",
    "recorded",
    "preparing",
    "prepared",
    "ahead",
    "fetched",
    "paused",
    "saving",
    "saved",
    "restoring",
    "restored",
    "committed",
    "ended",
)
"""The steps of a move at which a process may be killed, in their order. `preparing`, `saving` and `restoring` are within a component's
`prepare`, `get_state` and `set_state`; the others are what coordination says. `ahead` and `fetched` are of large states: so much of one is
in the stores that the new side fetches it, and the new side has all that could be copied."""


@dataclass(frozen=True)
class Seen:
    """A view, the living workers, and when it was read (monotonic seconds)."""

    view: View
    workers: dict[WorkerId, WorkerInfo]
    at: float


def stage(view: View, base: int) -> str:
    """How far the moves after number `base` have come, by the farthest of their tasks."""
    moves = [m for m in view.moves if m.record.epoch > base]
    if not moves:
        return "ended" if view.latest > base else "asked"
    marks = [x.marks for m in moves for x in m.marks.values()]
    if any(t.outcome for m in moves for t in m.record.tasks):
        return "committed"
    if any(x.restored for x in marks):
        return "restored"
    if any(x.saved for x in marks):
        return "saved"
    if any(m.record.paused for m in moves):
        return "paused"
    if any(x.fetched for x in marks):
        return "fetched"
    if any(x.ahead for x in marks):
        return "ahead"
    return "prepared" if any(x.prepared or x.asked for x in marks) else "recorded"


def reached(step: str, view: View, base: int) -> bool:
    """Whether the moves after `base` have come to that step, or past it."""
    return STEPS.index(stage(view, base)) >= STEPS.index(step)


def paused(coordination: Coordination, topology: TopologyName, base: int) -> bool:
    """Whether a move after `base` has been told to pause. Asked of the server: a watch may hear of a change after others have acted on it.

    Raises Unavailable.
    """
    later = [e for e in paths.epochs(coordination.children(paths.moves(topology)) or ()) if e > base]
    records = [r for e in later if (r := coordination.get(paths.move(topology, e))) is not None]
    return any(codec.decode(r.data, MoveRecord).paused for r in records)


class Watch:
    """Views of one topology. A session that is lost is followed by another."""

    def __init__(self, zookeeper: str, topology: str) -> None:
        self._zookeeper = zookeeper
        self._topology = TopologyName(topology)
        self._changed = threading.Condition()
        self._seen = Seen(EMPTY, {}, time.monotonic())
        self._history: list[Seen] = []
        self._trigger: Callable[[Seen], bool] | None = None
        self._coordination: ZooKeeperCoordination | None = None
        self._reader: ViewReader | None = None
        self._lost = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._keep, name="watch", daemon=True)
        self._open()
        self._thread.start()

    @property
    def now(self) -> Seen:
        return self._seen

    def refresh(self) -> Seen:
        """Read now. Raises Unavailable."""
        reader = self._reader
        if reader is not None:
            reader.read()
        return self._seen

    def paused(self, base: int) -> bool:
        """Whether a move after `base` pauses by now. Raises Unavailable."""
        coordination = self._coordination
        return coordination is not None and paused(coordination, self._topology, base)

    def left(self) -> list[str]:
        """What lies in coordination and in the nodes' stores of moves, though none is under way. Raises Unavailable."""
        coordination = self._coordination
        if coordination is None:
            return ["no session"]
        name = self._topology
        found = [f"{paths.moves(name)}/{leaf}" for leaf in coordination.children(paths.moves(name)) or ()]
        plan = coordination.get(paths.plan(name))
        # One that was aborted stays until the next request.
        if plan is not None and not codec.decode(plan.data, Plan).halted:
            found.append(paths.plan(name))
        for node in coordination.children(paths.NODES) or ():
            value = coordination.get(paths.node(NodeId(node)))
            address = codec.decode(value.data, NodeInfo).store if value is not None else ""
            if not address:
                found.append(f"{node} has no store")
                continue
            store = GrpcStore(StoreAddress.parse(address).tcp, patience=5.0)
            try:
                found += [
                    f"{e.key} of move {e.epoch} in the store of {node}"
                    for e in store.list(f"{name}/")
                    if e.held
                ]
            except StateStoreError as e:
                found.append(f"the store of {node} does not answer: {e}")
            finally:
                store.close()
        return found

    def unsafe(self) -> list[str]:
        """Stores that are being started again, and Hazelcast members that do not say that every entry has its backups. Raises Unavailable.

        Moves wait for the former. Until the latter say so, the next death may cost what has only one copy.
        """
        coordination = self._coordination
        if coordination is None:
            return ["no session"]
        found = []
        for node in coordination.children(paths.NODES) or ():
            value = coordination.get(paths.node(NodeId(node)))
            if value is not None and not codec.decode(value.data, NodeInfo).store:
                found.append(f"the store of {node} is away")
        for name in coordination.children(READY) or ():
            value = coordination.get(f"{READY}/{name}")
            address = value.data.decode() if value is not None else ""
            try:
                with urllib.request.urlopen(f"http://{address}/hazelcast/health/cluster-safe", timeout=5.0):
                    pass
            except OSError as e:
                found.append(f"{address}: {e}")
        return found

    def arm(self, trigger: Callable[[Seen], bool]) -> None:
        """Call it with every view from now on, with the present one first, until it returns True. On the reader's thread: at once."""
        with self._changed:
            self._history = [self._seen]
            self._trigger = None if trigger(self._seen) else trigger

    def disarm(self) -> list[Seen]:
        """No trigger any more; the views since `arm`."""
        with self._changed:
            self._trigger = None
            return list(self._history)

    def wait(self, what: str, true: Callable[[Seen], bool], limit: float) -> bool:
        """Wait until a view says so; whether one did."""
        with self._changed:
            return self._changed.wait_for(lambda: true(self._seen), limit)

    def close(self) -> None:
        self._closed = True
        self._lost.set()
        self._thread.join(10.0)
        self._shut()

    def _on_view(self, view: View, workers: tuple[WorkerInfo, ...]) -> None:
        with self._changed:
            self._seen = Seen(view, {w.worker: w for w in workers}, time.monotonic())
            self._history.append(self._seen)
            if self._trigger is not None and self._trigger(self._seen):
                self._trigger = None
            self._changed.notify_all()

    def _open(self) -> None:
        coordination = connect(self._zookeeper, session_timeout=10.0, own_server=True)
        coordination.watch_session(lambda s: self._lost.set() if s is SessionState.LOST else None)
        reader = ViewReader(coordination, self._topology, self._on_view)
        reader.start()
        self._coordination, self._reader = coordination, reader

    def _shut(self) -> None:
        reader, coordination = self._reader, self._coordination
        self._reader = self._coordination = None
        if reader is not None:
            reader.close()
        if coordination is not None:
            coordination.close()

    def _keep(self) -> None:
        while True:
            self._lost.wait()
            self._lost.clear()
            while not self._closed:
                self._shut()
                try:
                    self._open()
                    break
                except ElasticError:
                    time.sleep(0.5)
            if self._closed:
                return
