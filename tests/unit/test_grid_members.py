"""Who of the nodes' Hazelcast members is the first one, and what a member does that is not with the others any more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from elastic.cluster.grid_members import ENTERED, READY, GridMembers
from elastic.cluster.grid_service import GridService
from elastic.cluster.store_service import DIRECTORY
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.model.ids import NodeId
from statestore.errors import Lost, Missing, Unavailable
from statestore.server import EXIT_LOST


class Nodes:
    def __init__(self) -> None:
        self.server = MemoryZooKeeper()
        self.sessions: dict[GridMembers, MemoryCoordination] = {}

    def members(self, node: str) -> GridMembers:
        session = self.server.connect()
        members = GridMembers(session, NodeId(node))
        self.sessions[members] = session
        return members

    def close(self) -> None:
        for members, session in self.sessions.items():
            members.close()
            session.close()


@pytest.fixture
def nodes() -> Any:
    nodes = Nodes()
    yield nodes
    nodes.close()


def test_the_first_founds_and_the_others_join_it(nodes: Nodes) -> None:
    one, two = nodes.members("node-1"), nodes.members("node-2")
    assert one.turn(1) == ()
    joined: list[tuple[str, ...]] = []
    waiting = threading.Thread(target=lambda: joined.append(two.turn(30)))
    waiting.start()
    one.tell_ready("a:1")
    waiting.join(30)
    assert joined == [("a:1",)]


def test_what_a_cut_off_node_could_not_take_back_is_taken_back_before_its_next_turn(nodes: Nodes) -> None:
    """Else it would join the address of its own dead member, and be a cluster of its own."""
    one, two = nodes.members("node-1"), nodes.members("node-2")
    one.turn(1)
    one.tell_ready("a:1")
    two.turn(1)
    two.tell_ready("b:1")
    nodes.server.suspend(nodes.sessions[one])
    one.leave()
    nodes.server.resume(nodes.sessions[one])
    assert two.ready() == ("a:1",)
    assert one.turn(1) == ("b:1",)
    assert two.ready() == ()
    one.tell_ready("a:1")
    assert len(nodes.sessions[one].children(ENTERED) or ()) == 2


def test_what_an_earlier_process_of_the_node_said_is_taken_back(nodes: Nodes) -> None:
    earlier, other = nodes.members("node-1"), nodes.members("node-2")
    earlier.turn(1)
    earlier.tell_ready("a:1")  # and it dies; its session is still there
    other.turn(1)
    other.tell_ready("b:1")
    assert nodes.members("node-1").turn(1) == ("b:1",)
    assert other.ready() == ()


def test_that_a_member_serves_is_said_also_when_it_could_not_be_said_at_first(nodes: Nodes) -> None:
    one, two = nodes.members("node-1"), nodes.members("node-2")
    one.turn(1)
    nodes.server.suspend(nodes.sessions[one])
    with pytest.raises(Exception, match="connect"):
        one.tell_ready("a:1")
    nodes.server.resume(nodes.sessions[one])
    for _ in range(2):
        one.tell_ready("a:1")
    assert two.ready() == ("a:1",)
    assert len(nodes.sessions[one].children(READY) or ()) == 1


class Member:
    """A member's process, as far as it is needed here."""

    address = "own:1"
    log = Path("hazelcast.log")

    def __init__(self) -> None:
        self.process: Any = None
        self.reaches = True
        self.joined: list[tuple[str, ...]] = []

    def prepare(self) -> None: ...

    def launch(self, others: tuple[str, ...]) -> None:
        self.joined.append(others)
        self.process = self

    @property
    def size(self) -> int:
        return 1 + (len(self.joined[-1]) if self.reaches else 0)

    def poll(self) -> None:
        return None

    def wait_ready(self, timeout: float) -> None:
        pass

    def kill(self) -> None:
        self.process = None


class Store:
    """The store's process: it says that the cluster is not the one that it knew, so often, and then serves."""

    arguments: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.lost = 0
        self.exit_code: int | None = None

    def end(self) -> None:
        pass

    def start(self, timeout: float) -> str:
        if self.lost:
            self.lost -= 1
            self.exit_code = EXIT_LOST
            raise Missing("the cluster is empty")
        return "store:1"


class Bench:
    def __init__(self, nodes: Nodes, directory: Path) -> None:
        self.member, self.store = Member(), Store()
        self.members = nodes.members("node-1")
        self.known = directory / DIRECTORY / "incarnation"
        self.known.parent.mkdir()
        self.known.write_text("the first one")
        store: Any = self.store
        member: Any = self.member
        self.service = GridService(store, [], "c", directory, member=member, members=self.members)


@pytest.fixture
def bench(nodes: Nodes, tmp_path: Path) -> Bench:
    return Bench(nodes, tmp_path)


def test_a_member_that_has_lost_the_others_joins_them_anew_and_nothing_is_forgotten(
    nodes: Nodes, bench: Bench
) -> None:
    assert bench.service.start(1) == "store:1"
    other = nodes.members("node-2")
    other.turn(1)
    other.tell_ready("other:1")
    bench.store.lost = 1
    with pytest.raises(Unavailable, match="joins them anew"):
        bench.service.start(1)
    assert bench.known.read_text() == "the first one"
    assert other.ready() == ()
    assert bench.service.start(1) == "store:1"
    assert bench.member.joined == [(), ("other:1",)]


def test_when_the_others_have_not_got_it_either_the_states_are_gone(nodes: Nodes, bench: Bench) -> None:
    other = nodes.members("node-2")
    other.turn(1)
    other.tell_ready("other:1")
    bench.store.lost = 1
    with pytest.raises(Lost, match="had gone"):
        bench.service.start(1)
    assert bench.member.joined == [("other:1",)]
    assert not bench.known.exists()
    assert bench.service.start(1) == "store:1"


def test_when_there_are_no_others_the_states_are_gone(bench: Bench) -> None:
    assert bench.service.start(1) == "store:1"
    bench.store.lost = 1
    with pytest.raises(Lost, match="had gone"):
        bench.service.start(1)
    assert not bench.known.exists()


def test_a_member_that_reaches_none_of_those_that_serve_founds_no_cluster_of_its_own(
    nodes: Nodes, bench: Bench
) -> None:
    other = nodes.members("node-2")
    other.turn(1)
    other.tell_ready("other:1")
    bench.member.reaches = False
    with pytest.raises(Unavailable, match=r"reaches none of those that serve \(other:1\)"):
        bench.service.start(1)
    assert bench.member.process is None
    assert other.ready() == ()
    assert len(nodes.sessions[other].children(ENTERED) or ()) == 1  # nobody waits for it
    bench.member.reaches = True
    assert bench.service.start(1) == "store:1"
    assert other.ready() == ("own:1",)


def test_when_those_that_served_are_gone_the_next_one_founds_the_cluster(nodes: Nodes, bench: Bench) -> None:
    other = nodes.members("node-2")
    other.turn(1)
    other.tell_ready("other:1")
    bench.member.reaches = False
    with pytest.raises(Unavailable):
        bench.service.start(1)
    other.leave()
    assert bench.service.start(1) == "store:1"
    assert bench.member.joined == [("other:1",), ()]
