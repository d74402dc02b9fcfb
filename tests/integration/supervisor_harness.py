"""A supervisor with everything around it that a test can move."""

from __future__ import annotations

import io
import os
import select
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import Allocation, TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nodestore import keys
from elastic.nodestore import memory as memory_store
from elastic.nodestore.base import NodeStore
from elastic.reporting.memory import MemoryReporter
from elastic.supervisor.memory import MemoryLauncher
from elastic.supervisor.options import SupervisorOptions
from elastic.supervisor.ports import WorkerLauncher
from elastic.supervisor.supervisor import Supervisor

NODE = NodeId("n1")
T = TopologyName("t")
W = WorkerId("t@n1/0")
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


def bundle(behaviour: str = "") -> bytes:
    """A code bundle for `fake_worker.py`."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("behaviour", behaviour)
    return content.getvalue()


class World:
    """What Nimbus and the launcher would do, done by the test, in one session."""

    def __init__(self, coordination: Coordination) -> None:
        self.coordination = coordination
        self.epoch = 0
        for path in paths.ALL:
            if coordination.get(path) is None:
                coordination.create(path)

    def want_node(self) -> None:
        self.coordination.put(paths.wanted(NODE), codec.encode(WantedNode(2)))

    def submit(self, sha256: str, id: str = "t-1", name: TopologyName = T) -> None:
        spec = TopologySpec(
            name, (ComponentSpec(ComponentId("bolt"), "bolt", 4, 1),), config={"stop_grace": 0.1}
        )
        self.coordination.put(paths.spec(name), codec.encode(spec))
        self.set_state(TopologyStatus.ACTIVE, sha256, id, name)

    def set_state(self, status: TopologyStatus, sha256: str, id: str = "t-1", name: TopologyName = T) -> None:
        self.coordination.put(paths.state(name), codec.encode(TopologyState(status, id, sha256, 0.0)))

    def assign(self, *ranges: tuple[int, int], worker: WorkerId = W, name: TopologyName = T) -> None:
        """Executors on one worker here; none: all are elsewhere."""
        self.epoch += 1
        other = WorkerId(f"{name}@elsewhere/0")
        workers = {worker: WorkerSlot(NODE, 0)} if ranges else {other: WorkerSlot(NodeId("elsewhere"), 0)}
        here = tuple((executor(a, b), worker) for a, b in ranges) or ((executor(1, 4), other),)
        assignment = Assignment(name, Epoch(self.epoch), workers, here)
        self.coordination.put(paths.assignment(name), codec.encode(assignment))

    def register(self, incarnation: str, pid: int = 1, worker: WorkerId = W, name: TopologyName = T) -> None:
        """As the worker itself would."""
        info = WorkerInfo(worker, Incarnation(incarnation), "127.0.0.1:1", "", "boot", pid, Epoch(self.epoch))
        self.coordination.create(paths.worker(name, worker), codec.encode(info), ephemeral=True)

    def registered(self, worker: WorkerId = W, name: TopologyName = T) -> str:
        value = self.coordination.get(paths.worker(name, worker))
        return codec.decode(value.data, WorkerInfo).incarnation if value else ""


def executor(first: int, last: int) -> ExecutorId:
    return ExecutorId(ComponentId("bolt"), TaskId(first), TaskId(last))


def supervisor(
    coordination: Coordination,
    store: NodeStore,
    reporter: MemoryReporter,
    launcher: WorkerLauncher,
    directory: Path,
    generation: int = 1,
    **options: float | tuple[float, ...],
) -> Supervisor:
    node = NodeInfo(NODE, "127.0.0.1", 2, generation, "process", pid=os.getpid())
    settings = SupervisorOptions(**{"fetch_pauses": (0.01,), "grace": 0.5, **options})  # type: ignore[arg-type]
    return Supervisor(coordination, store, reporter, launcher, node, directory, settings)


class Bench:
    """A supervisor with pretended workers and a store in memory, over coordination in memory."""

    def __init__(self, directory: Path) -> None:
        self.server = MemoryZooKeeper()
        self.session = self.server.connect(session_timeout=2.0)
        self.world = World(self.server.connect())
        self.world.want_node()
        self.store = memory_store.open_writer(directory)
        self.reporter = MemoryReporter()
        self.launcher = MemoryLauncher()
        self.directory = directory
        self.supervisors: list[Supervisor] = []
        self.sha = self.reporter.add_bundle(bundle())

    def start(
        self,
        generation: int = 1,
        session: MemoryCoordination | None = None,
        launcher: MemoryLauncher | None = None,
        **options: float | tuple[float, ...],
    ) -> Supervisor:
        started = supervisor(
            session or self.session,
            self.store,
            self.reporter,
            launcher or self.launcher,
            self.directory,
            generation,
            **options,
        )
        self.supervisors.append(started)
        started.start("127.0.0.1:7")
        return started

    def run_topology(self) -> None:
        self.world.submit(self.sha)
        self.world.assign((1, 2), (3, 4))

    def allocation(self, worker: WorkerId = W) -> Allocation:
        entry = self.store.latest(keys.allocation(worker))
        assert entry is not None
        found = codec.decode(entry.data, Allocation)
        assert found.version == entry.version
        return found

    def wait(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Wait for something in the store or on disk, of which nobody tells."""
        end, pause = time.monotonic() + timeout, threading.Event()
        while not condition():
            assert time.monotonic() < end, f"it did not happen; events: {self.reporter.kinds()}"
            pause.wait(0.01)

    def close(self) -> None:
        for started in self.supervisors:
            started.close()
        self.server.close()
        self.store.close()
        memory_store.drop(self.directory)


def ended(pid: int, timeout: float = 30.0) -> bool:
    """Wait for the end of a process that is not this one's child. Returns whether it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout)[0])
    finally:
        os.close(handle)


def until(
    coordination: Coordination, path: str, condition: Callable[[bytes | None], bool], timeout: float = 30.0
) -> None:
    """Wait until a node's value is as it should be."""
    happened = threading.Event()
    watch = coordination.watch_value(
        path, lambda value: happened.set() if condition(value.data if value else None) else None
    )
    try:
        if not happened.wait(timeout):
            raise TimeoutError(f"{path} is {coordination.get(path)}")
    finally:
        watch.cancel()
