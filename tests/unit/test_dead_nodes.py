"""What is left in coordination of a node whose process has ended goes at once, when nothing of it runs any more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from elastic.cluster import root
from elastic.coordination import paths
from elastic.coordination.base import Coordination
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.ids import Incarnation, NodeId, TopologyName, WorkerId
from elastic.model.records import WorkerInfo
from elastic.transport.addresses import boot_id

N, T = NodeId("n"), TopologyName("t")
W, OTHER = WorkerId("t@n/0"), WorkerId("t@m/0")
LIFE = Incarnation(f"{W}#7")
WAITS = "import sys; sys.stdin.read()"


class Scene:
    """Processes of workers that have lost their supervisor: the kernel has not come to them yet."""

    def __init__(self) -> None:
        self.service = MemoryZooKeeper()
        self.launcher, self.workers = self.service.connect(), self.service.connect()
        root.reset(self.launcher, {})
        self.launcher.put(paths.workers(T), b"")
        self.processes: list[subprocess.Popen[bytes]] = []

    def worker(
        self, worker: WorkerId = W, life: Incarnation = LIFE, boot: str = ""
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", WAITS, LIFE], stdin=subprocess.PIPE)
        self.processes.append(process)
        info = WorkerInfo(worker, life, "", "", boot or boot_id(), process.pid, 1)
        self.workers.create(paths.worker(T, worker), encode(info), ephemeral=True)
        return process

    def registered(self, worker: WorkerId = W) -> bool:
        return self.launcher.get(paths.worker(T, worker)) is not None


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    made.service.close()


def test_its_workers_go_once_they_have_ended(scene: Scene) -> None:
    process, stays = scene.worker(), scene.worker(OTHER)
    root.bury(scene.launcher, N)
    assert process.wait(0) == -9, "nobody may run its tasks before it has ended"
    assert not scene.registered()
    assert scene.launcher.get(paths.node(N)) is None
    assert stays.poll() is None and scene.registered(OTHER)
    root.bury(scene.launcher, N)


def test_one_that_does_not_end_keeps_its_entry(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.worker()
    monkeypatch.setattr("elastic.procs.end_stray", lambda *_: False)
    root.bury(scene.launcher, N)
    assert scene.registered()


def test_of_another_machine_nothing_is_known(scene: Scene) -> None:
    process = scene.worker(boot="another")
    root.bury(scene.launcher, N)
    assert process.poll() is None and scene.registered()


def test_a_number_that_is_another_process_by_now(scene: Scene) -> None:
    process = scene.worker(life=Incarnation(f"{W}#8"))
    root.bury(scene.launcher, N)
    assert process.poll() is None and not scene.registered()


class Late(Coordination):
    """Between the look and the write another life of the node registers, and a worker of it."""

    def __init__(self, of: MemoryCoordination, then: list[object]) -> None:
        self._of, self._then = of, then

    def __getattribute__(self, name: str) -> object:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        if name == "transaction":
            for act in self._then:
                act()  # type: ignore[operator]
        return getattr(self._of, name)


@pytest.mark.parametrize("node_first", [True, False])
def test_a_later_life_of_the_node_is_left_alone(scene: Scene, node_first: bool) -> None:
    """Its workers' entries have the versions of those that were read. What tells is the node's entry: without it, they would go."""
    scene.worker()
    path = paths.worker(T, W)
    newer = WorkerInfo(W, Incarnation(f"{W}#1007"), "", "", boot_id(), 1, 1)
    node = encode(NodeInfo(N, "127.0.0.1", 1, 2, "process"))
    acts = [
        lambda: scene.workers.delete(path),
        lambda: scene.workers.create(path, encode(newer), ephemeral=True),
    ]
    if node_first:
        acts.insert(0, lambda: scene.workers.create(paths.node(N), node, ephemeral=True))
    root.bury(Late(scene.launcher, acts), N)  # type: ignore[arg-type,abstract]
    found = scene.launcher.get(path)
    if not node_first:
        assert found is None
        return
    assert found is not None and decode(found.data, WorkerInfo) == newer
    assert scene.launcher.get(paths.node(N)) is not None
