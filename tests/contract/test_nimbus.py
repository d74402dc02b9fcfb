"""Nimbus and its topologies, against coordination in memory and real ZooKeeper, with fake nodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from coordination_harness import PATIENCE
from nimbus_harness import Cluster, spec

from elastic.coordination import paths
from elastic.errors import (
    AlreadyExists,
    DeadlineExceeded,
    ElasticError,
    InvalidParallelism,
    NotFound,
    NotShippable,
    Refused,
    Unavailable,
)
from elastic.model.events import Event
from elastic.model.ids import TopologyName, WorkerId
from elastic.model.records import TopologyStatus
from elastic.nimbus.ports import MemoryNodeGateway

WC = TopologyName("wc")


# --- submit and end


def test_a_submitted_topology_is_placed_over_the_nodes(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.node("n2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    a = cluster.started(nimbus, spec())
    assert {s.node for s in a.workers.values()} == {"n1", "n2"} and not a.unassigned
    (line,) = nimbus.topologies()
    assert (line.name, line.status, line.tasks, line.executors, line.workers) == ("wc", "active", 9, 5, 2)
    assert [n.used for n in nimbus.nodes()] == [1, 1]
    assert all(w.alive and w.epoch == 1 for w in nimbus.describe("wc").workers)


def test_a_bad_topology_is_refused_with_nothing_left_behind(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    code = cluster.bundle(nimbus)
    with pytest.raises(Refused, match="no nodes"):
        nimbus.submit(spec(), bundle=code)
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    with pytest.raises(InvalidParallelism, match="5 executors for 4 tasks"):
        nimbus.submit(spec(executors=5), bundle=code)
    with pytest.raises(NotFound, match="code bundle"):
        nimbus.submit(spec(), bundle="0" * 64)
    assert cluster.look.children(paths.TOPOLOGIES) == () and nimbus.topologies() == ()


def test_a_node_that_lacks_a_module_is_named(cluster: Cluster) -> None:
    nimbus = cluster.nimbus(gateway=MemoryNodeGateway({"n2:7": ["numpy"]}))
    cluster.node("n1", address="n1:7")
    cluster.node("n2", address="n2:7")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    with pytest.raises(NotShippable, match="numpy on node n2"):
        nimbus.submit(spec(), bundle=cluster.bundle(nimbus), requires=["json", "numpy"])


def test_a_silent_node_does_not_stop_a_submit(cluster: Cluster) -> None:
    class Silent(MemoryNodeGateway):
        def missing_modules(self, address: str, modules: object, timeout: float) -> tuple[str, ...]:
            raise Unavailable(f"{address} does not answer")

    nimbus = cluster.nimbus(gateway=Silent())
    cluster.node("n1", address="n1:7")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    nimbus.submit(spec(), bundle=cluster.bundle(nimbus), requires=["numpy"])
    assert "node-silent" in cluster.kinds(nimbus)


def test_one_name_one_running_topology(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    with pytest.raises(AlreadyExists, match="'wc' is running"):
        nimbus.submit(spec(), bundle=cluster.bundle(nimbus))


def test_a_topology_whose_tasks_have_all_finished_ends_and_its_name_is_free(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    nodes = [cluster.node("n1"), cluster.node("n2")]
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    cluster.started(nimbus, spec())
    first = nimbus.describe("wc").state.id
    nodes[0].finish("wc")
    assert nimbus.describe("wc").state.status is TopologyStatus.ACTIVE
    nodes[1].finish("wc")
    cluster.event(nimbus, "topology-finished")
    cluster.gone(paths.assignment(WC))
    cluster.until(nimbus, lambda: not nimbus.describe("wc").workers)
    (line,) = nimbus.topologies()
    assert line.status is TopologyStatus.FINISHED and line.workers == 0
    assert sum(c.finished for c in nimbus.describe("wc").components) == 9
    with pytest.raises(Refused, match="is finished"):
        nimbus.rebalance("wc", workers=1)
    cluster.started(nimbus, spec())
    assert nimbus.describe("wc").state.id != first
    assert not any(c.finished for c in nimbus.describe("wc").components)


def test_the_record_of_an_ended_topology_is_removed_after_the_retention(cluster: Cluster) -> None:
    nimbus = cluster.nimbus(keep_ended=1)
    node = cluster.node("n1", 3)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    for name in ("a", "b"):
        cluster.started(nimbus, spec(name, workers=1))
        node.finish(name)
        cluster.until(nimbus, lambda name=name: nimbus.describe(name).state.ended > 0)
    cluster.gone(paths.topology(TopologyName("a")))
    cluster.until(nimbus, lambda: [t.name for t in nimbus.topologies()] == ["b"])
    nimbus.kill("b", wait=0)
    assert cluster.look.children(paths.TOPOLOGIES) == ()


def test_the_retention_ends_by_time(cluster: Cluster) -> None:
    nimbus = cluster.nimbus(retention=0.2)
    node = cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec(workers=1))
    node.finish("wc")
    cluster.gone(paths.topology(WC))
    cluster.event(nimbus, "topology-removed")


def test_what_is_told_of_a_topology_after_its_end_is_not_kept_for_ever(cluster: Cluster) -> None:
    """That its last worker has died comes after its record has gone; each may have another name."""
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    reports, gone = nimbus._lead().reports, TopologyName("gone")
    nimbus.ingest("n1", (), [Event(1.0, "worker-lost", "", topology=gone)])
    assert reports.errors(gone)
    cluster.started(nimbus, spec(workers=1))
    nimbus.deactivate("wc")  # something changes
    cluster.until(nimbus, lambda: not reports.errors(gone))


def test_an_executor_that_gives_up_fails_the_topology(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    node = cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec(workers=1))
    node.progress("wc", failed="count[6-7]: too many errors")
    cluster.event(nimbus, "topology-failed")
    cluster.until(nimbus, lambda: nimbus.topologies()[0].status is TopologyStatus.FAILED)
    assert nimbus.topologies()[0].reason == "count[6-7]: too many errors"
    cluster.gone(paths.assignment(WC))


# --- kill, activate, deactivate


def test_kill_drains_then_removes_everything(cluster: Cluster, background: ThreadPoolExecutor) -> None:
    nimbus = cluster.nimbus()
    node = cluster.node("n1")
    node.change(drains=False)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    killing = background.submit(nimbus.kill, "wc", wait=PATIENCE)
    cluster.until(nimbus, lambda: nimbus.topologies()[0].status is TopologyStatus.INACTIVE)
    with pytest.raises(AlreadyExists, match="being stopped"):
        nimbus.submit(spec(), bundle=cluster.bundle(nimbus))
    with pytest.raises(Refused, match="being killed"):
        nimbus.activate("wc")
    assert "not yet: wc@n1/0, wc@n1/1" in nimbus.describe("wc").waits[0]
    node.change(drains=True)
    killing.result(PATIENCE)
    said = {e.kind: e for _, e in nimbus.events.since(0)}
    assert said["topology-deactivated"].details == {"drain": 1}, "it drains first"
    assert said["topology-killed"].details.keys() == {"id", "seconds"} and "topology-removed" in said
    assert cluster.look.children(paths.TOPOLOGIES) == () and nimbus.topologies() == ()
    with pytest.raises(NotFound):
        nimbus.kill("wc", wait=0)


def test_kill_does_not_wait_longer_than_it_was_told(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    node = cluster.node("n1")
    node.change(drains=False)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    nimbus.kill("wc", wait=0.1)
    assert nimbus.topologies() == ()


def test_what_is_left_of_a_topology_without_a_record_is_in_nobodys_way(cluster: Cluster) -> None:
    """Whatever has made it: no kill could take it away, as there is nothing to kill."""
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.look.put(f"{paths.progress(WC)}/wc@n1:0", b"{}")
    path = paths.worker(WC, WorkerId("wc@n1/0"))
    living = cluster.service.connect()
    living.create(path, b"{}", ephemeral=True)
    with pytest.raises(ElasticError, match="workers of an earlier topology 'wc' live"):
        nimbus.submit(spec(), bundle=cluster.bundle(nimbus))
    living.close()
    cluster.gone(path)
    cluster.started(nimbus, spec())
    nimbus.kill("wc", wait=0)
    assert cluster.look.children(paths.TOPOLOGIES) == ()


def test_kill_says_which_workers_do_not_end(cluster: Cluster) -> None:
    nimbus = cluster.nimbus(stop_timeout=0.3)
    node = cluster.node("n1")
    node.change(lingers=True)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    with pytest.raises(DeadlineExceeded, match="wc@n1/0, wc@n1/1"):
        nimbus.kill("wc", wait=0)
    assert nimbus.topologies()[0].status is TopologyStatus.KILLED
    node.change(lingers=False)
    cluster.gone(paths.topology(WC))


def test_deactivate_says_whether_everything_is_worked_off(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    node = cluster.node("n1")
    node.change(drains=False)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    assert nimbus.deactivate("wc", wait=0.1) is False
    assert nimbus.describe("wc").state.status is TopologyStatus.INACTIVE
    node.change(drains=True)
    assert nimbus.deactivate("wc", wait=PATIENCE) is True
    assert nimbus.describe("wc").state.drain == 1
    nimbus.activate("wc")
    nimbus.activate("wc")
    assert nimbus.topologies()[0].status is TopologyStatus.ACTIVE
    assert cluster.kinds(nimbus).count("topology-activated") == 1


# --- rebalance


def test_rebalance_returns_when_the_workers_have_carried_it_out(
    cluster: Cluster, background: ThreadPoolExecutor
) -> None:
    nimbus = cluster.nimbus()
    node = cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec())
    node.change(obedient=False)
    with pytest.raises(DeadlineExceeded, match=r"worker wc@n1/0 has not carried it out; worker wc@n1/1"):
        nimbus.rebalance("wc", executors={"split": 4}, wait=0.1)
    assert "has not carried out assignment 2 (it is at 1)" in nimbus.describe("wc").waits[0]
    again = background.submit(nimbus.rebalance, "wc", executors={"count": 4}, wait=PATIENCE)
    cluster.until(nimbus, lambda: nimbus.describe("wc").assignment.epoch == 3)
    node.change(obedient=True)
    a = again.result(PATIENCE)
    assert len(a.executors) == 9 and nimbus.describe("wc").assignment == a


def test_rebalance_to_more_workers_and_back(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.node("n2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    cluster.started(nimbus, spec(workers=1, stateful=False))
    a = nimbus.rebalance("wc", workers=2, wait=PATIENCE)
    assert {s.node for s in a.workers.values()} == {"n1", "n2"}
    b = nimbus.rebalance("wc", workers=1, wait=PATIENCE)
    assert len(b.workers) == 1
    assert len(nimbus.describe("wc").workers) == 1
    assert nimbus.rebalance("wc", workers=1) == b


def test_rebalance_without_numbers_spreads_over_nodes_that_came_later(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1", 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    nimbus.submit(spec(stateful=False), bundle=cluster.bundle(nimbus))
    assert nimbus.describe("wc").waits[0] == "wanted: 2 workers; there are slots for 1"
    before = nimbus.describe("wc").assignment
    assert nimbus.rebalance("wc", wait=PATIENCE) == before
    cluster.node("n2", 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    assert len(nimbus.rebalance("wc", wait=PATIENCE).workers) == 2
    cluster.settled(nimbus, "wc")


def test_rebalance_refuses_what_cannot_be(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1", 3)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    with pytest.raises(NotFound, match="no component 'sort'"):
        nimbus.rebalance("wc", executors={"sort": 1})
    with pytest.raises(
        Refused, match=r"'wc': component 'count' has 4 tasks and cannot have 5 executors\n.*1 to 4"
    ):
        nimbus.rebalance("wc", executors={"count": 5})
    with pytest.raises(Refused, match="slots for 3"):
        nimbus.rebalance("wc", workers=5)
    with pytest.raises(NotFound, match=r"no topology 'wcc'\n.*'wc'"):
        nimbus.rebalance("wcc", workers=1)
    assert nimbus.describe("wc").assignment == before


# --- elasticity


def test_what_is_set_of_elasticity_is_said_once(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    for _ in range(2):
        assert nimbus.set_elasticity(scheduler="otd", period=7.0, nodes="--maximum 3").period == 7.0
    (said,) = (e for _, e in nimbus.events.since(0) if e.kind == "elasticity-set")
    assert said.details == {
        "policy": "",
        "scheduler": "otd",
        "period": 7.0,
        "nodes": "--enabled true --maximum 3",
    }
    assert said.message == "from now on: nodes --enabled true --maximum 3, scheduler otd"
