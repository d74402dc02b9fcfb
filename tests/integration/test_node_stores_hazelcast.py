"""The nodes' stores before a Hazelcast cluster of their own: as many members as nodes, in one cluster, kept running."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from families import command_of, family, left_of
from hazelcast_here import hazelcast_java

from elastic.cluster.grid_members import ENTERED, READY
from elastic.cluster.launcher import ClusterInfo, UpOptions, start_background, stop
from elastic.cluster.node_stores import Gone, NodeStores
from elastic.cluster.store_ways import store_address
from elastic.coordination import paths
from elastic.coordination.zookeeper import ZooKeeperCoordination, connect
from elastic.errors import Superseded, Unavailable
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode
from elastic.model.ids import NodeId, TopologyName
from statestore.address import StoreAddress

PATIENCE = 90.0
NODES = [NodeId("node-1"), NodeId("node-2")]
KEY = "kept-by-the-test/1"
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="relies on PR_SET_PDEATHSIG"),
    pytest.mark.timeout(400),
]


class Cluster:
    def __init__(self, info: ClusterInfo) -> None:
        self.info = info
        self.session: ZooKeeperCoordination = connect(info.zookeeper, session_timeout=30.0)
        self.stores = NodeStores(NODES[0], lambda n: store_address(self.session, n), patience=PATIENCE)
        self.watches = [
            self.session.watch_value(paths.node(n), lambda _: self.stores.nodes_changed()) for n in NODES
        ]
        self.session.put(paths.moves(TopologyName("kept-by-the-test")), b"1")  # else it is collected

    def node(self, name: NodeId) -> NodeInfo:
        value = self.session.get(paths.node(name))
        assert value is not None
        return decode(value.data, NodeInfo)

    def child(self, name: NodeId, words: str) -> psutil.Process:
        """It is waited for: another node's store may have answered while this one's was being started again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            children = psutil.Process(self.node(name).pid).children()
            found = [p for p in children if words in command_of(p)]
            if len(found) == 1:
                return found[0]
            assert time.monotonic() < deadline, f"{name} has {found} for {words}"
            time.sleep(0.1)

    def serving(self) -> None:
        """Wait until every node has its member and its store."""
        for path in (ENTERED, READY):
            there = threading.Event()
            watch = self.session.watch_children(
                path, lambda names, e=there: e.set() if len(names) == len(NODES) else None
            )
            assert there.wait(PATIENCE), f"{path} has {self.session.children(path)}"
            watch.cancel()
        for name in NODES:
            said = threading.Event()
            watch = self.session.watch_value(
                paths.node(name),
                lambda value, e=said: e.set() if value and decode(value.data, NodeInfo).store else None,
            )
            assert said.wait(PATIENCE), f"{name} is {self.node(name)}"
            watch.cancel()

    def save(self, epoch: int, data: bytes) -> None:
        write = self.stores.begin(KEY, epoch, "w#1", NODES, len(data))
        numbers = [write.put(data[at : at + (256 << 10)]) for at in range(0, len(data), 256 << 10)]
        assert write.commit(numbers, b"meta") == len(data) + 4

    def fetch(self, epoch: int, node: NodeId) -> bytes:
        return b"".join(self.stores.fetch(KEY, epoch, [node]).pieces)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    hazelcast_java()
    with tempfile.TemporaryDirectory(prefix="grid-") as home:
        options = UpOptions(
            cluster="g", home=home, store="hazelcast", store_memory=128 << 20, session_timeout=20.0
        )
        info = start_background(options, lambda _: None)
        processes = family(info.pid)
        try:
            cluster = Cluster(info)
            yield cluster
            for watch in cluster.watches:
                watch.cancel()
            cluster.stores.close()
            cluster.session.close()
            processes += family(info.pid)
        finally:
            stop(Path(home), "g")
        assert not left_of(processes, 30)


def test_a_state_is_saved_once_and_comes_from_every_node(cluster: Cluster) -> None:
    data = os.urandom(3 << 20)
    cluster.serving()
    cluster.save(5, data)
    assert [cluster.fetch(5, node) for node in NODES] == [data, data]
    groups = {StoreAddress.parse(cluster.node(node).store).group for node in NODES}
    assert len(groups) == 1 and groups != {""}
    assert len(cluster.session.children(ENTERED) or ()) == len(cluster.session.children(READY) or ()) == 2
    # Another node has it as well, should both that were asked be gone.
    assert cluster.stores.fetch(KEY, 5, [NodeId("gone")]).node == NODES[0]
    with pytest.raises(Superseded):
        cluster.stores.begin(KEY, 4, "w#1", NODES, 10)


def test_members_and_stores_are_kept_running_and_states_survive_each_of_them(cluster: Cluster) -> None:
    data = os.urandom(1 << 20)
    cluster.save(6, data)
    for name in NODES:
        cluster.child(name, "statestore.server").kill()
    assert [cluster.fetch(6, node) for node in NODES] == [data, data]
    store = cluster.child(NODES[1], "statestore.server")
    member = cluster.child(NODES[1], "HazelcastMemberStarter")
    member.kill()
    psutil.wait_procs([store, member], timeout=PATIENCE)  # its store begins anew with it
    assert [cluster.fetch(6, node) for node in NODES] == [data, data]
    assert cluster.child(NODES[1], "HazelcastMemberStarter").pid != member.pid
    assert cluster.stores.clean(TopologyName("kept-by-the-test"), 6, [1], NODES) == []


def test_when_all_members_go_the_states_are_said_to_be_gone_and_new_ones_are_taken(cluster: Cluster) -> None:
    cluster.save(7, b"state")
    old = [cluster.child(name, "HazelcastMemberStarter") for name in NODES]
    for member in old:
        member.kill()
    psutil.wait_procs(old, timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while True:  # until stores serve that know of the new cluster
        with pytest.raises((Gone, Unavailable)) as said:
            cluster.stores.fetch(KEY, 7, NODES)
        if said.type is Gone:
            break
        assert time.monotonic() < deadline, said.value
    cluster.save(8, b"new")
    assert [cluster.fetch(8, node) for node in NODES] == [b"new", b"new"]
