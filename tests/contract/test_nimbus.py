"""Nimbus against coordination in memory and against real ZooKeeper, with fake nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from coordination_harness import PATIENCE, Memory, Real, Seen, Service
from nimbus_harness import Cluster, FakeLauncher, spec

from elastic.coordination import paths
from elastic.coordination.base import SessionState
from elastic.errors import (
    AlreadyExists,
    DeadlineExceeded,
    InvalidParallelism,
    NotConnected,
    NotFound,
    NotShippable,
    Refused,
    Superseded,
    Unavailable,
)
from elastic.model.events import Event, Severity
from elastic.model.ids import ComponentId, TopologyName, WorkerId
from elastic.model.load import ExecutorLoad, TaskLoad, WorkerReport
from elastic.model.records import TopologyStatus
from elastic.nimbus.ports import MemoryNodeGateway
from elastic.nimbus.reign import Reign


@pytest.fixture(params=["memory", "zookeeper"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    service = Memory() if request.param == "memory" else Real(request.getfixturevalue("zookeeper_address"))
    yield service
    service.close()


@pytest.fixture
def cluster(service: Service, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(service, tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


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
    with pytest.raises(DeadlineExceeded, match=r"assignment 2 .* wc@n1/0, wc@n1/1 had not"):
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


def test_rebalance_refuses_what_cannot_be(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1", 3)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    with pytest.raises(NotFound, match="no component 'sort'"):
        nimbus.rebalance("wc", executors={"sort": 1})
    with pytest.raises(InvalidParallelism):
        nimbus.rebalance("wc", executors={"count": 5})
    with pytest.raises(Refused, match="live migration"):
        nimbus.rebalance("wc", executors={"count": 1})
    with pytest.raises(Refused, match="slots for 3"):
        nimbus.rebalance("wc", workers=5)
    with pytest.raises(NotFound, match=r"no topology 'wcc'\n.*'wc'"):
        nimbus.rebalance("wcc", workers=1)
    assert nimbus.describe("wc").assignment == before


# --- nodes


def test_executors_of_a_lost_node_go_elsewhere_at_once(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    n2 = cluster.node("n2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 2)
    before = cluster.started(nimbus, spec())
    n2.leave()
    cluster.until(nimbus, lambda: nimbus.describe("wc").assignment.epoch == 2)
    cluster.settled(nimbus, "wc")
    after = nimbus.describe("wc").assignment
    stayed = {e: w for e, w in before.executors if "@n1/" in w}
    assert stayed.items() <= dict(after.executors).items()
    assert {s.node for s in after.workers.values()} == {"n1"}
    kinds = cluster.kinds(nimbus)
    assert kinds.index("node-lost") < kinds.index("executors-reassigned")


def test_what_found_no_slot_is_placed_when_a_node_comes(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    n1 = cluster.node("n1", 1)
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec("first", workers=1))
    nimbus.submit(spec(), bundle=cluster.bundle(nimbus))
    assert nimbus.topologies()[1].unassigned == 5
    assert "no slot is free for lines[1-1]" in nimbus.describe("wc").waits[0]
    cluster.node("n2", 1)
    cluster.event(nimbus, "node-joined")
    cluster.until(nimbus, lambda: not nimbus.describe("wc").assignment.unassigned)
    n1.leave()
    cluster.until(nimbus, lambda: len(nimbus.describe("first").assignment.unassigned) == 5)
    cluster.event(nimbus, "executors-waiting")


def test_without_any_node_everything_stays_written(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    n1 = cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    n1.leave()
    cluster.until(nimbus, lambda: not nimbus.nodes())
    assert "no node is alive" in nimbus.describe("wc").waits[0]
    cluster.node("n1", generation=2)
    cluster.settled(nimbus, "wc")
    assert nimbus.describe("wc").assignment == before
    assert all(w.restarts == 1 for w in nimbus.describe("wc").workers)


def test_nodes_are_added_by_name_and_awaited(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("node-2")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    with pytest.raises(DeadlineExceeded, match="node-1, node-3"):
        nimbus.add_nodes(2, wait=0.1)
    FakeLauncher(cluster)
    assert nimbus.add_nodes(1, slots=3, host="fake", wait=PATIENCE) == ("node-4",)
    cluster.until(nimbus, lambda: len([n for n in nimbus.nodes() if n.alive and n.wanted]) == 3)


def test_draining_a_node_moves_what_may_move_and_ends_it(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec(stateful=False))
    nimbus.drain_node("node-1", wait=PATIENCE)
    cluster.settled(nimbus, "wc")
    assert [n.id for n in nimbus.nodes()] == ["node-2"]
    assert {s.node for s in nimbus.describe("wc").assignment.workers.values()} == {"node-2"}
    assert cluster.look.children(paths.WANTED) == ("node-2",) and cluster.look.children(paths.DRAINS) == ()
    assert "node-lost" not in cluster.kinds(nimbus)
    assert nimbus.add_nodes(1, wait=PATIENCE) == ("node-1",)


def test_draining_refuses_to_lose_state_unless_forced(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(2, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec())
    with pytest.raises(Refused, match="holds state of wc/count"):
        nimbus.drain_node("node-1", wait=1)
    assert not any(n.draining for n in nimbus.nodes())
    nimbus.drain_node("node-1", wait=PATIENCE, force=True)
    assert [n.id for n in nimbus.nodes()] == ["node-2"]
    cluster.settled(nimbus, "wc")
    with pytest.raises(NotFound, match="no node 'node-9'"):
        nimbus.drain_node("node-9", wait=1)


def test_draining_says_what_finds_no_other_place(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    FakeLauncher(cluster)
    nimbus.add_nodes(1, slots=2, wait=PATIENCE)
    cluster.started(nimbus, spec(workers=1, stateful=False))
    with pytest.raises(DeadlineExceeded, match="no other place is free for wc@node-1/0"):
        nimbus.drain_node("node-1", wait=0.1)
    nimbus.add_nodes(1, slots=2, wait=PATIENCE)
    cluster.until(nimbus, lambda: [n.id for n in nimbus.nodes()] == ["node-2"])


# --- reports


def test_reports_become_rates_and_events_become_errors(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    cluster.started(nimbus, spec(workers=1))
    (worker,) = nimbus.describe("wc").workers

    def report(
        time: float, executed: int, worker_id: str = worker.worker, topology: str = "wc"
    ) -> WorkerReport:
        return WorkerReport(
            topology, worker_id, worker.incarnation, time, 1, rss=1000,
            tasks=(TaskLoad(2, "split", "split[2-3]", executed=executed, emitted=2 * executed, queued=7),),
            executors=(ExecutorLoad("split[2-3]", busy=0.5),),
        )  # fmt: skip

    nimbus.ingest("n1", [report(10.0, 100), report(10.0, 1, topology="unknown")], [])
    assert nimbus.describe("wc").components[1].executed_rate == 0
    failure = Event(1.0, "tuple-failed", "ValueError", Severity.WARNING, "wc", "split", 2)
    nimbus.ingest("n1", [report(12.0, 500)], [failure])
    nimbus.ingest("n1", [report(11.0, 300)], [])
    detail = nimbus.describe("wc")
    split = detail.components[1]
    assert (split.executed, split.executed_rate, split.emitted_rate, split.queued) == (500, 200.0, 400.0, 7)
    assert split.busy == 0.5 and detail.executors[1].executed_rate == 200.0
    assert detail.workers[0].rss == 1000 and detail.errors == (failure,)
    assert nimbus.events.since(0, "wc")[-1][1] == failure


# --- more than one Nimbus


def test_only_the_leader_answers(cluster: Cluster) -> None:
    cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    assert second.leader() == "h:1" and not second.leading
    with pytest.raises(Refused, match="h:2 stands by; the leader is h:1"):
        second.topologies()


def kill_leader(cluster: Cluster, how: str) -> None:
    """The process of the leader is gone: its session expires, or it is closed by its owner's end."""
    session = cluster.sessions["h:1"]
    if how == "expired":
        cluster.service.expire(session)
    else:
        session.close()


