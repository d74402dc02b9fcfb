"""A supervisor with everything around it that a test can move."""

from __future__ import annotations

import io
import os
import select
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.model import codec
from elastic.model.assignment import Assignment, ExecutorId, NodeInfo, WorkerSlot
from elastic.model.ids import ComponentId, Epoch, Incarnation, NodeId, TaskId, TopologyName, WorkerId
from elastic.model.records import TopologyState, TopologyStatus, WantedNode, WorkerInfo
from elastic.model.topology import ComponentSpec, TopologySpec
from elastic.nodestore.base import NodeStore
from elastic.reporting.memory import MemoryReporter
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
