"""A cluster without processes: nodes that do what supervisors and workers write into coordination, and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coordination_harness import PATIENCE, Service
from move_actors import Actors

from elastic.coordination import paths
from elastic.coordination.base import Coordination, Versioned, Watch
from elastic.errors import Conflict, NotFound, Unavailable
from elastic.model.assignment import Assignment, NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.grouping import Grouping, GroupingKind
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, StreamId, TopologyName, WorkerId
from elastic.model.records import Progress, TopologyState, WorkerInfo
from elastic.model.topology import ComponentSpec, FieldSpec, InputSpec, StreamSpec, TopologySpec
from elastic.nimbus.nimbus import Nimbus
from elastic.nimbus.options import NimbusOptions
from elastic.nimbus.ports import MemoryNodeGateway, NodeGateway, StateCleaning
from elastic.nimbus.reign import Reign

_lives = itertools.count(1)


def spec(
    name: str = "wc",
    workers: int = 2,
    tasks: int = 4,
    executors: int = 2,
    stateful: bool = True,
    spouts: int = 1,
) -> TopologySpec:
    """A spout `lines`, a bolt `split` and a bolt `count`."""
    out = (StreamSpec(StreamId("default"), (FieldSpec("word", "str"),)),)

    def reads(source: str) -> tuple[InputSpec, ...]:
        return (InputSpec(ComponentId(source), StreamId("default"), Grouping(GroupingKind.SHUFFLE)),)

    return TopologySpec(
        TopologyName(name),
        (
            ComponentSpec(ComponentId("lines"), "spout", spouts, spouts, outputs=out),
            ComponentSpec(ComponentId("split"), "bolt", tasks, executors, outputs=out, inputs=reads("lines")),
            ComponentSpec(ComponentId("count"), "bolt", tasks, executors, stateful, inputs=reads("split")),
        ),
        workers=workers,
    )


@dataclass
class _Followed:
    watches: list[Watch] = field(default_factory=list)
    assignment: Assignment | None = None
    state: TopologyState | None = None
    running: dict[WorkerId, Progress] = field(default_factory=dict)


class FakeNode:
    """Registers a node and does at once what its workers would do.

    Attributes:
        obedient: Carries out assignments.
        drains: Its workers let drain marks pass.
        lingers: Its workers don't end when they should.
        down: Workers that it does not start.
    """

    def __init__(
        self, session: Coordination, name: str, slots: int, generation: int = 1, address: str = ""
    ) -> None:
        self.session = session
        self.info = NodeInfo(
            NodeId(name), "127.0.0.1", slots, generation, "fake", address=address, store="h:1"
        )
        self.obedient = self.drains = True
        self.lingers = False
        self.down: set[WorkerId] = set()
        self._lock = threading.RLock()
        self._topologies: dict[TopologyName, _Followed] = {}
        session.create(paths.node(self.info.id), encode(self.info), ephemeral=True)
        self._watch = session.watch_children(paths.TOPOLOGIES, self._on_topologies)

    @property
    def name(self) -> str:
        return self.info.id

    def change(self, **settings: bool) -> None:
        """Set `obedient`, `drains` or `lingers`, and do what follows."""
        with self._lock:
            for name, value in settings.items():
                setattr(self, name, value)
            for name in list(self._topologies):
                self._act(name)

    def progress(self, topology: str, **fields: Any) -> None:
        """Change what every worker of the topology here has written."""
        with self._lock:
            followed = self._topologies[TopologyName(topology)]
            for worker, done in list(followed.running.items()):
                self._write(TopologyName(topology), worker, replace(done, **fields))

    def finish(self, topology: str) -> None:
        """All tasks of the workers here have finished."""
        with self._lock:
            followed = self._topologies[TopologyName(topology)]
            assert followed.assignment is not None
            for worker, done in list(followed.running.items()):
                tasks = sorted(t for e in followed.assignment.executors_of(worker) for t in e.tasks())
                self._write(TopologyName(topology), worker, replace(done, finished=tuple(tasks)))

    def crash(self, topology: str, worker: WorkerId, *, again: bool) -> None:
        """A worker's process ends unasked; it is started again if `again`."""
        with self._lock:
            name = TopologyName(topology)
            if self._topologies[name].running.pop(worker, None) is not None:
                self.session.delete(paths.worker(name, worker))
            self.down -= {worker}
            if not again:
                self.down.add(worker)
            self._act(name)

    def start(self, worker: WorkerId) -> None:
        """Start a worker that was `down`."""
        with self._lock:
            self.down.discard(worker)
            for name in list(self._topologies):
                self._act(name)

    def store(self, serves: bool) -> None:
        """Its state store ends, or begins to serve again; its supervisor says so."""
        life = self.info.store_life + serves
        self.info = replace(self.info, store="h:1" if serves else "", store_life=life)
        self.session.set(paths.node(self.info.id), encode(self.info))

    def leave(self) -> None:
        """End in order: what is ephemeral goes at once."""
        self._watch.cancel()
        self.session.close()

    def _on_topologies(self, names: tuple[str, ...]) -> None:
        with self._lock:
            for gone in set(self._topologies) - {TopologyName(n) for n in names}:
                for watch in self._topologies.pop(gone).watches:
                    watch.cancel()
            for name in map(TopologyName, names):
                if name not in self._topologies:
                    self._topologies[name] = followed = _Followed()
                    followed.watches = [
                        self.session.watch_value(
                            paths.assignment(name), self._taker(name, "assignment", Assignment)
                        ),
                        self.session.watch_value(
                            paths.state(name), self._taker(name, "state", TopologyState)
                        ),
                    ]

    def _taker(self, name: TopologyName, attribute: str, kind: type) -> Callable[[Versioned | None], None]:
        def take(value: Versioned | None) -> None:
            with self._lock:
                if name in self._topologies:
                    new = None if value is None else decode(value.data, kind)
                    setattr(self._topologies[name], attribute, new)
                    self._act(name)

        return take

    def _act(self, name: TopologyName) -> None:
        followed = self._topologies[name]
        assignment, state = followed.assignment, followed.state
        if not self.obedient or state is None:
            return
        places = assignment.workers if assignment is not None else {}
        mine = {w for w, slot in places.items() if slot.node == self.info.id}
        with contextlib.suppress(NotFound, Unavailable):
            for worker in sorted(set(followed.running) - mine):
                if not self.lingers:
                    del followed.running[worker]
                    self.session.delete(paths.worker(name, worker))
            for worker in sorted(mine - self.down):
                assert assignment is not None
                done = followed.running.get(worker)
                if done is None:
                    done = Progress(Incarnation(f"{worker}#{next(_lives)}"), Epoch(0))
                    info = WorkerInfo(
                        worker, done.incarnation, "127.0.0.1:1", "", "boot", 1, assignment.epoch
                    )
                    with contextlib.suppress(Conflict):
                        self.session.create(
                            paths.worker(name, worker), encode(info), ephemeral=True, parents=False
                        )
                drained = state.drain if self.drains else done.drained
                new = replace(done, epoch=assignment.epoch, drained=drained)
                if new != done:
                    self._write(name, worker, new)

    def _write(self, name: TopologyName, worker: WorkerId, done: Progress) -> None:
        self._topologies[name].running[worker] = done
        path = paths.worker_progress(name, worker)
        with contextlib.suppress(Conflict, NotFound, Unavailable):
            if self.session.get(path) is None:
                self.session.create(path, encode(done), parents=False)
            else:
                self.session.set(path, encode(done))


