"""Nodes are started, started again and stopped as they are wanted: with a host that does what the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic.api.settings import setting
from elastic.cluster import root
from elastic.cluster.loop import Loop
from elastic.cluster.nodes import Nodes
from elastic.cluster.options import UpOptions
from elastic.cluster.running import Launcher
from elastic.coordination import paths
from elastic.coordination.memory import MemoryZooKeeper
from elastic.errors import EnvironmentProblem, NotConnected
from elastic.hosts.base import Host, NodeCommand, NodeHandle
from elastic.model.codec import encode
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import WantedNode
from elastic.model.topology import TopologySpec
from elastic.supervisor.options import SupervisorOptions

A, B = NodeId("a"), NodeId("b")
ONE = WantedNode(1)


class Handle:
    def __init__(self, host: Hosted, command: NodeCommand, on_exit: Callable[[NodeId, str], None]) -> None:
        self.host, self.command, self.on_exit = host, command, on_exit
        self.node = command.node

    def alive(self) -> bool:
        return self in self.host.running

    def end(self, why: str) -> None:
        self.host.running.remove(self)
        self.on_exit(self.node, why)

    def stop(self, grace: float) -> None:
        if self.alive():
            self.host.stopped.append(self.node)
            self.host.graces.append(grace)
            self.end("")


class Hosted:
    """A host in memory."""

    kind = "memory"

    def __init__(self) -> None:
        self.running: list[Handle] = []
        self.started: list[tuple[str, str]] = []
        self.stopped: list[str] = []
        self.graces: list[float] = []
        self.refuse = 0
        self.end_at_once = False

    def start(self, command: NodeCommand, on_exit: Callable[[NodeId, str], None]) -> NodeHandle:
        if self.refuse:
            self.refuse -= 1
            raise EnvironmentProblem("no room")
        handle = Handle(self, command, on_exit)
        self.running.append(handle)
        self.started.append((command.node, command.arguments[0]))
        if self.end_at_once:
            self.end_at_once = False
            handle.end("it ended before it was known that it had started")
        return handle

    def close(self) -> None:
        for handle in list(self.running):
            handle.stop(0)


class Told:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def node_started(self, node: NodeId, generation: int) -> None:
        self.calls.append(("started", node, generation))

    def node_ended(self, node: NodeId, generation: int, host: str, why: str, failures: int) -> None:
        self.calls.append(("ended", node, generation, why, failures))

    def node_failed(self, node: NodeId, error: Exception, failures: int) -> None:
        self.calls.append(("failed", node, str(error), failures))


class Rig:
    def __init__(self) -> None:
        self.loop, self.host, self.told = Loop(), Hosted(), Told()
        host: Host = self.host
        self.nodes = Nodes(
            self.loop,
            lambda _kind: host,
            lambda node, generation, _wanted: NodeCommand(node, (str(generation),)),
            self.told,
            lambda kind: kind == "spark",
            self._grace,
        )
        self.asked = 0
        self.unsaid: Exception | None = None

    def _grace(self) -> float:
        self.asked += 1
        if self.unsaid is not None:
            raise self.unsaid
        return 8.0

    def until(self, *calls: tuple[object, ...]) -> None:
        """Run the loop until those have been told."""
        self.loop.run(lambda: all(c in self.told.calls for c in calls))

    def handle(self, node: NodeId) -> Handle:
        return next(h for h in self.host.running if h.node == node)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_is_wanted_is_started_once(rig: Rig) -> None:
    rig.nodes.want({A: ONE, B: ONE})
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.want({A: ONE, B: ONE})
    assert sorted(rig.host.started) == [("a", "1"), ("b", "1")]
    assert rig.nodes.running == {A: 1, B: 1}


def test_one_that_ends_unasked_is_started_again_with_a_higher_generation(rig: Rig) -> None:
    rig.nodes.seen(A, 6)
    rig.nodes.want({A: ONE})
    rig.until(("started", A, 7))
    rig.handle(A).end("crash")
    rig.until(("ended", A, 7, "crash", 1), ("started", A, 8))
    rig.handle(A).end("crash")
    rig.until(("ended", A, 8, "crash", 2), ("started", A, 9))


def test_generations_of_a_name_rise_from_one_kind_of_host_to_the_other_and_back(rig: Rig) -> None:
    """Spark makes a thousand of each start."""
    for kind, first in ("process", 1), ("spark", 1000), ("process", 2000), ("spark", 3000), ("spark", 4000):
        rig.nodes.want({A: WantedNode(1, kind)})
        rig.until(("started", A, first))
        rig.nodes.want({})
        rig.until(("ended", A, first, "", 1))
    rig.nodes.seen(B, 1999)
    rig.nodes.want({B: ONE})
    rig.until(("started", B, 2000))


def test_one_of_which_another_thing_is_wanted_is_another_one(rig: Rig) -> None:
    """Its name was free for a moment, in which nobody looked."""
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.want({A: WantedNode(4), B: ONE})
    rig.until(("ended", A, 1, "", 1), ("started", A, 2))
    assert rig.host.stopped == ["a"] and rig.nodes.running == {A: 2, B: 1}


@pytest.mark.parametrize("seen", [False, True])
def test_another_one_of_that_name_is_started_when_the_first_has_ended(rig: Rig, seen: bool) -> None:
    """It ended at once, as its directory was still that of the first, and was tried again after pauses that grow."""
    rig.nodes.want({A: ONE})
    rig.until(("started", A, 1))
    handle, told, go_on = rig.handle(A), threading.Event(), threading.Event()
    stop = handle.stop

    def slow(grace: float) -> None:
        told.set()
        assert go_on.wait(60)
        stop(grace)

    handle.stop = slow  # type: ignore[method-assign]
    if seen:  # that its name was free
        rig.nodes.want({})
    rig.nodes.want({A: WantedNode(4), B: ONE})
    rig.until(("started", B, 1))
    assert told.wait(60)
    rig.nodes.want({A: WantedNode(4)})
    rig.until(("ended", B, 1, "", 1))
    assert rig.host.started == [("a", "1"), ("b", "1")]
    go_on.set()
    rig.until(("started", A, 2))
    assert rig.nodes.running == {A: 2}


def test_another_one_of_that_name_is_started_when_the_start_of_the_first_is_over(rig: Rig) -> None:
    rig.nodes.want({A: ONE})
    rig.nodes.want({A: WantedNode(4)})
    rig.until(("started", A, 2))
    assert rig.host.stopped == ["a"] and rig.nodes.running == {A: 2}
    rig.host.refuse = 1
    rig.nodes.want({B: ONE})
    rig.nodes.want({B: WantedNode(4)})
    rig.until(("started", B, 2))


def test_one_that_ends_before_its_start_is_known_is_not_forgotten(rig: Rig) -> None:
    rig.host.end_at_once = True
    rig.nodes.want({A: ONE})
    rig.until(("started", A, 1), ("started", A, 2))
    assert rig.nodes.running == {A: 2}


def test_one_that_is_not_wanted_any_more_is_stopped_and_stays_so(rig: Rig) -> None:
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.want({B: ONE})
    rig.until(("ended", A, 1, "", 1))
    assert rig.host.stopped == ["a"]
    assert rig.nodes.running == {B: 1}
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 2))


def test_one_that_cannot_be_started_is_tried_again(rig: Rig) -> None:
    rig.host.refuse = 1
    rig.nodes.want({A: ONE})
    rig.until(("failed", A, "no room", 1), ("started", A, 2))


def test_one_that_ended_by_itself_because_it_is_not_wanted_is_not_started_again(rig: Rig) -> None:
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.handle(A).end("it ended with exit code 0")
    rig.nodes.unwanted(A, 1)
    rig.handle(B).end("crash")
    rig.until(("started", B, 2))
    assert rig.nodes.running == {B: 2}


def test_close_stops_all_and_nothing_starts_after_it(rig: Rig) -> None:
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.close()
    assert rig.host.running == []
    rig.nodes.want({A: ONE})
    assert len(rig.host.started) == 2


def test_close_asks_once_how_long_nodes_have(rig: Rig) -> None:
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.close()
    assert rig.host.graces == [8.0, 8.0]
    assert rig.asked == 1


@pytest.mark.parametrize("unsaid", [NotConnected("no ZooKeeper"), RuntimeError("can't start new thread")])
def test_they_end_although_nobody_can_say_how_long_they_have(rig: Rig, unsaid: Exception) -> None:
    rig.unsaid = unsaid
    rig.nodes.want({A: ONE, B: ONE})
    rig.until(("started", A, 1), ("started", B, 1))
    rig.nodes.want({B: ONE})
    rig.until(("ended", A, 1, "", 1))
    rig.nodes.close()
    assert rig.host.running == [] and sorted(rig.host.stopped) == ["a", "b"]


def test_how_long_they_have_is_the_default_where_no_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "_ASKED", 0.05, raising=False)
    over, gave_up = threading.Event(), threading.Event()

    class Silent:
        def children(self, path: str) -> Any:
            over.wait(10)  # as a client without a connection does, for as long as its session may go on
            gave_up.set()
            raise NotConnected("no ZooKeeper")

    silent: Any = Silent()
    assert root.node_grace(silent) == root.node_grace(None) > setting("stop_grace")
    assert not gave_up.is_set()
    over.set()
    assert gave_up.wait(30)


@pytest.mark.parametrize(("graces", "longest"), [((), 5.0), ((1.0, 40.0), 40.0), ((600.0,), 60.0)])
def test_one_that_stops_has_the_time_that_its_topologies_give_their_workers(
    graces: tuple[float, ...], longest: float, tmp_path: Path
) -> None:
    service, host = MemoryZooKeeper(), Hosted()
    session = service.connect()
    for number, grace in enumerate(graces):
        name = TopologyName(f"t{number}")
        session.put(paths.spec(name), encode(TopologySpec(name, (), config={"stop_grace": grace})))
    session.put(paths.spec(TopologyName("other")), b"of another version")
    session.create(paths.topology(TopologyName("begins")))
    launcher = Launcher(UpOptions(home=str(tmp_path)), lambda _: None, lambda _: None)
    launcher._hosts["process"], launcher._coordination = host, session  # type: ignore[assignment]
    launcher._want({A: ONE})
    launcher._loop.run(lambda: A in launcher._nodes.running)
    launcher._nodes.close()
    service.close()
    assert [grace > longest + SupervisorOptions().grace for grace in host.graces] == [True]
    assert host.graces[0] < longest + 10.0


def test_one_that_is_wanted_anew_before_it_was_known_that_it_was_not_goes_on(rig: Rig) -> None:
    rig.nodes.want({A: ONE})
    rig.until(("started", A, 1))
    rig.nodes.want({})
    rig.nodes.want({A: ONE})
    rig.until(("started", A, 2))
    rig.nodes.unwanted(A, 1)  # what was found when the first one had ended
    assert rig.nodes.running == {A: 2}
