"""A cluster that begins on a root where another has been, which could not clear it, has nothing of that one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from elastic.cluster import root
from elastic.coordination import paths
from elastic.coordination.memory import MemoryCoordination, MemoryZooKeeper
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode, encode
from elastic.model.ids import NodeId, TopologyName
from elastic.model.records import ElasticitySettings, WantedNode
from elastic.nimbus.deciding.removal import moves_ever

T, FIRST, SECOND = TopologyName("t"), NodeId("node-1"), NodeId("node-2")


@pytest.fixture
def session() -> Iterator[MemoryCoordination]:
    service = MemoryZooKeeper()
    yield service.connect()
    service.close()


def test_it_has_the_nodes_that_it_asks_for_and_no_topologies(session: MemoryCoordination) -> None:
    for path in (paths.spec(T), paths.drain(SECOND), paths.wanted(FIRST), paths.wanted(SECOND)):
        session.put(path, encode(WantedNode(7)))
    root.reset(session, {FIRST: WantedNode(2)})
    assert session.children(paths.TOPOLOGIES) == () == session.children(paths.DRAINS)
    assert session.children(paths.WANTED) == (FIRST,)
    found = session.get(paths.wanted(FIRST))
    assert found is not None and decode(found.data, WantedNode) == WantedNode(2)


@pytest.mark.parametrize(("kind", "generation", "first"), [("process", 7, 7), ("spark", 3004, 3000)])
def test_nodes_of_before_are_known_by_the_highest_generation_that_they_may_have(
    session: MemoryCoordination, kind: str, generation: int, first: int
) -> None:
    highest = first + 999 if kind == "spark" else first
    node = NodeInfo(SECOND, "h", 1, generation, kind)
    session.put(paths.node(SECOND), encode(node))
    assert root.reset(session, {FIRST: WantedNode(2)}) == {SECOND: highest}
    for other in first - 1, highest + 1:
        root.forget(session, SECOND, other)
        assert session.get(paths.node(SECOND)) is not None
    root.forget(session, SECOND, first)
    assert session.get(paths.node(SECOND)) is None


def test_it_has_no_policy_and_no_memory_of_decisions(session: MemoryCoordination) -> None:
    session.put(paths.ELASTICITY, encode(ElasticitySettings(policy="load", nodes="auto")))
    session.put(paths.NODES_MEMORY, b"node-2 was asked for")
    session.put(paths.memory(T), b"it was resized")
    for _ in range(2):  # the second time there is nothing of it, which is no error
        root.reset(session, {FIRST: WantedNode(2)})
        settings = session.get(paths.ELASTICITY)
        assert settings is not None and settings.data == b"", "nothing has been set"
        assert session.get(paths.NODES_MEMORY) is None and session.children(paths.MEMORIES) == ()


def test_the_numbers_of_its_moves_come_after_all_that_stores_may_remember(
    session: MemoryCoordination,
) -> None:
    """The root may know how far they were, of a topology that is no more or of one that an earlier cluster has left; or nobody but
    the stores, when these or coordination outlive clusters."""
    session.put(paths.TOPOLOGIES, b"3")
    session.put(paths.moves(T), b"9")
    root.reset(session, {FIRST: WantedNode(2)})
    assert moves_ever(session)[0] == 9
    root.reset(session, {FIRST: WantedNode(2)}, after=7)
    assert moves_ever(session)[0] == 9
    root.reset(session, {FIRST: WantedNode(2)}, after=70)
    assert moves_ever(session)[0] == 70
    assert root.after_all_before(False) == 0 < root.after_all_before(True) < time.time()