class FakeLauncher:
    """Starts a node for each wanted one that is missing, and ends those that are not wanted any more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.session = cluster.service.connect()
        self.nodes: dict[str, FakeNode] = {}
        self._watch = self.session.watch_children(paths.WANTED, self._on_wanted)

    def _on_wanted(self, names: tuple[str, ...]) -> None:
        for name in set(self.nodes) - set(names):
            self.nodes.pop(name).leave()
        for name in set(names) - set(self.nodes):
            self.nodes[name] = self._cluster.node(name, 2)

    def stop(self) -> None:
        """Nodes stay as they are."""
        self._watch.cancel()


class Cluster:
    """Nimbuses and fake nodes on one coordination service."""

    def __init__(self, service: Service, directory: Path) -> None:
        self.service = service
        self.directory = directory
        self.look = service.connect()
        for path in paths.ALL:
            with contextlib.suppress(Conflict):
                self.look.create(path)
        self.nimbuses: list[Nimbus] = []
        self.nodes: dict[str, FakeNode] = {}
        self.sessions: dict[str, Coordination] = {}
        self.actors = Actors(service)

    def nimbus(
        self,
        address: str = "h:1",
        gateway: NodeGateway | None = None,
        *,
        wait: bool = True,
        stores: StateCleaning | None = None,
        **options: Any,
    ) -> Nimbus:
        session = self.sessions[address] = self.service.connect()
        options.setdefault("takeover_grace", 0.0)
        nimbus = Nimbus(
            session,
            address=address,
            directory=self.directory,
            nodes=gateway or MemoryNodeGateway(),
            options=NimbusOptions(**options),
            stores=stores,
        )
        nimbus.start()
        self.nimbuses.append(nimbus)
        if wait:
            assert nimbus.wait_leading(PATIENCE)
        return nimbus

    def node(self, name: str, slots: int = 2, **more: Any) -> FakeNode:
        node = self.nodes[name] = FakeNode(self.service.connect(), name, slots, **more)
        return node

    def bundle(self, nimbus: Nimbus) -> str:
        with nimbus.bundles.begin() as writer:
            writer.write(b"code")
            return writer.commit()

    def started(self, nimbus: Nimbus, s: TopologySpec) -> Assignment:
        """Submit, and wait until the workers have carried it out."""
        nimbus.submit(s, bundle=self.bundle(nimbus))
        self.settled(nimbus, s.name)
        return nimbus.describe(s.name).assignment

    def settled(self, nimbus: Nimbus, name: str) -> None:
        """Wait until nothing waits for anything."""
        self.until(nimbus, lambda: not nimbus.describe(name).waits, lambda: nimbus.describe(name).waits)

    def until(
        self, nimbus: Nimbus, condition: Callable[[], bool], why: Callable[[], object] = lambda: ""
    ) -> None:
        """Wait until something is so that this Nimbus sees."""
        reign = nimbus._reign
        assert reign is not None
        assert reign.mirror.wait_for(condition, PATIENCE), why()

    def leads_anew(self, nimbus: Nimbus, earlier: Reign | None) -> None:
        """Wait until this Nimbus leads again, after a reign that is over: nothing more comes to that one's mirror."""
        with nimbus._changed:
            assert nimbus._changed.wait_for(
                lambda: nimbus._reign not in (None, earlier) and nimbus.leading, PATIENCE
            )

    def gone(self, path: str) -> None:
        """Wait until a node of coordination is gone."""
        gone = threading.Event()
        watch = self.look.watch_value(path, lambda v: gone.set() if v is None else None)
        assert gone.wait(PATIENCE), f"{path} is still there"
        watch.cancel()

    def kinds(self, nimbus: Nimbus) -> list[str]:
        return [e.kind for _, e in nimbus.events.since(0)]

    def event(self, nimbus: Nimbus, kind: str) -> None:
        """Wait for an event."""
        seq = 0
        while True:
            found: Sequence[Any] = nimbus.events.since(seq)
            if any(e.kind == kind for _, e in found):
                return
            seq = found[-1][0] if found else seq
            assert nimbus.events.wait(seq, PATIENCE), f"no {kind} in {self.kinds(nimbus)}"

    def close(self) -> None:
        self.actors.close()
        for nimbus in self.nimbuses:
            nimbus.close()
        for node in self.nodes.values():
            node.leave()
