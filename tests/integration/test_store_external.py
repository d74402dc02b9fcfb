"""`--store hazelcast:NAME@HOST:PORT`: nodes' stores in front of members that the test starts, as somebody else would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_harness import Cluster
from families import command_of, concerned_with, family
from foreign_members import KEPT, ForeignMember
from hazelcast_here import hazelcast_java
from test_moves_cli import JOB, flows, other, places

from elastic.cluster.directory import read_cluster
from elastic.coordination import paths
from elastic.coordination.zookeeper import connect
from elastic.model.assignment import NodeInfo
from elastic.model.codec import decode
from elastic.model.ids import NodeId
from statestore.address import StoreAddress

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ForeignMember]]:
    """Two, set as docs/statestore.md tells those who run them."""
    java = hazelcast_java()
    made = [
        ForeignMember("cache", tmp_path_factory.mktemp("member"), java, KEPT.format(backups=1))
        for _ in range(2)
    ]
    try:
        made[0].start()
        made[1].start([made[0].address])
        yield made
    finally:
        for member in made:
            member.kill()


@pytest.fixture(scope="module")
def named(members: list[ForeignMember]) -> str:
    return f"hazelcast:cache@{','.join(m.address for m in members)}"


def test_more_backups_than_the_members_keep_are_refused_before_anything_starts(
    tmp_path: Path, named: str
) -> None:
    refused = Cluster(tmp_path, tmp_path)("up", "--store", named, "--store-backups", "2")
    assert refused.code == 11, refused.err
    assert "statestore.pieces has 1 synchronous backup, and 2 are wanted" in refused.err
    assert "--store-backups" in refused.err
    assert list(tmp_path.glob("*/cluster.json")) == []
    assert concerned_with(tmp_path) == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, named: str) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("h"), tmp_path_factory.mktemp("work"))
    (made.work / "job.py").write_text(JOB)
    up = made("up", "--store", named)
    try:
        assert up.code == 0, up.err
        assert "merge policy" not in up.err and "cannot be read" not in up.err
        submitted = made("submit", "job.py", str(made.work))
        assert submitted.code == 0, submitted.err
        flows(made)
        yield made
    finally:
        made("down", "--purge")


def test_states_move_over_members_that_somebody_else_runs(
    cluster: Cluster, members: list[ForeignMember], named: str
) -> None:
    """Also when one of them has died."""
    assert stores(cluster) == {named.removeprefix("hazelcast:")}
    launched = [command_of(p) for p in family(cluster.launcher().pid)]
    assert not [c for c in launched if "HazelcastMemberStarter" in c]
    move(cluster, "2-3")
    before = members[0].migrations
    members[1].kill()
    move(cluster, "2-3")
    members[1].start([members[0].address])
    assert members[0].wait_migrated(before)
    assert cluster.data("errors", "counted") == []


@pytest.mark.slow
def test_when_they_were_all_started_anew_states_move_again(
    cluster: Cluster, members: list[ForeignMember]
) -> None:
    """What was there is gone, which a store says that finds it out, and new states are taken."""
    move(cluster, "4-5")
    for member in members:
        member.kill()
    members[0].start([])
    members[1].start([members[0].address])
    move(cluster, "4-5")
    assert anew(cluster)
    assert cluster.data("errors", "counted") == []


def move(cluster: Cluster, tasks: str) -> None:
    """To the other node. A number that was lost, or came twice, is an error of the topology."""
    moved = cluster("move", "counted", f"count[{tasks}]", "--to", other(places(cluster)[int(tasks[0])]))
    assert moved.code == 0, moved.err
    flows(cluster)


def anew(cluster: Cluster) -> set[str]:
    """Nodes whose store has said that all members had gone."""
    said = "all members of the Hazelcast cluster had gone"
    events = [e for e in cluster.data("events") if e["kind"] == "store-lost"]
    return {e["node"] for e in events if said in e["details"]["reason"]}


def stores(cluster: Cluster) -> set[str]:
    """Which Hazelcast clusters the nodes' stores say that they are in front of."""
    session = connect(read_cluster(cluster.home, "default").zookeeper, session_timeout=30.0)
    try:
        found = set()
        for name in ("node-1", "node-2"):
            value = session.get(paths.node(NodeId(name)))
            assert value is not None
            found.add(StoreAddress.parse(decode(value.data, NodeInfo).store).group)
        return found
    finally:
        session.close()