@pytest.mark.parametrize("how", ["closed", "expired"])
def test_a_standby_takes_over_what_runs(cluster: Cluster, how: str) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    before = cluster.started(first, spec())
    kill_leader(cluster, how)
    assert second.wait_leading(PATIENCE) and second.leader() == "h:2"
    if how == "expired":
        assert first.wait_lost(PATIENCE)
        with pytest.raises(Unavailable, match="lost its session"):
            first.topologies()
    assert second.describe("wc").assignment == before
    seqs = [n for n, _ in second.events.since(0)]
    assert seqs == sorted(set(seqs)) and "topology-submitted" in cluster.kinds(second)
    node.finish("wc")
    cluster.event(second, "topology-finished")


@pytest.mark.parametrize("how", ["closed", "expired"])
def test_a_standby_goes_on_with_a_kill(cluster: Cluster, background: ThreadPoolExecutor, how: str) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    node.change(drains=False)
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    killing = background.submit(first.kill, "wc", wait=3 * PATIENCE)
    cluster.until(first, lambda: first.topologies()[0].status is TopologyStatus.INACTIVE)
    kill_leader(cluster, how)
    if how == "expired":
        with pytest.raises(Unavailable, match="stopped leading"):
            killing.result(PATIENCE)
    else:
        first.close()
    assert second.wait_leading(PATIENCE)
    assert second.topologies()[0].status is TopologyStatus.INACTIVE
    node.change(drains=True)
    cluster.gone(paths.topology(WC))
    cluster.event(second, "topology-removed")


def test_a_standby_goes_on_with_a_rebalance(cluster: Cluster, background: ThreadPoolExecutor) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    node = cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    node.change(obedient=False)
    waiting = background.submit(first.rebalance, "wc", executors={"split": 4}, wait=3 * PATIENCE)
    cluster.until(first, lambda: first.describe("wc").assignment.epoch == 2)
    kill_leader(cluster, "expired")
    with pytest.raises(Unavailable, match="stopped leading"):
        waiting.result(PATIENCE)
    assert second.wait_leading(PATIENCE)
    assert second.describe("wc").assignment.epoch == 2
    node.change(obedient=True)
    a = second.rebalance("wc", executors={"split": 4}, wait=PATIENCE)
    assert a.epoch == 2 and len(a.executors) == 7


def test_a_submit_is_done_or_not_when_the_leader_dies(cluster: Cluster) -> None:
    first = cluster.nimbus("h:1")
    second = cluster.nimbus("h:2", wait=False)
    cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    code = cluster.bundle(first)
    reign = first._reign
    assert reign is not None
    before, real = threading.Event(), cluster.sessions["h:1"].transaction

    def dying(operations: object) -> None:
        if not before.is_set():
            before.set()
            kill_leader(cluster, "expired")
        real(operations)  # type: ignore[arg-type]

    reign.coordination.transaction = dying  # type: ignore[method-assign]
    with pytest.raises((Unavailable, Superseded)):
        first.submit(spec(), bundle=code)
    assert second.wait_leading(PATIENCE) and second.topologies() == ()
    cluster.started(second, spec())


@pytest.fixture
def blinded(cluster: Cluster) -> Iterator[tuple[Cluster, object]]:
    """A first leader that does not notice that it is superseded: the thread that would tell it is held up."""
    first = cluster.nimbus("h:1")
    cluster.node("n1")
    cluster.until(first, lambda: len(first.nodes()) == 1)
    cluster.started(first, spec())
    held, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        release.wait(2 * PATIENCE)

    cluster.sessions["h:1"].watch_value("/hold", hold)
    assert held.wait(PATIENCE)
    second = cluster.nimbus("h:2", wait=False)
    two = Seen[tuple[str, ...]]()
    cluster.look.watch_children(paths.CANDIDATES, two)
    mine = two.wait(lambda calls: bool(calls) and len(calls[-1]) == 2)[-1][0]
    cluster.look.delete(f"{paths.CANDIDATES}/{mine}")
    assert second.wait_leading(PATIENCE) and first.leading
    yield cluster, first
    release.set()


def test_a_superseded_leader_changes_nothing(blinded: tuple[Cluster, object]) -> None:
    cluster, first = blinded
    before = cluster.look.get(paths.state(WC))
    with pytest.raises(Superseded, match="another Nimbus leads"):
        first.deactivate("wc")  # type: ignore[attr-defined]
    assert cluster.look.get(paths.state(WC)) == before


def test_without_the_guard_a_superseded_leader_would(
    blinded: tuple[Cluster, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault that the test above finds."""
    cluster, first = blinded
    monkeypatch.setattr(Reign, "guard", lambda self: ())
    monkeypatch.setattr(first, "options", replace(first.options, answer_timeout=0.1))  # type: ignore[attr-defined]
    before = cluster.look.get(paths.state(WC))
    first._reign.options = first.options  # type: ignore[attr-defined]
    first.deactivate("wc")  # type: ignore[attr-defined]
    assert cluster.look.get(paths.state(WC)) != before


def test_a_new_leader_waits_for_nodes_that_register_one_by_one(cluster: Cluster) -> None:
    first = cluster.nimbus("h:1")
    nodes = [cluster.node("n1"), cluster.node("n2")]
    cluster.until(first, lambda: len(first.nodes()) == 2)
    before = cluster.started(first, spec())
    first.close()
    for node in nodes:
        node.leave()
    second = cluster.nimbus("h:2", takeover_grace=PATIENCE)
    cluster.node("n1", generation=2)
    cluster.until(second, lambda: len(second.nodes()) == 1)
    assert second.describe("wc").assignment == before
    cluster.node("n2", generation=2)
    cluster.settled(second, "wc")
    assert second.describe("wc").assignment == before


def test_a_lost_connection_is_not_an_empty_cluster(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    before = cluster.started(nimbus, spec())
    session = cluster.sessions["h:1"]
    states = Seen[SessionState]()
    session.watch_session(states)
    cluster.service.cut(session)
    states.until_last(SessionState.SUSPENDED)
    with pytest.raises(NotConnected):
        nimbus.topologies()
    cluster.service.restore(session)
    assert nimbus.wait_leading(PATIENCE)
    assert nimbus.describe("wc").assignment == before and before.executors
    nimbus.rebalance("wc", executors={"split": 4}, wait=PATIENCE)


def test_ids_are_what_people_expect(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.node("n1")
    cluster.until(nimbus, lambda: len(nimbus.nodes()) == 1)
    a = cluster.started(nimbus, spec())
    assert WorkerId("wc@n1/0") in a.workers
    assert {e.component for e, _ in a.executors} == {ComponentId(c) for c in ("lines", "split", "count")}
